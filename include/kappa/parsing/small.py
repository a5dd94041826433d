"""The records of a small slice, parsed in the driver: no Python worker is started, and Spark runs one job less.

What :func:`kappa.parsing.parse` leaves to ``from_json`` is left to it here too, in a job of its own for those records only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kappa.parsing import arrow_kind, columns_to_read, parse, required, typed_rows
from kappa.parsing.batches import LEFT, ordered, parsed
from kappa.topology import Source

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
    records = raw.select(*columns_to_read(source))
    before = {partition: time * 1000 for partition, time in running_max.items()}
    rows = records.toArrow()
    batches = list(ordered(parsed(rows.to_batches(), kind, required(source)), before))
    schema = pa.schema(
        [
            *kind,
            *rows.schema,
            pa.field("_state", pa.int8()),
            pa.field("_dead", pa.string()),
            pa.field("_order_timestamp", rows.schema.field("_timestamp").type),
        ]
    )
    done = pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()
    done = done.append_column("_topic", pa.repeat(pa.scalar(source.topic), done.num_rows))
    names = [*source.row_columns, "_value", "_dead"]
    is_left = pc.equal(done["_state"], LEFT)
    mine, left = done.filter(pc.invert(is_left)).select(names), done.filter(is_left)
    if not left.num_rows:
        return mine
    return pa.concat_tables([mine, typed_rows(raw.sparkSession, left, source).cast(mine.schema)])
