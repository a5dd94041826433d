"""Which rows belong to an interval that is computed again, as SQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest

from kappa.driver.replacements.interval_rows import belongs, frontier_of_table
from kappa.offsets.vector import OffsetRange
from kappa.operators import agg, tumbling_window
from kappa.record.ledger_rows import LedgerRow
from kappa.topology import Append, Source, Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAID = Append(name="paid", schema="id STRING, at TIMESTAMP, ms BIGINT")
BEGIN, END = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=1)))


def test_rows_belong_by_the_records_that_they_come_from() -> None:
    ranges = [
        OffsetRange(topic="pos", partition=0, start=3, end=5),
        OffsetRange(topic="pos", partition=1, start=7, end=7),
    ]
    condition = belongs(PAID, None, BEGIN, END, ranges)
    assert condition == "(_topic = 'pos' AND _partition = 0 AND _offset >= 3 AND _offset < 5)"
    assert belongs(PAID, None, BEGIN, END, ranges[1:]) == "FALSE"


def test_rows_belong_by_a_column_from_the_beginning_to_before_the_end() -> None:
    assert belongs(PAID, "at", BEGIN, END, ()) == (
        "`at` >= '2026-01-01 00:00:00+00:00' AND `at` < '2026-01-01 23:00:00+00:00'"
    )
    in_micros = "arrow_cast({}000000, 'Timestamp(Microsecond, Some(\"UTC\"))')".format
    assert belongs(PAID, "at", BEGIN, END, (), engine="deltalake") == (
        f"`at` >= {in_micros(1767225600)} AND `at` < {in_micros(1767308400)}"
    )


def test_edges_between_two_milliseconds_are_those_of_the_next_one() -> None:
    micro = timedelta(microseconds=1)
    assert belongs(PAID, "ms", BEGIN, BEGIN + micro, ()) == "`ms` >= 1767225600000L AND `ms` < 1767225600001L"
    assert belongs(PAID, "ms", BEGIN - micro, BEGIN, ()) == "`ms` >= 1767225600000L AND `ms` < 1767225600000L"


def test_rows_of_windows_are_gone_by_the_frontier_of_their_own_input() -> None:
    hour = 3_600_000
    moves = Source(topic="moves", schema="id STRING", grace="1 hour")
    others = Source(topic="others", schema="id STRING", grace="1 hour")
    hours = tumbling_window(
        moves, key="id", size="1 hour", aggregates={"n": agg.count()}, table="open_hours", keep="2 hours"
    )
    rows = "id STRING, n BIGINT"
    days = tumbling_window(
        hours.final, rows=rows, key="id", size="1 day", aggregates={"n": agg.sum("n")}, table="days", keep="1 day"
    )
    topology = Topology(
        name="a.b",
        version="1",
        sources=[moves, others],
        operators=[hours, days],
        outputs=[Append(name="rows", of=days.final)],
    )
    committed = LedgerRow(
        kind="commit",
        seq=7,
        writer="w",
        at=BEGIN,
        ranges=tuple(OffsetRange(topic=topic, partition=0, start=9, end=9) for topic in ("moves", "others")),
        stream_times={"moves": {0: 9 * hour}},  # the other source has no record yet
    )
    (open_hours,), (open_days,) = hours.tables, days.tables
    assert frontier_of_table(topology, open_hours, committed, {}).ms == 8 * hour
    assert frontier_of_table(topology, open_hours, committed, {"moves": {0: {5: 9 * hour}}}).ms == 9 * hour
    behind = frontier_of_table(topology, open_days, committed, {}).ms
    assert behind == 8 * hour - days.inputs[0].behind_ms


@pytest.mark.spark
@pytest.mark.parametrize("year", [2, 1500, 2026, 9998])
def test_spark_takes_the_same_rows_as_the_engine_that_replaces_them(spark: SparkSession, year: int) -> None:
    """That engine is held by ``delta/test_replaced_rows.py``."""
    begin, end = BEGIN.replace(year=year), END.replace(year=year)
    epoch, micro = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
    times = [(at - epoch) // micro + step for at in (begin, end) for step in (-1, 0, 1)]
    frame = spark.createDataFrame([(n,) for n in times], "n BIGINT").selectExpr("n", "timestamp_micros(n) AS at")
    rows = frame.where(belongs(PAID, "at", begin, end, ())).collect()
    assert sorted(row.n for row in rows) == times[1:4]
