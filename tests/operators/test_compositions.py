"""Operators that read rows emitted by others match plain Python on those rows, under every cut."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from support.compositions import (
    COMPOSITIONS,
    LEFT,
    RIGHT,
    SUMS,
    THIRD,
    Composition,
    Row,
    cut,
    history,
    in_order,
    in_time,
    record,
    windows_of_windows,
)

from kappa import Append, Slice, Topology
from kappa.errors import TopologyError
from kappa.operators import deduplicate, hopping_window, interval_join, newest_table_join
from kappa.testing import Input, TopologyDriver

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("small_slices")]


def run(topology: Topology, spark: SparkSession, slices: list[list[Input]]) -> dict[str, list[Row]]:
    driver = TopologyDriver(topology, spark, partitions=dict.fromkeys(topology.source_topics, 2))
    for batch in slices:
        driver.pipe(batch)
    return {append.name: in_order(driver.rows(append.name)) for append in topology.appends}


@pytest.mark.parametrize("name", list(COMPOSITIONS)[:2])
def test_a_following_operator_reads_the_emitted_rows(spark: SparkSession, name: str) -> None:
    check(spark, name, seed=0, cuts=(3,))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_each_composition_reads_the_emitted_rows(spark: SparkSession, name: str, seed: int) -> None:
    check(spark, name, seed=seed, cuts=(3, 6))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3, 103))
@pytest.mark.parametrize("name", COMPOSITIONS)
def test_compositions_read_the_emitted_rows(spark: SparkSession, name: str, seed: int) -> None:
    check(spark, name, seed=seed, cuts=(random.Random(seed).randrange(2, 9),))


def check(spark: SparkSession, name: str, *, seed: int, cuts: tuple[int, ...]) -> None:
    """Rows of the last operator are those of plain Python, and those of the same log in this many slices."""
    composition, chance = COMPOSITIONS[name](), random.Random(seed)
    log = history(chance, composition.sources)
    outputs = run(composition.topology(), spark, [log])

    last = f"out_{len(composition.operators) - 1}"
    inputs = {output: rows for output, rows in outputs.items() if output != last}
    expected = [row for row in composition.oracle(inputs, in_time(log)) if not is_of_the_end(row)]
    assert in_order(row for row in outputs[last] if not is_of_the_end(row)) == in_order(expected)
    assert len(expected) > 1

    for slices in cuts:
        assert run(composition.topology(), spark, cut(chance, log, slices)) == outputs


def is_of_the_end(row: Row) -> bool:
    """True for rows of the last record, after which nothing closes."""
    return bool(row["id"] == "z")


def test_a_row_emitted_by_another_operator_is_never_late(spark: SparkSession) -> None:
    composition, chance = windows_of_windows(), random.Random(7)
    rows = run(composition.topology(), spark, cut(chance, history(chance, (LEFT,)), 4))

    # Each of them is a record of the source: the second operator refused none of the rows of the first.
    assert rows["late_records"]
    assert all('"lefts_at"' in row["record"] for row in rows["late_records"])


def test_rows_of_a_table_join_are_not_declared_invariant_under_any_cut(spark: SparkSession) -> None:
    named = newest_table_join(LEFT, RIGHT, key="id", table="newest")

    assert Append(name="named", of=named.rows).cuts == "time"


@pytest.mark.parametrize("first", ["join", "windows"])
def test_rows_of_one_record_in_several_slices_all_wait_for_a_partner(spark: SparkSession, first: str) -> None:
    """Two payments of an order, or two windows of a click, are emitted one after the other from one record."""
    if first == "join":
        one: Any = interval_join(LEFT, RIGHT, key="id", within="4 seconds", tables=("l", "r"))
        log = [
            record("lefts", 0, "a", 1, 1_000),
            record("rights", 0, "a", 1, 1_000),
            record("rights", 0, "a", 2, 2_000),
        ]
    else:
        one = hopping_window(LEFT, key="id", size="4 seconds", every="2 seconds", aggregates=SUMS, table="open_4")
        log = [record("lefts", 0, "a", 1, 1_000), *(record("lefts", 0, "z", 1, at) for at in (4_000, 6_500))]
    emitted = one.rows if first == "join" else one.final
    rows = "id STRING, thirds_at BIGINT"
    two = interval_join(emitted, THIRD, key="id", within="20 seconds", tables=("firsts", "t"), right_rows=rows)
    sources = (LEFT, RIGHT, THIRD) if first == "join" else (LEFT, THIRD)
    topology = Composition(sources=sources, operators=(one, two), oracle=lambda *_: []).topology()
    driver = TopologyDriver(topology, spark)
    for item in [*log, record("thirds", 0, "a", 0, 3_000)]:
        driver.pipe([item])

    assert len(driver.rows("out_1")) == 2


@pytest.mark.parametrize("first", ["join", "other operator"])
def test_pairs_of_one_record_are_not_kept_without_what_tells_them_apart(spark: SparkSession, first: str) -> None:
    pairs = interval_join(LEFT, RIGHT, key="id", within="4 seconds", tables=("l", "r"))
    once = deduplicate(pairs.rows, key=["id", "amount_right"], within=None, table="seen")
    rows = "id STRING, thirds_at BIGINT"
    of = pairs.rows if first == "join" else once.rows
    joined = interval_join(of, THIRD, key="id", within="20 seconds", tables=("firsts", "t"), right_rows=rows)

    def step(slice: Slice) -> dict[str, DataFrame]:
        bare = pairs(slice).rows.drop("_partner")
        once(slice, bare)
        joined(slice, bare if first == "join" else None)
        return {}

    sources, operators = (LEFT, RIGHT, THIRD), (pairs, once, joined)
    topology = Composition(sources=sources, operators=operators, oracle=lambda *_: [], step=step).topology()
    with pytest.raises(TopologyError, match="without _partner, which distinguishes the pairs of one record"):
        TopologyDriver(topology, spark).pipe([record("lefts", 0, "a", 1, 1_000)])
