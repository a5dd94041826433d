"""Columns that an operator keeps for itself, which readers do not get: what a query is told that names one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kappa.errors import UsageError

#: What the query engine says of a name that no relation has; parts of a name are divided by dots, and quoted at need.
_UNKNOWN = re.compile(r"No field named (.+?)\.(?:\s|$)", re.DOTALL)
_PART = re.compile(r'"(?:[^"]|"")*"|[^."]+')


def named_in(error: Exception, hidden: Sequence[str]) -> str | None:
    """The hidden column that the query engine was asked for; None where it ended a query for another reason.

    Examples:
        >>> named_in(Exception('Schema error: No field named t.total__sum.\\nValid fields are t.id.'), ["total__sum"])
        'total__sum'
    """
    unknown = _UNKNOWN.search(str(error))
    parts = _PART.findall(unknown[1]) if unknown else []
    names = [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in parts]
    return next((name for name in names if name in hidden), None)


def refusal(column: str, topology: str, table: str) -> UsageError:
    """The error of a query that names such a column."""
    return UsageError(
        f"Column {column!r} of {topology}.{table} is one that its operator keeps for itself: readers get the results. "
        f"The Delta table has it, up to the last merge: kappa path {topology} {table}",
        column=column,
    )
