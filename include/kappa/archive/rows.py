"""Records as an archive keeps them: raw, and beside that parsed by one or more schemas; and back into a source's rows.

What comes back is what :func:`kappa.spark.parsing.parse` gives for the same records from Kafka.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kappa.spark.parsing import (
    arrow_kind,
    decoded_rows,
    event_time,
    in_order_beside,
    plain,
    quoted_names,
    state_of_value,
    typed,
)
from kappa.topology import Source
from kappa.topology.ddl import Column, literal, quote, quoted
from kappa.topology.wire_schemas import WriterSchemas

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

#: To be raised when parsing changes what it gives: rows that were parsed before are then parsed again from the raw
#: bytes.
_PARSING = 2
#: What a Delta table takes as a name of a column without further ado.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

PARTITION = Column(name="partition", type="INT", nullable=False, delta="integer")
_HEADER = {
    "type": "struct",
    "fields": [
        {"name": "key", "type": "string", "nullable": True, "metadata": {}},
        {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
    ],
}
#: Columns of an archive, besides those that are named by a schema. ``running_max_ms`` is the largest timestamp of the
#: partition within the archive's slice ``seq`` up to the record, in epoch milliseconds.
COLUMNS = (
    Column(name="seq", type="BIGINT", nullable=False, delta="long"),
    PARTITION,
    Column(name="offset", type="BIGINT", nullable=False, delta="long"),
    Column(name="timestamp", type="TIMESTAMP", nullable=False, delta="timestamp"),
    Column(name="running_max_ms", type="BIGINT", nullable=False, delta="long"),
    Column(name="key", type="BINARY", nullable=True, delta="binary"),
    Column(name="value", type="BINARY", nullable=True, delta="binary"),
    Column(
        name="headers",
        type="ARRAY<STRUCT<key: STRING, value: BINARY>>",
        nullable=True,
        delta={"type": "array", "elementType": _HEADER, "containsNull": True},
    ),
)


def schema_name(source: Source) -> str | None:
    """Name of the column in which an archive keeps a source's parsed rows: a hash of all that parsing depends on.

    None where nothing is gained or nothing can be kept: text and bytes, Avro, whose schemas an archiver does not know,
    and names of fields that Delta does not take.
    """
    if source.format != "json" or not _can_be_kept(source.columns):
        return None
    content: list[Any] = [_PARSING, [[column.name, column.type, column.nullable] for column in source.columns]]
    time = event_time(source)
    if time is not None:
        content.append([time.column, time.ahead_ms])
    return f"parsed_{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]}"


def archived_rows(raw: DataFrame, sources: Mapping[str, Source]) -> DataFrame:
    """Records in :data:`COLUMNS` without ``seq``, and for each schema a STRUCT of ``dead``, ``value`` and ``row``.

    ``dead`` STRING and ``value`` BINARY are null for a good record, else the reason and the value once more: dead
    letters are then found without reading what all others were. ``row`` holds the source's columns, all nullable.

    Args:
        raw: a Kafka source's columns with headers, read with one task for each partition.
        sources: by :func:`schema_name`.

    Raises:
        Terminal: in the job, when the offsets of a partition do not grow within a task.
    """
    from pyspark.sql import functions as F

    records = raw.select(*(F.col(name).alias(f"_{name}") for name in ("partition", "offset", "timestamp")), *_raw())
    by_arrow = {name: source for name, source in sources.items() if arrow_kind(source) is not None}
    rows = in_order_beside(records, "_raw_value", by_arrow)
    for name, source in sources.items():
        begun = rows.withColumn("_value", F.col("_raw_value"))
        if name in by_arrow:
            begun = begun.selectExpr("*", f"{name}.row.*", f"{name}.state AS _state")
        else:
            begun = begun.withColumn("_state", state_of_value())
        read = typed(begun, source, is_parsed=name in by_arrow)
        parsed = F.struct(*quoted(column.name for column in source.columns))
        rows = read.select(
            *(column for column in rows.columns if column != name),
            F.struct(F.col("_dead").alias("dead"), F.col("_value").alias("value"), parsed.alias("row")).alias(name),
        )
    columns = {
        "partition": F.col("_partition"),
        "offset": F.col("_offset"),
        "timestamp": F.col("_timestamp"),
        "running_max_ms": F.unix_millis(F.col("_order_timestamp")),
        **{name: F.col(f"_raw_{name}") for name in ("key", "value", "headers")},
        **{name: F.col(name) for name in sources},
    }
    return rows.select(*(column.alias(name) for name, column in columns.items()))


def source_rows(
    records: DataFrame, source: Source, *, is_parsed: bool, schemas: WriterSchemas | None = None
) -> DataFrame:
    """Archived records as :func:`kappa.spark.parsing.parse` gives them, and ``_seq``, the archive's slice.

    Args:
        records: rows of an archive and ``order_timestamp``, which becomes ``_order_timestamp``.
        source: how the values are read.
        is_parsed: whether each of these rows was parsed by this source's schema when it was archived; otherwise the raw
            bytes are parsed here. The result is the same.
        schemas: of Avro, the schemas that are known by their ids.
    """
    taken = [
        "TRY_VALIDATE_UTF8(CAST(key AS STRING)) AS _key",
        *(["headers AS _headers"] if source.headers else []),
        f"{literal(source.topic)} AS _topic",
        "partition AS _partition",
        "offset AS _offset",
        "timestamp AS _timestamp",
        "order_timestamp AS _order_timestamp",
        "seq AS _seq",
    ]
    if is_parsed:
        name = schema_name(source)
        columns = [f"{name}.row.{quote(column.name)} AS {quote(column.name)}" for column in source.columns]
        found = records.selectExpr(*columns, *taken, f"{name}.value AS _value", f"{name}.dead AS _dead")
        return found.selectExpr(*quoted_names(source), "_seq")
    begun = records.selectExpr(*taken, "value AS _value")
    if source.format == "avro":
        return decoded_rows(begun, source, schemas or {}).selectExpr(*quoted_names(source), "_seq")
    if source.format != "json":
        return plain(begun, source.format).selectExpr(*quoted_names(source), "_seq")
    rows = typed(begun.withColumn("_state", state_of_value()), source, is_parsed=False)
    return rows.selectExpr(*quoted_names(source), "_seq")


def _raw() -> Iterator[SparkColumn]:
    from pyspark.sql import functions as F

    for name in ("key", "value", "headers"):
        yield F.col(name).alias(f"_raw_{name}")


def _can_be_kept(columns: Iterable[Column]) -> bool:
    return all(_is_name(column.name) and _has_names(column.delta) for column in columns)


def _has_names(kind: Any) -> bool:
    """Whether the fields of a nested type can be told apart by names that a Delta table takes."""
    if not isinstance(kind, dict):
        return True
    if kind["type"] == "struct":
        names = [field["name"] for field in kind["fields"]]
        is_clear = len({name.lower() for name in names}) == len(names) and all(map(_is_name, names))
        return is_clear and all(_has_names(field["type"]) for field in kind["fields"])
    return all(_has_names(kind[part]) for part in ("elementType", "keyType", "valueType") if part in kind)


def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


__all__ = ["COLUMNS", "PARTITION", "archived_rows", "schema_name", "source_rows"]
