"""Avro values become the declared columns, or dead letters with a reason; no JVM is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.avro import record, wired

from kappa.errors import TopologyError
from kappa.topology import Source
from kappa.topology.schemas.wire_schemas import WriterSchema
from kappa.topology.times.dates import FIRST_DAY, LAST_DAY
from kappa.wire.avro import decoded, ids_of, readers, unresolved_ids
from kappa.wire.debezium import debezium_avro
from kappa.wire.debezium.debezium_values import fields_of
from kappa.wire.decoders import decoder

MICROS, MILLIS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("micros", "millis"))
DAY = {"type": "int", "logicalType": "date"}
MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
AT = datetime(2026, 3, 1, 12, 0, 0, 123000, tzinfo=UTC)
UTC_MICROS = pa.timestamp("us", "UTC")


def read(
    values: list[bytes | None], schemas: dict[int, Any], *columns: tuple[str, pa.DataType]
) -> list[dict[str, Any] | str]:
    """Rows, or reasons in their place."""
    kind = pa.struct([pa.field(name, one) for name, one in columns])
    writers = {n: None if one is None else WriterSchema(text=json.dumps(one)) for n, one in schemas.items()}
    rows, reasons = decoded(pa.array(values, pa.binary()), kind, readers(writers, kind))
    return [row if reason is None else reason for row, reason in zip(rows.to_pylist(), reasons, strict=True)]


@pytest.mark.parametrize(
    ("written", "value", "declared", "expected"),
    [
        ("boolean", True, pa.bool_(), True),
        ("int", -7, pa.int8(), -7),
        ("long", 2**40, pa.int64(), 2**40),
        ("int", 7, pa.float64(), 7.0),
        ("long", 2**60 + 1, pa.float64(), float(2**60)),
        ("long", 7, pa.decimal128(5, 2), Decimal("7.00")),
        ("float", 0.5, pa.float32(), 0.5),
        ("float", 0.5, pa.float64(), 0.5),
        ("double", 0.1, pa.float64(), 0.1),
        ("string", "é", pa.string(), "é"),
        ({"type": "enum", "name": "E", "symbols": ["UP", "DOWN"]}, "DOWN", pa.string(), "DOWN"),
        ({"type": "string", "logicalType": "uuid"}, "0" * 8 + "-0000-0000-0000-" + "0" * 12, pa.string(), None),
        ("bytes", b"\xff\x00", pa.binary(), b"\xff\x00"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", pa.binary(), b"ab"),
        (MONEY, Decimal("-12.34"), pa.decimal128(12, 3), Decimal("-12.340")),
        (
            {"type": "fixed", "name": "D", "size": 6, "logicalType": "decimal", "precision": 9, "scale": 4},
            Decimal("1.5"),
            pa.decimal128(9, 4),
            Decimal("1.5000"),
        ),
        (DAY, date(1969, 12, 31), pa.date32(), date(1969, 12, 31)),
        (MILLIS, AT, UTC_MICROS, AT),
        (MICROS, AT, UTC_MICROS, AT),
        (MILLIS, AT, pa.int64(), round(AT.timestamp() * 1000)),
        ({"type": "array", "items": ["null", "int"]}, [1, None], pa.list_(pa.int64()), [1, None]),
        ({"type": "array", "items": MILLIS}, [AT], pa.list_(UTC_MICROS), [AT]),
        ({"type": "map", "values": "int"}, {"a": 1}, pa.map_(pa.string(), pa.int32()), [("a", 1)]),
        ({"type": "map", "values": ["null", MILLIS]}, {"a": AT}, pa.map_(pa.string(), UTC_MICROS), [("a", AT)]),
        (["null", "string"], None, pa.string(), None),
        (["null", MONEY], Decimal("1.00"), pa.decimal128(10, 2), Decimal("1.00")),
        (["int", "long", "null"], 2**40, pa.int64(), 2**40),
        (
            record(("at", MILLIS), ("more", "int"), name="Inner"),
            {"at": AT, "more": 1},
            pa.struct([("at", UTC_MICROS), ("lacking", pa.string())]),
            {"at": AT, "lacking": None},
        ),
        (
            {"type": "array", "items": ["null", record(("n", "int"), name="Inner")]},
            [{"n": 1}, None],
            pa.list_(pa.struct([("n", pa.int64())])),
            [{"n": 1}, None],
        ),
    ],
)
def test_each_type_is_read_into_a_column_that_holds_it(
    written: Any, value: Any, declared: pa.DataType, expected: Any
) -> None:
    schema = record(("x", written), ("unread", "string"))
    (row,) = read([wired(1, schema, {"x": value, "unread": "y"})], {1: schema}, ("x", declared))
    assert row == {"x": value if isinstance(written, dict) and written.get("logicalType") == "uuid" else expected}


def test_times_of_any_year_and_the_whole_range_of_a_decimal_are_read() -> None:
    far, schema = 9_000_000_000_000_000, record(("at", MICROS), ("m", {**MONEY, "precision": 38, "scale": 0}))
    plain = record(("at", "long"), ("m", "bytes"))
    values = [
        wired(1, plain, {"at": sign * far, "m": (sign * (10**38 - 1)).to_bytes(16, signed=True)}) for sign in (1, -1)
    ]
    kind = pa.struct([("at", UTC_MICROS), ("m", pa.decimal128(38, 0))])
    rows, reasons = decoded(pa.array(values), kind, readers({1: WriterSchema(text=json.dumps(schema))}, kind))
    assert reasons == [None, None]
    assert rows.field("at").cast(pa.int64()).to_pylist() == [far, -far]
    assert rows.field("m").to_pylist() == [Decimal(10**38 - 1), Decimal(1 - 10**38)]


@pytest.mark.parametrize(("day", "is_read"), [(FIRST_DAY, True), (FIRST_DAY - 1, False), (LAST_DAY + 1, False)])
def test_a_date_that_a_writer_of_tables_lacks_is_a_dead_letter(day: int, is_read: bool) -> None:
    value = wired(1, record(("x", "int")), {"x": day})
    kind = pa.struct([("x", pa.date32())])
    rows, reasons = decoded(
        pa.array([value]), kind, readers({1: WriterSchema(text=json.dumps(record(("x", DAY))))}, kind)
    )

    assert reasons == [None if is_read else "x does not fit its declared type"]
    assert rows.field("x").cast(pa.int32()).to_pylist() == [day if is_read else None]


def test_writers_of_several_schemas_are_read_side_by_side() -> None:
    first, second = record(("id", "string")), record(("n", "long"), ("id", ["null", "string"]))
    values = [wired(1, first, {"id": "a"}), wired(2, second, {"n": 5, "id": None}), None]
    assert read(values, {1: first, 2: second}, ("id", pa.string()), ("n", pa.int32())) == [
        {"id": "a", "n": None},
        {"id": None, "n": 5},
        {"id": None, "n": None},
    ]


def test_types_of_referenced_schemas_are_resolved_by_name() -> None:
    inner, outer = record(("n", "int"), name="shop.Inner"), record(("x", "shop.Inner"))
    kind = pa.struct([("x", pa.struct([("n", pa.int64())]))])
    schema = WriterSchema(text=json.dumps(outer), references=(json.dumps(inner),))
    value = b"\0\0\0\0\1" + b"\x06"
    rows, reasons = decoded(pa.array([value]), kind, readers({1: schema}, kind))
    assert (rows.to_pylist(), reasons) == ([{"x": {"n": 3}}], [None])


FIRST, SECOND = record(("x", "long"), name="First"), record(("y", "int"), ("x", "int"), name="shop.Second")


@pytest.mark.parametrize("references", [True, False])
@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), [{"x": 1}, {"x": 2}]),
        (("First",), [{"x": 1}, "the value is a shop.Second, and the source takes First"]),
        (("Second",), ["the value is a First, and the source takes Second", {"x": 2}]),
    ],
)
def test_each_type_of_a_union_is_read_as_a_schema_of_its_own(
    references: bool, names: tuple[str, ...], expected: list[Any]
) -> None:
    union = ["First", "null", "shop.Second"] if references else [FIRST, "null", SECOND]
    schema = WriterSchema(
        text=json.dumps(union), references=(json.dumps(FIRST), json.dumps(SECOND)) if references else ()
    )
    whole = [FIRST, "null", SECOND]
    written = (("First", {"x": 1}), ("shop.Second", {"x": 2, "y": 3}), None)
    values = [wired(1, whole, one) for one in written]
    kind = pa.struct([("x", pa.int64())])
    rows, reasons = decoded(pa.array(values), kind, readers({1: schema}, kind, records=names))
    outcomes = [row if reason is None else reason for row, reason in zip(rows.to_pylist(), reasons, strict=True)]

    assert outcomes == [*expected, "schema 1 does not fit the declared columns: it is not a record"]


def test_a_schema_may_be_the_name_of_a_referenced_one() -> None:
    inner, outer = record(("n", "int"), name="shop.Inner"), record(("x", "shop.Inner"), name="Outer")
    references = (json.dumps(inner), json.dumps(outer))
    kind = pa.struct([("x", pa.struct([("n", pa.int64())]))])
    for text, value in (("Outer", b"\x06"), ('["null", "Outer"]', b"\x02\x06")):
        schema = WriterSchema(text=text, references=references)
        rows, reasons = decoded(pa.array([b"\0\0\0\0\1" + value]), kind, readers({1: schema}, kind))
        assert (rows.to_pylist(), reasons) == ([{"x": {"n": 3}}], [None])


def test_a_type_of_a_union_has_defaults_and_columns_of_its_own() -> None:
    union = [record(("x", "long"), name="A"), record(("y", "string"), name="B"), record(("x", "string"), name="C")]
    values = [wired(1, union, (name, one)) for name, one in (("A", {"x": 1}), ("B", {"y": "b"}), ("C", {"x": "c"}))]
    kind = pa.struct([("x", pa.int64()), ("y", pa.string())])
    schema = WriterSchema(text=json.dumps(union))
    rows, reasons = decoded(pa.array(values), kind, readers({1: schema}, kind, defaults={"x": 7}))

    assert rows.to_pylist()[:2] == [{"x": 1, "y": None}, {"x": 7, "y": "b"}]
    assert reasons == [None, None, "schema 1 does not fit the declared columns: x is string, which does not fit BIGINT"]


NOTED = pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.string())])
A_RECORD = record(("a", ["null", "int"]), name="Inner")


@pytest.mark.parametrize(
    ("written", "value", "declared", "expected"),
    [
        (A_RECORD, {"a": 1}, NOTED, {"a": 1, "b": None}),
        (A_RECORD, {"a": None}, NOTED, "x.a is NOT NULL and absent"),
        (["null", A_RECORD], None, NOTED, None),
        (record(("b", "string"), name="Inner"), {"b": "b"}, NOTED, "x.a is NOT NULL and absent"),
        ({"type": "array", "items": A_RECORD}, [{"a": 1}, {"a": None}], pa.list_(NOTED), "x.a is NOT NULL and absent"),
        (
            {"type": "map", "values": A_RECORD},
            {"k": {"a": None}},
            pa.map_(pa.string(), NOTED),
            "x.a is NOT NULL and absent",
        ),
        (
            record(("i", A_RECORD), name="Outer"),
            {"i": {"a": None}},
            pa.struct([pa.field("i", NOTED)]),
            "x.i.a is NOT NULL and absent",
        ),
        (
            ["null", record(("a", "int"), name="One"), record(("a", "int"), ("c", "int"), name="Two")],
            ("Two", {"a": 1, "c": 2}),
            NOTED,
            {"a": 1, "b": None},
        ),
    ],
)
def test_a_null_in_not_null_of_a_struct_is_a_dead_letter_of_its_record(
    written: Any, value: Any, declared: pa.DataType, expected: Any
) -> None:
    schema = record(("x", written))
    rows = read([wired(1, schema, {"x": value})], {1: schema}, ("x", declared))

    assert rows == [expected if isinstance(expected, str) else {"x": expected}]


S = record(("x", "int"))
BAD = "schema 1 does not fit the declared columns: "


@pytest.mark.parametrize(
    ("value", "schema", "reason"),
    [
        (b"", S, "the value does not begin with zero and the id of a schema"),
        (b"\0\0\0\0", S, "the value does not begin with zero and the id of a schema"),
        (b'{"x": 1}', S, "the value does not begin with zero and the id of a schema"),
        (b"\0\0\0\0\1", S, "the value does not decode with schema 1"),
        (b"\0\0\0\0\1\x02\x02", S, "bytes follow the value"),
        (b"\0\0\0\0\2\x02", S, "unresolved schema 2"),
        (b"\0\x7f\xff\xff\xff\x02", S, f"unresolved schema {2**31 - 1}"),
        (b"\0\x80\0\0\0\x02", S, "the value does not begin with zero and the id of a schema"),
        (b"\0\0\0\0\1\x02", None, "schema 1 is not in the schema registry"),
        (b"\0\0\0\0\1\x02", "int", f"{BAD}it is not a record"),
        (b"\0\0\0\0\1\x02", {"type": "no such"}, "schema 1 cannot be read: UnknownType"),
        (b"\0\0\0\0\1\x02a", record(("x", "string")), f"{BAD}x is string, which does not fit SMALLINT"),
        (b"\0\0\0\0\1\x02", record(("x", MICROS)), None),
        (b"\0\0\0\0\1\x80\x80\x08", S, "x does not fit its declared type"),
        (b"\0\0\0\0\1\x04\x02a", record(("y", ["int", "string"])), "the value does not decode with schema 1"),
    ],
)
def test_an_undecodable_value_is_a_dead_letter_with_a_reason(value: bytes, schema: Any, reason: str | None) -> None:
    outcomes = read([value], {1: schema}, ("x", pa.int16()))
    assert outcomes == ([{"x": 1}] if reason is None else [reason])


def test_a_value_that_does_not_fit_leaves_its_neighbours_alone() -> None:
    values = [wired(1, S, {"x": n}) for n in (1, 40_000, 3)]
    assert read(values, {1: S}, ("x", pa.int16())) == [{"x": 1}, "x does not fit its declared type", {"x": 3}]


@pytest.mark.parametrize(
    ("unscaled", "scale", "fits"),
    [(b"\x7b", 2, True), (b"\x7b", 3, False), (b"\x7f" * 9, 2, False), (b"\x7f" * 1_000_000, 2, False), (b"", 0, True)],
)
def test_a_decimal_fits_only_with_all_its_digits(unscaled: bytes, scale: int, fits: bool) -> None:
    schema = record(("m", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": scale}))
    value = wired(1, record(("m", "bytes")), {"m": unscaled})
    (outcome,) = read([value], {1: schema}, ("m", pa.decimal128(12, 2)))
    assert isinstance(outcome, dict) is fits


HOSTILE = """
import json, pyarrow as pa
from kappa.wire.avro import decoded, readers
from kappa.topology.schemas.wire_schemas import WriterSchema
kind = pa.struct([("x", pa.int64())])
for fields, datum in [
    ([["next", ["null", "R"]]], b"\\x02" * 1_000_000 + b"\\x00"),
    ([["l", {"type": "array", "items": "null"}]], b"\\xfe" + b"\\xff" * 8 + b"\\x01" + b"\\x00"),
    ([["l", {"type": "array", "items": {"type": "record", "name": "E", "fields": []}}]], b"\\xfe\\xff\\xff\\x7f"),
]:
    schema = {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields]}
    known = readers({1: WriterSchema(text=json.dumps(schema))}, kind)
    print(decoded(pa.array([b"\\0\\0\\0\\0\\1" + datum]), kind, known)[1][0])
