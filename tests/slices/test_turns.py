"""Claims, turns and closing markers on a log in memory; tests/slices/test_ownership.py has them on a real broker."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from kappa import control
from kappa.config import Config
from kappa.errors import RefusedError, SupersededError
from kappa.kafka import markers
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets
from kappa.record.epochs import Epochs
from kappa.replay.epoch_topics import EpochTopic
from kappa.slices.topics import ownership, turns
from kappa.wire.encoding import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST = EpochPaths(lake="/lakes/mine", topology="a.b", epoch=1)
SECOND = replace(FIRST, epoch=2)


@dataclass
class Message:
    record: Record

    def key(self) -> bytes | None:
        return self.record.key

    def value(self) -> bytes | None:
        return self.record.value


@dataclass
class Log:
    """Topics of one partition in memory, as far as claims and markers need a broker."""

    bootstrap_servers: str = "memory"
    records: dict[str, list[Record]] = field(default_factory=dict)

    def topics(self, prefix: str = "") -> tuple[str, ...]:
        return tuple(sorted(name for name in self.records if name.startswith(prefix)))

    def has_topic(self, name: str) -> bool:
        return name in self.records

    def adapted(self, topic: EpochTopic) -> EpochTopic:
        return topic

    def create(self, topic: EpochTopic) -> None:
        self.records.setdefault(topic.name, [])

    def stable_offsets(self, topics: list[str]) -> Offsets:
        return Offsets({topic: {0: len(self.records[topic])} for topic in topics})

    def low_watermarks(self, topics: list[str]) -> Offsets:
        return Offsets({topic: {0: 0} for topic in topics})

    def read(self, _: Offsets, end: Offsets) -> Iterator[list[Message]]:
        for topic in end.topics:
            yield list(map(Message, self.records[topic]))

    def last_record(self, topic: str, _: int, *, key: bytes | None = None) -> tuple[Any, Any, int] | None:
        matches = [record for record in self.records[topic] if key in (None, record.key)]
        return (matches[-1].key, matches[-1].value, 0) if matches else None

    def append(self, _: str, record: Record) -> None:
        self.records[record.topic].append(record)

    def mark(self, paths: EpochPaths, seq: int, **content: Any) -> None:
        defaults = {
            "seq": seq,
            "end": {"pos": {"0": seq}},
            "max_timestamps": {},
            "topic_ids": {},
            "shapes": {},
            "code": "c",
        }
        value = orjson.dumps({**defaults, "topology_version": "1", "sends": "live", **content})
        self.records.setdefault(paths.markers, [])
        self.append("", Record(paths.markers, b"marker", value))


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Any:
    empty = Log()
    monkeypatch.setattr(ownership, "append", empty.append)
    return empty


def test_the_first_claim_wins_and_is_written_once(log: Any) -> None:
    for _ in range(2):
        ownership.claim(log, FIRST, "mine")
    with pytest.raises(RefusedError, match="belongs to lake mine"):
        ownership.claim(log, replace(FIRST, lake="/other"), "other")
    assert next(record.key for record in log.records[FIRST.markers]).startswith(b"lake:")
    assert len(log.records[FIRST.markers]) == 1


def test_a_late_claim_is_neither_a_marker_nor_an_owner(log: Any) -> None:
    ownership.claim(log, FIRST, "mine")
    log.mark(FIRST, 3)
    log.append("", Record(FIRST.markers, b"lake:late", b'{"lake": "late"}'))
    marker = markers.read(log, FIRST)
    assert marker is not None and marker.seq == 3
    assert not ownership.is_ours(log, FIRST, "late") and ownership.is_ours(log, FIRST, "mine")


def test_a_marker_names_an_owner_without_a_claim_only_since_lake_ids(log: Any) -> None:
    log.mark(FIRST, 3)
    assert ownership.owner(log, FIRST) is None
    log.mark(FIRST, 4, lake="theirs")
    assert ownership.owners(log, "/lakes/mine", "a.b")[1].lake == "theirs"


def test_the_highest_turn_sent_last_and_without_turns_the_furthest_marker(log: Any, tmp_path: Path) -> None:
    config = Config(lake="/lakes/mine", bootstrap_servers="", topologies=tmp_path, home=tmp_path, cache=tmp_path)

    def last() -> int | None:
        marker = turns.last_live_marker(config, log, "a.b")
        return marker and marker[0]

    log.mark(FIRST, 5)
    log.mark(SECOND, 4)
    assert last() == 1
    log.mark(SECOND, 5)
    assert last() == 2
    log.mark(FIRST, 5, turn=1)
    assert (last(), turns.next_turn(log, FIRST, ""), turns.next_turn(log, SECOND, "")) == (1, 1, 2)
    log.mark(SECOND, 5, turn=2)
    assert (last(), turns.next_turn(log, FIRST, ""), turns.next_turn(log, SECOND, "")) == (2, 3, 2)


def test_an_epoch_goes_live_beside_one_of_another_lake_only_by_superseding_it(log: Any) -> None:
    log.mark(FIRST, 5, turn=1, lake="theirs")
    with pytest.raises(RefusedError, match="would send the same records again"):
        turns.next_turn(log, SECOND, "mine")
    log.mark(FIRST, 5, turn=1, lake="theirs", kind="superseded", superseded_by=2, superseded_lake="mine")
    assert turns.next_turn(log, SECOND, "mine") == 2


def test_a_superseded_epoch_is_recorded_once_and_does_not_start(log: Any, tmp_path: Path) -> None:
    config = Config(lake=str(tmp_path), bootstrap_servers="", topologies=tmp_path, home=tmp_path, cache=tmp_path)
    epochs, paths = Epochs(config.lake), replace(FIRST, lake=config.lake)
    for event in ("planned", "rewound", "seeded", "moved"):
        epochs.add("a.b", 1, event, actor="test", code="c")
    assert control.wanted_drivers(config) == [("a.b", 1)]
    log.mark(paths, 5, lake=epochs.lake_id(), superseded_by=2, superseded_lake="0123456789")
    with pytest.raises(SupersededError) as raised:
        turns.check_not_superseded(markers.read(log, paths), log, paths)
    for _ in range(2):
        turns.put_on_record(epochs, paths, raised.value)
    assert [event.event for event in epochs.record("a.b").events].count("superseded") == 1
    assert control.wanted_drivers(config) == []
    with pytest.raises(RefusedError, match="superseded by epoch 2 of lake 01234567"):
        control.start(config, "a.b", actor="test")
