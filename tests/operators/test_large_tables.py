"""Operators seek the keys of a slice in a table that is large beside it, and give what they give otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.changes import sent
from support.plans import optimized_plan

from kappa.operators import (
    agg,
    aggregate,
    aggregate_table,
    cdc_table,
    cogroup,
    deduplicate,
    newest_by,
    running_total,
    two_phase,
)
from kappa.slices import state
from kappa.testing import Input, TopologyDriver
from kappa.topology import Slice, Source, Topology
from kappa.topology.declaration import step_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("small_slices")]

ORDERS = Source(topic="orders", schema="id STRING, n BIGINT")
RETURNS = Source(topic="returns", schema="id STRING, n BIGINT")
CHANGES = Source(topic="changes", schema="n BIGINT", key_schema="id STRING", envelope="debezium")
TOTAL = {"total": agg.sum("n")}

newest = newest_by(ORDERS, key="id", table="newest", deletions="deleted")
both = cogroup(
    {"orders": ORDERS, "returns": RETURNS},
    key="id",
    aggregates={"orders": TOTAL, "returns": {"returned": agg.sum("n")}},
    table="balances",
)
#: Name -> sources and operators of a topology; the last operator is tried.
TOPOLOGIES: dict[str, tuple[list[Source], list[Any]]] = {
    "running_total": ([ORDERS], [running_total(ORDERS, key="id", amount="n", total="total", table="totals")]),
    "aggregate": ([ORDERS], [aggregate(ORDERS, key="id", aggregates=TOTAL, table="sums")]),
    "cogroup": ([ORDERS, RETURNS], [both]),
    "two_phase": ([ORDERS], [two_phase(ORDERS, key="id", aggregates=TOTAL, table="sums", parts="parts")]),
    "aggregate_table": (
        [ORDERS],
        [newest, aggregate_table(newest, key="n", aggregates={"members": agg.count()}, table="groups")],
    ),
    "newest_by": ([ORDERS], [newest]),
    "deduplicate": ([ORDERS], [deduplicate(ORDERS, key="id", within=None, table="seen")]),
    "cdc_table": ([CHANGES], [cdc_table(CHANGES, key="id", table="customers")]),
    "cdc_table with history": ([CHANGES], [cdc_table(CHANGES, key="id", table="customers", history=True)]),
}


def _order(key: str, n: int, topic: str = "orders") -> Input:
    return Input(topic=topic, value={"id": key, "n": n})


def _play(spark: SparkSession, name: str) -> tuple[TopologyDriver, str]:
    """Two slices; the plan of what the operator changes in the second."""
    sources, operators = TOPOLOGIES[name]
    tables, plans = [table.name for table in operators[-1].tables], list[str]()
    call_operators = step_of(operators)

    def step(slice: Slice) -> None:
        call_operators(slice)
        plans.append("\n".join(optimized_plan(slice.calls.changes[table]) for table in tables))

    topology = Topology(name="test.large", version="1", sources=sources, operators=operators, step=step)
    driver = TopologyDriver(topology, spark)
    if sources == [CHANGES]:
        driver.pipe(sent("c", {"id": key}, {"n": 1}, lsn=lsn) for lsn, key in enumerate("abcd"))
        driver.pipe([sent("u", {"id": "a"}, {"n": 5}, lsn=10), sent("d", {"id": "b"}, lsn=11)])
    else:
        driver.pipe(_order(key, 2) for key in "abcd")
        driver.pipe([_order("a", 3), _order("e", 4), *([_order("a", 1, "returns")] if RETURNS in sources else [])])
    return driver, plans[-1]


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_an_operator_seeks_keys_in_a_large_table_and_gives_the_same_rows(
    spark: SparkSession, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside_few, plan = _play(spark, name)
    monkeypatch.setattr(state, "LARGE_ROWS", 1)
    beside_many, seeking_plan = _play(spark, name)
    assert spark.conf.get("spark.sql.codegen.wholeStage") == "true"
    for table in beside_few.topology.tables:
        few, many = (sorted(map(repr, driver.rows(table.name))) for driver in (beside_few, beside_many))
        assert few == many
    seek = "LeftSemi" if "cdc" not in name else "rightHint=(strategy=broadcast)"
    assert plan.count(seek) < seeking_plan.count(seek)
