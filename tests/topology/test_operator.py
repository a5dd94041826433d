"""Mistakes that the declaration of an operator can detect are refused there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kappa import Append, Source, Table, Topic, Topology
from kappa.errors import TopologyError
from kappa.operators import (
    agg,
    aggregate,
    aggregate_table,
    hopping_window,
    interval_join,
    newest_by,
    newest_table_join,
    tumbling_window,
)

TICK = "symbol STRING, price BIGINT, at BIGINT"
TICKS = Source(topic="ticks", schema=TICK, time="at", grace="10 seconds")
TRADES = Source(topic="trades", schema=TICK, time="at", grace="10 seconds")
COUNT = {"trades": agg.count()}
MINUTE = {"key": "symbol", "size": "1 minute", "aggregates": COUNT}


def topology(**members: object) -> Topology:
    declaration = {"name": "test.bound", "version": "1", "sources": [TICKS], **members}
    return Topology(**declaration)  # type: ignore[arg-type]


def test_tables_late_records_and_outputs_follow_from_operators() -> None:
    minutes = tumbling_window(TICKS, table="minutes", **MINUTE)
    stats = topology(
        operators=[minutes],
        outputs=[Append(name="stats", of=minutes.final), Topic(name="stats-out", of="stats", key="symbol")],
    )

    assert [table.name for table in stats.tables] == ["minutes"]
    assert [append.name for append in stats.appends] == ["stats", "late_records"]
    assert [column.name for column in stats.appends[0].columns] == ["symbol", "window_start", "window_end", "trades"]


def test_an_operator_needs_what_it_reads_and_a_table() -> None:
    with pytest.raises(TopologyError, match=r"tumbling_window: missing a required argument: 'of'.*table='windows'"):
        tumbling_window(rows=TICK, **MINUTE)  # type: ignore[call-arg]
    with pytest.raises(TopologyError, match="interval_join: missing a required argument: 'tables'"):
        interval_join(left=TICK, right=TICK, key="symbol", within="1 minute")  # type: ignore[call-arg]
    with pytest.raises(TopologyError, match=r"is declared with 'ticks'. Declare it with a source"):
        tumbling_window("ticks", table="minutes", **MINUTE)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="reads tables and is declared with source"):
        aggregate_table(TICKS, key="symbol", aggregates=COUNT, table="counts")  # type: ignore[arg-type]


def test_an_operator_that_needs_event_time_requires_it() -> None:
    untimed = Source(topic="ticks", schema=TICK)

    with pytest.raises(TopologyError, match=r"tumbling_window 'minutes' needs event time, and source 'ticks' has none"):
        tumbling_window(untimed, table="minutes", **MINUTE)
    with pytest.raises(TopologyError, match="grace='10 seconds'"):
        interval_join(TICKS, untimed, key="symbol", within="1 minute", tables=("l", "r"))


def test_a_source_of_an_operator_equals_the_source_of_the_topology() -> None:
    minutes = tumbling_window(TICKS, table="minutes", **MINUTE)
    slower = Source(topic="ticks", schema=TICK, time="at", grace="1 hour")

    with pytest.raises(TopologyError, match="tumbling_window 'minutes' reads source 'ticks', which is not among"):
        topology(sources=[TRADES], operators=[minutes])
    with pytest.raises(TopologyError, match=r"as declared there. List the same Source"):
        topology(sources=[slower], operators=[minutes])


def test_an_operator_whose_rows_are_used_is_listed() -> None:
    minutes = tumbling_window(TICKS, table="minutes", **MINUTE)
    hours = tumbling_window(minutes.final, key="symbol", size="1 hour", aggregates=COUNT, table="hours")

    with pytest.raises(TopologyError, match="reads rows of tumbling_window 'minutes', which is not among"):
        topology(operators=[hours])
    with pytest.raises(TopologyError, match="output 'stats' has the rows of tumbling_window 'minutes'"):
        topology(
            operators=[hours, minutes][:0],
            tables=[Table(name="t", key="id", schema="id STRING NOT NULL")],
            step=lambda slice: {},
            outputs=[Append(name="stats", of=minutes.final)],
        )
    with pytest.raises(TopologyError, match="Output 'stats' is of FinalOperator"):
        Append(name="stats", of=minutes)  # type: ignore[arg-type]


def test_two_operators_share_no_table() -> None:
    both = [tumbling_window(TICKS, table="minutes", **MINUTE) for _ in range(2)]

    with pytest.raises(TopologyError, match=r"declares table or output \['minutes'\] more than once"):
        topology(operators=both)


def test_an_operator_reads_only_tables_of_its_topology() -> None:
    newest = newest_by(TICKS, key="symbol", table="newest")
    counts = aggregate_table(newest, key="price", aggregates=COUNT, table="counts")

    with pytest.raises(TopologyError, match="aggregate_table 'counts' reads table 'newest', which is not among"):
        topology(operators=[counts])
    assert [table.name for table in topology(operators=[newest, counts]).tables] == ["newest", "counts"]


def test_a_topology_needs_a_step_or_operators() -> None:
    with pytest.raises(TopologyError, match="has neither a step nor operators"):
        topology(outputs=[Append(name="rows", schema="id STRING")])
    with pytest.raises(TopologyError, match="lists 'minutes' among its operators"):
        topology(operators=["minutes"])


def test_sources_with_different_columns_need_declared_rows() -> None:
    other = Source(topic="trades", schema="symbol STRING, at BIGINT", time="at", grace="10 seconds")

    with pytest.raises(
        TopologyError, match=r"source 'ticks' and source 'trades', whose columns differ. Declare the rows"
    ):
        tumbling_window([TICKS, other], table="minutes", **MINUTE)
    assert tumbling_window([TICKS, TRADES], table="minutes", **MINUTE).inputs[0].topics == ("ticks", "trades")


def test_an_operator_reads_rows_of_the_step_where_the_source_lacks_a_column() -> None:
    by_symbol = aggregate(TICKS, key="symbol", aggregates=COUNT, table="counts", rows="symbol STRING")
    by_name = aggregate(TICKS, key="name", aggregates=COUNT, table="counts", rows="name STRING")

    assert not by_symbol.inputs[0].is_shaped
    assert by_name.inputs[0].is_shaped


def test_the_event_time_of_rows_lags_by_the_sum_of_their_operators() -> None:
    joined = interval_join(
        TICKS, TRADES, key="symbol", before="5 seconds", after="1 second", how="outer", tables=("l", "r")
    )
    twice = interval_join(
        joined.rows, TRADES, key="symbol", within="2 seconds", how="left", tables=("p", "t"), right_rows="symbol STRING"
    )
    windows = hopping_window(
        twice.rows, key="symbol", size="10 seconds", every="5 seconds", aggregates=COUNT, table="windows"
    )

    assert joined.rows.behind_ms == 5_000
    assert twice.rows.behind_ms == 7_000
    assert windows.final.behind_ms == 7_000
    assert windows.final.topics == ("ticks", "trades")


def test_a_topology_may_declare_masks_and_cuts_for_an_operators_table() -> None:
    newest = newest_by(TICKS, key="symbol", table="newest")
    (own,) = newest.tables
    declared = topology(operators=[newest], tables=[replace(own, masked=("price",), cuts="time")])

    assert [(table.name, table.masked, table.cuts) for table in declared.tables] == [("newest", ("price",), "time")]
    assert replace(declared, version="2").tables == declared.tables
    with pytest.raises(TopologyError, match=r"declares table or output \['newest'\] more than once"):
        topology(operators=[newest], tables=[Table(name="newest", key="symbol", schema="symbol STRING NOT NULL")])


def test_a_topic_of_an_operators_table_has_its_results_or_the_named_columns() -> None:
    prices = {"average": agg.avg("price"), "last": agg.last("price")}
    by_symbol = aggregate(TICKS, key="symbol", aggregates=prices, table="prices")
    whole = Topic(name="prices", of="prices", key="symbol")
    declared = topology(operators=[by_symbol], outputs=[whole])

    assert "average__sum" in [column.name for column in by_symbol.tables[0].columns]
    assert [column.name for column in declared.sent_columns(whole)] == ["symbol", "average", "last"]
    assert [column.name for column in declared.sent_columns(replace(whole, columns="last"))] == ["last"]
    with pytest.raises(TopologyError, match=r"topic 'prices' sends \['first'\], which are not columns of 'prices'"):
        topology(operators=[by_symbol], outputs=[replace(whole, columns=["first"])])


def test_results_of_rows_that_depend_on_cuts_depend_on_cuts() -> None:
    joined = newest_table_join(TICKS, TRADES, key="symbol", table="trades", table_rows="symbol STRING")
    minutes = tumbling_window(joined.rows, table="minutes", **MINUTE)
    counts = aggregate(minutes.final, key="symbol", aggregates=COUNT, table="counts")
    groups = aggregate_table(counts, key="trades", aggregates={"symbols": agg.count()}, table="groups")

    assert [one.tables[0].cuts for one in (joined, minutes, counts, groups)] == ["time"] * 4
    assert Append(name="minutes", of=minutes.final).cuts == "time"
    assert tumbling_window(TICKS, table="minutes", **MINUTE).tables[0].cuts == "any"
