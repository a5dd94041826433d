"""Records that the broker never takes: the epoch stops at the first attempt and names topic, setting and origin."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from support.epochs import Lab

from kappa import control

pytestmark = pytest.mark.spark


def set_topic(stream: Lab, topic: str, name: str, value: str) -> None:
    """Change one setting of a topic."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": stream.config.bootstrap_servers})
    for answer in admin.incremental_alter_configs([resource]).values():
        answer.result()


#: What no compression makes small.
LARGE = random.Random(1).randbytes(1500).hex()


def test_a_refused_record_is_named_with_its_origin_at_the_first_attempt(stream: Lab) -> None:
    stream.produce([("a", 1)], partition=0)
    live = stream.start_live()
    moves = f"{stream.topic}.moves"
    set_topic(stream, moves, "max.message.bytes", "8000")
    more = [(f"{n}", n) for n in range(500)]  # one by one they are small, in a batch they are not
    stream.produce(more, partition=0)
    stream.settle(live)
    assert max(row.rows_read for row in stream.ledger(live).state().commits) == len(more)
    set_topic(stream, moves, "max.message.bytes", "1000")
    stream.produce([("b", 2), (LARGE, 3), ("d", 4)], partition=1)
    stream.wait(lambda: control.driver_status(stream.config, stream.name, live).state == "stuck", "stuck")
    reason = control.driver_status(stream.config, stream.name, live).message
    assert f"Made of {stream.topic}[1] 1: " in reason
    assert f"is refused by topic {moves!r} (max.message.bytes=1000): it is larger" in reason
    assert f"Then: kappa start {stream.name} --epoch {live} --execute. " in reason
    place = f"--topic {stream.topic} --partition 1 --offset 1"
    assert reason.endswith(f"kappa set-aside {stream.name} {place} --reason '...' --execute"), reason
    assert LARGE[:20] not in reason
    stuck = stream.ledger(live).state().seq
    assert [row.kind for row in stream.ledger(live).rows() if row.seq == stuck] == ["plan", "effects"]
    set_topic(stream, moves, "max.message.bytes", "8000")
    # It waits for the attempt that it asks for.
    assert "stuck" not in stream.output_of("start", stream.name, "--execute")
    stream.settle(live)
    assert sorted(stream.sent()) == sorted([("a", 1), ("b", 2), (LARGE, 3), ("d", 4), *more])


def test_rows_beyond_what_a_changelog_takes_at_once_are_sent_in_smaller_batches(stream: Lab) -> None:
    stream.config = replace(stream.config, topic_settings={"kappa.*": {"max.message.bytes": "20000"}})
    stream.produce([("a", 1)], partition=0)
    epoch = stream.start_live()
    changelog = stream.paths(epoch).changelog("balances")
    assert stream.kafka.topic_configs([changelog])[changelog]["max.message.bytes"] == "20000"
    source = random.Random(2)
    more = [(source.randbytes(30).hex(), number) for number in range(2000)]
    stream.produce(more, partition=0)
    stream.settle(epoch)
    assert max(row.rows_read for row in stream.ledger(epoch).state().commits) == len(more)
    assert stream.balances() == stream.folded(epoch) == {"a": 1, **dict(more)}
