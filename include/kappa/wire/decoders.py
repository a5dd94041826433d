"""The content of a record's key and value, by the format of its source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kappa.errors import TopologyError
from kappa.topology.schemas.wire_schemas import WriterSchemas
from kappa.wire import avro
from kappa.wire.debezium import debezium_avro, debezium_json_schema, debezium_records
from kappa.wire.debezium.debezium_values import Forms
from kappa.wire.json import json_keys, json_schema_values, json_values
from kappa.wire.json.json_converter import converted

if TYPE_CHECKING:
    from kappa.topology import Source

#: Keys or values -> a row for each, and the reasons of dead letters, whose rows are null.
Decode = Callable[[pa.BinaryArray], "tuple[pa.StructArray, pa.StringArray]"]

#: Reasons of dead letters.
NOT_UTF8 = "the value is not UTF-8"
UNFIT_KEY = "the key is not {}"
#: Sizes of numbers that Kafka's serializers write.
_BYTES = {"int": 4, "long": 8}


def decoder(source: Source, kind: pa.StructType, schemas: WriterSchemas) -> Decode:
    """The decoder of a source's values.

    Args:
        source: the source, which names the format.
        kind: the columns of its values, all nullable.
        schemas: for formats with schema ids, the known schemas.
    """
    if source.envelope != "none":
        return _changes(kind, source, schemas)
    if source.format == "avro":
        return _avro(kind, schemas, records=source.record, defaults=_defaults(source, kind))
    if source.format == "json_schema":
        return partial(_wire_json, kind=kind, source=source, schemas=schemas)
    if source.format == "json":
        return partial(_plain_json, kind=kind, source=source)
    return partial(_text, kind=kind) if source.format == "string" else partial(_bytes, kind=kind)


def key_decoder(source: Source, kind: pa.StructType, schemas: WriterSchemas) -> Decode | None:
    """The decoder of a source's keys; None if the source names no key columns."""
    if not source.key_schema:
        return None
    of_json = partial(json_keys.of_json, kind=kind, timestamps=source.timestamps)
    if source.envelope != "none":
        read = _in_envelope(debezium_records.decoded_keys, source.key_format, kind, source, schemas)
    elif source.key_format == "avro":
        read = _avro(kind, schemas, is_key=True)
    elif source.key_format == "json_schema":
        read = partial(json_schema_values.decoded, schemas=schemas, decode=of_json)
    elif source.key_format == "json":
        read = of_json
    elif source.key_format == "text":
        read = partial(_text_key, kind=kind, source=source)
    else:
        read = partial(_number, kind=kind, size=_BYTES[source.key_format])
    return partial(_of_key, read=read)


def _changes(kind: pa.StructType, source: Source, schemas: WriterSchemas) -> Decode:
    """The decoder of change records: the columns of the row, and those of the change."""
    return _in_envelope(debezium_records.decoded, source.format, kind, source, schemas)


def _in_envelope(
    read: Callable[..., Any], format: str, kind: pa.StructType, source: Source, schemas: WriterSchemas
) -> Decode:
    of: Callable[[bytes], Any] = debezium_records.unwrapped
    if format == "avro":
        of = partial(debezium_avro.datum, writers_by_id=debezium_avro.writers(schemas))
    elif format == "json_schema":
        of = partial(debezium_json_schema.datum, writers_by_id=debezium_json_schema.writers(schemas))
    return partial(read, kind=kind, forms=_forms(source), read=of)


def _forms(source: Source) -> Forms:
    return Forms(decimals=source.decimals, timestamps=source.timestamps)


