"""JSON in the wire format of a schema registry, and plain JSON sources that meet it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kappa.topology import Source
from kappa.topology.schemas.wire_schemas import WriterSchema, WriterSchemas
from kappa.wire.decoders import decoder

KIND = pa.struct([("id", pa.string()), ("n", pa.int64())])
SCHEMAS: WriterSchemas = {
    1: WriterSchema(text="{}", kind="JSON"),
    2: WriterSchema(text='"string"'),
    3: None,
    256: WriterSchema(text="true", kind="JSON"),
}
WIRE = b"\0\0\0\0\1"


def decoded(values: list[bytes | None], format: str = "json_schema") -> tuple[list[object], list[str | None]]:
    source = Source(topic="pos", schema="id STRING, n BIGINT", format=format)  # type: ignore[arg-type]
    rows, reasons = decoder(source, KIND, SCHEMAS)(pa.array(values, pa.binary()))
    return rows.to_pylist(), reasons.to_pylist()


def test_values_after_their_schema_ids_are_read_like_plain_json() -> None:
    texts = [b'{"id": "a", "n": 1}', b' {"n": 2}', b'{"n": "x"}', b"[]", b"", b"\xff", b'{"id": "a"} x']
    rows, reasons = decoded([*(WIRE + text for text in texts), None, b'\0\0\0\1\0{"n": 3}'])
    plain_rows, plain_reasons = decoded([*texts, None, b'{"n": 3}'], "json")
    assert (rows, reasons) == (plain_rows, plain_reasons)
    assert rows[0] == {"id": "a", "n": 1}
    assert rows[-1] == {"id": None, "n": 3}
    assert reasons[0] is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b'{"n": 1}', "the value does not begin with zero and the id of a schema"),
        (b"\0\0\0\1", "the value does not begin with zero and the id of a schema"),
        (b'\1\0\0\0\1{"n": 1}', "the value does not begin with zero and the id of a schema"),
        (b"", "the value does not begin with zero and the id of a schema"),
        (b'\0\0\0\0\2{"n": 1}', "schema 2 is AVRO, not JSON Schema"),
        (b'\0\0\0\0\3{"n": 1}', "schema 3 is not in the schema registry"),
        (b'\0\0\0\0\4{"n": 1}', "unresolved schema 4"),
    ],
)
def test_a_value_without_a_json_schema_is_a_dead_letter_with_a_reason(value: bytes, reason: str) -> None:
    rows, reasons = decoded([WIRE + b'{"n": 1}', value])
    assert reasons == [None, reason]
    assert rows[1] is None or set(rows[1].values()) == {None}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("value", "format"),
    [
        (WIRE + b'{"n": 1}', "json_schema"),
        (b'\0\0\0\0{ {"n": 1}', "json_schema"),
        (b'\0\x7f\xff\xff\xff{"n": 1}', "json_schema"),
        (WIRE + b"\x02a\x04", "avro"),
    ],
)
def test_plain_json_with_schema_ids_names_the_format_that_reads_it(value: bytes, format: str) -> None:
    rows, reasons = decoded([b'{"n": 1}', value, b"nothing"], "json")
    assert reasons[1] == f"the value begins with zero and the id of a schema: format='{format}' reads it"
    assert rows[0] == {"id": None, "n": 1}
    assert reasons[0] is None
    assert "wire" not in str(reasons[2])
