"""Values that Arrow reads: the row is right, or the value is left to the converter."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappa.wire.json.json_lines import bulk_rows, plan_of

KIND = pa.struct([("n", pa.int64()), ("money", pa.decimal128(5, 2)), ("f", pa.float64()), ("text", pa.string())])


def numbers(*values: str) -> list[int | str | None]:
    """The column ``n`` of each value, or 'refused'."""
    rows, refused = bulk_rows(pa.array([value.encode() for value in values]), KIND, "text")
    assert len(rows) == len(values)
    return ["refused" if no else row["n"] for row, no in zip(rows.to_pylist(), refused, strict=True) if no or row]


def test_a_row_stays_beside_its_value() -> None:
    assert numbers('{"n":1}', "{}", '{"n":3}') == [1, None, 3]


@pytest.mark.parametrize(
    "value",
    [
        "",
        "{}{}",
        '{"n":7}{"n":8}',
        "null",
        '{"n":7}}{"i":2,"v":{"n":8}',
        '{"n":7},"v":{"n":8}',
        '{"n":7},"i":9',
        '{"n":7},"x":{"n":8}',
        '{"n":7,"o":{}} ,\t"x":8',
        '{"n":7',
        '{"n":7}\0}',
        '{"n":7}\0{}',
        '{"n":7,"o":[{}',
        '{"n":7,"o":"}',
        '{"n":7}{}',
        '{"n":7}1{}',
        '{"n":7}\ufeff{}',
    ],
)
def test_a_value_that_would_shift_the_rows_is_refused(value: str) -> None:
    assert numbers('{"n":1}', value, '{"n":3}') == [1, "refused", 3]


#: What values are made of that a reader may take for one object: too many, too few, or parts of one in two values.
PIECES = ['{"n":1}', "{", "}", "[", "]", '"n":', '"v":', '"text":', '"', "\\", ",", ":", "1", " ", "\0", "\n", "\ufeff"]


@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=6).map(lambda pieces: f"{{{''.join(pieces)}}}"), max_size=6))
def test_any_text_is_read_only_as_the_single_object_it_is(values: list[str]) -> None:
    rows, refused = bulk_rows(pa.array([value.encode() for value in values], pa.binary()), KIND, "text")

    assert len(rows) == len(values)
    for value, row, is_refused in zip(values, rows.to_pylist(), refused, strict=True):
        if not is_refused:
            assert {**dict.fromkeys(row), **json.loads(value)}.items() >= row.items()


def test_a_nested_object_is_read_whatever_follows_it() -> None:
    assert numbers('{"o":{"a":1},"n":1}', '{"o":[{"a":1},{}],"n":2}', '{"text":"},\\"","n":3}') == [1, 2, 3]


@pytest.mark.parametrize("bad", [0, 1, 511, 512, 513, 4999])
def test_one_bad_value_among_many_is_refused_alone(bad: int) -> None:
    values = [f'{{"n":{i}}}' for i in range(5000)]
    values[bad] = '{"n":"x"}'

    outcomes = numbers(*values)

    assert outcomes[bad] == "refused"
    assert [n for n in outcomes if n != "refused"] == [i for i in range(5000) if i != bad]


def test_thousands_of_bad_values_are_refused_in_bounded_time() -> None:
    outcomes = numbers(*(['{"n":1}', '{"n":x}'] * 5000))

    assert set(outcomes[1::2]) == {"refused"}
    assert set(outcomes[0::2]) <= {1, "refused"}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ('{"money":1234.5}', "1234.50 does not fit DECIMAL(5,2)"),
        ('{"money":0.005}', "it is rounded half up"),
        ('{"money":1e-77}', "Arrow looks past the end of a table"),
        ('{"money":"1e-77"}', "Arrow looks past the end of a table"),
        ('{"money":"1\\u0065-77"}', "the same, escaped"),
        ('{"f":1e400}', "out of range"),
        ('{"f":1.7976931348623159e308}', "out of range after rounding"),
        ('{"f":NaN}', "no JSON"),
        ('{"f":-Infinity}', "no JSON"),
        ('{"x":[NaN]}', "no JSON, in a field that no column has"),
        ('{"text":"\\ude00"}', "half a character"),
        ('{"n":1,"n":2}', "the last one counts"),
        ('{"x":' + "[" * 200 + "]" * 200 + "}", "deeper than the limit"),
        ('{"x":' + "[" * 200_000 + "]" * 200_000 + "}", "deep enough to end the process"),
    ],
)
def test_values_that_arrow_and_the_converter_read_differently_are_refused(value: str, why: str) -> None:
    assert numbers(value) == ["refused"], why
    assert numbers('{"n":1}', value, '{"n":3}') == [1, "refused", 3], why


def test_a_value_with_line_breaks_is_read() -> None:
    assert numbers('{"n":\n1}', '{\r\n  "n": 2,\n  "text": "{}"\n}\n', '{"n":3}') == [1, 2, 3]


@pytest.mark.parametrize("text", ["1e-77x", "5e12345-6", "4e23-11", "infinite", "Naomi", "[{[{", "\\u003ca\\u003e"])
def test_text_that_resembles_input_hidden_from_arrow_is_read(text: str) -> None:
    assert numbers(f'{{"n":1,"text":"{text}"}}') == [1]


@pytest.mark.parametrize("size", [100, 1 << 17, (1 << 17) - 12, (1 << 17) - 20])
def test_input_hidden_from_arrow_is_found_at_any_position(size: int) -> None:
    """The bytes are looked through in pieces."""
    first = '{"n":1,"x":"' + "x" * (size - 14) + '"}'
    for other in ('{"x":NaN}', '{"f":-Infinity}', '{"money":1e-77}', '{"x":' + "[" * 200 + "]" * 200 + "}"):
        for shift in range(12):
            assert numbers(" " * shift + first, other) == [1, "refused"]


def test_values_of_a_slice_of_an_array_are_read() -> None:
    values = pa.array([b'{"n":1}', b'{"n":2}', b'{"n":3}']).slice(1, 2)

    rows, refused = bulk_rows(values, KIND, "text")

    assert [row["n"] for row in rows.to_pylist()] == [2, 3]
    assert not refused.any()


def test_no_values_give_no_rows() -> None:
    rows, refused = bulk_rows(pa.array([], pa.binary()), KIND, "text")

    assert len(rows) == len(refused) == 0


@pytest.mark.parametrize(
    "kind", [pa.decimal128(38, 10), pa.map_(pa.string(), pa.float32()), pa.map_(pa.int64(), pa.string())]
)
def test_types_that_only_the_converter_reads_are_reported(kind: pa.DataType) -> None:
    assert plan_of(pa.struct([("n", pa.int64()), ("x", pa.list_(kind))]), "text") is None


def test_times_as_texts_are_read_in_bulk() -> None:
    kind = pa.struct([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])

    assert plan_of(kind, "text") is not None
    assert plan_of(kind, "epoch_ms") is None
