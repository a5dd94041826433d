"""The records of a small slice, parsed in the driver: no Python worker is started, and Spark runs one job less.

What :func:`kappa.parsing.parse` leaves to ``from_json`` is left to it here too, in a job of its own for those records only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kappa.parsing import ABSENT, NOT_UTF8, arrow_kind, parse, record_columns, required, typed
from kappa.parsing.batches import DONE, LEFT, NOT_TEXT, ordered, parsed
from kappa.topology import RECORD_COLUMNS, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def parse_rows(raw: DataFrame, source: Source, running_max: Mapping[int, int]) -> pa.Table:
    """The same rows as :func:`kappa.parsing.parse` gives, in memory, in any order.

    Args:
        raw: a Kafka source's columns, read with one task for each partition.
        source: how the values are read.
        running_max: partition -> largest timestamp before the first record, in milliseconds.

    Raises:
        Terminal: the offsets of a partition do not grow.
    """
    kind = arrow_kind(source) if source.format == "json" else None
    if kind is None:
        return parse(raw, source, running_max).toArrow()
    records = raw.select(*record_columns(raw))
    before = {partition: time * 1000 for partition, time in running_max.items()}
    rows = records.toArrow()
    batches = list(ordered(parsed(rows.to_batches(), kind, required(source)), before))
    schema = pa.schema(
        [
            *kind,
            *rows.schema,
            pa.field("_state", pa.int8()),
            pa.field("_order_timestamp", rows.schema.field("_timestamp").type),
        ]
    )
    done = pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()
    names = [*(column.name for column in source.columns), *RECORD_COLUMNS, "_value", "_dead"]
    is_left = pc.equal(done["_state"], LEFT)
    mine = _judged(done.filter(pc.invert(is_left)), source).select(names)
    left = done.filter(is_left)
    if not left.num_rows:
        return mine
    by_spark = typed(raw.sparkSession.createDataFrame(left), source, is_parsed=True).select(*names).toArrow()
    return pa.concat_tables([mine, by_spark.cast(mine.schema)])


def _judged(rows: pa.Table, source: Source) -> pa.Table:
    """The rows with ``_dead``, and ``_value`` only where that is set."""
    dead = pc.if_else(pc.equal(rows["_state"], NOT_TEXT), pa.scalar(NOT_UTF8), pa.scalar(None, pa.string()))
    is_record = pc.equal(rows["_state"], DONE)
    for name in required(source):
        is_absent = pc.and_(is_record, pc.is_null(rows[name]))
        dead = pc.coalesce(dead, pc.if_else(is_absent, pa.scalar(ABSENT.format(name)), pa.scalar(None, pa.string())))
    value = pc.if_else(pc.is_valid(dead), rows["_value"], pa.scalar(None, pa.binary()))
    return rows.set_column(rows.column_names.index("_value"), "_value", value).append_column("_dead", dead)
