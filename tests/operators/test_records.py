"""Operators of records: on three rows, and on random histories beside an oracle."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from support.oracle_records import PARTITIONS, Cut, Fact, by_arrival, by_time, expected, history

from kappa import operators
from kappa.errors import TopologyError
from kappa.operators import deduplicate, newest, newest_by, running_total
from kappa.spark.tuning import tune
from kappa.testing import Input, TopologyDriver
from kappa.topology import Append, Effects, Slice, Source, Table, Topic, Topology
from kappa.topology.times.event_time import Frontier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FACT = "id STRING, amount BIGINT NOT NULL, gone BOOLEAN NOT NULL, time BIGINT NOT NULL"
STEP = 10

PLAIN = Source(topic="facts", schema=FACT)
TIMED = Source(topic="facts", schema=FACT, time="time", grace="5 seconds")

everywhere = newest_by(TIMED, key="id", table="latest", deletions="deletions")
totals_of = running_total(TIMED, key="id", amount="amount", total="total", table="totals", every=STEP)
first_of = deduplicate(TIMED, key="id", within=None, table="first_seen")
first_within = deduplicate(TIMED, key="id", within="4 seconds", table="last_seen")


def observe(slice: Slice) -> Effects:
    """All operators of records on one stream."""
    facts = slice["facts"]
    totals_of(slice, facts.where("id IS NOT NULL"))
    everywhere(slice, facts.selectExpr("*", "gone AS _deleted"))
    first_of(slice)
    first_within(slice)
    return {}


observed = Topology(
    name="tests.records",
    version="1",
    sources=[TIMED],
    operators=[totals_of, everywhere, first_of, first_within],
    outputs=[
        Append(name="crossings", of=totals_of.crossings, schema="id STRING NOT NULL, threshold BIGINT NOT NULL"),
        Append(name="firsts", of=first_of.rows, schema="id STRING NOT NULL"),
        Append(name="kept", of=first_within.rows, schema="id STRING NOT NULL"),
    ],
    step=observe,
)

remembering = newest_by(PLAIN, key="id", table="latest", deletions="deletions")
in_place = newest_by(PLAIN, key="id", table="ever")


def keep_newest(slice: Slice) -> Effects:
    """The newest row of each key: with deletions and a memory of them, and without either."""
    remembering(slice, slice["facts"].selectExpr("*", "gone AS _deleted"))
    in_place(slice)
    return {}


kept_newest = Topology(
    name="tests.newest", version="1", sources=[PLAIN], operators=[remembering, in_place], step=keep_newest
)


def as_input(fact: Fact) -> Input:
    value = {"id": fact.key, "amount": fact.amount, "gone": fact.gone, "time": fact.time_ms}
    return Input(topic="facts", value=value, partition=fact.partition, timestamp_ms=fact.timestamp_ms)


@pytest.fixture(autouse=True, scope="module")
def small_slices(spark: SparkSession) -> Iterator[None]:
    """The session is tuned for small slices, as a driver's is."""
    tune(spark, is_small=True)
    yield
    tune(spark, is_small=False)


def driven(topology: Topology, spark: SparkSession, slices: Iterable[list[Fact]]) -> TopologyDriver:
    driver = TopologyDriver(topology, spark, partitions={"facts": PARTITIONS})
    for part in slices:
        driver.pipe(map(as_input, part))
    return driver


def millis(time: Any) -> int:
    return round(time.timestamp() * 1000)


def place(row: dict[str, Any]) -> tuple[int, int, int]:
    return (millis(row["_order_timestamp"]), row["_partition"], row["_offset"])


