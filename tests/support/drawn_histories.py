"""Random histories of any topology: records that are out of order, late, repeated, null, bad, huge or all but empty.

Pure: what is drawn depends on the seed alone. :mod:`support.oracle_histories` runs them.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zlib import crc32

from kappa.testing import Input
from kappa.topology import Source

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Keys as they come: no ASCII, nothing at all, a space.
KEYS = ("a", "b", "Größe", "日本", "🙂", "", " ")
_HUGE = 200_000


@dataclass(frozen=True, kw_only=True)
class Feed:
    """How the records of a topic are drawn.

    Attributes:
        make: key and value of a record; the value without the event time, which is put in. Text for a source of text.
        steps: by how many milliseconds the clock of a partition moves from record to record: one of these.
        behind: by how many a record's event time lies behind that clock: one of these.
        share: how many of the history's records are of this topic, by weight.
        is_pinned: whether records of a key share a partition.
        nulls: share of null values.
    """

    make: Callable[[random.Random], tuple[str | None, dict[str, Any] | str]]
    steps: Sequence[int] = (0, 0, 250, 500, 1000, 2500)
    behind: Sequence[int] = (0, 0, 0, 500, 2000, 8000, 15_000)
    share: int = 1
    is_pinned: bool = False
    nulls: float = 0.06


@dataclass(frozen=True, kw_only=True, eq=False)
class Record:
    """A good record at its place.

    Attributes:
        key: its key; None where there is none or it is not UTF-8.
        value: its fields, those that the schema has; None for a null value.
        at: its event time, epoch milliseconds; Kafka's timestamp for a source without event time.
        order_ms: the running maximum of Kafka's timestamps.
        frontier: the frontier at it; None for a source without event time.
        is_out_of_order: whether its partition had been further before.
    """

    topic: str
    partition: int
    offset: int
    key: str | None
    value: dict[str, Any] | None
    at: int
    order_ms: int
    frontier: int | None
    is_out_of_order: bool = False

    @property
    def order(self) -> tuple[int, str, int, int]:
        """Its place in the total order."""
        return (self.order_ms, self.topic, self.partition, self.offset)

    @property
    def place(self) -> dict[str, Any]:
        """The same as columns."""
        moment = EPOCH + timedelta(milliseconds=self.order_ms)
        names = ("_order_timestamp", "_topic", "_partition", "_offset")
        return dict(zip(names, (moment, *self.order[1:]), strict=True))

    def final_at(self, millis: int) -> dict[str, Any]:
        """The place of a row of it that was final at a time, epoch milliseconds."""
        return {**self.place, "_order_timestamp": EPOCH + timedelta(milliseconds=millis)}

    def has(self, *columns: str) -> bool:
        """Whether these fields have values."""
        return self.value is not None and all(self.value.get(column) is not None for column in columns)

    def __getitem__(self, column: str) -> Any:
        return None if self.value is None else self.value.get(column)


@dataclass(frozen=True, kw_only=True)
class History:
    """What an oracle gets.

    Attributes:
        records: the good ones, in the total order.
        frontiers: topic -> the frontier behind all of them; None while a partition has no record.
    """

    records: list[Record]
    frontiers: dict[str, int | None]

    def of(self, topic: str) -> list[Record]:
        """Records of a topic, in the total order."""
        return [record for record in self.records if record.topic == topic]


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A record as it is produced.

    Attributes:
        value: None also for a record that is bad.
        kinds: what is odd about it.
    """

    input: Input
    value: dict[str, Any] | None
    at: int
    kinds: frozenset[str]


