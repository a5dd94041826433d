"""Records of a topic as rows, by each way."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from support.avro import record, wired
from support.changes import LEFT, change
from support.ways import WAYS, Way

from kappa.topology import RECORD_COLUMNS, Source
from kappa.topology.schemas.envelopes import CHANGE_COLUMNS
from kappa.topology.schemas.wire_schemas import WriterSchema
from kappa.wire.debezium import debezium_records

if TYPE_CHECKING:
    from conftest_spark import Log
    from pyspark.sql import Row

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("small_slices")]


@pytest.fixture(params=sorted(WAYS))
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


def one(log: Log, value: Any, schema: str, way: Way) -> Row:
    """The row of a topic's only record."""
    (row,) = way(log([(0, 0, value)]), Source(topic="pos", schema=schema)).collect()
    return row


def test_a_record_keeps_its_place_and_time(log: Log, way: Way) -> None:
    raw = log([(1, 1_000, {"n": 1}, b"k"), (1, 3_000, {"n": 2}), (1, 2_000, {"n": 3})], "ticks")

    rows = way(raw, Source(topic="ticks", schema="n INT"), {1: 1_500})

    assert rows.columns == [
        "n",
        *(name for name in RECORD_COLUMNS if name not in ("_headers", "_tombstone", *CHANGE_COLUMNS)),
        "_value",
        "_dead",
    ]
    assert [(r["n"], r["_key"], r["_topic"], r["_partition"], r["_offset"], r["_dead"]) for r in rows.collect()] == [
        (1, "k", "ticks", 1, 0, None),
        (2, None, "ticks", 1, 1, None),
        (3, None, "ticks", 1, 2, None),
    ]
    times = rows.selectExpr("unix_millis(_timestamp)", "unix_millis(_order_timestamp)").collect()
    assert [tuple(time) for time in times] == [(1_000, 1_500), (3_000, 3_000), (2_000, 3_000)]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\xff", "the value is not UTF-8"),
        (b"", "the value is empty"),
        (b" \n", "the value is empty"),
        (b"null", "the value is not a JSON object"),
        (b'""', "the value is not a JSON object"),
        (b'[{"id":"a"}]', "the value is not a JSON object"),
        (b'{"id":"a"', "the value is not JSON"),
        (b'{"id":"a","n":"1"}', "n does not fit INT"),
        (b'{"n":1}', "id is NOT NULL and absent"),
        (b'{"id":null}', "id is NOT NULL and absent"),
        (b'{"id":"a"}\n{"id":"b"}', "text follows the JSON object"),
        (b'{"id":"a"} trailing', "text follows the JSON object"),
        (b'{"id":"a"},"n":1', "text follows the JSON object"),
        (b'{"id":"a"}}', "text follows the JSON object"),
        (b'{"id":"a","o":{}}]', "text follows the JSON object"),
        (b'{"id":"a"}, {"id":"b"}', "text follows the JSON object"),
        (b'{"id":"a"}\x00', "text follows the JSON object"),
        (b'{"ID":"a"}', "id is NOT NULL and absent"),
    ],
)
def test_a_dead_letter_keeps_its_value_apart_from_the_reason(log: Log, way: Way, value: bytes, reason: str) -> None:
    row = one(log, value, "id STRING NOT NULL, n INT", way)

    assert (row["_dead"], bytes(row["_value"])) == (reason, value)


@pytest.mark.parametrize("number", ['"1E+99999999"', "0.1e00012345", '"' + "9" * 1000 + '"'])
def test_a_number_beyond_any_decimal_is_a_cheap_dead_letter(log: Log, number: str, way: Way) -> None:
    values = [
        f'{{"m":{number}}}',
        f'{{"m":{number}',
        f'{{"inner":{{"list":[null,{{"m":1}},{{"m":{number}}}]}}}}',
        f'{{"tags":{{"a":{number}}}}}',
    ]
    source = Source(
        topic="pos",
        schema="text STRING, m DECIMAL(12,2), inner STRUCT<list: ARRAY<STRUCT<m: DECIMAL(5,2)>>>, tags MAP<STRING, "
        "DECIMAL(5,2)>",
    )

    rows = way(log((0, 0, value.encode()) for value in values), source).collect()

    assert [row["_dead"] for row in rows] == [
        "m does not fit DECIMAL(12,2)",
        "the value is not JSON",
        "inner.list.m does not fit DECIMAL(5,2)",
        "tags does not fit DECIMAL(5,2)",
    ]


