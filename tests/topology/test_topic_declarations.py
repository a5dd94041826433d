"""A topic output is refused where it is written, not when its first record is sent."""

from __future__ import annotations

from typing import Any

import pytest

from kappa import Append, Source, Topic, Topology
from kappa.errors import TopologyError

ROWS = Append(name="rows", schema="id STRING NOT NULL, n BIGINT")


def topic(**changes: Any) -> Topic:
    return Topic(**{"name": "sent", "of": "rows", "key": "id", **changes})


def topology(*topics: Topic, source: Source | None = None) -> Topology:
    read = source or Source(topic="in", schema="id STRING NOT NULL")
    return Topology(
        name="test.sent", version="1", sources=[read], outputs=[ROWS, *topics], step=lambda slice: {"rows": slice["in"]}
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"key": []}, r"has key=\[\], and a record needs a key\. Name at least one column: key='id'\."),
        ({"key": None}, r"has key=None, which is not a name or a list of names\. Write key='id'"),
        ({"key": ["id", 5]}, r"has key=\['id', 5\], which is not a name or a list of names\. Write key='id'"),
        ({"key": ["id", "id"]}, r"has key=\['id', 'id'\], which names a column twice\. Name each once\."),
        ({"columns": None}, r"has columns=None, which is not a name or a list of names\. Write columns='id'"),
        ({"columns": ["n", "n"]}, r"has columns=\['n', 'n'\], which names a column twice\. Name each once\."),
        ({"of": ROWS}, r"is of Append\. Write the name of a table or append output: of='rows'\."),
        ({"of": None}, r"is of NoneType\. Write the name of a table or append output: of='rows'\."),
        ({"name": None}, r"is not a name that Kafka allows: .* Write it like name='spending'\."),
        ({"name": "."}, r"'\.' is not a name that Kafka allows: .* Write it like name='spending'\."),
        ({"name": ".."}, r"'\.\.' is not a name that Kafka allows: .* Write it like name='spending'\."),
        ({"name": "__consumer_offsets"}, r"has a name like Kafka's own topics, .* Give it another name\."),
        ({"name": "__transaction_state"}, r"has a name like Kafka's own topics, .* Give it another name\."),
        ({"name": "kappa.a.b.e0001.markers"}, r"keeps markers or changes of an epoch\. Give it another name\."),
        ({"name": "kappa.a.e00012.t.changelog"}, r"keeps markers or changes of an epoch\. Give it another name\."),
    ],
)
def test_a_topic_that_could_not_be_sent_is_refused_with_what_to_write(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message) as refusal:
        topic(**changes)
    assert str(refusal.value).startswith("Topic ")


@pytest.mark.parametrize("other", ["a_b", "a.b_c"])
def test_topics_of_which_kafka_has_only_one_are_refused(other: str) -> None:
    name = other.replace("_", ".")
    with pytest.raises(TopologyError, match=f"topics {name!r} and {other!r} would collide in Kafka.*Rename one of"):
        topology(topic(name=name), topic(name=other))
    with pytest.raises(TopologyError, match=f"topics {name!r} and {other!r} would collide in Kafka.*Rename one of"):
        topology(topic(name=other), source=Source(topic=name, schema="id STRING NOT NULL"))


def test_a_versioned_topic_of_another_topology_takes_no_name() -> None:
    upstream = Source(topic="a.b", of="test.other", schema="id STRING NOT NULL")
    sent = topology(
        topic(name="a_b"), topic(name="kappa.news"), topic(name="a_c", on_replay="versioned"), source=upstream
    )
    assert [one.name for one in sent.topics] == ["a_b", "kappa.news", "a_c"]
