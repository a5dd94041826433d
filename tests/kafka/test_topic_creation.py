"""Brokers that are asked what they refuse of a topic, and whose answer is an outage."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kappa.errors import BrokerUnreachableError
from kappa.kafka.admin import Admin
from kappa.kafka.topic_creation import refusals
from kappa.replay.epoch_topics import EpochTopic


class Brokers(Admin):
    """Brokers that refuse topics with these errors, one after the other."""

    def __init__(self, codes: Iterator[int]) -> None:
        super().__init__("127.0.0.1:1", 0.1)
        self._codes = codes

    @property
    def client(self) -> Any:
        return SimpleNamespace(create_topics=self._refuse)

    def _refuse(self, topics: list[Any], **_: object) -> dict[str, Future[None]]:
        answers = {topic.topic: Future[None]() for topic in topics}
        for answer in answers.values():
            answer.set_exception(KafkaException(KafkaError(next(self._codes))))
        return answers


@pytest.mark.parametrize("code", [KafkaError.REQUEST_TIMED_OUT, KafkaError._TIMED_OUT])
def test_an_outage_while_brokers_are_asked_is_not_a_refusal_of_a_setting(code: int) -> None:
    topic = EpochTopic(name="kappa.a", partitions=1, settings={"segment.ms": "1"})
    with pytest.raises(BrokerUnreachableError):
        refusals(Brokers(iter([KafkaError.POLICY_VIOLATION, code, code])), [topic], 0.1)
    settled = refusals(Brokers(iter([KafkaError.POLICY_VIOLATION] * 3)), [topic], 0.1)
    assert settled["kappa.a"].settings == ()
