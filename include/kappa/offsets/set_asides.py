"""Records set aside: input that a step never gets, by a decision on record.

A step that refuses a record would stand still until a person decides that the epoch continues without it. The decision
is input, like a release: the plan of a slice has it, roll-ups and seeds keep it, and every other run of the same
offsets copies it. The record becomes a dead letter before the step and does not advance stream time.
"""

from __future__ import annotations

import hashlib
import hmac
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kappa.errors import KappaError, UsageError
from kappa.offsets import vector
from kappa.offsets.notation import is_number
from kappa.offsets.vector import OffsetRange, TopicPartition

#: Substitutes for the hash of a null value, and of a value that cannot be read at all.
NULL, UNREADABLE = "null", ""
#: The word for all records set aside.
ALL = "all"
#: Largest number of records in one decision, whatever its cap: it is one row of the record.
MOST = 100_000
#: Number of offsets in a line for people.
_SHOWN = 3


@dataclass(frozen=True, kw_only=True)
class SetAside:
    """Records of one partition that one decision sets aside.

    Attributes:
        decision: number of the event ``set_aside``.
        reason: why.
        topic: name of the topic in Kafka.
        topic_id: Kafka's id of it.
        partition: the partition.
        offsets: offset -> :func:`value_hash` of the record there.
        mask: fingerprint of the key of these hashes; empty if they have none, and in decisions of release 0.1.0.
    """

    decision: int
    reason: str
    topic: str
    topic_id: str
    partition: int
    offsets: Mapping[int, str]
    mask: str = ""

    @property
    def at(self) -> TopicPartition:
        """Its topic and partition."""
        return self.topic, self.partition

    @property
    def dead_reason(self) -> str:
        """Why its records are dead letters."""
        return f"set aside by decision {self.decision}: {self.reason}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON, whose keys are text."""
        offsets = {str(offset): digest for offset, digest in sorted(self.offsets.items())}
        values = {**vars(self), "offsets": offsets}
        return values if self.mask else {name: value for name, value in values.items() if name != "mask"}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SetAside:
        """The inverse of :meth:`as_dict`."""
        fields = {name: values[name] for name in ("decision", "reason", "topic", "topic_id", "partition")}
        offsets = {int(offset): digest for offset, digest in values["offsets"].items()}
        return cls(**fields, offsets=offsets, mask=values.get("mask", ""))


#: Records of several decisions and partitions; at most one entry per place.
SetAsides = tuple[SetAside, ...]


def value_hash(value: bytes | None, key: str = "") -> str:
    """The hash by which a decision recognises the value of a record.

    Args:
        value: the value.
        key: for a sensitive source the key of masked values, without which the value cannot be guessed.
    """
    if value is None:
        return NULL
    return (hmac.new(key.encode(), value, "sha256") if key else hashlib.sha256(value)).hexdigest()[:16]


def holes(offsets: Sequence[int], read: Callable[[int, int], Iterable[int]]) -> list[int]:
    """Those of these offsets at which no record lies: a reader passes them without an error.

    From the first offset that cannot be read to the last one, nobody knows.

    Args:
        offsets: sorted, at least one.
        read: gives the offsets of the records from an offset up to another, and raises a KappaError at what cannot be
            read.
    """
    records: set[int] = set()
    end = offsets[-1] + 1

    def is_read(start: int) -> bool:
        try:
            for offset in read(start, end):
                records.add(offset)
        except KappaError:
            return False
        return True

    first = end if is_read(offsets[0]) else max(records, default=offsets[0] - 1) + 1
    last = first + bisect_left(range(first, end), True, key=is_read)
    return [offset for offset in offsets if offset not in records and not first <= offset < last]


def count(several: Iterable[SetAside]) -> int:
    """How many records they are."""
    return sum(len(one.offsets) for one in several)


def merged(several: Iterable[SetAside]) -> SetAsides:
    """All of them, one per decision and partition; if a place has several, the first decision counts."""
    places: set[tuple[TopicPartition, int]] = set()
    by_decision: dict[tuple[int, TopicPartition], tuple[SetAside, dict[int, str]]] = {}
    for one in sorted(several, key=lambda one: (one.decision, one.at)):
        _, own = by_decision.setdefault((one.decision, one.at), (one, {}))
        new = {offset: value for offset, value in one.offsets.items() if (one.at, offset) not in places}
        places.update((one.at, offset) for offset in new)
        own.update(new)
    return _of(replace(one, offsets=own) for one, own in by_decision.values())


def within(several: Iterable[SetAside], ranges: Sequence[OffsetRange]) -> SetAsides:
    """Those in offset ranges."""
    spans = vector.by_partition(ranges)
    return _filtered(several, lambda at, offset: any(r.start <= offset < r.end for r in spans.get(at, ())))


def before(several: Iterable[SetAside], end: Mapping[TopicPartition, int]) -> SetAsides:
    """Those before an end; none of partitions that it does not name."""
    return _filtered(several, lambda at, offset: offset < end.get(at, 0))


def of_topics(several: Iterable[SetAside], topic_ids: Mapping[str, str]) -> SetAsides:
    """Those of topics with these ids: one that was created anew has other records at their places."""
    return tuple(one for one in several if topic_ids.get(one.topic) == one.topic_id)


def without(several: Iterable[SetAside], others: Iterable[SetAside]) -> SetAsides:
    """Those at places that the others do not have."""
    places = {(one.at, offset) for one in others for offset in one.offsets}
    return _filtered(several, lambda at, offset: (at, offset) not in places)


