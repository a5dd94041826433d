"""What the declaration of a bound operator can know is refused there."""

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
    given = {"name": "test.bound", "version": "1", "sources": [TICKS], **members}
    return Topology(**given)  # type: ignore[arg-type]


def test_tables_late_records_and_outputs_follow_from_operators() -> None:
    minutes = tumbling_window(TICKS, table="minutes", **MINUTE)
    found = topology(
        operators=[minutes],
        outputs=[Append(name="stats", of=minutes.final), Topic(name="stats-out", of="stats", key="symbol")],
    )

    assert [table.name for table in found.tables] == ["minutes"]
    assert [append.name for append in found.appends] == ["stats", "late_records"]
    assert [column.name for column in found.appends[0].columns] == ["symbol", "window_start", "window_end", "trades"]


def test_an_operator_needs_what_it_reads_and_a_table() -> None:
    with pytest.raises(TopologyError, match=r"tumbling_window: missing a required argument: 'of'.*table='windows'"):
        tumbling_window(rows=TICK, **MINUTE)  # type: ignore[call-arg]
    with pytest.raises(TopologyError, match="interval_join: missing a required argument: 'tables'"):
        interval_join(left=TICK, right=TICK, key="symbol", within="1 minute")  # type: ignore[call-arg]
    with pytest.raises(TopologyError, match=r"is declared with str 'ticks'. Declare it with a source"):
        tumbling_window("ticks", table="minutes", **MINUTE)  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match="reads tables and is declared with Source"):
        aggregate_table(TICKS, key="symbol", aggregates=COUNT, table="counts")  # type: ignore[arg-type]


def test_event_time_is_asked_for_where_an_operator_needs_it() -> None:
    untimed = Source(topic="ticks", schema=TICK)

    with pytest.raises(TopologyError, match=r"tumbling_window 'minutes' needs event time, and source 'ticks' has none"):
        tumbling_window(untimed, table="minutes", **MINUTE)
    with pytest.raises(TopologyError, match="grace='10 seconds'"):
        interval_join(TICKS, untimed, key="symbol", within="1 minute", tables=("l", "r"))


def test_a_source_is_the_one_that_the_topology_lists() -> None:
    minutes = tumbling_window(TICKS, table="minutes", **MINUTE)
    slower = Source(topic="ticks", schema=TICK, time="at", grace="1 hour")

    with pytest.raises(TopologyError, match="tumbling_window 'minutes' reads source 'ticks', which is not among"):
        topology(sources=[TRADES], operators=[minutes])
    with pytest.raises(TopologyError, match=r"as declared there. List the same Source"):
        topology(sources=[slower], operators=[minutes])


def test_an_operator_whose_rows_are_used_is_listed() -> None:
    minutes = tumbling_window(TICKS, table="minutes", **MINUTE)
    hours = tumbling_window(minutes.final, key="symbol", size="1 hour", aggregates=COUNT, table="hours")

    with pytest.raises(TopologyError, match="reads what tumbling_window 'minutes' emits, which is not among"):
        topology(operators=[hours])
    with pytest.raises(TopologyError, match="output 'stats' is of what tumbling_window 'minutes' emits"):
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


def test_a_table_that_an_operator_reads_is_of_the_topology() -> None:
    newest = newest_by(TICKS, key="symbol", table="newest")
    counts = aggregate_table(newest, key="price", aggregates=COUNT, table="counts")

    with pytest.raises(TopologyError, match="aggregate_table 'counts' reads table 'newest', which is not among"):
        topology(operators=[counts])
    assert [table.name for table in topology(operators=[newest, counts]).tables] == ["newest", "counts"]


def test_a_topology_without_a_step_has_operators() -> None:
    with pytest.raises(TopologyError, match="has neither a step nor operators"):
        topology(outputs=[Append(name="rows", schema="id STRING")])
    with pytest.raises(TopologyError, match="lists str 'minutes' among its operators"):
        topology(operators=["minutes"])


def test_sources_of_several_columns_need_to_be_told_apart() -> None:
    other = Source(topic="trades", schema="symbol STRING, at BIGINT", time="at", grace="10 seconds")

    with pytest.raises(TopologyError, match=r"source 'ticks' and source 'trades', whose columns differ. Say what rows"):
        tumbling_window([TICKS, other], table="minutes", **MINUTE)
    assert tumbling_window([TICKS, TRADES], table="minutes", **MINUTE).inputs[0].topics == ("ticks", "trades")


def test_rows_are_asked_for_where_the_step_makes_a_column() -> None:
    chosen = aggregate(TICKS, key="symbol", aggregates=COUNT, table="counts", rows="symbol STRING")
    made = aggregate(TICKS, key="name", aggregates=COUNT, table="counts", rows="name STRING")

    assert not chosen.inputs[0].is_shaped
    assert made.inputs[0].is_shaped


def test_the_event_time_of_rows_is_as_far_behind_as_their_operators_leave_it() -> None:
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


def test_the_author_says_what_is_masked_in_the_table_of_an_operator_and_on_which_cuts_it_depends() -> None:
    newest = newest_by(TICKS, key="symbol", table="newest")
    (own,) = newest.tables
    found = topology(operators=[newest], tables=[replace(own, masked=("price",), cuts="time")])

    assert [(table.name, table.masked, table.cuts) for table in found.tables] == [("newest", ("price",), "time")]
    assert replace(found, version="2").tables == found.tables
    with pytest.raises(TopologyError, match=r"declares table or output \['newest'\] more than once"):
        topology(operators=[newest], tables=[Table(name="newest", key="symbol", schema="symbol STRING NOT NULL")])


def test_a_topic_of_an_operators_table_has_the_columns_of_its_result_or_those_that_are_named() -> None:
    prices = {"average": agg.avg("price"), "last": agg.last("price")}
    by_symbol = aggregate(TICKS, key="symbol", aggregates=prices, table="prices")
    whole = Topic(name="prices", of="prices", key="symbol")
    found = topology(operators=[by_symbol], outputs=[whole])

    assert "average__sum" in [column.name for column in by_symbol.tables[0].columns]
    assert [column.name for column in found.sent_columns(whole)] == ["symbol", "average", "last"]
    assert [column.name for column in found.sent_columns(replace(whole, columns="last"))] == ["last"]
    with pytest.raises(TopologyError, match=r"topic 'prices' sends \['first'\], which are not columns of 'prices'"):
        topology(operators=[by_symbol], outputs=[replace(whole, columns=["first"])])


def test_what_comes_of_rows_that_depend_on_cuts_depends_on_them_too() -> None:
    joined = newest_table_join(TICKS, TRADES, key="symbol", table="trades", table_rows="symbol STRING")
    minutes = tumbling_window(joined.rows, table="minutes", **MINUTE)
    counts = aggregate(minutes.final, key="symbol", aggregates=COUNT, table="counts")
    groups = aggregate_table(counts, key="trades", aggregates={"symbols": agg.count()}, table="groups")

    assert [one.tables[0].cuts for one in (joined, minutes, counts, groups)] == ["time"] * 4
    assert Append(name="minutes", of=minutes.final).cuts == "time"
    assert tumbling_window(TICKS, table="minutes", **MINUTE).tables[0].cuts == "any"
