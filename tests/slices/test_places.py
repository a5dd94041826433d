from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kappa.errors import DataLossError, TopologyError
from kappa.kafka.connection import unknown_topic
from kappa.replay.rules.log import recreated_topics
from kappa.slices.places import check_topics


def broker(**ids: str) -> Any:
    return SimpleNamespace(topic_ids=lambda topics: {topic: ids[topic] for topic in topics})


def test_a_deleted_topic_is_data_loss_and_nobody_is_told_to_create_it() -> None:
    def topic_ids(topics: Any) -> dict[str, str]:
        raise unknown_topic("broker:9092", "pos")

    with pytest.raises(DataLossError, match="do not create the topic again") as refused:
        check_topics(cast(Any, SimpleNamespace(topic_ids=topic_ids)), {"pos": "a"})
    assert refused.value.data == {"topic": "pos", "recorded": "a"}
    with pytest.raises(TopologyError, match="Create it"):
        check_topics(cast(Any, SimpleNamespace(topic_ids=topic_ids)), {"other": "a"})


def test_a_recreated_topic_is_reported_with_the_remedy_of_a_plan() -> None:
    check_topics(broker(pos="a"), {"pos": "a"})
    with pytest.raises(DataLossError) as refused:
        check_topics(broker(pos="b"), {"pos": "a"})
    (finding,) = recreated_topics({"pos": "a"}, {"pos": "b"}, "the epoch")
    assert str(refused.value) == str(finding)
    assert finding.remedy.startswith(
        "No epoch of the topology can continue in the new topic. Deploy the topology under a new name"
    )