def test_text_that_resembles_an_oversized_number_is_read(log: Log, way: Way) -> None:
    row = one(log, b'{"id":"\\"5e12345","m":0.0}', "id STRING, m DECIMAL(12,2)", way)

    assert (row["id"], str(row["m"]), row["_dead"]) == ('"5e12345', "0.00", None)


def test_a_good_record_keeps_no_value(log: Log, way: Way) -> None:
    row = one(log, b' {"id":"a", "other":[1,{}]}\n', "id STRING NOT NULL, n INT", way)

    assert (row["id"], row["n"], row["_value"], row["_dead"]) == ("a", None, None, None)


def test_a_tombstone_is_a_good_record_without_columns(log: Log, way: Way) -> None:
    source = Source(topic="pos", schema="id STRING NOT NULL, n INT", key_schema="id STRING", tombstones=True)

    (row,) = way(log([(0, 0, None, b"a")]), source).collect()

    assert (row["id"], row["n"], row["_value"], row["_dead"], row["_tombstone"]) == ("a", None, None, None, True)


def test_a_change_has_its_row_and_its_operation(log: Log, way: Way) -> None:
    source = Source(topic="pos", schema="name STRING NOT NULL, n INT", key_schema="id BIGINT", envelope="debezium")
    after = {"name": "a", "n": 1}
    wrapped = {"schema": {"type": "struct"}, "payload": {"id": 2}}
    sent = [
        (0, 0, change("c", after, lsn=1), b'{"id":1}'),
        (0, 0, change("u", {"name": LEFT, "n": 2}, lsn=2), json.dumps(wrapped).encode()),
        (0, 0, {"schema": None, "payload": change("d", None, lsn=3)}, b'{"id":3}'),
        (0, 0, None, b'{"id":3}'),
        (0, 0, change("t", None, lsn=4), None),
        (0, 0, change("c", {"n": 1}, lsn=5), b'{"id":4}'),
        (0, 0, change("c", after, lsn=6), None),
        (0, 0, change("d", None, lsn=7), b'{"id":"x"}'),
        (0, 0, after, b'{"id":5}'),
    ]

    rows = way(log(sent), source).orderBy("_offset").collect()

    good = [row for row in rows if row["_dead"] is None]
    columns = ("name", "n", "id", "_operation", "_unchanged")
    assert [tuple(row[name] for name in columns) for row in good] == [
        ("a", 1, 1, "c", []),
        (None, 2, 2, "u", ["name"]),
        (None, None, 3, "d", []),
        (None, None, 3, None, None),
        (None, None, None, "t", []),
    ]
    assert [row["_dead"] for row in rows if row["_dead"] is not None] == [
        "name is NOT NULL and absent",
        "id is a column of the key, and absent",
        "of the key: id does not fit BIGINT",
        debezium_records.NO_CHANGE,
    ]


@pytest.mark.parametrize("format", ["json", "avro", "string", "bytes"])
def test_an_unexpected_null_value_is_a_dead_letter(log: Log, way: Way, format: str) -> None:
    source = Source(topic="pos", schema="id STRING NOT NULL", format=format)

    (row,) = way(log([(0, 0, None, b"a")]), source).collect()

    assert (row["_value"], row["_dead"]) == (None, "the value is null")


