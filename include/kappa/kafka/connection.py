"""How Kappa's Kafka clients connect, what their errors mean, and calls of theirs that may never come back."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from kappa.config import client_file_of
from kappa.errors import BrokerUnreachableError, ConfigError, ConflictError, KappaError, TopologyError
from kappa.kafka.client_file import SETTING, TOKEN_URL, for_librdkafka, tool_options

T = TypeVar("T")

#: Nobody answered, or Kafka says that the same request may succeed later: while leaders move or are gone, and while a
#: quota is used up.
_PASSING = {
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._WAIT_COORD,
    KafkaError._NOENT,  # of a question for offsets: a partition has no leader
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_CONTROLLER,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.LISTENER_NOT_FOUND,
    KafkaError.PREFERRED_LEADER_NOT_AVAILABLE,
    KafkaError.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.THROTTLING_QUOTA_EXCEEDED,
}
_UNKNOWN_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
#: Errors of a missing right: no further try helps.
NOT_ALLOWED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
#: How long the client that learns the reason tries: running brokers refuse a login within a second.
_REFUSAL_SECONDS = 3.0
#: What a server of tokens answers to credentials that it does not take. Anything else passes, as no answer does.
_REFUSED_CREDENTIALS = re.compile(r"\b(?:invalid_\w+|unauthorized|access_denied)|\(40[013]\)", re.IGNORECASE)
_FETCH_ERROR = "acquire SASL OAUTHBEARER token"
#: What helps against a refusal, after its reason.
_WAYS_OUT = {
    KafkaError.POLICY_VIOLATION: (
        " A policy of the broker does. Override the settings of new topics with KAPPA_TOPIC_SETTINGS, as JSON: "
        '{"retention.ms": ""} leaves one to the broker. Then: kappa start <topology> --execute'
    ),
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        " The brokers allow shorter transactions only. Raise transaction.max.timeout.ms in the server.properties of "
        "each broker. Then: kappa doctor"
    ),
}
_BUSY = {KafkaError.NON_EMPTY_GROUP, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS}


def client_settings(bootstrap_servers: str) -> dict[str, Any]:
    """Settings that every client shares: reconnect quickly, and log nothing, since the failing call raises.

    Raises:
        ConfigError: the file by which clients log in is missing or malformed, or other users may read it.
    """
    return {
        **for_librdkafka(bootstrap_servers),
        "bootstrap.servers": bootstrap_servers,
        "log_level": 0,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        "socket.nagle.disable": True,
    }


def producer_settings(bootstrap_servers: str) -> dict[str, Any]:
    """Settings of every producer: no loss, no duplicates, and keys in the partitions of Kafka's Java clients.

    Delivery reports come for failures only: a Python call for each record would halve the rate.
    """
    return client_settings(bootstrap_servers) | {
        "enable.idempotence": True,
        "acks": "all",
        "compression.type": "lz4",
        "partitioner": "murmur2_random",
        "linger.ms": 5,
        "queue.buffering.max.messages": 500_000,
        "queue.buffering.max.kbytes": 256 * 1024,
        "message.max.bytes": 64 * 1024 * 1024,  # the topic's own limit decides, not the client's
        "delivery.report.only.error": True,
    }


def unreachable(bootstrap_servers: str, reason: object) -> KappaError:
    """The error for brokers that do not answer: a :class:`BrokerUnreachableError`, or why they refuse clients.

    A client reports only that it got no answer, so another one is made to learn the reason.
    """
    refused = _refusal(bootstrap_servers)
    if refused is not None:
        return refused
    return BrokerUnreachableError(
        f"Kafka at {bootstrap_servers} does not answer ({reason}). Start it with `kappa up`, or name another address "
        f"in KAPPA_BOOTSTRAP_SERVERS.{_hint(bootstrap_servers)}",
        bootstrap_servers=bootstrap_servers,
    )


def _unable(bootstrap_servers: str, reason: str) -> BrokerUnreachableError:
    """The error for brokers that answer, and cannot do something at the moment."""
    return BrokerUnreachableError(
        f"Kafka at {bootstrap_servers} cannot do it at the moment ({reason}). Look for partitions without a leader: "
        f"kafka-topics.sh {tool_options(bootstrap_servers)} --describe --unavailable-partitions",
        bootstrap_servers=bootstrap_servers,
    )


def _hint(bootstrap_servers: str) -> str:
    """A hint if a process accepts connections there but never answers a client without a login, or one with tokens."""
    host, _, port = bootstrap_servers.partition(",")[0].rpartition(":")
    if client_file_of(bootstrap_servers):
        address = for_librdkafka(bootstrap_servers).get(TOKEN_URL)
        return f" It may be the server of tokens that does not answer: {address}" if address else ""
    try:
        socket.create_connection((host, int(port)), timeout=0.3).close()
    except (OSError, ValueError):
        return ""
    return f" A process listens there: if it is a broker that requires TLS or a login, set {SETTING}."


def _refusal(bootstrap_servers: str) -> KappaError | None:
    """Why clients cannot log in to brokers that require it; None if they can, or the brokers do not answer at all."""
    file = client_file_of(bootstrap_servers)
    if not file:
        return None
    errors: list[KafkaError] = []
    settings = client_settings(bootstrap_servers)
    client = Producer(settings | {"error_cb": errors.append})
    deadline = time.monotonic() + _REFUSAL_SECONDS
    while not errors and time.monotonic() < deadline:
        try:
            client.list_topics(timeout=0.3)
        except KafkaException:
            client.poll(0)
        else:
            return None
    values = {"bootstrap_servers": str(bootstrap_servers), "client_file": file}
    for error in errors:
        text = error.str().rpartition("): ")[2] if "): " in error.str() else error.str()
        if error.code() == KafkaError._AUTHENTICATION:
            if _FETCH_ERROR in error.str() and not _REFUSED_CREDENTIALS.search(error.str()):
                return _without_token(settings.get(TOKEN_URL, "the address"), text, **values)
            return ConfigError(
                f"Kafka at {bootstrap_servers} refuses the login in {file} ({text}). Correct sasl.jaas.config or "
                f"sasl.mechanism there, or the user on the brokers.",
                **values,
            )
        if error.code() == KafkaError._SSL:
            return ConfigError(
                f"No TLS connection to Kafka at {bootstrap_servers} with the settings in {file} ({text}). Correct "
                "security.protocol and ssl.truststore.location there, or the certificate of the brokers.",
                **values,
            )
    return None


def _without_token(address: str, text: str, **values: str) -> BrokerUnreachableError:
    """The error for a server of tokens that does not answer: it passes, as one of brokers does."""
    return BrokerUnreachableError(
        f"Clients get no token from {address} ({text}), so they cannot log in to Kafka at "
        f"{values['bootstrap_servers']}. Start that server again, or correct {TOKEN_URL} in "
        f"{values['client_file']}. Then: kappa doctor",
        token_server=address,
        **values,
    )


def unknown_topic(bootstrap_servers: str, topic: str, topics: Iterable[str] = ()) -> TopologyError:
    """The error for a topic that does not exist."""
    near = get_close_matches(topic, list(topics), n=3)
    hint = f" Topics like it: {', '.join(near)}." if near else ""
    return TopologyError(
        f"Topic {topic!r} does not exist on {bootstrap_servers}.{hint} Create it, or correct its name in the topology.",
        topic=topic,
        near=near,
    )


def explained(error: KafkaException | KafkaError, bootstrap_servers: str, doing: str) -> KappaError:
    """Kafka's error as one of Kappa's.

    Args:
        error: the error of the client.
        bootstrap_servers: the brokers that it asked.
        doing: the attempt, with its values: "reading pos[2] from 1200".
    """
    cause: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    code, text = cause.code(), f"{cause.name()}: {cause.str()}"
    values = {"code": cause.name(), "bootstrap_servers": bootstrap_servers}
    if code in _PASSING or (cause.retriable() and code not in _UNKNOWN_TOPIC | _BUSY):
        waited_for = _unable if code > 0 or code == KafkaError._NOENT else unreachable
        return waited_for(bootstrap_servers, f"{doing}: {text}")
    if code in _UNKNOWN_TOPIC:
        return TopologyError(
            f"A topic or partition does not exist on {bootstrap_servers}: {doing} ({text}). Create the topic, or "
            "correct its name.",
            **values,
        )
    if code in NOT_ALLOWED:
        return ConfigError(
            f"Kafka at {bootstrap_servers} does not allow it: {doing} ({text}). Grant the access: the table in "
            "docs/security.md has the rights of each principal.",
            **values,
        )
    if code == KafkaError._INVALID_ARG and (file := client_file_of(bootstrap_servers)):
        return ConfigError(
            f"Kafka's client does not take a setting of {file}: {doing} ({text}). Correct the file, then: kappa doctor",
            **values,
        )
    if code in _BUSY:
        return ConflictError(f"The consumer group has members: {doing} ({text}). Stop them and try again.", **values)
    return TopologyError(f"Kafka at {bootstrap_servers} refused: {doing} ({text}).{_WAYS_OUT.get(code, '')}", **values)


def bounded(call: Callable[[], T], seconds: float, name: str) -> T:
    """Make a call in a thread of its own, and return its result or raise its error.

    Args:
        call: a function without arguments. Do not use its objects again if it hangs.
        seconds: how long to wait for it.
        name: name of the thread, for a dump of all stacks.

    Raises:
        TimeoutError: it is still running. It is abandoned and does not keep the process from ending.
    """
    answers: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    thread.join(seconds)
    if failures:
        raise failures[0]
    if not answers:
        raise TimeoutError(f"{name} did not end in {seconds:g} s")
    return answers[0]
