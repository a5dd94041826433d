"""Records of changes as rows: what Debezium writes, form by form."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from support.changes import change

from kappa.topology import Source
from kappa.topology.schemas.wire_schemas import WriterSchema
from kappa.wire.debezium import debezium_avro, debezium_records
from kappa.wire.debezium.debezium_positions import position_of
from kappa.wire.debezium.debezium_values import Forms
from kappa.wire.decoders import decoder

CONNECT = "org.apache.kafka.connect.data"
CONNECT_TIME = {"type": "int64", "name": f"{CONNECT}.Timestamp"}
CONNECT_DATE, CONNECT_CLOCK = ({"type": "int32", "name": f"{CONNECT}.{name}"} for name in ("Date", "Time"))
DEBEZIUM = "io.debezium.time"
NO_DATE, NO_TIME = (f"which does not fit {kind}" for kind in ("DATE", "TIMESTAMP"))
TENTHS = {"type": "bytes", "name": f"{CONNECT}.Decimal", "parameters": {"scale": "1"}}
DECIMAL = pa.decimal128(10, 2)
TIME = pa.timestamp("us", "UTC")
LONG = pa.int64()
EVE = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
NOON = datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC)
NOON_MS = NOON.replace(microsecond=123_000)
MICROS = 1_772_366_400_123_456


def of(name: str) -> dict[str, str]:
    """A schema of one of Debezium's times."""
    return {"type": "int64", "name": f"io.debezium.time.{name}"}


def read(payload: Any, kind: pa.DataType = LONG, **forms: Any) -> tuple[dict[str, Any] | None, str | None]:
    """The row of a value with one column ``x``, and why it is a dead letter."""
    value = None if payload is None else payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    rows, reasons = debezium_records.decoded(
        pa.array([value], pa.binary()),
        kind=pa.struct([("x", kind)]),
        forms=Forms(**forms),
        read=debezium_records.unwrapped,
    )
    return rows.to_pylist()[0], reasons.to_pylist()[0]


def x_of(value: Any, kind: pa.DataType, schema: Any = None, **forms: Any) -> Any:
    """The value of a column read from a record's field; the reason where it is a dead letter."""
    payload: Any = change("c", {"x": value}, lsn=1)
    if schema is not None:
        after = {"type": "struct", "field": "after", "fields": [{"field": "x", **schema}]}
        payload = {"schema": {"type": "struct", "fields": [after]}, "payload": payload}
    row, reason = read(payload, kind, **forms)
    return reason if row is None else row["x"]


