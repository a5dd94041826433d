"""The topology driver: a topology's behaviour without Kafka, Delta or a driver process."""

from __future__ import annotations

import math
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from kappa.errors import TopologyError, UsageError
from kappa.operators import agg, newest_by, tumbling_window
from kappa.testing import Input, TopologyDriver, assert_slice_invariant
from kappa.topology import Append, Source, Table, Topic, Topology
from kappa.topology.registry import load
from kappa.wire.inputs import input_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TOPOLOGIES = Path(__file__).resolve().parents[2] / "include" / "topologies"


@pytest.fixture
def loyalty(spark: SparkSession) -> TopologyDriver:
    return TopologyDriver(load(TOPOLOGIES, "retail.loyalty"), spark)


def invoice(number: str, amount: float, customer: str = "c1") -> Input:
    value = {"InvoiceNumber": number, "CustomerType": "PRIME", "CustomerCardNo": customer, "TotalAmount": amount}
    return Input(topic="pos", value=value)


def test_tables_are_kept_between_slices(loyalty: TopologyDriver) -> None:
    loyalty.pipe([invoice("1", 100)])
    loyalty.pipe([invoice("2", 50), invoice("3", 10, "c2")])
    assert loyalty.rows("rewards") == [
        {"CustomerCardNo": "c1", "TotalLoyaltyPoints": Decimal("3.0000")},
        {"CustomerCardNo": "c2", "TotalLoyaltyPoints": Decimal("0.2000")},
    ]
    assert [row["InvoiceNumber"] for row in loyalty.rows("notifications")] == ["1", "2", "3"]


def test_rows_with_times_beyond_pythons_years_have_their_json_forms(spark: SparkSession) -> None:
    source = Source(topic="in", schema="id STRING NOT NULL, day DATE, at TIMESTAMP")
    newest = newest_by(source, key="id", table="newest")
    driver = TopologyDriver(Topology(name="a.far", version="1", sources=[source], operators=[newest]), spark)
    driver.pipe([Input(topic="in", value={"id": "a", "day": "+12026-01-01", "at": "+12026-01-01T00:00:00Z"})])
    assert driver.rows("newest") == [{"id": "a", "day": "+12026-01-01", "at": "+12026-01-01T00:00:00.000000Z"}]


def test_values_of_python_are_read_as_what_they_are(spark: SparkSession) -> None:
    schema = "id STRING NOT NULL, d DECIMAL(38,2), b BINARY, n DOUBLE, i DOUBLE, a ARRAY<DECIMAL(5,2)>, w DECIMAL(38,0)"
    source = Source(topic="in", schema=schema, headers=True)
    newest = newest_by(source, key="id", table="newest")

    def step(slice: Any) -> Any:
        newest(slice)
        return {"heads": slice["in"].selectExpr("_headers.key AS names")}

    topology = Topology(
        name="a.plain",
        version="1",
        sources=[source],
        operators=[newest],
        outputs=[Append(name="heads", schema="names ARRAY<STRING>")],
        step=step,
    )
    driver = TopologyDriver(topology, spark)
    value = {
        "id": "a",
        "d": Decimal("1.50"),
        "b": b"\x00\xff",
        "n": float("nan"),
        "i": float("-inf"),
        "a": [Decimal("2.25")],
        "w": 10**30,
    }
    driver.pipe([Input(topic="in", value=value, headers=[("trace", b"1"), ("tenant", None)])])
    assert driver.dead_letters == []
    (row,) = driver.rows("newest")
    assert math.isnan(row.pop("n"))
    assert row == {name: one for name, one in value.items() if name != "n"}
    assert [row["names"] for row in driver.rows("heads")] == [["trace", "tenant"]]


def test_a_value_is_null_whose_fields_may_not_be(spark: SparkSession) -> None:
    kinds = {"s": "STRUCT<a: INT NOT NULL>", "l": "ARRAY<STRUCT<a: INT NOT NULL>>"}
    kinds["m"] = "MAP<STRING, STRUCT<a: INT NOT NULL>>"
    source = Source(topic="in", schema="id STRING, " + ", ".join(f"{name} {kind}" for name, kind in kinds.items()))
    newest = newest_by(source, key="id", table="newest")
    driver = TopologyDriver(Topology(name="a.null", version="1", sources=[source], operators=[newest]), spark)
    a, b = {"id": "a", "s": None, "l": [None], "m": {"k": None}}, {"id": "b", "s": None, "l": None, "m": None}
    for row in (a, b):
        driver.pipe([Input(topic="in", value=row)])
    assert driver.rows("newest") == [{**a, "m": [("k", None)]}, b]


