"""Which commits stay readable."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from kappa.delta.retention import Retention, held

NOW = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
DAY = Retention(keep=timedelta(minutes=30), grain=timedelta(hours=1), horizon=timedelta(hours=24))


def commits(*minutes_ago: float) -> list[tuple[int, datetime]]:
    return [(seq, NOW - timedelta(minutes=ago)) for seq, ago in enumerate(minutes_ago)]


def test_recent_commits_stay_and_of_older_ones_the_first_of_each_hour() -> None:
    assert held(commits(150, 149, 91, 89, 60, 31, 30, 29, 0), NOW, DAY) == [0, 3, 6, 7, 8]


def test_the_last_commit_and_named_ones_stay_however_old_they_are() -> None:
    assert held(commits(9_000, 8_000, 7_000), NOW, DAY, named={0}) == [0, 2]


def test_no_commit_leaves_nothing() -> None:
    assert held([], NOW, DAY) == []


@given(st.lists(st.floats(0.01, 600), min_size=1, max_size=60), st.lists(st.floats(1, 900), min_size=1, max_size=8))
def test_what_was_given_away_is_never_wanted_back(gaps: list[float], pauses: list[float]) -> None:
    known, at = [], NOW
    for seq, gap in enumerate(gaps):
        at += timedelta(minutes=gap)
        known.append((seq, at))
    readable = known
    for pause in pauses:
        at += timedelta(minutes=pause)
        kept = held(readable, at, DAY)
        assert set(kept) == set(held(known, at, DAY)) & {seq for seq, _ in readable}
        assert kept[-1] == known[-1][0]
        readable = [commit for commit in readable if commit[0] in kept]
