"""Defaults of an Avro source are checked where they are written, and every reader can use those that pass."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kappa import Source
from kappa.errors import TopologyError
from kappa.wire.json import json_values

DECIMAL, TIME = pa.decimal128(5, 2), pa.timestamp("us", "UTC")


def source(ddl: str, value: Any, **changes: Any) -> Source:
    return Source(topic="in", schema=f"id STRING, x {ddl}", format="avro", defaults={"x": value}, **changes)


@pytest.mark.parametrize(
    ("ddl", "kind", "value", "row"),
    [
        ("BIGINT", pa.int64(), -(2**63), -(2**63)),
        ("TINYINT", pa.int8(), -128, -128),
        ("TINYINT", pa.int8(), 127, 127),
        ("BIGINT", pa.int64(), 2**63 - 1, 2**63 - 1),
        ("BOOLEAN", pa.bool_(), True, True),
        ("DOUBLE", pa.float64(), 12, 12.0),
        ("DOUBLE", pa.float64(), float("-inf"), float("-inf")),
        ("DOUBLE", pa.float64(), "INF", float("inf")),
        ("DECIMAL(5,2)", DECIMAL, Decimal("1.50"), Decimal("1.50")),
        ("DECIMAL(5,2)", DECIMAL, Decimal("1E+2"), Decimal("100.00")),
        ("DECIMAL(5,2)", DECIMAL, 999.994, Decimal("999.99")),
        ("DECIMAL(5,2)", DECIMAL, "+1e2", Decimal("100.00")),
        ("DECIMAL(38,0)", pa.decimal128(38, 0), 10**37, Decimal(10**37)),
        ("STRING", pa.string(), "é\ud7ff\ue000😀", "é\ud7ff\ue000😀"),
        ("STRING", pa.string(), {"a": [1]}, '{"a":[1]}'),
        ("STRING", pa.string(), True, "true"),
        ("BINARY", pa.binary(), b"\x01\xff", b"\x01\xff"),
        ("BINARY", pa.binary(), "AQI=", b"\x01\x02"),
        ("DATE", pa.date32(), date(2026, 3, 1), date(2026, 3, 1)),
        ("DATE", pa.date32(), "2024-2-29", date(2024, 2, 29)),
        ("TIMESTAMP", TIME, datetime(2026, 3, 1, 12, tzinfo=UTC), datetime(2026, 3, 1, 12, tzinfo=UTC)),
        ("TIMESTAMP", TIME, " 2026-03-01 ", datetime(2026, 3, 1, tzinfo=UTC)),
        ("ARRAY<DECIMAL(5,2)>", pa.list_(DECIMAL), [Decimal(1), None], [Decimal("1.00"), None]),
        (
            "STRUCT<a: BINARY, b: INT>",
            pa.struct([("a", pa.binary()), ("b", pa.int32())]),
            {"a": b"x"},
            {"a": b"x", "b": None},
        ),
        ("MAP<STRING, INT>", pa.map_(pa.string(), pa.int32()), {"k": 1}, [("k", 1)]),
        ("BIGINT", pa.int64(), None, None),
    ],
)
def test_a_default_is_the_value_that_its_author_wrote(ddl: str, kind: pa.DataType, value: Any, row: Any) -> None:
    import orjson

    declared = source(ddl, value)
    struct = pa.struct([("id", pa.string()), ("x", kind)])
    rows, reasons = json_values.decoded(pa.array([orjson.dumps(dict(declared.defaults))]), struct, "text")
    assert (rows.to_pylist(), list(reasons)) == ([{"id": None, "x": row}], [None])


@pytest.mark.parametrize(
    ("ddl", "value"),
    [
        ("BIGINT", "12"),
        ("BIGINT", 1.0),
        ("BIGINT", True),
        ("BIGINT", 2**63),
        ("TINYINT", 128),
        ("TINYINT", -129),
        ("BIGINT NOT NULL", None),
        ("BOOLEAN", 1),
        ("BOOLEAN", "true"),
        ("DOUBLE", "1.5"),
        ("DECIMAL(5,2)", "x"),
        ("DECIMAL(5,2)", Decimal("999.995")),
        ("DECIMAL(5,2)", Decimal("NaN")),
        ("DECIMAL(5,2)", True),
        ("DECIMAL(5,2)", "1e400"),
        ("STRING", object()),
        ("STRING", {1: "a"}),
        ("STRING", "\ud83d"),
        ("STRING", {"a": ["\udc00"]}),
        ("STRING", {"\ud83d": 1}),
        ("ARRAY<STRING>", ["\ud83d"]),
        ("MAP<STRING, INT>", {"\udfff": 1}),
        ("BINARY", "AQI"),
        ("BINARY", 1),
        ("DATE", "2026-02-29"),
        ("DATE", "20260301"),
        ("DATE", 20513),
        ("TIMESTAMP", 1772323200),
        ("TIMESTAMP", "now"),
        ("ARRAY<INT>", 1),
        ("ARRAY<INT>", [1, "a"]),
        ("STRUCT<a: INT>", {"a": "1"}),
        ("STRUCT<a: INT>", []),
        ("MAP<STRING, INT>", {"a": "1"}),
    ],
)
def test_a_default_that_is_not_of_its_column_is_refused_where_it_is_written(ddl: str, value: Any) -> None:
    with pytest.raises(
        TopologyError, match=r"^Source 'in' has the default .* for 'x', which is .* Write it like a JSON"
    ):
        source(ddl, value)


def test_a_number_is_a_time_where_the_source_says_so() -> None:
    assert source("TIMESTAMP", 1_772_323_200, timestamps="epoch_seconds").defaults == {"x": 1_772_323_200}