def drawn(
    chance: random.Random, sources: Mapping[str, Source], feeds: Mapping[str, Feed], records: int, partitions: int
) -> list[Sent]:
    topics = [topic for topic, feed in feeds.items() for _ in range(feed.share)]
    clocks = {(topic, at): 20_000 + chance.randint(0, 3) * 500 for topic in feeds for at in range(partitions)}
    huge = min(_HUGE, 16_000_000 // records)
    log: list[Sent] = []
    repeatable: dict[str, list[Sent]] = {topic: [] for topic in feeds}
    for _ in range(records):
        topic = chance.choice(topics)
        feed, source = feeds[topic], sources[topic]
        if repeatable[topic] and chance.random() < 0.08:
            one = chance.choice(repeatable[topic])
            log.append(Sent(input=one.input, value=one.value, at=one.at, kinds=one.kinds | {"repeated"}))
            continue
        key, value = feed.make(chance)
        text = None if key is None else key.encode()
        partition = crc32(text) % partitions if feed.is_pinned and text is not None else chance.randrange(partitions)
        clocks[topic, partition] += chance.choice(feed.steps)
        clock = clocks[topic, partition]
        # Kafka's own timestamps go back at times, too; the running maximum is what orders them.
        sent_ms = clock - chance.choice([0, 0, 0, 1, 700])
        at = clock - chance.choice(feed.behind)
        if text is not None and not feed.is_pinned and chance.random() < 0.02:
            text = b"\xff" + text
        body, kind, content = _value(chance, source, feed, value, at, sent_ms, huge)
        record = Input(topic=topic, value=body, key=text, partition=partition, timestamp_ms=sent_ms)
        is_own = source.grace is not None and source.time is not None and content is not None
        log.append(
            Sent(input=record, value=content, at=at if is_own else sent_ms, kinds=frozenset({kind} if kind else ()))
        )
        if log[-1].kinds <= {"huge"}:
            repeatable[topic].append(log[-1])
    return log


def _value(
    chance: random.Random,
    source: Source,
    feed: Feed,
    drawn: dict[str, Any] | str,
    at: int,
    sent_ms: int,
    huge_bytes: int,
) -> tuple[bytes | None, str, dict[str, Any] | None]:
    """A record's value, what is odd about it, and its fields."""
    draw = chance.random()
    if draw < feed.nulls:
        return None, "null", None
    if isinstance(drawn, str):
        if draw < feed.nulls + 0.06:
            return b"\xff\xfe" + drawn.encode(), "dead", None
        huge = drawn + " a" * (huge_bytes // 2) if draw > 0.98 else drawn
        return huge.encode(), "huge" if huge != drawn else "", {"value": huge}
    time = _time_of(source)
    value = {**drawn, time: at} if time else dict(drawn)
    fields = {column.name: value.get(column.name) for column in source.value_columns}
    fields |= value if source.envelope != "none" else {}
    text = json.dumps(value, ensure_ascii=chance.random() < 0.5).encode()
    if draw < feed.nulls + 0.12:
        return chance.choice(_bad(source, value, text, sent_ms)), "dead", None
    if draw > 0.97:
        return text[:-1] + b', "no column": "' + b"x" * huge_bytes + b'"}', "huge", fields
    return b" \r\n" + text + b"\t" if draw > 0.9 else text, "", fields


def _bad(source: Source, value: dict[str, Any], text: bytes, sent_ms: int) -> list[bytes]:
    """Values that no reader of the schema accepts."""
    bad_values = [text[: len(text) // 2], b"", b"[]", b"\xff" + text, text + b"{}", b"null"]
    in_keys = {column.name for column in source.key_columns}
    required = [column.name for column in source.value_columns if not column.nullable and column.name not in in_keys]
    kinds = ("BIGINT", "INT", "DECIMAL")
    numbers = [column.name for column in source.value_columns if column.type.upper().startswith(kinds)]
    bad_values += [_json({name: item for name, item in value.items() if name != lost}) for lost in required]
    bad_values += [b"{}"] if required else []
    bad_values += [_json({**value, name: {"an": "object"}}) for name in numbers]
    if name := _time_of(source):
        bad_values += [_json({**value, name: None}), _json({**value, name: sent_ms + source.ahead_ms + 1})]
    return bad_values


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode()


def _time_of(source: Source) -> str | None:
    """The column of its event time."""
    return None if source.grace is None or source.is_wall_clock else source.time


@dataclass(frozen=True, kw_only=True)
class Placed:
    history: History
    dead: list[tuple[str, int, int]]
    order_ms: list[int]


def placed(sent: Sequence[Sent], sources: Mapping[str, Source], partitions: int) -> Placed:
    offsets: Counter[tuple[str, int]] = Counter()
    running: dict[tuple[str, int], int] = {}
    stream: dict[tuple[str, int], int] = {}
    good: list[Record] = []
    dead, order_ms = [], []
    for one in sent:
        topic, partition = at = one.input.topic, one.input.partition
        source, sent_ms = sources[topic], one.input.timestamp_ms
        assert sent_ms is not None
        running[at] = max(sent_ms, running.get(at, sent_ms))
        order_ms.append(running[at])
        offset = offsets[at]
        offsets[at] += 1
        is_null = one.input.value is None
        is_dead = "dead" in one.kinds
        if is_null:
            is_dead = not (source.tombstones or source.envelope != "none") or _text(one.input.key) is None
        own = 0 if source.is_wall_clock else one.at  # the driver's clock stands at 1970
        reached = stream.get(at, own) if source.grace is not None else running[at]
        if is_null and _time_of(source):
            own = min(own, reached)  # it has no time of its own, and moves nothing
        elif source.grace is not None and not is_dead and not is_null:
            stream[at] = max(own, reached)
        if is_dead:
            dead.append((topic, partition, offset))
            continue
        good.append(
            Record(
                topic=topic,
                partition=partition,
                offset=offset,
                key=_text(one.input.key),
                value=one.value,
                at=own,
                order_ms=running[at],
                frontier=None if source.grace_ms is None else stream.get(at, own) - source.grace_ms,
                is_out_of_order=own < reached,
            )
        )
    frontiers: dict[str, int | None] = {}
    for topic, source in sources.items():
        if source.grace_ms is not None:
            times = [time for (name, _), time in stream.items() if name == topic]
            frontiers[topic] = min(times) - source.grace_ms if len(times) == partitions else None
    good.sort(key=lambda record: record.order)
    return Placed(history=History(records=good, frontiers=frontiers), dead=dead, order_ms=order_ms)


def _text(key: object) -> str | None:
    assert key is None or isinstance(key, bytes)
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


def ways_of(
    chance: random.Random, sent: Sequence[Sent], order_ms: Sequence[int], cuts: str
) -> dict[str, list[list[Sent]]]:
    """Names of three ways to slice, with the slices."""
    logs: dict[tuple[str, int], list[Sent]] = {}
    for one in sent:
        logs.setdefault((one.input.topic, one.input.partition), []).append(one)
    if cuts == "time":
        times = sorted(set(order_ms))
        ways = {"in one slice": [list(sent)]}
        for many in (2, 3):
            ends = sorted(chance.sample(times, many))
            parts: list[list[Sent]] = [[] for _ in range(many + 1)]
            for one, time in zip(sent, order_ms, strict=True):
                parts[sum(time >= end for end in ends)].append(one)
            ways[f"cut at {many} times"] = [part for part in parts if part]
        return ways
    slices: list[list[Sent]] = [[] for _ in range(3)]
    for log in logs.values():
        ends = sorted(chance.randint(0, len(log)) for _ in range(2))
        for number, (start, end) in enumerate(zip([0, *ends], [*ends, len(log)], strict=True)):
            slices[number] += log[start:end]
    return {
        "in one slice": [list(sent)],
        "as they came": [part for part in slices if part],
        "one partition after the other": chance.sample(list(logs.values()), len(logs)),
    }


def long_way(sent: Sequence[Sent], order_ms: Sequence[int]) -> dict[str, list[list[Sent]]]:
    """A slice of nearly all, which is large by itself, and one of the rest: a cut by time and by arrival alike."""
    end = sorted(order_ms)[len(sent) - len(sent) // 40]
    parts: list[list[Sent]] = [[], []]
    for one, time in zip(sent, order_ms, strict=True):
        parts[time >= end].append(one)
    return {"in two slices": parts}
