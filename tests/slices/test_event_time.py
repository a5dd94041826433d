"""Event time of a slice's records: each way of reading matches plain Python."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from support.changes import change

from kappa import clock
from kappa.offsets.releases import Releases, releases_detail, unknown, up_to
from kappa.offsets.vector import OffsetRange, ranges_end
from kappa.record.ledger_rows import LedgerRow
from kappa.slices.input.reading import Counts, Reading
from kappa.topology import Source
from kappa.topology.times.event_time import Frontier

if TYPE_CHECKING:
    from conftest_spark import Log, Sent
    from pyspark.sql import SparkSession

    from kappa.wire.row_times import Released

pytestmark = pytest.mark.spark

GRACE, AHEAD, COUNT = 2_000, 60_000, 400
BEGIN = 1_700_000_000_000
Row = tuple[int, int, int, int]


def event_ms(value: bytes, timestamp_ms: int) -> int | None:
    """The time of a good record, None of one that is a dead letter, by the rule that is tested."""
    try:
        at = orjson.loads(value).get("at")
    except orjson.JSONDecodeError:
        return None
    if isinstance(at, str):
        at = int(at[17:19]) * 1000 + int(at[20:23]) + BEGIN // 60_000 * 60_000
    return at if isinstance(at, int) and at <= timestamp_ms + AHEAD else None


def records(seed: int, kind: str) -> list[Sent]:
    """Records out of order in two partitions; some broken, some tombstones, some too far ahead."""
    chance = random.Random(seed)
    sent: list[Sent] = []
    for n in range(COUNT):
        sent_ms = BEGIN + n * 20
        at: Any = sent_ms - chance.randrange(0, 6_000)
        if n % 37 == 0:
            at = sent_ms + AHEAD + 1
        if kind == "TIMESTAMP":
            seconds, millis = divmod(at - BEGIN // 60_000 * 60_000, 1000)
            at = f"2023-11-14T22:13:{seconds % 60:02d}.{millis:03d}Z" if seconds < 60 else 1.5
        value: bytes | None = orjson.dumps({"n": n, "at": None if n % 41 == 0 else at})
        if n % 31 == 0:
            value = value.replace(b"{", b"{\n", 1)
        if n % 43 == 0:
            value = None
        if n % 47 == 0:
            value = b"{"
        # Kafka's timestamps of what has no event time of its own lie far ahead: they must not move anything.
        is_strange = value is None or value == b"{"
        sent.append((n % 2 if n > 50 else 0, sent_ms + (500_000 if is_strange else 0), value, b"key"))
    return sent


def timed_by(
    kind: str | None, seed: int, idle_after: str | None = None, *, tombstones: bool = False
) -> tuple[Source, list[Sent]]:
    """A source whose time is a column of that type, or Kafka's, and its records."""
    source = Source(
        topic="pos",
        schema=f"n BIGINT, at {kind or 'STRING'}",
        time="at" if kind else None,
        grace="2 seconds",
        ahead="1 minute",
        idle_after=idle_after,
        key_schema="k STRING" if tombstones else "",
        tombstones=tombstones,
    )
    sent = records(seed, kind or "BIGINT")
    if kind is None:
        sent = [(p, t, None if v is None else v.replace(b'"at":', b'"other":'), key) for p, t, v, key in sent]
    return source, sent


#: Of partition 1, offsets at which a slice ends, and in the middle of one.
RELEASED = {1: {41: BEGIN + 3_000, 77: BEGIN + 5_500, 175: BEGIN + 9_000}}


