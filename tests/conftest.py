"""What several test modules share: one Kafka broker for the whole run, and topics that nobody else uses."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import pytest
import typer.testing
from hypothesis import settings
from support import environments
from support.brokers import mortal, watched
from support.deaths import DEATHS

if TYPE_CHECKING:
    from pathlib import Path

    from kappa.kafka.broker import Broker
    from kappa_local.kafka import KafkaProcess

pytest_plugins = ["conftest_spark", "conftest_s3", "conftest_run", "conftest_parts"]

# A machine with other work on it is no reason to fail: a test that hangs is ended by its limit.
settings.register_profile("kappa", deadline=None)
settings.load_profile("kappa")

_numbers = itertools.count(1)

# Typer's runner builds all commands anew at each call, which takes as long as many a command.
typer.testing._get_command = functools.cache(typer.testing._get_command)


@dataclass(frozen=True, kw_only=True)
class RunningBroker:
    """A broker that was started elsewhere."""

    bootstrap_servers: str


class TopicFactory(Protocol):
    """Creates a topic of a unique name; settings in Kafka's spelling with ``_`` for ``.``."""

    def __call__(self, partitions: int = 1, **settings: str) -> str: ...


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess | RunningBroker]:
    """An embedded broker; ``TEST_BOOTSTRAP_SERVERS`` names one that runs, to start tests sooner while developing."""
    if address := os.environ.get("TEST_BOOTSTRAP_SERVERS"):
        yield RunningBroker(bootstrap_servers=address)
        return
    from kappa_local.kafka import KafkaProcess

    with watched(KafkaProcess.start(tmp_path_factory.mktemp("kafka"))) as process:
        yield process


@pytest.fixture
def mortal_broker(broker: KafkaProcess | RunningBroker) -> Iterator[KafkaProcess]:
    """The same broker, for a test that ends it; it runs again afterwards. Skipped when it was started elsewhere."""
    if isinstance(broker, RunningBroker):
        pytest.skip("the broker is not ours to end")
    with mortal(broker):
        yield broker


@pytest.fixture
def kafka(broker: KafkaProcess | RunningBroker) -> Iterator[Broker]:
    """A client of the broker."""
    from kappa.kafka.broker import Broker

    with Broker(broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def topic(kafka: Broker) -> Iterator[TopicFactory]:
    """Creates topics whose records stay whatever their time is; they are deleted after the test."""
    created: list[str] = []

    def create(partitions: int = 1, **settings: str) -> str:
        name = f"test.{os.getpid()}.{next(_numbers)}"
        config = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in settings.items()}
        kafka.create_topic(name, partitions, config, exists_ok=False)
        created.append(name)
        return name

    yield create
    kafka.delete_topics(created)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, in a folder with its source."""
    return environments.wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Counts a case that held, by its kind and its name; a run says at its end how many there were of each kind."""

    def count(kind: str, name: str) -> None:
        request.node.user_properties.append((f"{kind} case", name))

    return count


@pytest.fixture(autouse=True)
def _deaths(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every place where a driver died in a test goes into the test's report: the run counts them."""
    before = len(DEATHS)
    yield
    request.node.user_properties += [("death", point) for point in DEATHS[before:]]
