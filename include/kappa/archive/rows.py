"""Records as an archive keeps them: raw, and beside that parsed by one or more schemas; and back into a source's rows.

What comes back is what :mod:`kappa.wire.parsing` gives for the same records from Kafka.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kappa.topology import Source
from kappa.topology.ddl import Column, literal, quote, quoted
from kappa.topology.members import RECORD_COLUMNS
from kappa.topology.schemas.wire_schemas import WriterSchemas
from kappa.wire.batches import Aside
from kappa.wire.parsing import layout_of, parsed_beside, unordered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: To be raised when parsing changes what it gives: rows that were parsed before are then parsed again from the raw
#: bytes.
_PARSING = 4
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

    None where nothing is gained or nothing can be kept: text and bytes, formats with ids of schemas, which an archiver
    does not know, records of changes, and names of fields that Delta does not take.
    """
    is_plain = source.format == "json" and not source.has_schema_ids and source.envelope == "none"
    if not is_plain or not _can_be_kept(source.columns):
        return None
    content: list[Any] = [_PARSING, [[column.name, column.type, column.nullable] for column in source.columns]]
    content.append([source.key_schema, source.key_format, source.tombstones, source.timestamps])
    if source.has_event_time and source.time is not None and not source.is_wall_clock:
        content.append([source.time, source.ahead_ms])
    return f"parsed_{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]}"


def archived_rows(raw: DataFrame, sources: Mapping[str, Source]) -> DataFrame:
    """Records in :data:`COLUMNS` without ``seq``, and for each schema a STRUCT of ``dead``, ``value`` and ``row``.

    ``dead`` STRING and ``value`` BINARY are null for a good record, else the reason and the value once more: dead
    letters are then read without reading what all others were. ``row`` holds the source's columns, all nullable.
    ``tombstone`` BOOLEAN stands beside them where the source asks for tombstones.

    Args:
        raw: a Kafka source's columns with headers, read with one task for each partition.
        sources: by :func:`schema_name`.

    Raises:
        Terminal: in the job, when the offsets of a partition do not grow within a task.
    """
    from pyspark.sql import functions as F

    names = ("partition", "offset", "timestamp", "key", "value", "headers")
    records = raw.select(*(F.col(name).alias(f"_{name}") for name in names))
    rows = parsed_beside(records, {name: layout_of(source) for name, source in sources.items()})
    running = F.unix_millis(F.col("_order_timestamp")).alias("running_max_ms")
    return rows.select(*(F.col(f"_{name}").alias(name) for name in names), running, *sources)


def source_rows(
    records: DataFrame,
    source: Source,
    *,
    is_parsed: bool,
    schemas: WriterSchemas | None = None,
    aside: Aside | None = None,
) -> DataFrame:
    """Archived records as rows: the source's columns, those of the records, ``_value`` and ``_dead``, and ``_seq``, the
    archive's slice; no event time.

    Args:
        records: rows of an archive and ``order_timestamp``, which becomes ``_order_timestamp``.
        source: how the values are read.
        is_parsed: whether each of these rows was parsed by this source's schema when it was archived; otherwise the raw
            bytes are parsed here. The result is the same.
        schemas: of Avro, the schemas that are known by their ids.
        aside: records that are dead letters by a decision.
    """
    why = _reason_sql(aside or {})
    record_columns = [
        *(["headers AS _headers"] if source.headers else []),
        f"{literal(source.topic)} AS _topic",
        "partition AS _partition",
        "offset AS _offset",
        "timestamp AS _timestamp",
        "order_timestamp AS _order_timestamp",
        "seq AS _seq",
    ]
    names = [*quoted(source.row_columns), "_value", "_dead", "_seq"]
    if aside:
        record_columns.append("value AS _raw")
        names[-3:-1] = [f"IF({why} IS NULL, _value, _raw) AS _value", f"COALESCE({why}, _dead) AS _dead"]
    if not is_parsed:
        raw = records.selectExpr("key AS _key", *record_columns, "value AS _value")
        return unordered(raw, layout_of(source, schemas)).selectExpr(*names)
    name = schema_name(source)
    columns = [f"{name}.row.{quote(column.name)} AS {quote(column.name)}" for column in source.columns]
    if source.tombstones:
        columns.append(f"CAST({name}.tombstone AS {RECORD_COLUMNS['_tombstone']}) AS _tombstone")
    key = "TRY_VALIDATE_UTF8(CAST(key AS STRING)) AS _key"
    return records.selectExpr(
        *columns, key, *record_columns, f"{name}.value AS _value", f"{name}.dead AS _dead"
    ).selectExpr(*names)


def _reason_sql(aside: Aside) -> str:
    """Why a record is set aside, by its place; null where it is not."""
    by_reason: dict[tuple[int, str], list[int]] = {}
    for partition, offsets in aside.items():
        for offset, why in offsets.items():
            by_reason.setdefault((partition, why), []).append(offset)
    cases = (
        f"WHEN _partition = {partition} AND _offset IN ({', '.join(map(str, offsets))}) THEN {literal(why)}"
        for (partition, why), offsets in by_reason.items()
    )
    return f"CASE {' '.join(cases)} END" if by_reason else "CAST(NULL AS STRING)"


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
