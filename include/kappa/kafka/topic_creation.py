"""How a topic is made, and what the brokers say of one before it is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from kappa.kafka.admin import Admin
from kappa.kafka.connection import NOT_ALLOWED
from kappa.replay.epoch_topics import EpochTopic, TopicRefusal
from kappa.topic_overrides import PARTITIONS, REPLICATION

#: Answers that concern a topic's settings or numbers, with the one setting that they are about.
_REFUSED = {
    KafkaError.POLICY_VIOLATION: "",
    KafkaError.INVALID_CONFIG: "",
    KafkaError.INVALID_PARTITIONS: PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR: REPLICATION,
}


def create(admin: Admin, topic: EpochTopic, timeout_seconds: float) -> bool:
    """Create a topic, and return whether it was created; False if it exists.

    Raises:
        TopologyError: Kafka refuses the name or the settings.
    """
    try:
        _ask(admin, [topic], timeout_seconds)[topic.name].result()
    except KafkaException as error:
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return False
        raise admin.explained(error, f"creating topic {topic.name!r} with {dict(topic.settings)}") from error
    return True


def refusals(admin: Admin, topics: Iterable[EpochTopic], timeout_seconds: float) -> dict[str, TopicRefusal]:
    """Name -> why the brokers would not create a topic, for those that they would not. Nothing is created.

    Raises:
        KappaError: they do not answer, or another error that is not about a topic.
    """
    wishes = {topic.name: topic for topic in topics}
    answers = _ask(admin, wishes.values(), timeout_seconds, validate_only=True) if wishes else {}
    refused = {}
    for name, answer in answers.items():
        error = _error(answer)
        if error is None or error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            continue
        code, reason = error.code(), error.str()
        if code in NOT_ALLOWED:
            refused[name] = TopicRefusal(reason=reason, is_right=True)
        elif code == KafkaError.TOPIC_EXCEPTION:  # '.' and '_' are the same to Kafka
            refused[name] = TopicRefusal(reason=reason, is_name=True)
        elif code in _REFUSED:
            settings = (_REFUSED[code],) if _REFUSED[code] else _culprits(admin, wishes[name], timeout_seconds)
            refused[name] = TopicRefusal(
                reason=reason, settings=settings, is_policy=code == KafkaError.POLICY_VIOLATION
            )
        else:
            raise admin.explained(error, f"asking whether topic {name!r} may be created")
    return refused


def _culprits(admin: Admin, topic: EpochTopic, timeout_seconds: float) -> tuple[str, ...]:
    """What the brokers refuse, each by itself: settings, and a number if they refuse the topic without any.

    Empty if they refuse it with one partition, and copies of their own choice, too.

    Raises:
        KappaError: they answer a trial with an error that is not about a topic.
    """

    def is_refused(trial: EpochTopic) -> bool:
        error = _error(_ask(admin, [trial], timeout_seconds, validate_only=True)[trial.name])
        if error is not None and error.code() not in _REFUSED:
            raise admin.explained(error, f"asking what is refused of topic {topic.name!r}")
        return error is not None

    plain = replace(topic, settings={})
    names: list[str] = []
    if is_refused(plain):
        less = {PARTITIONS: replace(plain, partitions=1), REPLICATION: replace(plain, replication=-1)}
        names = [name for name, trial in less.items() if trial != plain and not is_refused(trial)][:1]
        if not names:
            return ()
        plain = less[names[0]]
    trials = {name: replace(plain, settings={name: value}) for name, value in topic.settings.items()}
    return (*names, *(name for name, trial in trials.items() if is_refused(trial)))


def _ask(
    admin: Admin, topics: Iterable[EpochTopic], timeout_seconds: float, *, validate_only: bool = False
) -> Mapping[str, Any]:
    new = [NewTopic(one.name, one.partitions, one.replication, config=dict(one.settings)) for one in topics]
    return admin.client.create_topics(
        new, operation_timeout=timeout_seconds, request_timeout=timeout_seconds, validate_only=validate_only
    )


def _error(answer: Any) -> KafkaError | None:
    try:
        answer.result()
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        return cause
    return None
