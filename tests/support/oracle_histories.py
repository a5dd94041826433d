"""Random histories of any topology, and what must come of them by plain Python.

    case = OracleCase(feeds={"ticks": Feed(make=tick)}, oracle=oracle_topologies.stocks_stats)
    assert_as_expected(STATS, case, spark, tmp_path, seed=20261121000)

A history has records that are out of order, late, repeated, null, no JSON or no record of the schema, huge or all but
empty, in partitions that lag each other. It is run under three ways of slicing, one of them in a lake with all slices
large, of every fifth history so large that Spark writes the effects; tables, outputs, late records and dead letters
must be those that the oracle computes from all of it at once.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kappa.testing import TopologyDriver
from kappa.topology import Source, Topology
from support.drawn_histories import EPOCH, Feed, History, Record, drawn, long_way, placed, ways_of
from support.held_slices import HeldSlices

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "DAY",
    "LARGE",
    "WAYS",
    "Expected",
    "Feed",
    "History",
    "Late",
    "Oracle",
    "OracleCase",
    "Record",
    "assert_as_expected",
]

#: ``SEED=20261122`` plays the histories of that day again.
DAY = int(os.environ.get("SEED") or f"{datetime.now(UTC):%Y%m%d}")
#: How many ways of slicing there are.
WAYS = 3
#: Longest history that is sliced in three ways; what a slice of a driver holds in memory.
LARGE = 50_000


@dataclass(frozen=True, kw_only=True)
class Late:
    """A record that an operator refused.

    Attributes:
        more: columns that the step had put beside those of the source.
    """

    record: Record
    operator: str
    reason: str
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What must come out: every table and every append output, by name, but ``late_records``.

    Rows of a table name all its columns but ``origin`` and those of the operators' own, which have ``__`` in their
    names or begin with ``_``; a row that names them is checked against them too. Rows of an output likewise: one that
    has ``**record.place`` comes from that record.
    """

    tables: Mapping[str, Iterable[Mapping[str, Any]]] = field(default_factory=dict)
    outputs: Mapping[str, Iterable[Mapping[str, Any]]] = field(default_factory=dict)
    late: Iterable[Late] = ()


Oracle = Callable[[History], Expected]


@dataclass(frozen=True, kw_only=True)
class OracleCase:
    """A topology's input and what must come of it.

    Attributes:
        feeds: topic -> how its records are drawn.
        oracle: what must come of a history, whatever the slices.
        cuts: ``arrival`` lets partitions and topics lag each other; ``time`` follows the total order, for a topology of
            class time cut.
    """

    feeds: Mapping[str, Feed]
    oracle: Oracle
    cuts: Literal["arrival", "time"] = "arrival"


def assert_as_expected(
    topology: Topology,
    case: OracleCase,
    spark: SparkSession,
    base: Path,
    *,
    seed: int,
    ways: Collection[int] = range(WAYS),
    large: Collection[int] = (1,),
    records: int = 80,
    partitions: int = 2,
) -> str:
    """Assert that a random history gives what the oracle says.

    In memory (:class:`kappa.testing.TopologyDriver`), or in a lake in which all slices are large
    (:class:`support.held_slices.HeldSlices`). A history of over 50,000 records has one way: in a lake, a slice that is
    large by itself and one that is small.

    Args:
        base: an empty folder.
        seed: which history.
        ways: which of the ways of slicing.
        large: which of them in a lake.
        records: how many.
        partitions: how many each topic has.

    Returns:
        What was tried.

    Raises:
        AssertionError: something differs; names the seed, the way of slicing and the first rows that do.
    """
    # What is idle depends on when a live stream looked: the oracles wait for every partition.
    topology = _waiting_for_all(topology)
    chance = random.Random(seed)
    sources = {source.topic: source for source in topology.sources}
    sent = drawn(chance, sources, case.feeds, records, partitions)
    log = placed(sent, sources, partitions)
    expected = case.oracle(log.history)
    expected_rows = _expected_rows(expected, sources)
    all_ways = ways_of(chance, sent, log.order_ms, case.cuts) if records <= LARGE else long_way(sent, log.order_ms)
    tried = [(number in large, *way) for number, way in enumerate(all_ways.items()) if number in ways]
    compared = 0
    for is_large, way, slices in tried:
        driver: TopologyDriver | HeldSlices
        if is_large or records > LARGE:
            forced = _forced(seed) if records <= LARGE else {"small_slice": LARGE}
            driver = HeldSlices(topology, spark, base, partitions=partitions, **forced)
        else:
            driver = TopologyDriver(topology, spark, partitions=dict.fromkeys(sources, partitions))
        for part in slices:
            driver.pipe(one.input for one in part)
        label = f"{topology.name}, seed {seed}, {way}, {'in a lake' if isinstance(driver, HeldSlices) else 'in memory'}"
        compared += _compare(driver, topology, expected_rows, label)
        letters = sorted((row["_topic"], row["_partition"], row["_offset"]) for row in driver.dead_letters)
        assert letters == sorted(log.dead), f"{label}: dead letters"
    kinds = Counter(kind for one in sent for kind in one.kinds)
    kinds["out of order"] = sum(record.is_out_of_order for record in log.history.records)
    kinds["late"] = len({(late.record.topic, late.record.partition, late.record.offset) for late in expected.late})
    shown = ", ".join(f"{many} {kind}" for kind, many in sorted(kinds.items()))
    return (
        f"{topology.name}: seed {seed}: {len(sent)} records ({shown}), {len(tried)} ways of slicing, "
        f"{sum(len(slices) for *_, slices in tried)} slices, {compared} rows compared"
    )


