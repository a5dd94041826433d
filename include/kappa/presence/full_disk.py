"""Errors of a full disk, from whichever library they come."""

from __future__ import annotations

import errno

from kappa.errors import causes, is_of_rows

#: The system's numbers for a full disk, or a user's full quota of one.
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
#: The same in the words of engines that give no number: Delta's writer, Arrow, the JVM, SQLite.
_WORDS = (
    "No space left on device",
    "Disk quota exceeded",
    "os error 28",
    "os error 122",
    "[Errno 28]",
    "[Errno 122]",
    "database or disk is full",
)


def is_full(error: BaseException) -> bool:
    """Whether an error, or one of its causes, is a full disk."""
    return any(
        (isinstance(one, OSError) and one.errno in NO_SPACE)
        or (any(word in str(one) for word in _WORDS) and not is_of_rows(one))
        for one in causes(error)
    )
