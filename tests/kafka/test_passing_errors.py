"""What Kafka says may succeed later is waited for: it is neither a missing topic nor an attempt at a slice."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from support.mock_brokers import LIST_OFFSETS, MockBrokers, mock_brokers

from kappa.driver.lazy_engines import LazyEngines
from kappa.errors import BrokerUnreachableError, TopologyError
from kappa.kafka.broker import Broker
from kappa.kafka.connection import explained
from kappa.offsets.vector import Offsets

#: Kafka's list of errors calls them retriable (https://kafka.apache.org/protocol#protocol_error_codes). Left out: those
#: of a topic that is not there, of a damaged record, and of what only the client for Java does.
RETRIABLE = (
    "BROKER_NOT_AVAILABLE",
    "CONCURRENT_TRANSACTIONS",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    "FENCED_LEADER_EPOCH",
    "KAFKA_STORAGE_ERROR",
    "LEADER_NOT_AVAILABLE",
    "LISTENER_NOT_FOUND",
    "NETWORK_EXCEPTION",
    "NOT_CONTROLLER",
    "NOT_COORDINATOR",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "NOT_LEADER_FOR_PARTITION",
    "OFFSET_NOT_AVAILABLE",
    "PREFERRED_LEADER_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE",
    "REQUEST_TIMED_OUT",
    "THROTTLING_QUOTA_EXCEEDED",
    "UNKNOWN_LEADER_EPOCH",
    "UNSTABLE_OFFSET_COMMIT",
)


@pytest.fixture
def brokers() -> Iterator[MockBrokers]:
    """Brokers with a topic of two partitions."""
    with mock_brokers() as cluster:
        cluster.create("pos", 2)
        yield cluster


@pytest.mark.parametrize("name", RETRIABLE)
def test_what_kafka_calls_retriable_passes_by_itself(name: str) -> None:
    error = explained(KafkaError(getattr(KafkaError, name)), "127.0.0.1:1", "asking")
    assert isinstance(error, BrokerUnreachableError) and name in str(error)


@pytest.mark.parametrize("name", ["FENCED_LEADER_EPOCH", "KAFKA_STORAGE_ERROR", "OFFSET_NOT_AVAILABLE"])
def test_offsets_are_asked_for_again_while_leaders_move(brokers: MockBrokers, name: str) -> None:
    broker = Broker(brokers.bootstrap_servers)
    brokers.refuse(LIST_OFFSETS, getattr(KafkaError, name))
    assert broker.stable_offsets(["pos"]) == Offsets({"pos": {0: 0, 1: 0}})


def test_a_partition_without_a_leader_is_an_outage_and_not_a_topic_that_is_missing(brokers: MockBrokers) -> None:
    def broker() -> Broker:
        return Broker(brokers.bootstrap_servers, timeout_seconds=0.1)

    own: Any = SimpleNamespace(
        _connect=broker, _epoch=SimpleNamespace(plan=SimpleNamespace(topic_ids={"pos": "an id"}))
    )
    assert LazyEngines.is_kafka_there(own)
    brokers.lead("pos", 1, None)
    with pytest.raises(BrokerUnreachableError, match=r"pos\[1\].*No leaders found.*--unavailable-partitions"):
        broker().stable_offsets(["pos"])
    assert not LazyEngines.is_kafka_there(own), "what Spark says of it is no attempt at a slice"
    with pytest.raises(TopologyError, match="'sop' does not exist"):
        broker().stable_offsets(["sop"])
    brokers.lead("pos", 1, 1)
    assert LazyEngines.is_kafka_there(own)
