"""Streams joined with a table of changes, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from support.changes import LEFT, sent

from kappa import Append, Source, Topology
from kappa.errors import TopologyError
from kappa.operators import agg, aggregate, cdc_table, newest_by, newest_table_join, table_join, versions_by
from kappa.testing import Input, TopologyDriver
from kappa.wire.inputs import input_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    topology = Topology(name="test.rows", version="1", sources=[CHANGES, ORDERS], operators=[operator()])

    with pytest.raises(TopologyError, match=r"the rows have _operation, so they are changes of a database"):
        TopologyDriver(topology, spark).pipe([sent("c", {"id": 1}, {"name": "a"}, lsn=1), order(1, 1, 1)])


def test_a_row_is_not_written_as_a_change_in_avro() -> None:
    source = Source(topic="changes", schema=ROW, key_schema=KEY, envelope="debezium", format="avro")

    with pytest.raises(TopologyError, match="a mapping has only the row"):
        input_value(source, {"id": 1, "name": "a"})
