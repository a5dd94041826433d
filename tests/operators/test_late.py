"""Late records of all operators are kept, whatever a step returns; a step that would omit some is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kappa import Source, Topology
from kappa.errors import TopologyError
from kappa.operators import agg, at_most_every, deduplicate, hopping_window, session_window, tumbling_window
from kappa.testing import Input, TopologyDriver
from kappa.topology import Effects, Slice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from kappa.topology.declaration import Step
    from kappa.topology.operator import Operator

pytestmark = pytest.mark.spark

ROWS = Source(topic="t", schema="k STRING NOT NULL", grace="0 seconds")
COUNTS: dict[str, Any] = {"key": "k", "aggregates": {"n": agg.count()}}
OPERATORS: dict[str, Operator[Any]] = {
    "minutes": tumbling_window(ROWS, size="1 minute", table="minutes", **COUNTS),
    "hours": tumbling_window(ROWS, size="1 hour", table="hours", **COUNTS),
    "overlapping": hopping_window(ROWS, size="1 minute", every="30 seconds", table="overlapping", **COUNTS),
    "visits": session_window(ROWS, gap="1 minute", table="visits", **COUNTS),
    "firsts": deduplicate(ROWS, key="k", within="1 minute", emit="final", table="firsts"),
    "paced": at_most_every(ROWS, key="k", every="1 minute", table="paced"),
}
LOG = [Input(topic="t", value={"k": "x"}, timestamp_ms=at) for at in (5_000, 125_000, 6_000)]


def driver_of(spark: SparkSession, names: Sequence[str], step: Step | None = None, **more: Any) -> TopologyDriver:
    """A driver of a topology with these operators, and with that step."""
    operators = [OPERATORS[name] for name in names]
    return TopologyDriver(
        Topology(name="ops.late", version="1", sources=[ROWS], operators=operators, step=step, **more), spark
    )


def late_of(spark: SparkSession, names: Sequence[str], step: Step | None = None) -> list[str]:
    """Operators of its late records."""
    driver = driver_of(spark, names, step)
    driver.pipe(LOG)
    return sorted(row["operator"] for row in driver.rows("late_records"))


def calling(*names: str) -> Step:
    """A step that calls these operators and returns nothing."""

    def step(slice: Slice) -> Effects:
        for name in names:
            OPERATORS[name](slice)
        return {}

    return step


def test_late_records_of_all_operators_are_kept_without_the_step(spark: SparkSession) -> None:
    names = ["minutes", "overlapping", "visits", "firsts", "paced"]
    each = ["deduplicate", "hopping_window", "session_window", "tumbling_window"]

    assert late_of(spark, names) == each
    assert late_of(spark, names, calling(*reversed(names))) == each


def test_late_records_of_two_equal_operators_are_kept(spark: SparkSession) -> None:
    driver = driver_of(spark, ["minutes", "hours"])
    driver.pipe([*LOG, Input(topic="t", value={"k": "x"}, timestamp_ms=7_200_000), LOG[0]])

    assert [(row["operator"], row["_offset"]) for row in driver.rows_in_order("late_records")] == [
        ("tumbling_window", 2),
        ("tumbling_window", 4),
        ("tumbling_window", 4),
    ]


def test_an_operator_that_refuses_nothing_adds_no_late_records(spark: SparkSession) -> None:
    assert late_of(spark, ["minutes", "paced"]) == ["tumbling_window"]
    assert late_of(spark, ["paced"]) == []


def test_a_step_that_returns_late_records_itself_is_refused(spark: SparkSession) -> None:
    def step(slice: Slice) -> Effects:
        return {"late_records": OPERATORS["hours"](slice).late}

    with pytest.raises(TopologyError, match="returned late records, which its operators bring along"):
        late_of(spark, ["hours"], step)


@pytest.mark.parametrize(
    ("called", "why"),
    [
        (["minutes"], "did not call tumbling_window 'hours', and its table would stay behind"),
        (["minutes", "hours", "minutes"], "tumbling_window 'minutes' is called twice in one slice"),
        (["minutes", "hours", "visits"], "called session_window 'visits', which is not among the topology's operators"),
    ],
    ids=["not called", "called twice", "not listed"],
)
def test_an_operator_not_called_exactly_once_or_not_listed_is_refused(
    spark: SparkSession, called: list[str], why: str
) -> None:
    with pytest.raises(TopologyError, match=why):
        late_of(spark, ["minutes", "hours"], calling(*called))


def test_an_operator_with_only_its_tables_listed_is_refused(spark: SparkSession) -> None:
    driver = driver_of(spark, ["minutes"], calling("minutes", "visits"), tables=OPERATORS["visits"].tables)

    with pytest.raises(TopologyError, match="called session_window 'visits', which is not among the topology's oper"):
        driver.pipe(LOG)
