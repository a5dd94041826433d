"""Late records of each operator that a step calls are among its effects, however it hands them on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from kappa import Source, Topology
from kappa.errors import TopologyError
from kappa.operators import (
    agg,
    at_most_every,
    deduplicate,
    hopping_window,
    late_records,
    session_window,
    tumbling_window,
)
from kappa.testing import Input, TopologyDriver
from kappa.topology import Effects, Slice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROW = "k STRING NOT NULL"
KEYED = {"rows": ROW, "key": "k"}
COUNT = {"n": agg.count()}
OPERATORS: dict[str, Any] = {
    "minutes": tumbling_window(**KEYED, size="1 minute", aggregates=COUNT),
    "hours": tumbling_window(**KEYED, size="1 hour", aggregates=COUNT),
    "overlapping": hopping_window(**KEYED, size="1 minute", every="30 seconds", aggregates=COUNT),
    "visits": session_window(**KEYED, gap="1 minute", aggregates=COUNT),
    "firsts": deduplicate(**KEYED, within="1 minute", emit="final"),
    "paced": at_most_every(**KEYED, every="1 minute"),
}
LOG = [Input(topic="t", value={"k": "x"}, timestamp_ms=at) for at in (5_000, 125_000, 6_000)]
Found = dict[str, Any]


def late_of(spark: SparkSession, names: list[str], late: Callable[[Found], DataFrame]) -> list[str]:
    """Operators of the late records of a topology with these operators, whose step returns these."""

    def step(slice: Slice) -> Effects:
        found = {
            name: OPERATORS[name](slice["t"], before=slice.table(name), frontier=slice.frontier("t")) for name in names
        }
        return {**{name: one.changes for name, one in found.items()}, "late_records": late(found)}

    topology = Topology(
        name="ops.late",
        version="1",
        sources=[Source(topic="t", schema=ROW, grace="0 seconds")],
        tables=[OPERATORS[name].table(name) for name in names],
        step=step,
    )
    driver = TopologyDriver(topology, spark)
    driver.pipe(LOG)
    return sorted(row["operator"] for row in driver.rows("late_records"))


def test_a_step_that_returns_late_records_of_one_of_two_operators_is_refused(spark: SparkSession) -> None:
    with pytest.raises(TopologyError, match=r"drops those of \['tumbling_window'\]"):
        late_of(spark, ["minutes", "hours"], lambda found: found["hours"].late)
    with pytest.raises(TopologyError, match=r"drops those of \['deduplicate'\]"):
        late_of(spark, ["firsts", "visits"], lambda found: late_records(found["visits"].late))


def test_late_records_of_all_operators_are_taken_as_a_union_and_after_a_filter(spark: SparkSession) -> None:
    names = ["minutes", "overlapping", "visits", "firsts", "paced"]
    told = ["deduplicate", "hopping_window", "session_window", "tumbling_window"]

    def nested(found: Found) -> DataFrame:
        both = late_records(found["minutes"].late, found["overlapping"].late)
        return late_records(both, found["visits"].late.where("operator IS NOT NULL"), found["firsts"].late)

    def by_hand(found: Found) -> DataFrame:
        first, *others = (found[name].late for name in names if name != "paced")
        for other in others:
            first = first.unionByName(other)
        return first.select("*")

    assert late_of(spark, names, nested) == told
    assert late_of(spark, names, by_hand) == told


def test_an_operator_that_refuses_nothing_has_nothing_to_return(spark: SparkSession) -> None:
    assert late_of(spark, ["minutes", "paced"], lambda found: found["minutes"].late) == ["tumbling_window"]