UNFIT, OF_KEY = "schema", " does not fit the declared columns"
AVRO_KEY = record(("id", "long"))
AVRO_KEYS = {2: AVRO_KEY, 4: "long", 5: ["null", "long"]}
KEYS: list[tuple[str, str, bytes | None, Any]] = [
    ("text", "id STRING", b"a", "a"),
    ("text", "id STRING", "é".encode(), "é"),
    ("text", "id STRING", b"", ""),
    ("text", "id STRING", b"\xff", "of the key: the value is not UTF-8"),
    ("text", "id STRING", None, "id is a column of the key, and absent"),
    ("text", "id BIGINT", b"200", 200),
    ("text", "id BIGINT", b"-7", -7),
    ("text", "id BIGINT", b'{"id": 1}', "of the key: the key is not BIGINT"),
    ("text", "id BIGINT", b'1,"id":2', "of the key: the key is not BIGINT"),
    ("text", "id BIGINT", b"99999999999999999999", "of the key: the key is not BIGINT"),
    ("text", "id BIGINT", b"", "of the key: the key is not BIGINT"),
    ("text", "id DECIMAL(5,2)", b"1.25", Decimal("1.25")),
    ("text", "id DATE", b"2026-03-01", date(2026, 3, 1)),
    ("text", "id DATE", b"20260301", "of the key: the key is not DATE"),
    ("text", "id DATE", b'"2026-03-01"', date(2026, 3, 1)),
    ("text", "id TIMESTAMP", b'"2026-03-01T12:00:00.000000Z"', datetime(2026, 3, 1, 12)),  # noqa: DTZ001 - as Spark has it
    ("text", "id BIGINT", b"007", 7),
    ("text", "id BIGINT", b"+7", 7),
    ("text", "id BIGINT", b"-0", 0),
    ("text", "id BIGINT", b"+-7", "of the key: the key is not BIGINT"),
    ("text", "id BIGINT", b"7.0", "of the key: the key is not BIGINT"),
    ("text", "id DECIMAL(5,2)", b"+01.25", Decimal("1.25")),
    ("text", "id BOOLEAN", b"true", True),
    ("text", "id BINARY", b"\xff\0", bytearray(b"\xff\0")),
    ("text", "id BINARY", b'"AQI="', bytearray(b"\1\2")),
    ("text", "id BINARY", b'"AQI', bytearray(b'"AQI')),
    ("text", "id STRING", b'"abc"', '"abc"'),
    ("json", "id BIGINT", b'{"id": 5, "more": [1]}', 5),
    ("json", "id BIGINT", b'{"id": "abc"}', "of the key: id does not fit BIGINT"),
    ("json", "id BIGINT", b'{"schema": {}, "payload": {"id": 5}}', "id is a column of the key, and absent"),
    ("json", "id BIGINT", b" 5\n", 5),
    ("json", "id BIGINT", b'"5"', "of the key: id does not fit BIGINT"),
    ("json", "id BIGINT", b"[5]", "of the key: id does not fit BIGINT"),
    ("json", "id BIGINT", b'5,"id":6', "of the key: text follows the JSON object"),
    ("json", "id BIGINT", b"null", "id is a column of the key, and absent"),
    ("json", "id BIGINT", b"", "of the key: the value is empty"),
    ("json", "id BIGINT", b"five", "of the key: the value is not JSON"),
    ("json", "id STRING", b'"a b"', "a b"),
    ("json", "id STRING", b"12", "12"),
    ("json", "id STRING", "\ufeff5".encode(), "of the key: the value begins with a byte order mark"),
    ("json", "id DATE", b'"2026-03-01"', date(2026, 3, 1)),
    ("json", "id BINARY", b'"AQI="', bytearray(b"\1\2")),
    ("json", "id STRING, b INT", b'["a", 1]', "a"),
    ("json", "id STRING, b INT", b'{"b": 1, "id": "c"}', "c"),
    ("json", "id STRING, b INT", b'["a"]', "of the key: the value is not an array of 2 values"),
    ("json", "id STRING, b INT", b'["a", "b"]', "of the key: b does not fit INT"),
    ("json", "id STRING, b INT", b'"a"', "of the key: the value is not a JSON object"),
    ("json_schema", "id STRING", b'\0\0\0\0\3"a"', "a"),
    ("long", "id BIGINT", (5).to_bytes(8), 5),
    ("long", "id BIGINT", (200).to_bytes(8), 200),
    ("long", "id BIGINT", (-1).to_bytes(8, signed=True), -1),
    ("long", "id BIGINT", b"200", "of the key: the key is not a number of 8 bytes"),
    ("long", "id BIGINT", None, "id is a column of the key, and absent"),
    ("int", "id BIGINT", (200).to_bytes(4), 200),
    ("int", "id INT", (200).to_bytes(8), "of the key: the key is not a number of 4 bytes"),
    ("avro", "id BIGINT", wired(2, AVRO_KEY, {"id": 200}), 200),
    ("avro", "id BIGINT", wired(4, "long", 200), 200),
    ("avro", "id BIGINT", wired(5, ["null", "long"], 200), 200),
    ("avro", "id BIGINT", wired(5, ["null", "long"], None), "id is a column of the key, and absent"),
    (
        "avro",
        "id STRING",
        wired(4, "long", 200),
        f"of the key: {UNFIT} 4{OF_KEY}: id is long, which does not fit STRING",
    ),
    ("avro", "id BIGINT, b INT", wired(4, "long", 200), f"of the key: {UNFIT} 4{OF_KEY}: it is not a record"),
    ("avro", "id BIGINT", b"200", "of the key: the value does not begin with zero and the id of a schema"),
    ("avro", "id BIGINT", b"\0\0\0\0\x09\2", "of the key: schema 9 is not in the schema registry"),
]


