"""Which commits of an epoch stay readable: the Delta files that only the others need may go."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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

    The last commit always stays. What stays once between two periods stays until the horizon: the periods lie fixed in time, so a
    later call never wants back what an earlier one gave away.

    Args:
        commits: number and time of each commit, oldest first.
        now: the time.
        retention: how long the past stays readable.
        named: commits that stay in any case.
    """
    kept: list[int] = []
    last_period: int | None = None
    known = list(commits)
    for index, (seq, at) in enumerate(known):
        period = (at - _EPOCH) // retention.grain
        is_first, last_period = period != last_period, period
        is_recent = at >= now - retention.keep
        is_savepoint = is_first and at >= now - retention.horizon
        if index == len(known) - 1 or is_recent or is_savepoint or seq in named:
            kept.append(seq)
    return kept
