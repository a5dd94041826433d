"""A baseline that an earlier attempt began: finished, without a topic being deleted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
from support.slices import Epoch

from kappa.offsets.vector import Offsets
from kappa.replay.epoch_topics import EpochTopic
from kappa.slices.run import Sent
from kappa.slices.topics.changelog import EarlierAttempts, keys_in, write_baseline
from kappa.wire.encoding import Record


class Topics:
    """Topics in memory: a broker and a sender. Nothing can be deleted."""

    def __init__(self) -> None:
        self.records: dict[str, list[Record]] = {}

    def partitions(self, _: str) -> int:
        return 1

    def topics(self, prefix: str = "") -> tuple[str, ...]:
        return tuple(name for name in self.records if name.startswith(prefix))

    def adapted(self, topic: EpochTopic) -> EpochTopic:
        return topic

    def create(self, topic: EpochTopic) -> None:
        self.records[topic.name] = []

    def settled_ends(self, names: Iterable[str]) -> Offsets:
        return Offsets({name: {0: len(self.records[name])} for name in names})

    def low_watermarks(self, names: Iterable[str]) -> Offsets:
        return Offsets({name: {0: 0} for name in names})

    def fold(self, name: str, upto: Offsets) -> Iterator[list[tuple[bytes, bytes | None]]]:
        yield [(r.key or b"", r.value) for r in self.records[name][: upto.get(name, 0) or 0]]

    def read(self, _: Offsets, end: Offsets) -> Iterator[list[Any]]:
        for (name, _partition), last in end.items():
            yield [_Message(record) for record in self.records[name][:last]]

    def send(self, records: Iterable[Record], _: Offsets) -> None:
        for record in list(records):
            self.records[record.topic].append(record)


class _Message:
    def __init__(self, record: Record) -> None:
        self.key, self.value = lambda: record.key, lambda: record.value


def test_a_key_sent_by_an_earlier_attempt_and_gone_since_gets_a_tombstone(tmp_path: Path) -> None:
    epoch = Epoch(tmp_path, merge_seconds=0.0)
    epoch.slice({("a", 0): 1, ("b", 0): 2})
    kafka = Topics()
    engines = replace(epoch.run.engines, broker=kafka)  # type: ignore[arg-type]
    run = replace(epoch.run, engines=engines, sent=Sent(sender=kafka), topic_ids={"pos": "id"})  # type: ignore[arg-type]
    changelog = epoch.paths.changelog("sums")
    stale = [(b'{"id":"a","select":0}', b"old"), (b'{"id":"z","select":0}', b"old"), (b'{"id":"y","select":0}', None)]
    kafka.records[changelog] = [Record(changelog, key, value) for key, value in stale]
    row = write_baseline(run)
    assert (row.kind, row.seq) == ("baseline", 1)
    folded = {r.key: r.value for r in kafka.records[changelog]}
    assert {orjson.loads(k)["id"]: v and orjson.loads(v)["total"] for k, v in folded.items() if k} == {
        "a": 1,
        "b": 2,
        "z": None,
        "y": None,
    }
    assert kafka.records[changelog][:3] == [Record(changelog, key, value) for key, value in stale], "nothing is deleted"
    assert {dict(r.headers or [])["seq"] for r in kafka.records[changelog][3:]} == {b"1"}
    assert orjson.loads(kafka.records[epoch.paths.markers][-1].value or b"")["seq"] == 1


def test_only_records_missing_from_an_own_topic_are_sent_again() -> None:
    kafka = Topics()
    kafka.records["own"] = [Record("own", b"k", b"1"), Record("own", b"k", b"2"), Record("own", None, b"1")]
    records = [Record("own", key, value) for key, value in ((b"k", b"1"), (b"k", b"1"), (b"k", b"2"), (b"k", b"3"))]
    with EarlierAttempts(kafka) as attempts:  # type: ignore[arg-type]
        missing = list(attempts.missing(records))
    assert [record.value for record in missing] == [b"1", b"3"]


def test_a_key_that_one_partition_deletes_may_be_alive_in_another(tmp_path: Path) -> None:
    kafka = Topics()
    kafka.records["log"] = [Record("log", b"k", b"1"), Record("log", b"k", None)]  # partitions come in any order
    engines = replace(Epoch(tmp_path).run.engines, broker=kafka)  # type: ignore[arg-type]
    with keys_in(engines, "log", with_deleted=True) as keys:
        assert list(keys.batches(2)) == [[b"k"]]
