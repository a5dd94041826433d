"""A full disk is told from a record that speaks of one, from whichever library the error comes."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kappa.presence.full_disk import is_full
from kappa.store.outages import is_outage

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

#: A line of a log, as a record has it.
LINE = "java.io.IOException: No space left on device, software.amazon.awssdk: 503 Service Unavailable, SlowDown"


def by_a_function(rows: DataFrame) -> DataFrame:
    def refused(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            raise ValueError(f"not a number: {batch.column(0)[0]}")
        yield from ()

    return rows.mapInArrow(refused, "number BIGINT")


def written_to(rows: DataFrame, folder: Path) -> None:
    rows.write.format("delta").save(str(folder / "table"))


#: What a step may do with it -> how its rows are taken: into memory, or written by Spark.
STEPS: dict[str, Callable[[DataFrame], DataFrame]] = {
    "a cast": lambda rows: rows.selectExpr("CAST(line AS BIGINT) AS number"),
    "an error of its own": lambda rows: rows.selectExpr("CAST(raise_error(line) AS BIGINT) AS number"),
    "a function": by_a_function,
}


@pytest.mark.spark
@pytest.mark.parametrize("take", [lambda rows, _: rows.toArrow(), written_to], ids=["in memory", "written"])
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_record_that_speaks_of_a_full_disk_or_of_an_outage_is_neither(
    spark: SparkSession, tmp_path: Path, step: Callable[[DataFrame], DataFrame], take: Callable[[DataFrame, Path], Any]
) -> None:
    with pytest.raises(Exception, match="No space left") as raised:
        take(step(spark.createDataFrame([(LINE,)], "line STRING")), tmp_path)
    assert (is_full(raised.value), is_outage(raised.value)) == (False, False)


def test_a_full_disk_of_sqlite_is_one() -> None:
    with sqlite3.connect(":memory:") as pages, pytest.raises(sqlite3.OperationalError) as raised:
        pages.execute("PRAGMA max_page_count=2")
        pages.executescript("CREATE TABLE keys (key BLOB); CREATE TABLE others (key BLOB)")
    assert is_full(raised.value)
