"""What a rebuild folds follows the keys, not the history: the broker compacts the changelog. Counted, not timed;
``python -m benchmarks k`` measures the seconds.
"""

from __future__ import annotations

import pytest
from confluent_kafka.admin import ResourceType
from support.epochs import Lab, read_messages
from support.histories import configure

from kappa import control
from kappa.replay.stages import Stage

pytestmark = [pytest.mark.spark, pytest.mark.broker]

ACCOUNTS = [f"account {number}" for number in range(40)]
EAGER = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "max.compaction.lag.ms": "100"}
LAZY = {"segment.ms": "3600000", "min.cleanable.dirty.ratio": "0.5", "max.compaction.lag.ms": str(2**62)}


class History:
    """Changes of all accounts, round by round, through a live stream."""

    def __init__(self, stream: Lab) -> None:
        self.stream, self.rounds = stream, 1
        stream.produce([(account, 1) for account in ACCOUNTS])
        self.epoch = stream.start_live()
        self.changelog = stream.paths(self.epoch).changelog("balances")

    def go_on(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            self.stream.produce([(account, 1) for account in ACCOUNTS], start_ms=1_700_000_000_000 + 99 * self.rounds)
            self.stream.settle(self.epoch)
            self.rounds += 1

    def records(self) -> int:
        """What a plain consumer reads of the changelog, as a fold does."""
        return sum(1 for _ in read_messages(self.stream.config.bootstrap_servers, self.changelog))

    def compact(self) -> None:
        """Let the broker compact the changelog: at most the rows of the table and the last round are left."""
        server = self.stream.config.bootstrap_servers
        configure(server, ResourceType.BROKER, "1", {"log.cleaner.backoff.ms": "200"})
        configure(server, ResourceType.TOPIC, self.changelog, EAGER)

        def is_compacted() -> bool:
            self.go_on()  # only a record closes a segment, and only a closed one is cleaned
            return self.records() <= 2 * len(ACCOUNTS)

        self.stream.wait(is_compacted, "the changelog is compacted")
        configure(server, ResourceType.TOPIC, self.changelog, LAZY)

    def rebuilt(self) -> dict[str, int]:
        """The table of a candidate that is folded from the changelog; the stream stands meanwhile."""
        stream = self.stream
        assert stream.stop(self.epoch) == []
        request = control.rebuild_request(stream.config, stream.name, actor="test", reason="compare")
        epoch = control.replay(stream.config, control.plan(stream.config, request), actor="test", reason="compare")
        stream.run(epoch)
        stream.await_stage(epoch, Stage.SEEDED)
        balances = stream.balances(epoch)
        assert stream.stop(epoch) == []
        control.abort(stream.config, stream.name, epoch, actor="test", reason="compared")
        stream.run(self.epoch)
        return balances


def test_a_rebuild_folds_no_more_records_after_a_much_longer_history(stream: Lab) -> None:
    stream.deploy(1)
    history = History(stream)

    for more in (2, 6):
        before = history.records()
        history.go_on(more)
        assert history.records() == before + more * len(ACCOUNTS)
        history.compact()
        assert history.rebuilt() == dict.fromkeys(ACCOUNTS, history.rounds)
        assert len(ACCOUNTS) <= history.records() <= 2 * len(ACCOUNTS)
