"""Records of a Kafka topic as rows: typed columns, record metadata, event time, and the reasons of dead letters.

Records become rows in Arrow batches, whatever their format (:mod:`kappa.wire.decoders`): in tasks of Spark if there are
many, and in the driver's memory if there are few. Both ways give the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from kappa.topology import Source
from kappa.topology.ddl import Column, ddl_of, quoted
from kappa.topology.members import RECORD_COLUMNS
from kappa.topology.schemas.envelopes import CHANGE_COLUMNS
from kappa.topology.schemas.wire_schemas import BY_SCHEMA_ID, WriterSchema, WriterSchemas
from kappa.topology.times.event_time import EVENT_COLUMNS
from kappa.wire import avro
from kappa.wire.batches import Layout, Start, beside, counted, placed, reader, size_of
from kappa.wire.running_times import StreamTime

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField, StructType

#: Function that gives the known schemas, and those of these ids.
LookUp = Callable[[Collection[int]], WriterSchemas]


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """Records in memory.

    Attributes:
        rows: the columns of :func:`row_columns`, ``_value`` and ``_dead``.
        read: number of records before parsing.
        bytes: size of their keys and values before parsing.
        stream_times: partition -> stream time after the last record, epoch milliseconds; for sources with event time.
    """

    rows: pa.Table
    read: int
    bytes: int
    stream_times: dict[int, int]


def layout_of(source: Source, schemas: WriterSchemas | None = None) -> Layout:
    """The layout of a source's records; needs a Spark session, which knows its types.

    Args:
        schemas: for formats with schema ids, the known schemas.
    """
    return Layout(
        source=source,
        kind=_kind(source.columns),
        value_kind=_kind(source.value_columns),
        key_kind=_kind(source.key_columns),
        schemas=schemas or {},
    )


def row_columns(source: Source) -> list[str]:
    """All columns of a source's rows, including those of event time."""
    return [*source.row_columns, *(EVENT_COLUMNS if source.has_event_time else ())]


