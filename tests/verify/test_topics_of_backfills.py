"""A topic counted again right after a backfill has replaced rows of its output: no broker, no driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from support import epoch_record
from support.epoch_record import FIRST, empty_lake, empty_plan

from kappa import clock
from kappa.delta import tables
from kappa.kafka.broker import Broker
from kappa.names import EpochPaths
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.record import code
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.topology import registry
from kappa.verify.topic_recount import recount_topics

NAME = "a.notices"
TOPOLOGY = f"""
from kappa import Append, Source, Topic, Topology

notices = Topology(
    name="{NAME}",
    version="1",
    sources=[Source(topic="pos", schema="id STRING, n BIGINT")],
    outputs=[Append(name="moves", schema="id STRING, n BIGINT"), Topic(name="notices", of="moves", key="id")],
    step=lambda slice: {{"moves": slice["pos"]}},
)
"""
RECORDS = [(b"a", b'{"id":"a","n":1}'), (b"b", b'{"id":"b","n":2}')]


@dataclass(frozen=True)
class Sent:
    """A record of the topic, as the client of Kafka gives it."""

    pair: tuple[bytes, bytes]

    def key(self) -> bytes:
        return self.pair[0]

    def value(self) -> bytes:
        return self.pair[1]


class OneTopic:
    """A broker with the topic of the epoch."""

    def topics(self, prefix: str) -> list[str]:
        return ["notices"]

    def low_watermarks(self, topics: list[str]) -> Offsets:
        return Offsets({"notices": {0: 0}})

    def decided_ends(self, topics: list[str]) -> Offsets:
        return Offsets({"notices": {0: len(RECORDS)}})

    def topic_configs(self, topics: list[str]) -> dict[str, dict[str, str]]:
        return {"notices": {"cleanup.policy": "delete"}}

    def read(self, start: Offsets, end: Offsets) -> Iterator[list[Sent]]:
        yield list(map(Sent, RECORDS))


def test_rows_of_a_backfill_that_only_the_ledger_has_count_as_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, folder = empty_lake(tmp_path, monkeypatch), tmp_path / "topologies"
    folder.mkdir()
    (folder / "notices.py").write_text(TOPOLOGY)
    plan = empty_plan(NAME, 1, Offsets({"pos": {0: 0}}))
    planned = {"plan_id": plan.id, "plan": plan.to_json(), "start": plan.start.to_json()}
    events: dict[str, Any] = {"planned": planned, "moved": {"from": None, "at": {"pos": {"0": 0}}}}
    stored = code.store(config.lake, folder, NAME)
    epoch_record.tell(config, NAME, 1, *FIRST, by_event=events, code=stored, version="1")

    paths = EpochPaths(lake=config.lake, topology=NAME, epoch=1)
    (moves,) = registry.load(folder, NAME).appends
    path = paths.output("moves")
    tables.create(path, (tables.SEQ, *moves.columns, *tables.LINEAGE))
    schema = tables.schema_of(path)

    def rows(seq: int, **numbers: int) -> pa.Table:
        each = [{**dict.fromkeys(schema.names), "_seq": seq, "id": key, "n": n} for key, n in numbers.items()]
        return pa.Table.from_pylist(each, schema=schema)

    tables.append(path, rows(1, a=1, b=2), 1)
    tables.replace_where(path, rows(2, a=10).to_reader(), "id = 'a'", 2, "plan")
    ledger = Ledger(paths.ledger)
    ledger.create()
    ledger.claim("driver", stored, ledger.state())
    for seq, start in ((0, 0), (1, 0), (2, 2)):
        detail = {"backfill": {"n": 9}} if seq == 2 else {"topic_ids": {}, "shapes": {}, "seed": "empty"}
        ends = 2 if seq else 0
        ledger.append(
            LedgerRow(
                kind="commit",
                seq=seq,
                writer="driver",
                at=clock.now(),
                code=stored,
                ranges=(OffsetRange(topic="pos", partition=0, start=start, end=ends),),
                sends="live" if seq else "held",
                delta_versions={"outputs/moves": seq},
                detail=detail,
            )
        )
    report = recount_topics(config, paths, cast(Broker, OneTopic()))
    assert report.problems == ()
    assert report.read == ("topic notices: 1 rows sent, 1 found, 1 other records",)
