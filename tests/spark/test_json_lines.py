"""What Arrow may read, without Spark: the record is right, or refused."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappa.spark.parsing.json_lines import is_exact, rows_of

KIND = pa.struct([("n", pa.int64()), ("money", pa.decimal128(5, 2)), ("f", pa.float64()), ("text", pa.string())])


def numbers(*values: str) -> list[int | str | None]:
    """The column ``n`` of each value, or 'refused'."""
    rows, refused = rows_of(pa.array(values), KIND)
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
        '{"n":\n7}',
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
def test_what_is_read_of_any_text_is_the_one_object_that_it_is(values: list[str]) -> None:
    rows, refused = rows_of(pa.array(values, pa.string()), KIND)

    assert len(rows) == len(values)
    for value, row, is_refused in zip(values, rows.to_pylist(), refused, strict=True):
        if not is_refused:
            assert {**dict.fromkeys(row), **json.loads(value)}.items() >= row.items()


def test_an_object_within_an_object_is_read_whatever_follows_it() -> None:
    assert numbers('{"o":{"a":1},"n":1}', '{"o":[{"a":1},{}],"n":2}', '{"text":"},\\"","n":3}') == [1, 2, 3]


@pytest.mark.parametrize("bad", [0, 1, 511, 512, 513, 4999])
def test_one_bad_value_of_many_is_refused_alone(bad: int) -> None:
    values = [f'{{"n":{i}}}' for i in range(5000)]
    values[bad] = '{"n":"x"}'

    found = numbers(*values)

    assert found[bad] == "refused"
    assert [n for n in found if n != "refused"] == [i for i in range(5000) if i != bad]


def test_bad_values_beyond_counting_are_refused_without_reading_on_for_ever() -> None:
    found = numbers(*(['{"n":1}', '{"n":x}'] * 5000))

    assert set(found[1::2]) == {"refused"}
    assert set(found[0::2]) <= {1, "refused"}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ('{"money":1234.5}', "1234.50 does not fit DECIMAL(5,2)"),
        ('{"money":0.005}', "Spark rounds"),
        ('{"f":-0}', "Spark reads 0"),
        ('{"f":1e400}', "infinite"),
        ('{"text":"\\ude00"}', "half a character"),
        ('{"x":' + "1" * 1001 + "}", "more digits than Spark reads"),
        ('{"x":' + "[" * 1001 + "]" * 1001 + "}", "deeper than Spark reads"),
        ('{"x":' + "[" * 200_000 + "]" * 200_000 + "}", "deep enough to end the process"),
    ],
)
def test_what_arrow_and_spark_read_differently_is_refused(value: str, why: str) -> None:
    assert numbers(value) == ["refused"], why


def test_values_of_a_slice_of_an_array_are_read() -> None:
    values = pa.array(['{"n":1}', '{"n":2}', '{"n":3}']).slice(1, 2)

    rows, refused = rows_of(values, KIND)

    assert [row["n"] for row in rows.to_pylist()] == [2, 3]
    assert not refused.any()


def test_no_values_give_no_rows() -> None:
    rows, refused = rows_of(pa.array([], pa.string()), KIND)

    assert len(rows) == len(refused) == 0


@pytest.mark.parametrize(
    "kind",
    [
        pa.date32(),
        pa.timestamp("us"),
        pa.float32(),
        pa.binary(),
        pa.map_(pa.string(), pa.int64()),
        pa.decimal128(38, 10),
    ],
)
def test_types_that_only_spark_reads_are_told(kind: pa.DataType) -> None:
    assert not is_exact(kind)
    assert not is_exact(pa.struct([("x", pa.list_(kind))]))