def check_against_oracle(spark: SparkSession, seed: int, *, pinned: bool, cut: Cut) -> None:
    facts = history(seed, pinned=pinned)
    driver = driven(observed, spark, cut(facts, random.Random(seed)))
    oracle, case = expected(facts, STEP), f"seed {seed}, pinned {pinned}"

    def places(name: str) -> list[tuple[int, int, int]]:
        return [place(row) for row in driver.rows_in_order(name)]

    assert {row["id"]: row["total"] for row in driver.rows("totals")} == oracle.totals, case
    crossed = [(row["id"], row["threshold"], place(row)) for row in driver.rows_in_order("crossings")]
    assert sorted(crossed) == sorted(oracle.crossings), case
    newest_rows = {row["id"]: (row["amount"], place(row["origin"])) for row in driver.state("latest")}
    assert newest_rows == oracle.newest, case
    assert {row["id"]: place(row["origin"]) for row in driver.rows("deletions")} == oracle.deletions, case
    assert places("firsts") == oracle.firsts, case
    assert {row["id"]: place(row["origin"]) for row in driver.rows("first_seen")} == oracle.first_seen, case
    assert places("kept") == oracle.firsts_in_time, case
    assert {row["id"]: millis(row["last_seen"]) for row in driver.rows("last_seen")} == oracle.last_seen, case
    assert places("late_records") == oracle.late, case


def test_keys_that_stay_in_a_partition_are_invariant_under_any_cut(spark: SparkSession) -> None:
    check_against_oracle(spark, 1, pinned=True, cut=by_arrival)


def test_keys_in_several_partitions_are_invariant_under_cuts_by_time(spark: SparkSession) -> None:
    check_against_oracle(spark, 3, pinned=False, cut=by_time)


@pytest.mark.soak
def test_many_histories_match_the_oracle(spark: SparkSession) -> None:
    for seed in range(100, 160):
        pinned = seed % 2 == 0
        check_against_oracle(spark, seed, pinned=pinned, cut=by_arrival if pinned else by_time)


def test_newest_by_is_right_for_keys_in_lagging_partitions(spark: SparkSession) -> None:
    seed = 4
    facts = history(seed, pinned=False)
    driver = driven(kept_newest, spark, by_arrival(facts, random.Random(seed)))

    def rows(name: str) -> dict[str, Any]:
        return {row["id"]: (row["amount"], place(row["origin"])) for row in driver.state(name)}

    oracle = expected(facts, STEP)
    assert rows("latest") == oracle.newest, f"seed {seed}"
    assert {row["id"]: place(row["origin"]) for row in driver.rows("deletions")} == oracle.deletions, f"seed {seed}"
    assert rows("ever") == expected([replace(fact, gone=False) for fact in facts], STEP).newest, f"seed {seed}"


# ---- on a few rows


@pytest.fixture
def rows(spark: SparkSession) -> Callable[..., DataFrame]:
    """Rows of (id, value), one after the other in the total order."""

    def frame_of(*values: tuple[Any, Any], kind: str = "BIGINT") -> DataFrame:
        numbered = [(*value, "t", 0, at) for at, value in enumerate(values)]
        columns = f"id STRING, n {kind}, _topic STRING, _partition INT, _offset BIGINT"
        return spark.createDataFrame(numbered, columns).selectExpr("*", "timestamp_millis(_offset) AS _order_timestamp")

    return frame_of


