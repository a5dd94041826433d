"""Records that an operator refused because they came too late."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING

from kappa.topology import ORDER
from kappa.topology.ddl import quoted
from kappa.topology.reserved import is_reserved

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: SQL: whether an operator that refuses by a record's own time refuses it, and whether it takes it.
IS_LATE = "(_event_time < _frontier)"
IS_IN_TIME = "(_frontier IS NULL OR _event_time >= _frontier)"
#: What the reason of a record begins with that is late by the release of an idle or added partition.
RELEASED = "released: "


@dataclass(frozen=True, kw_only=True)
class Refused:
    """What operators refused while a step was called.

    Attributes:
        frames: each operator's late records, with its name.
        unions: what :func:`late_records` made, with its parts.
    """

    frames: list[tuple[str, DataFrame]] = field(default_factory=list)
    unions: list[tuple[DataFrame, tuple[DataFrame, ...]]] = field(default_factory=list)

    def not_among(self, effects: Iterable[DataFrame]) -> list[tuple[str, DataFrame]]:
        """Late records that are none of these DataFrames, nor a part of one by :func:`late_records`."""
        kept = {id(frame) for frame in effects}
        for union, parts in reversed(self.unions):  # a union of unions was made after them
            if id(union) in kept:
                kept |= {id(part) for part in parts}
        return [(operator, frame) for operator, frame in self.frames if id(frame) not in kept]


#: Of the step that is being called.
_REFUSED: ContextVar[Refused | None] = ContextVar("refused", default=None)


@contextmanager
def refusals() -> Iterator[Refused]:
    """What operators refuse from here on, in this thread."""
    found = Refused()
    before = _REFUSED.set(found)
    try:
        yield found
    finally:
        _REFUSED.reset(before)


_COLUMNS = ("operator", "reason", "event_time", "frontier", "record", *ORDER)


def late_rows(df: DataFrame, *, operator: str, reason: str) -> DataFrame:
    """Refused rows as the output ``late_records`` keeps them. A step that returns them nowhere is told so.

    Args:
        df: the rows, with ``_event_time``, ``_frontier`` and the order columns. What else has a
            name of the platform's own is left out.
        operator: the operator, for people.
        reason: why it refused them, for people. ``released: `` stands before it where the frontier is that of a release
            of the partition: without it, the record would have been measured by an earlier time.
    """
    found = _as_kept(df, operator, reason)
    refused = _REFUSED.get()
    if refused is not None:
        refused.frames.append((operator, found))
    return found


def no_late_rows(df: DataFrame, *, operator: str) -> DataFrame:
    """What an operator that refuses nothing gives as its late records: a step need not return it."""
    return _as_kept(df.where("FALSE"), operator, "")


def _as_kept(df: DataFrame, operator: str, reason: str) -> DataFrame:
    from pyspark.sql import functions as F

    kept = quoted(name for name in df.columns if not is_reserved(name))
    return df.select(
        F.lit(operator).alias("operator"),
        as_released(df, F.lit(reason)).alias("reason"),
        F.expr("_event_time AS event_time"),
        F.expr("_frontier AS frontier"),
        F.expr(f"to_json(STRUCT({', '.join(kept)})) AS record"),
        *ORDER,
    )


def as_released(df: DataFrame, reason: Column) -> Column:
    """A reason, and where the frontier is that of a release, that it is. Rows of which a step kept no such column have
    the reason alone.
    """
    from pyspark.sql import functions as F

    if "_is_released" not in df.columns:
        return reason
    return F.when(F.col("_is_released"), F.concat(F.lit(RELEASED), reason)).otherwise(reason)


def late_records(*parts: DataFrame) -> DataFrame:
    """The late records of several operators as the one effect that the step returns.

    Examples:
        >>> from kappa.operators import late_records
        >>> late = spark.sql(
        ...     "SELECT 'a' AS operator, 'late' AS reason, NOW() AS event_time, NOW() AS frontier, '{}' AS record, "
        ...     "NOW() AS _order_timestamp, 'ticks' AS _topic, 0 AS _partition, 7L AS _offset"
        ... )
        >>> late_records(late, late).count()
        2
    """
    whole = reduce(lambda left, right: left.unionByName(right), (part.select(*_COLUMNS) for part in parts))
    refused = _REFUSED.get()
    if refused is not None:
        refused.unions.append((whole, parts))
    return whole
