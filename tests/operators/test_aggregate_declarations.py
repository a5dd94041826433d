"""Invalid aggregates are refused when a topology is defined, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kappa.errors import TopologyError
from kappa.operators import (
    agg,
    aggregate,
    aggregate_table,
    cdc_table,
    cogroup,
    foreign_key_join,
    session_window,
    sliding_window,
    table_table_join,
    tumbling_window,
    two_phase,
)
from kappa.operators.agg import Aggregate
from kappa.operators.table_aggregates import _aggregate_table
from kappa.replay.rules.seed import unlike_seed
from kappa.topology import Source, Table, Topology
from kappa.topology.readers import may_go_on
from kappa.topology.shapes import Shape, shapes_of

ROWS = """
    id STRING, price DECIMAL(12,2), rate DOUBLE, share FLOAT, items INT, many BIGINT, word STRING, wide DECIMAL(38,37),
    tags MAP<STRING, STRING>, lists ARRAY<STRUCT<tags: MAP<STRING, INT>>>, wise DECIMAL(38,18)
"""
FACTS = Source(topic="facts", schema=ROWS)


def parts(one: Aggregate) -> dict[str, str]:
    return {part.name: part.type for part in agg.parts_of({"x": one}, rows=ROWS, what="test")}


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        (agg.count(), "BIGINT"),
        (agg.count("tags"), "BIGINT"),
        (agg.sum("price"), "DECIMAL(22, 2)"),
        (agg.sum("wise"), "DECIMAL(38, 18)"),
        (agg.sum("items"), "BIGINT"),
        (agg.avg("price"), "DECIMAL(16, 6)"),
        (agg.avg("wise"), "DECIMAL(38, 18)"),
        (agg.avg("items"), "DECIMAL(24, 4)"),
        (agg.min("rate"), "DOUBLE"),
        (agg.first("word"), "STRING"),
        (agg.distinct("word"), "BIGINT"),
        (agg.top("word", 3, by="price"), "ARRAY<STRUCT<by: DECIMAL(12, 2), value: STRING>>"),
        (agg.collect("word"), "ARRAY<STRING>"),
    ],
)
def test_the_value_comes_first_with_a_type_derived_from_its_column(one: Aggregate, kind: str) -> None:
    assert next(iter(parts(one).items())) == ("x", kind)
    assert all(name == "x" or name.startswith("x__") for name in parts(one))


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (agg.sum("rate"), "depends on the order"),
        (agg.avg("share"), "depends on the order"),
        (agg.sum("word"), "no sum"),
        (agg.avg("word"), "no sum"),
        (agg.max("tags"), "maps have no order"),
        (agg.collect("lists"), "maps have no order"),
        (agg.top("word", 1, by="tags"), "maps have no order"),
        (agg.last("wrod"), "Did you mean 'word'"),
        (agg.count("wrod"), "Did you mean 'word'"),
    ],
)
def test_an_aggregate_of_an_unsuitable_column_is_refused(one: Aggregate, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        parts(one)


@pytest.mark.parametrize(
    ("make", "least"),
    [
        (lambda size: agg.distinct("word", k=size), 2),
        (lambda size: agg.top("word", size, by="price"), 1),
        (lambda size: agg.collect("word", most=size), 1),
    ],
)
def test_sizes_of_aggregates_have_bounds(make: Callable[[int], Aggregate], least: int) -> None:
    assert parts(make(least))
    with pytest.raises(TopologyError, match=f"at least {least}"):
        make(least - 1)
    with pytest.raises(TopologyError, match=r"more than an array holds\. Use at most 2,147,483,647"):
        make(2**31)


@pytest.mark.parametrize("name", ["", "_offset", "x__y", "ID"])
def test_an_aggregate_with_a_reserved_name_is_refused(name: str) -> None:
    with pytest.raises(TopologyError, match="another name"):
        aggregate(FACTS, key="id", aggregates={name: agg.count()}, table="t")


def test_aggregates_whose_names_differ_only_in_case_are_refused() -> None:
    with pytest.raises(TopologyError, match="another name"):
        aggregate(FACTS, key="id", aggregates={"n": agg.count(), "N": agg.count()}, table="t")


@pytest.mark.parametrize(
    "arguments", [{"key": "nowhere"}, {"key": []}, {"aggregates": {}}, {"rows": "_offset STRING", "key": "_offset"}]
)
def test_an_aggregate_without_key_or_aggregates_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(TopologyError):
        aggregate(FACTS, **{"key": "id", "aggregates": {"n": agg.count()}, "table": "t", **arguments})


@pytest.mark.parametrize("one", [agg.first("word"), agg.last("word"), agg.collect("word")])
def test_aggregates_that_need_the_total_order_are_refused_for_tables(one: Aggregate) -> None:
    words = Table(name="words", key="id", schema=ROWS.replace("id STRING", "id STRING NOT NULL"))
    with pytest.raises(TopologyError, match="total order"):
        aggregate_table(words, key="word", aggregates={"x": one}, table="t")


def test_only_invertible_aggregates_are_subtracted() -> None:
    def of(aggregate_: Aggregate) -> bool:
        return _aggregate_table(ROWS, "id", "word", {"x": aggregate_}).is_subtracted

    assert [of(one) for one in (agg.count(), agg.count("price"), agg.sum("price"), agg.avg("items"))] == [True] * 4
    assert [of(one) for one in (agg.min("price"), agg.max("price"), agg.distinct("id"))] == [False] * 3
    assert not of(agg.top("id", 1, by="price"))


def test_streams_of_one_aggregate_share_a_key() -> None:
    def of(*kinds: str) -> None:
        cogroup(
            {str(at): Source(topic=f"t{at}", schema=f"id {kind}, word STRING") for at, kind in enumerate(kinds)},
            key="id",
            aggregates={str(at): {"n": agg.count()} for at in range(len(kinds))},
            table="t",
        )

    of("STRING", "STRING")
    with pytest.raises(TopologyError, match="Cast one"):
        of("STRING", "BIGINT")


@pytest.mark.parametrize("other", [agg.count(), agg.max("word"), agg.last("price"), agg.first("word")])
def test_an_aggregate_of_several_streams_has_one_kind_and_type(other: Aggregate) -> None:
    def of(second: Aggregate) -> None:
        aggregates = {"one": {"x": agg.last("word")}, "two": {"x": second}}
        cogroup({"one": FACTS, "two": FACTS}, key="id", aggregates=aggregates, table="t")

    of(agg.last("id"))
    with pytest.raises(TopologyError, match="different names"):
        of(other)


def test_different_values_of_several_streams_have_one_type() -> None:
    def of(column: str) -> None:
        aggregates = {"one": {"x": agg.distinct("items")}, "two": {"x": agg.distinct(column)}}
        cogroup({"one": FACTS, "two": FACTS}, key="id", aggregates=aggregates, table="t")

    of("items")
    with pytest.raises(TopologyError, match=r"another aggregate in 'two' \(BIGINT\) than in 'one' \(INT\)"):
        of("many")


def test_each_stream_of_a_cogroup_has_rows_and_aggregates() -> None:
    with pytest.raises(TopologyError, match="each stream"):
        cogroup({"one": FACTS}, key="id", aggregates={"two": {"n": agg.count()}}, table="t")


@pytest.mark.parametrize("salts", [0, 1, 2**31])
def test_fewer_than_two_salts_and_too_many_are_refused(salts: int) -> None:
    with pytest.raises(TopologyError, match="at least 2"):
        two_phase(FACTS, key="id", aggregates={"n": agg.count()}, table="t", salts=salts)


def test_a_history_has_no_row_per_key_to_aggregate_or_to_join() -> None:
    changes = Source(topic="changes", schema="name STRING", key_schema="id BIGINT", envelope="debezium")
    past, now = cdc_table(changes, key="id", table="past", history=True), cdc_table(changes, key="id", table="now")
    for declare in (
        lambda: aggregate_table(past, key="name", aggregates={"n": agg.count()}, table="names"),
        lambda: foreign_key_join(past, now, foreign_key="id", table="joined"),
        lambda: table_table_join(now, past, key="id", table="joined"),
    ):
        with pytest.raises(TopologyError, match=r"'past', a history, .* Declare another cdc_table without history"):
            declare()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("id STRING, nowhere STRING", r"column 'nowhere' as STRING of table 'words', which does not have it"),
        ("id STRING, word BIGINT", r"column 'word' as BIGINT of table 'words', where it is STRING"),
    ],
)
def test_columns_that_the_aggregated_table_does_not_have_are_refused(rows: str, message: str) -> None:
    words = Table(name="words", key="id", schema="id STRING NOT NULL, word STRING")
    with pytest.raises(TopologyError, match=f"^aggregate_table 't' reads {message}"):
        aggregate_table(words, key="id", rows=rows, aggregates={"n": agg.count()}, table="t")


@pytest.mark.parametrize("arguments", [{"key": "part"}, {"aggregates": {"part": agg.count()}}])
def test_the_part_column_of_two_phases_may_not_be_used_otherwise(arguments: dict[str, Any]) -> None:
    with pytest.raises(TopologyError, match="'part'"):
        rows = f"part STRING, {ROWS}"
        two_phase(FACTS, **{"key": "id", "aggregates": {"n": agg.count()}, "table": "t", "rows": rows, **arguments})


def test_state_with_other_parameters_is_another_state() -> None:
    def of(key: str, one: Aggregate) -> str:
        return aggregate(FACTS, key=key, aggregates={"x": one}, table="t").tables[0].made_by

    assert of("id", agg.distinct("word")) == of("id", agg.distinct("word", k=1024))
    assert of("id", agg.distinct("word")) != of("id", agg.distinct("word", k=512))
    assert of("id", agg.count()) != of("word", agg.count())


@pytest.mark.parametrize(("before", "after"), [("INT", "BIGINT"), ("DECIMAL(12,2)", "DECIMAL(14,3)")])
def test_state_goes_on_under_another_type_only_if_its_values_stay_the_same(before: str, after: str) -> None:
    column = {one.__name__: one("n") for one in (agg.sum, agg.avg, agg.variance, agg.min, agg.first, agg.distinct)}
    column |= {"top": agg.top("n", 2, by="n"), "collect": agg.collect("n"), "number": agg.count("n")}

    def shapes(kind: str, one: Aggregate) -> dict[str, Shape]:
        source = Source(topic="facts", schema=f"id STRING, n {kind}", grace="1 second")
        own: Any = {"key": "id", "aggregates": {"x": one}}
        operators = [
            aggregate(source, **own, table="a"),
            cogroup({"a": source}, **own | {"aggregates": {"a": own["aggregates"]}}, table="b"),
            two_phase(source, **own, table="c", parts="d"),
            tumbling_window(source, **own, size="1 hour", table="e"),
            sliding_window(source, **own, size="1 hour", table="f"),
            session_window(source, **own, gap="1 hour", table="g"),
        ]
        return shapes_of(Topology(name="a.b", version="1", sources=[source], operators=operators))

    refused = {
        name: len(unlike_seed(shapes(after, one), shapes(before, one), "The savepoint")) for name, one in column.items()
    }
    stays = {"number"} if before != "INT" else {"number", "sum", "avg", "variance"}
    assert refused == {name: 0 if name in stays else 7 for name in column}


def test_state_of_a_release_that_did_not_name_the_type_of_hashed_values_goes_on() -> None:
    made_by = aggregate(FACTS, key="id", aggregates={"x": agg.distinct("price")}, table="t").tables[0].made_by

    assert made_by == "aggregate(key=['id'], x=distinct(price, k=1024 of DECIMAL(12, 2)))"
    assert may_go_on(made_by, "aggregate(key=['id'], x=distinct(price, k=1024))")
    assert not may_go_on(made_by, made_by.replace("12", "14"))