def crossed(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((row["id"], int(row["threshold"]), row["_offset"]) for row in frame.collect())


def crossings(
    frame: DataFrame, before: DataFrame | None = None, kind: str = "BIGINT", **parameters: Any
) -> list[tuple[Any, ...]]:
    """Thresholds that the totals of the values cross."""
    source = Source(topic="t", schema=f"id STRING, n {kind}")
    sums = running_total(source, key="id", amount="n", total="sum", table="sums", **parameters)
    earlier = frame.limit(0) if before is None else before
    state = earlier.selectExpr("id", f"CAST(n AS {sums.tables[0].columns[1].type}) AS sum")
    result = sums(Slice(seq=1, records={"t": frame}, tables={"sums": state})).crossings
    assert result is not None
    assert result.schema["threshold"].dataType == result.schema["sum"].dataType
    return crossed(result)


def test_a_total_that_jumps_past_a_threshold_crosses_it_once(rows: Callable[..., DataFrame]) -> None:
    assert crossings(rows(("a", 6), ("a", 1)), rows(("a", 998)), thresholds=[1000]) == [("a", 1000, 0)]


@pytest.mark.parametrize(("value", "is_crossed"), [(1, False), (2, True), (3, True)])
def test_a_threshold_is_crossed_by_a_total_that_reaches_it(
    rows: Callable[..., DataFrame], value: int, is_crossed: bool
) -> None:
    assert crossings(rows(("a", 998), ("a", value)), thresholds=[1000]) == ([("a", 1000, 1)] if is_crossed else [])


def test_a_key_that_begins_above_a_threshold_crosses_it(rows: Callable[..., DataFrame]) -> None:
    assert crossings(rows(("a", 25)), thresholds=[30, 10, 20, 10]) == [("a", 10, 0), ("a", 20, 0)]


def test_a_total_that_falls_and_rises_crosses_again(rows: Callable[..., DataFrame]) -> None:
    assert crossings(rows(("a", 10), ("a", -1), ("a", 1)), thresholds=[10]) == [("a", 10, 0), ("a", 10, 2)]


@pytest.mark.parametrize("kind", ["BIGINT", "DECIMAL(12,2)", "INT"])
def test_every_stands_for_all_positive_multiples(rows: Callable[..., DataFrame], kind: str) -> None:
    values = rows(("a", -7), ("a", 11), ("a", 11), ("b", None), (None, 99), ("b", 5)).selectExpr(
        "* EXCEPT (n)", f"CAST(n AS {kind}) AS n"
    )

    assert crossings(values, kind=kind, every=5) == [("a", 5, 2), ("a", 10, 2), ("a", 15, 2), ("b", 5, 5)]


def test_thresholds_of_a_decimal_may_have_its_digits(rows: Callable[..., DataFrame]) -> None:
    values = rows(("a", 1), ("a", 1)).selectExpr("* EXCEPT (n)", "CAST(n AS DECIMAL(12,2)) AS n")

    crossed_thresholds = crossings(values, kind="DECIMAL(12,2)", thresholds=[Decimal("1.01"), 2])

    assert crossed_thresholds == [("a", 1, 1), ("a", 2, 1)]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"every": 0}, "every=0 has no multiples"),
        ({"every": -1}, "every=-1 has no multiples"),
        ({"every": 1, "thresholds": [1]}, "give one of them"),
        ({"thresholds": [Decimal("0.5")]}, "a total of type BIGINT is never 0.5"),
        ({"thresholds": [1.0]}, "not a list of int or Decimal"),
        ({"thresholds": [10**19]}, "is never 10000000000000000000"),
        ({"amount": "amounts"}, r"amount 'amounts' is not among its rows, which have \['amount'"),
        ({"total": "gone"}, "no name may appear twice"),
        ({"total": "Amount"}, "no name may appear twice"),
        ({"total": "_offset"}, "no name may appear twice"),
        ({"total": "threshold", "every": 2}, "no name may appear twice"),
        ({"key": "who"}, "not among its rows"),
        ({"since": "id"}, r"since='id' is not among the columns besides its key, which are \['amount'"),
        ({"since": "phase"}, "since='phase' is not among"),
    ],
)
def test_invalid_parameters_of_a_running_total_are_refused(wrong: dict[str, Any], words: str) -> None:
    parameters: dict[str, Any] = {"key": "id", "amount": "amount", "total": "total", "table": "totals"} | wrong
    with pytest.raises(TopologyError, match=f"^running_total.*{words}"):
        running_total(PLAIN, **parameters)


def test_a_running_total_called_with_frames_is_refused(rows: Callable[..., DataFrame]) -> None:
    with pytest.raises(TopologyError, match=r"running_total\(orders, key='customer', .*, table='spending'\)"):
        running_total(rows(), key="id", amount="n", total="sum", before=rows())  # type: ignore[call-arg]
    sums = running_total(PLAIN, key="id", total="n", table="sums")
    with pytest.raises(TopologyError, match="has no thresholds"):
        assert sums.crossings
    with pytest.raises(TopologyError, match=r"running_total\(slice, rows\)"):
        sums(rows())  # type: ignore[arg-type]


PHASES = Source(topic="t", schema="id STRING, phase INT, n INT")
SINCE = running_total(PHASES, key="id", amount="n", total="sum", since="phase", table="sums", thresholds=[3])


