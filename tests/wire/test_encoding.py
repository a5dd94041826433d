"""Rows as Kafka records: nothing is lost on the way to JSON and back."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kappa.kafka.changelogs import changelog_records
from kappa.topology import Table, Topic
from kappa.wire.encoding import topic_records

TABLE = Table(name="t", key=["id"], schema="id STRING NOT NULL, total DECIMAL(18,4)")


def sent(columns: dict[str, list[object]], key: list[str]) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values of rows as a topic output sends them."""
    topic = Topic(name="out", of="rows", key=key)
    return [(record.key, record.value) for record in topic_records(topic, list(columns), pa.table(columns))]


@given(st.decimals(min_value=-(10**14), max_value=10**14, places=4))
def test_money_is_a_number_with_all_its_digits(amount: Decimal) -> None:
    ((_, value),) = sent({"a": [amount]}, ["a"])
    assert value is not None and json.loads(value, parse_float=Decimal)["a"] == amount
    assert b"E" not in value


def test_times_are_utc_and_bytes_are_base64() -> None:
    row = {"at": datetime(2026, 3, 1, 12, 0, 0, 123000, UTC), "day": date(2026, 3, 1), "raw": b"\x00\xff", "none": None}
    ((_, value),) = sent({name: [item] for name, item in row.items()}, ["day"])
    assert json.loads(value or b"") == {
        "at": "2026-03-01T12:00:00.123000Z",
        "day": "2026-03-01",
        "raw": "AP8=",
        "none": None,
    }


def test_a_key_is_text_and_several_are_a_json_array() -> None:
    day = [date(2026, 3, 1)]
    assert [key for key, _ in sent({"a": ["x", None]}, ["a"])] == [b"x", None]
    assert sent({"a": [7]}, ["a"])[0][0] == b"7"
    assert sent({"a": day}, ["a"])[0][0] == b'"2026-03-01"'
    assert sent({"a": ["x"], "b": [7]}, ["a", "b"])[0][0] == b'["x",7]'


def test_topic_records_are_in_total_order_and_deleted_rows_are_tombstones() -> None:
    stamp = datetime(2026, 1, 1, tzinfo=UTC)
    rows = pa.Table.from_pylist(
        [
            {"id": "b", "_order_timestamp": stamp, "_topic": "in", "_partition": 1, "_offset": 0},
            {"id": "a", "_order_timestamp": stamp, "_topic": "in", "_partition": 0, "_offset": 5},
        ]
    )
    topic = Topic(name="out", of="rows", key="id")
    assert [record.key for record in topic_records(topic, ["id"], rows)] == [b"a", b"b"]
    removed_and_kept = pa.Table.from_pylist([{"id": "a", "_deleted": True}, {"id": "b", "_deleted": False}])
    assert [record.value for record in topic_records(topic, ["id"], removed_and_kept)] == [None, b'{"id":"b"}']


def test_a_deleted_row_without_a_key_of_the_topic_is_not_sent() -> None:
    rows = [{"id": "a", "city": None, "_deleted": True}, {"id": "b", "city": None, "_deleted": False}]
    records = topic_records(Topic(name="out", of="rows", key="city"), ["id"], pa.Table.from_pylist(rows))
    assert [(record.key, record.value) for record in records] == [(None, b'{"id":"b"}')]


def test_rows_of_one_place_are_sent_by_key_then_value_in_any_layout() -> None:
    place = {"_order_timestamp": datetime(2026, 1, 1, tzinfo=UTC), "_topic": "in", "_partition": 0}
    lines = [("b", 1, 7), ("a", 2, 7), ("a", 1, 7), (None, 3, 7), ("z", 0, 3), ("c", 0, 9)]
    topic = Topic(name="out", of="rows", key="id")

    def keys(rows: list[tuple[str | None, int, int]]) -> list[tuple[bytes | None, bytes | None]]:
        table = pa.Table.from_pylist([{"id": id, "n": n, **place, "_offset": offset} for id, n, offset in rows])
        return [(record.key, record.value) for record in topic_records(topic, ["n"], table)]

    expected = [(b"z", 0), (None, 3), (b"a", 1), (b"a", 2), (b"b", 1), (b"c", 0)]
    assert keys(lines) == keys(lines[::-1]) == [(key, b'{"n":%d}' % n) for key, n in expected]


def test_a_time_that_kafkas_client_does_not_send_is_that_of_sending() -> None:
    """Its time 0 is that of sending."""
    times = [-1_000_000, -1001, -1000, -999, -1, 0, 999, 1000, None]
    of_micros = [None, None, None, None, None, None, None, 1, None]
    topic = Topic(name="out", of="rows", key="id", time="at")
    for unit, kind in ((1, pa.timestamp("us", "UTC")), (1000, pa.timestamp("ns", "UTC"))):
        at = pa.array([None if one is None else one * unit for one in times], kind)
        rows = pa.table({"id": ["a"] * len(times), "at": at})
        assert [record.timestamp_ms for record in topic_records(topic, ["id"], rows)] == of_micros
    rows = pa.table({"id": ["a"] * 4, "at": [-1, 0, 1, None]})
    assert [record.timestamp_ms for record in topic_records(topic, ["id"], rows)] == [None, None, 1, None]


def test_a_changelog_record_names_its_slice() -> None:
    rows = pa.Table.from_pylist(
        [{"id": "a", "total": Decimal("1.5000"), "_deleted": False}, {"id": "b", "total": None, "_deleted": True}]
    )
    first, second = changelog_records("log", TABLE, rows, 7)
    assert (first.key, first.value) == (b'{"id":"a"}', b'{"id":"a","total":1.5000}')
    assert second.value is None
    assert dict(first.headers or ())["seq"] == dict(second.headers or ())["seq"] == b"7"
