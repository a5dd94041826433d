"""The time of an epoch's slices, by line of the protocol, from its ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median, quantiles

from kappa.config import Config
from kappa.errors import UnknownEpochError
from kappa.names import EpochPaths
from kappa.offsets.vector import joins
from kappa.record.epochs import epochs_of
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow

#: The lines of the protocol that are timed, in their order.
LINES = ("effects", "send", "apply", "commit")


@dataclass(frozen=True, kw_only=True)
class SliceTimes:
    """Where the time of one slice went.

    Attributes:
        seq: number of the slice.
        at: when it was committed.
        records: what it read.
        between: seconds from the commit before to its plan: a driver that waits for records, merges or looks after
            files does it there.
        lines: line -> seconds. A line that is absent was not needed, or done by a driver that died.
    """

    seq: int
    at: datetime
    records: int
    between: float
    lines: Mapping[str, float]

    @property
    def seconds(self) -> float:
        """All lines together."""
        return sum(self.lines.values())


@dataclass(frozen=True, kw_only=True)
class LineTimes:
    """One line of the protocol, over all slices of a profile that have it.

    Attributes:
        middle: the median, seconds.
        high: what 95 of 100 do not exceed, seconds.
        share: of the time of all lines of all slices.
    """

    middle: float
    high: float
    share: float


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Where the time of an epoch's last slices went.

    Attributes:
        slices: oldest first.
        lines: line -> its times, in the protocol's order; ``between`` first, which has no share.
    """

    topology: str
    epoch: int
    slices: tuple[SliceTimes, ...]
    lines: Mapping[str, LineTimes]

    @property
    def records_per_second(self) -> float | None:
        """Records per second of all lines; None where they took no time."""
        seconds = sum(one.seconds for one in self.slices)
        return sum(one.records for one in self.slices) / seconds if seconds else None


def profile(config: Config, topology: str, epoch: int | None = None, *, slices: int = 100) -> Profile:
    """Where the time of the last slices went; empty where no slice on record was timed.

    Slices that were rolled up, and those of drivers of earlier code, are left out.

    Args:
        epoch: by default the candidate, or the live one.
        slices: at most this many of the last.

    Raises:
        UnknownEpochError: there is no such epoch.
    """
    record = epochs_of(config.lake).record(topology)
    number = epoch if epoch is not None else record.default_epoch
    if number is None:
        raise UnknownEpochError(f"No epoch of {topology!r} is on record. Start one: kappa start {topology} --execute")
    record.epoch(number)
    paths = EpochPaths(lake=config.lake, topology=topology, epoch=number)
    commits = Ledger(paths.ledger).state().commits[-slices - 1 :]
    times = [
        _times(before, row)
        for before, row in pairwise(commits)
        if "seconds" in row.detail and joins(before.ranges, row.ranges)  # none of those between is rolled up
    ]
    return Profile(topology=topology, epoch=number, slices=tuple(times), lines=_lines(times))


def described(seconds: Mapping[str, float]) -> str:
    """Seconds by line, for people: ``effects 1.20 s, commit 0.08 s``."""
    return ", ".join(f"{line} {seconds[line]:.2f} s" for line in LINES if line in seconds)


def _times(before: LedgerRow, row: LedgerRow) -> SliceTimes:
    planned = datetime.fromisoformat(row.detail["started_at"])
    return SliceTimes(
        seq=row.seq,
        at=row.at,
        records=row.rows_read,
        between=max(0.0, round((planned - before.at).total_seconds(), 3)),
        lines={line: row.detail["seconds"][line] for line in LINES if line in row.detail["seconds"]},
    )


def _lines(slices: Sequence[SliceTimes]) -> dict[str, LineTimes]:
    total = sum(one.seconds for one in slices)
    seconds = {"between": [one.between for one in slices]}
    seconds |= {line: [one.lines[line] for one in slices if line in one.lines] for line in LINES}
    return {
        line: LineTimes(
            middle=median(values),
            high=quantiles(values, n=20, method="inclusive")[-1] if len(values) > 1 else values[0],
            share=0.0 if line == "between" or not total else sum(values) / total,
        )
        for line, values in seconds.items()
        if values
    }
