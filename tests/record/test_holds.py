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


def test_all_recent_commits_and_the_first_older_one_per_hour_stay() -> None:
    assert held(commits(150, 149, 91, 89, 60, 31, 30, 29, 0), NOW, DAY) == [0, 3, 6, 7, 8]


def test_the_last_commit_and_named_ones_stay_however_old_they_are() -> None:
    assert held(commits(9_000, 8_000, 7_000), NOW, DAY, named={0}) == [0, 2]


def test_nothing_is_held_without_commits() -> None:
    assert held([], NOW, DAY) == []


@given(st.lists(st.floats(0.01, 600), min_size=1, max_size=60), st.lists(st.floats(1, 900), min_size=1, max_size=8))
def test_a_released_commit_is_never_needed_again(gaps: list[float], pauses: list[float]) -> None:
    commits, at = [], NOW
    for seq, gap in enumerate(gaps):
        at += timedelta(minutes=gap)
        commits.append((seq, at))
    readable = commits
    for pause in pauses:
        at += timedelta(minutes=pause)
        held_seqs = held(readable, at, DAY)
        assert set(held_seqs) == set(held(commits, at, DAY)) & {seq for seq, _ in readable}
        assert held_seqs[-1] == commits[-1][0]
        readable = [commit for commit in readable if commit[0] in held_seqs]
