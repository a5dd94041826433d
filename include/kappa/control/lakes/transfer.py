"""Files on their way from one lake to another, several at once: a request to an object store takes 30 ms."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from shlex import quote

from kappa.control.lakes import inventory
from kappa.errors import LakeUnreachableError
from kappa.faults import crash_point
from kappa.store.stores import PIECE_BYTES, pieces, store_of

#: Files on their way at once; of the large ones few, since a piece or two of each is in memory.
_SMALL, _LARGE = 16, 4


@dataclass(frozen=True, kw_only=True)
class Freight:
    """How much of something is done.

    Attributes:
        what: what is done, for people.
        files: how many files are.
        all_files: of how many.
        size_bytes: how many bytes are.
        all_bytes: of how many.
    """

    what: str
    files: int = 0
    all_files: int
    size_bytes: int = 0
    all_bytes: int


#: Called from several threads, by one at a time.
Progress = Callable[[Freight], object]


class Transfer:
    """Copies files from a lake to another.

    Args:
        progress: called whenever more is done.

    Attributes:
        source: address of the lake.
        target: address of the other one.
    """

    def __init__(self, source: str, target: str, progress: Progress) -> None:
        self.source = source
        self.target = target
        self._progress = progress
        self._lock = threading.Lock()
        self._copied = 0

    def copy(self, what: str, files: Mapping[str, int]) -> None:
        """Copy files, each in one step; one that is gone meanwhile is passed over.

        A crash leaves some of them copied; call it again with those that are missing.

        Args:
            what: what they are, for people.
            files: name -> size.

        Raises:
            LakeUnreachableError: a file cannot be written, or the store does not answer.
        """
        tally = _Tally(Freight(what=what, all_files=len(files), all_bytes=sum(files.values())), self._progress)
        for threads, some in (
            (_LARGE, [name for name, size in files.items() if size > PIECE_BYTES]),
            (_SMALL, [name for name, size in files.items() if size <= PIECE_BYTES]),
        ):
            self._each(threads, lambda name: self._one(name, files[name], tally), some)

    def copy_in_turn(self, what: str, files: Mapping[str, int]) -> None:
        """The same, one file after the other: a crash leaves the first ones copied."""
        tally = _Tally(Freight(what=what, all_files=len(files), all_bytes=sum(files.values())), self._progress)
        for name, size in files.items():
            self._one(name, size, tally)
            crash_point("lake.entry")

    def create(self, name: str) -> bool:
        """Copy a small file that must not be in the target; whether it is there now, with this content."""
        content = store_of(self.source).get(f"{self.source}/{name}")
        is_there = content is not None and store_of(self.target).create(f"{self.target}/{name}", content)
        crash_point("lake.entry")
        return is_there

    def differing(self, what: str, here: Mapping[str, int], there: Mapping[str, int]) -> dict[str, int]:
        """Files that the target lacks, or has with another size, or with another content where that counts.

        Args:
            what: what they are, for people.
            here: name -> size in the source.
            there: the same in the target.

        Returns:
            Name -> size, in the order of ``here``.
        """
        alike = {name: size for name, size in here.items() if there.get(name) == size and inventory.is_compared(name)}
        tally = _Tally(Freight(what=what, all_files=len(alike), all_bytes=sum(alike.values())), self._progress)
        different: set[str] = set()

        def compare(name: str) -> None:
            here, there = (_content(f"{lake}/{name}", alike[name]) for lake in (self.source, self.target))
            try:
                if any(piece != other for piece, other in zip_longest(here, there)):
                    different.add(name)
            except _GoneError:
                different.add(name)
            tally.add(files=1, size_bytes=alike[name])

        self._each(_SMALL, compare, list(alike))
        return {name: size for name, size in here.items() if there.get(name) != size or name in different}

    def remove(self, names: Iterable[str]) -> None:
        """Remove files of the target, in their order."""
        for name in names:
            store_of(self.target).delete(f"{self.target}/{name}")

    def _one(self, name: str, size: int, tally: _Tally) -> None:
        path, content = f"{self.target}/{name}", _content(f"{self.source}/{name}", size)
        try:
            first = next(content, None)
            if first is None:
                return
            store_of(path).receive(path, tally.counted(chain((first,), content)), size)
        except _GoneError:
            return
        except OSError as error:
            raise LakeUnreachableError(
                f"{path} cannot be written: {error.strerror or error}. The copy goes on where it is when that is "
                f"mended: kappa lake copy {quote(self.target)} --execute",
                path=path,
            ) from error
        tally.add(files=1)
        with self._lock:
            self._copied += 1
            crash_point("lake.file", self._copied)

    def _each(self, threads: int, do: Callable[[str], None], names: list[str]) -> None:
        with ThreadPoolExecutor(threads) as pool:
            try:
                for _ in pool.map(do, names):
                    pass
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


class _GoneError(Exception):
    """A large file of the source is gone, perhaps after some of its pieces were read."""


def _content(path: str, size: int) -> Iterator[bytes]:
    """A file in pieces, at least one; none where a small one is gone. A small one is one request.

    Raises:
        _GoneError: a large one is gone.
        LakeUnreachableError: it cannot be read.
    """
    try:
        if size > PIECE_BYTES:
            yield from pieces(path)
        elif (content := store_of(path).get(path)) is not None:
            yield content
    except FileNotFoundError as error:
        raise _GoneError from error
    except OSError as error:
        raise LakeUnreachableError(
            f"{path} cannot be read: {error.strerror or error}. Let this user read it; then again: kappa lake copy",
            path=path,
        ) from error


class _Tally:
    """Counts what several threads do."""

    def __init__(self, freight: Freight, progress: Progress) -> None:
        self._freight = freight
        self._progress = progress
        self._lock = threading.Lock()

    def add(self, *, files: int = 0, size_bytes: int = 0) -> None:
        with self._lock:
            now = self._freight
            self._freight = replace(now, files=now.files + files, size_bytes=now.size_bytes + size_bytes)
            self._progress(self._freight)

    def counted(self, content: Iterator[bytes]) -> Iterator[bytes]:
        for piece in content:
            self.add(size_bytes=len(piece))
            yield piece
