"""Keys of a topic, counted in memory up to a number and in pages on the disk beyond it."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from pathlib import Path

#: Most keys that are counted in memory: about 120 MB with keys of 16 bytes. On the disk each takes ten times as long.
MOST_KEYS = 1_000_000
#: Keys after which it is looked how many there are.
_BATCH = 10_000
#: Most memory for pages, in kibibytes.
_CACHE_KIB = 32 << 10


class PagedKeys:
    """A multiset of keys on this host, for one thread. It goes with the process, however that ends.

    Args:
        folder: where keys beyond the memory go; empty for the host's own folder of temporary files.
        most: number of keys in memory from which on all are on the disk.
    """

    def __init__(self, folder: str = "", most: int = MOST_KEYS) -> None:
        self._folder, self._most = folder, most
        self._counts: Counter[bytes] = Counter()
        self._pages: sqlite3.Connection | None = None

    def __enter__(self) -> PagedKeys:
        return self

    def __exit__(self, *_: object) -> None:
        self._counts.clear()
        if self._pages is not None:
            self._pages.close()

    def add(self, keys: Iterable[bytes]) -> None:
        """Count each key once more."""
        left = iter(keys)
        while self._pages is None and (batch := list(islice(left, _BATCH))):
            self._counts.update(batch)
            if len(self._counts) > self._most:
                self._pages = _opened(self._folder)
                _count(self._pages, self._counts.items())
                self._counts.clear()
        if self._pages is not None:
            _count(self._pages, ((key, 1) for key in left))

    def discard(self, keys: Iterable[bytes]) -> None:
        """Forget keys, however often they were counted."""
        if self._pages is not None:
            self._pages.executemany("DELETE FROM keys WHERE key = ?", ((key,) for key in keys))
        elif self._counts:
            for key in keys:
                self._counts.pop(key, None)

    def take(self, key: bytes) -> bool:
        """Count a key once less; return whether it was there."""
        if self._pages is not None:
            taken = "UPDATE keys SET count = count - 1 WHERE key = ? AND count > 0"
            return self._pages.execute(taken, (key,)).rowcount > 0
        count = self._counts.get(key, 0)
        if count > 0:
            self._counts[key] = count - 1
        return count > 0

    def batches(self, size: int) -> Iterator[list[bytes]]:
        """The keys in their order, this many at a time. None may be added or discarded meanwhile."""
        if self._pages is None:
            keys: Iterator[bytes] = iter(sorted(self._counts))
        else:
            keys = (key for (key,) in self._pages.execute("SELECT key FROM keys ORDER BY key"))
        while batch := list(islice(keys, size)):
            yield batch


def digest(*parts: bytes | None) -> bytes:
    """A key of 16 bytes for a record of these parts; a part may be null."""
    content = b"".join(b"-" if part is None else b"%d:%s" % (len(part), part) for part in parts)
    return blake2b(content, digest_size=16).digest()


def _opened(folder: str) -> sqlite3.Connection:
    """An empty database of pages in a temporary file, which SQLite itself removes as soon as it has opened it."""
    pages = sqlite3.connect("", isolation_level=None)
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        quoted = folder.replace("'", "''")
        pages.execute(f"PRAGMA temp_store_directory='{quoted}'")
    # Nobody reads it after a crash: no journal, no sync, and one transaction that is never committed.
    for pragma in ("journal_mode=OFF", "synchronous=OFF", f"cache_size=-{_CACHE_KIB}"):
        pages.execute(f"PRAGMA {pragma}")
    pages.execute("CREATE TABLE keys (key BLOB PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID")
    pages.execute("BEGIN")
    return pages


def _count(pages: sqlite3.Connection, counts: Iterable[tuple[bytes, int]]) -> None:
    """Add to the counts of keys."""
    pages.executemany(
        "INSERT INTO keys VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET count = count + excluded.count", counts
    )
