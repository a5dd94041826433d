"""Avro values in Confluent's wire format, decoded into the declared columns: zero, four bytes of schema id, the datum.

Each value is decoded with the schema that wrote it; its fields then go to the declared columns by name. A declared
column that the writer does not have gets the source's default, or null. A source may name the record types that it
accepts. Aliases of a reader are not supported.

===========================  =====================================================================================
written as                   fits a column of
===========================  =====================================================================================
boolean                      BOOLEAN
int, long                    any integer type that holds the value; FLOAT, DOUBLE; DECIMAL that holds the value
float                        FLOAT, DOUBLE
double                       DOUBLE
string, enum                 STRING
bytes, fixed                 BINARY
decimal                      DECIMAL that holds the value with all its digits; BINARY
date                         DATE; an integer type
timestamp-millis, -micros    TIMESTAMP; BIGINT, as the number that was written
array, map, record           ARRAY, MAP with STRING keys, STRUCT, field by field
union                        what all its types but null fit in the same way
===========================  =====================================================================================
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeVar

import pyarrow as pa

from kappa.topology.schemas.wire_schemas import WriterSchema, WriterSchemas
from kappa.wire.json.json_converter import UnfitError

#: Reasons of dead letters. None of them contains a part of a value.
NO_WIRE_FORMAT = "the value does not begin with zero and the id of a schema"
UNKNOWN_ID = "schema {} is not in the schema registry"
NOT_AVRO = "schema {} is {}, not Avro"
UNREADABLE = "schema {} cannot be read: {}"
OTHER_RECORD = "the value is a {}, and the source takes {}"
UNFIT_SCHEMA = "schema {} does not fit the declared columns: {}"
UNDECODED = "the value does not decode with schema {}"
FURTHER = "bytes follow the value"
UNFIT = "{} does not fit its declared type"
#: Not known yet: the id must be looked up, and the value decoded again.
UNRESOLVED = "unresolved schema "

#: Size of zero and the id.
_HEADER = 5
#: Name of a logical type while a schema is read: otherwise fastavro would turn values into Python's dates, which have
#: fewer years.
LOGICAL = "kappa.logicalType"
_MOST = 10**38
#: Arrow's type names that differ from Spark's.
_SAID = {"int8": "TINYINT", "int16": "SMALLINT", "int32": "INT", "int64": "BIGINT", "bool": "BOOLEAN"}
_INTEGERS = (pa.types.is_int8, pa.types.is_int16, pa.types.is_int32, pa.types.is_int64)

Convert = Callable[[Any], Any]
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class AvroReader:
    """How values of one schema are read.

    Attributes:
        schema: the schema for fastavro.
        converts: per declared column, the conversion of the writer's value; None if it needs none.
        defaults: values of columns that the writer does not have.
    """

    schema: Any
    converts: tuple[Convert | None, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)


def schema_id(value: bytes) -> int | None:
    """The id at the beginning of a value; None if it has another form."""
    return int.from_bytes(value[1:_HEADER]) if len(value) >= _HEADER and value[0] == 0 else None


def ids_of(values: pa.Array | pa.ChunkedArray) -> set[int]:
    """The ids at the beginning of values."""
    return {number for value in values.to_pylist() if value is not None and (number := schema_id(value)) is not None}


def readers(
    schemas: WriterSchemas,
    kind: pa.StructType,
    *,
    records: Sequence[str] = (),
    defaults: Mapping[str, Any] | None = None,
) -> dict[int, AvroReader | str]:
    """Id -> the reader of its values, or why all of them are dead letters.

    Args:
        schemas: the schemas by id.
        kind: the declared columns, all nullable.
        records: names of the accepted record types, with or without their namespace; empty for any.
        defaults: column -> its value if a writer does not have it.
    """
    return {number: _reader(number, schema, kind, records, defaults or {}) for number, schema in schemas.items()}


def decoded(
    values: pa.BinaryArray, kind: pa.StructType, readers_by_id: dict[int, AvroReader | str]
) -> tuple[pa.StructArray, list[str | None]]:
    """A row for each value, and the reason if it is a dead letter; columns of dead letters and of nulls are null.

    Args:
        values: values in wire format.
        kind: the declared columns, all nullable.
        readers_by_id: result of :func:`readers`. A value of another id gets the reason ``unresolved schema <id>``.
    """
    reasons: list[str | None] = [None] * len(values)
    names = [field.name for field in kind]
    columns: list[list[Any]] = [[None] * len(values) for _ in names]
    for place, value in enumerate(values.to_pylist()):
        if value is None:
            continue
        number = schema_id(value)
        reader = NO_WIRE_FORMAT if number is None else readers_by_id.get(number, f"{UNRESOLVED}{number}")
        if isinstance(reader, str):
            reasons[place] = reader
            continue
        try:
            row = datum(value, reader.schema)
        except UnfitError as error:
            reasons[place] = str(error)
            continue
        if reader.defaults:
            row = {**row, **reader.defaults}
        for name, convert, column in zip(names, reader.converts, columns, strict=True):
            field_value = row.get(name)
            try:
                column[place] = field_value if convert is None or field_value is None else convert(field_value)
            except (ArithmeticError, ValueError):
                reasons[place] = UNFIT.format(name)
    arrays = [_array(column, field, reasons) for column, field in zip(columns, kind, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(kind)), reasons


def datum(value: bytes, schema: Any) -> Any:
    """The content of a value in wire format.

    Args:
        value: a value that begins with an id.
        schema: the schema of the id, from :func:`read_by`.

    Raises:
        UnfitError: it does not decode, or further bytes follow it.
    """
    import fastavro

    content = io.BytesIO(value)
    content.seek(_HEADER)
    try:
        read: Any = fastavro.schemaless_reader(content, schema, None)
    except Exception:  # any error that hostile bytes cause
        raise UnfitError(UNDECODED.format(schema_id(value))) from None
    if content.tell() != len(value):
        raise UnfitError(FURTHER)
    return read


def read_by(number: int, schema: WriterSchema | None, read: Callable[[Any, dict[str, Any]], T]) -> T | str:
    """The result of a function of a schema and its named types, or why all values of the schema are dead letters.

    Args:
        number: the schema's id.
        schema: the schema; None if the registry does not know the id.
        read: the function; it raises UnfitError if the schema is not suitable.
    """
    if schema is None:
        return UNKNOWN_ID.format(number)
    if schema.kind != "AVRO":
        return NOT_AVRO.format(number, schema.kind)
    try:
        avro_schema, names = _parsed(schema)
        _check_size(avro_schema, names, ())
        return read(avro_schema, names)
    except UnfitError as error:
        return UNFIT_SCHEMA.format(number, error)
    except Exception as error:  # a registry accepts schemas that fastavro does not
        return UNREADABLE.format(number, type(error).__name__)


def _array(values: list[Any], field: pa.Field, reasons: list[str | None]) -> pa.Array:
    """A column's values; unfit ones become null, with a reason."""
    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, ArithmeticError, ValueError, TypeError):
        for place, value in enumerate(values):
            try:
                pa.array([value], field.type)
            except (pa.ArrowException, ArithmeticError, ValueError, TypeError):
                values[place], reasons[place] = None, UNFIT.format(field.name)
        return pa.array(values, field.type)


