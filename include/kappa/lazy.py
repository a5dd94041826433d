"""A value that is made when it is first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lazy(Generic[T]):
    """A value that is made when it is first needed, once, whichever thread needs it.

    Args:
        make: makes it; where that fails, it is tried again the next time.

    Attributes:
        made: the value; None until it was needed.

    Examples:
        >>> words = Lazy(lambda: ["a", "b"])
        >>> words.made, words.get(), words.made
        (None, ['a', 'b'], ['a', 'b'])
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.RLock()
        self.made: T | None = None

    def get(self) -> T:
        """The value, made now where it was not."""
        with self._lock:
            if self.made is None:
                self.made = self._make()
            return self.made