def texts(values: pa.BinaryArray) -> pa.StringArray:
    """Bytes as UTF-8 text, null if they are not valid."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_utf8(value) for value in values.to_pylist()], pa.string())


def _utf8(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _avro(
    kind: pa.StructType,
    schemas: WriterSchemas,
    *,
    records: Sequence[str] = (),
    defaults: Mapping[str, Any] | None = None,
    is_key: bool = False,
) -> Decode:
    readers = avro.readers(schemas, kind, records=records, defaults=defaults, is_key=is_key)

    def read(values: pa.BinaryArray) -> tuple[pa.StructArray, pa.StringArray]:
        rows, reasons = avro.decoded(values, kind, readers)
        return rows, pa.array(reasons, pa.string())

    return read


def _defaults(source: Source, kind: pa.StructType) -> dict[str, Any]:
    """Values of columns that a writer does not have, read as JSON; times and dates are numbers.

    Raises:
        TopologyError: a default does not have its column's type.
    """
    row = converted(orjson.dumps(dict(source.defaults)), kind, source.timestamps)
    if isinstance(row, str):
        raise TopologyError(
            f"Source {source.topic!r}: defaults {dict(source.defaults)} do not fit its columns: {row}. Write them "
            "like a JSON value of the column."
        )
    return {name: row.get(name) for name in source.defaults}


def _json(values: pa.BinaryArray, *, kind: pa.StructType, source: Source) -> tuple[pa.StructArray, pa.StringArray]:
    rows, reasons = json_values.decoded(values, kind, source.timestamps)
    return rows, pa.array(reasons, pa.string())


def _plain_json(
    values: pa.BinaryArray, *, kind: pa.StructType, source: Source
) -> tuple[pa.StructArray, pa.StringArray]:
    rows, reasons = _json(values, kind=kind, source=source)
    return rows, json_schema_values.hinted(values, reasons)


def _wire_json(
    values: pa.BinaryArray, *, kind: pa.StructType, source: Source, schemas: WriterSchemas
) -> tuple[pa.StructArray, pa.StringArray]:
    return json_schema_values.decoded(values, schemas, partial(_json, kind=kind, source=source))


def _text(values: pa.BinaryArray, *, kind: pa.StructType) -> tuple[pa.StructArray, pa.StringArray]:
    strings = texts(values)
    is_broken = pc.and_(pc.is_null(strings), pc.is_valid(values))
    reasons = pc.if_else(is_broken, pa.scalar(NOT_UTF8), pa.scalar(None, pa.string()))
    return pa.StructArray.from_arrays([strings], fields=list(kind)), reasons


def _bytes(values: pa.BinaryArray, *, kind: pa.StructType) -> tuple[pa.StructArray, pa.StringArray]:
    return pa.StructArray.from_arrays([values], fields=list(kind)), pa.nulls(len(values), pa.string())


def _of_key(keys: pa.BinaryArray, *, read: Decode) -> tuple[pa.StructArray, pa.StringArray]:
    """The same with reasons about keys."""
    rows, reasons = read(keys)
    return rows, pc.if_else(
        pc.starts_with(reasons, avro.UNRESOLVED), reasons, pc.binary_join_element_wise("of the key: ", reasons, "")
    )


def _text_key(keys: pa.BinaryArray, *, kind: pa.StructType, source: Source) -> tuple[pa.StructArray, pa.StringArray]:
    """Keys that are the text of one column."""
    (column,) = kind
    if pa.types.is_binary(column.type):
        return _bytes(json_keys.of_bytes(keys), kind=kind)
    if pa.types.is_string(column.type):
        return _text(keys, kind=kind)
    strings = texts(keys)
    rows, reasons = json_keys.of_text(strings.cast(pa.binary()), column, source.timestamps)
    is_unfit = pc.and_(pc.is_valid(keys), pc.or_(pc.is_valid(pa.array(reasons, pa.string())), rows.is_null()))
    no_text = pc.and_(pc.is_valid(keys), pc.is_null(strings))
    reason = pa.scalar(UNFIT_KEY.format(source.key_columns[0].type))
    return rows, pc.if_else(pc.or_(is_unfit, no_text), reason, pa.scalar(None, pa.string()))


def _number(keys: pa.BinaryArray, *, kind: pa.StructType, size: int) -> tuple[pa.StructArray, pa.StringArray]:
    """Keys that are one number of this many bytes, big-endian."""
    (column,) = kind
    plain = keys.to_pylist()
    numbers = [int.from_bytes(key, signed=True) if key is not None and len(key) == size else None for key in plain]
    is_unfit = [key is not None and number is None for key, number in zip(plain, numbers, strict=True)]
    reason = pa.scalar(UNFIT_KEY.format(f"a number of {size} bytes"))
    reasons = pc.if_else(pa.array(is_unfit, pa.bool_()), reason, pa.scalar(None, pa.string()))
    return pa.StructArray.from_arrays([pa.array(numbers, column.type)], fields=list(kind)), reasons