@pytest.mark.parametrize("columns", ["n INT", "{}, n INT"], ids=["in the key alone", "in the value too"])
def test_each_kind_of_key_is_read_or_is_a_dead_letter(log: Log, way: Way, columns: str) -> None:
    avro = {number: WriterSchema(text=json.dumps(one)) for number, one in AVRO_KEYS.items()}
    schemas = {**avro, 3: WriterSchema(text="{}", kind="JSON"), 9: None}
    for format, ddl in dict.fromkeys((format, ddl) for format, ddl, *_ in KEYS):
        cases = [(key, expected) for *kind, key, expected in KEYS if kind == [format, ddl]]
        source = Source(topic="pos", schema=columns.format(ddl), key_schema=ddl, key_format=format, tombstones=True)
        # A row whose value lacks the column takes it from the key as a deletion does.
        raw = log([(0, 0, value, key) for key, _ in cases for value in (None, b"{}")])
        rows = way(raw, source, schemas=schemas).collect()
        outcomes = [
            row["id"] if row["_dead"] is None else row["_dead"] for row in sorted(rows, key=lambda row: row["_offset"])
        ]

        assert outcomes == [expected for _, expected in cases for _ in range(2)], f"{format}, {ddl}"


def test_the_key_is_not_read_where_the_value_has_the_column(log: Log, way: Way) -> None:
    source = Source(topic="pos", schema="id BIGINT, n INT", key_schema="id BIGINT", key_format="long", tombstones=True)

    (row,) = way(log([(0, 0, {"id": 1, "n": 2}, b"no number")]), source).collect()

    assert (row["id"], row["n"], row["_dead"], row["_tombstone"]) == (1, 2, None, False)


def test_types_that_arrow_cannot_read_are_read(log: Log, way: Way) -> None:
    value = {"day": "2026-02-03", "at": "2026-02-03T04:05:06.789Z", "tags": {"a": 1}, "raw": "AQI=", "n": 1}

    row = one(log, value, "day DATE, at TIMESTAMP, tags MAP<STRING, INT>, raw BINARY, n INT", way)

    assert (str(row["day"]), row["tags"], bytes(row["raw"]), row["n"], row["_dead"]) == (
        "2026-02-03",
        {"a": 1},
        b"\1\2",
        1,
        None,
    )


def test_text_and_bytes_come_in_the_column_value(log: Log, way: Way) -> None:
    raw = log([(0, 0, b"text"), (0, 1, b"\xff"), (0, 2, None), (0, 3, b"")])

    texts = way(raw, Source(topic="pos", format="string")).collect()
    contents = way(raw, Source(topic="pos", format="bytes")).collect()

    assert [(r["value"], r["_dead"]) for r in texts] == [
        ("text", None),
        (None, "the value is not UTF-8"),
        (None, "the value is null"),
        ("", None),
    ]
    assert [r["value"] and bytes(r["value"]) for r in contents] == [b"text", b"\xff", None, b""]
    assert [r["_value"] and bytes(r["_value"]) for r in texts] == [None, b"\xff", None, None]


def test_a_key_that_is_not_text_is_null(log: Log, way: Way) -> None:
    raw = log([(0, 0, {}, b"\xff"), (0, 1, {}, "é".encode())])

    rows = way(raw, Source(topic="pos", schema="n INT")).collect()

    assert [row["_key"] for row in rows] == [None, "é"]


def test_headers_are_kept(log: Log, way: Way) -> None:
    raw = log([(0, 0, {"n": 1}), (0, 1, {"n": 2})]).selectExpr(
        "*",
        "IF(offset = 0, array(named_struct('key', 'trace', 'value', X'01FF'), named_struct('key', 'none', 'value', "
        "NULL)), NULL) AS headers",
    )

    rows = way(raw, Source(topic="pos", schema="n INT", headers=True)).collect()

    assert [row["_headers"] and [tuple(header) for header in row["_headers"]] for row in rows] == [
        [("trace", bytearray(b"\x01\xff")), ("none", None)],
        None,
    ]


def test_records_out_of_order_stop_the_job(log: Log, way: Way) -> None:
    raw = log([(0, 0, {"n": 1}), (0, 1, {"n": 2})]).orderBy("offset", ascending=False).coalesce(1)

    with pytest.raises(Exception, match="out of order"):
        way(raw, Source(topic="pos", schema="n INT")).collect()
