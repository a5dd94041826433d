"""Commits of a Delta table: what each changed, and whether Kappa made it.

Every commit of Kappa says so: those of slices by their application transaction, those of upkeep and of a way back by
their ``userMetadata``. Whatever else adds or removes rows was written by another program.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kappa.delta import table_files, tables
from kappa.delta.access import commit_actions, open_table
from kappa.delta.log_entries import actions_of
from kappa.delta.tail_table import MARK, has_mark
from kappa.errors import ConflictError, LakeUnreachableError, LedgerError
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
        at: when it was written, by its writer's clock; None where it does not say.
        engine: its writer.
        added: data files that it added, as the log has them.
        removed: data files that it removed.
        changes_rows: whether it adds or removes rows: one that only merges files does not.
        is_own: whether Kappa made it.
        undone: versions that it undoes.
    """

    version: int
    operation: str
    at: datetime | None
    engine: str
    added: tuple[Action, ...]
    removed: tuple[Action, ...]
    changes_rows: bool
    is_own: bool
    undone: frozenset[int]

    @property
    def is_foreign(self) -> bool:
        """Whether somebody else made it; the first of a table is the one that creates it."""
        return not self.is_own and self.version > 0


def commits_after(path: str, version: int) -> Iterator[Commit]:
    """The commits of a table after a version, oldest first; one failed look at a file where there is none."""
    while True:
        version += 1
        actions = actions_of(path, version)
        if actions is None:
            return
        yield _commit(version, actions)


def foreign(commits: Sequence[Commit]) -> list[Commit]:
    """The commits that change rows, were not made by Kappa, and are not undone by a later commit of Kappa."""
    undone: set[int] = set()
    for commit in commits:
        undone |= commit.undone
    return [c for c in commits if c.changes_rows and c.is_foreign and c.version not in undone]


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
    from deltalake import CommitProperties
    from deltalake.exceptions import CommitFailedError
    from deltalake.transaction import AddAction, RemoveAction

    bad = {commit.version for commit in foreign(commits)}
    if not bad:
        return None
    files = {file["path"]: file for file in _files(path, since)}
    target, present = set(files), set(files)
    for commit in commits:
        files.update({file["path"]: file for file in commit.added})
        old, new = {f["path"] for f in commit.removed}, {f["path"] for f in commit.added}
        if any(file.get("deletionVector") for file in (*commit.added, *commit.removed)):
            raise LedgerError(
                f"Version {commit.version} of {path} has deletion vectors: it cannot be undone.", path=path
            )
        present = present - old | new
        if commit.version in bad or commit.undone & bad:
            continue
        if not old <= target:
            raise LedgerError(
                f"Version {commit.version} of {path} was written by Kappa from what versions {sorted(bad)} had "
                "changed: it cannot be undone.",
                path=path,
                version=commit.version,
            )
        target = target - old | new
    store = store_of(path)
    files_back = {name: store.head(f"{path}/{name}") for name in sorted(target - present)}
    missing = [name for name, file in files_back.items() if file is None]
    if missing:
        raise LedgerError(
            f"{len(missing)} files of {path} are gone that versions {sorted(bad)} removed, such as {missing[0]}.",
            path=path,
            missing=missing,
        )
    table = open_table(path)
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    actions: list[Any] = [
        RemoveAction(name, True, now_ms, files[name].get("size"), {}) for name in sorted(present - target)
    ]
    actions += [
        AddAction(
            path=name,
            size=files[name]["size"],
            partition_values={},
            data_change=True,
            stats=files[name].get("stats") or "{}",
            modification_time=int(file.modified.timestamp() * 1000),
        )
        for name, file in files_back.items()
        if file is not None
    ]
    mark, version = uuid.uuid4().hex, table.version() + 1
    message = RESTORED + ",".join(map(str, sorted(bad)))
    properties = CommitProperties(custom_metadata={"userMetadata": message, MARK: mark}, max_commit_retries=0)
    try:
        commit_actions(table, actions, "append", table.schema(), properties)
    except CommitFailedError as error:
        if not has_mark(path, version, mark):
            raise ConflictError(
                f"Another process wrote to {path} while version {version} was to undo commits of others. Look again, "
                "then try again: kappa restore",
                path=path,
            ) from error
    except LakeUnreachableError:
        if not has_mark(path, version, mark):
            raise
    return version


def _files(path: str, version: int) -> Iterator[dict[str, Any]]:
    """Data files as of a version, as the log has them; of their statistics those that upkeep needs."""
    for file in table_files.files_of(open_table(path, version=version)).to_pylist():
        stats: dict[str, Any] = {"numRecords": file["num_records"]}
        if file.get("min._seq") is not None and file.get("max._seq") is not None:
            stats |= {"minValues": {"_seq": file["min._seq"]}, "maxValues": {"_seq": file["max._seq"]}}
        yield {"path": file["path"], "size": file["size_bytes"], "stats": json.dumps(stats)}


def _commit(version: int, actions: Sequence[Mapping[str, Any]]) -> Commit:
    info: Mapping[str, Any] = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
    message = str(info.get("userMetadata") or "")
    added = tuple(a["add"] for a in actions if "add" in a)
    removed = tuple(a["remove"] for a in actions if "remove" in a)
    stamp = info.get("timestamp")
    undone = message.removeprefix(RESTORED).split(",") if message.startswith(RESTORED) else []
    return Commit(
        version=version,
        operation=str(info.get("operation", "unknown operation")),
        at=None if stamp is None else datetime.fromtimestamp(stamp / 1000, UTC),
        engine=str(info.get("engineInfo", "unknown engine")),
        added=added,
        removed=removed,
        changes_rows=any(file.get("dataChange", True) for file in (*added, *removed)),
        is_own=message.startswith(OWN) or any(a["txn"].get("appId") == tables.APP for a in actions if "txn" in a),
        undone=frozenset(int(v) for v in undone if v.isdigit()),
    )
