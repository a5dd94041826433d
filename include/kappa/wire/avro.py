"""Avro values in Confluent's wire format, decoded into the declared columns: zero, four bytes of schema id, the datum.

Each value is decoded with the schema that wrote it; its fields then go to the declared columns by name. A declared
column that the writer does not have gets the source's default, or null. A source may name the record types that it
accepts. Aliases of a reader are not supported. :mod:`kappa.wire.avro_conversions` has the types.

A value is a record, or one of a union of records: each is then read as a schema of its own. A key of one column may
also be a value of these types.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from kappa.topology.schemas.wire_schemas import WriterSchema, WriterSchemas
from kappa.wire.avro_conversions import LOGICAL, Convert, conversion
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
#: A record around each schema, which adds no bytes: fastavro resolves names only within one.
_AROUND, _CONTENT = "_kappa_value", "content"

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Branch:
    """How values of one type become rows.

    Attributes:
        converts: per declared column, the conversion of the writer's value; None if it needs none.
        defaults: values of columns that the writer does not have.
        column: the column of a value that is not a record; None for records.
    """

    converts: tuple[Convert | None, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    column: str | None = None


@dataclass(frozen=True, kw_only=True)
class AvroReader:
    """How values of one schema are read.

    Attributes:
        schema: the schema for fastavro.
        branches: for each type of a union, otherwise for the only one: how its values are read, or why they are dead
            letters.
        is_union: whether a value begins with the number of its type.
    """

    schema: Any
    branches: tuple[Branch | str, ...]
    is_union: bool


def schema_id(value: bytes) -> int | None:
    """The id at the beginning of a value, a positive number with a sign; None if it has another form.

    No registry has other ids, and asked for one, it does not say that it lacks it.
    """
    return int.from_bytes(value[1:_HEADER]) if len(value) >= _HEADER and value[0] == 0 and value[1] < 0x80 else None


def of_schema_id(value: bytes, by_id: Mapping[int, T | str]) -> T | str:
    """What is known of the schema whose id a value begins with, or why the value is a dead letter."""
    number = schema_id(value)
    return NO_WIRE_FORMAT if number is None else by_id.get(number, f"{UNRESOLVED}{number}")


def ids_of(values: pa.Array | pa.ChunkedArray) -> set[int]:
    """The ids at the beginning of values."""
    return {number for value in values.to_pylist() if value is not None and (number := schema_id(value)) is not None}


def readers(
    schemas: WriterSchemas,
    kind: pa.StructType,
    *,
    records: Sequence[str] = (),
    defaults: Mapping[str, Any] | None = None,
    is_key: bool = False,
) -> dict[int, AvroReader | str]:
    """Id -> the reader of its values, or why all of them are dead letters.

    Args:
        schemas: the schemas by id.
        kind: the declared columns, all nullable.
        records: names of the accepted record types, with or without their namespace; empty for any.
        defaults: column -> its value if a writer does not have it.
        is_key: whether a value that is not a record is that of the one column.
    """
    of_schema = partial(_reader, kind=kind, records=records, defaults=defaults or {}, is_key=is_key)
    return {number: of_schema(number, schema) for number, schema in schemas.items()}


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
        reader = of_schema_id(value, readers_by_id)
        if isinstance(reader, str):
            reasons[place] = reader
            continue
        try:
            row = datum(value, reader.schema)
        except UnfitError as error:
            reasons[place] = str(error)
            continue
        branch = reader.branches[_place_in_union(value) if reader.is_union else 0]
        if isinstance(branch, str):
            reasons[place] = branch
            continue
        if branch.column is not None:
            row = {branch.column: row}
        if branch.defaults:
            row = {**row, **branch.defaults}
        for name, convert, column in zip(names, branch.converts, columns, strict=True):
            field_value = row.get(name)
            try:
                column[place] = field_value if convert is None or field_value is None else convert(field_value)
            except UnfitError as error:
                reasons[place] = str(error)
            except (ArithmeticError, ValueError):
                reasons[place] = UNFIT.format(name)
    arrays = [_array(column, field, reasons) for column, field in zip(columns, kind, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(kind)), reasons


def datum(value: bytes, schema: Any) -> Any:
    """The content of a value in wire format.

    Args:
        value: a value that begins with an id.
        schema: the schema of the id for fastavro, from :func:`read_by`.

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
    return read[_CONTENT]


