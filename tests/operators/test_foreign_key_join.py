"""Tables joined with tables: how updates and deletions on either side change the result."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from kappa import Effects, Slice, Source, Table, Topic, Topology
from kappa.errors import TopologyError
from kappa.operators import foreign_key_join, newest, table_table_join
from kappa.testing import Input, TopologyDriver

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("small_slices")]

ORDER = "id STRING, customer STRING, amount INT"
CUSTOMER = "id STRING, name STRING"
TABLES = [
    Table(name=name, key=["id"], schema=schema.replace("id STRING", "id STRING NOT NULL", 1))
    for name, schema in {"orders": ORDER, "customers": CUSTOMER}.items()
]
FOREIGN = {
    f"fk_{how}": foreign_key_join(*TABLES, foreign_key={"customer": "id"}, how=how, table=f"fk_{how}")  # type: ignore[arg-type]
    for how in ("inner", "left")
}
BY_KEY = {
    f"key_{how}": table_table_join(*TABLES, key="id", how=how, table=f"key_{how}")  # type: ignore[arg-type]
    for how in ("inner", "left", "outer")
}
JOINS = {**FOREIGN, **BY_KEY}


def joining(*names: str) -> Topology:
    """Orders and customers as tables, joined in these ways."""

    def step(slice: Slice) -> Effects:
        orders = newest(slice["orders"], key="id")
        customers = newest(slice["customers"], key="id")
        for name in names:
            JOINS[name](slice, orders, customers)
        return {"orders": orders, "customers": customers}

    return Topology(
        name="shop.joined",
        version="1",
        sources=[
            Source(topic=topic, schema=schema, key_schema="id STRING", tombstones=True)
            for topic, schema in {"orders": ORDER, "customers": CUSTOMER}.items()
        ],
        operators=[JOINS[name] for name in names],
        tables=TABLES,
        outputs=[Topic(name=f"{name}-changes", of=name, key="id") for name in names],
        step=step,
    )


def order(id: str, customer: str | None, amount: int) -> Input:
    return Input(topic="orders", value={"id": id, "customer": customer, "amount": amount}, key=id.encode())


def customer(id: str, name: str) -> Input:
    return Input(topic="customers", value={"id": id, "name": name}, key=id.encode())


def deletion(topic: str, id: str) -> Input:
    return Input(topic=topic, value=None, key=id.encode())


def rows(driver: TopologyDriver, name: str) -> dict[str, tuple[Any, ...]]:
    return {row["id"]: (row["customer"], row["amount"], row["name"]) for row in driver.rows(name)}


def test_an_update_of_the_right_table_changes_all_rows_that_refer_to_it(spark: SparkSession) -> None:
    driver = TopologyDriver(joining(*FOREIGN), spark)

    driver.pipe([order("1", "ada", 5), order("2", "ada", 6), order("3", "bob", 7), customer("ada", "Ada")])
    driver.pipe([customer("ada", "Ada L.")])

    assert rows(driver, "fk_inner") == {"1": ("ada", 5, "Ada L."), "2": ("ada", 6, "Ada L.")}
    assert rows(driver, "fk_left") == {**rows(driver, "fk_inner"), "3": ("bob", 7, None)}


def test_a_row_with_a_changed_foreign_key_is_joined_again(spark: SparkSession) -> None:
    driver = TopologyDriver(joining(*FOREIGN), spark)

    driver.pipe([order("1", "ada", 5), customer("ada", "Ada"), customer("bob", "Bob")])
    driver.pipe([order("1", "bob", 5), customer("ada", "Ada L.")])
    moved = rows(driver, "fk_inner")
    driver.pipe([order("1", None, 5)])

    assert moved == {"1": ("bob", 5, "Bob")}
    assert rows(driver, "fk_inner") == {}
    assert rows(driver, "fk_left") == {"1": (None, 5, None)}


def test_a_deletion_on_either_side_removes_the_row(spark: SparkSession) -> None:
    driver = TopologyDriver(joining(*FOREIGN), spark)

    driver.pipe([order("1", "ada", 5), order("2", "bob", 6), customer("ada", "Ada"), customer("bob", "Bob")])
    driver.pipe(
        [deletion("customers", "ada"), deletion("orders", "2"), deletion("orders", "9"), deletion("customers", "zoe")]
    )

    assert rows(driver, "fk_inner") == {}
    assert rows(driver, "fk_left") == {"1": ("ada", 5, None)}
    # What was never there is not deleted.
    assert sorted(key for key, value in driver.sent("fk_inner-changes") if value is None) == [b"1", b"2"]
    assert [key for key, value in driver.sent("fk_left-changes") if value is None] == [b"2"]


def test_only_the_key_of_a_deleted_row_counts(spark: SparkSession) -> None:
    orders, customers = ORDER, f"{CUSTOMER}, _deleted BOOLEAN"
    before = spark.createDataFrame([("1", "ada", 5)], orders)
    results = spark.createDataFrame([("1", "ada", 5, "Ada")], f"{ORDER}, name STRING")

    tables = {"orders": before, "customers": spark.createDataFrame([("ada", "Ada")], CUSTOMER), "fk_left": results}
    result = FOREIGN["fk_left"](
        Slice(seq=1, records={}, tables=tables),
        before.limit(0),
        spark.createDataFrame([("ada", "Ada", True)], customers),
    )

    assert [tuple(row) for row in result.changes.collect()] == [("1", "ada", 5, None, False)]


def test_tables_join_by_their_key(spark: SparkSession) -> None:
    driver = TopologyDriver(joining(*BY_KEY), spark)

    driver.pipe([order("1", None, 5), order("2", None, 6), customer("2", "Two"), customer("3", "Three")])
    first = {how: rows(driver, f"key_{how}") for how in ("inner", "left", "outer")}
    driver.pipe([deletion("orders", "2"), deletion("customers", "3"), deletion("customers", "9")])

    assert first == {
        "inner": {"2": (None, 6, "Two")},
        "left": {"1": (None, 5, None), "2": (None, 6, "Two")},
        "outer": {"1": (None, 5, None), "2": (None, 6, "Two"), "3": (None, None, "Three")},
    }
    assert rows(driver, "key_inner") == {}
    assert rows(driver, "key_left") == {"1": (None, 5, None)}
    assert rows(driver, "key_outer") == {"1": (None, 5, None), "2": (None, None, "Two")}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"left_rows": ORDER.replace("id STRING, ", "", 1)}, "no column 'id'. Did you mean 'customer'"),
        ({"left_rows": f"{ORDER}, lines INT"}, "reads column 'lines' as INT of table 'orders', which does not have it"),
        ({"right_rows": "id STRING, name INT"}, "column 'name' as INT of table 'customers', where it is STRING"),
        ({"foreign_key": {"customer": "ids"}}, "Did you mean 'id'"),
        ({"how": "outer"}, "inner, left"),
        ({"foreign_key": {"amount": "id"}}, "Cast one"),
    ],
)
def test_an_invalid_declaration_is_refused(words: dict[str, Any], message: str) -> None:
    arguments = {"foreign_key": {"customer": "id"}, "table": "joined", **words}

    with pytest.raises(TopologyError, match=message):
        foreign_key_join(*TABLES, **arguments)


@pytest.mark.parametrize("which", ["foreign_key_join", "table_table_join left", "table_table_join right"])
def test_a_part_of_a_tables_key_is_not_compared(which: str) -> None:
    lines = Table(name="lines", key=["id", "line"], schema="id STRING NOT NULL, line INT NOT NULL, sku STRING")
    tables = (lines, TABLES[1]) if which.endswith("left") else (TABLES[1], lines)

    with pytest.raises(TopologyError, match=r"compares \['id'\] of table 'lines', whose key is \['id', 'line'\]"):
        if which == "foreign_key_join":
            foreign_key_join(*tables, foreign_key="id", table="joined")
        else:
            table_table_join(*tables, key="id", table="joined")


def test_the_result_keeps_a_nullable_foreign_key() -> None:
    assert FOREIGN["fk_left"].schema == "`id` STRING NOT NULL, `customer` STRING, `amount` INT, `name` STRING"


def expected(name: str, orders: Mapping[str, Any], customers: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """The join of two tables, by its definition."""
    kind, how = name.split("_")
    if kind == "fk":
        return {
            id: (who, amount, customers.get(who))
            for id, (who, amount) in orders.items()
            if how == "left" or who in customers
        }
    keys = {
        "inner": orders.keys() & customers.keys(),
        "left": orders.keys(),
        "outer": orders.keys() | customers.keys(),
    }[how]
    return {id: (*orders.get(id, (None, None)), customers.get(id)) for id in keys}


def history(chance: random.Random, slices: int) -> list[list[Input]]:
    """Slices of updates and deletions; keys of both tables overlap."""
    keys, batches = ["1", "2", "3", "4"], []
    for _ in range(slices):
        batch = []
        for _ in range(chance.randint(0, 6)):
            id = chance.choice(keys)
            batch.append(
                chance.choice(
                    [
                        order(id, chance.choice([*keys, None]), chance.randint(0, 9)),
                        order(id, chance.choice(keys), chance.randint(0, 9)),
                        customer(id, chance.choice("xyz")),
                        deletion("orders", id),
                        deletion("customers", id),
                    ]
                )
            )
        batches.append(batch)
    return batches


def check_against_definition(session: SparkSession, seed: int, *names: str, slices: int) -> None:
    driver = TopologyDriver(joining(*names), session)
    tables: dict[str, dict[str, Any]] = {"orders": {}, "customers": {}}
    present: dict[str, set[bytes]] = {name: set() for name in names}
    read = dict.fromkeys(names, 0)
    for number, batch in enumerate(history(random.Random(seed), slices)):
        driver.pipe(batch)
        apply(tables, batch)
        for name in names:
            place = f"{name}; seed {seed}, slice {number}"
            assert rows(driver, name) == expected(name, tables["orders"], tables["customers"]), place
            for key, value in driver.sent(f"{name}-changes")[read[name] :]:
                assert key is not None
                assert value is not None or key in present[name], f"deletes {key!r}; {place}"
                (present[name].discard if value is None else present[name].add)(key)
            read[name] = len(driver.sent(f"{name}-changes"))


def apply(tables: dict[str, dict[str, Any]], batch: Sequence[Input]) -> None:
    for item in batch:
        assert item.key is not None
        if item.value is None:
            tables[item.topic].pop(item.key.decode(), None)
        else:
            assert isinstance(item.value, Mapping)
            one = item.value
            row = (one["customer"], one["amount"]) if item.topic == "orders" else one["name"]
            tables[item.topic][item.key.decode()] = row


@pytest.mark.parametrize(("seed", "names"), [(0, ["fk_inner"]), (1, ["fk_left"]), (2, ["key_inner", "key_outer"])])
def test_after_each_slice_the_result_is_the_join(spark: SparkSession, seed: int, names: list[str]) -> None:
    check_against_definition(spark, seed, *names, slices=8)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3, 30))
def test_more_histories_give_the_join_of_the_tables(spark: SparkSession, seed: int) -> None:
    check_against_definition(spark, seed, *JOINS, slices=15)
