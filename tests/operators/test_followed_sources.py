"""Chains: a reader of another topology's topic closes by that one's final times, and refuses none of its rows."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from support.compositions import (
    COMPOSITIONS,
    LEFT,
    RIGHT,
    SUMS,
    Row,
    at,
    cut,
    history,
    in_order,
    ms,
    record,
    windows_of,
)

from kappa import Append, Source, Topic, Topology
from kappa.errors import TopologyError, UsageError
from kappa.operators import agg, deduplicate, interval_join, newest_table_join, session_window, tumbling_window
from kappa.testing import Input, TopologyDriver, assert_slice_invariant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("small_slices")]

#: Operators and a column of theirs that a chain is made by.
CHAINS = [
    ("windows of windows", "out_0-window_start"),
    ("window of sessions", "out_0-session_end"),
    ("window of a left join", "out_0-lefts_at"),
    ("windows of windows", "out_1-window_end"),
    ("window of sliding windows", "out_0-window_start"),
    ("newest window at most every 6 seconds", "out_1-boundary"),
    ("window of first records", "out_0-lefts_at"),
    ("window of an inner join", "out_0-lefts_at"),
    ("window of rows with their version", "out_0-lefts_at"),
    ("left join of a join", "out_1-lefts_at"),
]


def reader_of(upstream: Topology, topic: str) -> Topology:
    """A topology that counts the rows of a topic in windows of 8 seconds."""
    output = next(one for one in upstream.topics if one.name == topic)
    columns = ", ".join(f"{column.name} {column.type}" for column in upstream.sent_columns(output))
    rows = Source(topic=topic, schema=columns, of=upstream.name, time=output.time)
    counts = tumbling_window(rows, key="id", size="8 seconds", aggregates={"n": agg.count()}, table="open")
    return Topology(
        name="test.reader",
        version="1",
        sources=[rows],
        operators=[counts],
        outputs=[Append(name="counts", of=counts.final)],
    )


def records_of(driver: TopologyDriver, topic: str, time: str, start: int) -> Iterator[Input]:
    """Records that a driver sent to a topic from a position on; keys lie in two partitions."""
    for key, value in driver.sent(topic)[start:]:
        assert value is not None
        at = orjson.loads(value)[time]
        millis = at if isinstance(at, int) else int(ms(datetime.fromisoformat(at)))
        yield Input(topic=topic, key=key, value=value, partition=len(key or b"") % 2, timestamp_ms=millis)


def time_of(column: str, row: Row) -> float:
    """Epoch milliseconds."""
    return ms(row[column]) if isinstance(row[column], datetime) else float(row[column])


def chained(
    spark: SparkSession, upstream: Topology, topic: str, slices: list[list[Input]], chance: random.Random
) -> tuple[TopologyDriver, TopologyDriver]:
    """Both topologies over the records: the reader takes one or several commits of the upstream in a slice."""
    above = TopologyDriver(upstream, spark, partitions=dict.fromkeys(upstream.source_topics, 2))
    below = TopologyDriver(reader_of(upstream, topic), spark, partitions={topic: 2})
    time = topic.partition("-")[2]
    start = 0
    for number, batch in enumerate(slices, start=1):
        above.pipe(batch)
        if number == len(slices) or chance.random() < 0.7:
            below.pipe(records_of(above, topic, time, start), final={topic: above.final[topic]})
            start = len(above.sent(topic))
    return above, below


def check(spark: SparkSession, name: str, topic: str, *, seed: int, cuts: tuple[int, ...]) -> None:
    """The reader counts what plain Python counts in one slice and in this many of them, and none is late for it."""
    composition, chance = COMPOSITIONS[name](), random.Random(seed)
    upstream, log = composition.topology(), history(chance, composition.sources, records=70)
    output, _, time = topic.partition("-")
    expected: list[Row] | None = None
    for slices in ([log], *(cut(chance, log, count) for count in cuts)):
        above, below = chained(spark, upstream, topic, slices, chance)
        if expected is None:
            rows = [row for row in above.rows(output) if row["id"] != "z"]
            counts = windows_of(rows, partial(time_of, time), 8_000, 8_000)
            names = ("id", "window_start", "window_end")
            expected = in_order({**{name: row[name] for name in names}, "n": row["rows"]} for row in counts)
            assert len(expected) > 1
        assert in_order(row for row in below.rows("counts") if row["id"] != "z") == expected
        assert below.rows("late_records") == [] and below.dead_letters == []


@pytest.mark.parametrize(("name", "topic"), CHAINS[:1])
def test_a_chained_reader_counts_the_same_however_both_are_cut(spark: SparkSession, name: str, topic: str) -> None:
    check(spark, name, topic, seed=0, cuts=(4,))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("name", "topic"), CHAINS)
def test_each_chain_counts_the_same_however_both_are_cut(spark: SparkSession, name: str, topic: str, seed: int) -> None:
    check(spark, name, topic, seed=seed, cuts=(4, 8))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3, 83))
@pytest.mark.parametrize(("name", "topic"), CHAINS)
def test_chains_count_the_same_however_both_are_cut(spark: SparkSession, name: str, topic: str, seed: int) -> None:
    check(spark, name, topic, seed=seed, cuts=(random.Random(seed).randrange(2, 9),))


def windows(**topic: Any) -> Topology:
    open_4 = tumbling_window(LEFT, key="id", size="4 seconds", aggregates=SUMS, table="open_4")
    outputs = [Append(name="sums", of=open_4.final), Topic(name="sums-out", of="sums", key="id", **topic)]
    return Topology(name="test.sums", version="1", sources=[LEFT], operators=[open_4], outputs=outputs)


def test_nothing_closes_before_the_upstream_says_what_is_final(spark: SparkSession) -> None:
    upstream = windows(time="window_start", on_replay="versioned")
    reader = reader_of(upstream, "sums-out")
    below = TopologyDriver(reader, spark, partitions={"sums-out": 2})
    row = {"id": "a", "window_start": at(0).isoformat(), "window_end": at(4_000).isoformat(), "rows": 1, "amount": 1}
    later = {**row, "window_start": at(60_000).isoformat(), "window_end": at(64_000).isoformat()}

    below.pipe([Input(topic="sums-out", value=one, timestamp_ms=0) for one in (row, later)])
    assert below.rows("counts") == []  # its own rows move no frontier
    below.pipe([], final={"sums-out": at(7_999)})
    assert below.rows("counts") == []
    below.pipe([], final={"sums-out": at(8_000)})
    assert [row["window_start"] for row in below.rows("counts")] == [at(0)]
    # A partition without records holds nothing back, and a row that comes after a later one is in time.
    below.pipe([Input(topic="sums-out", value={**row, "window_start": at(9_000).isoformat()}, timestamp_ms=9_000)])
    below.pipe([], final={"sums-out": at(70_000)})
    assert [row["window_start"] for row in below.rows("counts")] == [at(0), at(8_000), at(56_000)]
    assert below.rows("late_records") == []


def test_final_times_do_not_go_back_in_a_test(spark: SparkSession) -> None:
    upstream = windows(time="window_start", on_replay="versioned")
    below = TopologyDriver(reader_of(upstream, "sums-out"), spark)
    below.pipe([], final={"sums-out": at(8_000)})
    below.pipe([], final={"sums-out": None, "other-out": at(0)})
    with pytest.raises(UsageError, match=r"'sums-out'.* goes back from 1970-01-01 00:00:08.* to 1970-01-01 00:00:07"):
        below.pipe([], final={"sums-out": at(7_000)})
    below.pipe([], final={"sums-out": at(8_000)})


def test_rows_of_a_followed_topic_make_no_partition_idle(spark: SparkSession) -> None:
    upstream = windows(time="window_start", on_replay="versioned")
    reader = reader_of(upstream, "sums-out")
    beside = replace(LEFT, idle_after="2 seconds")
    below = TopologyDriver(replace(reader, sources=[*reader.sources, beside]), spark, partitions={"lefts": 2})
    row = {"id": "a", "window_start": at(60_000).isoformat(), "window_end": at(64_000).isoformat()}
    records = [record("lefts", 0, "a", 1, 3_000), record("lefts", 1, "a", 1, 1_500)]
    below.pipe([*records, Input(topic="sums-out", value=row, timestamp_ms=0)], final={"sums-out": at(2_000)})
    below.pipe([record("lefts", 0, "a", 1, 3_000)])
    assert [releases for _, releases in below.released] == [{}, {}]
    below.pipe([], final={"sums-out": at(3_600)})
    below.pipe([record("lefts", 0, "a", 1, 3_000)])
    assert below.released[-1][1] == {"lefts": {1: {1: 3_000}}}


def test_a_reader_is_checked_under_cuts_by_the_times_of_its_rows(spark: SparkSession) -> None:
    reader = reader_of(windows(time="window_start", on_replay="versioned"), "sums-out")
    starts = [0, 4_000, 0, 8_000, 4_000, 20_000, 16_000]
    rows = [
        Input(
            topic="sums-out",
            value={"id": "a", "window_start": at(start).isoformat(), "window_end": at(start + 4_000).isoformat()},
            partition=number % 2,
            timestamp_ms=start,
        )
        for number, start in enumerate(starts)
    ]
    assert_slice_invariant(reader, rows, spark, cuts=2, by_arrival=True)


def test_a_topic_can_be_followed_by_columns_with_a_known_distance() -> None:
    open_4 = tumbling_window(LEFT, key="id", size="4 seconds", aggregates=SUMS, table="open_4")
    runs = session_window(LEFT, key="id", gap="3 seconds", aggregates=SUMS, table="runs")
    days = tumbling_window(open_4.final, key="id", size="1 day", aggregates=SUMS, table="days")
    first = deduplicate(LEFT, key="id", within="3 seconds", table="seen")
    last = deduplicate(LEFT, key="id", within="3 seconds", table="seen", emit="final")
    pairs = interval_join(LEFT, RIGHT, key="id", before="1 second", after="4 seconds", tables=("l", "r"))
    outer = interval_join(LEFT, RIGHT, key="id", within="1 second", how="outer", tables=("l", "r"))

    assert open_4.final.times == {"window_start": 4_000, "window_end": 0}
    assert runs.final.times == {"session_end": 3_000}  # a session may begin at any time
    assert days.final.times == {"window_start": 86_400_000, "window_end": 0}
    assert first.rows.times == {"lefts_at": 0}
    assert last.rows.times == last.rows.lags == {}  # a run may have begun at any time
    assert pairs.rows.times == {"lefts_at": 4_000}  # the left record of a pair may be the earlier one
    left_join = interval_join(LEFT, RIGHT, key="id", within="3 seconds", how="left", tables=("l", "r"))
    again = interval_join(
        left_join.rows, RIGHT, key="id", within="2 seconds", how="left", tables=("p", "r"), right_rows="id STRING"
    )
    # A pair has the time of its right record, waits by that for 2 seconds more, and may have waited 3 seconds before.
    assert again.rows.times == {"lefts_at": 8_000}
    assert outer.rows.times == {}  # which has no left record where there is no pair
    # These refuse no row as late, so that any may come.
    named = newest_table_join(LEFT, RIGHT, key="id", table="newest")
    ever = deduplicate(LEFT, key="id", within=None, table="ids")
    assert named.rows.times == ever.rows.times == {}

    can = {time: windows(time=time, on_replay="versioned") for time in (None, "window_end", "amount")}
    is_followed = {time: one.followed(one.versioned_topics[0]) is not None for time, one in can.items()}
    assert is_followed == {None: False, "window_end": True, "amount": False}
    unsent = windows(time="window_end", on_replay="versioned", columns=["id", "rows"])
    assert unsent.followed(unsent.versioned_topics[0]) is None


def test_a_row_before_the_announced_final_time_is_refused(spark: SparkSession) -> None:
    open_4 = tumbling_window(LEFT, key="id", size="4 seconds", aggregates=SUMS, table="open_4")

    def step(slice: Any) -> Any:
        final = open_4(slice).final
        return {"sums": final.selectExpr("* EXCEPT (window_end)", "window_end - INTERVAL 4 SECONDS AS window_end")}

    outputs = [
        Append(name="sums", of=open_4.final),
        Topic(name="sums-out", of="sums", key="id", time="window_end", on_replay="versioned"),
    ]
    upstream = Topology(name="test.sums", version="1", sources=[LEFT], operators=[open_4], step=step, outputs=outputs)
    driver = TopologyDriver(upstream, spark)
    driver.pipe([record("lefts", 0, "a", 1, 0)])
    driver.pipe([record("lefts", 0, "a", 1, 7_000)])
    assert driver.final == {"sums-out": at(5_000)}
    with pytest.raises(TopologyError) as refused:
        driver.pipe([record("lefts", 0, "a", 1, 20_000)])
    assert "have a 'window_end' before 1970-01-01T00:00:05.000Z, up to which readers of topic 'sums-out'" in str(
        refused.value
    )


def test_a_source_of_a_topology_with_time_and_no_grace_follows_it() -> None:
    of = {"topic": "sums-out", "schema": "id STRING, window_end TIMESTAMP", "of": "test.sums"}
    follows = Source(**of, time="window_end")
    assert follows.follows_upstream and follows.has_event_time and follows.grace_ms == 0
    assert not Source(**of, time="window_end", grace="1 second").follows_upstream
    assert not Source(**of).has_event_time
    with pytest.raises(TopologyError, match="has time='at' and no grace"):
        Source(topic="a", schema="at TIMESTAMP", time="at")
    with pytest.raises(TopologyError, match=r"has tombstones=True and follows 'test\.sums'"):
        Source(**of, time="window_end", tombstones=True, key_schema="id STRING")
    with pytest.raises(TopologyError, match=r"to follow test\.sums, name the column of its time: time='window_end'"):
        tumbling_window(Source(**of), key="id", size="1 hour", aggregates={"n": agg.count()}, table="open")
    for wrong in ("absent", "id"):
        with pytest.raises(TopologyError, match="Name a column of type TIMESTAMP"):
            Source(**of, time=wrong)