def _waiting_for_all(topology: Topology) -> Topology:
    """A topology none of whose partitions counts as idle. Its operators stay bound to the sources as declared."""
    result = copy(topology)
    object.__setattr__(result, "sources", tuple(replace(source, idle_after=None) for source in topology.sources))
    return result


def _forced(seed: int) -> dict[str, int]:
    """What makes every slice large; of every fifth history Spark writes the effects too."""
    return {"small_slice": 0, **({"arrow_rows": 0} if seed % 5 == 3 else {})}


def moment(millis: int) -> datetime:
    """Epoch milliseconds as a time."""
    return EPOCH + timedelta(milliseconds=millis)


def money(number: Any) -> Decimal | None:
    """A number of a JSON value as the decimal that it stands for."""
    return None if number is None else Decimal(str(number))


# What came out


def _expected_rows(expected: Expected, sources: Mapping[str, Source]) -> dict[str, list[dict[str, Any]]]:
    late = []
    for one in expected.late:
        own = [column.name for column in sources[one.record.topic].columns]
        values = {**{name: one.record[name] for name in own}, **one.more}
        frontier = one.record.frontier
        late.append(
            {
                "operator": one.operator,
                "reason": one.reason,
                "event_time": moment(one.record.at),
                "frontier": None if frontier is None else moment(frontier),
                "record": {name: value for name, value in values.items() if value is not None},
                **one.record.place,
            }
        )
    named = {**expected.tables, **expected.outputs, "late_records": late}
    return {name: [dict(row) for row in rows] for name, rows in named.items()}


def _compare(
    driver: TopologyDriver | HeldSlices,
    topology: Topology,
    expected_rows: Mapping[str, list[dict[str, Any]]],
    label: str,
) -> int:
    compared = 0
    members = {member.name: member for member in (*topology.tables, *topology.appends)}
    for name, member in members.items():
        is_table = member in topology.tables
        driver_rows = driver.state(name) if is_table else driver.rows_in_order(name)
        if name == "late_records":
            driver_rows = [{**row, "record": json.loads(row["record"], parse_float=Decimal)} for row in driver_rows]
        assert name in expected_rows, f"{label}: the oracle says nothing of {name!r}"
        rows = expected_rows[name]
        shown = set(rows[0]) if rows else set()
        hidden = {c.name for c in member.columns if c.name.startswith("_") or "__" in c.name or c.name == "origin"}
        missing = {column.name for column in member.columns} - shown - hidden
        assert not rows or not missing, f"{label}: the oracle leaves {sorted(missing)} of {name!r} out"
        ours = _sorted({column: row[column] for column in row if column in shown or not rows} for row in driver_rows)
        theirs = _sorted(rows)
        assert ours == theirs, f"{label}: {name}: {_difference(ours, theirs)}"
        compared += len(ours)
    if isinstance(driver, HeldSlices):
        return compared
    for topic in topology.topics:
        if topic.of in {append.name for append in topology.appends}:
            many = len(driver.sent(topic.name))
            assert many == len(expected_rows[topic.of]), f"{label}: {many} records sent to {topic.name}"
        elif set(topic.key) == set(topology.table(topic.of).key):
            newest = [value for value in dict(driver.sent(topic.name)).values() if value is not None]
            assert len(newest) == len(expected_rows[topic.of]), f"{label}: {len(newest)} keys in {topic.name}"
    return compared


def _difference(ours: Sequence[Any], theirs: Sequence[Any]) -> str:
    our_counts, their_counts = Counter(map(repr, ours)), Counter(map(repr, theirs))
    extra, missing = list((our_counts - their_counts).elements()), list((their_counts - our_counts).elements())
    lines = [f"{len(ours)} rows, {len(theirs)} wanted", *(f"  found:  {row}" for row in extra[:3])]
    return "\n".join([*lines, *(f"  wanted: {row}" for row in missing[:3])])


def _sorted(rows: Iterable[Mapping[str, Any]]) -> list[Any]:
    return sorted((plain(dict(row)) for row in rows), key=repr)


def plain(value: Any) -> Any:
    """A value as both sides can be compared: numbers by what they are worth, times as milliseconds, fields sorted."""
    if isinstance(value, dict):
        return {name: plain(value[name]) for name in sorted(value)}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, datetime):
        return (value - EPOCH) / timedelta(milliseconds=1)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value
    return format(Decimal(str(value)).normalize(), "f")