@pytest.mark.parametrize(
    ("value", "kind", "schema", "forms", "becomes"),
    [
        ("BNI=", DECIMAL, None, {}, Decimal("12.34")),
        ("/w==", DECIMAL, None, {}, Decimal("-0.01")),
        ("", DECIMAL, None, {}, Decimal("0.00")),
        ("12.34", DECIMAL, None, {"decimals": "string"}, Decimal("12.34")),
        ("1234", DECIMAL, None, {"decimals": "string"}, Decimal("1234.00")),
        (12.34, DECIMAL, None, {"decimals": "double"}, Decimal("12.34")),
        (12.34, DECIMAL, None, {}, Decimal("12.34")),
        ("12.3", DECIMAL, None, {}, "x does not fit DECIMAL(10,2)"),
        ({"scale": 1, "value": "ew=="}, DECIMAL, None, {"decimals": "string"}, Decimal("12.30")),
        ({"scale": 3, "value": "MDk="}, DECIMAL, None, {}, Decimal("12.35")),
        ({"scale": -2, "value": "AQ=="}, DECIMAL, None, {}, Decimal("100.00")),
        ({"value": "AQ=="}, DECIMAL, None, {}, "x does not fit DECIMAL(10,2)"),
        ({"scale": 10**9, "value": "AQ=="}, DECIMAL, None, {}, "x does not fit DECIMAL(10,2)"),
        (True, DECIMAL, None, {}, "x does not fit DECIMAL(10,2)"),
        ("f/////////8=", DECIMAL, None, {}, "x does not fit DECIMAL(10,2)"),
        ("ew==", DECIMAL, TENTHS, {}, Decimal("12.30")),
        ("1234", DECIMAL, {"type": "string"}, {}, Decimal("1234.00")),
        (7, DECIMAL, {"type": "double"}, {}, Decimal("7.00")),
        (20_513, pa.date32(), None, {}, date(2026, 3, 1)),
        ("2026-03-01", pa.date32(), None, {}, date(2026, 3, 1)),
        (20_513, pa.date32(), of("Date"), {}, date(2026, 3, 1)),
        (2**31, pa.date32(), None, {}, "x does not fit DATE"),
        (MICROS // 1000, TIME, of("Timestamp"), {}, NOON_MS),
        (MICROS, TIME, of("MicroTimestamp"), {}, NOON),
        (MICROS * 1000 + 999, TIME, of("NanoTimestamp"), {}, NOON),
        (-1, TIME, of("NanoTimestamp"), {}, EVE),
        (MICROS // 1000, TIME, CONNECT_TIME, {}, NOON_MS),
        ("2026-03-01T12:00:00.123456Z", TIME, of("ZonedTimestamp"), {}, NOON),
        ("2026-03-01T13:00:00.123456+01:00", TIME, None, {}, NOON),
        (MICROS, TIME, None, {"timestamps": "epoch_us"}, NOON),
        (MICROS // 1000, TIME, None, {"timestamps": "epoch_ms"}, NOON_MS),
        (MICROS, TIME, None, {}, "x holds a number, not a date: the source's timestamps= says what numbers are"),
        (20_513, TIME, of("Date"), {"timestamps": "epoch_ms"}, datetime(2026, 3, 1, tzinfo=UTC)),
        (20_513, TIME, CONNECT_DATE, {}, datetime(2026, 3, 1, tzinfo=UTC)),
        (45_000_000, TIME, of("MicroTime"), {"timestamps": "epoch_us"}, f"x is {DEBEZIUM}.MicroTime, {NO_TIME}"),
        (45_000, TIME, CONNECT_CLOCK, {"timestamps": "epoch_ms"}, f"x is {CONNECT}.Time, {NO_TIME}"),
        (5_000, pa.date32(), of("Timestamp"), {}, f"x is {DEBEZIUM}.Timestamp, {NO_DATE}"),
        (5_000, pa.date32(), CONNECT_TIME, {}, f"x is {CONNECT}.Timestamp, {NO_DATE}"),
        (5_000, pa.date32(), of("NanoTimestamp"), {}, f"x is {DEBEZIUM}.NanoTimestamp, {NO_DATE}"),
        (5_000, pa.date32(), of("Time"), {}, f"x is {DEBEZIUM}.Time, {NO_DATE}"),
        (2026, pa.date32(), of("Year"), {}, f"x is {DEBEZIUM}.Year, {NO_DATE}"),
        (2026, TIME, of("Year"), {"timestamps": "epoch_seconds"}, f"x is {DEBEZIUM}.Year, {NO_TIME}"),
        (5_000, pa.date32(), of("NanoDuration"), {}, f"x is {DEBEZIUM}.NanoDuration, {NO_DATE}"),
        (5_000, TIME, of("MicroDuration"), {"timestamps": "epoch_us"}, f"x is {DEBEZIUM}.MicroDuration, {NO_TIME}"),
        ([1], pa.list_(pa.date32()), {"type": "array", "items": of("Time")}, {}, f"x is {DEBEZIUM}.Time, {NO_DATE}"),
        ("2026-03-01Z", pa.date32(), of("IsoDate"), {}, date(2026, 3, 1)),
        ("2026-03-01Z", pa.date32(), None, {}, date(2026, 3, 1)),
        ("2026-03-01Z", TIME, of("IsoDate"), {}, datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-01T12:00:00.123456Z", pa.date32(), of("IsoTimestamp"), {}, date(2026, 3, 1)),
        ("12:00:00Z", pa.date32(), of("IsoTime"), {}, "x does not fit DATE"),
        (95_026_236 + 1, pa.date32(), of("Date"), {}, "x does not fit DATE"),
        (45_000_000_000, pa.int64(), of("MicroTime"), {}, 45_000_000_000),
        ("AQI=", pa.binary(), None, {}, b"\x01\x02"),
        ([20_513, None], pa.list_(pa.date32()), None, {}, [date(2026, 3, 1), None]),
        ({"a": "BNI=", "b": None}, pa.map_(pa.string(), DECIMAL), None, {}, [("a", Decimal("12.34")), ("b", None)]),
        ({"y": 20_513}, pa.struct([("y", pa.date32())]), None, {}, {"y": date(2026, 3, 1)}),
        (1, pa.string(), None, {}, "1"),
        ("a", pa.int64(), None, {}, "x does not fit BIGINT"),
    ],
)  # fmt: skip
def test_a_value_is_read_in_the_form_it_was_written_in(
    value: Any, kind: pa.DataType, schema: Any, forms: dict[str, Any], becomes: Any
) -> None:
    assert x_of(value, kind, schema, **forms) == becomes


PLACEHOLDER = "__debezium_unavailable_value"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (PLACEHOLDER, pa.string()),
        ("X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", pa.binary()),
        ([PLACEHOLDER], pa.list_(pa.string())),
        (list(PLACEHOLDER.encode()), pa.list_(pa.int32())),
        ({PLACEHOLDER: PLACEHOLDER}, pa.map_(pa.string(), pa.string())),
        (f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}', pa.string()),
    ],
)
def test_a_large_value_that_a_change_omits_is_marked(value: Any, kind: pa.DataType) -> None:
    row, reason = read(change("u", {"x": value}, lsn=1), kind)

    assert (reason, row and row["x"], row and row["_unchanged"]) == (None, None, ["x"])


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"x": 1}, debezium_records.NO_CHANGE),
        ({"op": "z", "source": {}, "after": {"x": 1}}, debezium_records.OTHER_OPERATION),
        ({"op": {}, "source": {}, "after": {"x": 1}}, debezium_records.OTHER_OPERATION),
        ({"op": "c", "after": {"x": 1}}, debezium_records.NO_SOURCE),
        (
            {"op": "c", "source": {"connector": "postgresql"}, "after": {"x": 1}},
            debezium_records.NO_POSITION.format("lsn"),
        ),
        ({"op": "u", "source": {"connector": "x"}, "after": None}, debezium_records.NO_AFTER),
        ({"op": "u", "source": {"connector": "x"}, "after": '{"x":1}'}, debezium_records.TEXT_AFTER),
        (b"[1]", "the value is not a JSON object"),
        (b"\xff", "the value is not UTF-8"),
        (b"", "the value is empty"),
    ],
)
def test_a_value_that_is_not_a_change_is_a_dead_letter(payload: Any, reason: str) -> None:
    assert read(payload) == (None, reason)


