"""Files of a lake on a disk."""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from kappa import clock
from kappa.store.store import StoredFile, removal_order

#: A new file's folder may be new, and so may those above it: from a topic's folder up to the lake.
_NEW_FOLDERS = 3
#: There is nothing of this name, or a file where its folder would be.
_GONE = (FileNotFoundError, NotADirectoryError)


class LocalStore:
    """A disk, or a file system that all hosts mount; see :class:`kappa.store.store.Store`."""

    def get(self, path: str) -> bytes | None:
        """See :class:`~kappa.store.store.Store`."""
        try:
            return Path(path).read_bytes()
        except _GONE:
            return None

    def head(self, path: str) -> StoredFile | None:
        """See :class:`~kappa.store.store.Store`."""
        try:
            stat = Path(path).stat()
        except _GONE:
            return None
        return StoredFile(path=path, size=stat.st_size, modified=datetime.fromtimestamp(stat.st_mtime, UTC))

    def open(self, path: str) -> IO[bytes]:
        """See :class:`~kappa.store.store.Store`."""
        return Path(path).open("rb")

    def put(self, path: str, data: bytes, *, is_durable: bool = False) -> None:
        """See :class:`~kappa.store.store.Store`. Where it fails the old content stays, and nothing else is left."""
        file = Path(path)
        temporary = file.with_name(f"{file.name}.{uuid.uuid4().hex}.tmp")
        try:
            temporary.write_bytes(data)
            if is_durable:
                fsync(temporary)
            temporary.replace(file)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        if is_durable:
            _sync_folders(file)

    def receive(self, path: str, pieces: Iterator[bytes], size: int) -> None:
        """See :class:`~kappa.store.store.Store`. Hadoop's checksum of the old content goes with it."""
        file = Path(path)
        _make_durable_folder(file.parent)
        temporary = file.with_name(f"{file.name}.{uuid.uuid4().hex}.tmp")
        try:
            with temporary.open("wb") as out:
                for piece in pieces:
                    out.write(piece)
            fsync(temporary)
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
            temporary.replace(file)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        fsync(file.parent)

    def create(self, path: str, data: bytes) -> bool:
        """See :class:`~kappa.store.store.Store`."""
        file = Path(path)
        temporary = file.with_name(f"{file.name}.{uuid.uuid4().hex}.tmp")
        try:
            temporary.write_bytes(data)
            fsync(temporary)
            os.link(temporary, file)
        except FileExistsError:
            return file.read_bytes() == data
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        _sync_folders(file)
        return True

    def make_folder(self, path: str, *, with_parents: bool = True) -> None:
        """See :class:`~kappa.store.store.Store`."""
        Path(path).mkdir(parents=with_parents, exist_ok=True)

    def refresh(self, path: str, data: bytes) -> None:
        """See :class:`~kappa.store.store.Store`."""
        try:
            os.utime(path)
        except FileNotFoundError:
            self.put(path, data, is_durable=True)

    def now(self, folder: str) -> datetime:
        """See :class:`~kappa.store.store.Store`. That of this host."""
        return clock.now()

    def files(self, folder: str) -> Iterator[StoredFile]:
        """See :class:`~kappa.store.store.Store`. What goes during the walk is passed over."""
        for root, _, names in os.walk(folder, onerror=_raise_unless_gone):
            for name in names:
                file = self.head(f"{root}/{name}")
                if file is not None:
                    yield file

    def folders(self, folder: str) -> list[str]:
        """See :class:`~kappa.store.store.Store`."""
        try:
            with os.scandir(folder) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except _GONE:
            return []

    def delete(self, path: str) -> None:
        """See :class:`~kappa.store.store.Store`."""
        Path(path).unlink(missing_ok=True)

    def delete_folder(self, path: str) -> bool:
        """See :class:`~kappa.store.store.Store`."""
        files = (f"{root}/{name}" for root, _, names in os.walk(path) for name in names)
        for paths in removal_order(files if not Path(path).is_symlink() else ()):
            for file in paths:
                with contextlib.suppress(OSError):
                    self.delete(file)
        shutil.rmtree(path, ignore_errors=True)
        return not os.path.lexists(path)

    def delete_empty(self, folder: str) -> None:
        """See :class:`~kappa.store.store.Store`."""
        with contextlib.suppress(OSError):  # it has something in it, or is gone
            Path(folder).rmdir()

    def discard(self, path: str, before: datetime) -> bool:
        """See :class:`~kappa.store.store.Store`.

        Moved aside first, then looked at again: a process that needs the same content at that moment either refreshed
        it before, and it is put back, or finds it missing and writes it anew.
        """
        file = Path(path)
        aside = file.with_name(f"{file.name}.{uuid.uuid4().hex}.tmp")
        try:
            file.rename(aside)
        except FileNotFoundError:
            return True
        aside_file = self.head(str(aside))
        if aside_file is not None and aside_file.modified >= before and not file.exists():
            aside.rename(file)
            return False
        if aside.is_dir():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.unlink(missing_ok=True)
        return True


def fsync(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def fsync_names(folders: Iterable[Path]) -> None:
    """Bring the names in folders to the disk; folders above a lake may be closed to this user, as /home often is."""
    for folder in folders:
        with contextlib.suppress(PermissionError):
            fsync(folder)


def _make_durable_folder(folder: Path) -> None:
    """Make a folder and those above it, if they are missing."""
    if not folder.is_dir():
        _make_durable_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        fsync_names([folder.parent])


def _sync_folders(file: Path) -> None:
    fsync_names((file.parent, *file.parent.parents[:_NEW_FOLDERS]))


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, _GONE):
        raise error
