"""Commits in an epoch's Delta tables that its driver did not make: detected before anything rests on them, and undone.

A step reads tables at the versions that the ledger names, but its next commit lands on the newest version, and
readers that know only a path read that one. So a commit of another program stops the epoch until it is undone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from kappa.delta import commits as delta
from kappa.delta.commits import Commit
from kappa.delta.tail_table import NEXT_ENTRY_SECONDS, uptime
from kappa.errors import ForeignCommitError, first_few
from kappa.names import EpochPaths
from kappa.record.ledger_state import LedgerState


@dataclass(kw_only=True)
class Watch:
    """Looks at the commits of an epoch's Delta tables, each once.

    Attributes:
        looked: Delta version of each place up to which all commits were looked at.
    """

    paths: EpochPaths
    looked: dict[str, int] = field(default_factory=dict)
    _times: dict[str, float] = field(default_factory=dict)

    def look(self, versions: Mapping[str, int], most: Mapping[str, int] | None = None) -> None:
        """Look at new commits. Without any it costs one look per place, at a file that is not there.

        Args:
            versions: Delta versions of the last commit of the ledger, by place: all commits up to them were looked at.
            most: place -> Delta version up to which commits matter; the others matter as far as there are any.

        Raises:
            ForeignCommitError: one of them is not Kappa's.
        """
        for place, version in versions.items():
            since, started = self.looked.get(place, version), uptime()
            if most is not None and since >= most.get(place, since + 1):
                continue
            commits = list(delta.commits_after(self.paths.place(place), since))
            bad = delta.foreign(commits)
            if bad:
                raise refusal(self.paths, {place: bad})
            self.looked[place] = commits[-1].version if commits else since
            self._times[place] = started

    def pass_over(self, place: str, version: int) -> None:
        """An own commit made a version on the condition that the one before was the last: it needs no look."""
        if self.looked.get(place) == version - 1:
            self.looked[place] = version

    def newest(self, place: str) -> int | None:
        """The Delta version that a look at a place met last; None where that is long ago, or the place was written."""
        is_fresh = uptime() - self._times.get(place, -math.inf) <= NEXT_ENTRY_SECONDS
        return self.looked[place] if is_fresh else None

    def expire(self, place: str) -> None:
        """A place is about to be written: what a look met there is no longer the newest."""
        self._times.pop(place, None)


def refusal(paths: EpochPaths, foreign: Mapping[str, list[Commit]]) -> ForeignCommitError:
    """The error that names foreign commits and the way back."""
    named = first_few(
        (f"{place}: {described(commit)}" for place, commits in foreign.items() for commit in commits), between="; "
    )
    one = f"{paths.topology} --epoch {paths.epoch} --execute"
    return ForeignCommitError(
        f"Epoch {paths.epoch} of {paths.topology!r} has commits in its Delta tables that Kappa did not make: {named}. "
        f"Nothing is built on them. To undo them: kappa stop {one}, then kappa restore {one}, then kappa start {one}",
        epoch=paths.epoch,
        commits={place: [commit.version for commit in commits] for place, commits in foreign.items()},
    )


def described(commit: Commit) -> str:
    """A commit in a few words."""
    when = "" if commit.at is None else f" at {commit.at:%Y-%m-%d %H:%M:%S}"
    return f"version {commit.version} ({commit.operation}{when}, by {commit.engine})"


def foreign_commits(paths: EpochPaths, state: LedgerState) -> dict[str, list[Commit]]:
    """Commits after the last one of the ledger that Kappa did not make and that are not undone, by place."""
    versions = state.committed.delta_versions if state.committed is not None else {}
    foreign = {
        place: delta.foreign(list(delta.commits_after(paths.place(place), version)))
        for place, version in versions.items()
    }
    return {place: commits for place, commits in foreign.items() if commits}


def restorations(paths: EpochPaths, state: LedgerState) -> dict[str, list[Commit]]:
    """Commits after the last one of the ledger by which Kappa undid others, by place."""
    versions = state.committed.delta_versions if state.committed is not None else {}
    own = {
        place: [commit for commit in delta.commits_after(paths.place(place), version) if commit.undone]
        for place, version in versions.items()
    }
    return {place: commits for place, commits in own.items() if commits}


def undo(paths: EpochPaths, state: LedgerState) -> dict[str, int]:
    """Undo every foreign commit, one commit per place. Idempotent; a crash leaves some places undone already.

    Returns:
        The Delta version of the undo, by place.

    Raises:
        LedgerError: one cannot be undone.
    """
    versions = state.committed.delta_versions if state.committed is not None else {}
    undo_versions = {}
    for place, version in versions.items():
        path = paths.place(place)
        undone = delta.undo(path, version, list(delta.commits_after(path, version)))
        if undone is not None:
            undo_versions[place] = undone
    return undo_versions
