"""Records of a topic as rows; and that Arrow reads JSON exactly as ``from_json`` does."""

from __future__ import annotations

import os
import secrets
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from support.hostile_json import SCHEMA, value

from kappa.spark.parsing import arrow_kind, parse
from kappa.spark.parsing.json_lines import rows_of
from kappa.spark.parsing.small import parse_rows
from kappa.spark.session import tune
from kappa.topology import RECORD_COLUMNS, Source

if TYPE_CHECKING:
    from conftest_spark import Log
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("small_slices")]

#: Values of one comparison.
VALUES = 2000


def one(log: Log, value: Any, schema: str, *, in_arrow: bool) -> Row:
    """The row of a topic's only record."""
    (row,) = parse(log([(0, 0, value)]), Source(topic="pos", schema=schema), {}, in_arrow=in_arrow).collect()
    return row


@pytest.fixture(params=[True, False], ids=["in Arrow", "by Spark"])
def in_arrow(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def test_a_record_keeps_where_and_when_it_came(log: Log, in_arrow: bool) -> None:
    raw = log([(1, 1_000, {"n": 1}, b"k"), (1, 3_000, {"n": 2}), (1, 2_000, {"n": 3})], "ticks")

    rows = parse(raw, Source(topic="ticks", schema="n INT"), {1: 1_500}, in_arrow=in_arrow)

    assert rows.columns == ["n", *(name for name in RECORD_COLUMNS if name != "_headers"), "_value", "_dead"]
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
        (b'{"id":"a","n":"1"}', "a field of the value has another type"),
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
def test_a_dead_letter_keeps_its_value_and_a_reason_without_it(
    log: Log, in_arrow: bool, value: bytes, reason: str
) -> None:
    row = one(log, value, "id STRING NOT NULL, n INT", in_arrow=in_arrow)

    assert (row["_dead"], bytes(row["_value"])) == (reason, value)


@pytest.mark.timeout(120, func_only=True)
@pytest.mark.parametrize("number", ["1e-214748364", '"1E+99999999"', "0.1e00012345", '"' + "9" * 1000 + '"'])
@pytest.mark.parametrize("schema", ["m DECIMAL(12,2)", "m DECIMAL(38,20)"])
def test_a_number_that_from_json_would_not_come_back_from_is_a_dead_letter(
    log: Log, schema: str, number: str, in_arrow: bool
) -> None:
    values = [
        f'{{"m":{number}}}',
        f'{{"m":{number}',
        f'{{"inner":{{"list":[null,{{"m":1}},{{"m":{number}}}]}}}}',
        f'{{"tags":{{"a":{number}}}}}',
    ]
    source = Source(
        topic="pos",
        schema=f"text STRING, {schema}, inner STRUCT<list: ARRAY<STRUCT<m: DECIMAL(5,2)>>>, tags MAP<STRING, "
        "DECIMAL(5,2)>",
    )

    rows = parse(log((0, 0, value.encode()) for value in values), source, {}, in_arrow=in_arrow).collect()

    out_of_range = "a number of the value is out of range, or a field has another type"
    assert [row["_dead"] for row in rows] == [out_of_range, "the value is not JSON", out_of_range, out_of_range]


def test_text_that_looks_like_such_a_number_is_read(log: Log, in_arrow: bool) -> None:
    row = one(log, b'{"id":"\\"5e12345","m":0.0}', "id STRING, m DECIMAL(12,2)", in_arrow=in_arrow)

    assert (row["id"], str(row["m"]), row["_dead"]) == ('"5e12345', "0.00", None)


def test_a_good_record_keeps_no_value(log: Log, in_arrow: bool) -> None:
    row = one(log, b' {"id":"a", "other":[1,{}]}\n', "id STRING NOT NULL, n INT", in_arrow=in_arrow)

    assert (row["id"], row["n"], row["_value"], row["_dead"]) == ("a", None, None, None)


def test_a_tombstone_is_a_good_record_without_columns(log: Log, in_arrow: bool) -> None:
    row = one(log, None, "id STRING NOT NULL", in_arrow=in_arrow)

    assert (row["id"], row["_value"], row["_dead"]) == (None, None, None)


def test_types_that_only_spark_reads_are_read(log: Log) -> None:
    value = {"day": "2026-02-03", "at": "2026-02-03T04:05:06.789Z", "tags": {"a": 1}, "raw": "AQI=", "n": 1}

    row = one(log, value, "day DATE, at TIMESTAMP, tags MAP<STRING, INT>, raw BINARY, n INT", in_arrow=True)

    assert (str(row["day"]), row["tags"], bytes(row["raw"]), row["n"], row["_dead"]) == (
        "2026-02-03",
        {"a": 1},
        b"\1\2",
        1,
        None,
    )


def test_text_and_bytes_come_in_the_column_value(log: Log) -> None:
    raw = log([(0, 0, b"text"), (0, 1, b"\xff"), (0, 2, None), (0, 3, b"")])

    texts = parse(raw, Source(topic="pos", format="string"), {}).collect()
    contents = parse(raw, Source(topic="pos", format="bytes"), {}).collect()

    assert [(r["value"], r["_dead"]) for r in texts] == [
        ("text", None),
        (None, "the value is not UTF-8"),
        (None, None),
        ("", None),
    ]
    assert [r["value"] and bytes(r["value"]) for r in contents] == [b"text", b"\xff", None, b""]
    assert [r["_value"] and bytes(r["_value"]) for r in texts] == [None, b"\xff", None, None]


def test_a_key_that_is_no_text_is_null(log: Log) -> None:
    rows = parse(
        log([(0, 0, {}, b"\xff"), (0, 1, {}, "é".encode())]), Source(topic="pos", schema="n INT"), {}
    ).collect()

    assert [row["_key"] for row in rows] == [None, "é"]


def test_headers_come_through(log: Log, in_arrow: bool) -> None:
    raw = log([(0, 0, {"n": 1}), (0, 1, {"n": 2})]).selectExpr(
        "*",
        "IF(offset = 0, array(named_struct('key', 'trace', 'value', X'01FF'), named_struct('key', 'none', 'value', "
        "NULL)), NULL) AS headers",
    )

    rows = parse(raw, Source(topic="pos", schema="n INT", headers=True), {}, in_arrow=in_arrow).collect()

    assert [row["_headers"] and [tuple(header) for header in row["_headers"]] for row in rows] == [
        [("trace", bytearray(b"\x01\xff")), ("none", None)],
        None,
    ]


def test_records_out_of_order_stop_the_job(log: Log, spark: SparkSession) -> None:
    raw = log([(0, 0, {"n": 1}), (0, 1, {"n": 2})]).orderBy("offset", ascending=False).coalesce(1)

    with pytest.raises(Exception, match="out of order"):
        parse(raw, Source(topic="pos", schema="n INT"), {}).collect()


@pytest.mark.parametrize("round", [0, 1])
def test_arrow_reads_json_as_from_json_does(log: Log, spark: SparkSession, round: int) -> None:
    """Every way of parsing against ``from_json`` itself, on new values in each run, wrong in most possible ways."""
    tune(spark, is_small=False)
    seed = int(os.environ.get("TEST_SEED", secrets.randbits(32))) + round
    random = Random(seed)
    values = [value(random) for _ in range(VALUES)]
    try:
        compare(values, log, spark)
    except AssertionError as error:
        raise AssertionError(f"{error}\nThe same values once more: TEST_SEED={seed - round}") from error


def compare(values: list[bytes | None], log: Log, spark: SparkSession) -> None:
    """Fail where a way of parsing differs from ``from_json``, or where Arrow accepts too few values to say much."""
    source = Source(topic="pos", schema=SCHEMA)
    raw = log((0, 0, value) for value in values).localCheckpoint()
    expected = _from_json(raw)
    accepted = _read_one_by_one(values, source)
    small = parse_rows(raw, source, {}).rows

    assert len(accepted) > 0.3 * len(values)
    _assert_same(values, {place: expected[place] for place in accepted}, accepted)
    _assert_same(values, expected, _good(parse(raw, source, {})))
    _assert_same(values, expected, _good(parse(raw, source, {}, in_arrow=False)))
    _assert_same(values, expected, _good(spark.createDataFrame(small)))
    assert sorted(small["_offset"].to_pylist()) == list(range(len(values)))


def _from_json(raw: DataFrame) -> dict[int, str | None]:
    """What ``from_json`` makes of each record, as text; None for a dead letter."""
    parsed = raw.selectExpr(
        "offset",
        "value",
        f"from_json(CAST(value AS STRING), '{SCHEMA}, broken STRING', map('columnNameOfCorruptRecord', 'broken')) AS "
        "row",
    )
    found = parsed.selectExpr(
        "offset",
        "value",
        "is_valid_utf8(CAST(value AS STRING)) AS is_text",
        "row.broken IS NOT NULL AS is_broken",
        "row.* EXCEPT (broken)",
    )
    rows: dict[int, str | None] = {}
    for offset, content, is_text, is_broken, *columns in found.collect():
        is_good = content is None or (
            is_text
            and not is_broken
            and bytes(content).lstrip(b" \t\r\n").startswith(b"{")
            and not _is_followed(bytes(content).decode())
        )
        rows[offset] = repr(columns) if is_good else None
    return rows


def _is_followed(text: str) -> bool:
    """Whether text follows the first JSON value, by a scan of its own: brackets are counted outside of strings."""
    depth, quote, place = 0, "", 0
    while place < len(text):
        letter = text[place]
        if quote and letter == "\\":
            place += 1
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "{[":
            depth += 1
        elif letter in "}]":
            depth -= 1
            if depth == 0:
                return bool(text[place + 1 :].strip(" \t\r\n"))
        place += 1
    return False


def _good(rows: DataFrame) -> dict[int, str | None]:
    names = [column.name for column in Source(topic="pos", schema=SCHEMA).columns]
    return {
        row["_offset"]: repr([row[name] for name in names]) if row["_dead"] is None else None for row in rows.collect()
    }


def _read_one_by_one(values: list[bytes | None], source: Source) -> dict[int, str | None]:
    """The rows that Arrow accepts with each value as a batch of its own: no refused neighbour spares one."""
    kind = arrow_kind(source)
    accepted: dict[int, str | None] = {}
    for place, content in enumerate(values):
        try:
            text = None if content is None else content.decode()
        except UnicodeDecodeError:
            continue
        if text is None:
            continue
        rows, refused = rows_of(pa.array([text]), kind)
        if not np.any(refused):
            accepted[place] = repr([_as_spark(rows.field(i)[0].as_py(), field.type) for i, field in enumerate(kind)])
    return accepted


def _as_spark(value: Any, kind: pa.DataType) -> Any:
    from pyspark.sql import Row

    if value is None:
        return None
    if pa.types.is_struct(kind):
        return Row(**{field.name: _as_spark(value[field.name], field.type) for field in kind})
    return [_as_spark(item, kind.value_type) for item in value] if pa.types.is_list(kind) else value


def _assert_same(values: list[bytes | None], expected: dict[int, str | None], found: dict[int, str | None]) -> None:
    differing = [
        f"{(values[place] or b'')[:200]!r}: from_json gives {expected[place]}, Kappa {found[place]}"
        for place in expected
        if expected[place] != found[place]
    ]
    assert not differing, "\n".join(differing[:20])
