"""Random schemas, topologies, records and cuts: what comes out is told by plain Python.

A case is a source with a schema of its own, of all types, nested, its columns named as real ones are, and three shipped
operators on it: rows appended as they are, the newest row per key, and aggregates per key. A topology has several cases
side by side.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from kappa.testing import Input, TopologyDriver
from kappa.topology import Source, Topology, registry
from kappa.topology.ddl import quote
from support.json_outcomes import DEAD, HOSTILE, SIMPLE, drawn_type, drawn_value

if TYPE_CHECKING:
    import pyarrow as pa

    from support.campaign_lab import Seen
    from support.held_slices import HeldSlices

#: Names that real columns have; the key is one of them too.
NAMES = (
    "id",
    "_id",
    "@timestamp",
    "$set",
    "log.level",
    "Größe",
    "select",
    "MixedCase",
    "größe_2",
    "a-b",
    "a/b",
    "日本",
    "it's",
    'a"b',
    "back`tick",
    "key",
    "value",
    "count",
    "5xx",
)
KEYS = ("a", "b", "", " ", "Größe", "🙂")

_FILE = '''
"""Cases of a campaign, side by side."""

from kappa import Append, Source, Table, Topic, Topology
from kappa.operators import agg, aggregate, newest

#: Topic -> number of the case, key, columns.
CASES = {cases!r}
SOURCES = {{topic: Source(topic=topic, schema=schema) for topic, (_, _, schema) in CASES.items()}}
COUNTS = [
    aggregate(
        SOURCES[topic],
        key=key,
        aggregates={{"n": agg.count(), "last": agg.max(key)}},
        table=f"counts_{{number}}",
    )
    for topic, (number, key, _) in CASES.items()
]


def step(slice):
    """Rows as they are, the newest one per key, and aggregates per key."""
    effects = {{}}
    for topic, (number, key, _) in CASES.items():
        rows = slice[topic]
        effects[f"rows_{{number}}"] = rows
        effects[f"newest_{{number}}"] = newest(rows, key=key)
    for counts in COUNTS:
        counts(slice)
    return effects


campaign = Topology(
    name={name!r},
    version="1",
    sources=list(SOURCES.values()),
    operators=COUNTS,
    tables=[Table(name=f"newest_{{number}}", key=[key], schema=schema) for number, key, schema in CASES.values()],
    outputs=[
        output
        for topic, (number, key, schema) in CASES.items()
        for output in (
            Append(name=f"rows_{{number}}", schema=schema),
            Topic(name=f"{{topic}}.rows", of=f"rows_{{number}}", key=key),
        )
    ],
    step=step,
)
'''


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record of a case.

    Attributes:
        value: what is sent.
        row: column -> what a row holds; None for a dead letter.
    """

    value: bytes | None
    row: dict[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class Case:
    """A source, and what is sent to it.

    Attributes:
        topic: its topic.
        key: the column that holds the key.
        columns: column -> type, the key among them.
        required: columns that are NOT NULL.
        records: what is sent, in order.
    """

    topic: str
    key: str
    columns: dict[str, str]
    required: frozenset[str]
    records: list[Record] = field(default_factory=list)

    @property
    def schema(self) -> str:
        """The columns as Spark DDL."""
        parts = (
            f"{quote(name)} {kind}{' NOT NULL' if name in self.required else ''}" for name, kind in self.columns.items()
        )
        return ", ".join(parts)

    @property
    def good(self) -> list[dict[str, Any]]:
        """The rows of its good records, in order."""
        return [record.row for record in self.records if record.row is not None]


def drawn_case(seed: int, *, records: int = 24, is_wide: bool = False) -> Case:
    """The case of a seed.

    Args:
        records: how many it sends.
        is_wide: whether it has a column of each simple type, and a MAP of a MAP.
    """
    chance = random.Random(seed)
    kinds = [*SIMPLE, "MAP<STRING, MAP<STRING, TIMESTAMP>>"] if is_wide else []
    key, *others = chance.sample(NAMES, 1 + len(kinds) if is_wide else chance.randint(2, 6))
    types = kinds or [drawn_type(chance) for _ in others]
    case = Case(
        topic=f"case{seed}",
        key=key,
        columns={key: "STRING", **dict(zip(others, types, strict=True))},
        required=frozenset({key, *(name for name in others if not is_wide and chance.random() < 0.2)}),
    )
    for _ in range(records):
        case.records.append(_record(chance, case))
    return case


def _record(chance: random.Random, case: Case) -> Record:
    kind = chance.random()
    if kind < 0.06:
        return Record(value=None, row=None)
    if kind < 0.2:
        return Record(value=chance.choice(HOSTILE), row=None)
    bad = 0.25 if kind < 0.45 else 0.0
    key = chance.choice(KEYS)
    texts, row = {case.key: json.dumps(key, ensure_ascii=chance.random() < 0.5)}, {case.key: key}
    for name, declared in case.columns.items():
        if name == case.key:
            continue
        outcome = drawn_value(chance, declared, bad)
        row[name] = outcome.value
        if outcome.value is not None or chance.random() < 0.5:
            texts[name] = outcome.text
    shuffled = chance.sample(list(texts), len(texts))
    space = chance.choice(["", "", " ", "\n"])
    inner = f",{space}".join(f"{json.dumps(name)}:{space}{texts[name]}" for name in shuffled)
    more = f',{space}"no column":{space}{{"x":[1,null]}}' if chance.random() < 0.3 else ""
    value = f"{{{inner}{more}}}".encode()
    is_dead = any(one is DEAD for one in row.values()) or any(row[name] is None for name in case.required)
    return Record(value=value, row=None if is_dead else row)


def write_file(folder: Path, cases: Sequence[Case], name: str) -> None:
    """Write the file of a topology that has the cases side by side.

    Args:
        folder: the folder of topologies.
        name: the topology's name.
    """
    by_topic = {case.topic: (number, case.key, case.schema) for number, case in enumerate(cases)}
    (folder / "campaign.py").write_text(_FILE.format(cases=by_topic, name=name).lstrip())


def topology_of(cases: Sequence[Case]) -> Topology:
    """The cases side by side in one topology."""
    with TemporaryDirectory() as folder:
        write_file(Path(folder), cases, "tests.campaign")
        return registry.load(Path(folder), "tests.campaign")


def cut(chance: random.Random, cases: Sequence[Case], slices: int) -> list[list[Input]]:
    """The records of all cases in this many slices; how much of each topic a slice has is random."""
    places = {case.topic: sorted(chance.randint(0, len(case.records)) for _ in range(slices - 1)) for case in cases}
    batches: list[list[Input]] = []
    for number in range(slices):
        batch = []
        for case in cases:
            bounds = [0, *places[case.topic], len(case.records)]
            for place in range(bounds[number], bounds[number + 1]):
                value = case.records[place].value
                batch.append(Input(topic=case.topic, value=value, timestamp_ms=1_000 + place))
        batches.append(batch)
    return batches


def read(case: Case) -> pa.Table:
    """The rows of a case's records as the driver reads them in its memory; a Spark session knows the types."""
    import pyarrow as pa

    from kappa.wire.batches import Start
    from kappa.wire.parsing import layout_of, rows_of_records

    count = len(case.records)
    records = pa.table(
        {
            "_key": pa.nulls(count, pa.binary()),
            "_partition": pa.array([0] * count, pa.int32()),
            "_offset": pa.array(range(count), pa.int64()),
            "_timestamp": pa.array([1_000_000 + place for place in range(count)], pa.timestamp("us", "UTC")),
            "_value": pa.array([record.value for record in case.records], pa.binary()),
        }
    )
    return rows_of_records(records, layout_of(Source(topic=case.topic, schema=case.schema)), Start()).rows


def hold_read(case: Case, rows: pa.Table) -> int:
    """Assert that what was read is what the case says; how many values were compared."""
    compared = 0
    for record, row in zip(case.records, rows.to_pylist(), strict=True):
        expected, where = record.row, f"{case.topic}: {case.schema}: {record.value!r}"
        assert (row["_dead"] is None) == (expected is not None), f"{where}: {row['_dead']}"
        if expected is not None:
            assert _plain({name: row[name] for name in case.columns}) == _plain(expected), where
            compared += len(expected)
    return compared


def hold(cases: Sequence[Case], driver: TopologyDriver | HeldSlices | Seen, message: str) -> int:
    """Assert that what a driver has is what the cases say; how many values were compared.

    Raises:
        AssertionError: something differs; begins with the message and names the seed.
    """
    compared = 0
    for number, case in enumerate(cases):
        where = f"{message}, {case.topic}: {case.schema}"
        letters = sorted(row["_offset"] for row in driver.dead_letters if row["_topic"] == case.topic)
        expected = [place for place, record in enumerate(case.records) if record.row is None]
        wrong = [case.records[place].value for place in sorted(set(letters) ^ set(expected))]
        assert letters == expected, f"{where}: dead letters {letters}, expected {expected}: {wrong}"
        in_place = sorted(driver.rows_in_order(f"rows_{number}"), key=lambda row: row["_offset"])
        rows = [_plain({name: row[name] for name in case.columns}) for row in in_place]
        good = [_plain(row) for row in case.good]
        assert rows == good, (
            f"{where}: rows {[pair for pair in zip(rows, good, strict=False) if pair[0] != pair[1]][:2]}"
        )
        newest_rows = {row[case.key]: row for row in case.good}
        table = {row[case.key]: _plain(row) for row in driver.rows(f"newest_{number}")}
        assert table == {key: _plain(row) for key, row in newest_rows.items()}, f"{where}: newest"
        counts = {row[case.key]: row["n"] for row in driver.rows(f"counts_{number}")}
        keys = [row[case.key] for row in case.good]
        assert counts == {key: keys.count(key) for key in set(keys)}, f"{where}: counts"
        compared += sum(len(row) for row in case.good)
    return compared


def _plain(row: dict[str, Any]) -> dict[str, str]:
    """Values as text, so that -0.0 and 0.0 are told apart."""
    return {name: repr(_comparable(value)) for name, value in row.items()}


def _comparable(value: Any) -> Any:
    """Times by UTC's own zone, a MAP as its entries in order."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, dict):
        return {name: _comparable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_comparable(item) for item in value]
    return tuple(map(_comparable, value)) if isinstance(value, tuple) else value
