"""What the operators of records make of a history, in plain Python; and histories to try them on."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

GRACE_MS, WITHIN_MS, PARTITIONS = 5_000, 4_000, 3
KEYS = ("a", "b", "c", "d", "e", None)


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One record of a history.

    Attributes:
        key: None for a record without a key.
        time_ms: its event time.
        timestamp_ms: Kafka's timestamp.
        order: its place in the total order.
        frontier_ms: the frontier of its partition at it.
    """

    key: str | None
    amount: int
    gone: bool
    time_ms: int
    timestamp_ms: int
    partition: int
    offset: int = 0
    order: tuple[int, int, int] = (0, 0, 0)
    frontier_ms: int = 0


def history(seed: int, *, pinned: bool, size: int = 60) -> list[Fact]:
    """Records of three partitions, out of order and late ones among them, in the total order.

    Args:
        seed: which history.
        pinned: whether a key stays in one partition.
        size: how many records.
    """
    chance = random.Random(seed)
    running, reached, offsets = [0] * PARTITIONS, [-(10**9)] * PARTITIONS, [0] * PARTITIONS
    facts = []
    for at in range(size):
        key = chance.choice(KEYS)
        partition = KEYS.index(key) % PARTITIONS if pinned else chance.randrange(PARTITIONS)
        timestamp = at * 400 + chance.randrange(-1_500, 1_500) + 100_000
        time = timestamp - chance.choice((0, 0, 500, 3_000, 9_000))
        running[partition] = max(running[partition], timestamp)
        reached[partition] = max(reached[partition], time)
        facts.append(
            Fact(
                key=key,
                amount=chance.randrange(1, 9),
                gone=chance.random() < 0.2,
                time_ms=time,
                timestamp_ms=timestamp,
                partition=partition,
                offset=offsets[partition],
                order=(running[partition], partition, offsets[partition]),
                frontier_ms=reached[partition] - GRACE_MS,
            )
        )
        offsets[partition] += 1
    return sorted(facts, key=lambda fact: fact.order)


def by_arrival(facts: Sequence[Fact], chance: random.Random, slices: int = 5) -> list[list[Fact]]:
    """Slices that take any number of records of each partition, so that partitions lag behind each other."""
    waiting = [[fact for fact in facts if fact.partition == partition] for partition in range(PARTITIONS)]
    cuts = [sorted(chance.randint(0, len(part)) for _ in range(slices - 1)) for part in waiting]
    parts = []
    for at in range(slices):
        taken: list[Fact] = []
        for part, cut in zip(waiting, cuts, strict=True):
            ends = [0, *cut, len(part)]
            taken += part[ends[at] : ends[at + 1]]
        parts.append(taken)
    return [part for part in parts if part]


def by_time(facts: Sequence[Fact], chance: random.Random, slices: int = 5) -> list[list[Fact]]:
    """Slices that follow the total order."""
    ends = sorted(chance.sample(range(1, len(facts)), slices - 1))
    return [list(facts[start:end]) for start, end in zip([0, *ends], [*ends, len(facts)], strict=True)]


@dataclass(kw_only=True)
class Expected:
    """What comes of a history; ``order`` stands for a record."""

    totals: dict[str, int] = field(default_factory=dict)
    crossings: list[tuple[str, int, tuple[int, int, int]]] = field(default_factory=list)
    newest: dict[str, tuple[int, tuple[int, int, int]]] = field(default_factory=dict)
    deletions: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    firsts: list[tuple[int, int, int]] = field(default_factory=list)
    first_seen: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    firsts_in_time: list[tuple[int, int, int]] = field(default_factory=list)
    last_seen: dict[str, int] = field(default_factory=dict)
    late: list[tuple[int, int, int]] = field(default_factory=list)


def expected(facts: Sequence[Fact], step: int) -> Expected:
    """One record after the other, in the total order."""
    result = Expected()
    last_seen: dict[str, int] = {}
    for fact in facts:
        key = fact.key
        if key is None:
            continue
        before = result.totals.get(key, 0)
        result.totals[key] = before + fact.amount
        multiples = range(before // step + 1, result.totals[key] // step + 1)
        result.crossings += [(key, step * multiple, fact.order) for multiple in multiples]
        if fact.gone:
            result.newest.pop(key, None)
            result.deletions[key] = fact.order
        else:
            result.newest[key] = (fact.amount, fact.order)
            result.deletions.pop(key, None)
        if key not in result.first_seen:
            result.first_seen[key] = fact.order
            result.firsts.append(fact.order)
        if fact.time_ms < fact.frontier_ms:
            result.late.append(fact.order)
            continue
        if key not in last_seen or fact.time_ms > last_seen[key] + WITHIN_MS:
            result.firsts_in_time.append(fact.order)
        last_seen[key] = max(fact.time_ms, last_seen.get(key, fact.time_ms))
    reached = [max((f.frontier_ms for f in facts if f.partition == p), default=None) for p in range(PARTITIONS)]
    frontiers = [millis for millis in reached if millis is not None]
    if len(frontiers) == PARTITIONS:
        result.last_seen = {key: millis for key, millis in last_seen.items() if millis + WITHIN_MS >= min(frontiers)}
    else:
        result.last_seen = last_seen
    return result


Cut = Callable[[Sequence[Fact], random.Random], list[list[Fact]]]
