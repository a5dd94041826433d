"""Columns that an operator keeps for itself: readers do not get them, and a query that names one is refused.

They are on record in the epoch's ledger: readers need no code of the topology. Where the code that began the epoch did
not record them, readers get all columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kappa.errors import UsageError
from kappa.names import EpochPaths
from kappa.record.ledger import Ledger
from kappa.topology.shapes import Shape, shapes_from_dict, tables_only

#: The query engine's words for an unknown name; its parts are separated by dots, and quoted where necessary.
_UNKNOWN = re.compile(r"No field named (.+?)\.(?:\s|$)", re.DOTALL)
_PART = re.compile(r'"(?:[^"]|"")*"|[^."]+')


def hidden_of(shapes: Mapping[str, Shape]) -> dict[str, tuple[str, ...]]:
    """Table -> columns that readers do not get.

    Args:
        shapes: of an epoch's tables, by place.
    """
    return {place.removeprefix("tables/"): shape.hidden or () for place, shape in tables_only(shapes).items()}


def hidden_in(paths: EpochPaths) -> dict[str, tuple[str, ...]]:
    """The same for an epoch, read from the beginning of its ledger."""
    seed = Ledger(paths.ledger).seed()
    return hidden_of(shapes_from_dict({} if seed is None else seed.detail.get("shapes", {})))


def named_in(error: Exception, hidden: Sequence[str]) -> str | None:
    """The hidden column in an error of the query engine; None where the error has another reason.

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
