"""The proof of a cutover: each epoch reads every input offset once, and exactly one epoch sends it.

It is computed from what ledgers and moves say, not from what drivers meant to do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from kappa.offsets.vector import OffsetRange, Offsets
from kappa.replay import stored

#: What a slice sends: all topic outputs, none, or only those that go to the epoch's versioned topics.
Sends = Literal["live", "held", "versioned"]


@dataclass(frozen=True, kw_only=True)
class MoveFacts:
    """A move of the live pointer.

    Attributes:
        epoch: the epoch that became live.
        from_epoch: the one that was live before; ``None`` for the first.
        at: the vector from which the new one sends.
        yielded: the vector up to which the old one has sent; ``None`` where that is not on record.
    """

    epoch: int
    from_epoch: int | None
    at: Offsets
    yielded: Offsets | None = None


@dataclass(frozen=True, kw_only=True)
class SliceFacts:
    """A committed slice, or consecutive ones whose rows a ledger has rolled up.

    Attributes:
        seq: its number, or that of the first; commit 0, the seed, has empty ranges at the epoch's start.
        ranges: what it read.
        sends: ``live`` when it sent to what all readers share; ``held`` or ``versioned`` (to the epoch's versioned
            topics only) otherwise.
        rows_read: records read.
        rows_parsed: records that parsed, counted on their own.
        rows_dead: records that went to dead letters.
        code: content hash of the code that ran it.
        archived: the part of the ranges that was read from archives instead of Kafka.
        read: what it read in Kafka's own names, where ``ranges`` are those of the root topics that this was made from.
        seq_last: number of the last of several; None for one.
        rows_late: parsed records that an operator refused because they came too late.
        rows_set_aside: records that a decision set aside.
    """

    seq: int
    ranges: tuple[OffsetRange, ...]
    sends: Sends
    rows_read: int
    rows_parsed: int
    rows_dead: int
    code: str
    archived: tuple[OffsetRange, ...] = ()
    read: tuple[OffsetRange, ...] = ()
    seq_last: int | None = None
    rows_late: int = 0
    rows_set_aside: int = 0

    @property
    def is_counted(self) -> bool:
        """Whether each record that was read is parsed, a dead letter or set aside."""
        return self.rows_read == self.rows_parsed + self.rows_dead + self.rows_set_aside

    @property
    def last(self) -> int:
        """Number of the last slice."""
        return self.seq if self.seq_last is None else self.seq_last

    @property
    def name(self) -> str:
        """Which slices these are, for people."""
        return f"slice {self.seq}" if self.last == self.seq else f"slices {self.seq} to {self.last}"

    @property
    def offsets(self) -> tuple[OffsetRange, ...]:
        """What it read, in Kafka's own names."""
        return self.read or self.ranges


@dataclass(frozen=True, kw_only=True)
class Span:
    """Consecutive slices of one epoch that sent one partition.

    Attributes:
        seq_first: the first of its slices.
        seq_last: the last of them.
        start: first offset.
        end: first offset after them.
    """

    epoch: int
    seq_first: int
    seq_last: int
    start: int
    end: int


