"""Commits of a Delta table: what each changed, and whether Kappa made it.

Every commit of Kappa says so: those of slices by their application transaction, those of upkeep and of a way back by
their ``userMetadata``. Whatever else changes rows, columns, properties or the protocol was written by another program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote

from kappa.delta import tables
from kappa.delta.access import COMPACTED
from kappa.delta.log_entries import actions_of, add_entry, addition, removal
from kappa.delta.log_state import LogState, state_of
from kappa.delta.tail_table import milliseconds
from kappa.errors import ConflictError, LedgerError
from kappa.store.stores import store_of

#: Begins the ``userMetadata`` of all commits of Kappa that belong to no slice.
OWN = "kappa."
#: ``userMetadata`` of a commit that undoes others, followed by their versions.
RESTORED = "kappa.restore "

Action = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One commit of a Delta table.

    Attributes:
        version: the Delta version that it made.
        operation: what its writer calls it.
        at: when it was written, by its writer's clock; None where it says no time.
        engine: its writer.
        added: data files that it added, as the log has them.
        removed: data files that it removed.
        table: the ``protocol`` and ``metaData`` actions that it has, by their names.
        changes_rows: whether it adds or removes rows: one that only merges files does not.
        transactions: application -> its transaction that this commit is: of a query, the batch.
        is_own: whether Kappa made it.
        undone: versions that it undoes.
    """

    version: int
    operation: str
    at: datetime | None
    engine: str
    added: tuple[Action, ...]
    removed: tuple[Action, ...]
    table: Action
    changes_rows: bool
    transactions: Mapping[str, int]
    is_own: bool
    undone: frozenset[int]

    @property
    def is_foreign(self) -> bool:
        """Whether somebody else made it; the first of a table is the one that creates it."""
        return not self.is_own and self.version > 0

    @property
    def changes_table(self) -> bool:
        """Whether it changes rows, columns, properties or the protocol."""
        return self.changes_rows or bool(self.table)


def commits_after(path: str, version: int) -> Iterator[Commit]:
    """The commits of a table after a version, oldest first; one failed look at a file where there is none."""
    while True:
        version += 1
        actions = actions_of(path, version)
        if actions is None:
            return
        yield _commit(version, actions)


def commits_down_from(path: str, version: int) -> Iterator[Commit]:
    """The commits of a table from a version back to the first whose entry was not cleaned up, newest first."""
    while version >= 0 and (actions := actions_of(path, version)) is not None:
        yield _commit(version, actions)
        version -= 1


def foreign(commits: Sequence[Commit]) -> list[Commit]:
    """The commits that change the table, were not made by Kappa, and are not undone by a later commit of Kappa."""
    undone: set[int] = set()
    for commit in commits:
        undone |= commit.undone
    return [c for c in commits if c.changes_table and c.is_foreign and c.version not in undone]