def expected(
    sent: Sequence[Sent], source: Source, released: Released | None = None
) -> tuple[list[Row], dict[int, int]]:
    """Partition, offset, event time, frontier and whether that is a release's of the good records; stream times at the
    end.
    """
    offsets, reached = {0: 0, 1: 0}, dict[int, int]()
    rows = []
    for partition, timestamp_ms, value, *_ in sent:
        offset = offsets[partition]
        offsets[partition] += 1
        least = [ms for at, ms in (released or {}).get(partition, {}).items() if at <= offset]
        if least:
            reached[partition] = max(*least, reached.get(partition, 0))
        so_far = reached.get(partition)
        if value is None:
            if not source.tombstones:
                continue
            own: int | None = timestamp_ms
            if source.time is not None and so_far is not None:
                own = min(timestamp_ms, so_far)
            assert own is not None
            stands = own if so_far is None else so_far
            rows.append((partition, offset, own, stands - GRACE, so_far in least))
            continue
        own = event_ms(value, timestamp_ms) if source.time else None if value == b"{" else timestamp_ms
        if own is None:
            continue
        reached[partition] = max(own, reached.get(partition, own))
        rows.append((partition, offset, own, reached[partition] - GRACE, reached[partition] in least))
    return sorted(rows), reached


def read(
    spark: SparkSession,
    log: Log,
    source: Source,
    sent: Sequence[Sent],
    cuts: Sequence[int],
    small_slice: int,
    released: Released | None = None,
) -> tuple[list[Row], Counts, Mapping[str, Frontier]]:
    """The same, read in slices that end at these records."""
    rows: list[Row] = []
    committed = LedgerRow(kind="commit", seq=0, writer="test", at=clock.now())
    whole = log(sent).localCheckpoint()
    known_releases: Releases = {}
    before = {0: 0, 1: 0}
    for cut in cuts:
        after = {p: sum(1 for item in sent[:cut] if item[0] == p) for p in before}
        ranges = tuple(OffsetRange(topic="pos", partition=p, start=before[p], end=after[p]) for p in before)
        slice_releases = up_to({"pos": released or {}}, ranges_end(ranges), at_end=True)
        detail = releases_detail(unknown(slice_releases, known_releases))
        plan = LedgerRow(kind="plan", seq=1, writer="test", at=clock.now(), ranges=ranges, detail=detail)
        condition = " OR ".join(
            f"(partition = {r.partition} AND offset >= {r.start} AND offset < {r.end})" for r in ranges
        )
        records = whole.where(condition)
        with Reading(
            spark, "", [source], plan, committed, records, small_slice=small_slice, released=known_releases
        ) as reading:
            read = reading.records["pos"].selectExpr(
                "_partition",
                "_offset",
                "unix_millis(_event_time) AS own",
                "unix_millis(_frontier) AS frontier",
                "_is_released",
            )
            rows += [tuple(row) for row in read.collect()]
            counts, frontiers = reading.counts(), reading.frontiers
            assert counts.rows_read == counts.rows_parsed + counts.rows_dead
        committed = LedgerRow(
            kind="commit",
            seq=1,
            writer="test",
            at=clock.now(),
            max_timestamps=counts.max_timestamps,
            stream_times=counts.stream_times,
        )
        before, known_releases = after, slice_releases
    return sorted(rows), counts, frontiers


@pytest.mark.parametrize("small_slice", [50_000, 0], ids=["in memory", "beyond"])
@pytest.mark.parametrize("tombstones", [False, True], ids=["null values are dead letters", "tombstones"])
@pytest.mark.parametrize("kind", ["BIGINT", "TIMESTAMP", None], ids=["epoch ms", "timestamp", "of Kafka"])
def test_event_times_and_frontiers_depend_on_offsets_alone(
    spark: SparkSession, log: Log, kind: str | None, tombstones: bool, small_slice: int
) -> None:
    source, sent = timed_by(kind, 20261123, tombstones=tombstones)
    rows, reached = expected(sent, source)
    assert len(rows) > 300

    whole = read(spark, log, source, sent, [COUNT], small_slice)
    cut = read(spark, log, source, sent, [60, 200, 201, COUNT], small_slice)

    for actual, counts, frontiers in (whole, cut):
        assert actual == rows
        assert counts.stream_times == {"pos": reached}
        assert frontiers == {"pos": Frontier(ms=min(reached.values()) - GRACE)}


