"""Keeps a Delta table small: small files are merged, and rows, files and log entries that no reader needs any more go.

Each call may die anywhere and be repeated: readers of versions that are kept see no difference. A process that was
frozen in the middle and wakes up later removes nothing that a newer version names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from kappa.delta import access, table_files, tables
from kappa.delta.access import answers, open_table
from kappa.delta.damage import entry_of
from kappa.faults import crash_point
from kappa.store.address import is_remote
from kappa.store.stores import store_of

if TYPE_CHECKING:
    from deltalake import DeltaTable

#: Number of files of a table after which they are merged.
COMPACT_AFTER = 64
#: A file of this age that no commit names belongs to no write that is still under way.
_ABANDONED_HOURS = 24
#: ``userMetadata`` of commits that remove changes which are in their table.
FORGOTTEN = "kappa.forget"


def compact(path: str, target_bytes: int | None = None) -> None:
    """Merge small files, when there are many. Changes no row; a crash leaves it done or not.

    A table stays as it is where Spark wrote partitions such as ``Zürich``: ``deltalake`` removes their files by an
    encoded path, which is another one to its readers, and they would have the rows twice.

    Args:
        target_bytes: size from which on a file is not small: it is never written again. None leaves that to
            ``deltalake``.
    """

    table = open_table(path)
    files = table_files.files_of(table)
    small = [size for size in files["size_bytes"].to_pylist() if target_bytes is None or size < target_bytes]
    if len(small) > COMPACT_AFTER and all(map(str.isascii, files["path"].to_pylist())):
        access.compact(table, target_bytes)


def forget_before(path: str, seq: int) -> None:
    """Remove the rows of earlier slices, but for those in one file with later ones: no file is written anew for it.

    Idempotent; readers of older Delta versions keep them.
    """

    table = open_table(path)
    files = table_files.files_of(table)
    if not files.num_rows:
        return
    spans = sorted(zip(files["min._seq"].to_pylist(), files["max._seq"].to_pylist(), strict=True), reverse=True)
    for first, last in spans:  # from the latest on: what has to stay may hold on to an earlier file
        if first < seq <= last:
            seq = first
    if any(last < seq for _, last in spans):
        with answers(path):
            table.delete(f"_seq < {seq}", commit_properties=tables.upkeep_commit(FORGOTTEN))


def vacuum(
    path: str,
    keep: Callable[[], Collection[int]],
    *,
    age: timedelta,
    check: Callable[[], None],
    spared: Collection[str] = (),
) -> int:
    """Remove files that neither the newest version nor the kept ones need, and old log entries.

    There is no commit for it.

    Versions that are not kept can no longer be read once their files go. Log entries stay while a version is kept that
    is older than two days: it could not be opened without them. Files of which the log says nothing (any more) go when
    they are a day old: their writer died before the commit that was to name them, or they were kept for longer than the
    log remembers. A crash leaves some files; the next call removes them.

    Args:
        path: a table without partitions.
        keep: the versions that stay readable, looked up after the table was opened.
        age: files younger than this stay, whether they are needed or not.
        check: raises when nothing may be removed any more; called before each removal.
        spared: files that stay in any case, by their paths in the table: those of its published table.

    Returns:
        Number of files that were removed.
    """
    table, store = open_table(path), store_of(path)
    # In this order: a writer that takes over from here on knows only files of this version, of kept ones, and new ones.
    versions = sorted({*keep(), table.version()})
    check()
    _forget_log(path, table, versions[0])
    ages = ((_ABANDONED_HOURS, True, max(age, timedelta(hours=_ABANDONED_HOURS))), (0, False, age))
    with answers(path):
        unneeded = {
            name: least
            for hours, is_full, least in ages
            for name in table.vacuum(hours, enforce_retention_duration=False, full=is_full, keep_versions=versions)
        }
    if not unneeded:
        return 0
    for name in spared:
        unneeded.pop(name, None)
    # The vacuum of the table itself would write two commits each time, and ask for files that are long gone.
    now = _now(path, table)
    present = [
        file.path for name, file in table_files.present(path, unneeded).items() if file.modified <= now - unneeded[name]
    ]
    crash_point("vacuum.chosen")
    for file in present:
        check()
        store.delete(file)
    return len(present)


def _now(path: str, table: DeltaTable) -> datetime:
    """The present by the clock of the files' ages, or a moment before: on an object store, that of the last commit."""
    if is_remote(path):
        entry = store_of(path).head(entry_of(path, table.version()))
        return datetime.fromtimestamp(0, UTC) if entry is None else entry.modified
    return datetime.fromtimestamp(time.time(), UTC)  # the clock of the files' ages, whatever the caller's says


def _forget_log(path: str, table: DeltaTable, oldest: int) -> None:
    """Remove old log entries, unless the oldest version that is kept is as old: it could not be opened without them."""
    if oldest < table.version():
        entry = store_of(path).head(entry_of(path, oldest))
        # An hour less than the log's: of entries that are nearly as old nothing is decided. By this host's clock, as
        # `deltalake` decides: two clocks could disagree.
        if entry is None or time.time() - entry.modified.timestamp() >= (tables.LOG_HOURS - 1) * 3600:
            return
    with answers(path):
        table.cleanup_metadata()
