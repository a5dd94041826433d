"""JSON by columns: the bytes of orjson, row by row, for every type; what comes back is held by ``test_json_forms``."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_json_forms import KINDS, nested

from kappa.wire.json.json_columns import CHUNK, json_lists, json_objects, json_texts
from kappa.wire.json.json_forms import json_forms

HARD = st.text(st.sampled_from('a"\\\x00\x1f\x7f\n\t/é\u2028😀'), max_size=4)


def one_by_one(values: pa.Array) -> list[str | None]:
    """What orjson makes of each value's form."""
    forms: list[Any] = json_forms(values)
    return [None if form is None else orjson.dumps(form, option=orjson.OPT_NON_STR_KEYS).decode() for form in forms]


@pytest.mark.parametrize("name", KINDS)
@settings(deadline=None, max_examples=30)
@given(data=st.data())
def test_a_column_has_the_same_bytes_as_its_single_values(name: str, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | KINDS[name][1], min_size=1, max_size=8))
    for what, (_, column) in nested(name, values).items():
        assert json_texts(column).to_pylist() == one_by_one(column), what
        assert json_texts(column.slice(1)).to_pylist() == one_by_one(column.slice(1)), what


@settings(deadline=None)
@given(st.lists(st.none() | HARD, max_size=6))
def test_text_is_escaped_only_where_json_requires_it(texts: list[str | None]) -> None:
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        assert json_texts(pa.array(texts, kind)).to_pylist() == one_by_one(pa.array(texts, pa.string()))


def test_text_that_is_not_utf8_is_refused() -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\x00\x00\x00\x00\x02\x00\x00\x00"), pa.py_buffer(b"a\xff")]
    )
    with pytest.raises(ValueError, match="UTF8"):
        json_texts(broken)


@pytest.mark.parametrize("scale", [0, 6, 7, 38])
def test_a_decimal_is_written_with_all_its_digits_and_no_exponent(scale: int) -> None:
    kind = pa.decimal128(38, scale)
    unscaled = [0, 1, -1, 12, -(10**38 - 1), 10**37]
    values = pa.array([f"{'-' if n < 0 else ''}{abs(n)}e-{scale}" for n in unscaled]).cast(kind)
    texts = json_texts(values).to_pylist()
    assert texts == [format(value, "f") for value in values.to_pylist()]
    assert not any("E" in text for text in texts)


def test_objects_and_arrays_of_more_rows_than_one_piece_are_written() -> None:
    count = 2 * CHUNK + 1
    names = pa.chunked_array([[f"n{n}" for n in range(7)], [None] * (count - 7)], pa.string())
    rows = pa.table({'a "name"': pa.array(range(count)), "b": names})
    objects = [text for part in json_objects(rows, ['a "name"', "b"]) for text in part.to_pylist()]
    lists = [text for part in json_lists(rows, ["b", 'a "name"']) for text in part.to_pylist()]
    assert len(objects) == len(lists) == count
    assert objects[6] == '{"a \\"name\\"":6,"b":"n6"}'
    assert (objects[-1], lists[-1]) == (f'{{"a \\"name\\"":{count - 1},"b":null}}', f"[null,{count - 1}]")
