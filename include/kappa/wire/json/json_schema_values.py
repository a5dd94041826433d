"""JSON values in Confluent's wire format: zero, four bytes of the id of a JSON Schema, the JSON.

The JSON is read like that of a plain source: the declared columns decide what a value must be, not its schema. An id
that the registry does not know, or that is of another language, makes a dead letter, as in Avro.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from kappa.topology.schemas.wire_schemas import WriterSchema, WriterSchemas
from kappa.wire import avro

#: Reasons of dead letters. None of them contains a part of a value.
NOT_JSON_SCHEMA = "schema {} is {}, not JSON Schema"
#: Reason for a source that is read as plain JSON, if its topic has values in the wire format.
WIRE_FORMAT = "the value begins with zero and the id of a schema: format='{}' reads it"

#: Size of zero and the id.
HEADER = 5
_BLANK = b" \t\r\n"

#: JSON texts -> a row for each, and why they are dead letters.
DecodeJson = Callable[[pa.BinaryArray], "tuple[pa.StructArray, pa.StringArray]"]


def decoded(
    values: pa.BinaryArray, schemas: WriterSchemas, decode: DecodeJson
) -> tuple[pa.StructArray, pa.StringArray]:
    """A row for each value, and the reason if it is a dead letter; rows of dead letters and of nulls are null.

    Args:
        values: values in wire format.
        schemas: the known schemas. A value of another id gets the reason ``unresolved schema <id>``.
        decode: the decoder of JSON.
    """
    heads = pc.binary_slice(values, 0, HEADER).dictionary_encode()
    objections = {number: objection(number, schema) for number, schema in schemas.items()}
    texts_of_heads = heads.dictionary.to_pylist()
    reasons = pa.array([avro.of_schema_id(head, objections) for head in texts_of_heads], pa.string())
    of_head = reasons.take(heads.indices)
    is_read = pc.is_null(of_head).to_pylist()
    texts = [
        value[HEADER:] if is_one and value is not None else None
        for value, is_one in zip(values.to_pylist(), is_read, strict=True)
    ]
    rows, of_text = decode(pa.array(texts, pa.binary()))
    return rows, pc.coalesce(of_head, of_text)


def hinted(values: pa.BinaryArray, reasons: pa.StringArray) -> pa.StringArray:
    """Reasons of a source of plain JSON; those of values in the wire format name the format that reads them."""
    if reasons.null_count == len(reasons):
        return reasons
    is_wire = pc.and_(pc.is_valid(reasons), pc.equal(pc.binary_slice(values, 0, 1), pa.scalar(b"\0", pa.binary())))
    places = pc.indices_nonzero(pc.fill_null(is_wire, False)).to_pylist()
    if not places:
        return reasons
    texts = reasons.to_pylist()
    for place in places:
        value = values[place].as_py()
        if avro.schema_id(value) is not None:
            is_json = value[HEADER:].lstrip(_BLANK)[:1] == b"{"
            texts[place] = WIRE_FORMAT.format("json_schema" if is_json else "avro")
    return pa.array(texts, pa.string())


def objection(number: int, schema: WriterSchema | None) -> str | None:
    """Why all values of a schema are dead letters; None if they are not."""
    if schema is None:
        return avro.UNKNOWN_ID.format(number)
    return None if schema.kind == "JSON" else NOT_JSON_SCHEMA.format(number, schema.kind)