@pytest.mark.parametrize("operation", ["d", "t", "m"])
def test_a_change_without_a_row_has_a_position_and_a_time(operation: str) -> None:
    row, reason = read({**change(operation, None, lsn=7), "before": {"x": 1}})

    assert (reason, row) == (
        None,
        {
            "x": None,
            "_operation": operation,
            "_position": position_of({"connector": "postgresql", "lsn": 7}, operation),
            "_source_time": datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC),
            "_unchanged": [],
        },
    )


POSTGRES = {"connector": "postgresql"}
MYSQL = {"connector": "mysql"}
SERVER = {"connector": "sqlserver"}
COMMIT = {"commit_lsn": "00000025:00000d98:00a2"}
ORACLE = {"connector": "oracle"}


@pytest.mark.parametrize(
    "in_order",
    [
        [
            ({**POSTGRES, "lsn": 9}, "c"),
            ({**POSTGRES, "lsn": 10, "sequence": '[null,"10"]'}, "r"),
            ({**POSTGRES, "lsn": 10, "sequence": '[null,"10"]'}, "c"),
            # Began before the snapshot at 10 and ended after another transaction that did so at 12.
            ({**POSTGRES, "lsn": 8, "sequence": '["12","8"]'}, "u"),
            ({**POSTGRES, "lsn": 9, "sequence": '["12","9"]'}, "u"),
            ({**POSTGRES, "lsn": 300, "sequence": '["13","300"]'}, "u"),
        ],
        [
            ({**MYSQL, "file": "bin.000009", "pos": 500, "row": 0, "snapshot": "true"}, "r"),
            ({**MYSQL, "file": "bin.000009", "pos": 500, "row": 0}, "c"),
            ({**MYSQL, "file": "bin.000009", "pos": 500, "row": 1}, "c"),
            ({**MYSQL, "file": "bin.000009", "pos": 1500}, "c"),
            ({**MYSQL, "file": "bin.000010", "pos": 4}, "u"),
            ({**MYSQL, "connector": "mariadb", "file": "bin.1000000", "pos": 4}, "u"),
        ],
        [
            ({**SERVER, **COMMIT, "change_lsn": "NULL"}, "r"),
            ({**SERVER, **COMMIT, "change_lsn": "00000025:00000d98:0001"}, "c"),
            ({**SERVER, **COMMIT, "change_lsn": "00000025:00000d98:0002", "event_serial_no": 1}, "u"),
            ({**SERVER, **COMMIT, "change_lsn": "00000025:00000d98:0002", "event_serial_no": 2}, "u"),
            ({**SERVER, "commit_lsn": "00000026:00000001:0001", "change_lsn": "00000026:00000001:0001"}, "u"),
        ],
        [
            ({**ORACLE, "scn": "100"}, "r"),
            ({**ORACLE, "scn": "90", "commit_scn": "101"}, "u"),
            ({**ORACLE, "scn": "95", "commit_scn": "101", "ssn": 1}, "u"),
            ({**ORACLE, "scn": "95", "commit_scn": "101", "ssn": 2}, "u"),
            ({**ORACLE, "scn": "95", "commit_scn": "101", "rs_id": "0x0034b1.00143517.0010", "ssn": 0}, "u"),
            ({**ORACLE, "scn": "95", "commit_scn": "101", "rs_id": " 0x0034b1.00143517.00a4 ", "ssn": 0}, "u"),
            ({**ORACLE, "scn": "95", "commit_scn": "101", "rs_id": "0x0134b1.00000002.0010", "ssn": 0}, "u"),
        ],
    ],
)  # fmt: skip
def test_positions_sort_as_the_log_of_the_source_does(in_order: list[tuple[dict[str, Any], str]]) -> None:
    positions = [position_of(block, operation) for block, operation in in_order]

    assert positions == sorted(set(positions))


