"""The ledger of an epoch, checked against every file and every commit of its Delta tables."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar
from urllib.parse import unquote

from kappa.delta import commits as delta
from kappa.delta import queries, table_files, tables
from kappa.delta.access import open_table
from kappa.delta.log_entries import content_hash
from kappa.errors import KappaError, first_line
from kappa.names import EpochPaths
from kappa.record.foreign_writes import described
from kappa.record.ledger import Ledger
from kappa.record.ledger_state import LedgerState
from kappa.slices.places import FILES
from kappa.store.stores import store_of

#: Rows of dead letters that are looked at together.
_ROWS = 100_000

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Recount:
    """The outcome of a count.

    Attributes:
        problems: contradictions of the ledger, each with the way back.
        read: the parts that were read.
        unread: the parts that could not be, and why.
        noticed: commits that Kappa did not make and that change neither rows nor columns: nothing has to be undone.
    """

    epoch: int
    problems: tuple[str, ...]
    read: tuple[str, ...]
    unread: tuple[str, ...]
    noticed: tuple[str, ...] = ()

    def with_more(self, more: Recount) -> Recount:
        """Two parts of one count."""
        return Recount(
            epoch=self.epoch,
            problems=(*self.problems, *more.problems),
            read=(*self.read, *more.read),
            unread=(*self.unread, *more.unread),
            noticed=(*self.noticed, *more.noticed),
        )


def recount(paths: EpochPaths, progress: Callable[[str], None] = lambda _: None) -> Recount:
    """Count an epoch again: the commits of its Delta tables, the files that they name, and its dead letters.

    Damage is a problem of its place; the count goes on with the next one.

    Args:
        progress: called with the next part to be read.
    """
    count = _Count(paths=paths)
    state = count.tried("ledger", lambda: Ledger(paths.ledger).state())
    if state is None:
        return count.recount()
    versions = dict(state.committed.delta_versions) if state.committed is not None else {}
    for place, version in sorted(versions.items()):
        progress(place)
        count.tried(place, partial(count.place, place, version, state.seq))
    if count.files:
        progress("content of files")
        count.tried("content of files", count.contents)
    if "dead_letters" in versions and not any(problem.startswith("dead_letters") for problem in count.problems):
        progress("dead letters")
        count.tried("dead_letters", partial(count.dead_letters, state, versions["dead_letters"]))
    return count.recount()


@dataclass(kw_only=True)
class _Count:
    """The outcome so far, with the fields of :class:`Recount`."""

    paths: EpochPaths
    problems: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    noticed: list[str] = field(default_factory=list)
    #: place -> data files whose rows and bytes are as in the log.
    files: dict[str, list[str]] = field(default_factory=dict)

    def recount(self) -> Recount:
        """The outcome as a value."""
        return Recount(
            epoch=self.paths.epoch,
            problems=tuple(self.problems),
            read=tuple(self.read),
            unread=tuple(self.unread),
            noticed=tuple(self.noticed),
        )

    def tried(self, place: str, look: Callable[[], _T]) -> _T | None:
        """The result of a look; None where the place cannot be read, which is a problem like any other."""
        try:
            return look()
        except Exception as error:  # a file may be damaged in any way, and each library has errors of its own
            self.problems.append(
                f"{place} cannot be read: {type(error).__name__}: {first_line(error)} Put the newest copy of the lake "
                f"back, or compute it again: kappa replay {self.paths.topology}"
            )
            self.unread.append(f"{place}, after what is wrong with it")
            return None

    def place(self, place: str, version: int, seq: int) -> None:
        """Count a Delta table again.

        Args:
            place: where it lies in the epoch.
            version: the version that the ledger names.
            seq: the last slice of the ledger.
        """
        paths, path = self.paths, self.paths.place(place)
        if not tables.exists(path):
            self.problems.append(f"{place} is gone. Compute it again: kappa replay {paths.topology}")
            return
        newest, merged = tables.merged(path)
        if newest < version:
            self.problems.append(
                f"{place} ends at version {newest}, the ledger names version {version}: its log lost its end. Put the "
                f"newest copy of the lake back, or compute it again: kappa replay {paths.topology}"
            )
            return
        if merged is not None and merged > seq:
            self.problems.append(
                f"{place} holds slice {merged}, the ledger ends at slice {seq}: the ledger lost its end, or the lake "
                f"is an old copy. Put the newest copy of the lake back, or: kappa replay {paths.topology}"
            )
        first = _first_in_log(path)
        if first > 0:
            self.unread.append(f"Commits of {place} before version {first}: its log no longer has them.")
        commits = list(delta.commits_after(path, first - 1))
        foreign = delta.foreign(commits)
        self.problems += [
            f"{place}: {described(commit)} was not made by Kappa. To undo what came after the last slice: kappa "
            f"restore {paths.topology} --epoch {paths.epoch}"
            for commit in foreign
        ]
        self.noticed += [
            f"{place}: {described(commit)} was not made by Kappa and changes no rows. Keep other writers away from the "
            "tables of an epoch."
            for commit in commits
            if commit.is_foreign and not commit.changes_table
        ]
        good, bad = _files(path, sorted({version, newest}))
        self.files[place] = good
        self.problems += [f"{place}: {problem} Compute it again: kappa replay {paths.topology}" for problem in bad]
        self.read.append(f"{place}: {len(commits)} commits from version {first}, {len(good) + len(bad)} files")

    def contents(self) -> None:
        """Check the content of every file against its hash in the ledger."""
        recorded = _recorded_hashes(Ledger(self.paths.ledger), self.files)
        for place, names in self.files.items():
            hashes = recorded.get(place, {})
            bound = [name for name in names if name in hashes]
            changed = [name for name in bound if content_hash(f"{self.paths.place(place)}/{name}") != hashes[name]]
            self.problems += [
                f"{place}: data file {name} was changed after it was written: it does not hold what the ledger says. "
                f"Put the newest copy of the lake back, or compute it again: kappa replay {self.paths.topology}"
                for name in changed
            ]
            if len(bound) > len(changed):
                self.read.append(f"{place}: {len(bound) - len(changed)} files hold what the ledger says")
            if len(bound) < len(names):
                missing = len(names) - len(bound)
                self.unread.append(f"{place}: the ledger does not say what {missing} of {len(names)} files hold")

    def dead_letters(self, state: LedgerState, version: int) -> None:
        """Count the dead letters of each commit of the ledger."""
        self.problems += _dead_letters(self.paths, state, version)
        self.read.append(f"dead letters of {len(state.commits)} commits, slice by slice")


def _first_in_log(path: str) -> int:
    """The oldest version from which on no commit is missing in a table's log."""
    names = (file.name.removesuffix(".json") for file in store_of(path).files(f"{path}/_delta_log"))
    versions = sorted((int(name) for name in names if name.isdigit()), reverse=True)
    first = versions[0]
    for version in versions[1:]:
        if version != first - 1:
            break
        first = version
    return first


