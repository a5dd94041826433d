"""A world without chance: drivers die where a test wants it, and everything else happens in the order that it says."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from kappa import control, faults
from kappa.replay.stages import Stage
from support.deaths import ENDLESS
from support.epochs import DEADLINE_SECONDS, content, read_messages
from support.histories import World

if TYPE_CHECKING:
    from confluent_kafka import Message

#: Account, amount as the code counts it, running total.
Row = tuple[str, int, int]

ROWS = [("a", 1), ("b", 2), ("a", 3), ("c", 4), ("b", 5), ("d", 6), ("a", 7), ("c", 8)]
OUTPUT = 'Topic(name="{topic}.moves", of="moves", key="id"),'


@dataclass(kw_only=True)
class Mortal(World):
    """A world in which only what the test wants happens.

    Attributes:
        outputs: topic outputs of the topology, in place of the one of every lab.
    """

    outputs: str = OUTPUT

    def __post_init__(self) -> None:
        self.config = replace(self.config, attempts=ENDLESS)

    def deploy(self, version: int, factor: int | str | None = None) -> None:
        super().deploy(version, factor)
        file = self.config.topologies / "balances.py"
        text, output = file.read_text(), OUTPUT.format(topic=self.topic)
        assert output in text
        file.write_text(text.replace(output, self.outputs.format(topic=self.topic)))

    def dies(self, *points: str) -> None:
        """Wait until drivers have died at these points, one after the other; each is started again."""
        for point in points:
            before = self.deaths
            self.reaper.environ[faults.VARIABLE] = point
            self.wait(partial(self._has_died_since, before), f"a driver dies at {point}")
            assert self.reaper.fallen[-1] == point

    def _has_died_since(self, before: int) -> bool:
        return self.deaths > before

    def until(self, condition: Callable[[], Any], what: str) -> None:
        """Wait for a condition while whoever is dead stays dead, and whoever is stuck stuck."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not happen"
            time.sleep(0.05)

    def rows(self, topic: str) -> list[Row]:
        """What a plain consumer reads of a topic of moves."""
        return [row(message) for message in read_messages(self.config.bootstrap_servers, topic)]

    def live_first(self, rows: Sequence[tuple[str, int]] = ROWS) -> int:
        self.deploy(1)
        self.produce(rows)
        epoch = control.start(self.config, self.name, actor="test", reason="start")
        self.await_live(epoch)
        self.settle(epoch)
        return epoch

    def verified(self, *points: str, start: Any = None, **request: Any) -> int:
        """A candidate that waits for its cutover; its drivers died at these points on the way."""
        if points:
            self.reaper.environ[faults.VARIABLE] = points[0]
        before = self.deaths
        epoch = self.plan_replay(start, **request)
        if points:
            self.wait(partial(self._has_died_since, before), f"a driver dies at {points[0]}")
            assert self.reaper.fallen[-1] == points[0]
            self.dies(*points[1:])
        self.await_stage(epoch, Stage.VERIFIED)
        return epoch

    def cut_over_to(self, epoch: int) -> None:
        control.cut_over(self.config, self.name, epoch, actor="test", reason="test")
        self.await_live(epoch)

    def roll_back_to(self, epoch: int) -> None:
        control.rollback(self.config, self.name, to=epoch, actor="test", reason="back")
        self.wait(lambda: control.progress(self.config, self.name, epoch).is_caught_up, "it caught up")
        self.cut_over_to(epoch)

    def tell(self, rows: Sequence[tuple[str, int]], minute: int) -> None:
        """More records, until the live epoch has them."""
        self.produce(rows, start_ms=1_700_000_000_000 + 60_000 * minute)
        self.settle(self.record().live)


def row(message: Message) -> Row:
    fields = orjson.loads(content(message))
    return fields["id"], fields["counted"], fields["total"]


def running_totals(rows: Sequence[tuple[str, int]], factor: int) -> list[Row]:
    """Every move with its running total, sorted: what an epoch of that factor says of them."""
    totals: Counter[str] = Counter()
    moves = []
    for account, amount in rows:
        totals[account] += amount * factor
        moves.append((account, amount * factor, totals[account]))
    return sorted(moves)