def test_the_position_of_another_connector_is_empty() -> None:
    assert position_of({"connector": "mongodb", "ord": 1}, "c") == ""


def optional(name: str, kind: Any) -> dict[str, Any]:
    """A field that may be null."""
    return {"name": name, "type": ["null", kind], "default": None}


ENVELOPE = {
    "type": "record", "name": "Envelope", "namespace": "shop.public.customers",
    "fields": [
        {"name": "before", "default": None, "type": ["null", {
            "type": "record", "name": "Value", "connect.name": "shop.public.customers.Value",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "name", "type": ["null", "string"], "default": None},
                {"name": "amount", "default": None, "type": ["null", {
                    "type": "bytes", "scale": 2, "precision": 10, "logicalType": "decimal", "connect.version": 1,
                    "connect.parameters": {"scale": "2"}, "connect.name": "org.apache.kafka.connect.data.Decimal",
                }]},
                {"name": "rate", "default": None, "type": ["null", {
                    "type": "record", "name": "VariableScaleDecimal", "namespace": "io.debezium.data",
                    "connect.name": "io.debezium.data.VariableScaleDecimal",
                    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
                }]},
                optional("born", {"type": "int", "connect.name": "io.debezium.time.Date"}),
                optional("at", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}),
                optional("short", {"type": "long", "connect.name": "io.debezium.time.Timestamp"}),
                {"name": "bin", "default": None, "type": ["null", "bytes"]},
                optional("tags", {"type": "array", "items": ["null", "string"]}),
                {"name": "ratio", "default": None, "type": ["null", "double"]},
            ],
        }]},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": {
            "type": "record", "name": "Source", "namespace": "io.debezium.connector.postgresql",
            "fields": [
                {"name": "connector", "type": "string"}, {"name": "ts_ms", "type": "long"},
                {"name": "sequence", "type": ["null", "string"], "default": None},
                {"name": "lsn", "type": ["null", "long"], "default": None},
            ],
        }},
        {"name": "op", "type": "string"},
    ],
}  # fmt: skip
COLUMNS = pa.struct(
    [
        ("id", LONG), ("name", pa.string()), ("amount", DECIMAL), ("rate", DECIMAL), ("born", pa.date32()),
        ("at", TIME), ("short", TIME), ("bin", pa.binary()), ("tags", pa.list_(pa.string())), ("ratio", pa.float64()),
    ]
)  # fmt: skip


def in_avro(payload: Any, number: int = 7) -> bytes:
    import fastavro

    datum = io.BytesIO()
    plain = json.loads(json.dumps(ENVELOPE).replace("logicalType", "other"))
    fastavro.schemaless_writer(datum, fastavro.parse_schema(plain), payload)
    return b"\0" + number.to_bytes(4) + datum.getvalue()


