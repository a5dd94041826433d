"""The records of one slice without a broker: each way of reading gives the same rows and the same counts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest

from kappa import clock
from kappa.delta import queries, tables
from kappa.errors import LedgerError
from kappa.offsets import set_asides
from kappa.offsets.set_asides import SetAside, value_hash
from kappa.offsets.vector import OffsetRange
from kappa.record.ledger_rows import LedgerRow
from kappa.slices.input.reading import Counts, Reading
from kappa.topology import Source
from kappa.topology.masking import fingerprint

if TYPE_CHECKING:
    from conftest_spark import Log, Sent
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

#: Each type that a schema may name is in one of these: what Arrow parses, and what only ``from_json`` does.
EXACT = (
    "n BIGINT NOT NULL, i INT, s SMALLINT, t TINYINT, b BOOLEAN, x STRING, f DOUBLE, m DECIMAL(12,2), "
    "l ARRAY<BIGINT>, r STRUCT<x: INT, y: ARRAY<STRING>>"
)
OTHERS = (
    "n BIGINT NOT NULL, f FLOAT, raw BINARY, d DATE, at TIMESTAMP, m MAP<STRING, TIMESTAMP>, l ARRAY<DATE>, "
    "r STRUCT<at: TIMESTAMP>"
)


def exact(n: int) -> bytes:
    """A record of :data:`EXACT`."""
    row = {"n": n, "i": -n, "s": n % 100, "t": n % 7, "b": n % 2 == 0, "x": f"é{n}", "f": n / 3, "m": n + 0.25}
    return orjson.dumps({**row, "l": [n, None], "r": {"x": n, "y": ["a"]}})


def other(n: int) -> bytes:
    """A record of :data:`OTHERS`."""
    at = f"2026-03-01T12:{n % 60:02d}:00.{n % 1000:03d}+00:00"
    row = {"n": n, "f": n / 4, "raw": "AP8=", "d": "2026-03-01", "at": at, "m": {"k": at}}
    return orjson.dumps({**row, "l": ["1999-12-31", None], "r": {"at": at}})


def records(count: int, percent_in_json: int, *, is_exact: bool) -> list[Sent]:
    """Every eleventh is broken; this percentage has a line break, which Arrow leaves to ``from_json``."""
    sent: list[Sent] = []
    for n in range(count):
        value = exact(n) if is_exact else other(n)
        if n % 100 < percent_in_json:
            value = value.replace(b"{", b"{\n", 1)
        if n % 11 == 10:
            value = (b"{", b"\xff", b'{"n": "x"}', b'{"x": "no n"}', b'{"n":\n"x"}')[n % 5]
        sent.append((0, 1_700_000_000_000 + (n * 7919) % 5000, value, None if n % 13 == 0 else b"key"))
    return sent


def read(
    spark: SparkSession, raw: DataFrame, sources: Sequence[Source], count: int, small_slice: int
) -> tuple[list[str], list[str], Counts, Reading]:
    """Rows and dead letters of a slice of this many offsets in each source's partition 0, sorted text; its counts."""
    now = clock.now()
    ranges = tuple(OffsetRange(topic=source.topic, partition=0, start=0, end=count) for source in sources)
    plan = LedgerRow(kind="plan", seq=1, writer="test", at=now, ranges=ranges)
    committed = LedgerRow(kind="commit", seq=0, writer="test", at=now)
    with Reading(spark, "", sources, plan, committed, raw, small_slice=small_slice) as reading:
        rows = [repr(row) for frame in reading.records.values() for row in frame.toArrow().to_pylist()]
        letters = [repr(row) for row in reading.dead_letters().to_pylist()]
        return sorted(rows), sorted(letters), reading.counts(), reading


@pytest.mark.parametrize(
    ("schema", "percent_in_json"),
    [(EXACT, 0), (EXACT, 2), (EXACT, 70), (OTHERS, 0), (None, 0)],
    ids=["all by Arrow", "few by Spark", "many by Spark", "only by Spark", "text"],
)
def test_slices_in_and_beyond_memory_read_the_same_records(
    log: Log, spark: SparkSession, schema: str | None, percent_in_json: int
) -> None:
    source = Source(topic="pos", schema=schema) if schema else Source(topic="pos", format="string")
    sent = records(600, percent_in_json, is_exact=schema != OTHERS)
    raw = log(sent).localCheckpoint()
    rows, letters, counts, _ = read(spark, raw, [source], 600, 50_000)
    assert (counts.rows_read, counts.rows_parsed, counts.rows_dead) == (600, len(rows), len(letters))
    assert counts.rows_read == counts.rows_parsed + counts.rows_dead
    assert counts.rows_dead >= 10
    keys = sum(len(b"key") for item in sent if item[3])
    assert counts.bytes_read == keys + sum(len(item[2]) for item in sent)
    large = read(spark, raw, [source], 600, 100)
    assert large[:3] == (rows, letters, counts)


def test_a_slice_with_times_and_beyond_memory_by_default_is_counted(spark: SparkSession) -> None:
    count = 50_001
    value = """CAST('{"at": "2026-03-01T12:00:00.123+00:00"}' AS BINARY) AS value"""
    place = ["'pos' AS topic", "0 AS partition", "id AS offset", "timestamp_millis(1700000000000 + id) AS timestamp"]
    raw = spark.range(count).coalesce(1).selectExpr("CAST(NULL AS BINARY) AS key", value, *place)
    source = Source(topic="pos", schema="at TIMESTAMP NOT NULL")
    rows, letters, counts, reading = read(spark, raw, [source], count, 50_000)
    assert not reading.is_small
    assert (len(rows), letters, counts.rows_read, counts.rows_parsed) == (count, [], count, count)


