"""A backfill as a value: the interval, what is read and replaced, and the objections to it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kappa.offsets.notation import utc
from kappa.offsets.vector import OffsetRange
from kappa.replay.findings import Finding, refusals

#: Begins the name of a backfill's folder.
FOLDER = "backfill-"


@dataclass(frozen=True, kw_only=True)
class Backfill:
    """What a backfill would do, and objections to it.

    Attributes:
        epoch: its live epoch.
        code: content hash of the code that the epoch runs, by which rows are computed.
        version: the author's word for that code.
        begin: beginning of the interval, UTC; records of this time belong to it.
        end: end of the interval, UTC; records of this time do not.
        outputs: the append outputs, and tables of closed windows, whose rows are replaced.
        times: output whose rows belong to the interval by a time of their own -> the column of that time.
        ranges: offset ranges whose records' rows belong to it, of the other outputs; one for each partition.
        reads: offset ranges that are read: beside these what rows that belong by time are made from.
        archived: the parts of them that are read from archives.
        since: the commit of the live epoch with whose times the records are read on; None where none is needed.
        seed: what the tables begin with, ``empty`` or ``from-savepoint``: what they held at that commit.
        after: number of the event by which the last backfill of the interval ended; 0 for the first one.
        findings: objections to it.
    """

    topology: str
    epoch: int
    code: str
    version: str
    begin: datetime
    end: datetime
    outputs: tuple[str, ...]
    times: Mapping[str, str] = field(default_factory=dict)
    ranges: tuple[OffsetRange, ...] = ()
    reads: tuple[OffsetRange, ...] = ()
    archived: tuple[OffsetRange, ...] = ()
    since: int | None = None
    seed: str = "empty"
    after: int = 0
    findings: tuple[Finding, ...] = ()

    @property
    def refusals(self) -> tuple[Finding, ...]:
        """The findings that refuse it."""
        return refusals(self.findings)

    @property
    def offsets(self) -> int:
        """How many offsets are read again."""
        return sum(item.count for item in self.reads)

    @property
    def folder(self) -> str:
        """Name of the folder in which it is computed: the same for the same interval, code and outputs.

        Not that of one that has ended, whose removal may have been cut short.
        """
        content: list[Any] = [self.epoch, self.code, self.outputs, [str(item) for item in self.ranges]]
        if self.times or self.since is not None:
            edges = [self.begin.isoformat(), self.end.isoformat()]
            content += [sorted(self.times.items()), edges, [str(r) for r in self.reads], self.since, self.seed]
        if self.after:
            content.append(self.after)
        return FOLDER + hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def render(self) -> list[str]:
        """Lines of text for people."""
        lines = [
            f"Backfill of {self.topology}, live epoch {self.epoch}, version {self.version} (code {self.code[:12]}): "
            f"{', '.join(self.outputs) or 'nothing'} from {utc(self.begin)} to {utc(self.end)}"
        ]
        lines += [f"  by         {column} of {name}" for name, column in self.times.items()]
        lines += [f"  reads      {item}" for item in self.reads if not item.is_empty]
        lines += [f"  archive    {item}" for item in self.archived]
        if self.reads and not self.offsets:
            lines.append("  reads      no record: there is none of this time")
        return lines + [f"  {finding.line}" for finding in self.findings]
