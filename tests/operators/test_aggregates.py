"""Aggregates: on three rows, and on random histories beside an oracle."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from support.oracle_aggregates import Fact, added, by_arrival, compared, grouped, history, newest, ordered
from support.plans import executed_plan

from kappa.errors import TopologyError
from kappa.operators import (
    agg,
    aggregate,
    aggregate_table,
    cogroup,
    newest_by,
    session_window,
    sliding_window,
    tumbling_window,
    two_phase,
)
from kappa.operators.agg import Aggregate
from kappa.spark.catalyst import suspects
from kappa.spark.tuning import tune
from kappa.testing import TopologyDriver
from kappa.topology import Effects, Slice, Source, Table, Topology
from kappa.topology.ddl import columns_of, plain_type
from kappa.topology.revisions import revision_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FACT = "id STRING, team STRING, price DECIMAL(12,2), items INT, word STRING, gone BOOLEAN"
ADDED = {
    "records": agg.count(),
    "priced": agg.count("price"),
    "total": agg.sum("price"),
    "items": agg.sum("items"),
    "mean": agg.avg("price"),
    "mean_items": agg.avg("items"),
    "spread": agg.variance("price"),
    "deviation": agg.stddev("items"),
}
COMPARED = {
    "low": agg.min("price"),
    "high": agg.max("price"),
    "words": agg.distinct("word"),
    "best": agg.top("word", 2, by="price"),
}
ORDERED = {"opening": agg.first("word"), "closing": agg.last("word"), "listed": agg.collect("word", most=3)}
ALL = {**ADDED, **COMPARED, **ORDERED}

FACTS, OTHERS = SOURCES = [Source(topic=topic, schema=FACT) for topic in ("facts", "others")]

by_id = aggregate(SOURCES, key="id", aggregates=ALL, table="by_id")
by_two = aggregate(SOURCES, key=["team", "id"], aggregates={"records": agg.count()}, table="by_two")
SOME = {name: ALL[name] for name in ("mean", "words", "listed")}
in_phases = two_phase(SOURCES, key="id", aggregates=SOME, table="in_phases", parts="parts")
salted = two_phase(SOURCES, key="id", aggregates=SOME, salts=3, table="salted")
together = cogroup(
    {"facts": FACTS, "others": OTHERS},
    key="id",
    aggregates={
        "facts": {"events": agg.count(), "closing": agg.last("word"), "total": agg.sum("price")},
        "others": {"events": agg.count(), "closing": agg.last("word"), "mean": agg.avg("price")},
    },
    table="together",
)
latest = newest_by(FACTS, key="id", table="latest", deletions="deletions")
teams = aggregate_table(latest, key="team", aggregates=ADDED, table="teams")
best = aggregate_table(latest, key="team", aggregates=COMPARED, table="best")


def observe(slice: Slice) -> Effects:
    """All aggregates of one stream, of two, and of a table."""
    everything = slice["facts"].unionByName(slice["others"])
    for operator in (by_id, by_two, in_phases, salted):
        operator(slice, everything)
    together(slice)
    latest(slice, slice["facts"].selectExpr("*", "gone AS _deleted"))
    teams(slice)
    best(slice)
    return {}


observed = Topology(
    name="tests.aggregates",
    version="1",
    sources=SOURCES,
    operators=[by_id, by_two, in_phases, salted, together, latest, teams, best],
    step=observe,
)

Oracle = Callable[[list[Fact]], Mapping[str, Any]]


def everything(facts: list[Fact]) -> dict[str, Any]:
    return {**added(facts), **compared(facts), **ordered(facts)}


def some(facts: list[Fact]) -> dict[str, Any]:
    return {name: value for name, value in everything(facts).items() if name in SOME}


def of_streams(facts: list[Fact]) -> dict[str, Any]:
    one = added([fact for fact in facts if fact.topic == "facts"])
    other = added([fact for fact in facts if fact.topic == "others"])
    closing = ordered(facts)["closing"]
    return {"events": len(facts), "closing": closing, "total": one["total"], "mean": other["mean"]}


def expected(facts: list[Fact]) -> dict[str, dict[Any, Mapping[str, Any]]]:
    """Table -> key -> its aggregates."""

    def of(rows: Iterable[Fact], key: Callable[[Fact], Any], oracle: Oracle) -> dict[Any, Mapping[str, Any]]:
        return {at: oracle(group) for at, group in grouped(rows, key).items()}

    stays = newest(fact for fact in facts if fact.topic == "facts")
    return {
        "by_id": of(facts, lambda fact: fact.id, everything),
        "by_two": of(facts, lambda fact: (fact.team, fact.id), lambda group: {"records": len(group)}),
        "in_phases": of(facts, lambda fact: fact.id, some),
        "parts": of(facts, lambda fact: (fact.id, fact.partition), some),
        "salted": of(facts, lambda fact: fact.id, some),
        "together": of(facts, lambda fact: fact.id, of_streams),
        "teams": of(stays, lambda fact: fact.team, added),
        "best": of(stays, lambda fact: fact.team, compared),
    }


def actual_rows(
    driver: TopologyDriver, name: str, expected_rows: Mapping[Any, Mapping[str, Any]]
) -> dict[Any, dict[str, Any]]:
    """Key -> the columns that the oracle computes."""
    key = driver.topology.table(name).key
    columns = next(iter(expected_rows.values()), {})
    return {
        row[key[0]] if len(key) == 1 else tuple(row[part] for part in key): {column: row[column] for column in columns}
        for row in driver.rows(name)
    }


@pytest.fixture
def small(spark: SparkSession) -> Iterator[SparkSession]:
    """The session as it is for small slices."""
    tune(spark, is_small=True)
    yield spark
    tune(spark, is_small=False)


def check_history(spark: SparkSession, seed: int, size: int = 60, slices: int = 6) -> None:
    facts = history(seed, size)
    driver, records = TopologyDriver(observed, spark), []
    for part in by_arrival(facts, random.Random(seed), slices):
        driver.pipe(fact.input for fact in part)
        records += part
        for name, expected_rows in expected(records).items():
            assert actual_rows(driver, name, expected_rows) == expected_rows, (
                f"seed {seed}, {name}, after {len(records)} records"
            )


@pytest.mark.parametrize(("seed", "slices"), [(0, 3), (1, 6), (2, 6)], ids=range(3))
def test_aggregates_cover_all_records_however_the_log_is_cut(small: SparkSession, seed: int, slices: int) -> None:
    check_history(small, seed, slices=slices)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3, 40))
def test_aggregates_of_many_histories_cover_all_records(spark: SparkSession, seed: int) -> None:
    check_history(spark, seed, 200)


Values = Iterable[tuple[Any, ...]]


def slice_of(facts: DataFrame, **tables: DataFrame) -> Slice:
    """A slice of these rows, with tables before it."""
    return Slice(seq=1, records={"facts": facts}, tables=tables)


@pytest.fixture
def rows(spark: SparkSession) -> Callable[[str, Values], DataFrame]:
    """Rows of these columns, a record each; those that end with the same number are of one record."""

    def frame_of(columns: str, values: Values) -> DataFrame:
        frame = spark.createDataFrame([(*value[:-1], value[-1]) for value in values], f"{columns}, _offset BIGINT")
        return frame.selectExpr(
            "*", "'facts' AS _topic", "0 AS _partition", "timestamp_millis(_offset) AS _order_timestamp"
        )

    return frame_of


def of_all(frame: DataFrame, columns: str, aggregates: Mapping[str, Aggregate], **more: Any) -> dict[str, Any]:
    """Aggregates of all rows as one group."""
    parts = agg.parts_of(aggregates, rows=columns, what="test")
    whole = agg.merged(agg.lifted(frame, ["'all' AS one"], parts), more.get("before"), ["one"], parts)
    return next(row.asDict(recursive=True) for row in whole.collect())


def test_a_group_of_nulls_has_counts_and_sums_of_zero(rows: Callable[..., DataFrame]) -> None:
    aggregates = of_all(rows(FACT, [("a", None, None, None, None, None, 1)]), FACT, ALL)

    nothing = dict.fromkeys(("priced", "total", "items", "words"), 0) | {"best": [], "listed": []}
    assert {name: aggregates[name] for name in ALL} == {**dict.fromkeys(ALL), **nothing, "records": 1}


def test_rows_of_one_record_are_ordered_by_their_values(rows: Callable[..., DataFrame]) -> None:
    values = [("cat", 1), ("ant", 1), ("bee", 1), ("dog", 0)]
    aggregates = of_all(rows("word STRING", values), "word STRING", ORDERED)

    assert (aggregates["opening"], aggregates["closing"], aggregates["listed"]) == ("dog", "cat", ["dog", "ant", "bee"])


def test_the_sign_of_zero_is_not_kept(rows: Callable[..., DataFrame]) -> None:
    aggregates = {"low": agg.min("x"), "high": agg.max("x"), "first": agg.first("x"), "values": agg.distinct("x")}
    row = of_all(rows("x DOUBLE", [(-0.0, 1), (0.0, 2)]), "x DOUBLE", aggregates)

    assert [math.copysign(1, row[name]) for name in ("low", "high", "first")] == [1, 1, 1]
    assert row["values"] == 1


@pytest.mark.parametrize(
    ("kind", "of"),
    [
        ("STRUCT<x: DOUBLE, y: INT>", lambda zero: (zero, 1)),
        ("ARRAY<FLOAT>", lambda zero: [zero, None]),
        ("STRUCT<`a b`: ARRAY<STRUCT<x: INT, y: DOUBLE>>>", lambda zero: ([(1, zero), None],)),
    ],
)
def test_the_sign_of_a_zero_within_a_value_is_not_kept(
    rows: Callable[..., DataFrame], kind: str, of: Callable[[float], Any]
) -> None:
    compared = {"low": agg.min, "high": agg.max, "first": agg.first, "last": agg.last, "listed": agg.collect}
    aggregates = {name: aggregate_of("n") for name, aggregate_of in compared.items()}
    aggregates |= {"best": agg.top("n", 3, by="n"), "many": agg.distinct("n"), "records": agg.count("n")}
    plain = of_all(rows(f"n {kind}", [(of(0.0), 1), (of(0.0), 2), (None, 3)]), f"n {kind}", aggregates)
    for signs in ((0.0, -0.0), (-0.0, 0.0), (-0.0, -0.0)):
        values = [*((of(zero), at) for at, zero in enumerate(signs, start=1)), (None, 3)]
        assert repr(of_all(rows(f"n {kind}", values), f"n {kind}", aggregates)) == repr(plain), signs
    assert (plain["records"], plain["many"], len(plain["best"])) == (2, 1, 1)


def test_top_has_each_value_once_and_ties_go_to_the_greater_value(rows: Callable[..., DataFrame]) -> None:
    values = [("ant", 5, 1), ("bee", 7, 2), ("ant", 7, 3), ("cat", 7, 4), ("cat", 1, 5), ("dog", 6, 6), (None, 9, 7)]
    aggregates = of_all(rows("word STRING, n INT", values), "word STRING, n INT", {"best": agg.top("word", 3, by="n")})

    assert [(one["value"], one["by"]) for one in aggregates["best"]] == [("cat", 7), ("bee", 7), ("ant", 7)]


@pytest.mark.parametrize(("values", "is_exact"), [(255, True), (256, False), (20_000, False)])
def test_distinct_is_exact_below_k_and_near_above(spark: SparkSession, values: int, is_exact: bool) -> None:
    numbers = spark.range(2 * values).selectExpr(f"id % {values} AS n")
    count = of_all(numbers, "n BIGINT", {"x": agg.distinct("n", k=256)})["x"]

    assert count == values if is_exact else abs(count - values) < values / 4


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("STRUCT<x: STRING, y: STRING>", [("v", None), (None, "v"), (None, None), ("v", "v"), ("v", "v"), None]),
        ("ARRAY<INT>", [[1, None], [None, 1], [1], [1, None, None], [], [None], [1], None]),
        ("ARRAY<STRUCT<x: INT, y: INT>>", [[(1, None)], [(None, 1)], [None, (1, None)], [(1, None), None], [None]]),
        ("STRUCT<x: ARRAY<INT>, y: ARRAY<INT>>", [([1], []), ([], [1]), ([1], None), (None, [1]), ([], []), ([1], [])]),
        ("STRUCT<x: STRUCT<y: INT>>", [((None,),), (None,), ((1,),)]),
        ("STRUCT<col1: INT, `v.w`: INT>", [(1, None), (None, 1)]),
    ],
)
def test_distinct_tells_nulls_within_values_apart(rows: Callable[..., DataFrame], kind: str, values: list[Any]) -> None:
    frame = rows(f"n {kind}", [(value, at) for at, value in enumerate(values)])

    different = {repr(value) for value in values if value is not None}
    assert of_all(frame, f"n {kind}", {"x": agg.distinct("n")})["x"] == len(different)


def test_distinct_of_merged_parts_equals_distinct_of_all_rows(spark: SparkSession) -> None:
    aggregates = {"x": agg.distinct("n", k=64)}
    parts = agg.parts_of(aggregates, rows="n BIGINT", what="test")
    whole, ends = spark.range(5000).selectExpr("id AS n"), [(0, 100), (100, 4000), (3000, 5000)]
    several = [
        agg.merged(agg.lifted(whole.where(f"n >= {a} AND n < {b}"), ["'all' AS one"], parts), None, ["one"], parts)
        for a, b in ends
    ]
    both = agg.merged(several[0].union(several[1]), several[2], ["one"], parts).collect()[0].asDict()

    assert {name: both[name] for name in ("x", "x__hashes")} == {
        name: value for name, value in of_all(whole, "n BIGINT", aggregates).items() if name in ("x", "x__hashes")
    }


@pytest.mark.parametrize(
    ("kind", "value"),
    [("DECIMAL(38,0)", Decimal(9 * 10**37)), ("BIGINT", 2**62), ("DECIMAL(38,2)", Decimal(9 * 10**35))],
)
def test_a_sum_that_overflows_its_type_is_an_error(rows: Callable[..., DataFrame], kind: str, value: Any) -> None:
    frame = rows(f"n {kind}", [(value, 1), (value, 2)])

    assert of_all(frame.limit(1), f"n {kind}", {"x": agg.sum("n")})["x"] == value
    with pytest.raises(Exception, match=r"(?i)overflow|out.of.range"):
        of_all(frame, f"n {kind}", {"x": agg.sum("n")})


LEAST, MOST = -(2**63), 2**63 - 1


@pytest.mark.parametrize(
    "values",
    [
        [MOST, 1, -1],
        [LEAST, -1, 1, 0],
        [-(2**62), -(2**62)],
        [MOST, LEAST],
        [2**62, 2**62, -1],
        [-1, 1 << 32, -(1 << 32)],
        [MOST, 1],
        [LEAST, -1],
        [MOST, MOST, 2],
    ],
)
def test_a_sum_depends_on_no_order_of_addition(rows: Callable[..., DataFrame], values: list[int]) -> None:
    columns, parts = "n BIGINT", agg.parts_of({"x": agg.sum("n")}, rows="n BIGINT", what="test")
    for order in itertools.permutations(values):
        frame = rows(columns, [(value, at) for at, value in enumerate(order)]).coalesce(1)
        before = agg.lifted(frame.where("_offset = 0"), ["'all' AS one"], parts)
        whole = agg.merged(agg.lifted(frame.where("_offset > 0"), ["'all' AS one"], parts), before, ["one"], parts)
        if LEAST <= sum(values) <= MOST:
            assert [row["x"] for row in whole.collect()] == [sum(values)], order
        else:
            with pytest.raises(Exception, match=r"(?i)overflow"):
                whole.collect()


def test_a_mean_is_rounded_half_up(rows: Callable[..., DataFrame]) -> None:
    columns = "n INT, price DECIMAL(12,2), wide DECIMAL(38,18)"
    values = [(1, Decimal("0.01"), Decimal(1)), (0, Decimal("0.00"), Decimal(0)), (0, Decimal("0.00"), Decimal(0))]
    frame = rows(columns, [(*value, at) for at, value in enumerate(values)])
    means = of_all(frame, columns, {"n": agg.avg("n"), "price": agg.avg("price"), "wide": agg.avg("wide")})
    half = of_all(rows("n BIGINT", [(int(at == 0), at) for at in range(32)]), "n BIGINT", {"n": agg.avg("n")})

    assert (means["n"], means["price"]) == (Decimal("0.3333"), Decimal("0.003333"))
    assert means["wide"] == Decimal("0.333333333333333333")
    assert half["n"] == Decimal("0.0313")


def test_a_variance_of_large_and_close_values_is_exact(rows: Callable[..., DataFrame]) -> None:
    columns = "n BIGINT, price DECIMAL(12,2)"
    large = [10**9 + number for number in (1, 2, 4)]
    frame = rows(columns, [(value, Decimal(value), at) for at, value in enumerate(large)])
    aggregates = {"of_n": agg.variance("n"), "of_price": agg.stddev("price")}

    row = of_all(frame, columns, aggregates)
    assert row["of_n"] == pytest.approx(7 / 3, rel=1e-15)
    assert row["of_price"] == pytest.approx((7 / 3) ** 0.5, rel=1e-15)
    assert of_all(frame.limit(1), columns, aggregates)["of_n"] is None


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("DECIMAL(10,3)", ["1.083", "1.084"]),
        ("DECIMAL(10,4)", ["1.0834", "1.0835", "-1.0834"]),
        ("DECIMAL(10,6)", ["1.083412", "1.083415"]),
        ("DECIMAL(10,5)", ["1.08341", "1.08352", "1.08399"]),
        ("DECIMAL(18,8)", ["0.00012345", "0.00012399", "0.00013000"]),
        ("DECIMAL(18,8)", ["-9999999999.99999998", "-9999999999.99999999"]),
        ("DECIMAL(18,14)", ["1.23456789012345", "1.23456789012345"]),
        ("DECIMAL(18,18)", ["0.999999999999999999", "0.999999999999999998", "-0.000000000000000001"]),
        ("DECIMAL(18,14)", [f"{sign}9876.54321098765432" for sign in ("", "-")] * 40),
        ("DECIMAL(18,4)", ["0.0001"] * 9 + ["0.0000"]),
    ],
)
def test_a_variance_has_all_digits_of_its_values(rows: Callable[..., DataFrame], kind: str, values: list[str]) -> None:
    numbers = [Decimal(value) for value in values]
    aggregates = {"variance": agg.variance("n"), "stddev": agg.stddev("n")}
    row = of_all(rows(f"n {kind}", [(value, at) for at, value in enumerate(numbers)]), f"n {kind}", aggregates)

    true = float(statistics.variance(map(Fraction, numbers)))
    assert row["variance"] == pytest.approx(true, rel=1e-15)
    assert row["stddev"] == pytest.approx(math.sqrt(true), rel=1e-15)


@pytest.mark.parametrize(
    ("kind", "values", "mean"),
    [
        ("DECIMAL(38,10)", ["1e26"], "1e26"),
        ("DECIMAL(35,10)", ["9999999999999999999999999", "-1"], "4999999999999999999999999"),
        ("DECIMAL(38,0)", ["-99999999999999999999999999999999999999"], "-99999999999999999999999999999999999999"),
        ("DECIMAL(38,0)", ["1e37", "3", "0"], "3333333333333333333333333333333333334"),
        ("DECIMAL(34,2)", ["99999999999999999999999999999999.99"] * 2, "99999999999999999999999999999999.99"),
        ("DECIMAL(38,2)", ["0.01", "0.02"], "0.02"),
        ("DECIMAL(38,38)", ["0.1"], "0.1"),
    ],
)
def test_each_value_has_a_mean(rows: Callable[..., DataFrame], kind: str, values: list[str], mean: str) -> None:
    frame = rows(f"n {kind}", [(Decimal(value), at) for at, value in enumerate(values)])

    assert of_all(frame, f"n {kind}", {"mean": agg.avg("n")})["mean"] == Decimal(mean)


@pytest.mark.parametrize(
    ("aggregate_of", "before", "after"),
    [
        (agg.variance, ["BIGINT", "DECIMAL(18,3)"], ["DECIMAL(18,4)"]),
        (agg.stddev, ["INT", "DECIMAL(6,3)"], ["DECIMAL(6,4)"]),
        (agg.avg, ["BIGINT", "DECIMAL(34,2)", "DECIMAL(38,38)"], ["DECIMAL(35,2)", "DECIMAL(38,10)"]),
        (agg.distinct, ["STRING", "DOUBLE"], ["STRUCT<a: INT>", "ARRAY<STRING>"]),
        *((one, ["DOUBLE", "STRUCT<a: INT>"], ["STRUCT<a: FLOAT>", "ARRAY<DOUBLE>"]) for one in (agg.min, agg.max)),
        (partial(agg.top, n=1, by="n"), ["FLOAT", "ARRAY<INT>"], ["ARRAY<STRUCT<a: DOUBLE>>"]),
    ],
)
def test_state_of_a_release_goes_on_only_where_its_aggregates_stay(
    aggregate_of: Callable[[str], Aggregate], before: list[str], after: list[str]
) -> None:
    revisions = {}
    for kind in (*before, *after):
        source = Source(topic="facts", schema=f"id STRING, n {kind}", grace="1 second")
        own: Any = {"key": "id", "aggregates": {"x": aggregate_of("n"), "rows": agg.count()}, "table": "t"}
        table = Table(name="facts", key="fact", schema=f"fact STRING NOT NULL, id STRING, n {kind}")
        revisions[kind] = {
            revision_of(operator.tables[0].made_by)
            for operator in (
                aggregate(source, **own),
                aggregate_table(table, **own),
                cogroup({"a": source}, **own | {"aggregates": {"a": own["aggregates"]}}),
                two_phase(source, **own, salts=2),
                tumbling_window(source, **own, size="1 hour"),
                sliding_window(source, **own, size="1 hour"),
                session_window(source, **own, gap="1 hour"),
            )
        }
    assert revisions == {kind: {1} for kind in before} | {kind: {2} for kind in after}


def test_a_variance_without_exact_squares_is_refused() -> None:
    for kind, why in (("DOUBLE", "depends on the order"), ("DECIMAL(19,2)", "no DECIMAL has room for the sum")):
        source = Source(topic="facts", schema=f"id STRING, n {kind}")
        with pytest.raises(TopologyError, match=why):
            aggregate(source, key="id", aggregates={"n": agg.variance("n")}, table="t")


def test_state_has_the_types_that_its_table_declares(rows: Callable[..., DataFrame], spark: SparkSession) -> None:
    columns = "id STRING, b TINYINT, s SMALLINT, i INT, l BIGINT, d DECIMAL(5,0), e DECIMAL(38,18), f DECIMAL(38,38)"
    of = {f"{name}_{column}": make(column) for column in "bsildef" for name, make in NUMBERS.items()}
    operator = aggregate(Source(topic="facts", schema=columns), key="id", aggregates=of, table="t")
    (table,) = operator.tables
    slice = slice_of(rows(columns, []), t=spark.createDataFrame([], table.schema))
    handed = operator(slice).changes
    types = {field.name: field.dataType for field in slice.calls.changes["t"].schema.fields}

    assert {column.name: plain_type(types[column.name].jsonValue()) for column in table.columns} == {
        column.name: plain_type(column.delta) for column in columns_of(table.schema, "test")
    }
    assert handed.columns == ["id", *of]


NUMBERS: dict[str, Callable[[str], Aggregate]] = {
    "sum": agg.sum,
    "avg": agg.avg,
    "min": agg.min,
    "last": agg.last,
    "distinct": agg.distinct,
    "top": lambda column: agg.top(column, 2, by=column),
    "collect": agg.collect,
}


def test_only_keys_of_the_slice_are_written_with_one_shuffle_per_side(
    rows: Callable[..., DataFrame], spark: SparkSession
) -> None:
    source, aggregates = Source(topic="facts", schema="id STRING"), {"n": agg.count(), "newest": agg.last("id")}
    counted = aggregate(source, key="id", aggregates=aggregates, table="t")
    state = spark.createDataFrame([("a", 5, None, None), ("b", 7, None, None)], counted.tables[0].schema)
    changes = counted(slice_of(rows("id STRING", [("a", 1), ("c", 2), (None, 3)]), t=state)).changes
    plan = executed_plan(changes)

    assert {row["id"]: row["n"] for row in changes.collect()} == {"a": 6, "c": 1}
    assert (plan.count("Exchange"), plan.count("ShuffledHashJoin"), plan.count("SortMergeJoin")) == (2, 1, 0)
    assert suspects("test", changes) == ()


def test_requested_groups_are_returned_even_without_rows(rows: Callable[..., DataFrame], spark: SparkSession) -> None:
    parts = agg.parts_of({"n": agg.count()}, rows="id STRING", what="test")
    fresh = agg.lifted(rows("id STRING", [("a", 1), ("d", 2)]), ["id"], parts)
    state = spark.createDataFrame([("a", 5), ("b", 7), ("c", 9)], "id STRING NOT NULL, n BIGINT")

    def of(**also: str) -> dict[str, tuple[int, bool]]:
        whole = agg.merged(fresh, state, ["id"], parts, **also)
        return {row["id"]: (row["n"], row["_changed"]) for row in whole.collect()}

    touched = {"a": (6, True), "d": (1, True)}
    assert of(also="FALSE") == touched
    assert of(also="n > 7") == touched | {"c": (9, False)}
    assert of() == touched | {"b": (7, False), "c": (9, False)}


SONG = "song STRING, genre STRING, plays BIGINT"


@pytest.mark.parametrize("aggregates", [{"n": agg.sum("plays")}, {"n": agg.sum("plays"), "most": agg.max("plays")}])
def test_a_row_of_a_table_moves_from_group_to_group(spark: SparkSession, aggregates: dict[str, Aggregate]) -> None:
    table = Table(name="songs", key="song", schema=SONG.replace("song STRING", "song STRING NOT NULL"))
    genres = aggregate_table(table, key="genre", aggregates=aggregates, table="genres")

    def changed(changes: DataFrame, **tables: DataFrame) -> DataFrame:
        slice = Slice(seq=1, records={}, tables=tables)
        assert "_members" not in genres(slice, changes).changes.columns
        return slice.calls.changes["genres"]

    songs = spark.createDataFrame([("x", "pop", 3), ("y", "rock", 4), ("z", "rock", 9), ("w", "folk", 1)], SONG)
    empty = spark.createDataFrame([], genres.tables[0].schema)
    state = changed(songs, songs=songs.limit(0), genres=empty).drop("_deleted")
    moves = [("x", "rock", 5, False), ("z", "rock", 9, True), ("w", "folk", 1, False), ("v", None, 7, False)]
    changes = spark.createDataFrame(moves, f"{SONG}, _deleted BOOLEAN")
    groups = {row["genre"]: row.asDict() for row in changed(changes, songs=songs, genres=state).collect()}

    assert {genre: row["_deleted"] for genre, row in groups.items()} == {"pop": True, "rock": False, "folk": False}
    assert (groups["rock"]["n"], groups["rock"]["_members"]) == (9, 2)
    assert groups["rock"].get("most", 5) == 5
