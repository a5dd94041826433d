"""The laws of the archive: every record once, ranges that are proved, and a replay from it that equals one from Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from lab import Lab

from kappa import control
from kappa.replay.stages import Stage
from kappa.runtime import tables

if TYPE_CHECKING:
    pass

pytestmark = [pytest.mark.spark, pytest.mark.broker]


def rows(count: int, first: int = 0) -> list[tuple[str, int] | bytes]:
    """Moves of seven accounts, every eleventh record broken."""
    return [b"{" if n % 11 == 10 else (f"account-{n % 7}", n + 1) for n in range(first, first + count)]


def live(stream: Lab) -> int:
    """A first epoch that went live, read everything and was stopped."""
    epoch = stream.start()
    stream.await_live(epoch)
    stream.settle(epoch)
    assert stream.stop(epoch) == []
    return epoch


def replayed(stream: Lab, **request: Any) -> int:
    """A replay that was verified; its driver was stopped."""
    epoch = stream.plan_replay(**request)
    stream.run(epoch)
    stream.await_stage(epoch, Stage.VERIFIED)
    assert stream.stop(epoch) == []
    return epoch


def result(stream: Lab, epoch: int) -> dict[str, list[dict[str, Any]]]:
    """All that an epoch computed, in a fixed order, with the cuts of its slices."""
    paths = stream.paths(epoch)
    commits = stream.ledger(epoch).state().commits
    return {
        "moves": tables.query(paths.output("moves"), None, order_by="_partition, _offset").to_pylist(),
        "balances": tables.query(paths.table("balances"), None, order_by="id").to_pylist(),
        "dead": tables.query(paths.dead_letters, None, order_by="partition, offset").to_pylist(),
        "slices": [
            {"ranges": r.ranges, "read": r.rows_read, "dead": r.rows_dead, "newest": r.max_timestamps} for r in commits
        ],
    }


def from_both(stream: Lab, **request: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The results of a replay from Kafka and of one from the archive, one after the other."""
    found = []
    for archive in (False, True):
        epoch = replayed(stream, archive=archive, **request)
        found.append(result(stream, epoch))
        archived = [row.detail.get("archived") for row in stream.ledger(epoch).state().commits if row.seq > 0]
        assert all(archived) if archive else not any(archived)
        control.abort(stream.config, stream.name, epoch, actor="test", reason="test")
    return found[0], found[1]


def test_a_replay_from_the_archive_equals_one_from_kafka(stream: Lab) -> None:
    stream.produce(rows(120))
    live(stream)
    assert stream.archive(slice_records=50) == 120
    logged, archived = from_both(stream)
    assert archived == logged
    assert len(archived["dead"]) == 10
