"""The JSON form of every type: what was written is read back, as a fold of a changelog does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kappa.errors import TopologyError
from kappa.kafka.changelogs import changelog_records
from kappa.topology import Source, Table
from kappa.topology.times.dates import FIRST_DAY, LAST_DAY
from kappa.wire.decoding import frame_of, rows_of
from kappa.wire.json.json_forms import json_forms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = pa.timestamp("us", "UTC")
LONG = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
#: The edges of what Python, four digits and Spark know of times.
MICROS = st.one_of(
    LONG,
    st.sampled_from(
        [0, -1, -62_135_596_800_000_000, -62_135_596_800_000_001, -30_610_224_000_000_001, 253_402_300_799_999_999]
    ),
    st.just(253_402_300_800_000_000),
)
#: Dates at the ends of the type, around 1970, and at the first and last of Python.
EDGES = (FIRST_DAY, LAST_DAY, 0, -1, -719_162, -719_163, 2_932_896, 2_932_897)
DAYS = st.one_of(st.integers(FIRST_DAY, LAST_DAY), st.sampled_from(EDGES))


def bits(count: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (count - 1)), 2 ** (count - 1) - 1)


#: Type of a column -> its Arrow type and what Arrow makes values of.
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "STRING": (pa.string(), TEXT),
    "BIGINT": (pa.int64(), LONG),
    "INT": (pa.int32(), bits(32)),
    "SMALLINT": (pa.int16(), bits(16)),
    "TINYINT": (pa.int8(), bits(8)),
    "BOOLEAN": (pa.bool_(), st.booleans()),
    "DOUBLE": (pa.float64(), st.floats()),
    "FLOAT": (pa.float32(), st.floats(width=32)),
    "BINARY": (pa.binary(), st.binary(max_size=5)),
    "DATE": (pa.date32(), DAYS),
    "TIMESTAMP": (UTC, MICROS),
    "DECIMAL(38,9)": (pa.decimal128(38, 9), st.decimals(-(10**28), 10**28, places=9)),
    "DECIMAL(5,0)": (pa.decimal128(5, 0), st.decimals(-99_999, 99_999, places=0)),
}


def array(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """Values of a type; dates and times are made from numbers, whose range is wider than Python's."""
    if kind in (UTC, pa.date32()):
        return pa.array(values, pa.int64() if kind == UTC else pa.int32()).cast(kind)
    return pa.array(values, kind)


def nested(name: str, values: list[Any]) -> dict[str, tuple[str, pa.Array]]:
    """A column per kind of nesting around a type, by the name of the kind."""
    kind = KINDS[name][0]
    plain = array(kind, values)
    count = len(values)
    offsets = pa.array([*range(count), count], pa.int32())
    keys = pa.array([f"k{n}" for n in range(count)])
    lists = pa.ListArray.from_arrays(offsets, plain)
    nestings = {
        "plain": (name, plain),
        "list": (f"ARRAY<{name}>", lists),
        "struct": (f"STRUCT<a: {name}, b: ARRAY<{name}>>", pa.StructArray.from_arrays([plain, lists], ["a", "b"])),
        "named": (f"MAP<STRING, {name}>", pa.MapArray.from_arrays(offsets, keys, plain)),
    }
    if name not in ("DOUBLE", "FLOAT") and plain.null_count == 0:
        inner = pa.MapArray.from_arrays(offsets, plain, lists)
        nestings["keyed"] = (f"MAP<{name}, ARRAY<{name}>>", inner)
        nestings["deep"] = (f"ARRAY<MAP<{name}, ARRAY<{name}>>>", pa.ListArray.from_arrays(offsets, inner))
    return nestings


