"""What Debezium recorded of a real PostgreSQL becomes a table that equals ``SELECT *`` there."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from support.recorded_changes import WAYS, Recording, recorded, stored

from kappa import Source, Topology
from kappa.config import Config
from kappa.operators import cdc_table
from kappa.testing import Input, TopologyDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("small_slices")]

#: Columns whose values the connector writes in whole milliseconds, or as a number with fewer digits.
_CUSTOMER = """
    id BIGINT, name STRING NOT NULL, note STRING, balance DECIMAL(12,2), rate DECIMAL(38,3), born DATE, at {at},
    fine TIMESTAMP, seen TIMESTAMP, ok BOOLEAN, small SMALLINT, ratio DOUBLE, bin BINARY, tags ARRAY<STRING>,
    doc STRING, uid STRING, extra STRING
"""
_FORMS: dict[str, dict[str, Any]] = {
    "precise": {},
    "plain": {"timestamps": "epoch_us"},
    "string": {"timestamps": "epoch_ms", "decimals": "string"},
    "double": {},
}
#: The new row of a changed key comes without its large columns, and nothing in the record says whose they were.
_LOST = {50: {"note"}}


def sources(way: str) -> dict[str, Source]:
    # Without a schema beside it, a number has one unit in a source: milliseconds are then left as they are.
    customer = _CUSTOMER.format(at="BIGINT" if way == "plain" else "TIMESTAMP")
    schemas = {
        "customers": (customer, "id BIGINT"),
        "stock": ("n INT", "sku STRING, place INT"),
        "letters": ("body STRING, n INT", "id INT"),
    }
    return {
        name: Source(topic=f"shop.public.{name}", schema=schema, key_schema=key, envelope="debezium", **_FORMS[way])
        for name, (schema, key) in schemas.items()
    }


def replayed(spark: SparkSession, recording: Recording, way: str, *, slices: int) -> TopologyDriver:
    of = sources(way)
    tables = [
        cdc_table(source, key=[column.name for column in source.key_columns], table=name) for name, source in of.items()
    ]
    topology = Topology(name="test.recorded", version="1", sources=list(of.values()), operators=tables)
    driver = TopologyDriver(topology, spark)
    log = [
        Input(topic=str(one["topic"]), key=one["key"], value=one["value"], timestamp_ms=0) for one in recording.records
    ]
    ends = sorted(random.Random(way).sample(range(1, len(log)), slices - 1))
    for begin, end in pairwise([0, *ends, len(log)]):
        driver.pipe(log[begin:end])
    assert driver.dead_letters == []
    return driver


def assert_as_in_the_database(driver: TopologyDriver, recording: Recording, way: str) -> None:
    for name, source in sources(way).items():
        keys = [column.name for column in source.key_columns]
        rows = {tuple(row[key] for key in keys): row for row in driver.rows(name)}
        assert sorted(rows) == sorted(tuple(row[key] for key in keys) for row in recording.rows(name))
        for row in recording.rows(name):
            actual = rows[tuple(row[key] for key in keys)]
            lost = _LOST.get(row.get("id"), set()) if name == "customers" else set()
            for column, value in row.items():
                assert actual[column] == (None if column in lost else selected(column, value, way)), (name, row, column)


def selected(column: str, value: Any, way: str) -> Any:
    """A value of ``SELECT *`` as the table has it, by what the connector's settings leave of it."""
    if value is None:
        return None
    if column in ("at", "fine", "seen"):
        time = datetime.fromisoformat(value)
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        if column == "at" and way == "plain":
            return int(time.timestamp() * 1000)
        return time.replace(microsecond=time.microsecond // 1000 * 1000) if column == "fine" and is_short(way) else time
    if column in ("balance", "rate"):
        exact = Decimal(str(value))
        return Decimal(repr(float(exact))) if way == "double" else exact
    if column == "born":
        return date.fromisoformat(value)
    if column == "bin":
        return bytes.fromhex(value.removeprefix("\\x"))
    if column == "ratio":
        return float(value)
    return '{"a": 1}' if column == "doc" else value


def is_short(way: str) -> bool:
    return WAYS[way].get("time.precision.mode") == "connect"


@pytest.mark.parametrize("way", WAYS)
def test_the_table_equals_the_database(spark: SparkSession, way: str) -> None:
    recording = stored(way)

    driver = replayed(spark, recording, way, slices=3)

    assert_as_in_the_database(driver, recording, way)


@pytest.mark.parametrize("way", WAYS)
def test_the_table_of_a_running_database_equals_it(spark: SparkSession, way: str) -> None:
    recording = recorded(Config.from_env().cache, {way: WAYS[way]})[way]

    driver = replayed(spark, recording, way, slices=5)

    assert_as_in_the_database(driver, recording, way)
