"""The JSON Schema of columns describes the values in topics, according to a validator."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

from kappa.topology.ddl import columns_of
from kappa.topology.schemas.json_schema import json_schema
from kappa.wire.encoding import json_values

AT = datetime(2026, 3, 1, tzinfo=UTC)
TIME = pa.timestamp("us", tz="UTC")
INNER = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.float64()))])
#: Type as DDL, the same in Arrow, and values of it.
CASES: list[tuple[str, pa.DataType, list[Any]]] = [
    ("STRING", pa.string(), ["", "ä"]),
    ("BIGINT", pa.int64(), [2**63 - 1, -1]),
    ("TINYINT", pa.int8(), [1]),
    ("BOOLEAN", pa.bool_(), [True, False]),
    ("DOUBLE", pa.float64(), [1.5, float("nan"), float("inf"), -float("inf")]),
    ("DECIMAL(10,2)", pa.decimal128(10, 2), [Decimal("1.50")]),
    ("BINARY", pa.binary(), [b"\0\xff"]),
    ("DATE", pa.date32(), [date(2026, 3, 1)]),
    ("TIMESTAMP", TIME, [AT]),
    ("ARRAY<STRING>", pa.list_(pa.string()), [[], ["a", None]]),
    ("STRUCT<a: INT, b: ARRAY<DOUBLE>>", INNER, [{"a": 1, "b": [1.0, float("nan")]}, {"a": None, "b": None}]),
    ("MAP<STRING, INT>", pa.map_(pa.string(), pa.int32()), [[("x", 1), ("y", None)]]),
    ("MAP<INT, STRING>", pa.map_(pa.int32(), pa.string()), [[(1, "x"), (2, None)]]),
]


def schema_of(ddl: str) -> Any:
    return json.loads(json_schema("out", columns_of(ddl, "a test")))


@pytest.mark.parametrize(("kind", "arrow", "values"), CASES, ids=[kind for kind, _, _ in CASES])
def test_sent_values_are_valid_and_values_of_another_type_are_not(
    kind: str, arrow: pa.DataType, values: list[Any]
) -> None:
    schema = schema_of(f"id STRING NOT NULL, v {kind}")
    jsonschema.Draft7Validator.check_schema(schema)
    column = [*values, None]
    rows = pa.table({"id": pa.array(["a"] * len(column)), "v": pa.array(column, arrow)})
    for text in json_values(rows, ["id", "v"]):
        assert text is not None
        jsonschema.validate(json.loads(text), schema)
    for other in ({"id": "a", "v": {"nothing": ["like", "this"]}}, {"v": None}, {"id": "a", "v": None, "more": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(other, schema)


def test_a_non_null_column_is_required_and_equal_columns_have_equal_schemas() -> None:
    schema = schema_of("id STRING NOT NULL, n INT, `a b` DOUBLE NOT NULL")
    assert (schema["required"], schema["title"]) == (["id", "a b"], "out")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"id": None, "a b": 1}, schema)
    ddl = columns_of("id STRING NOT NULL, n INT", "a test")
    assert json_schema("out", ddl) == json_schema("out", ddl)
    assert "required" not in json.loads(json_schema("out", ddl, is_loose=True))
