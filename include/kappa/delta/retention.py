"""Which commits of an epoch stay readable: the Delta files that only the others need may go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Recent commits keep one merged version per period of this length; later commits in it are read from that version
#: plus changes.
MERGE_GRAIN = timedelta(minutes=30)
#: How long a version stays that a merge has replaced: a reader that knows only the path may use it.
MERGE_STAYS = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True)
class Retention:
    """How long the past stays readable.

    Attributes:
        keep: every commit that is not older stays.
        grain: of older ones, the first in each period of this length stays: a savepoint.
        horizon: how long savepoints stay.
    """

    keep: timedelta
    grain: timedelta
    horizon: timedelta


def held(
    commits: Iterable[tuple[int, datetime]], now: datetime, retention: Retention, named: Collection[int] = ()
) -> list[int]:
    """Numbers of the commits that stay readable, in order.

    The last commit always stays. What stays once between two periods stays until the horizon: the periods lie fixed in
    time, so a later call never wants back what an earlier one gave away.

    Args:
        commits: number and time of each commit, oldest first.
        retention: how long the past stays readable.
        named: commits that stay in any case.
    """
    all_commits = list(commits)
    firsts = set(first_of_each(all_commits, retention.grain))
    return [
        seq
        for index, (seq, at) in enumerate(all_commits)
        if index == len(all_commits) - 1
        or at >= now - retention.keep
        or (seq in firsts and at >= now - retention.horizon)
        or seq in named
    ]


def with_merges(
    commits: Sequence[tuple[int, datetime]], now: datetime, retention: Retention, named: Collection[int] = ()
) -> set[int]:
    """The readable commits whose merged version stays.

    The others are read from the newest of these before them, with the changes since. Versions stay for the last commit,
    for :data:`MERGE_STAYS`, for savepoints and for what is older than ``keep``, and for the first commit of each period
    of :data:`MERGE_GRAIN`: without the last, changes would pile up for as long as commits stay.

    Args:
        commits: number and time of each commit that stays readable, oldest first.
        retention: how long the past stays readable.
        named: commits that stay in any case.
    """
    recent = [(seq, at) for seq, at in commits if at >= now - retention.keep]
    seqs = {seq for seq, at in commits if at < now - retention.keep} | {seq for seq, _ in commits if seq in named}
    seqs |= {seq for seq, _ in (*recent[:1], *commits[-1:])}
    # With the commit before: its version was the newest until after the period had begun.
    replaced = [seq for seq, at in commits if at < now - MERGE_STAYS]
    seqs |= {seq for seq, at in commits if at >= now - MERGE_STAYS} | set(replaced[-1:])
    for grain in (retention.grain, MERGE_GRAIN):
        seqs |= set(first_of_each(commits, grain))
    return seqs


def first_of_each(commits: Iterable[tuple[int, datetime]], grain: timedelta) -> list[int]:
    """Numbers of the commits that are the first of their period; periods lie fixed in time."""
    firsts: list[int] = []
    last: datetime | None = None
    for seq, at in commits:
        if is_first_after(last, at, grain):
            firsts.append(seq)
        last = at
    return firsts


def is_first_after(last: datetime | None, at: datetime, grain: timedelta) -> bool:
    """Whether a commit is the first of its period, by the time of the one before it; None where there is none."""
    return last is None or (last - _EPOCH) // grain != (at - _EPOCH) // grain