def by_partition(several: Iterable[SetAside]) -> dict[TopicPartition, dict[int, SetAside]]:
    """Topic and partition -> offset -> the decision that sets it aside."""
    decisions: dict[TopicPartition, dict[int, SetAside]] = {}
    for one in several:
        decisions.setdefault(one.at, {}).update(dict.fromkeys(one.offsets, one))
    return decisions


def as_list(several: Iterable[SetAside]) -> list[dict[str, Any]]:
    """For JSON."""
    return [one.as_dict() for one in several]


def from_list(values: Iterable[Mapping[str, Any]]) -> SetAsides:
    """The inverse of :func:`as_list`."""
    return tuple(map(SetAside.from_dict, values))


def detail(several: SetAsides) -> dict[str, Any]:
    """The entry of records set aside in a ledger row's detail; empty if there are none."""
    return {"set_aside": as_list(several)} if several else {}


def described(several: Iterable[SetAside]) -> str:
    """Their number, and the places of the first ones: ``12 records, pos[0] at 17, 18, 19 and 9 more``."""
    places: dict[TopicPartition, list[int]] = {}
    for one in several:
        places.setdefault(one.at, []).extend(one.offsets)
    parts = [f"{topic}[{partition}] at {shown(offsets)}" for (topic, partition), offsets in sorted(places.items())]
    number = sum(map(len, places.values()))
    return f"{number:,} record{'' if number == 1 else 's'}{', ' if parts else ''}{'; '.join(parts)}"


def shown(offsets: Iterable[int]) -> str:
    """Offsets in words: the first few, and how many more there are."""
    ordered = sorted(offsets)
    first = ", ".join(map(str, ordered[:_SHOWN]))
    return first if len(ordered) <= _SHOWN else f"{first} and {len(ordered) - _SHOWN:,} more"


def listed(text: str, most: int) -> tuple[int, ...]:
    """Offsets in the notation of the command line: ``17``, ``17,20`` or ``17-25,30``, both ends of a range included.

    Args:
        text: the option's value.
        most: largest allowed number.

    Raises:
        UsageError: the text is something else, a range runs backwards, or they are too many.
    """
    offsets: set[int] = set()
    for part in text.replace(" ", "").split(","):
        first, dash, last = part.partition("-")
        if not is_number(first) or (dash and not is_number(last)):
            raise UsageError(f"--offset {text!r} is not a list of offsets, for example 17,20-25.")
        begin, end = int(first), int(last or first)
        if end < begin:
            raise UsageError(f"--offset {part!r} runs backwards. Write --offset {end}-{begin}.")
        if len(offsets) + end + 1 - begin > most:
            raise UsageError(
                f"--offset {text!r} names more than {most:,} offsets. Name fewer, or raise the cap: --limit N."
            )
        offsets.update(range(begin, end + 1))
    return tuple(sorted(offsets))


def check_choice(text: str) -> None:
    """Refuse a text that :func:`selection` does not accept.

    Raises:
        UsageError: it does not.
    """
    if text != ALL and not is_number(text):
        _place(text)


def selection(several: SetAsides, text: str) -> SetAsides:
    """Those that a text names: ``all``, the number of a decision, or ``topic:partition=offsets``.

    Raises:
        UsageError: it is none of these.
    """
    if text == ALL:
        return several
    if is_number(text):
        return tuple(one for one in several if one.decision == int(text))
    topic, partition, offsets = _place(text)
    return _filtered(several, lambda at, offset: at == (topic, partition) and offset in offsets)


def _place(text: str) -> tuple[str, int, frozenset[int]]:
    where, _, offsets = text.rpartition("=")
    topic, _, partition = where.rpartition(":")
    if not topic or not is_number(partition):
        raise UsageError(
            f"{text!r} names no record that was set aside. Write the number of a decision, like 12; "
            "topic:partition=offsets, like pos:0=17,20-25; or all."
        )
    return topic, int(partition), frozenset(listed(offsets, MOST))


def ranges_around(ranges: Sequence[OffsetRange], offsets: Mapping[TopicPartition, Iterable[int]]) -> list[OffsetRange]:
    """Ranges without these offsets: the parts that can be read."""
    parts = []
    for item in ranges:
        start = item.start
        for offset in sorted(o for o in offsets.get(item.at, ()) if item.start <= o < item.end):
            parts.append(replace(item, start=start, end=offset))
            start = offset + 1
        parts.append(replace(item, start=start))
    return [item for item in parts if item.count]


def layers(ranges: Sequence[OffsetRange], offsets: Mapping[TopicPartition, Iterable[int]]) -> list[list[OffsetRange]]:
    """These ranges in several layers, each with at most one range per partition; all partitions are in the first
    layer.
    """
    turns: list[list[OffsetRange]] = [[]]
    for item in ranges:
        for turn, part in enumerate(ranges_around([item], offsets) or [replace(item, end=item.start)]):
            if turn == len(turns):
                turns.append([])
            turns[turn].append(part)
    return turns


def _filtered(several: Iterable[SetAside], belongs: Any) -> SetAsides:
    return _of(
        replace(one, offsets={offset: value for offset, value in one.offsets.items() if belongs(one.at, offset)})
        for one in several
    )


def _of(several: Iterable[SetAside]) -> SetAsides:
    return tuple(one for one in several if one.offsets)
