"""What the aggregates make of a history, in plain Python; and histories to try them on."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

from kappa.testing import Input

PARTITIONS = 3
TOPICS = ("facts", "others")
IDS = ("a", "b", "c", "d", None)
TEAMS = ("red", "blue", None)
WORDS = ("ant", "bee", "cat", "dog", "eel", None)


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One record of a history.

    Attributes:
        topic: its source.
        id: its key; None for a record without one.
        gone: whether it deletes its key, for a table of the newest records.
        timestamp_ms: Kafka's timestamp.
        order: its place in the total order.
    """

    topic: str
    id: str | None
    team: str | None
    price: Decimal | None
    items: int | None
    word: str | None
    gone: bool
    timestamp_ms: int
    partition: int
    order: tuple[int, str, int, int]

    @property
    def input(self) -> Input:
        """The record as a driver takes it."""
        value = {
            "id": self.id,
            "team": self.team,
            "price": None if self.price is None else float(self.price),
            "items": self.items,
            "word": self.word,
            "gone": self.gone,
        }
        return Input(topic=self.topic, value=value, partition=self.partition, timestamp_ms=self.timestamp_ms)


def history(seed: int, size: int = 60) -> list[Fact]:
    """Records of two topics with three partitions, in the order of each partition; times go back and forth."""
    chance = random.Random(seed)
    running: dict[tuple[str, int], int] = {}
    offsets: dict[tuple[str, int], int] = {}
    facts = []
    for at in range(size):
        topic, partition = chance.choice(TOPICS), chance.randrange(PARTITIONS)
        timestamp = 100_000 + at * 300 + chance.randrange(-2_000, 2_000)
        place = (topic, partition)
        running[place] = max(running.get(place, 0), timestamp)
        offsets[place] = offsets.get(place, -1) + 1
        facts.append(
            Fact(
                topic=topic,
                id=chance.choice(IDS),
                team=chance.choice(TEAMS),
                price=chance.choice((None, *(Decimal(chance.randrange(-500, 500)).scaleb(-2) for _ in range(5)))),
                items=chance.choice((None, 0, chance.randrange(-9, 9), chance.randrange(9))),
                word=chance.choice(WORDS),
                gone=chance.random() < 0.25,
                timestamp_ms=timestamp,
                partition=partition,
                order=(running[place], topic, partition, offsets[place]),
            )
        )
    return facts


def by_arrival(facts: Sequence[Fact], chance: random.Random, slices: int = 6) -> list[list[Fact]]:
    """Slices that take any number of records of each partition, so that partitions lag behind each other."""
    parts: list[list[Fact]] = [[] for _ in range(slices)]
    for place in sorted({(fact.topic, fact.partition) for fact in facts}):
        own_facts = [fact for fact in facts if (fact.topic, fact.partition) == place]
        ends = [0, *sorted(chance.randint(0, len(own_facts)) for _ in range(slices - 1)), len(own_facts)]
        for at in range(slices):
            parts[at] += own_facts[ends[at] : ends[at + 1]]
    return [part for part in parts if part]


def grouped(facts: Iterable[Fact], key: Callable[[Fact], Any]) -> dict[Any, list[Fact]]:
    """Records by key, without those that have none."""
    groups: dict[Any, list[Fact]] = {}
    for fact in facts:
        of = key(fact)
        if of is not None and (not isinstance(of, tuple) or None not in of):
            groups.setdefault(of, []).append(fact)
    return groups


def newest(facts: Iterable[Fact]) -> list[Fact]:
    """The last record of each key, without those that delete it."""
    last = {fact.id: fact for fact in sorted(facts, key=lambda fact: fact.order) if fact.id is not None}
    return [fact for fact in last.values() if not fact.gone]


def added(facts: Sequence[Fact]) -> dict[str, Any]:
    """What can be subtracted too: ``count``, ``sum``, ``avg``, ``variance`` and ``stddev``."""
    prices, items = _known(facts, "price"), _known(facts, "items")
    return {
        "records": len(facts),
        "priced": len(prices),
        "total": sum(prices, Decimal(0)),
        "items": sum(items),
        "mean": _mean(prices, "0.000001"),
        "mean_items": _mean(items, "0.0001"),
        "spread": _variance(prices),
        "deviation": None if len(items) < 2 else math.sqrt(_variance(items) or 0),
    }


def compared(facts: Sequence[Fact]) -> dict[str, Any]:
    """What needs no order: ``min``, ``max``, ``distinct`` and ``top``."""
    prices = _known(facts, "price")
    reached: dict[str, Decimal] = {}
    for fact in facts:
        if fact.word is not None and fact.price is not None:
            reached[fact.word] = max(fact.price, reached.get(fact.word, fact.price))
    ranked = sorted(((price, word) for word, price in reached.items()), reverse=True)
    return {
        "low": min(prices, default=None),
        "high": max(prices, default=None),
        "words": len(set(_known(facts, "word"))),
        "best": [{"by": price, "value": word} for price, word in ranked[:2]],
    }


def ordered(facts: Sequence[Fact]) -> dict[str, Any]:
    """What follows the total order: ``first``, ``last`` and ``collect``."""
    words = _known(sorted(facts, key=lambda fact: fact.order), "word")
    return {"opening": words[0] if words else None, "closing": words[-1] if words else None, "listed": words[:3]}


def _variance(values: Sequence[Any]) -> float | None:
    """Of a sample, from exact sums."""
    many, total, squares = len(values), sum(values), sum(value * value for value in values)
    return None if many < 2 else float(many * squares - total * total) / (float(many) * (many - 1))


def _known(facts: Iterable[Fact], name: str) -> list[Any]:
    return [getattr(fact, name) for fact in facts if getattr(fact, name) is not None]


def _mean(values: Sequence[Any], unit: str) -> Decimal | None:
    if not values:
        return None
    with localcontext() as context:
        context.prec = 60
        return (sum(values, Decimal(0)) / len(values)).quantize(Decimal(unit), ROUND_HALF_UP)
