"""A table declares which of its columns are results; internal columns of operators are not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.internal_columns import CASES, HIDING, KEEPING, KEY, facts, results_of, topology_of

from kappa.drawing import graph_of
from kappa.errors import TopologyError
from kappa.operators import agg, aggregate, cdc_table, table_table_join
from kappa.topology import Table, Topic, Topology
from kappa.topology.shapes import Shape, shapes_as_dict, shapes_from_dict, shapes_of
from kappa.topology.thresholds import Threshold


def test_every_operator_that_keeps_a_table_has_a_case() -> None:
    assert {name.partition(",")[0] for name in CASES} == KEEPING


@pytest.mark.parametrize("name", CASES)
def test_only_results_are_measured_drawn_and_recorded_as_visible(name: str) -> None:
    topology, results = topology_of(name), results_of(name)
    table = topology.operators[0].tables[0]
    shape = shapes_from_dict(shapes_as_dict(shapes_of(topology)))["tables/t"]
    (box,) = [box for box in graph_of(topology).center.leads_to if box.name == "t"]
    drifting = {measure.partition(".drift.")[2] for measure in table.measures if ".drift." in measure}

    assert [column.name for column in table.columns if column.name not in table.hidden] == results
    assert list(shape.results) == results and set(shape.columns) == {column.name for column in table.columns}
    assert drifting <= set(results)
    assert f"{len(table.results)} columns" in box.details
    if name in HIDING:
        assert table.hidden


@pytest.mark.parametrize("name", ["aggregate", "two_phase", "newest_by", "cdc_table", "aggregate_table"])
def test_a_topic_of_a_table_sends_results_unless_columns_are_named(name: str) -> None:
    declared = topology_of(name)
    (operator,) = declared.operators
    internal = operator.tables[0].internal[0]
    topics = [Topic(name="whole", of="t", key=KEY), Topic(name="named", of="t", key=KEY, columns=[KEY, internal])]
    both = replace(declared, outputs=topics)

    assert [column.name for column in both.sent_columns(topics[0])] == results_of(name)
    assert [column.name for column in both.sent_columns(topics[1])] == [KEY, internal]
    assert operator.schema.count("`") and internal not in operator.schema


def test_operators_on_a_table_read_its_results_by_name_or_operator() -> None:
    (means,) = topology_of("aggregate").operators
    by_name = table_table_join(means.tables[0], means.tables[0], key=KEY, how="left", table="joined")
    of_operator = table_table_join(means, means, key=KEY, how="left", table="joined")

    assert by_name.tables == of_operator.tables
    assert "A avg" in by_name.schema and "A avg__sum" not in by_name.schema


def test_an_added_key_column_is_read_but_not_sent() -> None:
    (history, *_) = cdc_table(topology_of("cdc_table").sources[0], key=KEY, table="t", history=True).tables
    assert "_version" not in [column.name for column in history.results]
    assert "_version" not in history.hidden and "_version" in Shape.of(history).results


def test_a_shape_written_by_earlier_code_hides_nothing() -> None:
    whole = shapes_as_dict(shapes_of(topology_of("aggregate")))
    for shape in whole.values():
        del shape["hidden"]
    (shape,) = [shape for place, shape in shapes_from_dict(whole).items() if place == "tables/t"]
    assert shape.hidden is None and shape.results == shape.columns


def test_only_a_table_of_an_operator_has_internal_columns_of_its_own() -> None:
    with pytest.raises(TopologyError, match=r"internal=\['n'\] is only for tables that an operator keeps"):
        Table(name="t", key="id", schema="id STRING NOT NULL, n BIGINT", internal=["n"])
    with pytest.raises(TopologyError, match=r"internal columns \['m'\] are not in its schema"):
        Table(name="t", key="id", schema="id STRING NOT NULL, n BIGINT", internal=["m"], made_by="me")


def test_a_threshold_cannot_limit_an_internal_column() -> None:
    counted = aggregate(facts, key=KEY, aggregates={"n": agg.avg("n")}, table="t")
    with pytest.raises(TopologyError, match=r"nothing that threshold 't\.drift\.n__sum' could limit"):
        Topology(
            name="tests.limits",
            version="1",
            sources=[facts],
            operators=[counted],
            thresholds=[Threshold(table="t", drift={"n__sum": 0})],
        )
