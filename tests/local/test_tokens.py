"""Brokers that take tokens only: clients of Python and of Spark go on while their tokens end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from support.brokers import watched
from support.live_queries import live_query
from support.secured import config_of
from support.token_server import TokenServer, started

from kappa.config import Servers
from kappa.driver.lazy_engines import LazyEngines
from kappa.errors import BrokerUnreachableError, ConfigError, KappaError
from kappa.kafka.broker import Broker
from kappa.kafka.client_file import java_options
from kappa.kafka.producer import Sender
from kappa.offsets.vector import OffsetRange, Offsets, ranges_end
from kappa.properties import parsed, written
from kappa.spark.kafka_source import read_log
from kappa.wire.encoding import Record
from kappa_local import kafka, logins

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.broker

SECONDS = 5.0
RENEWALS = 3


@pytest.fixture(scope="module")
def tokens() -> Iterator[TokenServer]:
    """A server of tokens that soon end."""
    with TokenServer(seconds=SECONDS).serving() as server:
        yield server


@pytest.fixture(scope="module")
def servers(tokens: TokenServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """A broker that takes them, with a topic of one record."""
    folder = tmp_path_factory.mktemp("tokens")
    broker = started(folder, tokens)
    with watched(broker.process):
        file = folder / "client.properties"
        tokens.client_file(file)
        servers = broker.servers(file)
        with Broker(servers) as client:
            client.create_topic("pos", 1)
        send(servers, 1)
        yield servers


def send(servers: Servers, count: int) -> None:
    with Sender(servers, "tests", "tests") as sender:
        sender.init()
        sender.send([Record("pos", b"k", b"{}")] * count, None)


def test_clients_of_python_go_on_while_tokens_end(tokens: TokenServer, servers: Servers) -> None:
    with Broker(servers) as client, Sender(servers, "going-on", "going-on") as sender:
        sender.init()
        begin, before = tokens.fetched["librdkafka"], client.high_watermarks(["pos"])["pos", 0]
        for sent in range(1, RENEWALS + 1):
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                assert client.partitions("pos") == 1
                time.sleep(0.2)
            sender.send([Record("pos", b"k", b"{}")], None)
            expected = before + 2 * sent  # a record, and the end of its part, which comes a moment later
            while (end_offset := client.high_watermarks(["pos"])["pos", 0]) < expected:
                time.sleep(0.05)
            assert end_offset == expected
        assert tokens.fetched["librdkafka"] - begin >= RENEWALS
    assert tokens.refusals == 0


def test_wrong_credentials_are_reported_with_their_file(tokens: TokenServer, servers: Servers, tmp_path: Path) -> None:
    name = "sasl.oauthbearer.client.credentials.client.secret"
    file = tmp_path / "wrong.properties"
    logins.write_private(file, written(parsed(Path(servers.client_file).read_text()) | {name: "wrong"}))
    with Broker(Servers(str(servers), str(file)), timeout_seconds=1) as client, pytest.raises(ConfigError) as refused:
        client.topics()
    assert str(file) in str(refused.value) and "refuses the login" in str(refused.value)
    assert tokens.refusals > 0


@pytest.fixture
def out(tokens: TokenServer) -> Iterator[None]:
    """The server of tokens answers none."""
    tokens.is_out = True
    yield
    tokens.is_out = False


@pytest.mark.usefixtures("out")
def test_an_outage_of_the_server_of_tokens_passes_and_is_named(tokens: TokenServer, servers: Servers) -> None:
    with Broker(servers, timeout_seconds=1) as client, pytest.raises(BrokerUnreachableError) as waits:
        client.topics()
    assert str(waits.value).startswith(f"Clients get no token from {tokens.url}/token")


def test_a_server_of_tokens_that_is_gone_passes_and_is_named(servers: Servers, tmp_path: Path) -> None:
    file, gone = tmp_path / "gone.properties", f"http://{kafka.HOST}:{kafka.free_port()}/token"
    name = "sasl.oauthbearer.token.endpoint.url"
    logins.write_private(file, written(parsed(Path(servers.client_file).read_text()) | {name: gone}))
    with Broker(Servers(str(servers), str(file)), timeout_seconds=1) as client, pytest.raises(KappaError) as waits:
        client.topics()
    assert isinstance(waits.value, BrokerUnreachableError)
    assert str(waits.value).startswith(f"Clients get no token from {gone}") and str(file) in str(waits.value)


def test_a_driver_whose_own_token_still_counts_sees_that_new_clients_get_none(
    tokens: TokenServer, servers: Servers
) -> None:
    config = config_of(servers)
    epoch: Any = SimpleNamespace(config=config, plan=SimpleNamespace(topic_ids={"pos": ""}))
    voice: Any = None
    engines = LazyEngines(epoch, voice)
    assert engines.is_kafka_there()
    engines.broker.topics()
    tokens.is_out = True
    try:
        assert not engines.is_kafka_there()
    finally:
        tokens.is_out = False
        engines.close()


@pytest.mark.spark
def test_spark_reads_and_follows_the_log_while_tokens_end(
    tokens: TokenServer, servers: Servers, spark: SparkSession, tmp_path: Path
) -> None:
    name, _, value = java_options(servers, "").removeprefix("-D").partition("=")
    spark._jvm.java.lang.System.setProperty(name, value)  # a driver's JVM starts with it
    start, counts = Offsets({"pos": {0: 0}}), list[int]()
    positions = [start]

    def take(ranges: Sequence[OffsetRange], records: DataFrame) -> None:
        counts.append(records.count())
        positions.append(positions[-1].merge(ranges_end(ranges)))

    query = live_query(spark, servers, start, tmp_path, take, lambda: positions[-1])
    begin = tokens.fetched["java"]
    try:
        for _ in range(RENEWALS):
            before, end = sum(counts), time.monotonic() + SECONDS
            while time.monotonic() < end or sum(counts) == before:
                send(servers, 1)
                assert query.error is None
                time.sleep(0.5)
            with Broker(servers) as client:
                upto = client.stable_offsets(["pos"])
            assert read_log(spark, servers, "pos", start.span_to(upto)).count() >= sum(counts)
    finally:
        query.close()
    assert tokens.fetched["java"] - begin >= RENEWALS
