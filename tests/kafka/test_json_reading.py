"""Rows that Arrow reads back from their JSON: what was written, or none, which leaves them to Spark."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_json_forms import KINDS, canonical, nested

from kappa.kafka import json_reading
from kappa.kafka.encoding import json_values
from kappa.kafka.json_reading import is_readable, read_rows

#: Left to Spark: every value of these, and those around them.
UNREADABLE = {"BINARY", "DECIMAL(38,9)"}


@pytest.mark.parametrize("name", KINDS)
@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_read_is_what_was_written(name: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | KINDS[name][1], min_size=1, max_size=6))
    for what, (_, made) in nested(name, values).items():
        assert is_readable(made.type) == (name not in UNREADABLE and what in ("plain", "list", "struct"))
        if is_readable(made.type):
            rows = pa.table({"v": made, "id": pa.array(range(len(made)))})
            found = read_rows(list(json_values(rows, ["v", "id"])), rows.schema)  # type: ignore[arg-type]  # none is deleted
            assert found is None or canonical(found["v"]) == canonical(rows["v"]), what


@pytest.mark.parametrize(
    ("name", "value", "is_read"),
    [
        ("DOUBLE", 1e308, True),
        ("DOUBLE", -0.0, True),
        ("DOUBLE", float("nan"), False),
        ("FLOAT", float("inf"), False),
        ("TIMESTAMP", 253_402_300_799_999_999, True),
        ("TIMESTAMP", -62_135_596_800_000_000, True),
        ("TIMESTAMP", 253_402_300_800_000_000, False),
        ("DATE", 2_932_897, False),
    ],
)
def test_single_values_are_left_to_spark(name: str, value: float, is_read: bool) -> None:
    made = nested(name, [value])["plain"][1]
    rows = pa.table({"v": made})
    found = read_rows(list(json_values(rows, ["v"])), rows.schema)  # type: ignore[arg-type]  # none is deleted
    assert (found is not None) == is_read
    assert found is None or canonical(found["v"]) == canonical(rows["v"])


def test_a_newer_schema_reads_what_an_older_one_wrote() -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), ("new", pa.int64())])
    found = read_rows([b'{"id":"a","old":[1,{"x":2}]}'], schema)
    assert found is not None
    assert found.to_pylist() == [{"id": "a", "new": None}]
    assert found.schema == schema


@pytest.mark.parametrize("value", [b"", b"{", b'{"id":null}', b"{}", b'{"id":1}', b'{"id":"a"}\n{"id":"b"}', b'"a"'])
def test_what_is_no_row_is_left_to_spark(value: bytes) -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False)])
    assert read_rows([b'{"id":"a"}', value], schema) is None


def test_more_rows_and_longer_ones_than_are_parsed_at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_reading, "_ROWS", 3)
    monkeypatch.setattr(json_reading, "_BYTES", 400)
    values = [b'{"id":"%s"}' % (b"x" * (n * 37 % 500)) for n in range(50)]
    sizes = Counter(len(portion) for portion in json_reading._portions(values))
    assert set(sizes) == {1, 2, 3}
    found = read_rows(values, pa.schema([("id", pa.string())]))
    assert found is not None
    assert [len(text) for text in found["id"].to_pylist()] == [n * 37 % 500 for n in range(50)]
    assert read_rows([], found.schema) == found.schema.empty_table()
