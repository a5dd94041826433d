"""Fixtures that need a JVM: one Spark session for the whole run, records as Kafka's source gives them, and a lab."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import TopicFactory
    from pyspark.sql import DataFrame, SparkSession
    from support.epochs import Lab
    from support.eventful import Eventful

    from kappa.kafka.broker import Broker

#: partition, timestamp in milliseconds, value (an object becomes JSON), and the key if there is one.
Sent = tuple[int, int, Any] | tuple[int, int, Any, bytes | None]


_JVM = "-XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC -Xmn512m"
#: Few plans of a test are computed twice: compiling them for speed, and noting where each column was written, takes
#: longer than they do.
BRIEF = {
    "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 {_JVM}",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
#: A soak computes the same plans for hours: after a few of them, code that is compiled for speed takes two thirds of
#: the time.
LONG = {**BRIEF, "spark.driver.extraJavaOptions": _JVM}


class Log(Protocol):
    """Makes the DataFrame that a Kafka source would give for these records; offsets count up within a partition."""

    def __call__(self, sent: Iterable[Sent], topic: str = "pos") -> DataFrame: ...


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """A session on two cores with everything that a driver's has.

    It is quick with what it does for the first time, or in a soak with what it does for hours.
    """
    from kappa.config import Config
    from kappa.spark.session import build_session

    home = tmp_path_factory.mktemp("spark-home")
    config = Config.from_env({"KAPPA_HOME": str(home), "KAPPA_SPARK_MASTER": "local[2]"})
    is_long = pytestconfig.getoption("soak_hours") is not None
    session = build_session(replace(config, spark_conf=LONG if is_long else BRIEF), "tests")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def small_slices(spark: SparkSession) -> Iterator[None]:
    """The session as a driver has it for small slices: a plan is over before code for it would be compiled."""
    from kappa.spark.tuning import tune

    tune(spark, is_small=True)
    yield
    tune(spark, is_small=False)


@pytest.fixture(scope="session")
def log(spark: SparkSession) -> Log:
    """Records without a broker."""
    import orjson

    def sent_records(sent: Iterable[Sent], topic: str = "pos") -> DataFrame:
        offsets: Counter[int] = Counter()
        rows = []
        for partition, time, value, *key in sent:
            content = value if value is None or isinstance(value, bytes) else orjson.dumps(value)
            rows.append((key[0] if key else None, content, topic, partition, offsets[partition], time))
            offsets[partition] += 1
        columns = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, time BIGINT"
        frame = spark.createDataFrame(rows, columns).coalesce(1)
        return frame.selectExpr("* EXCEPT (time)", "timestamp_millis(time) AS timestamp", "0 AS timestampType")

    return sent_records


@pytest.fixture
def stream(tmp_path: Path, kafka: Broker, topic: TopicFactory, spark: SparkSession) -> Iterator[Lab]:
    """A deployed topology, version 1, whose topic has two partitions."""
    from support.epochs import lab

    with lab(tmp_path / "lab", kafka, spark, topic(partitions=2)) as stream:
        stream.deploy(1)
        yield stream


@pytest.fixture
def world(
    tmp_path: Path,
    kafka: Broker,
    broker: Any,
    topic: TopicFactory,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[], AbstractContextManager[Eventful]]:
    """Makes labs in which things happen at random; their drivers look after files every few seconds."""
    from support.epochs import lab
    from support.eventful import Eventful

    from kappa import faults
    from kappa.record import rollup

    @contextmanager
    def make() -> Iterator[Eventful]:
        often = {"maintain_minutes": 0.05, "handover_seconds": 20.0}
        with lab(tmp_path / "world", kafka, spark, topic(partitions=2), kind=Eventful, **often) as history:
            monkeypatch.setattr(faults, "os", history.reaper)
            monkeypatch.setattr(rollup, "RECENT", 1)
            if hasattr(broker, "data_dir"):  # the run's own
                history.process, history.checkpoint = broker, broker.data_dir / "log" / "cleaner-offset-checkpoint"
            history.deploy(1)
            yield history
            kafka.delete_topics([*kafka.topics(f"{history.topic}."), *kafka.topics(f"{history.name}_too.")])

    return make
