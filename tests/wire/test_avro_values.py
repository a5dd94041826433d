"""What a topic output of Avro sends, as Confluent's own deserializer reads it."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from kappa.errors import TopologyError
from kappa.topology import Append, Source, Table, Topic, Topology
from kappa.topology.ddl import columns_of
from kappa.topology.schemas.avro_schema import avro_schema
from kappa.topology.schemas.wire_schemas import WriterSchema
from kappa.wire.avro_values import decoder, encoder
from kappa.wire.encoding import topic_records

DDL = (
    "id STRING NOT NULL, t TINYINT, s SMALLINT, i INT, n BIGINT, f FLOAT, x DOUBLE, b BOOLEAN, raw BINARY, "
    "m DECIMAL(12,2), d DATE, at TIMESTAMP, l ARRAY<TIMESTAMP>, tags MAP<STRING, DATE>, "
    "r STRUCT<at: TIMESTAMP, l: ARRAY<STRUCT<m: DECIMAL(5,1)>>>"
)
AT = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
DAY = date(1969, 12, 31)
ROW: dict[str, Any] = {
    "id": "é",
    "t": -1,
    "s": 2,
    "i": 3,
    "n": 2**40,
    "f": 0.5,
    "x": 0.1,
    "b": True,
    "raw": b"\x00\xff",
    "m": Decimal("-12.30"),
    "d": DAY,
    "at": AT,
    "l": [AT, None],
    "tags": {"k": DAY},
    "r": {"at": AT, "l": [{"m": Decimal("1.5")}, None]},
}
KINDS = pa.schema(
    [
        ("id", pa.string()),
        ("t", pa.int8()),
        ("s", pa.int16()),
        ("i", pa.int32()),
        ("n", pa.int64()),
        ("f", pa.float32()),
        ("x", pa.float64()),
        ("b", pa.bool_()),
        ("raw", pa.binary()),
        ("m", pa.decimal128(12, 2)),
        ("d", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("l", pa.list_(pa.timestamp("us", "UTC"))),
        ("tags", pa.map_(pa.string(), pa.date32())),
        ("r", pa.struct([("at", pa.timestamp("us", "UTC")), ("l", pa.list_(pa.struct([("m", pa.decimal128(5, 1))])))])),
    ]
)
COLUMNS = columns_of(DDL, "test")
NAMES = [column.name for column in COLUMNS]


def test_every_type_is_read_back_by_another_reader() -> None:
    import io

    text = avro_schema("shop.orders", COLUMNS)
    empty = {"id": "only"} | dict.fromkeys(NAMES[1:])
    rows = pa.Table.from_pylist([ROW, empty], KINDS)
    values = list(encoder(7, text, NAMES)(rows))
    assert all(value[:5] == b"\0\0\0\0\7" for value in values)
    schema = fastavro.parse_schema(json.loads(text))
    assert [fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None) for value in values] == [ROW, empty]
    decode = decoder({7: WriterSchema(text=text)})
    datum = decode(values[0])
    assert (datum["at"], datum["m"]) == (round(AT.timestamp() * 1_000_000), ROW["m"])
    assert [decode(other) for other in (b"", b"{}", b"\0\0\0\0\1\0")] == [b"", b"{}", b"\0\0\0\0\1\0"]


def test_equal_columns_have_the_same_schema_text() -> None:
    text = avro_schema("1.shop", columns_of("id STRING NOT NULL, r STRUCT<l: ARRAY<INT>>", "test"))
    assert text == (
        '{"type":"record","name":"_1_shop","fields":[{"name":"id","type":"string"},{"name":"r","type":["null",'
        '{"type":"record","name":"_1_shop_r","fields":[{"name":"l","type":["null",{"type":"array","items":["null",'
        '"int"]}],"default":null}]}],"default":null}]}'
    )


@pytest.mark.parametrize(
    ("ddl", "row", "names"),
    [
        (
            "a STRUCT<b: STRUCT<x: INT>>, a_b STRUCT<y: INT>",
            {"a": {"b": {"x": 1}}, "a_b": {"y": 2}},
            ["out", "out_a", "out_a_b", "out_a_b_2"],
        ),
        (
            "a ARRAY<STRUCT<x: INT>>, a_item STRUCT<y: INT>",
            {"a": [{"x": 1}], "a_item": {"y": 2}},
            ["out", "out_a_item", "out_a_item_2"],
        ),
        (
            "a MAP<STRING, STRUCT<x: INT>>, a_value STRUCT<y: INT>",
            {"a": {"k": {"x": 1}}, "a_value": {"y": 2}},
            ["out", "out_a_value", "out_a_value_2"],
        ),
        (
            "a STRUCT<b: STRUCT<x: INT>>, a_b STRUCT<y: INT>, a_b_2 STRUCT<z: STRUCT<x: INT>>",
            {"a": {"b": {"x": 1}}, "a_b": {"y": 2}, "a_b_2": {"z": {"x": 3}}},
            ["out", "out_a", "out_a_b", "out_a_b_2", "out_a_b_2_2", "out_a_b_2_2_z"],
        ),
        (
            "a STRUCT<b: INT>, b STRUCT<c: STRUCT<d: INT>>",
            {"a": {"b": 1}, "b": {"c": {"d": 2}}},
            ["out", "out_a", "out_b", "out_b_c"],
        ),
    ],
)
def test_records_whose_paths_read_alike_have_names_of_their_own(
    ddl: str, row: dict[str, Any], names: list[str]
) -> None:
    import io

    columns = columns_of(ddl, "test")
    text = avro_schema("out", columns)
    schema = fastavro.parse_schema(json.loads(text))
    kinds = pa.Table.from_pylist([row]).schema
    if "MAP" in ddl:
        kinds = pa.schema([("a", pa.map_(pa.string(), pa.struct([("x", pa.int64())]))), kinds.field("a_value")])
    (value,) = encoder(7, text, [column.name for column in columns])(pa.Table.from_pylist([row], kinds))
    assert fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None) == row
    assert re.findall(r'"type":"record","name":"(\w+)"', text) == names


def test_a_deleted_row_is_a_null_value_and_needs_no_column() -> None:
    columns = columns_of("id STRING NOT NULL, n BIGINT NOT NULL", "test")
    topic = Topic(name="t", of="rows", key="id", format="avro")
    rows = pa.table({"id": ["a", "b", "c"], "n": [1, None, 3], "_deleted": [False, True, False]})
    encode = encoder(1, avro_schema("t", columns), ["id", "n"])
    sent = [(r.key, r.value) for r in topic_records(topic, ["id", "n"], rows, encode=encode)]
    assert sent == [(b"a", b"\0\0\0\0\1\x02a\x02"), (b"b", None), (b"c", b"\0\0\0\0\1\x02c\x06")]


def topology(schema: str, **topic: Any) -> Topology:
    return Topology(
        name="a.b",
        version="1",
        sources=[Source(topic="s", schema="id STRING", format="avro")],
        tables=[Table(name="rows", key=["id"], schema=schema)],
        outputs=[Append(name="all", schema=schema), Topic(name="t", of="rows", key="id", **topic)],
        step=lambda _: {},
    )


def test_columns_without_an_avro_name_or_type_are_refused_in_the_declaration() -> None:
    for schema in ("id STRING NOT NULL, `a b` INT", "id STRING NOT NULL, m MAP<INT, INT>"):
        topology(schema)
        with pytest.raises(TopologyError, match="end JSON"):
            topology(schema, format="avro")
    with pytest.raises(TopologyError, match="is not one of json, avro"):
        topology("id STRING NOT NULL", format="protobuf")
    with pytest.raises(TopologyError, match="reads Avro and has no schema"):
        Source(topic="s", format="avro")
