"""Rows under another key, and the partition where Kafka's clients look for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kappa.errors import TopologyError
from kappa.operators import rekey
from kappa.operators.partitioner import murmur2

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def rows(spark: SparkSession, *ids: str | None) -> DataFrame:
    return spark.createDataFrame([(id, 21) for id in ids], "id STRING, n BIGINT")


#: Source: org.apache.kafka.common.utils.UtilsTest.testMurmur2.
VECTORS = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


def test_murmur2_matches_the_vectors_of_kafka(spark: SparkSession) -> None:
    keys = spark.createDataFrame([(key,) for key in VECTORS], "k STRING")

    hashes = {row["k"]: row["hash"] for row in keys.selectExpr("k", f"{murmur2('k')} AS hash").collect()}

    assert hashes == {key: number % 2**32 for key, number in VECTORS.items()}


def test_a_rekeyed_row_names_the_partition_of_kafkas_clients(spark: SparkSession) -> None:
    rekeyed = rekey(rows(spark, "foobar", None, "21"), key="id", partitions=5).collect()

    assert [(row["_key"], row["_key_partition"]) for row in rekeyed] == [
        ("foobar", (VECTORS["foobar"] & 0x7FFFFFFF) % 5),
        (None, None),
        ("21", (VECTORS["21"] & 0x7FFFFFFF) % 5),
    ]
    assert rekey(rows(spark, "x"), key="n").collect()[0]["_key"] == "21"


def test_a_key_without_a_unique_text_is_refused(spark: SparkSession) -> None:
    with pytest.raises(TopologyError, match="Cast it to STRING"):
        rekey(rows(spark).selectExpr("CAST(n AS DECIMAL(12,2)) AS n"), key="n")
    with pytest.raises(TopologyError, match="0 partitions"):
        rekey(rows(spark), key="id", partitions=0)
