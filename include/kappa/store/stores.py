"""The store of a path: a disk, or an object store."""

from __future__ import annotations

from kappa.store.address import is_remote
from kappa.store.store import Store


def store_of(path: str) -> Store:
    """The store of a path in a lake."""
    if is_remote(path):
        from kappa.store.remote import ObjectStore

        return ObjectStore()
    from kappa.store.local import LocalStore

    return LocalStore()
