from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kappa.errors import DataLossError
from kappa.replay.rules.log import recreated_topics
from kappa.slices.places import check_topics


def broker(**ids: str) -> Any:
    return SimpleNamespace(topic_ids=lambda topics: {topic: ids[topic] for topic in topics})


def test_a_recreated_topic_is_reported_with_the_remedy_of_a_plan() -> None:
    check_topics(broker(pos="a"), {"pos": "a"})
    with pytest.raises(DataLossError) as refused:
        check_topics(broker(pos="b"), {"pos": "a"})
    (finding,) = recreated_topics({"pos": "a"}, {"pos": "b"}, "the epoch")
    assert str(refused.value) == str(finding)
    assert finding.remedy.startswith(
        "No epoch of the topology can continue in the new topic. Deploy the topology under a new name"
    )