@pytest.mark.parametrize("small_slice", [50_000, 0], ids=["in memory", "beyond"])
def test_a_change_without_a_row_has_the_event_time_of_its_partition(
    spark: SparkSession, log: Log, small_slice: int
) -> None:
    timed, sent = timed_by("BIGINT", 20261123, tombstones=True)
    rows, reached = expected(sent, timed)
    source = replace(timed, tombstones=False, envelope="debezium", key_format="json")

    actual, counts, _ = read(spark, log, source, [in_envelope(*item) for item in sent], [60, COUNT], small_slice)

    assert (actual, counts.stream_times) == (rows, {"pos": reached})


def in_envelope(partition: int, timestamp_ms: int, value: bytes | None, key: bytes | None = None) -> Sent:
    """The same record as a change: null values as deletions, other values without a row unchanged."""
    try:
        row = None if value is None else orjson.loads(value)
    except orjson.JSONDecodeError:
        return partition, timestamp_ms, value, key
    envelope = change("d" if row is None else "c", row, lsn=1)
    return partition, timestamp_ms, orjson.dumps(envelope), b'{"k":"a"}'


@pytest.mark.parametrize("small_slice", [50_000, 0], ids=["in memory", "beyond"])
@pytest.mark.parametrize("kind", ["BIGINT", None], ids=["epoch ms", "of Kafka"])
def test_a_partition_has_at_least_the_time_of_a_release_from_its_offset_on(
    spark: SparkSession, log: Log, kind: str | None, small_slice: int
) -> None:
    source, sent = timed_by(kind, 20261124, idle_after="1 second")
    assert sum(1 for item in sent if item[0] == 1) == 175
    rows, reached = expected(sent, source, RELEASED)
    reached[1] = max(reached[1], RELEASED[1][175])
    assert rows != expected(sent, source)[0]
    assert 10 < sum(is_released for *_, is_released in rows) < len(rows) // 2

    for cuts in ([COUNT], [132, 200, 201, COUNT]):
        actual, counts, frontiers = read(spark, log, source, sent, cuts, small_slice, RELEASED)
        assert actual == rows
        assert counts.stream_times == {"pos": reached}
        assert frontiers == {"pos": Frontier(ms=min(reached.values()) - GRACE)}


def test_a_partition_without_records_holds_the_frontier_back(spark: SparkSession, log: Log) -> None:
    source = Source(topic="pos", schema="n BIGINT", grace="2 seconds")

    _, counts, frontiers = read(spark, log, source, [(1, BEGIN, b'{"n": 1}')], [1], 50_000)

    assert counts.stream_times == {"pos": {1: BEGIN}}
    assert frontiers == {"pos": Frontier(ms=None)}


def test_a_dead_letter_says_why_its_event_time_is_invalid(spark: SparkSession, log: Log) -> None:
    source = Source(topic="pos", schema="at BIGINT", time="at", grace="0 seconds", ahead="1 second")
    values = [
        b'{"at": 1}',
        b"{}",
        orjson.dumps({"at": BEGIN + 1_001}),
        b'{"at": -9223372036854775808}',
        b'{\n"at": null}',
    ]
    reasons = []
    for small_slice in (50_000, 0):
        plan = LedgerRow(
            kind="plan",
            seq=1,
            writer="test",
            at=clock.now(),
            ranges=(OffsetRange(topic="pos", partition=0, start=0, end=5),),
        )
        committed = LedgerRow(kind="commit", seq=0, writer="test", at=clock.now())
        raw = log([(0, BEGIN, value) for value in values])
        with Reading(spark, "", [source], plan, committed, raw, small_slice=small_slice) as reading:
            letters = reading.dead_letters().sort_by("offset")
        reasons.append(letters.select(["offset", "value", "reason"]).to_pylist())
    far = "the event time at lies too far past the record's timestamp, or is not a time"
    absent = "the event time at is absent"
    assert reasons[0] == reasons[1]
    assert [(row["offset"], row["reason"]) for row in reasons[0]] == [(1, absent), (2, far), (3, far), (4, absent)]
    assert [row["value"] for row in reasons[0]] == values[1:]
