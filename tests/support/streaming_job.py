"""A plain job of Structured Streaming, as teams have them before they take Kappa: it knows nothing of Kappa.

``python -m support.streaming_job`` takes a JSON object: what to read, where to write, how. It reads what its topic has,
then ends. It keeps the sum of the amounts of each id in a Delta table.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support.programs import python_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: The exit code of a job that ends in the middle of a batch.
DIED = 9


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a job does.

    Attributes:
        bootstrap_servers: the broker.
        topic: what it reads.
        table: the Delta table that it writes.
        checkpoint: its query checkpoint.
        sink: ``merge`` merges each batch in ``foreachBatch``; ``complete`` writes all sums with Delta's own sink.
        dies: whether it ends after it has written the rows of a batch, before the batch is committed.
        jars: the jars of Spark's Kafka source and of Delta.
        java_home: the Java to run on.
    """

    bootstrap_servers: str
    topic: str
    table: str
    checkpoint: str
    jars: str
    java_home: str
    sink: str = "merge"
    dies: bool = False

    def run(self) -> None:
        """Read what the topic has, in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "support.streaming_job", json.dumps(asdict(self))],
            env={**os.environ, "PYTHONPATH": python_path(), "JAVA_HOME": self.java_home},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == (DIED if self.dies else 0), f"{done.stdout}\n{done.stderr[-6000:]}"


def _session(job: Job) -> SparkSession:
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": job.jars,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "768m",
    }
    builder = SparkSession.builder.appName("a job").master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _sums(records: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    row = F.from_json(F.col("value").cast("string"), "id STRING, amount BIGINT")
    rows = records.select(row.alias("row")).select("row.*").where("id IS NOT NULL")
    return rows.groupBy("id").agg(F.sum("amount").alias("total"))


def _merge(job: Job, batch: DataFrame) -> None:
    from delta.tables import DeltaTable

    (
        DeltaTable.createIfNotExists(batch.sparkSession)
        .addColumn("id", "STRING")
        .addColumn("total", "BIGINT")
        .location(job.table)
        .execute()
        .alias("t")
        .merge(_sums(batch).alias("s"), "t.id = s.id")
        .whenMatchedUpdate(set={"total": "t.total + s.total"})
        .whenNotMatchedInsertAll()
        .execute()
    )
    if job.dies:
        os._exit(DIED)


def main(values: dict[str, Any]) -> None:
    """Run a job to the end of its topic."""
    job = Job(**values)
    session = _session(job)
    records = (
        session.readStream.format("kafka")
        .option("kafka.bootstrap.servers", job.bootstrap_servers)
        .option("subscribe", job.topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    if job.sink == "merge":
        writer = records.writeStream.foreachBatch(lambda batch, _: _merge(job, batch))
    else:
        writer = _sums(records).writeStream.format("delta").outputMode("complete").option("path", job.table)
    query = writer.option("checkpointLocation", job.checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    session.stop()


def job_of(config: Any, topic: str, folder: Path, **how: Any) -> Job:
    """A job that reads a topic of a broker, and has its files in a folder."""
    from kappa.spark.jars import ensure_spark, java_home

    return Job(
        bootstrap_servers=config.bootstrap_servers,
        topic=topic,
        table=str(folder / "table"),
        checkpoint=str(folder / "checkpoint"),
        jars=",".join(map(str, sorted(ensure_spark(config.cache)))),
        java_home=str(java_home()),
        **how,
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