def _reader(
    number: int, schema: WriterSchema | None, kind: pa.StructType, records: Sequence[str], defaults: Mapping[str, Any]
) -> AvroReader | str:
    def of_record(avro_schema: Any, names: dict[str, Any]) -> AvroReader | str:
        record = names.get(avro_schema, avro_schema) if isinstance(avro_schema, str) else avro_schema
        if not isinstance(record, dict) or record["type"] not in ("record", "error"):
            raise UnfitError("it is not a record")
        if records and not {record["name"], record["name"].rpartition(".")[2]} & set(records):
            return OTHER_RECORD.format(record["name"], " or ".join(records))
        fields = {field["name"]: field["type"] for field in record["fields"]}
        converts = tuple(_convert(fields.get(f.name, "null"), f.type, names, f.name) for f in kind)
        missing = {name: value for name, value in defaults.items() if name not in fields}
        return AvroReader(schema=avro_schema, converts=converts, defaults=missing)

    return read_by(number, schema, of_record)


def _parsed(schema: WriterSchema) -> tuple[Any, dict[str, Any]]:
    """A schema for fastavro, and its named types."""
    import fastavro

    names: dict[str, Any] = {}
    for text in schema.references:
        fastavro.parse_schema(_plain(_json(text)), named_schemas=names)
    return fastavro.parse_schema(_plain(_json(schema.text)), named_schemas=names), names


def _json(text: str) -> Any:
    """A schema's JSON; registries also give the name of a primitive type without quotes."""
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


def _plain(schema: Any) -> Any:
    """A schema without the parts that only a reader needs, and with renamed logical types."""
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    attributes = {
        name: part for name, part in schema.items() if name not in ("default", "aliases", "doc", "logicalType")
    }
    if "logicalType" in schema:
        attributes[LOGICAL] = schema["logicalType"]
    for part in ("type", "items", "values"):
        if part in attributes:
            attributes[part] = _plain(attributes[part])
    if "fields" in attributes:
        attributes["fields"] = [_plain(field) for field in attributes["fields"]]
    return attributes


def _check_size(schema: Any, names: dict[str, Any], within: tuple[str, ...]) -> int:
    """The least number of bytes of a value of the schema.

    Raises:
        UnfitError: a few bytes could end the process, because the value decides how deep a recursive type nests, or how
            long an array of items without bytes is.
    """
    if isinstance(schema, str):
        if schema not in names:
            return 0 if schema == "null" else 1
        schema = names[schema]
    if isinstance(schema, list):
        for part in schema:
            _check_size(part, names, within)
        return 1
    kind = schema["type"]
    if kind in ("record", "error"):
        if schema["name"] in within:
            raise UnfitError(f"type {schema['name']} is within itself")
        return sum(_check_size(field["type"], names, (*within, schema["name"])) for field in schema["fields"])
    if kind == "array":
        if _check_size(schema["items"], names, within) == 0:
            raise UnfitError("an array has items without bytes")
    elif kind == "map":
        _check_size(schema["values"], names, within)
    elif kind == "fixed":
        return int(schema["size"])
    elif isinstance(kind, (dict, list)):
        return _check_size(kind, names, within)
    return 0 if kind == "null" else 1


