"""Records of a Kafka topic as rows: typed columns, record metadata, and the reason of those that do not parse.

JSON is read as Spark's ``from_json`` reads it, record by record, but mostly in Arrow (``json_lines``), which is faster.
Avro is read in Arrow batches alone (``avro``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from kappa.spark.parsing.batches import (
    ABSENT,
    EARLIEST_MS,
    LEFT,
    NO_TIME,
    NOT_TEXT,
    NOT_UTF8,
    TOMBSTONE,
    TOO_FAR,
    EventTime,
    counted,
    ordered,
    parsed,
    parsed_avro,
    parsed_beside,
)
from kappa.spark.parsing.decimals import is_endless
from kappa.spark.parsing.json_lines import is_exact
from kappa.spark.parsing.trailing import has_more
from kappa.topology import Source
from kappa.topology.ddl import Column, ddl_of, quote, quoted
from kappa.topology.wire_schemas import WriterSchemas

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

#: What is done to the record batches of a task.
Work = Callable[["Iterable[pa.RecordBatch]"], "Iterator[pa.RecordBatch]"]

_CORRUPT = "_kappa_corrupt"
#: What :func:`counted` adds.
_COUNTS = ", _read BIGINT, _bytes BIGINT"


def parse(
    raw: DataFrame,
    source: Source,
    running_max: Mapping[int, int],
    *,
    in_arrow: bool = True,
    schemas: WriterSchemas | None = None,
) -> DataFrame:
    """The records of a source: its columns, its ``record_columns``, ``_value`` and ``_dead``.

    ``_dead`` STRING is null for a good record, else the reason, which never holds the value. ``_value`` BINARY is null
    for a good record, else the value. The source's columns of a dead letter mean nothing. In detail:

    * A null value is a good record whose columns are null, ``NOT NULL`` ones too: it deletes its key.
    * JSON is read as by ``from_json`` in ``PERMISSIVE`` mode: names count case; unknown fields are ignored. Dead: no
      UTF-8, empty, no object at the top, anything but white space behind it, 1000 levels of nesting, a field of another
      type, a ``NOT NULL`` column null or absent, an event time that is null or too far ahead, and a DECIMAL with an
      exponent of five digits, which ``from_json`` would take hours over. ``NOT NULL`` inside a struct is not checked.
    * Avro is decoded with the schema whose id it begins with, as :mod:`kappa.spark.parsing.avro` says. Dead: another
      beginning, an id that is in no registry, a value that its schema does not decode, or that does not fit the
      columns.
    * Text is dead when it is no UTF-8.
    * ``_key`` is null when the key is no UTF-8.
    * ``_order_timestamp`` is the largest ``_timestamp`` of the partition up to this record, or that of ``running_max``.

    Args:
        raw: a Kafka source's columns, read with one task for each partition.
        source: how the values are read.
        running_max: partition -> largest timestamp before the first record, in milliseconds; absent where there is
            none.
        in_arrow: False leaves all JSON to ``from_json``; the result is the same.
        schemas: of Avro, the schemas that are known by their ids.

    Raises:
        Terminal: in the job, when the offsets of a partition do not grow within a task.
    """
    rows = parse_counted(raw, source, running_max, in_arrow=in_arrow, schemas=schemas)
    return rows.where("_read IS NULL").drop("_read", "_bytes")


def parse_counted(
    raw: DataFrame,
    source: Source,
    running_max: Mapping[int, int],
    *,
    in_arrow: bool = True,
    schemas: WriterSchemas | None = None,
) -> DataFrame:
    """The rows of :func:`parse`, and one for each task with its number of records.

    See :func:`~kappa.spark.parsing.batches.counted`.
    """
    from pyspark.sql import functions as F

    before = {partition: time * 1000 for partition, time in running_max.items()}
    records = raw.select(*columns_to_read(source))
    kind = arrow_kind(source) if in_arrow and source.format == "json" else None
    if source.format == "avro":
        rows = _in_arrow(records, source, avro_work(source, schemas or {}), before)
    elif kind is not None:
        rows = typed(_parsed(records, source, kind, before).drop("_dead"), source, is_parsed=True)
    elif source.format == "json":
        read = _in_order(records, before)
        rows = typed(read.withColumn("_state", state_of_value()), source, is_parsed=False)
    else:
        rows = plain(_in_order(records, before), source.format)
    return rows.withColumn("_topic", F.lit(source.topic)).select(*quoted_names(source), "_read", "_bytes")


def parse_in_arrow(raw: DataFrame, source: Source, running_max: Mapping[int, int]) -> DataFrame | None:
    """The rows of :func:`parse_counted` and ``_state``.

    Where that is ``LEFT`` nothing is known yet: :func:`typed_rows` goes on with those.

    Returns:
        None when the source has nothing that is parsed in Arrow.
    """
    from pyspark.sql import functions as F

    kind = arrow_kind(source) if source.format == "json" else None
    if kind is None:
        return None
    before = {partition: time * 1000 for partition, time in running_max.items()}
    rows = _parsed(raw.select(*columns_to_read(source)), source, kind, before)
    return rows.withColumn("_topic", F.lit(source.topic)).select(*quoted_names(source), "_state", "_read", "_bytes")


def typed_rows(session: SparkSession, left: pa.Table, source: Source) -> pa.Table:
    """The rows that :func:`parse_in_arrow` left, with their columns and ``_dead``, by ``from_json``."""
    return (
        typed(session.createDataFrame(left.drop_columns("_dead")), source, is_parsed=True)
        .select(*quoted_names(source))
        .toArrow()
    )


def quoted_names(source: Source) -> list[str]:
    """The columns that :func:`parse` gives, as SQL takes their names."""
    return [*quoted(column.name for column in source.columns), *source.record_columns, "_value", "_dead"]


def columns_to_read(source: Source) -> list[SparkColumn]:
    """What is taken from Kafka's columns: ``_value`` and those ``record_columns`` that are not added later."""
    from pyspark.sql import functions as F

    return [
        F.expr("try_validate_utf8(CAST(key AS STRING)) AS _key"),
        *([F.col("headers").alias("_headers")] if source.headers else []),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
        F.col("value").alias("_value"),
    ]


