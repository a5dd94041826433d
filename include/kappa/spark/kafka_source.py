"""Exact ranges of a topic as a Spark source."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kappa.kafka.client_file import for_spark
from kappa.offsets.vector import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


#: How Spark's Kafka clients read: committed records.
#:
#: What is asked for is there, so that a broker never has to wait for it; where a range ends with the marker of a
#: transaction, which is not a record, a client would wait half a second. After each poll Spark asks the broker where
#: the partition begins and ends, which also drops what the client fetched ahead: a poll takes all that was fetched,
#: where Kafka's default of 500 records would throw away nine tenths of it.
CONSUMER = {
    "kafka.isolation.level": "read_committed",
    "kafka.fetch.max.wait.ms": "10",
    "kafka.max.poll.records": "100000",
    "kafka.max.partition.fetch.bytes": str(4 * 2**20),
}


def read_log(
    session: SparkSession, bootstrap_servers: str, topic: str, ranges: Sequence[OffsetRange], *, headers: bool = False
) -> DataFrame:
    """Records of exactly these ranges of one topic, one Spark task for each partition, in offset order."""
    own_ranges = [r for r in ranges if r.topic == topic]
    return (
        session.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .options(**CONSUMER)
        .option("assign", json.dumps({topic: [r.partition for r in own_ranges]}))
        .option("startingOffsets", json.dumps({topic: {str(r.partition): r.start for r in own_ranges}}))
        .option("endingOffsets", json.dumps({topic: {str(r.partition): r.end for r in own_ranges}}))
        .option("failOnDataLoss", "true")
        .option("includeHeaders", str(headers).lower())
        .options(**for_spark(bootstrap_servers))
        .load()
    )
