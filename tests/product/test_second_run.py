"""A replay that computes its range twice: equal results, differences, and leftovers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kappa import control
from kappa.errors import MoveRefusedError
from kappa.record.ledger import Ledger
from kappa.replay.stages import Stage
from kappa.verify.certificate import certificate_of

if TYPE_CHECKING:
    from support.epochs import Lab

pytestmark = [pytest.mark.spark, pytest.mark.broker]

ROWS: list[tuple[str, int] | bytes] = [("abc"[n % 3], n + 1) for n in range(11)]
HONEST = '"CAST(amount * 1 AS BIGINT) AS counted"'


def live(stream: Lab) -> int:
    """A first epoch that has read everything and was stopped."""
    stream.produce(ROWS)
    epoch = stream.start_live()
    assert stream.stop(epoch) == []
    return epoch


def edit(stream: Lab, old: str, new: str) -> None:
    """Change the deployed file."""
    file = stream.config.topologies / "balances.py"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def recomputed(stream: Lab, epoch: int) -> Path:
    """Where second runs of an epoch are."""
    return Path(stream.paths(epoch).root, "recomputed")


def on_broker(stream: Lab) -> Any:
    """Topics, groups, and how much is in the output topic."""
    return stream.kafka.topics(), stream.kafka.groups("kappa."), stream.kafka.high_watermarks([f"{stream.topic}.moves"])


def test_a_deterministic_step_is_certified_and_its_second_run_leaves_nothing(stream: Lab) -> None:
    live(stream)
    second = stream.plan_replay(determinism=True, slice_records=5)
    before = on_broker(stream)
    stream.run(second)
    stream.await_stage(second, Stage.REPLAYED)
    assert stream.stop(second) == []
    own = {f"{stream.paths(second).name}.markers", stream.paths(second).changelog("balances")}
    topics, groups, ends = on_broker(stream)
    assert (set(topics) - own, set(groups) - {stream.paths(second).name}, ends) == (
        set(before[0]),
        set(before[1]),
        before[2],
    )
    assert not recomputed(stream, second).exists() or not list(recomputed(stream, second).iterdir())
    determinism = stream.record().epoch(second).determinism
    assert determinism.is_same
    assert (determinism.slice_records, determinism.slice_records_again) == (5, 3)
    assert determinism.slices_again > determinism.slices >= 2
    assert [(m.name, m.rows, m.rows_again) for m in determinism.members] == [("balances", 3, 3), ("moves", 11, 11)]
    assert len({m.hash for m in determinism.members}) == 2
    stream.run(second)
    stream.await_stage(second, Stage.VERIFIED)
    report = control.diff(stream.config, stream.name, second)
    assert (report.verdict, report.determinism) == ("same", determinism)
    assert any("computed twice" in note for note in notes(stream, second))


def test_a_differing_second_run_fails_the_verdict_by_column_and_masked_key(stream: Lab) -> None:
    live(stream)
    edit(stream, HONEST, '"CAST(amount + count(*) OVER () AS BIGINT) AS counted"')
    edit(stream, "totals(slice, counted)", "totals(slice, counted.where(\"now() > '2020-01-01'\"))")
    edit(stream, "from kappa.operators", "from dataclasses import replace\n\nfrom kappa.operators")
    edit(stream, "operators=[totals],", 'operators=[totals],\n    tables=[replace(totals.tables[0], masked=["id"])],')
    second = stream.plan_replay(determinism=True)
    stream.run(second)
    stream.await_stage(second, Stage.VERIFIED)
    report = control.diff(stream.config, stream.name, second)
    balances, moves = report.determinism.members if report.determinism else ()
    assert (balances.is_same, balances.columns, len(balances.samples)) == (False, ("total",), 3)
    assert all(key["id"].startswith("*") for key in balances.samples)
    assert (moves.is_same, moves.columns) == (False, ("counted", "total"))
    assert moves.samples[0]["record"].startswith(f"{stream.topic}[0] at ")
    assert report.verdict == "failed"
    assert sum(failure.startswith("determinism: ") for failure in report.failures) == 2
    with pytest.raises(MoveRefusedError, match="output moves: differs in counted, total"):
        control.cut_over(stream.config, stream.name, second, actor="test", reason="test")
    assert {(f.code, f.numbers["effect"]) for f in report.findings} == {
        ("reads-clock", "balances"),
        ("reads-clock", "moves"),
    }
    assert any("[reads-clock]" in note for note in notes(stream, second))


def test_a_stopped_second_run_resumes_and_housekeeping_finds_an_abandoned_one(stream: Lab) -> None:
    live(stream)
    second = stream.plan_replay(determinism=True, slice_records=1)
    stream.run(second)
    ledger = Ledger(stream.paths(second).recomputed("replay").ledger)
    stream.wait(lambda: ledger.exists() and len(ledger.state().commits) > 1, "the second run began")
    assert stream.stop(second) == []
    assert stream.record().epoch(second).stage is Stage.SEEDED
    kinds = {item.kind for item in control.housekeeping(stream.config).leftovers}
    assert "recomputation" not in kinds
    for path in [recomputed(stream, second), *recomputed(stream, second).rglob("*")]:
        os.utime(path, (0, 0))
    assert [i.name for i in control.housekeeping(stream.config).leftovers if i.kind == "recomputation"] == [
        str(recomputed(stream, second) / "replay")
    ]
    count = len(ledger.state().commits)
    first_again = ledger.state().commits[1]
    stream.run(second)
    stream.wait(lambda: len(ledger.state().commits) > count, "it goes on")
    assert ledger.state().commits[1] == first_again
    stream.await_stage(second, Stage.VERIFIED)
    determinism = stream.record().epoch(second).determinism
    assert (determinism.is_same, determinism.slice_records_again) == (True, 2)


def notes(stream: Lab, epoch: int) -> tuple[str, ...]:
    """The notes of a certificate of an epoch that is about to go live."""
    return certificate_of(stream.config.lake, stream.record(), candidate=epoch).notes
