"""Several joins with one table of versions: each gives what it gives alone, and the table is kept once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from support.oracle_joins import Event
from support.shared_versions import GRACE, ROW, compare

from kappa import Append, Effects, Slice, Source, Table, Topic, Topology
from kappa.errors import TopologyError
from kappa.operators import foreign_key_join, newest_by, newest_table_join, table_join, tumbling_window, versions_by
from kappa.operators.agg import count
from kappa.slices.rows import effects
from kappa.testing import TopologyDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa.topology.operator import Operator

ORDERS, RETURNS, PRODUCTS = (
    Source(topic=topic, schema=ROW, time="at", grace="0 seconds") for topic in ("orders", "returns", "products")
)
STREAMS = (ORDERS, RETURNS)
UNTIMED = Source(topic="orders", schema=ROW)


def versions(**parts: Any) -> Any:
    return versions_by(**{"of": PRODUCTS, "key": "id", "table": "versions", **parts})


def join(of: Any, stream: Source = ORDERS, **parts: Any) -> Any:
    return table_join(stream, of, **{"key": "id", "tables": f"waiting_{stream.topic}", **parts})


def topology(*operators: Operator[Any], **parts: Any) -> Topology:
    outputs = [
        Append(name=f"rows_{number}", of=operator.emits)
        for number, operator in enumerate(operators)
        if operator.emits is not None
    ]
    declared: dict[str, Any] = {"sources": [*STREAMS, PRODUCTS], "operators": operators, "outputs": outputs, **parts}
    return Topology(name="inventory.versions", version="1", **declared)


@pytest.mark.spark
@pytest.mark.usefixtures("small_slices")
def test_joins_that_share_versions_match_the_definition(spark: SparkSession) -> None:
    assert compare(spark, 4, records=24, slices=2, idle="returns") > 0


@pytest.mark.spark
@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize(("seed", "idle"), [(5, ""), (4, ""), (3, "returns"), (1, "products")])
def test_more_joins_that_share_versions_match_the_definition(spark: SparkSession, seed: int, idle: str) -> None:
    # Without products nothing is emitted, and nothing forgotten.
    assert compare(spark, seed, records=40, slices=6, idle=idle) > 0 or idle == "products"


@pytest.mark.soak
@pytest.mark.spark
@pytest.mark.usefixtures("small_slices")
@pytest.mark.parametrize("seed", range(20, 40))
def test_random_joins_that_share_versions_match_the_definition(spark: SparkSession, seed: int) -> None:
    compare(spark, seed, records=60, slices=12, idle=[*GRACE, ""][seed % 4])


@pytest.mark.spark
@pytest.mark.usefixtures("small_slices")
def test_versions_are_kept_once_until_the_slowest_join_has_passed_them(spark: SparkSession) -> None:
    shared = versions()
    joins = [join(shared, stream) for stream in STREAMS]
    own = [join(PRODUCTS, stream, tables=(f"own_{stream.topic}", f"of_{stream.topic}")) for stream in STREAMS]
    driver = TopologyDriver(topology(shared, *joins, *own), spark)

    def event(topic: str, at: int, value: int, id: str = "a") -> Event:
        return Event(topic=topic, id=id, value=value, at=at, sent=at)

    def run(*events: Event) -> None:
        driver.pipe(one.input for one in events)

    def values(*tables: str) -> list[list[int]]:
        return [sorted(row["value"] for row in driver.rows(table)) for table in tables]

    def rows(number: int) -> list[tuple[int, int | None]]:
        return sorted((row["value"], row["value_right"]) for row in driver.rows(f"rows_{number}"))

    first = [event("products", 0, 10), event("products", 10_000, 20), event("products", 30_000, 99, "b")]
    run(*first, event("orders", 15_000, 1), event("orders", 20_000, 2))
    # Nobody has returned anything yet: that holds the versions, and no order.
    assert values("versions", "of_orders", "of_returns") == [[10, 20, 99], [20, 99], [10, 20, 99]]
    assert rows(1) == rows(3) == [(1, 20)]

    run(event("returns", 1_000, 3, "b"), event("returns", 5_000, 4), event("returns", 6_000, 5))
    # Orders are at 20,000. Of returns, which are at 6,000, the one of 5,000 finds the first version.
    assert rows(2) == rows(4) == [(3, None), (4, 10)]
    assert values("versions", "of_orders", "of_returns") == [[10, 20, 99], [20, 99], [10, 20, 99]]

    run(event("returns", 40_000, 6), event("orders", 40_000, 7), event("products", 50_000, 30))
    assert values("versions", "of_orders", "of_returns") == [[20, 30, 99]] * 3
    assert rows(2) == rows(4) == [(3, None), (4, 10), (5, 10)]


@pytest.mark.spark
def test_versions_are_computed_once_for_a_slice_of_several_jobs(spark: SparkSession) -> None:
    shared, slices = versions(), list[Slice]()
    joins = [join(shared, stream) for stream in STREAMS]

    def step(slice: Slice) -> Effects:
        slices.append(slice)
        for operator in (shared, *joins):
            operator(slice)
        return {}

    TopologyDriver(topology(shared, *joins, step=step), spark).pipe([])
    (calls,) = (slice.calls for slice in slices)

    assert effects.shared([*calls.changes.values(), *calls.emitted.values(), *calls.shared]) == calls.shared
    assert calls.shared == [calls.results[shared].versions]


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "no event time": (lambda: versions(of=UNTIMED), "versions_by 'versions' needs event time, and source 'orders' has"),
    "a key that is not there": (lambda: versions(key="ids"), "the input of versions_by has no column 'ids'. Did you"),
    "no key": (lambda: versions(key=[]), r"the input of versions_by has key \[\]. Name at least one column"),
    "a column twice": (lambda: versions(key=["id", "id"]), r"has key \['id', 'id'\]"),
    "a name of the platform's": (
        lambda: versions(rows="id STRING, _until STRING"),
        r"the input of versions_by has columns \['_until'\]",
    ),
    "two tables": (
        lambda: join(versions(), tables=("waiting", "versions")),
        "table_join 'waiting' and 'versions' reads the versions of versions_by 'versions' and names 2 tables.*"
        "tables='waiting_orders'",
    ),
    "one table": (
        lambda: join(PRODUCTS, tables="waiting"),
        r"table_join 'waiting' names 1 tables but keeps two.*versions_by\(\.\.\.\)",
    ),
    "no table": (lambda: join(PRODUCTS, tables=()), "names 0 tables but keeps two"),
    "rows of versions": (
        lambda: join(versions(), version_rows=ROW),
        "table_join 'waiting_orders' reads the versions of versions_by 'versions' and gives version_rows='id STRING",
    ),
    "a part of the key": (
        lambda: join(versions(key=["id", "value"])),
        r"compares columns \['id'\] of versions_by 'versions', which keeps versions by \['id', 'value'\]",
    ),
    "more than the key": (
        lambda: join(versions(), key=["id", "value"]),
        r"compares columns \['id', 'value'\] of versions_by 'versions', which keeps versions by \['id'\]",
    ),
    "a key of another type": (
        lambda: join(versions(), key={"value": "id"}),
        "table_join compares 'value', which is INT, with 'id', which is STRING",
    ),
    "a column twice in the rows": (
        lambda: join(versions(), left_rows="id STRING, value INT, value_right INT"),
        r"would have \['value_right'\] twice",
    ),
    "an outer join": (lambda: join(versions(), how="outer"), "how='outer' is not one of inner, left"),
    "the newest row of versions": (
        lambda: newest_table_join(ORDERS, versions(), key="id", table="newest"),
        "newest_table_join 'newest' is declared with versions_by 'versions'",
    ),
    "a join of tables": (
        lambda: foreign_key_join(
            newest_by(ORDERS, key="id", table="t"), versions(), foreign_key="value", how="left", table="j"
        ),
        "foreign_key_join 'j' reads tables and is declared with versions_by 'versions'",
    ),
    "an argument that it has not": (
        lambda: versions(tables="t"),
        r"versions_by: got an unexpected keyword argument 'tables'.*versions_by\(products, key='sku', table='prices'\)",
    ),
    "no join": (
        lambda: topology(versions(), join(PRODUCTS, tables=("waiting", "own"))),
        "versions_by 'versions' keeps versions that no operator of the topology reads. List a join with them",
    ),
    "versions that are not listed": (
        lambda: topology(join(versions())),
        "table_join 'waiting_orders' reads the versions of versions_by 'versions', which is not among its operators",
    ),
    "one table of two joins": (
        lambda: topology(shared := versions(), join(shared), join(shared, RETURNS, tables="waiting_orders")),
        r"declares table or output \['waiting_orders'\] more than once",
    ),
    "a topic of versions": (
        lambda: topology(shared := versions(), join(shared), outputs=[Topic(name="versions", of="versions", key="id")]),
        "topic 'versions' is of 'versions', the state of versions_by, whose rows are removed when their time is over",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_declarations_are_refused_where_they_are_written(case: str) -> None:
    declare, message = REFUSED[case]

    with pytest.raises(TopologyError, match=f"(?s){message}"):
        declare()


@pytest.mark.spark
@pytest.mark.parametrize(
    ("calls", "message"),
    [
        (
            lambda shared, joined, slice: joined(slice),
            "table_join 'waiting_orders' reads the versions of versions_by 'versions', which has not been called yet",
        ),
        (
            lambda shared, joined, slice: (shared(slice), joined(slice, None, slice["products"])),
            r"was passed rows of the table that versions_by 'versions' keeps.*versions_by\(slice, rows\)",
        ),
        (lambda shared, joined, slice: shared(slice), "did not call table_join 'waiting_orders'"),
        (lambda shared, joined, slice: (shared(slice), shared(slice)), "versions_by 'versions' is called twice"),
    ],
)
def test_an_invalid_step_is_refused(spark: SparkSession, calls: Callable[[Any, Any, Slice], Any], message: str) -> None:
    shared = versions()
    joined = join(shared)

    def step(slice: Slice) -> Effects:
        calls(shared, joined, slice)
        return {}

    driver = TopologyDriver(topology(shared, joined, step=step), spark)
    with pytest.raises(TopologyError, match=f"(?s){message}"):
        driver.pipe([])


def made_by(declared: Topology) -> str:
    return declared.table("versions").made_by


def test_the_table_names_the_joins_it_is_kept_for() -> None:
    shared = versions()
    orders, returns = (join(shared, stream) for stream in STREAMS)
    counts = tumbling_window(ORDERS, key="id", size="1 hour", aggregates={"n": count()}, table="open")
    counted = table_join(counts.final, shared, key="id", tables="waiting_counts")
    chained = table_join(
        orders.rows, shared, key="id", tables="waiting_again", left_rows="id STRING, value INT, at BIGINT"
    )

    assert made_by(topology(shared, orders)) == "versions_by(key=(id)) for waiting_orders of orders"
    declared = topology(shared, chained, orders, counts, counted, returns)
    assert made_by(declared) == (
        "versions_by(key=(id)) for waiting_again of orders+products, waiting_counts of orders, waiting_orders of "
        "orders, waiting_returns of returns"
    )
    # The operator knows nothing of it: it may be listed in several topologies.
    assert shared.tables[0].made_by == "versions_by(key=(id))"
    assert declared.table("versions").key == ("id", "_topic", "_partition", "_offset", "_row")


def test_a_copy_of_a_topology_keeps_versions_for_its_own_joins() -> None:
    shared = versions()
    orders, returns = (join(shared, stream) for stream in STREAMS)
    masked = replace(shared.tables[0], masked="value")
    both = topology(shared, orders, returns, tables=[masked, Table(name="own", key="id", schema="id STRING NOT NULL")])

    assert both.table("versions").masked == ("value",)
    assert [table.name for table in both.tables] == ["versions", "waiting_orders", "waiting_returns", "own"]
    assert replace(both, version="2").tables == both.tables
    fewer = replace(
        both,
        operators=[shared, orders],
        outputs=both.outputs[:1],
        tables=[t for t in both.tables if t.name != "waiting_returns"],
    )
    assert made_by(fewer) == "versions_by(key=(id)) for waiting_orders of orders"
    assert fewer.table("versions").masked == ("value",)


def test_rows_that_depend_on_cuts_make_versions_that_depend_on_cuts() -> None:
    newest = newest_table_join(PRODUCTS, RETURNS, key="id", table="newest", table_rows="id STRING")
    shared = versions(of=newest.rows)
    joined = join(shared)

    assert [table.cuts for table in topology(newest, shared, joined).tables] == ["time"] * 3
    assert joined.rows.cuts == "time"
