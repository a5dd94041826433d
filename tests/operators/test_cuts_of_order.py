"""Operators that follow the total order, on rows that come later than the record of their place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kappa import Effects, Slice, Source, Topology
from kappa.errors import TopologyError
from kappa.operators import (
    agg,
    at_most_every,
    deduplicate,
    interval_join,
    lookup,
    newest_by,
    newest_table_join,
    running_total,
    session_window,
    table_join,
    tumbling_window,
    versions_by,
)
from kappa.testing import Input, TopologyDriver
from kappa.topology.earlier_code import earlier_code
from kappa.topology.emission import Cuts, Emission

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = "id STRING NOT NULL, amount BIGINT"
ONE, OTHER = (Source(topic=topic, schema=ROWS, grace="1 minute") for topic in ("ones", "others"))
COUNT: dict[str, Any] = {"key": "id", "aggregates": {"amount": agg.count()}, "table": "t"}
PAIRS = interval_join(ONE, OTHER, key="id", within="1 minute", tables=("l", "r")).rows
HOURS = tumbling_window(ONE, **COUNT, size="1 hour").final
#: What an operator reads -> the cuts under which it gets the rows of a key in one order.
INPUTS: dict[str, tuple[Source | Emission | list[Source | Emission], Cuts]] = {
    "a source": (ONE, "any"),
    "two sources": ([ONE, OTHER], "time"),
    "rows as they come": (running_total(ONE, key="id", total="n", table="t").rows, "any"),
    "windows": (HOURS, "any"),
    "sessions": (session_window(ONE, **COUNT, gap="1 hour").final, "any"),
    "boundaries": (at_most_every(ONE, key="id", every="1 hour", table="t").final, "any"),
    "runs": (deduplicate(ONE, key="id", within="1 hour", table="t", emit="final").rows, "any"),
    "valid at their time": (table_join(ONE, OTHER, key="id", tables=("w", "v")).rows, "any"),
    "pairs": (PAIRS, "equal"),
    "the first of pairs": (deduplicate(PAIRS, key="id", within=None, table="t").rows, "equal"),
    "windows of pairs": (tumbling_window(PAIRS, **COUNT, size="1 hour").final, "any"),
    "records and windows": ([ONE, HOURS], "equal"),
    "records and pairs": ([ONE, PAIRS], "equal"),
}


@pytest.mark.parametrize("name", INPUTS)
def test_a_result_along_the_order_is_the_same_under_the_cuts_that_keep_it(name: str) -> None:
    of, cuts = INPUTS[name]
    totals = running_total(of, key="id", total="so_far", table="t", rows=ROWS, since="amount", thresholds=[3])
    first = deduplicate(of, key="id", within=None, table="t", rows=ROWS)
    assert [totals.rows.cuts, totals.crossings.cuts, totals.tables[0].cuts] == [cuts] * 3
    assert [first.rows.cuts, first.tables[0].cuts] == [cuts] * 2


def test_a_result_that_waits_for_all_rows_is_the_same_under_any_cut() -> None:
    assert deduplicate(PAIRS, key="id", within="1 hour", table="t", emit="final").rows.cuts == "any"
    assert table_join(PAIRS, ONE, key="id", tables=("w", "v"), left_rows="id STRING").rows.cuts == "any"


@pytest.mark.parametrize("join", [lookup, newest_table_join])
@pytest.mark.parametrize("name", INPUTS)
def test_a_join_along_the_order_takes_rows_that_come_with_their_record(join: Callable[..., Any], name: str) -> None:
    of, _ = INPUTS[name]
    expected = "time" if name in ("a source", "two sources", "rows as they come") else "equal"
    third = Source(topic="thirds", schema=ROWS, grace="1 minute")
    sides = {"key": "id", "table": "t", "left_rows": ROWS, "table_rows": ROWS}
    as_left, as_table = join(of, third, **sides), join(third, of, **sides)
    assert [as_left.rows.cuts, as_table.rows.cuts] == [expected] * 2


@pytest.mark.parametrize("join", [lookup, newest_table_join])
def test_a_join_depends_on_the_cuts_on_which_its_table_depends(join: Callable[..., Any]) -> None:
    one, other = (Source(topic=topic, schema=ROWS, grace="1 minute") for topic in ("thirds", "fourths"))
    sides = {"key": "id", "left_rows": "id STRING NOT NULL", "table_rows": ROWS}
    of_pairs = join(one, PAIRS, table="of_pairs", **sides).rows
    assert (of_pairs.cuts, of_pairs.comes) == ("equal", "record")
    assert join(other, of_pairs, table="t", **sides).rows.cuts == "equal"
    totals = running_total(of_pairs, key="id", total="n", table="sums")
    assert lookup(other, totals, key="id", left_rows="id STRING NOT NULL").rows.cuts == "equal"


def late_cuts(*operators: Any) -> Cuts:
    topology = Topology(name="test.late", version="1", sources=[ONE, OTHER], operators=operators)
    # A copy declares the output again.
    (late,) = (one for one in replace(topology, operators=operators).appends if one.name == "late_records")
    return late.cuts


def test_late_rows_depend_on_the_cuts_on_which_their_columns_depend() -> None:
    named = newest_table_join(ONE, OTHER, key="id", table="newest")
    assert late_cuts(named, tumbling_window(named.rows, **COUNT, size="1 hour")) == "time"
    sides = {"left_rows": "id STRING NOT NULL", "right_rows": ROWS}
    joined = interval_join(OTHER, named.rows, key="id", within="1 hour", tables=("l", "r"), **sides)
    assert late_cuts(named, joined) == "time"
    paid = interval_join(ONE, OTHER, key="id", within="1 minute", tables=("l", "r"))
    totals = running_total(paid.rows, key="id", total="n", table="sums")
    assert late_cuts(paid, totals, session_window(totals.rows, **COUNT, gap="1 hour")) == "equal"


def test_late_rows_of_records_are_the_same_under_any_cut_whatever_else_there_is() -> None:
    named = newest_table_join(ONE, OTHER, key="id", table="newest")
    again = newest_by(named.rows, key="id", table="again")
    assert late_cuts(named, again, tumbling_window(ONE, **COUNT, size="1 hour")) == "any"


@pytest.mark.spark
def test_the_newest_of_records_and_pairs_is_the_same_under_any_cut(spark: SparkSession) -> None:
    paid = interval_join(ONE, OTHER, key="id", within="1 minute", tables=("l", "r"), left_rows="id STRING")
    last = newest_by([ONE, paid.rows], key="id", table="last", rows=ROWS)

    def step(slice: Slice) -> Effects:
        pairs = paid(slice).rows
        last(slice, slice["ones"].where("amount > 100").unionByName(pairs, allowMissingColumns=True))
        return {}

    topology = Topology(name="cuts.order", version="1", sources=[ONE, OTHER], operators=[paid, last], step=step)
    log = [
        Input(topic=topic, value={"id": "a", "amount": amount}, timestamp_ms=at)
        for topic, at, amount in [("ones", 1, 0), ("others", 2, 7), ("others", 3, 9), ("others", 4, 5)]
    ]
    results = []
    for slices in ([log], [log[:1], log[1:2], log[2:3], log[3:]]):
        driver = TopologyDriver(topology, spark)
        for records in slices:
            driver.pipe(records)
        results.append(driver.rows("last"))
    assert results[0] == results[1]
    assert results[0][0]["amount"] == 9


FINAL = session_window(ONE, **COUNT, gap="1 hour").final
JOINS: dict[str, Callable[[list[Source | Emission]], Any]] = {
    "the left side": lambda of: interval_join(of, OTHER, key="id", within="1 hour", tables=("l", "r"), left_rows=ROWS),
    "the right side": lambda of: interval_join(
        OTHER, of, key="id", within="1 hour", tables=("l", "r"), right_rows=ROWS
    ),
    "rows that wait": lambda of: table_join(of, OTHER, key="id", tables=("w", "v"), left_rows=ROWS),
    "versions": lambda of: versions_by(of, key="id", table="v", rows=ROWS),
}
#: Operators that emit the rows of their input, by what is read.
PASSING: dict[str, Callable[[Any], Emission]] = {
    "totals": lambda of: running_total(of, key="id", total="so_far", table="totals", rows=ROWS).rows,
    "a lookup": lambda of: lookup(of, OTHER, key="id", table="looked_up", left_rows=ROWS).rows,
    "rows once": lambda of: deduplicate(of, key="id", within="1 hour", table="seen", rows=ROWS).rows,
}


@pytest.mark.parametrize("join", JOINS.values(), ids=JOINS)
@pytest.mark.parametrize("beside", [FINAL, ONE], ids=["final rows", "records"])
def test_final_rows_and_others_that_may_have_one_record_wait_in_no_join(
    join: Callable[[Any], Any], beside: Source | Emission
) -> None:
    with pytest.raises(TopologyError, match=r"may have one record.* one would be lost\. Join each of them"):
        join([HOURS, beside])
    with earlier_code():
        join([HOURS, beside])


@pytest.mark.parametrize("join", JOINS.values(), ids=JOINS)
@pytest.mark.parametrize("passing", PASSING.values(), ids=PASSING)
def test_rows_that_an_operator_passes_on_keep_their_places(
    join: Callable[[Any], Any], passing: Callable[[Any], Any]
) -> None:
    for beside in (FINAL, ONE):
        for of in ([passing([HOURS, beside])], [passing(HOURS), beside], [HOURS, passing(beside)]):
            with pytest.raises(TopologyError, match=r"one would be lost\. Join each of them"):
                join(of)
    join([passing([HOURS, OTHER])])


def test_what_never_has_one_record_may_wait_in_one_join() -> None:
    others = session_window(OTHER, **COUNT, gap="1 hour").final
    for apart in ([HOURS, others], [HOURS, PAIRS], [HOURS, OTHER]):
        for join in JOINS.values():
            join(apart)
