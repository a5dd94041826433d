"""Each way in which records of a log become rows; what they give has to be the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kappa.wire.batches import Start
from kappa.wire.parsing import columns_to_read, frame_of_records, layout_of, rows_of_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kappa.topology import Source
    from kappa.topology.schemas.wire_schemas import WriterSchemas

#: Records, their source, running maxima before them in milliseconds, and schemas -> good rows and dead letters.
Way = Callable[..., "DataFrame"]


def in_tasks(
    raw: DataFrame, source: Source, before: Mapping[int, int] | None = None, schemas: WriterSchemas | None = None
) -> DataFrame:
    """Rows that tasks of Spark parse."""
    rows = frame_of_records(raw, layout_of(source, schemas), Start(timestamps=before or {}))
    return rows.where("_read IS NULL").drop("_read", "_bytes")


def in_memory(
    raw: DataFrame, source: Source, before: Mapping[int, int] | None = None, schemas: WriterSchemas | None = None
) -> DataFrame:
    """Rows that are parsed in the driver's memory."""
    records = raw.select(*columns_to_read(source)).toArrow()
    parsed = rows_of_records(records, layout_of(source, schemas), Start(timestamps=before or {}))
    return raw.sparkSession.createDataFrame(parsed.rows)


WAYS: dict[str, Way] = {"in tasks": in_tasks, "in memory": in_memory}
