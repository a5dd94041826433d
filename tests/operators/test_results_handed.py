"""A step gets only the results of an operator; the table has all columns that the operator needs to continue."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import pytest
from support.internal_columns import CASES, HIDING, KEY, facts, topology_of

from kappa import Topology
from kappa.operators import agg, aggregate, aggregate_table
from kappa.topology.operator_inputs import TableInput
from kappa.verify.inspection import _without_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", CASES)
def test_a_step_gets_results_and_the_table_gets_all_columns(spark: SparkSession, name: str) -> None:
    topology = topology_of(name)
    (operator,) = topology.operators
    slice = _without_rows(spark, topology)
    arguments = [slice.table(read.table.name) if isinstance(read, TableInput) else None for read in operator.inputs]
    result = operator(slice, *arguments)
    handed = [frame for one in fields(result) if (frame := getattr(result, one.name)) is not None]
    tables = []

    assert any(table.hidden for table in operator.tables) == (name in HIDING)
    for table in operator.tables:
        whole = slice.calls.changes[table.name]
        shown = slice.calls.handed.get(table.name, whole)
        assert {column.name for column in table.columns} <= set(whole.columns)
        assert set(whole.columns) - set(shown.columns) == set(table.hidden)
        # A join keeps the versions of its table for itself.
        assert any(frame is shown for frame in handed) == ((name, table.name) != ("table_join", "t_2"))
        tables.append(shown)
    for emitted in (frame for frame in handed if all(frame is not table for table in tables)):
        assert not set(operator.tables[0].hidden) & set(emitted.columns)


def test_an_operator_on_a_table_accepts_the_changes_passed_to_the_step(spark: SparkSession) -> None:
    means = aggregate(facts, key=KEY, aggregates={"mean": agg.avg("n"), "n": agg.count()}, table="means")
    totals = aggregate_table(means, key=KEY, aggregates={"keys": agg.count(), "n": agg.sum("n")}, table="totals")
    topology = Topology(name="tests.handed", version="1", sources=[facts], operators=[means, totals])
    slice = _without_rows(spark, topology)

    totals(slice, means(slice).changes)
    assert "mean__sum" in slice.calls.changes["means"].columns
    assert "_members" in slice.calls.changes["totals"].columns
