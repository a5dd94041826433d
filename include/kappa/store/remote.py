"""Files of a lake on S3, by obstore.

Creating what must not be there is the only fence: no rename, and no replacement on a condition.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import lru_cache
from typing import IO, TYPE_CHECKING, Any

from kappa.errors import LakeRefusedError, LakeUnreachableError
from kappa.store.address import bucket_and_key
from kappa.store.authorities import trusted_file
from kappa.store.option_values import is_true
from kappa.store.options import access_to, retries_of
from kappa.store.outages import answers, is_refusal
from kappa.store.retries import Retries
from kappa.store.store import StoredFile, absent, removal_order

if TYPE_CHECKING:
    from obstore.store import S3Store

#: Size of a reading: the footer of a Parquet file is in one.
_RANGE_BYTES = 64 << 10
#: Size of a part of an upload, unless a file would have more parts than S3 takes, which are 10,000.
_PART_BYTES = 8 << 20
_PARTS = 9_000
#: How often an unclear answer to :meth:`ObjectStore.create` is settled by the same call again.
_CREATIONS = 5
#: Name of the object by whose age :meth:`ObjectStore.now` has the time; one of a dead process is written over.
_NOW = "now.tmp"


class ObjectStore:
    """A bucket on S3; see :class:`kappa.store.store.Store`.

    Args:
        retries: how long calls wait for an answer; None for as long as the lake's.
    """

    def __init__(self, retries: Retries | None = None) -> None:
        self._retries = retries

    def get(self, path: str) -> bytes | None:
        """See :class:`~kappa.store.store.Store`."""
        import obstore

        store, key = self._opened(path)
        with answers(path):
            try:
                return bytes(obstore.get(store, key).bytes())
            except FileNotFoundError as error:
                if is_refusal(error):  # what is not there is the bucket, or the user
                    raise
                return None

    def head(self, path: str) -> StoredFile | None:
        """See :class:`~kappa.store.store.Store`."""
        import obstore

        store, key = self._opened(path)
        with answers(path):
            try:
                meta = obstore.head(store, key)
            except FileNotFoundError:
                return None
        return StoredFile(path=path, size=meta["size"], modified=meta["last_modified"].astimezone(UTC))

    def open(self, path: str) -> IO[bytes]:
        """See :class:`~kappa.store.store.Store`. Each reading is one request for a range of at least 64 KiB."""
        file = self.head(path)
        if file is None:
            raise absent(path)
        return io.BufferedReader(_Ranges(file), _RANGE_BYTES)

    def put(self, path: str, data: bytes, *, is_durable: bool = False) -> None:
        """See :class:`~kappa.store.store.Store`. An object that is acknowledged is durable."""
        import obstore

        store, key = self._opened(path)
        with answers(path):
            obstore.put(store, key, data)

    def receive(self, path: str, pieces: Iterator[bytes], size: int) -> None:
        """See :class:`~kappa.store.store.Store`. What has no more than one part is one request."""
        import obstore

        store, key = self._opened(path)
        with answers(path):
            if size <= _PART_BYTES:
                obstore.put(store, key, b"".join(pieces), use_multipart=False)
            else:
                part = max(_PART_BYTES, size // _PARTS + 1)
                obstore.put(store, key, _ahead(pieces), use_multipart=True, chunk_size=part, max_concurrency=2)

    def create(self, path: str, data: bytes) -> bool:
        """See :class:`~kappa.store.store.Store`.

        After an answer that was lost a missing object may still be on its way: the same bytes are sent again until the
        store says yes, or shows what is there. All of these together take as long as one call may, and longer only by
        the time that the bytes of a large file take.
        """
        import obstore

        own = self._retries or retries_of(path)
        each = ObjectStore(own.within(own.longest / _CREATIONS).carrying(len(data)))
        store, key = each._opened(path)
        with answers(path):
            for attempt in range(_CREATIONS):
                try:
                    obstore.put(store, key, data, mode="create")
                    return True
                except (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError):
                    present = each.get(path)
                    if present is not None:
                        return present == data
                except obstore.exceptions.GenericError:
                    if attempt == _CREATIONS - 1:
                        raise
        raise LakeUnreachableError(f"{path} is refused as present and then missing, {_CREATIONS} times.", path=path)

    def make_folder(self, path: str, *, with_parents: bool = True) -> None:
        """See :class:`~kappa.store.store.Store`. There are none."""

    def refresh(self, path: str, data: bytes) -> None:
        """See :class:`~kappa.store.store.Store`."""
        self.put(path, data)  # its age by this host's clock says nothing, and another request for it saves none

    def now(self, folder: str) -> datetime:
        """See :class:`~kappa.store.store.Store`. The age of an object that is written for it.

        The newest one that is there may be that of a process that died long ago. Who may not write has no other one.
        """
        path = f"{folder}/{_NOW}"
        for _ in range(_CREATIONS):
            try:
                self.put(path, b"now")
            except LakeRefusedError:
                break
            present = self.head(path)
            with contextlib.suppress(LakeRefusedError):  # who may not remove it writes over it the next time
                self.delete(path)
            if present is not None:  # otherwise another process removed it in between
                return present.modified
        return max((file.modified for file in self.files(folder)), default=datetime.fromtimestamp(0, UTC))

    def files(self, folder: str) -> Iterator[StoredFile]:
        """See :class:`~kappa.store.store.Store`.

        Consoles and some programs make empty objects for folders, whose keys end with "/": obstore lists them without
        it, as if they were files. There is none of that name.
        """
        import obstore

        store, prefix = self._opened(folder)
        bucket = folder.removesuffix(prefix)
        with answers(folder):
            for chunk in obstore.list(store, prefix=f"{prefix.rstrip('/')}/"):
                for meta in chunk:
                    path, size = f"{bucket}{meta['path']}", meta["size"]
                    if size or (path != folder.rstrip("/") and self.head(path) is not None):
                        yield StoredFile(path=path, size=size, modified=meta["last_modified"].astimezone(UTC))

    def folders(self, folder: str) -> list[str]:
        """See :class:`~kappa.store.store.Store`."""
        import obstore

        store, prefix = self._opened(folder)
        with answers(folder):
            listing = obstore.list_with_delimiter(store, prefix=f"{prefix.rstrip('/')}/")
        return sorted(name.rstrip("/").rpartition("/")[2] for name in listing["common_prefixes"])

    def delete(self, path: str) -> None:
        """See :class:`~kappa.store.store.Store`."""
        self._delete(path, [path])

    def delete_folder(self, path: str) -> bool:
        """See :class:`~kappa.store.store.Store`."""
        for paths in removal_order(file.path for file in self.files(path)):
            self._delete(path, paths)
        return True

    def delete_empty(self, folder: str) -> None:
        """See :class:`~kappa.store.store.Store`."""

    def discard(self, path: str, before: datetime) -> bool:
        """See :class:`~kappa.store.store.Store`."""
        present = self.head(path)
        if present is not None and present.modified >= before:
            return False
        self.delete(path)
        return True

    def _opened(self, path: str) -> tuple[S3Store, str]:
        return _opened(path, self._retries)

    def _delete(self, path: str, paths: list[str]) -> None:
        import obstore

        if not paths:
            return
        store, _ = self._opened(path)
        with answers(path):
            obstore.delete(store, [bucket_and_key(one)[1] for one in paths])


class _Ranges(io.RawIOBase):
    """An object as a file that is read in ranges."""

    def __init__(self, file: StoredFile) -> None:
        super().__init__()
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._file.size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        import obstore

        end = min(self._at + len(buffer), self._file.size)
        if self._at >= end:
            return 0
        store, key = _opened(self._file.path)
        with answers(self._file.path):
            content = bytes(obstore.get_range(store, key, start=self._at, end=end))
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)


def _ahead(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Pieces that another thread fetches: obstore asks for them within a request, where it makes no other one."""
    with ThreadPoolExecutor(1) as fetcher:
        coming = fetcher.submit(next, pieces, None)
        while (piece := coming.result()) is not None:
            coming = fetcher.submit(next, pieces, None)
            yield piece


def _opened(path: str, retries: Retries | None = None) -> tuple[S3Store, str]:
    """The client of a path's bucket, and the key; see :class:`ObjectStore`."""
    bucket, key = bucket_and_key(path)
    with answers(path):
        options = tuple(sorted(access_to(path).items()))
        return _client(bucket, options, retries or retries_of(path), trusted_file()), key


@lru_cache(maxsize=16)
def _client(bucket: str, options: tuple[tuple[str, str], ...], retries: Retries, trusted_file: str) -> S3Store:
    """A client, with the pool of its connections: one per bucket, options, retries and authorities."""
    from obstore.store import S3Store

    config = dict(options)
    is_plain = is_true(config.get("aws_allow_http", ""))
    return S3Store(
        bucket,
        config={name: value for name, value in config.items() if name != "aws_allow_http"},  # type: ignore[arg-type]
        client_options={**retries.client_options(), **({"allow_http": True} if is_plain else {})},  # type: ignore[arg-type]
        retry_config=retries.retry_config(),  # type: ignore[arg-type]
    )