@dataclass(frozen=True, kw_only=True)
class PartitionProof:
    """Which epoch sent which offsets of a partition, in order of offset."""

    topic: str
    partition: int
    spans: tuple[Span, ...]


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What is proved, and what is not.

    Attributes:
        at_epoch: the live epoch when it was made; ``None`` if none ever was.
        at: how far that epoch has committed.
        complete: whether everything holds.
        problems: what does not hold, with its numbers.
        unproved: claims that only the moves support, because the ledger was dropped with its retired epoch.
        partitions: which epoch sent which offsets.
        rows_read: records read by sending slices.
        rows_parsed: those that parsed.
        rows_dead: those that went to dead letters.
        codes: epoch -> content hashes of the code that ran it.
        archived: epoch -> ranges that it read from archives; it read everything else from Kafka.
        notes: remarks on those epochs; they prove and disprove nothing.
        attested: the broker's statement about the live epoch, if it was asked and agrees.
        approved: epoch -> actor and time of the approval for its cutover.
        backfilled: epoch -> intervals of its outputs that were computed again, oldest first.
        rows_late: of the parsed records those that an operator refused because they came too late.
        rows_set_aside: those that decisions set aside.
        brought_in: epoch -> how many records it computed that an epoch before it had set aside; topics that epochs
            share never got their rows.
    """

    topology: str
    at_epoch: int | None
    at: Offsets
    complete: bool
    problems: tuple[str, ...]
    unproved: tuple[str, ...]
    partitions: tuple[PartitionProof, ...]
    rows_read: int
    rows_parsed: int
    rows_dead: int
    codes: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    archived: Mapping[int, tuple[OffsetRange, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    attested: str = ""
    approved: Mapping[int, str] = field(default_factory=dict)
    backfilled: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    rows_late: int = 0
    rows_set_aside: int = 0
    brought_in: Mapping[int, int] = field(default_factory=dict)

    def to_json(self) -> str:
        """The certificate as canonical JSON."""
        values = {**asdict(self), "at": self.at.as_dict()}
        return json.dumps(values, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Read what :meth:`to_json` wrote."""
        values: dict[str, Any] = json.loads(text)
        proofs = tuple(
            stored.read(PartitionProof, {**proof, "spans": tuple(stored.read(Span, span) for span in proof["spans"])})
            for proof in values["partitions"]
        )
        return stored.read(
            cls,
            {
                **values,
                "at": Offsets.from_json(values["at"]),
                "problems": tuple(values["problems"]),
                "unproved": tuple(values["unproved"]),
                "partitions": proofs,
                "codes": {int(epoch): tuple(codes) for epoch, codes in values["codes"].items()},
                "archived": {
                    int(epoch): tuple(OffsetRange(**item) for item in ranges)
                    for epoch, ranges in values.get("archived", {}).items()
                },
                "notes": tuple(values.get("notes", ())),  # older certificates have none
                "approved": {int(epoch): by for epoch, by in (values.get("approved") or {}).items()},
                "backfilled": {int(epoch): tuple(lines) for epoch, lines in values.get("backfilled", {}).items()},
                "brought_in": {int(epoch): records for epoch, records in (values.get("brought_in") or {}).items()},
            },
        )

    def render(self) -> list[str]:
        """Lines of text for people."""
        verdict = "complete: each offset was sent by exactly one epoch" if self.complete else "NOT complete"
        lines = [f"Certificate of {self.topology}, live epoch {self.at_epoch}: {verdict}"]
        for proof in self.partitions:
            spans = ", ".join(
                f"{span.start}..{span.end} by epoch {span.epoch} (slices {span.seq_first} to {span.seq_last})"
                for span in proof.spans
            )
            lines.append(f"  {proof.topic}[{proof.partition}]  {spans or 'nothing sent'}")
        aside = f" + {self.rows_set_aside:,} set aside" if self.rows_set_aside else ""
        lines.append(
            f"  {self.rows_read:,} records read = {self.rows_parsed:,} parsed + {self.rows_dead:,} dead letters{aside}"
        )
        if self.rows_late:
            lines.append(f"  {self.rows_late:,} of the parsed records came too late for an operator: see late_records")
        for epoch, ranges in sorted(self.archived.items()):
            lines.append(f"  epoch {epoch} read {', '.join(map(str, ranges))} from the archive, the rest from Kafka")
        lines += [f"  epoch {epoch} was approved by {by}" for epoch, by in sorted(self.approved.items())]
        for epoch, records in sorted(self.brought_in.items()):
            lines.append(
                f"  epoch {epoch} brought in {records:,} records that an epoch before it had set aside: they are in "
                "its tables, and topics that epochs share do not have their rows"
            )
        for epoch, intervals in sorted(self.backfilled.items()):
            lines += [f"  epoch {epoch}: {interval}" for interval in intervals]
        lines += [f"  Kafka      {self.attested}"] if self.attested else []
        lines += [f"  not shown  {part}" for part in self.unproved]
        lines += [f"  note       {note}" for note in self.notes]
        return lines + [f"  PROBLEM    {problem}" for problem in self.problems]