def test_a_name_that_the_topology_has_not_is_named_with_those_it_has(loyalty: TopologyDriver) -> None:
    for read in (loyalty.rows, loyalty.rows_in_order):
        with pytest.raises(TopologyError, match=r"no append output 'typo'; it has .*'rewards'"):
            read("typo")
    with pytest.raises(TopologyError, match="no append output 'rewards'"):
        loyalty.rows_in_order("rewards")
    with pytest.raises(TopologyError, match=r"no topic output 'typo'; it has .*'loyalty'"):
        loyalty.sent("typo")
    with pytest.raises(UsageError, match="tzinfo=UTC"):
        TopologyDriver(loyalty.topology, loyalty._session, now=datetime(2026, 1, 1))  # noqa: DTZ001


def test_values_sent_to_a_topic_are_bytes(loyalty: TopologyDriver) -> None:
    loyalty.pipe([invoice("1", 100)])
    ((key, value),) = loyalty.sent("loyalty")
    assert key == b"c1"
    assert orjson.loads(value or b"")["TotalLoyaltyPoints"] == 2


def test_an_unparsable_record_is_a_dead_letter_and_a_slice_may_be_empty(loyalty: TopologyDriver) -> None:
    loyalty.pipe([])
    loyalty.pipe([Input(topic="pos", value=b"{", partition=1)])
    (letter,) = loyalty.dead_letters
    assert (letter["_partition"], letter["_offset"], letter["_value"]) == (1, 0, b"{")
    assert loyalty.rows("rewards") == []


def test_a_record_of_a_topic_that_is_not_a_source_is_refused(loyalty: TopologyDriver) -> None:
    with pytest.raises(TopologyError, match="elsewhere"):
        loyalty.pipe([Input(topic="elsewhere", value=b"")])


def test_partitions_are_those_of_sources_and_records_lie_in_them(spark: SparkSession) -> None:
    rows = topology_of(lambda slice: slice["t"].selectExpr("id", "_timestamp AS at"))
    with pytest.raises(TopologyError, match=r"\['tt'\] are not sources of 'test.rows'; it reads \['t'\]"):
        TopologyDriver(rows, spark, partitions={"tt": 2})
    driver = TopologyDriver(rows, spark, partitions={"t": 2})
    for partition in (-1, 2):
        with pytest.raises(TopologyError, match=f"'t' has no partition {partition}: its numbers are 0 to 1"):
            driver.pipe(log((partition, 1, "a", 1)))
    with pytest.raises(TopologyError, match="'t' has no partition -1: its numbers begin at 0"):
        TopologyDriver(rows, spark).pipe(log((-1, 1, "a", 1)))


def test_a_slice_that_is_refused_leaves_everything_as_it_was(spark: SparkSession) -> None:
    source = Source(topic="t", schema="id STRING NOT NULL, amount BIGINT", grace="1 second", idle_after="1 second")
    hours = tumbling_window(source, key="id", size="1 second", aggregates={"n": agg.count()}, table="open")

    def step(slice: Any) -> Any:
        hours(slice)
        return {"positive": slice["t"].selectExpr("NULLIF(amount, 0) AS amount")}

    topology = Topology(
        name="test.refused",
        version="1",
        sources=[source],
        operators=[hours],
        outputs=[
            Append(name="hours", of=hours.final),
            Append(name="positive", schema="amount BIGINT NOT NULL"),
            Topic(name="hours", of="hours", key="id", time="window_end", on_replay="versioned"),
        ],
        step=step,
    )
    first, refused, last = log((0, 0, "a", 1)), log((1, 9_000, "a", 0)), log((0, 500, "a", 1), (0, 2_000, "b", 1))
    driver, other = TopologyDriver(topology, spark), TopologyDriver(topology, spark)
    driver.pipe(first)
    for _ in range(2):
        with pytest.raises(TopologyError, match="null in column 'amount'"):
            driver.pipe([*refused, Input(topic="t", value="{")])
    driver.pipe(last)
    for slice in (first, last):
        other.pipe(slice)
    assert driver.rows("late_records") == driver.dead_letters == []
    assert driver.sent("hours") == other.sent("hours") and driver.rows("hours")[0]["n"] == 2
    assert (driver.released, driver.final) == (other.released, other.final)


def test_an_undeclared_effect_is_refused(spark: SparkSession) -> None:
    def step(records: Any) -> Any:
        return {"surprise": records["pos"]}

    broken = replace(load(TOPOLOGIES, "retail.shipments"), step=step)
    with pytest.raises(TopologyError, match="surprise"):
        TopologyDriver(broken, spark).pipe([invoice("1", 100)])