def frame_of_records(raw: DataFrame, layout: Layout, start: Start) -> DataFrame:
    """The rows of a source, parsed in tasks of Spark: :func:`row_columns`, ``_value`` and ``_dead``, and one row per
    task with its number of records (:func:`~kappa.wire.batches.counted`).

    Args:
        raw: columns of a Kafka source, read with one task per partition.
        layout: how keys and values are read.
        start: where the source stands before the first record.

    Raises:
        Terminal: in the job, if the offsets of a partition do not grow within a task.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    source = layout.source

    def batches(source_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return counted(source_batches, lambda read: placed(read, layout, start))

    timed = f", {_ddl(EVENT_COLUMNS)}" if source.has_event_time else ""
    added = f"_dead STRING, _order_timestamp TIMESTAMP{timed}, _read BIGINT, _bytes BIGINT"
    records = raw.select(*columns_to_read(source))
    rows = records.mapInArrow(batches, StructType([*_parsed_fields(records, source), *_fields(added)]))
    names = [*quoted(row_columns(source)), "_value", "_dead", "_read", "_bytes"]
    return rows.withColumn("_topic", F.lit(source.topic)).select(*names)


def rows_of_records(records: pa.Table, layout: Layout, start: Start) -> Parsed:
    """The same rows in memory: no Python worker is started, and Spark runs one job fewer.

    Args:
        records: the columns of :func:`columns_to_read`; those of each partition in the order of their offsets.
        layout: how keys and values are read.
        start: where the source stands before the first record.

    Raises:
        Terminal: the offsets of a partition do not grow.
    """
    import pyarrow as pa

    source = layout.source
    stream = StreamTime(start.stream_times, start.released)
    is_timed = source.has_event_time
    batches = records.to_batches() or [pa.RecordBatch.from_pylist([], schema=records.schema)]
    rows = pa.Table.from_batches(list(placed(batches, layout, start, stream if is_timed else None)))
    rows = rows.append_column("_topic", pa.repeat(pa.scalar(source.topic), rows.num_rows))
    return Parsed(
        rows=rows.select([*row_columns(source), "_value", "_dead"]),
        read=records.num_rows,
        bytes=size_of(records),
        stream_times=stream.reached() if is_timed else {},
    )


def unordered(records: DataFrame, layout: Layout) -> DataFrame:
    """Records in any order as rows: the source's columns, those of the records, and ``_dead``, without event time.

    Args:
        records: records with ``_key`` and ``_value`` BINARY, ``_timestamp``, and any columns to keep.
        layout: how keys and values are read.
    """
    from pyspark.sql.types import StructType

    columns = [*_parsed_fields(records, layout.source), *_fields("_dead STRING")]
    return records.mapInArrow(lambda read: map(reader(layout), read), StructType(columns))


def parsed_beside(records: DataFrame, layouts: Mapping[str, Layout]) -> DataFrame:
    """Records as they are, with ``_order_timestamp``, and the results of layouts, a STRUCT for each
    (:func:`~kappa.wire.batches.beside`).

    Args:
        records: records with ``_key`` and ``_value`` BINARY, ``_partition``, ``_offset`` and ``_timestamp``, one task
            per partition.
        layouts: the layouts by the name of the STRUCT.
    """
    from pyspark.sql.types import StructType

    added = ["_order_timestamp TIMESTAMP"]
    for name, layout in layouts.items():
        tombstone = ", tombstone: BOOLEAN" if layout.source.tombstones else ""
        row = nullable_ddl(layout.source.columns)
        added.append(f"{name} STRUCT<dead: STRING, value: BINARY{tombstone}, row: STRUCT<{row}>>")
    columns = [*records.schema, *_fields(", ".join(added))]
    return records.mapInArrow(lambda batches: beside(batches, layouts), StructType(columns))


def columns_to_read(*sources: Source) -> list[SparkColumn]:
    """The columns of Kafka to read: all that one of these sources needs."""
    from pyspark.sql import functions as F

    has_headers = any(source.headers for source in sources)
    names = ["key", *(["headers"] if has_headers else []), "partition", "offset", "timestamp", "value"]
    return [F.col(name).alias(f"_{name}") for name in names]


def nullable_ddl(columns: Iterable[Column]) -> str:
    """Columns as Spark DDL, each of which may be null."""
    return ddl_of(replace(column, nullable=True) for column in columns)


def ids_of(records: pa.Table, source: Source) -> set[int]:
    """Ids of the schemas of records in memory."""
    ids = avro.ids_of(records["_value"]) if source.format in BY_SCHEMA_ID else set()
    return ids | (avro.ids_of(records["_key"]) if source.key_format in BY_SCHEMA_ID else set())


def resolved(source: Source, rows: Callable[[WriterSchemas], DataFrame], look_up: LookUp) -> DataFrame:
    """Rows that are made with the schemas of their records, persisted; they are made again if a schema was not known
    yet.

    Args:
        source: how keys and values are read.
        rows: function that makes them.
        look_up: function that gives the known schemas, and those of these ids.
    """
    from pyspark.sql import functions as F

    if not source.has_schema_ids:
        return rows({}).persist()
    schemas: dict[int, WriterSchema | None] = dict(look_up(()))
    while True:
        frame = rows(schemas).persist()
        reasons = frame.where(F.col("_dead").startswith(avro.UNRESOLVED)).select("_dead").distinct().toArrow()
        ids = avro.unresolved_ids(reasons["_dead"].to_pylist())
        if not ids:
            return frame
        frame.unpersist()
        schemas.update(look_up(ids))


def _parsed_fields(records: DataFrame, source: Source) -> list[StructField]:
    """The columns of :func:`~kappa.wire.batches.reader`, except ``_dead``; all nullable, because the row with the count
    has none of them.
    """
    from pyspark.sql.types import StringType, StructField

    kinds = {field.name: StringType() if field.name == "_key" else field.dataType for field in records.schema}
    tombstone = f"_tombstone {RECORD_COLUMNS['_tombstone']}"
    return [
        *(_fields(nullable_ddl(source.columns)) if source.columns else ()),
        *(StructField(name, kind) for name, kind in kinds.items()),
        *(_fields(tombstone) if source.tombstones else ()),
        *(_fields(_ddl(CHANGE_COLUMNS)) if source.envelope != "none" else ()),
    ]


def _kind(columns: Iterable[Column]) -> pa.StructType:
    """Columns as Arrow types, all nullable."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    ddl = nullable_ddl(columns)
    return pa.struct(list(to_arrow_schema(_fields(ddl), timezone="UTC")) if ddl else [])


def _ddl(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


@lru_cache(maxsize=64)
def _fields(ddl: str) -> StructType:
    from pyspark.sql.types import StructType

    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema
