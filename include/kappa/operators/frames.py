"""Checks of the frames that a step passes to operators, made before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kappa.errors import TopologyError
from kappa.topology.ddl import Column, plain_type, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TIMES = ("_event_time", "_frontier")


def check_rows(rows: DataFrame, columns: Iterable[Column], operator: str) -> None:
    """Check that the rows have the declared columns in the declared types: nothing is cast silently.

    Args:
        rows: the rows.
        columns: those that the operator reads.
        operator: the operator, for messages.

    Raises:
        TopologyError: one is missing, or of another type.
    """
    fields = {field.name.lower(): field for field in rows.schema}
    for column in columns:
        field = fields.get(column.name.lower())
        if field is None:
            raise TopologyError(
                f"{operator}: the rows lack column {column.name!r}; they have {sorted(rows.columns)}. Select it in the "
                "step.",
                column=column.name,
            )
        kind = field.dataType.jsonValue()
        if kind != "void" and plain_type(kind) != plain_type(column.delta):
            raise TopologyError(
                f"{operator}: column {column.name!r} of the rows is {field.dataType.simpleString().upper()}, but "
                f"declared as {column.type}. Declare its real type, or cast it in the step.",
                column=column.name,
            )


def check_times(rows: DataFrame, operator: str) -> None:
    """Check that the rows have event time.

    Raises:
        TopologyError: they have none.
    """
    missing = [name for name in _TIMES if name not in rows.columns]
    if missing:
        raise TopologyError(
            f"{operator}: the rows have no event time, columns {missing} are missing. Records of a source with grace "
            "have it; changes of a table and final rows do not. Pass rows of slice[...] or of running_total, and keep "
            "these columns where the step selects.",
            missing=missing,
        )


def with_metadata(rows: DataFrame, name: str, metadata: Mapping[str, Any]) -> DataFrame:
    """The rows with metadata of a column of any name: Spark's own function treats a dot as a field."""
    from pyspark.sql import functions as F

    own = F.col(quote(name)).alias(name, metadata=dict(metadata))
    return rows.select(*(own if each == name else F.col(quote(each)) for each in rows.columns))
