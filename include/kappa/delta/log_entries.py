"""Entries of a Delta table's log, by their names: what each says, and their way to the disk.

Delta's writers leave new files to the page cache, and what the next line of a protocol needs has to outlive a power
loss. An object store has them when it has answered.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from kappa.delta.damage import actions_in, entry_of, is_elsewhere, torn_entries
from kappa.store.address import is_remote
from kappa.store.local import fsync, fsync_names
from kappa.store.stores import pieces, store_of

#: 128 bits tell two files apart, and 1 GB takes a second.
_HASH = partial(hashlib.blake2b, digest_size=16)
#: What an ``add`` action says of a file, word for word also where it is added again.
_KEPT = ("partitionValues", "size", "modificationTime", "stats")


def actions_of(path: str, version: int) -> list[dict[str, Any]] | None:
    """The actions of a commit of a table; None where there is no file of it.

    Raises:
        DamagedTableError: the file is torn, or empty.
    """
    content = store_of(path).get(entry_of(path, version))
    if content is None:
        return None
    actions = actions_in(content)
    if not actions:
        raise torn_entries(path, [version])
    return actions


def add_entry(path: str, version: int, actions: Iterable[Mapping[str, Any]]) -> bool:
    """Write a durable commit of a table, unless another writer has made one of its number; whether it is there."""
    entry = "".join(f"{json.dumps(action)}\n" for action in actions)
    return store_of(path).create(entry_of(path, version), entry.encode())


def addition(add: Mapping[str, Any], path: str, *, is_rows: bool = True) -> dict[str, Any]:
    """The action that adds a file as another one did, which may have been in another table.

    Args:
        add: the other ``add`` action.
        path: the file, as the log is to have it.
        is_rows: whether rows change by it.
    """
    values = {name: add[name] for name in _KEPT if add.get(name) is not None}
    return {"add": {"path": path, "partitionValues": {}, **values, "dataChange": is_rows}}


def removal(add: Mapping[str, Any], at: int, *, is_rows: bool = True) -> dict[str, Any]:
    """The action that takes a file out of a table.

    Args:
        add: the ``add`` action of the file.
        at: when it is removed, in milliseconds since 1970 in UTC.
        is_rows: whether rows change by it.
    """
    return {
        "remove": {
            "path": add["path"],
            "deletionTimestamp": at,
            "dataChange": is_rows,
            "extendedFileMetadata": True,
            "partitionValues": add.get("partitionValues") or {},
            "size": add["size"],
            # A file with one is another to readers (Delta's protocol, "Action Reconciliation").
            **({"deletionVector": add["deletionVector"]} if add.get("deletionVector") else {}),
        }
    }


def messages(path: str, version: int) -> Iterator[str]:
    """What the commits of a table say of themselves, from a version back to the first that is gone.

    ``deltalake`` has the same as the history of a table, and stops all threads of the process while it reads it.
    """
    for number in range(version, -1, -1):
        actions = actions_of(path, number)
        if actions is None:
            return
        yield next((str(one["commitInfo"].get("userMetadata") or "") for one in actions if "commitInfo" in one), "")


def may_have_moved(path: str, version: int) -> bool:
    """Whether a Delta table may have got a commit since a version, by two names in its log: opening it takes longer.

    Where the version's own entry is gone, later ones may be gone as well.
    """
    store = store_of(path)
    return store.head(entry_of(path, version + 1)) is not None or store.head(entry_of(path, version)) is None


def sync_commits(table: str, versions: range) -> dict[str, Path]:
    """Bring some commits of a Delta table to the disk: their files, then their log entries, then the names of all.

    Idempotent. Files that are gone meanwhile, merged into others, are left out.

    Returns:
        The data files that the commits added, by their names in the table; none of a table on an object store.
    """
    if is_remote(table):
        return {}
    root = Path(table)
    log = root / "_delta_log"
    written = [version for version in versions if Path(entry_of(table, version)).exists()]
    if not written:
        return {}
    entries = [Path(entry_of(table, version)) for version in written]
    files = [path for version in written for path in _added(table, version) if path.exists()]
    checkpoints = [path for version in versions for path in log.glob(f"{version:020}.checkpoint*")]
    if checkpoints:  # one that was not finished is not named
        checkpoints += log.glob("_last_checkpoint")
    for path in (*files, *entries, *checkpoints):
        fsync(path)
    folders = {
        folder for path in files for folder in (path.parent, *path.parent.parents) if root in (folder, *folder.parents)
    }
    fsync_names(sorted({*folders, root, log}, reverse=True))  # the innermost first
    if 0 in versions:
        fsync_names((root.parent, root.parent.parent, root.parent.parent.parent))  # the table itself is new
    return {path.relative_to(root).as_posix(): path for path in files}


def content_hash(path: str) -> str:
    """A hash of all bytes of a file."""
    digest = _HASH()
    for piece in pieces(path):
        digest.update(piece)
    return digest.hexdigest()


def _added(table: str, version: int) -> Iterator[Path]:
    for action in actions_of(table, version) or []:
        added = action.get("add")
        if added is not None and not is_elsewhere(added["path"]):
            yield Path(table) / unquote(added["path"])