def test_a_record_without_a_time_gets_that_of_the_clock(spark: SparkSession) -> None:
    march = datetime(2026, 3, 1, tzinfo=UTC)
    driver = TopologyDriver(topology_of(lambda s: s["t"].selectExpr("id", "_timestamp AS at")), spark, now=march)
    driver.pipe([Input(topic="t", value={"id": "a"})])
    assert driver.advance(timedelta(minutes=5)) == march + timedelta(minutes=5)
    driver.pipe([Input(topic="t", value={"id": "b"}), Input(topic="t", value={"id": "c"}, timestamp_ms=7)])
    times = {row["id"]: row["at"] for row in driver.rows("rows")}
    assert times["a"] == march and times["b"] == driver.now == march + timedelta(minutes=5)
    assert times["c"] == datetime(1970, 1, 1, 0, 0, 0, 7000, tzinfo=UTC)


def test_a_clock_goes_forward_only(loyalty: TopologyDriver) -> None:
    loyalty.advance(timedelta(0))
    with pytest.raises(UsageError, match="late record"):
        loyalty.advance(timedelta(seconds=-1))


def topology_of(step: Any, columns: str = "id STRING, at TIMESTAMP") -> Topology:
    """Reads ids and amounts of topic ``t``; the rows that a function makes of a slice are output and topic ``rows``."""
    return Topology(
        name="test.rows",
        version="1",
        sources=[Source(topic="t", schema="id STRING NOT NULL, amount BIGINT")],
        outputs=[Append(name="rows", schema=columns), Topic(name="rows", of="rows", key="id")],
        step=lambda slice: {"rows": step(slice)},
    )


def log(*records: tuple[int, int, str, int]) -> list[Input]:
    return [
        Input(topic="t", value={"id": name, "amount": amount}, partition=partition, timestamp_ms=ms)
        for partition, ms, name, amount in records
    ]


#: Two partitions, times that go back, an equal one, a record that does not parse.
LOG = [
    *log((0, 5, "a", 1), (1, 3, "a", 2), (0, 4, "b", 3), (1, 5, "b", 4), (1, 9, "a", 5)),
    Input(topic="t", value="{"),
]


def test_a_running_total_does_not_depend_on_the_cuts(spark: SparkSession) -> None:
    from kappa.operators import running_total

    moves = Source(topic="t", schema="id STRING NOT NULL, amount BIGINT")
    summed = running_total(moves, key="id", amount="amount", total="total", table="totals")
    totals = Topology(
        name="test.totals",
        version="1",
        sources=[moves],
        operators=[summed],
        outputs=[
            Append(name="moves", of=summed.rows),
            Topic(name="moves", of="moves", key="id"),
            Topic(name="totals", of="totals", key="id"),
        ],
    )
    assert_slice_invariant(totals, LOG, spark, cuts=2)


def test_a_dependence_on_the_cuts_is_named_with_the_cut_and_the_rows(spark: SparkSession) -> None:
    def count(slice: Any) -> Any:
        """Rows of the slice: one slice has six, a slice of one record has one."""
        return slice["t"].selectExpr(
            "id", "COUNT(*) OVER () AS among", "_order_timestamp", "_topic", "_partition", "_offset"
        )

    with pytest.raises(AssertionError) as failed:
        assert_slice_invariant(topology_of(count, "id STRING, among BIGINT"), LOG, spark, cuts=0)
    message = str(failed.value)
    assert "test.rows: output rows depends on how the log is cut." in message
    assert "one slice gives 5 rows, one slice per record gives 5; the first difference is at row 0:" in message
    assert "'among': 5}" in message and "'among': 1}" in message


def test_a_cut_by_time_is_named_by_its_time_and_missing_rows_are_noticed(spark: SparkSession) -> None:
    def all_or_one(slice: Any) -> Any:
        """The same for one slice and for slices of one record: it is a cut by time that shows the difference."""
        among = slice["t"].selectExpr("id", "_order_timestamp AS at", "COUNT(*) OVER () AS among")
        return among.where("among = 5 OR among = 1").select("id", "at")

    with pytest.raises(AssertionError, match=r"cut at 1970-01-01T00:00:00\.00[59]\+00:00") as failed:
        assert_slice_invariant(topology_of(all_or_one), LOG, spark, cuts=1)
    assert re.search(r"one slice gives 5 rows, cut at \S+(, \S+)? gives [12];", str(failed.value))


def test_a_nan_is_the_same_under_any_cut(spark: SparkSession) -> None:
    source = Source(topic="in", schema="id STRING, d DOUBLE, a ARRAY<DOUBLE>")
    newest = newest_by(source, key="id", table="newest")
    topology = Topology(name="a.nan", version="1", sources=[source], operators=[newest])
    log = [Input(topic="in", value={"id": id, "d": math.nan, "a": [math.nan]}) for id in ("a", "b")]
    assert_slice_invariant(topology, log, spark, cuts=0)


def test_a_log_without_records_has_nothing_to_cut(spark: SparkSession) -> None:
    assert_slice_invariant(topology_of(lambda s: s["t"].selectExpr("id", "_timestamp AS at")), [], spark)