def test_a_total_restarts_where_the_column_changes(spark: SparkSession) -> None:
    """Under each cut: at rows, in the table, and for thresholds; a value that comes back begins anew too."""
    values = [("a", 1, 2), ("a", 1, 2), ("a", 2, 3), ("a", None, 1), ("a", None, 4), ("a", 1, 1), (None, 1, 5)]
    values += [("b", None, 3), ("b", 5, None), ("b", 5, 3)]
    expected = [2, 4, 3, 1, 5, 1, 5, 3, 0, 3]
    topology = Topology(
        name="tests.since",
        version="1",
        sources=[PHASES],
        operators=[SINCE],
        outputs=[Append(name="rows", of=SINCE.rows), Append(name="crossings", of=SINCE.crossings)],
    )
    log = [Input(topic="t", value=dict(zip(("id", "phase", "n"), row, strict=True))) for row in values]
    for cut in (len(log), 2, 3, 6):
        driver = TopologyDriver(topology, spark)
        driver.pipe(log[:cut])
        driver.pipe(log[cut:])
        assert [row["sum"] for row in driver.rows_in_order("rows")] == expected, cut
        assert [row["_offset"] for row in driver.rows_in_order("crossings")] == [1, 2, 4, 7, 9], cut
        assert driver.rows("sums") == [{"id": "a", "phase": 1, "sum": 1}, {"id": "b", "phase": 5, "sum": 3}], cut
    assert SINCE.tables[0].made_by == "running_total(key=['id'], sum=sum(n), since=phase)"


@pytest.mark.parametrize("name", ["threshold_crossings", "tombstones", "late_records"])
def test_a_removed_operator_names_its_replacement(name: str) -> None:
    with pytest.raises(TopologyError, match=f"kappa.operators has no {name}"):
        getattr(operators, name)
    with pytest.raises(ImportError):
        exec("from kappa.operators import no_operator")


def test_totals_of_several_topics_follow_time(rows: Callable[..., DataFrame]) -> None:
    other = replace(PLAIN, topic="others")
    sums = running_total([PLAIN, other], key="id", total="n", table="sums", every=2)
    assert (sums.rows.cuts, sums.crossings.cuts, sums.tables[0].cuts) == ("time", "time", "any")
    assert running_total(PLAIN, key="id", total="n", table="sums").rows.cuts == "any"
    assert running_total([PLAIN, other], key="id", total="n", since="gone", table="sums").tables[0].cuts == "time"


# ---- tombstones


def test_a_null_value_deletes_the_key_of_its_record(spark: SparkSession) -> None:
    def keep(slice: Slice) -> Effects:
        return {"prices": newest(slice["prices"], key="id")}

    prices = Topology(
        name="tests.prices",
        version="1",
        sources=[
            Source(topic="prices", schema="id BIGINT NOT NULL, price INT", key_schema="id BIGINT", tombstones=True)
        ],
        tables=[Table(name="prices", key=["id"], schema="id BIGINT NOT NULL, price INT")],
        step=keep,
    )
    driver = TopologyDriver(prices, spark)

    driver.pipe(Input(topic="prices", key=b"%d" % id, value={"id": id, "price": 5}) for id in (1, 2, 3))
    driver.pipe(
        [
            Input(topic="prices", key=b"1", value=None),
            Input(topic="prices", key=b"2", value=None),
            Input(topic="prices", key=b"2", value={"id": 2, "price": None}),
            Input(topic="prices", value=None),
            Input(topic="prices", key='{"id": 3}', value=None),
        ]
    )

    assert driver.rows("prices") == [{"id": 2, "price": None}, {"id": 3, "price": 5}]
    assert [letter["_dead"] for letter in driver.dead_letters] == [
        "id is a column of the key, and absent",
        "of the key: the key is not BIGINT",
    ]


# ---- newest_by and deduplicate


def test_a_deletion_of_a_missing_key_changes_nothing(spark: SparkSession) -> None:
    def drop(slice: Slice) -> Effects:
        in_place(slice, slice["facts"].selectExpr("*", "gone AS _deleted"))
        return {}

    topology = Topology(
        name="tests.drop",
        version="1",
        sources=[PLAIN],
        operators=[in_place],
        outputs=[Topic(name="out", of="ever", key="id")],
        step=drop,
    )
    deletion = replace(history(7, pinned=True, size=1)[0], key="a", gone=True)
    driver = driven(topology, spark, [[deletion], [replace(deletion, gone=False)], [deletion]])

    assert [value is None for _, value in driver.sent("out")] == [False, True]


