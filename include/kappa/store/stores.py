"""The store of a path: a disk, or an object store."""

from __future__ import annotations

from collections.abc import Iterator

from kappa.store.address import is_remote
from kappa.store.retries import Retries
from kappa.store.store import Store

#: What is in memory of a file of any size.
PIECE_BYTES = 8 << 20


def store_of(path: str, retries: Retries | None = None) -> Store:
    """The store of a path in a lake.

    Args:
        path: the path.
        retries: how long calls wait for an object store; None for as long as the lake's.
    """
    if is_remote(path):
        from kappa.store.remote import ObjectStore

        return ObjectStore(retries)
    from kappa.store.local import LocalStore

    return LocalStore()


def pieces(path: str) -> Iterator[bytes]:
    """A file in pieces of :data:`PIECE_BYTES`.

    Raises:
        FileNotFoundError: there is none.
    """
    with store_of(path).open(path) as file:
        while piece := file.read(PIECE_BYTES):
            yield piece
