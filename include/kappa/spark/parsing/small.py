"""The records of a small slice, parsed in the driver: no Python worker is started, and Spark runs one job less.

What :func:`kappa.spark.parsing.parse` leaves to ``from_json`` is left to it here too, in a job of its own for those
records only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from kappa.spark.parsing import (
    arrow_kind,
    avro,
    avro_work,
    columns_to_read,
    declared_kind,
    event_time,
    parse_counted,
    required,
    typed_rows,
)
from kappa.spark.parsing.batches import LEFT, ordered, parsed, size_of
from kappa.topology import Source
from kappa.topology.wire_schemas import WriterSchemas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Gives the schemas of ids.
LookUp = Callable[[Collection[int]], WriterSchemas]


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """Records in memory.

    Attributes:
        rows: as :func:`kappa.spark.parsing.parse` gives them, in any order.
        read: how many records there were before they were parsed.
        bytes: size of their keys and values before they were parsed.
    """

    rows: pa.Table
    read: int
    bytes: int


def parse_rows(raw: DataFrame, source: Source, running_max: Mapping[int, int], look_up: LookUp | None = None) -> Parsed:
    """The same as :func:`kappa.spark.parsing.parse`, in memory.

    Args:
        raw: a Kafka source's columns, read with one task for each partition.
        source: how the values are read.
        running_max: partition -> largest timestamp before the first record, in milliseconds.
        look_up: of Avro, gives the schemas of ids.

    Raises:
        Terminal: the offsets of a partition do not grow.
    """
    kind = arrow_kind(source) if source.format == "json" else None
    if source.format == "avro":
        kind = declared_kind(source)
    if kind is None:
        found = parse_counted(raw, source, running_max).toArrow()
        counts = found.filter(pc.is_valid(found["_read"])).select(["_read", "_bytes"]).to_pylist()
        rows = found.filter(pc.is_null(found["_read"])).drop_columns(["_read", "_bytes"])
        return Parsed(rows=rows, read=sum(row["_read"] for row in counts), bytes=sum(row["_bytes"] for row in counts))
    records = raw.select(*columns_to_read(source))
    before = {partition: time * 1000 for partition, time in running_max.items()}
    rows = records.toArrow()
    if source.format == "avro":
        assert look_up is not None
        work = avro_work(source, look_up(avro.ids_of(rows["_value"])))
        batches = list(ordered(work(rows.to_batches()), before))
    else:
        batches = list(ordered(parsed(rows.to_batches(), kind, required(source), event_time(source)), before))
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
    if left.num_rows:
        mine = pa.concat_tables([mine, typed_rows(raw.sparkSession, left, source).cast(mine.schema)])
    return Parsed(rows=mine, read=rows.num_rows, bytes=size_of(rows))
