"""The code of epochs: it goes on loading with declarations that a later release refuses, and that did run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from kappa.errors import TopologyError

_IS_EARLIER: ContextVar[bool] = ContextVar("_IS_EARLIER", default=False)


@contextmanager
def earlier_code() -> Iterator[None]:
    """Within it declarations may be those of an epoch, which an earlier release accepted."""
    token = _IS_EARLIER.set(True)
    try:
        yield
    finally:
        _IS_EARLIER.reset(token)


def refuse(message: str, **data: Any) -> None:
    """Refuse a declaration that ran under an earlier release, except in the code of an epoch.

    Args:
        message: what happened, and what to write.
        **data: the values in it.

    Raises:
        TopologyError: the declaration is a new one.
    """
    if not _IS_EARLIER.get():
        raise TopologyError(message, **data)