def _convert(schema: Any, kind: pa.DataType, names: dict[str, Any], at: str) -> Convert | None:
    """The conversion of the writer's value to the declared type; None if it needs none.

    Raises:
        UnfitError: no value of the schema has that type.
    """
    if isinstance(schema, str):
        schema = names.get(schema, {"type": schema})
    if isinstance(schema, dict) and isinstance(schema["type"], (dict, list)):
        schema = schema["type"]
    if isinstance(schema, list):
        return _of_union(schema, kind, names, at)
    written, logical = schema["type"], schema.get(LOGICAL)
    if written == "null":
        return None
    if written in ("record", "error") and pa.types.is_struct(kind):
        return _of_record(schema, kind, names, at)
    if written == "array" and pa.types.is_list(kind):
        return _of_items(_convert(schema["items"], kind.value_type, names, at))
    if written == "map" and pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return _of_entries(_convert(schema["values"], kind.item_type, names, at))
    conversion = _of_primitive(schema, written, logical, kind)
    if isinstance(conversion, str):
        type_name = logical if logical is not None else written
        raise UnfitError(f"{at} is {type_name}, which does not fit {conversion}")
    return conversion


def _of_primitive(schema: dict[str, Any], written: str, logical: Any, kind: pa.DataType) -> Convert | str | None:
    """The same for a primitive value; the name of the declared type if the value never fits."""
    is_integer = written in ("int", "long")
    if pa.types.is_decimal(kind) and written in ("bytes", "fixed") and logical == "decimal":
        return _decimal(int(schema.get("scale", 0)))
    if pa.types.is_timestamp(kind):
        steps = {"timestamp-millis": 1000, "timestamp-micros": 1}
        if written == "long" and logical in steps:
            return None if steps[logical] == 1 else (lambda value: value * 1000)
        return "TIMESTAMP"
    if pa.types.is_date(kind):
        return None if written == "int" and logical == "date" else "DATE"
    if pa.types.is_floating(kind) and is_integer:
        return float
    fits = (
        (pa.types.is_boolean(kind) and written == "boolean")
        or (is_integer and (any(is_kind(kind) for is_kind in _INTEGERS) or pa.types.is_decimal(kind)))
        or (written == "float" and pa.types.is_floating(kind))
        or (written == "double" and pa.types.is_float64(kind))
        or (written in ("string", "enum") and pa.types.is_string(kind))
        or (written in ("bytes", "fixed") and pa.types.is_binary(kind))
    )
    return None if fits else _SAID.get(str(kind), str(kind).upper())


def _decimal(scale: int) -> Convert:
    if not 0 <= scale <= 38:
        raise UnfitError(f"a decimal has scale {scale}")

    def convert(value: bytes) -> Decimal:
        number = int.from_bytes(value, signed=True)
        if abs(number) >= _MOST:
            raise ValueError("more than 38 digits")
        return Decimal(f"{number}E-{scale}")

    return convert


def _of_union(schema: list[Any], kind: pa.DataType, names: dict[str, Any], at: str) -> Convert | None:
    converts = [_convert(part, kind, names, at) for part in schema if part != "null"]
    if len(converts) > 1 and any(convert is not None for convert in converts):
        raise UnfitError(f"{at} is a union of types that are read in different ways")
    return converts[0] if converts else None


def _of_record(schema: Any, kind: pa.StructType, names: dict[str, Any], at: str) -> Convert | None:
    fields = {field["name"]: field["type"] for field in schema["fields"]}
    converts = {f.name: _convert(fields.get(f.name, "null"), f.type, names, f"{at}.{f.name}") for f in kind}
    if not any(converts.values()):
        return None
    return lambda value: {name: _applied(convert, value.get(name)) for name, convert in converts.items()}


def _of_items(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda values: [_applied(convert, value) for value in values]


def _of_entries(convert: Convert | None) -> Convert:
    return lambda values: [(key, _applied(convert, value)) for key, value in values.items()]


def _applied(convert: Convert | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)


def unresolved_ids(reasons: Iterable[str | None]) -> set[int]:
    """Ids that must be looked up, from the reasons of :func:`decoded`."""
    return {int(r.removeprefix(UNRESOLVED)) for r in reasons if r is not None and r.startswith(UNRESOLVED)}


__all__: Sequence[str] = ("UNRESOLVED", "AvroReader", "decoded", "ids_of", "readers", "schema_id", "unresolved_ids")
