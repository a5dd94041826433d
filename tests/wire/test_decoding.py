"""Rows back from the JSON that was written of them: what was written, or an error."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_json_forms import KINDS, canonical, nested

from kappa.errors import DataLossError
from kappa.wire import decoding
from kappa.wire.decoding import rows_of
from kappa.wire.encoding import json_values


@pytest.mark.parametrize("name", KINDS)
@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_decoded_rows_equal_the_encoded_rows(name: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | KINDS[name][1], min_size=1, max_size=6))
    for what, (_, column) in nested(name, values).items():
        rows = pa.table({"v": column, "id": pa.array(range(len(column)))})
        back = rows_of([value for value in json_values(rows, ["v", "id"]) if value is not None], rows.schema)
        assert canonical(back["v"]) == canonical(rows["v"]), what


def test_a_newer_schema_reads_values_of_an_older_one() -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False), ("new", pa.int64())])

    rows = rows_of([b'{"id":"a","old":[1,{"x":2}]}'], schema)

    assert rows.to_pylist() == [{"id": "a", "new": None}]
    assert rows.schema == schema


@pytest.mark.parametrize(
    "value", [b"", b"{", b'{"id":null}', b"{}", b'{"id":{"x":1}', b'{"id":"a"}\n{"id":"b"}', b'"a"']
)
def test_a_value_that_is_not_a_row_is_an_error(value: bytes) -> None:
    schema = pa.schema([pa.field("id", pa.string(), nullable=False)])

    with pytest.raises(DataLossError, match="is not a row of its table: "):
        rows_of([b'{"id":"a"}', value], schema)


def test_rows_beyond_one_batch_keep_their_order() -> None:
    ids = [f"i{n}" for n in range(decoding._ROWS + 3)]

    rows = rows_of([f'{{"id":"{name}"}}'.encode() for name in ids], pa.schema([("id", pa.string())]))

    assert rows["id"].to_pylist() == ids
    assert rows_of([], rows.schema).schema == rows.schema