def undo(path: str, since: int, commits: Sequence[Commit]) -> int | None:
    """Undo, in one commit, what foreign commits after a version did; what Kappa wrote between and after them stays.

    Args:
        since: a version from which on no commit is missing in ``commits``.
        commits: all commits after it.

    Returns:
        The Delta version that was made; None where nothing was to be undone.

    Raises:
        LedgerError: it cannot be undone: files are gone, or Kappa has built on what was changed.
        ConflictError: another process wrote to the table at the same time.
        LakeUnreachableError: the object store does not answer.
        LakeRefusedError: it refuses.
    """
    bad = {commit.version for commit in foreign(commits)}
    if not bad:
        return None
    before = state_of(path, since) or LogState()
    # By their decoded paths: one writer encodes letters that another leaves as they are.
    files: dict[str, Action] = {unquote(name): add for name, add in before.files.items()}
    table: dict[str, Action] = {"protocol": before.protocol, "metaData": before.metadata}
    target, present = _Content(dict(files), dict(table)), _Content(files, table)
    for commit in commits:
        if any(file.get("deletionVector") for file in (*commit.added, *commit.removed)):
            raise _refusal(path, f"Version {commit.version} of {path} has deletion vectors: it cannot be undone.")
        present.take(commit)
        if commit.version in bad:
            continue
        if not target.fits(commit):
            if commit.is_foreign:  # it merged files that they wrote
                bad.add(commit.version)
                continue
            raise _refusal(
                path,
                f"Version {commit.version} of {path} was written by Kappa from what versions {sorted(bad)} had "
                "changed: it cannot be undone.",
                version=commit.version,
            )
        target.take(commit)
    files_back = [name for name, add in sorted(target.files.items()) if present.files.get(name) != add]
    store = store_of(path)
    missing = [name for name in files_back if store.head(f"{path}/{name}") is None]
    if missing:
        raise _refusal(
            path,
            f"{len(missing)} files of {path} are gone that versions {sorted(bad)} removed, such as {missing[0]}.",
            missing=missing,
        )
    now, version = milliseconds(), commits[-1].version + 1
    info = {
        "timestamp": now,
        "operation": "RESTORE",
        "operationParameters": {},
        "engineInfo": "kappa",
        "userMetadata": RESTORED + ",".join(map(str, sorted(bad))),
    }
    actions: list[Action] = [{"commitInfo": info}]
    actions += [{name: action} for name, action in target.table.items() if present.table[name] != action]
    actions += [removal(add, now) for name, add in present.files.items() if target.files.get(name) != add]
    actions += [addition(target.files[name], target.files[name]["path"]) for name in files_back]
    if not add_entry(path, version, actions):
        raise ConflictError(
            f"Another process wrote to {path} while version {version} was to undo commits of others. Look again, "
            "then try again: kappa restore",
            path=path,
        )
    return version


@dataclass
class _Content:
    """What a table has after some commits.

    Attributes:
        files: path in the table -> its ``add`` action.
        table: the last ``protocol`` and ``metaData`` actions, by their names.
    """

    files: dict[str, Action]
    table: dict[str, Action]

    def take(self, commit: Commit) -> None:
        """Take in what a commit changed."""
        for file in commit.removed:
            self.files.pop(unquote(file["path"]), None)
        self.files.update({unquote(file["path"]): file for file in commit.added})
        self.table.update(commit.table)

    def fits(self, commit: Commit) -> bool:
        """Whether a commit can follow: it removes files that are there, and adds files of the same partitions."""
        partitions = set(self.table["metaData"].get("partitionColumns") or ())
        return {unquote(file["path"]) for file in commit.removed} <= self.files.keys() and all(
            (file.get("partitionValues") or {}).keys() == partitions for file in commit.added
        )


def _refusal(path: str, why: str, **data: Any) -> LedgerError:
    return LedgerError(f"{why} Compute the tables again: kappa replay <topology> --execute", path=path, **data)


def _time_of(timestamp: Any) -> datetime | None:
    """The time in a commit, in milliseconds by Delta's protocol; other programs write what they want."""
    try:
        return datetime.fromtimestamp(timestamp / 1000, UTC)
    except (OverflowError, TypeError, ValueError):
        return None


def _commit(version: int, actions: Sequence[Mapping[str, Any]]) -> Commit:
    info: Mapping[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
    message = str(info.get("userMetadata") or "")
    added = tuple(a["add"] for a in actions if "add" in a)
    removed = tuple(a["remove"] for a in actions if "remove" in a)
    undone = message.removeprefix(RESTORED).split(",") if message.startswith(RESTORED) else []
    transactions = {action["txn"]["appId"]: action["txn"]["version"] for action in actions if "txn" in action}
    return Commit(
        version=version,
        operation=str(info.get("operation", "unknown operation")),
        at=_time_of(info.get("timestamp")),
        engine=str(info.get("engineInfo", "unknown engine")),
        added=added,
        removed=removed,
        table={}
        if message == COMPACTED  # a merge of small files says again what is there
        else {name: action[name] for action in actions for name in ("protocol", "metaData") if name in action},
        changes_rows=any(file.get("dataChange", True) for file in (*added, *removed)),
        transactions=transactions,
        is_own=message.startswith(OWN) or tables.APP in transactions,
        undone=frozenset(int(v) for v in undone if v.isdigit()),
    )
