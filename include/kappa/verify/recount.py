"""What an epoch's ledger says, held against every file and every commit of its Delta tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kappa.lake import commits as delta
from kappa.lake import queries, table_files, tables
from kappa.lake.foreign_commits import described
from kappa.lake.ledger import Ledger
from kappa.lake.ledger_state import LedgerState
from kappa.names import EpochPaths

#: Rows of dead letters that are looked at together.
_ROWS = 100_000


@dataclass(frozen=True, kw_only=True)
class Recount:
    """What was found.

    Attributes:
        problems: what does not agree with the ledger, each with the way back.
        read: what was read.
        unread: what could not be, and why.
    """

    epoch: int
    problems: tuple[str, ...]
    read: tuple[str, ...]
    unread: tuple[str, ...]

    def with_more(self, more: Recount) -> Recount:
        """Two parts of one counting."""
        return Recount(
            epoch=self.epoch,
            problems=(*self.problems, *more.problems),
            read=(*self.read, *more.read),
            unread=(*self.unread, *more.unread),
        )


def recount(paths: EpochPaths, progress: Callable[[str], None] = lambda _: None) -> Recount:
    """Count an epoch again: the commits of its Delta tables, the files that they name, and its dead letters.

    Args:
        progress: told what is read next.

    Raises:
        LedgerError: the ledger contradicts itself.
    """
    state = Ledger(paths.ledger).state()
    problems: list[str] = []
    read: list[str] = []
    unread: list[str] = []
    versions = dict(state.committed.delta_versions) if state.committed is not None else {}
    for place, version in sorted(versions.items()):
        progress(place)
        path = f"{paths.root}/{place}"
        if not tables.exists(path):
            problems.append(f"{place} is gone. Compute it again: kappa replay {paths.topology}")
            continue
        newest, merged = tables.merged(path)
        if newest < version:
            problems.append(
                f"{place} ends at version {newest}, the ledger names version {version}: its log lost its end."
            )
            continue
        if merged is not None and merged > state.seq:
            problems.append(
                f"{place} holds slice {merged}, the ledger ends at slice {state.seq}: the ledger lost its end, or the "
                "lake is an old copy."
            )
        first = _first_in_log(path)
        if first > 0:
            unread.append(f"Commits of {place} before version {first}: its log no longer has them.")
        found = list(delta.commits_after(path, first - 1))
        problems += [
            f"{place}: {described(commit)} was not made by Kappa. To undo what came after the last slice: kappa "
            f"restore {paths.topology}"
            for commit in delta.foreign(found)
        ]
        count, bad = _files(path, sorted({version, newest}))
        problems += [f"{place}: {problem} Compute it again: kappa replay {paths.topology}" for problem in bad]
        read.append(f"{place}: {len(found)} commits from version {first}, {count} files")
    if "dead_letters" in versions and not any(problem.startswith("dead_letters") for problem in problems):
        progress("dead letters")
        problems += _dead_letters(paths, state, versions["dead_letters"])
        read.append(f"dead letters of {len(state.commits)} commits, slice by slice")
    return Recount(epoch=paths.epoch, problems=tuple(problems), read=tuple(read), unread=tuple(unread))


def _first_in_log(path: str) -> int:
    """The oldest version from which on no commit is missing in a table's log."""
    versions = sorted((int(f.stem) for f in Path(path, "_delta_log").glob("*.json") if f.stem.isdigit()), reverse=True)
    first = versions[0]
    for version in versions[1:]:
        if version != first - 1:
            break
        first = version
    return first


def _files(path: str, versions: list[int]) -> tuple[int, list[str]]:
    """How many files versions name, and what is wrong with them."""
    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    expected = {
        file["path"]: file["num_records"]
        for version in versions
        for file in table_files.files_of(DeltaTable(path, version=version)).to_pylist()
    }
    bad = []
    for name, rows in expected.items():
        try:
            found = pq.read_metadata(Path(path, name)).num_rows
        except FileNotFoundError:
            bad.append(f"data file {name} is gone, with {rows} rows.")
        except (OSError, ValueError) as error:
            bad.append(f"data file {name} cannot be read: {error}.")
        else:
            if rows is not None and found != rows:
                bad.append(f"data file {name} has {found} rows, its log says {rows}.")
    return len(expected), bad


def _dead_letters(paths: EpochPaths, state: LedgerState, version: int) -> Iterator[str]:
    found: Counter[int] = Counter()
    for part in queries.chunks(paths.dead_letters, version, ["_seq"], _ROWS):
        found.update(part["_seq"].to_pylist())
    for commit in state.commits:
        kept = commit.rows_dead + commit.rows_set_aside
        if commit.rows_read != commit.rows_parsed + kept:
            yield (
                f"slice {commit.seq} read {commit.rows_read} records by the ledger; {commit.rows_parsed} parsed, "
                f"{commit.rows_dead} are dead letters and {commit.rows_set_aside} are set aside."
            )
        if found[commit.seq] != kept:
            yield (
                f"slice {commit.seq} has {kept} dead letters by the ledger, {found[commit.seq]} are in "
                f"dead_letters. Compute it again: kappa replay {paths.topology}"
            )
