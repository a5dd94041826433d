"""Spark DDL without a JVM."""

from __future__ import annotations

import pytest
from deltalake import Schema

from kappa.errors import TopologyError
from kappa.topology.ddl import columns_of, ddl_of, delta_schema

DDL = (
    "id STRING NOT NULL, price DECIMAL(12,2), items ARRAY<STRUCT<sku: STRING, qty: INT>>, tags MAP<STRING, BIGINT>, at "
    "TIMESTAMP"
)


def test_columns_have_names_types_and_nullability() -> None:
    columns = columns_of(DDL, "test")
    assert [(c.name, c.nullable) for c in columns] == [
        ("id", False),
        ("price", True),
        ("items", True),
        ("tags", True),
        ("at", True),
    ]
    assert columns_of(ddl_of(columns), "again") == columns


def test_delta_reads_the_schema() -> None:
    schema = Schema.from_json(delta_schema(columns_of(DDL, "test")))
    assert [field.name for field in schema.fields] == ["id", "price", "items", "tags", "at"]
    assert not schema.fields[0].nullable


@pytest.mark.parametrize("ddl", ["id", "(", "id STRING, ID INT", "id NOTATYPE", "id INTERVAL DAY"])
def test_an_invalid_schema_is_refused_by_name(ddl: str) -> None:
    with pytest.raises(TopologyError, match="source 'x'"):
        columns_of(ddl, "source 'x'")
