"""Columns that an operator keeps for itself: which of them readers do not get, and what a query that names one is told.

Which these are is on record in the epoch's ledger: readers need no code of the topology, and get all columns of an
epoch that was begun by code which did not tell them apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kappa.errors import UsageError
from kappa.names import EpochPaths
from kappa.record.ledger import Ledger
from kappa.topology.shapes import Shape, shapes_from_dict, tables_only

#: What the query engine says of a name that no relation has; parts of a name are divided by dots, and quoted at need.
_UNKNOWN = re.compile(r"No field named (.+?)\.(?:\s|$)", re.DOTALL)
_PART = re.compile(r'"(?:[^"]|"")*"|[^."]+')


def hidden_of(shapes: Mapping[str, Shape]) -> dict[str, tuple[str, ...]]:
    """Table -> columns that readers do not get.

    Args:
        shapes: of an epoch's tables, by place.
    """
    return {place.removeprefix("tables/"): shape.hidden or () for place, shape in tables_only(shapes).items()}


def hidden_in(paths: EpochPaths) -> dict[str, tuple[str, ...]]:
    """The same of an epoch, read from the beginning of its ledger."""
    seed = Ledger(paths.ledger).seed()
    return hidden_of(shapes_from_dict({} if seed is None else seed.detail.get("shapes", {})))


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