def test_a_record_older_than_a_deletion_does_not_restore_its_key(spark: SparkSession) -> None:
    def fact(timestamp_ms: int, partition: int, *, is_deleted: bool = False) -> Fact:
        return Fact(key="a", amount=1, gone=is_deleted, time_ms=0, timestamp_ms=timestamp_ms, partition=partition)

    driver = driven(kept_newest, spark, [[fact(5, 0), fact(9, 0, is_deleted=True)], [fact(8, 1)]])
    assert driver.rows("latest") == []
    driver.pipe([as_input(fact(10, 1))])

    assert [row["id"] for row in driver.rows("latest")] == ["a"]
    assert driver.rows("deletions") == []


def test_a_record_repeats_its_key_up_to_the_end_of_within(spark: SparkSession) -> None:
    times = [("a", 0), ("a", 3_999), ("b", 0), ("b", 4_000), ("c", 0), ("c", 4_001)]
    columns = "id STRING, ms BIGINT, _topic STRING, _partition INT, _offset BIGINT"
    facts = spark.createDataFrame([(*one, "t", 0, at) for at, one in enumerate(times)], columns).selectExpr(
        "* EXCEPT (ms)",
        "timestamp_millis(ms) AS _event_time",
        "CAST(NULL AS TIMESTAMP) AS _frontier",
        "timestamp_millis(_offset) AS _order_timestamp",
    )
    before = spark.createDataFrame([], first_within.tables[0].schema)
    slice = Slice(seq=1, records={"facts": facts}, tables={"last_seen": before}, frontiers={"facts": Frontier(ms=None)})

    rows_kept = first_within(slice).rows

    assert sorted(row["_offset"] for row in rows_kept.collect()) == [0, 2, 4, 5]


def test_a_key_is_forgotten_when_no_record_can_repeat_it(spark: SparkSession) -> None:
    base = Fact(key="a", amount=1, gone=False, time_ms=100_000, timestamp_ms=100_000, partition=0)
    driver = TopologyDriver(observed, spark)

    def after(millis: int, key: str) -> list[str]:
        at = base.time_ms + millis
        driver.pipe([as_input(replace(base, key=key, time_ms=at, timestamp_ms=at))])
        return [row["id"] for row in driver.rows("last_seen")]

    assert after(0, "a") == ["a"]
    assert after(9_000, "b") == ["a", "b"]  # the frontier is 4 seconds on, where a record could still repeat "a"
    assert after(9_001, "b") == ["b"]


def test_parameters_are_part_of_a_tables_shape() -> None:
    (table,) = first_within.tables
    assert table.made_by == "deduplicate(key=`id`, within=4 seconds) of (facts)"
    assert deduplicate(TIMED, key="id", within="4000 milliseconds", table="last_seen").tables == (table,)
    assert remembering.tables[0].made_by != in_place.tables[0].made_by


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: newest_by(PLAIN, key="name", table="t"), "not among its rows"),
        (lambda: newest_by(PLAIN, key=[], table="t"), "names no column"),
        (lambda: deduplicate(PLAIN, key=["id", "id"], within=None, table="t"), "or one twice"),
        (lambda: deduplicate(TIMED, key="id", within="soon", table="t"), "not a length of time"),
        (lambda: deduplicate(PLAIN, key="id", within="4 seconds", table="t"), "needs event time"),
    ],
)
def test_invalid_arguments_are_refused_at_once(wrong: Callable[[], Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        wrong()


def test_deleted_keys_have_a_table_of_their_own_if_named() -> None:
    assert [table.name for table in remembering.tables] == ["latest", "deletions"]
    assert [table.name for table in in_place.tables] == ["ever"]
    with pytest.raises(TopologyError, match=r"declares table or output \['latest'\] more than once"):
        twice = newest_by(PLAIN, key="id", table="latest", deletions="latest")
        Topology(name="tests.twice", version="1", sources=[PLAIN], operators=[twice])