def test_avro_is_read_like_json_with_a_schema() -> None:
    writers = debezium_avro.writers({7: WriterSchema(text=json.dumps(ENVELOPE)), 8: None})
    row = {
        "id": 1, "name": PLACEHOLDER, "amount": b"\x04\xd2", "rate": {"scale": 1, "value": b"{"}, "born": 20_513,
        "at": MICROS, "short": MICROS // 1000, "bin": b"\x01", "tags": ["a", None], "ratio": float("inf"),
    }  # fmt: skip
    source = {"connector": "postgresql", "ts_ms": 5, "sequence": None, "lsn": 7}
    values = [
        in_avro({"before": None, "after": row, "source": source, "op": "u"}),
        in_avro({"before": {"id": 1}, "after": None, "source": source, "op": "d"}),
        in_avro({"before": None, "after": row, "source": source, "op": "u"}, 8),
        in_avro({"before": None, "after": row, "source": source, "op": "u"}, 9),
        b"{}",
        None,
    ]

    rows, reasons = debezium_records.decoded(
        pa.array(values, pa.binary()),
        kind=COLUMNS,
        forms=Forms(),
        read=lambda value: debezium_avro.datum(value, writers),
    )

    first, second, *_ = rows.to_pylist()
    assert reasons.to_pylist() == [
        None,
        None,
        "schema 8 is not in the schema registry",
        "unresolved schema 9",
        "the value does not begin with zero and the id of a schema",
        None,
    ]
    assert {name: first[name] for name in COLUMNS.names} == {
        "id": 1, "name": None, "amount": Decimal("12.34"), "rate": Decimal("12.30"),
        "born": date(2026, 3, 1), "at": NOON,
        "short": NOON_MS, "bin": b"\x01", "tags": ["a", None], "ratio": float("inf"),
    }  # fmt: skip
    assert (first["_operation"], first["_unchanged"]) == ("u", ["name"])
    assert (second["_operation"], second["_position"], second["id"]) == ("d", first["_position"], None)


def nullable(name: str, kind: str, **more: Any) -> dict[str, Any]:
    """A field that may be null, as Kafka Connect's converter writes its JSON Schema."""
    types = {"bytes": "string", "int64": "integer", "int32": "integer", "struct": "object"}
    return {"oneOf": [{"type": "null"}, {"type": types[kind], "title": name, "connect.type": kind, **more}]}


VALUE_SCHEMA = nullable(
    "shop.public.customers.Value",
    "struct",
    properties={
        "id": {"type": "integer", "connect.index": 0, "connect.type": "int64"},
        "amount": nullable(f"{CONNECT}.Decimal", "bytes", **{"connect.parameters": {"scale": "4"}}),
        "at": nullable(f"{DEBEZIUM}.MicroTimestamp", "int64"),
        "born": nullable(f"{DEBEZIUM}.Date", "int32"),
        "shift": nullable(f"{DEBEZIUM}.MicroTime", "int64"),
        "tags": {"type": "array", "items": nullable(f"{DEBEZIUM}.Date", "int32")},
    },
)
IN_JSON_SCHEMA = {
    "type": "object",
    "title": "shop.public.customers.Envelope",
    "properties": {"before": VALUE_SCHEMA, "after": VALUE_SCHEMA, "op": {"type": "string"}},
}


def test_the_schema_of_a_registry_says_what_json_holds() -> None:
    source = Source(
        topic="changes",
        schema="amount DECIMAL(10,2), at TIMESTAMP, born DATE, tags ARRAY<DATE>, shift TIMESTAMP",
        key_schema="id BIGINT",
        envelope="debezium",
        format="json_schema",
        timestamps="epoch_ms",
    )
    kind = pa.struct(
        [("amount", DECIMAL), ("at", TIME), ("born", pa.date32()), ("tags", pa.list_(pa.date32())), ("shift", TIME)]
    )
    row = {"amount": "AeJA", "at": MICROS, "born": 20_513, "tags": [20_513, None]}
    payloads = [change("c", row, lsn=1), change("c", {**row, "shift": 1}, lsn=2), change("d", None, lsn=3)]
    values = [b"\0\0\0\0\7" + json.dumps(one).encode() for one in payloads]
    plain = b"\0\0\0\0\x08" + json.dumps(change("c", {"amount": "AeJA"}, lsn=4)).encode()
    of_hand = {"properties": {"after": {"type": "object", "properties": {"amount": {"type": "string"}}}}}
    schemas = {7: json.dumps(IN_JSON_SCHEMA), 8: json.dumps(of_hand)}
    of_json = {number: WriterSchema(text=text, kind="JSON") for number, text in schemas.items()}
    read = decoder(source, kind, {**of_json, 9: None})

    hostile = [b"\0\0\0\0\x09{}", b"\0\0\0\0\x06{}", b"{}", values[0][:-1]]

    rows, reasons = read(pa.array([*values, plain, None, *hostile]))

    first, _, third, of_column, *_ = rows.to_pylist()
    assert [first[name] for name in kind.names] == [
        Decimal("12.35"), NOON, date(2026, 3, 1), [date(2026, 3, 1), None], None
    ]  # fmt: skip
    assert third["_operation"] == "d"
    assert of_column["amount"] == Decimal("1234.56"), "without the converter's names, the column has the scale"
    assert reasons.to_pylist() == [
        None,
        f"shift is {DEBEZIUM}.MicroTime, {NO_TIME}",
        *[None] * 3,
        "schema 9 is not in the schema registry",
        "unresolved schema 6",
        "the value does not begin with zero and the id of a schema",
        "the value is not JSON",
    ]