@pytest.mark.parametrize("small_slice", [50_000, 0], ids=["in memory", "beyond"])
@pytest.mark.parametrize("schema", [EXACT, OTHERS], ids=["by Arrow", "by Spark"])
def test_times_of_any_year_are_kept(
    log: Log, spark: SparkSession, tmp_path: Path, schema: str, small_slice: int
) -> None:
    far, early = 1_700_000_000_000_000, -70_000_000_000_000  # microseconds sent as milliseconds; before year 1
    value = exact(1) if schema == EXACT else other(1)
    raw = log([(0, early, value), (0, far, b"{"), (0, 10**12, value)])
    source = Source(topic="pos", schema=schema)
    now = clock.now()
    plan = LedgerRow(
        kind="plan", seq=1, writer="test", at=now, ranges=(OffsetRange(topic="pos", partition=0, start=0, end=3),)
    )
    committed = LedgerRow(kind="commit", seq=0, writer="test", at=now)
    with Reading(spark, "", [source], plan, committed, raw, small_slice=small_slice) as reading:
        rows = reading.records["pos"].toArrow().sort_by("_offset")
        letters = reading.dead_letters()
        counts = reading.counts()
    assert counts.max_timestamps == {"pos": {0: far}}
    assert rows["_order_timestamp"].cast("int64").to_pylist() == [early * 1000, far * 1000]
    tables.create(str(tmp_path / "letters"), tables.DEAD_LETTER)
    tables.append(str(tmp_path / "letters"), letters, 1)
    timestamps = queries.query(str(tmp_path / "letters"), None)["timestamp"].cast("int64").to_pylist()
    by_spark = spark.read.format("delta").load(str(tmp_path / "letters")).selectExpr("unix_micros(timestamp) AS t")
    assert timestamps == [row["t"] for row in by_spark.where("t > 0").collect()] == [far * 1000]
    later = LedgerRow(kind="commit", seq=1, writer="test", at=now, max_timestamps=counts.max_timestamps)
    with Reading(spark, "", [source], plan, later, raw, small_slice=small_slice) as reading:
        rows = reading.records["pos"].toArrow()
        assert set(rows["_order_timestamp"].cast("int64").to_pylist()) == {far * 1000}, "the maximum carries over"


def test_a_stage_that_runs_for_several_jobs_is_counted_once(
    log: Log, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = log(records(600, 0, is_exact=True)).localCheckpoint()
    source = Source(topic="pos", schema=EXACT)
    expected = read(spark, raw, [source], 600, 100)[2]

    def uncached(self: Reading, frames: Sequence[DataFrame]) -> None:
        """Nothing is kept: each job runs the stage of the others again."""

    monkeypatch.setattr(Reading, "hold", uncached)
    assert read(spark, raw, [source], 600, 100)[2] == expected


KEY, OTHER_KEY = "a key that is in no lake", "another key, as long as that"
REFUSED = orjson.dumps({"n": 2})


@pytest.mark.parametrize(
    ("topic", "hashed", "mask"),
    [
        ("pos", value_hash(REFUSED), ""),
        ("cards", value_hash(REFUSED, KEY), fingerprint(KEY)),
        ("cards", value_hash(REFUSED, OTHER_KEY), fingerprint(OTHER_KEY)),
        ("cards", value_hash(REFUSED), ""),
        ("pos", value_hash(REFUSED, KEY), ""),
        ("pos", value_hash(b"other"), None),
        ("cards", value_hash(b"other", KEY), None),
    ],
    ids=[
        "as it is", "with the key", "with an earlier key", "before it was sensitive", "as release 0.1.0 did",
        "of another value", "of another value with the key",
    ],
)  # fmt: skip
def test_a_record_set_aside_is_recognised_whichever_source_is_sensitive(
    log: Log, spark: SparkSession, topic: str, hashed: str, mask: str | None
) -> None:
    sources = [Source(topic="pos", schema="n INT"), Source(topic="cards", schema="n INT", sensitive=True)]
    raw = log([(0, 1, {"n": 1}), (0, 2, REFUSED)]).union(log([(0, 1, {"n": 1}), (0, 2, REFUSED)], "cards"))
    key = {"mask": mask or fingerprint(KEY)} if topic == "cards" and mask != "" else {}
    one = SetAside(decision=7, reason="why", topic=topic, topic_id="id", partition=0, offsets={1: hashed}, **key)
    now = clock.now()
    ranges = tuple(OffsetRange(topic=source.topic, partition=0, start=0, end=2) for source in sources)
    detail = set_asides.detail((one,))
    plan = LedgerRow(kind="plan", seq=1, writer="test", at=now, ranges=ranges, detail=detail)
    committed = LedgerRow(kind="commit", seq=0, writer="test", at=now)

    def counts() -> Counts:
        with Reading(spark, "", sources, plan, committed, raw, mask_key=KEY) as reading:
            return reading.counts()

    if mask is None:
        with pytest.raises(LedgerError, match=rf"{topic}\[0\] at offset 1 has another value than .* decision 7"):
            counts()
    else:
        assert (counts().rows_parsed, counts().rows_set_aside) == (3, 1)