def required(source: Source) -> tuple[str, ...]:
    """Columns that a record must have."""
    return tuple(column.name for column in source.columns if not column.nullable)


def plain(records: DataFrame, kind: str) -> DataFrame:
    """Text or bytes in the column ``value``."""
    if kind == "bytes":
        return records.selectExpr(
            "* EXCEPT (_value)", "_value AS value", "CAST(NULL AS BINARY) AS _value", "CAST(NULL AS STRING) AS _dead"
        )
    is_broken = "NOT is_valid_utf8(CAST(_value AS STRING))"
    return records.selectExpr(
        "* EXCEPT (_value)",
        "try_validate_utf8(CAST(_value AS STRING)) AS value",
        f"IF({is_broken}, _value, NULL) AS _value",
        f"IF({is_broken}, '{NOT_UTF8}', NULL) AS _dead",
    )


def typed(records: DataFrame, source: Source, *, is_parsed: bool) -> DataFrame:
    """The source's columns, ``_dead`` and the ``_value`` of dead letters; by ``from_json`` where ``_state`` is left."""
    from pyspark.sql import functions as F

    wanted = ddl_of(_nullable(source))
    is_left = F.col("_state") == LEFT
    text = F.when(is_left, F.col("_value").cast("string"))
    marked = records.withColumn("_endless", is_endless(text, _fields(wanted)))
    by_json = F.from_json(
        F.when(~F.col("_endless"), text), f"{wanted}, {_CORRUPT} STRING", {"columnNameOfCorruptRecord": _CORRUPT}
    )
    read = marked.withColumn("_json", by_json).withColumn("_more", has_more(F.when(~F.col("_endless"), text)))
    by_spark = {column.name: F.col("_json").getField(column.name) for column in source.columns}
    rows = read.select(
        *(
            F.when(is_left, json).otherwise(F.col(quote(name)) if is_parsed else None).alias(name)
            for name, json in by_spark.items()
        ),
        *(name for name in records.columns if name not in by_spark),
        _reason(is_left, text).alias("_dead"),
    )
    lacking = (_absent(column.name) for column in source.columns if not column.nullable)
    absent = F.coalesce(F.col("_dead"), *lacking, *_untimely(source))
    return rows.withColumn("_dead", F.when(F.col("_state") != TOMBSTONE, absent)).withColumn(
        "_value", F.when(F.col("_dead").isNotNull(), F.col("_value"))
    )


def _reason(is_left: SparkColumn, text: SparkColumn) -> SparkColumn:
    from pyspark.sql import functions as F

    start = F.ltrim(text, F.lit(" \t\r\n"))
    is_corrupt = is_left & (F.col("_endless") | F.col("_json").getField(_CORRUPT).isNotNull())
    return (
        F.when(F.col("_state") == NOT_TEXT, NOT_UTF8)
        .when(is_left & (start == ""), "the value is empty")
        .when(is_left & ~start.startswith("{"), "the value is not a JSON object")
        .when(is_corrupt & F.try_parse_json(text).isNull(), "the value is not JSON")
        .when(F.col("_endless"), "a number of the value is out of range, or a field has another type")
        .when(is_corrupt, "a field of the value has another type")
        .when(is_left & F.col("_more"), "text follows the JSON object")
    )


def _absent(name: str) -> SparkColumn:
    from pyspark.sql import functions as F

    return F.when(F.col(quote(name)).isNull(), ABSENT.format(name))


def _untimely(source: Source) -> Iterator[SparkColumn]:
    """Why the event time of a record makes it a dead letter, where a column holds it."""
    from pyspark.sql import functions as F

    time = event_time(source)
    if time is None:
        return
    own = F.col(quote(time.column))
    kinds = {column.name: column.type for column in source.columns}
    millis = F.unix_millis(own) if kinds[time.column] == "TIMESTAMP" else own
    latest = F.unix_millis(F.col("_timestamp")) + F.lit(time.ahead_ms)
    yield F.when(own.isNull(), NO_TIME.format(time.column))
    yield F.when((millis > latest) | (millis < EARLIEST_MS), TOO_FAR.format(time.column))


