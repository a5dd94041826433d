"""Records that an operator refused because they came too late."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from kappa.topology import ORDER, RECORD_COLUMNS
from kappa.topology.ddl import quoted
from kappa.topology.reserved import is_reserved

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: SQL: whether an operator that refuses records by their own time refuses one, and whether it accepts it.
IS_LATE = "(_event_time < _frontier)"
IS_IN_TIME = "(_frontier IS NULL OR _event_time >= _frontier)"
#: Beginning of the reason for a record that is late by the release of an idle or added partition.
RELEASED = "released: "


_COLUMNS = ("operator", "reason", "event_time", "frontier", "record", *ORDER)


def late_rows(df: DataFrame, *, operator: str, reason: str) -> DataFrame:
    """Refused rows in the form of the output ``late_records``.

    Args:
        df: the rows, with ``_event_time``, ``_frontier`` and the order columns. Other columns with names of the
            platform are dropped.
        operator: the operator, for people.
        reason: why it refused them, for people. It begins with ``released: `` if the frontier comes from a release of
            the partition: without the release, the record would have been compared with an earlier time.
    """
    from pyspark.sql import functions as F

    columns = quoted(name for name in df.columns if not is_reserved(name))
    return df.select(
        F.lit(operator).alias("operator"),
        as_released(df, F.lit(reason)).alias("reason"),
        F.expr("_event_time AS event_time"),
        F.expr("_frontier AS frontier"),
        F.expr(f"to_json(STRUCT({', '.join(columns)})) AS record"),
        *ORDER,
    )


def no_late_records(df: DataFrame) -> DataFrame:
    """An empty set of late records, for topologies whose operators refuse none. ``df`` gives the session."""
    no_rows = df.sparkSession.range(0)
    schema = {"operator": "STRING", "reason": "STRING", "event_time": "TIMESTAMP", "frontier": "TIMESTAMP"}
    columns = {**schema, "record": "STRING", **{name: RECORD_COLUMNS[name] for name in ORDER}}
    return no_rows.selectExpr(*(f"CAST(NULL AS {kind}) AS {name}" for name, kind in columns.items()))


def no_late_rows(df: DataFrame, *, operator: str) -> DataFrame:
    """The late records of an operator that refuses nothing."""
    return late_rows(df.where("FALSE"), operator=operator, reason="")


def as_released(df: DataFrame, reason: Column) -> Column:
    """A reason, with a note if the frontier comes from a release. Rows for which a step did not keep that column have
    the reason alone.
    """
    from pyspark.sql import functions as F

    if "_is_released" not in df.columns:
        return reason
    return F.when(F.col("_is_released"), F.concat(F.lit(RELEASED), reason)).otherwise(reason)


def late_records(*parts: DataFrame) -> DataFrame:
    """The late records of several operators, or of both sides of a join, as one."""
    return reduce(lambda left, right: left.unionByName(right), (part.select(*_COLUMNS) for part in parts))