@pytest.mark.spark
@pytest.mark.usefixtures("small_slices")
@settings(max_examples=4, deadline=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_every_type_survives_a_changelog(spark: SparkSession, data: st.DataObject) -> None:
    columns, arrays = {"id": "BIGINT NOT NULL"}, [pa.array(range(20), pa.int64())]
    for number, (name, (_, values)) in enumerate(KINDS.items()):
        drawn = [data.draw(st.none() | values) for _ in range(19)] + [data.draw(values)]
        given_values = drawn if number % 2 else [data.draw(values) if value is None else value for value in drawn]
        for what, (ddl, column) in nested(name, given_values).items():
            columns[f"{what}{number}"] = ddl
            arrays.append(column)
    schema = ", ".join(f"{name} {ddl}" for name, ddl in columns.items())
    table = Table(name="t", key=["id"], schema=schema)
    rows = pa.Table.from_arrays(arrays, names=list(columns))
    sent = [record.value for record in changelog_records("log", table, rows, 1) if record.value is not None]
    for value in sent:
        json.loads(value, parse_constant=lambda what: pytest.fail(f"{what} is not JSON"))
    frame = spark.createDataFrame([(value,) for value in sent], "value BINARY")
    by_spark = frame_of(frame, table.columns).toArrow().sort_by("id")
    for back in (by_spark, rows_of(sent, rows.schema)):
        for name in columns:
            expected, actual = (canonical(one[name]) for one in (rows, back))
            assert actual == expected, name


def canonical(values: pa.ChunkedArray) -> list[str]:
    """Each value as a distinct text; dates and times as numbers."""
    return [repr(value) for value in values.cast(numeric(values.type)).to_pylist()]


def numeric(kind: pa.DataType) -> pa.DataType:
    """A type with numbers in place of dates and times."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, numeric(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(numeric(kind.key_type), numeric(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(numeric(kind.value_type))
    return pa.int64() if pa.types.is_timestamp(kind) else pa.int32() if pa.types.is_date(kind) else kind


@settings(deadline=None)
@given(st.lists(st.none() | MICROS, min_size=1))
@example([-62_135_596_800_000_001, 253_402_300_800_000_000, None])
def test_times_of_any_year_have_distinct_forms(micros: list[int | None]) -> None:
    forms = json_forms(array(UTC, micros))
    assert [form is None for form in forms] == [value is None for value in micros]
    there = [form for form in forms if form is not None]
    assert all(form.endswith("Z") and form[-8] == "." for form in there)
    assert len(set(there)) == len({value for value in micros if value is not None})


def test_years_of_four_digits_are_plain_and_others_have_a_sign() -> None:
    edges = [-62_135_596_800_000_001, -62_135_596_800_000_000, 253_402_300_799_999_999, 253_402_300_800_000_000]
    assert json_forms(array(UTC, edges)) == [
        "0000-12-31T23:59:59.999999Z",
        "0001-01-01T00:00:00.000000Z",
        "9999-12-31T23:59:59.999999Z",
        "+10000-01-01T00:00:00.000000Z",
    ]
    assert json_forms(array(pa.date32(), [-719_529, 2_932_897])) == ["-0001-12-31", "+10000-01-01"]


def test_a_slice_of_an_array_has_only_its_own_values() -> None:
    maps = pa.array([[("a", 1)], None, [("b", 2), ("c", None)]], pa.map_(pa.string(), pa.int64()))
    assert json_forms(maps.slice(1)) == [None, {"b": 2, "c": None}]
    lists = pa.array([[1.5], [], [float("nan"), None]], pa.list_(pa.float64()))
    assert json_forms(lists.slice(1)) == [[], ["NaN", None]]
    rows = pa.array([{"x": 1}, None, {"x": None}], pa.struct([("x", pa.int32())]))
    assert json_forms(rows.slice(1)) == [None, {"x": None}]


def test_a_source_cannot_read_a_map_whose_keys_are_not_text() -> None:
    for schema in ("m MAP<INT, STRING>", "s STRUCT<m: ARRAY<MAP<DATE, INT>>>"):
        with pytest.raises(TopologyError, match="keys are not STRING"):
            Source(topic="pos", schema=schema)
    Source(topic="pos", schema="m MAP<STRING, MAP<STRING, INT>>")