def event_time(source: Source) -> EventTime | None:
    """The column of the event time; None where Kafka's timestamp is the time, or there is none."""
    if source.grace is None or source.time is None or source.is_wall_clock:
        return None
    return EventTime(column=source.time, ahead_ms=source.ahead_ms)


def state_of_value() -> SparkColumn:
    """What ``_value`` is before it is parsed: a tombstone, left for ``from_json``, or not text."""
    from pyspark.sql import functions as F

    value = F.col("_value")
    return (
        F.when(value.isNull(), TOMBSTONE)
        .when(F.is_valid_utf8(value.cast("string")), LEFT)
        .otherwise(NOT_TEXT)
        .cast("tinyint")
    )


def _in_order(records: DataFrame, before: Mapping[int, int]) -> DataFrame:
    """The records with ``_order_timestamp``, counted; see :func:`kappa.spark.parsing.batches.ordered`, also for
    ``before``, and :func:`~kappa.spark.parsing.batches.counted`.
    """
    from pyspark.sql.types import StructType

    def batches(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return counted(given, lambda read: ordered(read, before))

    return records.mapInArrow(batches, StructType([*_loose(records), *_fields(f"_order_timestamp TIMESTAMP{_COUNTS}")]))


def in_order_beside(records: DataFrame, values: str, sources: Mapping[str, Source]) -> DataFrame:
    """The records with ``_order_timestamp``, and a STRUCT of ``row`` and ``state`` for each source.

    ``row`` holds the source's columns as Arrow reads them; null where ``state`` is ``LEFT``.

    Args:
        records: with columns ``_partition``, ``_offset`` and ``_timestamp``, one task for each partition.
        values: the column that holds the values.
        sources: name of the STRUCT -> a source that has an :func:`arrow_kind`.
    """
    from pyspark.sql.types import StructType

    kinds = {name: declared_kind(source) for name, source in sources.items()}

    def batches(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return parsed_beside(ordered(given, {}), values, kinds)

    rows = {name: ddl_of(_nullable(source)) for name, source in sources.items()}
    added = [f"{name} STRUCT<row: STRUCT<{row}>, state: TINYINT>" for name, row in rows.items()]
    fields = _fields(", ".join(["_order_timestamp TIMESTAMP", *added]))
    return records.mapInArrow(batches, StructType([*_loose(records), *fields]))


def decoded_rows(records: DataFrame, source: Source, schemas: WriterSchemas) -> DataFrame:
    """The columns of Avro values in front of those of the records, and ``_dead``; ``_value`` of dead letters only."""
    from pyspark.sql.types import StructType

    work = avro_work(source, schemas)
    columns = [*_fields(ddl_of(_nullable(source))), *_loose(records), *_fields("_state TINYINT, _dead STRING")]
    return records.mapInArrow(work, StructType(columns)).drop("_state")


def avro_work(source: Source, schemas: WriterSchemas) -> Work:
    """What decodes the Avro values of record batches."""
    kind, needed, time = declared_kind(source), required(source), event_time(source)
    return lambda read: parsed_avro(read, kind, needed, time, schemas)


def _parsed(records: DataFrame, source: Source, kind: pa.StructType, before: Mapping[int, int]) -> DataFrame:
    needed, time = required(source), event_time(source)
    return _in_arrow(records, source, lambda read: parsed(read, kind, needed, time), before)


def _in_arrow(records: DataFrame, source: Source, work: Work, before: Mapping[int, int]) -> DataFrame:
    from pyspark.sql.types import StructType

    def batches(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return counted(given, lambda read: ordered(work(read), before))

    columns = [
        *_fields(ddl_of(_nullable(source))),
        *_loose(records),
        *_fields(f"_state TINYINT, _dead STRING, _order_timestamp TIMESTAMP{_COUNTS}"),
    ]
    return records.mapInArrow(batches, StructType(columns))


def _loose(records: DataFrame) -> list[StructField]:
    """The columns, all nullable: the row that tells the count has none of them."""
    from pyspark.sql.types import StructField

    return [StructField(field.name, field.dataType) for field in records.schema]


def arrow_kind(source: Source) -> pa.StructType | None:
    """The source's columns as Arrow reads JSON; None when one has a type that only Spark reads."""
    kind = declared_kind(source)
    return kind if is_exact(kind) else None


def declared_kind(source: Source) -> pa.StructType:
    """The source's columns as Arrow has them, all nullable."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    return pa.struct(list(to_arrow_schema(_fields(ddl_of(_nullable(source))), timezone="UTC")))


def _nullable(source: Source) -> list[Column]:
    return [replace(column, nullable=True) for column in source.columns]


@lru_cache(maxsize=64)
def _fields(ddl: str) -> StructType:
    from pyspark.sql.types import StructType

    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found
