"""Laws 2 and 9 while a replay runs: what retention takes in front of it is refused, never skipped."""

from __future__ import annotations

from itertools import pairwise

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from support.epochs import Lab

from kappa import control
from kappa.errors import KappaError
from kappa.offsets.vector import joins
from kappa.replay.stages import STAGES, Stage

pytestmark = [pytest.mark.spark, pytest.mark.broker]

COUNT = 60


def test_retention_overtaking_a_replay_stops_it_and_skips_no_record(stream: Lab) -> None:
    sent = [(f"account-{n}", n, n) for n in range(COUNT)]
    stream.produce([(account, amount) for account, amount, _ in sent], partition=0)
    first = stream.start_live()
    stream.deploy(2)
    stream.meant = (KappaError,)
    second = stream.plan_replay(slice_records=3)
    stream.run(second)
    stream.wait(lambda: stream.ledger(second).exists() and stream.ledger(second).state().seq >= 2, "the replay runs")
    client = AdminClient({"bootstrap.servers": stream.config.bootstrap_servers})
    for answer in client.delete_records([TopicPartition(stream.topic, 0, COUNT)]).values():
        answer.result(30)

    def is_given_up() -> bool:
        _, thread, _ = stream.running[second]
        return not thread.is_alive() or control.driver_status(stream.config, stream.name, second).state == "stuck"

    stream.wait(is_given_up, "the replay finds its records gone")
    _, _, errors = stream.running[second]
    text = control.driver_status(stream.config, stream.name, second).message + " ".join(map(str, errors))
    assert stream.topic in text or stream.topic in str(stream.record().events[-1])
    state = stream.ledger(second).state()
    assert (state.position.get(stream.topic, 0) or 0) < COUNT, "overtaken before it was through"
    assert all(joins(a.ranges, b.ranges) for a, b in pairwise(state.commits))
    assert stream.record().epoch(second).stage in STAGES[: STAGES.index(Stage.REPLAYED)]
    control.abort(stream.config, stream.name, second, actor="test", reason="overtaken")
    stream.produce([("z", 5)], partition=0, start_ms=1_700_000_200_000)
    stream.settle(first)
    rows = [*sent, ("z", 5, 5)]
    stream.hold(
        totals={account: total for account, _, total in rows},
        moves={(0, offset): row for offset, row in enumerate(rows)},
        sent=rows,
    )
