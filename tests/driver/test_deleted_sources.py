"""A source that is deleted while an epoch lives: no driver advises to make another topic of that name."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support.mock_brokers import mock_brokers

from kappa.driver.driver import Driver
from kappa.errors import DataLossError, TopologyError
from kappa.kafka.broker import Broker
from kappa.offsets.vector import Offsets

#: What drivers ask of a topic: between two slices, for the end of one, and before an epoch goes live.
QUESTIONS: dict[str, Callable[[Broker, str], Any]] = {
    "its end": lambda broker, topic: broker.stable_offsets([topic]),
    "offsets for a time": lambda broker, topic: broker.offsets_for_time([topic], 0),
    "its partitions": lambda broker, topic: broker.partitions(topic),
    "its settings": lambda broker, topic: broker.topic_configs([topic]),
    "its records": lambda broker, topic: list(broker.read(Offsets(), Offsets({topic: {0: 1}}))),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
@pytest.mark.parametrize(
    ("topic", "error", "advice"),
    [("pos", DataLossError, "do not create the topic again"), ("sales", TopologyError, "Create it")],
)
def test_a_deleted_source_is_data_loss_whatever_was_asked(
    question: Callable[[Broker, str], Any], topic: str, error: type[Exception], advice: str
) -> None:
    def failed(error: Exception) -> float:
        raise error

    with mock_brokers() as brokers:
        own: Any = SimpleNamespace(
            epoch=SimpleNamespace(plan=SimpleNamespace(topic_ids={"pos": "an id"})),
            _next=lambda: question(Broker(brokers.bootstrap_servers), topic),
            _attempts=SimpleNamespace(failed=failed),
            _is_attested=True,
        )
        with pytest.raises(error, match=advice):
            Driver._loop(own)