def _recorded_hashes(ledger: Ledger, files: Mapping[str, Sequence[str]]) -> dict[str, dict[str, str]]:
    """Place -> data file -> hash of its content when it was written, of some files; the oldest row that has it
    counts, since a later one may have been written after a change.
    """
    names_at = {place: set(names) for place, names in files.items()}
    hashes: dict[str, dict[str, str]] = {place: {} for place in files}
    for piece in ledger.history():  # the newest first
        for row in reversed(piece):
            for place, of_row in row.detail.get(FILES, {}).items():
                of_files = names_at.get(place, set()) & of_row.keys()
                hashes.setdefault(place, {}).update((name, of_row[name]) for name in of_files)
        if all(names <= hashes[place].keys() for place, names in names_at.items()):
            return hashes
    return hashes


def _files(path: str, versions: list[int]) -> tuple[list[str], list[str]]:
    """Names of the files of some versions that are as in the log, and the problems of the others."""
    import pyarrow.parquet as pq

    expected = {
        file["path"]: (file["num_records"], file["size_bytes"])
        for version in versions
        for file in table_files.files_of(open_table(path, version=version)).to_pylist()
    }
    good, bad = [], []
    store = store_of(path)
    for name, (rows, size) in expected.items():
        file = f"{path}/{unquote(name)}"
        try:
            with store.open(file) as content:
                length, count = content.seek(0, os.SEEK_END), pq.read_metadata(content).num_rows
        except FileNotFoundError:
            bad.append(f"data file {name} is gone, with {rows} rows.")
        except KappaError:  # the store, and not the file
            raise
        except Exception as error:  # bytes may be damaged in any way
            bad.append(f"data file {name} cannot be read: {type(error).__name__}: {first_line(error)}")
        else:
            if length != size:
                bad.append(f"data file {name} has {length} bytes, its log says {size}.")
            elif rows is not None and count != rows:
                bad.append(f"data file {name} has {count} rows, its log says {rows}.")
            else:
                good.append(unquote(name))
    return good, bad


def _dead_letters(paths: EpochPaths, state: LedgerState, version: int) -> Iterator[str]:
    counts: Counter[int] = Counter()
    for part in queries.chunks(paths.dead_letters, version, ["_seq"], _ROWS):
        counts.update(part["_seq"].to_pylist())
    for commit in state.commits:
        dead = commit.rows_dead + commit.rows_set_aside
        if commit.rows_read != commit.rows_parsed + dead:
            yield (
                f"slice {commit.seq} read {commit.rows_read} records by the ledger; {commit.rows_parsed} parsed, "
                f"{commit.rows_dead} are dead letters and {commit.rows_set_aside} are set aside."
            )
        if counts[commit.seq] != dead:
            yield (
                f"slice {commit.seq} has {dead} dead letters by the ledger, {counts[commit.seq]} are in "
                f"dead_letters. Compute it again: kappa replay {paths.topology}"
            )
