"""Commits of Delta tables on a local disk, made durable: what the next line of a protocol needs outlives a power loss.

Delta's writers leave new files to the page cache. An object store has them when it has answered, and needs none of
this.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import unquote

#: 128 bits tell two files apart, and 1 GB takes a second.
_HASH = partial(hashlib.blake2b, digest_size=16)


def fsync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_text(file: Path, text: str) -> None:
    """Replace a file in one step: readers get the old text or the new one. Its folder must exist. It is not synced.

    Raises:
        OSError: it cannot be written; the old text stays, and nothing else is left.
    """
    temporary = file.with_name(f"{file.name}.{uuid.uuid4().hex}.tmp")
    try:
        temporary.write_text(text)
        temporary.replace(file)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def entry_of(path: str | Path, version: int) -> Path:
    """The file that the commit of a version makes in a Delta table's log (Delta's protocol, "Delta Log Entries")."""
    return Path(path, "_delta_log", f"{version:020}.json")


def may_have_moved(path: str | Path, version: int) -> bool:
    """Whether a Delta table may have got a commit since a version, by two names in its log: opening it takes longer.

    Where the version's own entry is gone, later ones may be gone as well; on an object store none is seen.
    """
    return entry_of(path, version + 1).exists() or not entry_of(path, version).exists()


def sync_commits(table: str, versions: range) -> dict[str, Path]:
    """Bring some commits of a Delta table to the disk: their files, then their log entries, then the names of all.

    Idempotent. Files that are gone meanwhile, merged into others, are left out.

    Returns:
        The data files that the commits added, by their names in the table; none of a table on an object store.
    """
    if "://" in table and not table.startswith("file://"):
        return {}
    root = Path(unquote(table.removeprefix("file://")) if table.startswith("file://") else table)
    log = root / "_delta_log"
    entries = [entry for version in versions if (entry := entry_of(root, version)).exists()]
    if not entries:
        return {}
    files = [path for entry in entries for path in _added(root, entry) if path.exists()]
    checkpoints = [path for version in versions for path in log.glob(f"{version:020}.checkpoint*")]
    if checkpoints:
        checkpoints.append(log / "_last_checkpoint")
    for path in (*files, *entries, *checkpoints):
        fsync(path)
    folders = {
        folder for path in files for folder in (path.parent, *path.parent.parents) if root in (folder, *folder.parents)
    }
    for folder in sorted({*folders, root, log}, reverse=True):  # the innermost first
        fsync(folder)
    if 0 in versions:
        for folder in (root.parent, root.parent.parent, root.parent.parent.parent):  # the table itself is new
            fsync(folder)
    return {path.relative_to(root).as_posix(): path for path in files}


def content_hash(file: Path) -> str:
    """A hash of all bytes of a file."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, _HASH).hexdigest()


def _added(root: Path, entry: Path) -> Iterator[Path]:
    for line in entry.read_text().splitlines():
        added = json.loads(line).get("add") if line else None
        if added is not None and "://" not in added["path"]:
            yield root / unquote(added["path"])
