"""What a store of small files offers, on a disk or on an object store."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import IO, Protocol


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """A file of the lake.

    Attributes:
        path: where it is.
        size: its bytes.
        modified: when it was written, by the store's clock.
    """

    path: str
    size: int
    modified: datetime

    @property
    def name(self) -> str:
        """Its last part."""
        return self.path.rpartition("/")[2]


#: The folder of a Delta table's log, which goes last: until then the table is whole, or in pieces that say so.
_LOG = "/_delta_log/"


def removal_order(paths: Iterable[str]) -> tuple[list[str], list[str], list[str]]:
    """Files in the order in which they go with their folder: the newest entry of each Delta log after all others.

    While it is there, no earlier version of the table is taken for the newest, and a writer that knew it finds the next
    one: that of a ledger says that it is sealed.
    """
    files = sorted(paths)
    entries = [file for file in files if _LOG in file]
    newest = {file.rpartition("/")[0]: file for file in entries if file.endswith(".json")}
    last = list(newest.values())
    return [file for file in files if _LOG not in file], [file for file in entries if file not in last], last


def absent(path: str) -> FileNotFoundError:
    """The error of a file that has to be there, as a disk raises it."""
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


class Store(Protocol):
    """Where files of the lake are. Paths are whole: those of :mod:`kappa.names`.

    What is not there is None, an empty listing, or nothing to remove. Any other failure is an ``OSError`` on a disk,
    and on an object store an error of ``errors``: it is unreachable, or refuses.
    """

    def get(self, path: str) -> bytes | None:
        """The content of a file; None where there is none."""

    def head(self, path: str) -> StoredFile | None:
        """Size and age of a file; None where there is none."""

    def open(self, path: str) -> IO[bytes]:
        """A file to read in pieces.

        Raises:
            FileNotFoundError: there is none.
        """

    def put(self, path: str, data: bytes, *, is_durable: bool = False) -> None:
        """Replace a file in one step: readers get the old content or the new one.

        On a disk its folder must be there: what was removed is not brought back by a late writer.

        Args:
            path: the file.
            data: its content.
            is_durable: it outlives a power loss; on an object store it always does.

        Raises:
            FileNotFoundError: its folder is gone.
        """

    def receive(self, path: str, pieces: Iterator[bytes], size: int) -> None:
        """Replace a file of any size in one step, from pieces, of which few are in memory; it is durable.

        Its folder is made. A crash leaves the old content, and at most a file ``*.tmp`` or parts of an upload.

        Args:
            path: the file.
            pieces: its content.
            size: about as many bytes as the pieces have.
        """

    def create(self, path: str, data: bytes) -> bool:
        """Write a durable file that must not be there; whether it holds this content now, by this call or before.

        Raises:
            FileNotFoundError: on a disk, its folder is gone.
        """

    def make_folder(self, path: str, *, with_parents: bool = True) -> None:
        """Make a folder for files, where the store has such.

        Raises:
            FileNotFoundError: on a disk, the folder that it is in is gone, and is not made too.
        """

    def refresh(self, path: str, data: bytes) -> None:
        """Give a file of this content a fresh age, so that housekeeping leaves it alone; written where it is gone."""

    def now(self, folder: str) -> datetime:
        """The present by the clock of :attr:`StoredFile.modified`.

        An object store is asked by a small object that is written below the folder and removed. Who may not write there
        gets a moment before: when the newest file below the folder was written.
        """

    def files(self, folder: str) -> Iterator[StoredFile]:
        """All files below a folder, in no order."""

    def folders(self, folder: str) -> list[str]:
        """Names of the folders in a folder, sorted."""

    def delete(self, path: str) -> None:
        """Remove a file."""

    def delete_folder(self, path: str) -> bool:
        """Remove a folder with all that is in it; whether it is gone. A crash leaves some of it; call it again.

        On a disk what cannot be removed stays: this user may not, or a program of another host has it open.

        The newest entry of each Delta log goes last, after all others.
        """

    def delete_empty(self, folder: str) -> None:
        """Remove a folder that has nothing in it, where the store has such."""

    def discard(self, path: str, before: datetime) -> bool:
        """Remove a file, or on a disk a folder, that was written before a time; whether it is gone."""