"""


def test_bytes_that_would_crash_or_hang_the_process_are_dead_letters() -> None:
    process = subprocess.run([sys.executable, "-c", HOSTILE], capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
    assert process.stdout.splitlines() == [
        f"{BAD}type R is within itself",
        f"{BAD}an array has items without bytes",
        f"{BAD}an array has items without bytes",
    ]


def test_a_schema_that_uses_its_types_at_many_levels_is_read() -> None:
    deep: Any = "int"
    for level in range(64):
        again = deep if deep == "int" else deep["name"]
        deep = record(("a", deep), ("b", again), name=f"Level{level}")
    schema = record(("x", "long"), ("deep", ["null", deep]))
    writer = {1: WriterSchema(text=json.dumps(schema))}
    value = pa.array([b"\0\0\0\0\1" + b"\x0e" + b"\0"], pa.binary())
    kind = pa.struct([("x", pa.int64())])

    rows, reasons = decoded(value, kind, readers(writer, kind))

    assert (rows.to_pylist(), reasons) == ([{"x": 7}], [None])
    datum, hint = debezium_avro.datum(value[0].as_py(), debezium_avro.writers(writer))
    assert datum.keys() == {"x", "deep"} and fields_of(hint)["x"]["type"] == "long"


WIDE = record(
    ("s", ["null", "string"]),
    ("l", {"type": "array", "items": {"type": "map", "values": "bytes"}}),
    ("m", MONEY),
    ("e", {"type": "enum", "name": "E", "symbols": ["A"]}),
    ("at", MICROS),
)


@given(st.lists(st.one_of(st.none(), st.binary(max_size=60), st.binary(max_size=60).map(lambda b: b"\0\0\0\0\1" + b))))
def test_any_bytes_are_a_row_or_a_dead_letter(values: list[bytes | None]) -> None:
    outcomes = read(
        values,
        {1: WIDE},
        ("s", pa.string()),
        ("l", pa.list_(pa.map_(pa.string(), pa.binary()))),
        ("m", pa.decimal128(10, 2)),
        ("e", pa.string()),
        ("at", UTC_MICROS),
    )
    assert len(outcomes) == len(values)


def test_schema_ids_are_read_from_values_and_reasons() -> None:
    values = [b"\0\0\0\0\7", b"\0\0\0\1\0x", b"\1\0\0\0\2", b"\0\xff\xff\xff\xff", None, b"\0"]
    assert ids_of(pa.array(values, pa.binary())) == {7, 256}
    assert unresolved_ids([None, "unresolved schema 7", "bytes follow the value"]) == {7}


PLACED = {**record(("id", "string"), ("total", "int")), "name": "OrderPlaced", "namespace": "shop"}
SHIPPED = {**record(("id", "string"), ("van", "string")), "name": "shop.OrderShipped"}
PAID = {**record(("id", "string"), ("currency", ["null", "string"])), "name": "OrderPaid"}
ORDER = pa.struct(
    [
        ("id", pa.string()),
        ("total", pa.int32()),
        ("currency", pa.string()),
        ("at", UTC_MICROS),
        ("n", pa.decimal128(5, 2)),
    ]
)


def orders(**source: Any) -> list[Any]:
    """Rows or reasons of an order that was placed, one that was shipped and one that was paid."""
    schema = "id STRING, total INT, currency STRING, at TIMESTAMP, n DECIMAL(5,2)"
    writers = {n: WriterSchema(text=json.dumps(one)) for n, one in enumerate((PLACED, SHIPPED, PAID), start=1)}
    values = [
        wired(1, PLACED, {"id": "a", "total": 1}),
        wired(2, SHIPPED, {"id": "a", "van": "v"}),
        wired(3, PAID, {"id": "a", "currency": None}),
    ]
    orders_source = Source(topic="orders", format="avro", schema=schema, **source)
    rows, reasons = decoder(orders_source, ORDER, writers)(pa.array(values, pa.binary()))
    return [reason or row for row, reason in zip(rows.to_pylist(), reasons.to_pylist(), strict=True)]


@pytest.mark.parametrize(
    ("names", "are_rows"),
    [
        ("OrderPlaced", [True, False, False]),
        ("shop.OrderPlaced", [True, False, False]),
        (["OrderPlaced", "shop.OrderShipped"], [True, True, False]),
        ("other.OrderPlaced", [False, False, False]),
        ("OrderPaid", [False, False, True]),
        ((), [True, True, True]),
    ],
)
def test_a_source_takes_the_record_types_that_it_names(names: Any, are_rows: list[bool]) -> None:
    outcomes = orders(record=names)
    assert [isinstance(row, dict) for row in outcomes] == are_rows
    accepted_types = " or ".join([names] if isinstance(names, str) else names)
    for row, name in zip(outcomes, ("shop.OrderPlaced", "shop.OrderShipped", "OrderPaid"), strict=True):
        assert isinstance(row, dict) or row == f"the value is a {name}, and the source takes {accepted_types}"


def test_a_missing_field_gets_the_default_and_a_null_field_stays_null() -> None:
    placed, _, paid = orders(defaults={"currency": "EUR", "total": 7, "at": "2026-03-01T12:00:00Z", "n": "1.5"})
    assert placed == {
        "id": "a",
        "total": 1,
        "currency": "EUR",
        "at": datetime(2026, 3, 1, 12, tzinfo=UTC),
        "n": Decimal("1.50"),
    }
    assert (paid["total"], paid["currency"]) == (7, None)
    assert orders()[0]["currency"] is None
    with pytest.raises(TopologyError, match=r"has the default 'many' for 'total', which is INT"):
        orders(defaults={"total": "many"})


@pytest.mark.parametrize(
    ("default", "declared", "kind", "number"),
    [
        ("+10000-01-01", "DATE", pa.date32(), 2_932_897),
        ("-0001-01-01", "DATE", pa.date32(), -719_893),
        ("+10000-01-01T00:00:00Z", "TIMESTAMP", UTC_MICROS, 253_402_300_800_000_000),
        ("0000-01-01", "TIMESTAMP", UTC_MICROS, -62_167_219_200_000_000),
    ],
)
def test_a_default_may_be_of_any_year(default: str, declared: str, kind: pa.DataType, number: int) -> None:
    schema = record(("n", "int"))
    until = Source(topic="prices", format="avro", schema=f"n INT, x {declared}", defaults={"x": default})
    columns = pa.struct([("n", pa.int32()), ("x", kind)])
    read_rows = decoder(until, columns, {1: WriterSchema(text=json.dumps(schema))})
    rows, reasons = read_rows(pa.array([wired(1, schema, {"n": 1})]))
    plain = pa.int32() if declared == "DATE" else pa.int64()
    assert (rows.field("x").cast(plain).to_pylist(), reasons.to_pylist()) == ([number], [None])
