"""A stream whose lake on S3 was deleted from outside, and which goes on after docs/restore-a-bucket.md was followed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
import pytest
from support.processes import Rig, rig, rows
from support.restored_bucket import BLOCKS, keep_versions, shell_on
from support.s3_options import write_options
from support.s3_server import S3Server, objects

from kappa.kafka.broker import Broker

if TYPE_CHECKING:
    from conftest import TopicFactory

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

THIS, OTHER = "tests/e2e/test_stream_of_restored_bucket.py", "tests/store/test_restored_bucket.py"
START_MS = 1_700_000_600_000


@pytest.fixture
def machine(tmp_path: Path, kafka: Broker, topic: TopicFactory, s3: S3Server) -> Iterator[Rig]:
    """A topology in a bucket with versions. Its files are removed as soon as no commit names them."""
    keep_versions(s3, tmp_path)
    login = str(write_options(s3, tmp_path / "lake.properties"))
    with rig(tmp_path, kafka, topic(partitions=2), lake=f"{s3.url}/lake", lake_client_file=login) as machine:
        yield machine


def names(server: S3Server, part: str = "") -> list[str]:
    """Objects of the bucket."""
    return [meta["path"] for chunk in obstore.list(objects(server)) for meta in chunk if part in meta["path"]]


def test_a_stream_goes_on_in_a_lake_that_was_deleted_and_put_back(machine: Rig, s3: S3Server, tmp_path: Path) -> None:
    since = datetime.now(UTC).isoformat()
    machine.produce(rows(60))
    epoch = machine.start_live()
    machine.settle(epoch)
    machine.produce(rows(60), start_ms=START_MS)
    machine.settle(epoch)
    shell = shell_on(s3, tmp_path, PREFIX="lake", SINCE=since, **machine.config.to_env())
    stop, look, afterwards = (block.replace("retail.loyalty", machine.name) for block in BLOCKS[THIS])
    shell.run(stop)
    machine.await_end(epoch)

    obstore.delete(objects(s3), names(s3, f"/moves/{machine.paths(epoch).folder}/part-"))
    printed = shell.run(look, code=1)
    assert "PROBLEM: outputs/moves: data file" in printed and "is gone" in printed
    obstore.delete(objects(s3), names(s3))
    assert "has no live epoch" in shell.run(look, code=1)

    listing, program, requests = BLOCKS[OTHER]
    shell.environ["UNTIL"] = datetime.now(UTC).isoformat()
    shell.run(listing)
    printed = shell.run_python(program)
    assert "deleted" in printed and "WRITTEN AGAIN" not in printed
    assert set(shell.run(requests).splitlines()) == {"null"}

    printed = shell.run(afterwards)
    assert "complete: each offset was sent by exactly one epoch" in printed
    assert f"Epoch {epoch} is as its ledger says." in printed
    machine.produce(rows(60), start_ms=START_MS + 600_000)
    machine.settle(epoch)
    assert machine.prove({epoch: 1}) == 180