def test_a_mapping_has_the_wire_format_of_json_schema_when_read_and_sent(spark: SparkSession) -> None:
    visit = "page STRING NOT NULL, at TIMESTAMP, price DECIMAL(10,2)"
    topology = Topology(
        name="shop.visits",
        version="1",
        sources=[
            Source(
                topic="clicks",
                format="json_schema",
                schema=visit,
                key_schema="user BIGINT",
                key_format="json_schema",
                tombstones=True,
            )
        ],
        tables=[Table(name="users", key="user", schema="user BIGINT NOT NULL, page STRING")],
        outputs=[
            Append(name="priced", schema=visit),
            Topic(name="visits", of="priced", key="page", format="json_schema"),
            Topic(name="users", of="users", key="user", format="json_schema"),
        ],
        step=lambda records: {
            "priced": records["clicks"].where("price IS NOT NULL"),
            "users": records["clicks"].selectExpr("user", "page", "_tombstone AS _deleted"),
        },
    )
    driver = TopologyDriver(topology, spark)
    value = {"page": "/", "at": "2026-03-01T12:00:00Z", "price": 1.5}
    driver.pipe(
        [
            Input(topic="clicks", key={"user": 7}, value=value),
            Input(topic="clicks", key={"user": 8}, value=b'{"page": "/"}'),
            Input(topic="clicks", key={"user": 8}, value=b"\0\0\0\0\7{}"),
            Input(topic="clicks", key={"user": 8}, value=b"\0\0\0\0\1[]"),
            Input(topic="clicks", key=b'{"user": 8}', value=value),
        ]
    )
    driver.pipe([Input(topic="clicks", key={"user": 7}, value=None)])
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert driver.rows("priced") == [{"page": "/", "at": at, "price": Decimal("1.50")}]
    reasons = [letter["_dead"] for letter in driver.dead_letters]
    assert reasons[:2] == [
        "the value does not begin with zero and the id of a schema",
        "schema 7 is not in the schema registry",
    ]
    assert reasons[3] == "of the key: the value does not begin with zero and the id of a schema"
    assert driver.sent("visits") == [(b"/", b'\0\0\0\0\1{"page":"/","at":"2026-03-01T12:00:00.000000Z","price":1.50}')]
    assert driver.sent("users") == [(b"7", b'\0\0\0\0\1{"user":7,"page":"/"}'), (b"7", None)]


@pytest.mark.parametrize("format", ["json", "avro"])
def test_a_time_without_a_zone_is_in_utc_whatever_the_zone_of_the_host(
    format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source(topic="in", format=format, schema="at TIMESTAMP, times ARRAY<TIMESTAMP>")
    noon = datetime(2026, 3, 1, 12)  # noqa: DTZ001
    plain, aware = ({"at": at, "times": [at]} for at in (noon, noon.replace(tzinfo=UTC)))
    values = {}
    for zone in ("UTC", "Asia/Tokyo"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        values[zone] = input_value(source, plain)
    monkeypatch.undo()
    time.tzset()
    assert values["UTC"] == values["Asia/Tokyo"]
    assert format == "json" or values["UTC"] == input_value(source, aware)


def test_a_mapping_becomes_avro_when_read_and_when_sent(spark: SparkSession) -> None:
    visit = "page STRING NOT NULL, at TIMESTAMP, price DECIMAL(10,2)"
    topology = Topology(
        name="shop.visits",
        version="1",
        sources=[Source(topic="clicks", format="avro", schema=visit)],
        outputs=[Append(name="priced", schema=visit), Topic(name="visits", of="priced", key="page", format="avro")],
        step=lambda records: {"priced": records["clicks"].where("price IS NOT NULL")},
    )
    at = datetime(2026, 3, 1, 12, tzinfo=UTC)
    driver = TopologyDriver(topology, spark)
    driver.pipe(
        [
            Input(topic="clicks", value={"page": "/", "at": at, "price": Decimal("1.50")}),
            Input(topic="clicks", value={"page": "/free"}),
            Input(topic="clicks", value={"at": at}),
            Input(topic="clicks", value=b"{}"),
            Input(topic="clicks", value=b"\0\0\0\0\7"),
        ]
    )
    assert driver.rows("priced") == [{"page": "/", "at": at, "price": Decimal("1.50")}]
    assert [letter["_dead"] for letter in driver.dead_letters] == [
        "page is NOT NULL and absent",
        "the value does not begin with zero and the id of a schema",
        "schema 7 is not in the schema registry",
    ]
    ((key, value),) = driver.sent("visits")
    assert key == b"/"
    assert value is not None
    assert value.startswith(b"\0\0\0\0\1\x02/")
