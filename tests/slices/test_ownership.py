"""Which lake owns an epoch's names on the broker, which epoch sends, and how one is closed; without Spark."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from support.airflow_stack import wait_for
from support.epochs import read_messages
from support.markers import slice_marker

from kappa.config import Config
from kappa.errors import RefusedError, StaleWriterError, SupersededError
from kappa.kafka import markers
from kappa.kafka.broker import Broker
from kappa.kafka.producer import Sender
from kappa.names import EpochPaths
from kappa.slices.topics import changelog, ownership, turns
from kappa.wire.encoding import Record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.broker

_numbers = itertools.count(1)


@pytest.fixture
def paths(kafka: Broker, tmp_path: Path) -> Iterator[EpochPaths]:
    epoch_paths = EpochPaths(lake=str(tmp_path / "lake"), topology=f"own.ership{next(_numbers)}", epoch=1)
    yield epoch_paths
    kafka.delete_topics(kafka.topics(f"kappa.{epoch_paths.topology}."))


def config(paths: EpochPaths, kafka: Broker, tmp_path: Path) -> Config:
    return Config(
        lake=paths.lake, bootstrap_servers=kafka.bootstrap_servers, topologies=tmp_path, home=tmp_path, cache=tmp_path
    )


def mark(kafka: Broker, paths: EpochPaths, seq: int, **content: Any) -> None:
    """A marker as a driver sends it."""
    changelog.create_markers(kafka, paths)
    defaults = {
        "seq": seq,
        "end": {"pos": {"0": seq}},
        "max_timestamps": {},
        "topic_ids": {},
        "shapes": {},
        "code": "c",
    }
    value = orjson.dumps({**defaults, "topology_version": "1", "sends": "live", **content})
    with Sender(kafka.bootstrap_servers, paths.name, paths.name) as sender:
        sender.init()
        sender.send([Record(paths.markers, b"marker", value)], None)
        sender.init()  # returns when it is readable


def test_one_of_many_lakes_that_claim_at_once_owns_the_names_for_ever(kafka: Broker, paths: EpochPaths) -> None:
    def claim(lake: str) -> str | None:
        with Broker(kafka.bootstrap_servers) as broker:
            try:
                ownership.claim(broker, replace(paths, lake=f"/{lake}"), lake)
            except RefusedError as error:
                return str(error.data["owner"])
            return None

    lakes = [f"lake{n}" for n in range(6)]
    with ThreadPoolExecutor(len(lakes)) as threads:
        owners = dict(zip(lakes, threads.map(claim, lakes), strict=True))
    (winner,) = [lake for lake, refused in owners.items() if refused is None]
    assert {refused for refused in owners.values() if refused} == {winner}
    assert [claim(lake) for lake in lakes] == [None if lake == winner else winner for lake in lakes]
    owner = ownership.owner(kafka, paths)
    assert owner is not None and (owner.lake, owner.path) == (winner, f"/{winner}")
    assert kafka.topics(f"{paths.name}.") == (paths.markers,) and kafka.groups(paths.name) == ()


def test_claims_and_markers_are_read_where_their_topic_got_more_partitions(
    kafka: Broker, paths: EpochPaths, tmp_path: Path
) -> None:
    changelog.create_markers(kafka, paths)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(paths.markers, 12)])[paths.markers].result()
    wait_for(lambda: kafka.partitions(paths.markers) == 12, 30, "the partitions are there")
    ownership.claim(kafka, paths, "mine")
    of_slice = slice_marker(2, 2, lake="mine")
    with Sender(kafka.bootstrap_servers, paths.name, paths.name) as sender:
        sender.init()
        sender.send([markers.record(paths, of_slice)], None)
        sender.init()  # returns when it is readable
    assert markers.read(kafka, paths) == of_slice
    turns.supersede(config(paths, kafka, tmp_path), paths.topology, 1, by=2)
    kafka.settled_ends([paths.markers])
    marker = markers.read(kafka, paths)
    assert marker is not None and marker.superseded_by == 2
    assert {partition for (_, partition), end in kafka.high_watermarks([paths.markers]).items() if end} == {0}


def test_a_late_claim_is_not_a_marker_and_changes_nothing(kafka: Broker, paths: EpochPaths) -> None:
    ownership.claim(kafka, paths, "mine")
    mark(kafka, paths, 3, lake="mine")
    late = orjson.dumps({"lake": "late"})
    ownership.append(kafka.bootstrap_servers, Record(paths.markers, b"lake:late", late))
    marker = markers.read(kafka, paths)
    assert marker is not None and marker.seq == 3
    ownership.check(kafka, paths, "mine")
    with pytest.raises(RefusedError, match="belongs to lake mine"):
        ownership.check(kafka, paths, "late")


def test_the_epoch_with_the_highest_turn_sent_last_even_at_equal_offsets(
    kafka: Broker, paths: EpochPaths, tmp_path: Path
) -> None:
    second = replace(paths, epoch=2)
    mark(kafka, paths, 5, turn=1)
    mark(kafka, second, 5, turn=2)
    where = config(paths, kafka, tmp_path)

    def last() -> int:
        marker = turns.last_live_marker(where, kafka, paths.topology)
        assert marker is not None
        return marker[0]

    assert (last(), turns.next_turn(kafka, paths, ""), turns.next_turn(kafka, second, "")) == (2, 3, 2)
    mark(kafka, paths, 5, turn=3)
    assert (last(), turns.next_turn(kafka, paths, ""), turns.next_turn(kafka, second, "")) == (1, 3, 4)


def test_an_epoch_does_not_go_live_beside_one_of_another_lake(kafka: Broker, paths: EpochPaths) -> None:
    mark(kafka, paths, 5, turn=1, lake="theirs")
    with pytest.raises(RefusedError, match="would send the same records again"):
        turns.next_turn(kafka, replace(paths, epoch=2), "mine")
    mark(kafka, paths, 5, turn=1, lake="theirs", superseded_by=2, superseded_lake="mine")
    assert turns.next_turn(kafka, replace(paths, epoch=2), "mine") == 2


def test_a_closing_marker_repeats_the_last_one_and_ends_the_writer(
    kafka: Broker, paths: EpochPaths, tmp_path: Path
) -> None:
    ownership.claim(kafka, paths, "theirs")
    mark(kafka, paths, 7, turn=4, lake="theirs")
    with Sender(kafka.bootstrap_servers, paths.name, paths.name) as old:
        old.init()
        for _ in range(2):  # a rebuild that was interrupted is typed again
            turns.supersede(config(paths, kafka, tmp_path), paths.topology, 1, by=2)
        with pytest.raises(StaleWriterError):
            old.send([Record(paths.markers, b"marker", b"{}")], None)
    marker = markers.read(kafka, paths)
    assert marker is not None
    assert (marker.seq, marker.turn, marker.lake, marker.kind, marker.superseded_by) == (
        7,
        4,
        "theirs",
        "superseded",
        2,
    )
    with pytest.raises(SupersededError, match="superseded by epoch 2"):
        turns.check_not_superseded(marker, kafka, paths)
    assert len([m for m in read_messages(kafka.bootstrap_servers, paths.markers) if m.key() == b"marker"]) == 3
