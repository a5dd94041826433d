"""A stream whose Spark runs in a standalone cluster, with the lake on S3: its workers share no disk with the driver."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.processes import QUICK_JVM, Rig, rig
from support.s3_options import write_options
from support.s3_server import S3Server
from support.spark_cluster import SparkCluster, spark_cluster

from kappa.delta import queries

if TYPE_CHECKING:
    from conftest import TopicFactory

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ROWS = 2_000
TOPOLOGY = '''
"""Where the Python functions of a step run, and with which code."""

import os

from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType

from kappa.topology import Append, Source, Topology


@F.udf(StringType())
def origin(_):
    import kappa

    return kappa.__file__


@F.udf(LongType())
def worker(_):
    return os.getppid()  # each executor has one process of which its Python workers are children


def step(slice):
    at = [origin("id").alias("origin"), worker("id").alias("worker")]
    records = slice["{topic}"]
    parts = F.lit(records.sparkSession.conf.get("spark.sql.shuffle.partitions")).alias("parts")
    letters = F.expr("java_method('java.lang.System', 'getProperty', 'sun.jnu.encoding')").alias("letters")
    return {{"places": records.select("id", "amount", *at, parts, letters)}}


PLACES = "id STRING, amount BIGINT, origin STRING, worker BIGINT, parts STRING, letters STRING"

places = Topology(
    name="{name}",
    version="1",
    sources=[Source(topic="{topic}", schema="id STRING NOT NULL, amount BIGINT NOT NULL")],
    outputs=[Append(name="places", schema=PLACES)],
    step=step,
)
'''


@dataclass(kw_only=True)
class Places(Rig):
    """Says of each record where it was computed."""

    def deploy(self, version: int, factor: int | str | None = None) -> None:
        (self.config.topologies / "places.py").write_text(TOPOLOGY.format(name=self.name, topic=self.topic))


@pytest.fixture
def cluster(tmp_path: Path, s3: S3Server) -> Iterator[SparkCluster]:
    """Two workers that have the lake's client file, and nothing else of this test."""
    with spark_cluster(tmp_path / "cluster", files=[write_options(s3, tmp_path / "lake.properties")]) as running:
        yield running


@pytest.fixture
def places(tmp_path: Path, kafka: Broker, topic: TopicFactory, s3: S3Server, cluster: SparkCluster) -> Iterator[Places]:
    with rig(
        tmp_path,
        kafka,
        topic(partitions=4),
        kind=Places,
        lake=f"{s3.url}/lake",
        lake_client_file=str(tmp_path / "lake.properties"),
        spark_master=cluster.url,
        spark_conf={**QUICK_JVM, **cluster.settings},
        small_slice=100,
        arrow_rows=100,
    ) as places:
        yield places


def test_executors_run_the_code_of_the_epoch(places: Places) -> None:
    places.produce([(f"k{n}", n) for n in range(ROWS)])
    epoch = places.start_live()
    rows = queries.query(places.paths(epoch).output("places"), None).to_pylist()
    assert sorted(row["amount"] for row in rows) == list(range(ROWS))
    assert len({row["worker"] for row in rows}) == 2, "both executors had a part"
    assert "4" in {row["parts"] for row in rows} <= {"1", "4"}, "two parts per core of the cluster, or a small slice"
    assert {row["letters"] for row in rows} == {"UTF-8"}, "names of files, on hosts whose locale is C"
    (origin,) = {row["origin"] for row in rows}
    file, _, name = origin.partition(".zip/")
    assert name == "kappa/__init__.py", f"an executor imported {origin}"
    code = places.config.home / "code" / places.record().epoch(epoch).code / "include"
    with zipfile.ZipFile(places.config.home / "shipped" / f"{Path(file).name}.zip") as archive:
        shipped = {path: archive.read(path) for path in archive.namelist()}
    assert shipped == {str(path.relative_to(code)): path.read_bytes() for path in code.glob("kappa/**/*.py")}
