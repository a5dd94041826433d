"""Streams joined with a table of changes, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from support.changes import LEFT, sent

from kappa import Append, Slice, Source, Topology
from kappa.errors import TopologyError
from kappa.operators import (
    agg,
    aggregate,
    cdc_table,
    interval_join,
    lookup,
    newest_by,
    newest_table_join,
    table_join,
    tumbling_window,
    versions_by,
)
from kappa.testing import Input, TopologyDriver
from kappa.topology.emission import Emission
from kappa.topology.operator import Operator
from kappa.wire.inputs import input_value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("small_slices")]

ROW, KEY = "name STRING, note STRING", "id BIGINT"
CHANGES = Source(
    topic="changes", schema=ROW, key_schema=KEY, envelope="debezium", time="_source_time", grace="1 second"
)
ORDERS = Source(topic="orders", schema="o INT, id BIGINT", grace="1 second")


def order(number: int, id: int, at: int) -> Input:
    return Input(topic="orders", value={"o": number, "id": id}, timestamp_ms=at)


def test_a_row_is_joined_with_the_version_of_its_time(spark: SparkSession) -> None:
    customers = cdc_table(CHANGES, key="id", table="customers")
    joined = table_join(ORDERS, customers.versions, key="id", tables=("waiting", "versions"))
    shared = versions_by(customers.versions, key="id", table="shared")
    alike = table_join(ORDERS, shared, key="id", tables="waiting_alike")
    topology = Topology(
        name="test.joined",
        version="1",
        sources=[CHANGES, ORDERS],
        operators=[customers, joined, shared, alike],
        outputs=[Append(name="joined", of=joined.rows), Append(name="alike", of=alike.rows)],
    )
    driver = TopologyDriver(topology, spark)
    driver.pipe([sent("c", {"id": 1}, {"name": "a", "note": "x"}, lsn=1, at=1_000), order(1, 1, 1_500)])
    driver.pipe([sent("u", {"id": 1}, {"name": "b", "note": LEFT}, lsn=2, at=2_000), order(2, 1, 2_500)])
    driver.pipe([sent("t", None, lsn=3, at=3_000), order(3, 1, 3_500)])
    driver.pipe([sent("c", {"id": 2}, {"name": "c"}, lsn=4, at=60_000), order(4, 2, 60_000)])

    rows = [(row["o"], row["name"], row["note"]) for row in driver.rows("joined")]
    assert sorted(rows) == [(1, "a", "x"), (2, "b", "x"), (3, None, None)]
    assert driver.rows("alike") == driver.rows("joined")
    assert driver.rows("shared") == driver.rows("versions") != []


PLAIN = Source(topic="plain", schema="id BIGINT, name STRING")
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a source without an envelope": (
        lambda: cdc_table(PLAIN, key="id", table="t"),
        r"cdc_table 't' reads source 'plain', whose records are rows.*envelope='debezium'",
    ),
    "two sources": (
        lambda: cdc_table([CHANGES, PLAIN], key="id", table="t"),  # type: ignore[call-overload]
        "Positions of two sources cannot be compared",
    ),
    "a key that the keys do not hold": (
        lambda: cdc_table(CHANGES, key="name", table="t"),
        r"key columns \['name'\] are not in the keys of source 'changes', which have \['id'\]",
    ),
    "versions of a history": (
        lambda: cdc_table(CHANGES, key="id", table="t", history=True).versions,
        "'t_truncated' is a history and emits no versions",
    ),
    "a column of a history": (
        lambda: cdc_table(
            Source(topic="t", schema="Valid_To DATE", key_schema=KEY, envelope="debezium"),
            key="id",
            table="t",
            history=True,
        ),
        r"columns \['Valid_To'\] of the source have names of history columns",
    ),
    "versions appended": (
        lambda: Append(name="rows", of=cdc_table(CHANGES, key="id", table="t").versions),
        "Output 'rows' is of the versions of cdc_table 't'.*history=True",
    ),
    "an unknown envelope": (
        lambda: Source(topic="t", schema=ROW, envelope="maxwell"),  # type: ignore[arg-type]
        "envelope 'maxwell' is not one of none, debezium",
    ),
    "unknown decimals": (
        lambda: Source(topic="t", schema=ROW, envelope="debezium", decimals="exact"),  # type: ignore[arg-type]
        "decimals 'exact' is not one of precise, string, double",
    ),
    "decimals without an envelope": (
        lambda: Source(topic="t", schema=ROW, decimals="string"),
        "has decimals='string' but no envelope",
    ),
    "text in an envelope": (
        lambda: Source(topic="t", format="string", envelope="debezium"),
        "envelope='debezium' needs JSON or Avro, but format is 'string'",
    ),
    "tombstones": (
        lambda: Source(topic="t", schema=ROW, key_schema=KEY, envelope="debezium", tombstones=True),
        "omit tombstones",
    ),
    "a number as key": (
        lambda: Source(topic="t", schema=ROW, key_schema=KEY, key_format="long", envelope="debezium"),
        "keys of envelope='debezium' are objects, but key_format is 'long'",
    ),
    "defaults": (
        lambda: Source(topic="t", schema=ROW, format="avro", envelope="debezium", defaults={"name": "x"}),
        "has envelope='debezium' and record or defaults",
    ),
    "a column of a change": (
        lambda: Source(topic="t", schema="_Position STRING", envelope="debezium"),
        "'_Position' is a name of Kappa's own columns",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_declarations_are_refused_where_they_are_written(case: str) -> None:
    declare, message = REFUSED[case]

    with pytest.raises(TopologyError, match=f"(?s){message}"):
        declare()


@pytest.mark.parametrize(
    "operator",
    [
        lambda: aggregate(CHANGES, key="id", aggregates={"n": agg.count()}, table="t"),
        lambda: newest_by(CHANGES, key="id", table="t"),
        lambda: newest_table_join(ORDERS, CHANGES, key="id", table="t"),
    ],
)
def test_changes_are_refused_where_rows_are_expected(spark: SparkSession, operator: Callable[[], Any]) -> None:
    with pytest.raises(TopologyError, match=r"the rows have _operation, so they are changes of a database"):
        topology = Topology(name="test.rows", version="1", sources=[CHANGES, ORDERS], operators=[operator()])
        TopologyDriver(topology, spark).pipe([sent("c", {"id": 1}, {"name": "a"}, lsn=1), order(1, 1, 1)])


LAMPS = Source(topic="lamps", schema="sku STRING", key_schema=KEY, tombstones=True, grace="1 second")
CUSTOMERS = cdc_table(CHANGES, key="id", table="customers")
DELETING: dict[str, Source | Emission] = {"_tombstone": LAMPS, "_operation": CHANGES, "_deleted": CUSTOMERS.versions}
JOINS: dict[str, Callable[[Any], Operator[Any]]] = {
    "interval_join": lambda of: interval_join(of, ORDERS, key="id", within="1 second", tables=("a", "b")),
    "interval_join, right": lambda of: interval_join(ORDERS, of, key="id", within="1 second", tables=("a", "b")),
    "table_join": lambda of: table_join(of, ORDERS, key="id", tables=("a", "b")),
    "newest_table_join": lambda of: newest_table_join(of, ORDERS, key="id", table="b"),
    "lookup": lambda of: lookup(of, ORDERS, key="id", table="b"),
    "aggregate": lambda of: aggregate(of, key="id", aggregates={"n": agg.count()}, table="b"),
    "tumbling_window": lambda of: tumbling_window(
        of, key="id", size="1 hour", aggregates={"n": agg.count()}, table="b"
    ),
}


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("column", DELETING)
def test_a_stream_of_deletions_is_refused_where_no_step_selects_its_rows(join: str, column: str) -> None:
    reading = JOINS[join](DELETING[column])
    sources, operators = [CHANGES, ORDERS, LAMPS], [CUSTOMERS, reading]
    selecting = Topology(name="test.steps", version="1", sources=sources, operators=operators, step=lambda slice: None)

    with pytest.raises(TopologyError, match=rf"^{reading.what}: the rows have {column}"):
        Topology(name="test.deletions", version="1", sources=sources, operators=operators)
    assert replace(selecting, version="2").operators == (CUSTOMERS, reading)


@pytest.mark.parametrize("join", JOINS)
def test_a_step_passes_the_rows_of_a_stream_that_delete_nothing(spark: SparkSession, join: str) -> None:
    reading = JOINS[join](LAMPS)

    def driven(selected: Callable[[DataFrame], DataFrame]) -> TopologyDriver:
        def step(slice: Slice) -> None:
            rows = selected(slice["lamps"])
            reading(slice, *((None, rows) if join.endswith("right") else (rows,)))

        topology = Topology(name="test.rows", version="1", sources=[LAMPS, ORDERS], operators=[reading], step=step)
        driver = TopologyDriver(topology, spark)
        driver.pipe(
            [
                Input(topic="lamps", key="1", value={"sku": "lamp"}, timestamp_ms=1_000),
                Input(topic="lamps", key="1", value=None, timestamp_ms=1_500),
            ]
        )
        return driver

    driver = driven(lambda rows: rows.where("NOT _tombstone").drop("_tombstone"))
    state = [row for table in reading.tables for row in driver.rows(table.name)]
    assert len(state) == (0 if reading.name in ("newest_table_join", "lookup") else 1)
    with pytest.raises(TopologyError, match=rf"^{reading.what}: the rows have _tombstone"):
        driven(lambda rows: rows)


def test_a_row_is_not_written_as_a_change_in_avro() -> None:
    source = Source(topic="changes", schema=ROW, key_schema=KEY, envelope="debezium", format="avro")

    with pytest.raises(TopologyError, match="a mapping has only the row"):
        input_value(source, {"id": 1, "name": "a"})
