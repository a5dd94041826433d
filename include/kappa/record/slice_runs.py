"""Runs of slices: a roll-up's facts about slices whose rows have gone, exact wherever something can change.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kappa.offsets.coverage import is_within, joined
from kappa.offsets.vector import OffsetRange, ranges_as_dict, ranges_end, ranges_from_json, ranges_start
from kappa.replay.proof.certificate import SliceFacts


@dataclass(frozen=True, kw_only=True)
class Run:
    """Consecutive slices that read on from one another, sent alike and ran the same code; at first one slice.

    Attributes:
        facts: what a certificate needs to know of them.
        slices: how many they are.
        logged: whether they wrote the changelog.
        turn: number of the ledger's last row ``resume`` before them; 0 before the first.
        seconds: how long they took together.
        bytes_read: keys and values of those slices that have their size on record.
        sized_records: records of those slices.
        sized: number of those slices.
    """

    facts: SliceFacts
    slices: int = 1
    logged: bool = False
    turn: int = 0
    seconds: float = 0.0
    bytes_read: int = 0
    sized_records: int = 0
    sized: int = 0

    def as_dict(self) -> dict[str, Any]:
        """The run for a ledger's row."""
        facts = self.facts
        return {
            "first": facts.seq,
            "last": facts.last,
            "slices": self.slices,
            "sends": facts.sends,
            "code": facts.code,
            "logged": self.logged,
            "turn": self.turn,
            "seconds": round(self.seconds, 3),
            "bytes": [self.bytes_read, self.sized_records, self.sized],
            "rows": [facts.rows_read, facts.rows_parsed, facts.rows_dead, facts.rows_late, facts.rows_set_aside],
            "ranges": ranges_as_dict(facts.ranges),
            "read": ranges_as_dict(facts.read),
            "archived": [[r.topic, r.partition, r.start, r.end] for r in facts.archived],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Run:
        """The inverse of :meth:`as_dict`."""
        rows_read, rows_parsed, rows_dead, rows_late, rows_set_aside = (*values["rows"], 0, 0)[:5]
        bytes_read, sized_records, sized = values["bytes"]
        facts = SliceFacts(
            seq=values["first"],
            seq_last=None if values["last"] == values["first"] else values["last"],
            sends=values["sends"],
            code=values["code"],
            rows_read=rows_read,
            rows_parsed=rows_parsed,
            rows_dead=rows_dead,
            rows_late=rows_late,
            rows_set_aside=rows_set_aside,
            ranges=ranges_from_json(values["ranges"]),
            read=ranges_from_json(values["read"]),
            archived=tuple(OffsetRange(topic=t, partition=p, start=s, end=e) for t, p, s, e in values["archived"]),
        )
        return cls(
            facts=facts,
            slices=values["slices"],
            logged=values["logged"],
            turn=values["turn"],
            seconds=values["seconds"],
            bytes_read=bytes_read,
            sized_records=sized_records,
            sized=sized,
        )


def extended(runs: Sequence[Run], more: Iterable[Run]) -> tuple[Run, ...]:
    """Runs and those that follow them, with neighbours joined where nothing is lost by it.

    A slice that a certificate would complain of, or that does not join the one before it, stays apart: the complaint
    names its number and its ranges. So does the seed, and each turn in which an epoch may send.
    """
    joint = list(runs)
    for run in more:
        if joint and _is_continued(joint[-1], run):
            joint[-1] = _joined(joint[-1], run)
        else:
            joint.append(run)
    return tuple(joint)


def _is_continued(run: Run, following: Run) -> bool:
    one, two = run.facts, following.facts
    alike = (one.sends, one.code, run.logged, run.turn) == (two.sends, two.code, following.logged, following.turn)
    return (
        alike
        and 0 < one.seq <= one.last < two.seq
        and _is_sound(one)
        and _is_sound(two)
        and _reads_on(one.ranges, two.ranges)
        and _reads_on(one.read, two.read)
    )


def _is_sound(facts: SliceFacts) -> bool:
    return (
        facts.is_counted
        and facts.rows_read <= sum(item.count for item in facts.offsets)
        and is_within(facts.archived, facts.offsets)
    )


def _reads_on(ranges: Sequence[OffsetRange], following: Sequence[OffsetRange]) -> bool:
    """Whether the one set of ranges ends where the other begins, in the very same partitions."""
    return ranges_end(ranges) == ranges_start(following)


def _joined(run: Run, following: Run) -> Run:
    one, two = run.facts, following.facts
    facts = replace(
        one,
        seq_last=two.last,
        ranges=_spanned(one.ranges, two.ranges),
        read=_spanned(one.read, two.read),
        archived=joined((*one.archived, *two.archived)),
        rows_read=one.rows_read + two.rows_read,
        rows_parsed=one.rows_parsed + two.rows_parsed,
        rows_dead=one.rows_dead + two.rows_dead,
        rows_late=one.rows_late + two.rows_late,
        rows_set_aside=one.rows_set_aside + two.rows_set_aside,
    )
    return replace(
        run,
        facts=facts,
        slices=run.slices + following.slices,
        seconds=run.seconds + following.seconds,
        bytes_read=run.bytes_read + following.bytes_read,
        sized_records=run.sized_records + following.sized_records,
        sized=run.sized + following.sized,
    )


def _spanned(ranges: Sequence[OffsetRange], following: Sequence[OffsetRange]) -> tuple[OffsetRange, ...]:
    return ranges_start(ranges).span_to(ranges_end(following)) if ranges else ()