def read_by(number: int, schema: WriterSchema | None, read: Callable[[Any, dict[str, Any], Any], T]) -> T | str:
    """The result of a function of a schema, of its named types, and of the same for fastavro; or why all values of the
    schema are dead letters.

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
        around, names = _parsed(schema)
        avro_schema = around["fields"][0]["type"]
        _check_size(avro_schema, names, {})
        return read(avro_schema, names, around)
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
    number: int,
    schema: WriterSchema | None,
    *,
    kind: pa.StructType,
    records: Sequence[str],
    defaults: Mapping[str, Any],
    is_key: bool,
) -> AvroReader | str:
    def of_type(avro_schema: Any, names: dict[str, Any]) -> Branch | str:
        record = names.get(avro_schema, avro_schema) if isinstance(avro_schema, str) else avro_schema
        if not isinstance(record, dict) or record["type"] not in ("record", "error"):
            if not is_key or len(kind) != 1:
                raise UnfitError("it is not a record")
            (column,) = kind
            return Branch(converts=(conversion(record, column.type, names, column.name),), column=column.name)
        if records and not {record["name"], record["name"].rpartition(".")[2]} & set(records):
            return OTHER_RECORD.format(record["name"], " or ".join(records))
        fields = {field["name"]: field["type"] for field in record["fields"]}
        converts = tuple(conversion(fields.get(f.name, "null"), f.type, names, f.name) for f in kind)
        missing = {name: value for name, value in defaults.items() if name not in fields}
        return Branch(converts=converts, defaults=missing)

    def of_union(avro_schema: Any, names: dict[str, Any]) -> Branch | str:
        try:
            return of_type(avro_schema, names)
        except UnfitError as error:
            return UNFIT_SCHEMA.format(number, error)

    def of_schema(avro_schema: Any, names: dict[str, Any], around: Any) -> AvroReader | str:
        if isinstance(avro_schema, list):
            branches = tuple(of_union(part, names) for part in avro_schema)
            return AvroReader(schema=around, branches=branches, is_union=True)
        branch = of_type(avro_schema, names)
        return branch if isinstance(branch, str) else AvroReader(schema=around, branches=(branch,), is_union=False)

    return read_by(number, schema, of_schema)


def _place_in_union(value: bytes) -> int:
    """The number of a value's type in its union."""
    number = shift = 0
    for byte in value[_HEADER:]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return number >> 1


def _parsed(schema: WriterSchema) -> tuple[Any, dict[str, Any]]:
    """A schema for fastavro, within a record, and its named types."""
    import fastavro

    names: dict[str, Any] = {}
    for text in schema.references:
        fastavro.parse_schema(_plain(_json(text)), named_schemas=names)
    around = {"type": "record", "name": _AROUND, "fields": [{"name": _CONTENT, "type": _plain(_json(schema.text))}]}
    return fastavro.parse_schema(around, named_schemas=names), names


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


def _check_size(schema: Any, names: dict[str, Any], sizes: dict[str, int | None]) -> int:
    """The least number of bytes of a value of the schema.

    Args:
        schema: the schema.
        names: its named types.
        sizes: record -> this number; None while its fields are looked at. Each is looked at once: schemas that use a
            type in several places, at several levels, are small and describe very many fields.

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
            _check_size(part, names, sizes)
        return 1
    kind = schema["type"]
    if kind in ("record", "error"):
        name = schema["name"]
        if name not in sizes:
            sizes[name] = None
            sizes[name] = sum(_check_size(field["type"], names, sizes) for field in schema["fields"])
        size = sizes[name]
        if size is None:
            raise UnfitError(f"type {name} is within itself")
        return size
    if kind == "array":
        if _check_size(schema["items"], names, sizes) == 0:
            raise UnfitError("an array has items without bytes")
    elif kind == "map":
        _check_size(schema["values"], names, sizes)
    elif kind == "fixed":
        return int(schema["size"])
    elif isinstance(kind, (dict, list)):
        return _check_size(kind, names, sizes)
    return 0 if kind == "null" else 1


def unresolved_ids(reasons: Iterable[str | None]) -> set[int]:
    """Ids that must be looked up, from the reasons of :func:`decoded`."""
    return {int(r.removeprefix(UNRESOLVED)) for r in reasons if r is not None and r.startswith(UNRESOLVED)}


__all__: Sequence[str] = ("UNRESOLVED", "AvroReader", "decoded", "ids_of", "readers", "schema_id", "unresolved_ids")
