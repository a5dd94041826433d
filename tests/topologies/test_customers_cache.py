"""`customers.cache` on change events as Debezium writes them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from support.topologies import first_version, shipped

from kappa.testing import Input, TopologyDriver, assert_slice_invariant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CACHE = shipped("customers.cache")


def customer(id: int, email: str) -> dict[str, Any]:
    return {"id": id, "first_name": "Anne", "last_name": "Kretchmar", "email": email}


def change(op: str, id: int, email: str = "a@example.com", at: int = 0, partition: int = 0) -> Input:
    """An event of a customer; ``op`` may also be ``null``, for the null value that follows a deletion."""
    row = None if op == "d" else customer(id, email)
    envelope = {"before": customer(id, "old") if op in "ud" else None, "after": row, "op": op, "ts_ms": at}
    value = None if op == "null" else {**envelope, "source": {"table": "customers"}}
    return Input(topic="customers", key=b'{"id":%d}' % id, value=value, partition=partition, timestamp_ms=at)


def changed(id: int, email: str) -> dict[str, Any]:
    return {"before": None, "after": customer(id, email), "op": "u", "source": {"table": "customers"}}


def emails(driver: TopologyDriver) -> dict[int, str]:
    return {row["id"]: row["email"] for row in driver.rows("cache")}


def test_the_table_follows_creations_changes_and_deletions(spark: SparkSession) -> None:
    driver = TopologyDriver(CACHE, spark)

    driver.pipe([change("r", 1), change("c", 2), change("c", 3), change("u", 2, "new@example.com")])
    assert driver.rows("cache")[0] == customer(1, "a@example.com")
    driver.pipe([change("d", 1), change("null", 1), change("u", 3, "three@example.com")])

    assert emails(driver) == {2: "new@example.com", 3: "three@example.com"}


def test_a_null_value_after_a_deletion_changes_nothing(spark: SparkSession) -> None:
    driver = TopologyDriver(CACHE, spark)

    driver.pipe([change("c", 1), change("c", 2), change("d", 1), change("null", 1)])
    assert emails(driver) == {2: "a@example.com"}
    driver.pipe([change("null", 2)])
    driver.pipe([change("c", 1, "again@example.com"), Input(topic="customers", key=b"no JSON", value=None)])

    assert emails(driver) == {1: "again@example.com", 2: "a@example.com"}


def test_a_record_without_a_customer_is_a_dead_letter_and_the_table_stays(spark: SparkSession) -> None:
    driver = TopologyDriver(CACHE, spark)
    driver.pipe([change("c", 1), change("c", 2)])

    driver.pipe(
        [
            Input(topic="customers", key=b"{}", value=changed(1, "b")),
            Input(topic="customers", key=b'{"id":1}', value={"after": customer(1, "b")}),
            Input(topic="customers", key=b'{"id":1}', value={"op": "u"}),
        ]
    )

    assert emails(driver) == {1: "a@example.com", 2: "a@example.com"}
    assert [row["_offset"] for row in driver.dead_letters] == [2, 3, 4]


def test_records_with_and_without_a_schema_part_are_read_alike(spark: SparkSession) -> None:
    def whole(payload: Any) -> dict[str, Any]:
        return {"schema": {"type": "struct", "fields": []}, "payload": payload}

    one, two = (json.dumps(whole({"id": id})).encode() for id in (1, 2))
    driver = TopologyDriver(CACHE, spark)
    driver.pipe([change("c", 1), change("c", 2)])

    driver.pipe(
        [
            Input(topic="customers", key=b'{"id":1}', value=whole(changed(1, "b"))),
            Input(topic="customers", key=two, value=whole(changed(2, "c"))),
        ]
    )
    assert emails(driver) == {1: "b", 2: "c"}
    deletion = {"before": None, "after": None, "op": "d", "source": {"table": "customers"}}
    driver.pipe(
        [Input(topic="customers", key=one, value=whole(deletion)), Input(topic="customers", key=one, value=None)]
    )
    assert (emails(driver), driver.dead_letters) == ({2: "c"}, [])


def test_a_truncate_removes_all_older_customers(spark: SparkSession) -> None:
    truncate = {"before": None, "after": None, "op": "t", "ts_ms": 9, "source": {"table": "customers"}}
    driver = TopologyDriver(CACHE, spark)
    driver.pipe([change("c", 1, at=1), change("c", 2, at=2)])

    driver.pipe([Input(topic="customers", value=truncate, timestamp_ms=3), change("c", 3, at=4)])

    assert emails(driver) == {3: "a@example.com"}


def test_a_repeated_change_does_not_restore_an_old_row(spark: SparkSession) -> None:
    def at(position: int, id: int, email: str) -> Input:
        source = {"connector": "mysql", "file": "mysql-bin.000003", "pos": position, "table": "customers"}
        value = {**changed(id, email), "source": source}
        return Input(topic="customers", key=b'{"id":%d}' % id, value=value, timestamp_ms=position)

    driver = TopologyDriver(CACHE, spark)
    driver.pipe([at(10, 1, "old"), at(20, 1, "new"), at(15, 2, "two")])
    driver.pipe([at(10, 1, "old")])
    assert emails(driver) == {1: "new", 2: "two"}


def test_version_1_keeps_deleted_customers(spark: SparkSession) -> None:
    driver = TopologyDriver(first_version("customers.cache"), spark)

    driver.pipe([change("c", 1), change("d", 1), change("null", 1)])

    assert emails(driver) == {1: "a@example.com"}


def test_no_cut_changes_a_customer(spark: SparkSession) -> None:
    sent = [change("c", 1, at=1), change("u", 1, "b", at=5), change("d", 1, at=6), change("null", 1, at=6)]
    others = [change("r", 2, at=2, partition=1), change("u", 2, "c", at=4, partition=1)]

    assert_slice_invariant(CACHE, [*sent, *others], spark, cuts=1, by_arrival=True)
