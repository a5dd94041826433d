"""Keys of a topic, counted in pages on the disk: what is in memory does not grow with their number."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

#: Most memory for pages, in kibibytes.
_CACHE_KIB = 32 << 10


class PagedKeys:
    """A multiset of keys on the disk of this host, for one thread. It goes with the process, however that ends.

    Args:
        folder: where its file is; empty for the host's own folder of temporary files.
    """

    def __init__(self, folder: str = "") -> None:
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
        handle, file = tempfile.mkstemp(prefix="keys-", dir=folder or None)
        os.close(handle)
        self._pages = sqlite3.connect(file, isolation_level=None)
        # Nobody reads it after a crash: no journal, no sync, and one transaction that is never committed.
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", f"cache_size=-{_CACHE_KIB}"):
            self._pages.execute(f"PRAGMA {pragma}")
        self._pages.execute("CREATE TABLE keys (key BLOB PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID")
        self._pages.execute("BEGIN")
        Path(file).unlink()

    def __enter__(self) -> PagedKeys:
        return self

    def __exit__(self, *_: object) -> None:
        self._pages.close()

    def add(self, keys: Iterable[bytes]) -> None:
        """Count each key once more."""
        self._pages.executemany(
            "INSERT INTO keys VALUES (?, 1) ON CONFLICT (key) DO UPDATE SET count = count + 1", ((key,) for key in keys)
        )

    def discard(self, keys: Iterable[bytes]) -> None:
        """Forget keys, however often they were counted."""
        self._pages.executemany("DELETE FROM keys WHERE key = ?", ((key,) for key in keys))

    def take(self, key: bytes) -> bool:
        """Count a key once less; return whether it was there."""
        return self._pages.execute("UPDATE keys SET count = count - 1 WHERE key = ? AND count > 0", (key,)).rowcount > 0

    def batches(self, size: int) -> Iterator[list[bytes]]:
        """The keys in their order, this many at a time. None may be added or discarded meanwhile."""
        rows = self._pages.execute("SELECT key FROM keys ORDER BY key")
        while batch := [key for (key,) in islice(rows, size)]:
            yield batch
