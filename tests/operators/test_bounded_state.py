"""State follows reach, grace and lag, not history: rows of each operator's tables over ten times its window.

Keys come and go: each lives for two seconds of ten windows. What must be kept is said in plain Python, by the rule that
the operator's docstring gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kappa.operators import (
    agg,
    at_most_every,
    deduplicate,
    hopping_window,
    interval_join,
    session_window,
    sliding_window,
    table_join,
    tumbling_window,
    versions_by,
)
from kappa.testing import Input, TopologyDriver
from kappa.topology import Source, Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[2] / "docs" / "event-time.md"
WINDOW, GRACE, LAG, STEP = 10_000, 2_000, 3_000, 1_000
#: After how many windows the state is looked at.
WINDOWS = (1, 2, 5, 10)
PRODUCTS = 4
ROW, VERSION = "id STRING, at BIGINT", "id STRING NOT NULL, at BIGINT"
SOURCES = {
    topic: Source(topic=topic, schema=schema, time="at", grace=f"{GRACE} milliseconds")
    for topic, schema in {"ticks": ROW, "payments": ROW, "products": VERSION}.items()
}
TICKS, PAYMENTS, VERSIONS = SOURCES.values()
COUNT = {"events": agg.count()}
TEN = "10 seconds"
SHARED = versions_by(VERSIONS, key="id", table="shared")

#: Every operator with state that goes, and one whose state stays.
OPERATORS = [
    tumbling_window(TICKS, key="id", size=TEN, aggregates=COUNT, table="tumbling"),
    hopping_window(TICKS, key="id", size=TEN, every="5 seconds", aggregates=COUNT, table="hopping"),
    tumbling_window(TICKS, key="id", size=TEN, aggregates=COUNT, keep=TEN, table="kept"),
    session_window(TICKS, key="id", gap=TEN, aggregates=COUNT, table="sessions"),
    sliding_window(TICKS, key="id", size=TEN, aggregates=COUNT, table="sliding"),
    at_most_every(TICKS, key="id", every=TEN, table="paced"),
    deduplicate(TICKS, key="id", within=TEN, table="seen"),
    deduplicate(TICKS, key="id", within=TEN, emit="final", table="firsts"),
    deduplicate(TICKS, key="id", within=None, table="ids"),
    interval_join(TICKS, PAYMENTS, key="id", within=TEN, how="outer", tables=("orders", "payments")),
    table_join(TICKS, VERSIONS, key="id", tables=("waiting", "versions")),
    SHARED,
    table_join(TICKS, SHARED, key="id", tables="waiting_ticks"),
    table_join(PAYMENTS, SHARED, key="id", tables="waiting_payments"),
]


@dataclass(frozen=True, kw_only=True)
class Log:
    """What the topics hold at a time.

    Attributes:
        end: the time, milliseconds.
        lag: by how much the second partition is behind the first; the payments are twice as far behind.
    """

    end: int
    lag: int

    def times(self, lag: int) -> range:
        return range(0, max(0, self.end - lag), STEP)

    @property
    def ticks(self) -> list[tuple[int, str, int]]:
        """Partition, id and time of each tick."""
        return [(p, f"{p}-{at // 2000}", at) for p in (0, 1) for at in self.times(p * self.lag)]

    @property
    def payments(self) -> list[tuple[int, str, int]]:
        return [(0, f"0-{at // 2000}", at) for at in self.times(2 * self.lag)]

    @property
    def products(self) -> list[tuple[int, str, int]]:
        return [(0, f"p{at // STEP % PRODUCTS}", at) for at in self.times(0)]

    def since(self, before: Log) -> list[Input]:
        """The records that came after another time."""
        topics = {topic: (getattr(self, topic), set(getattr(before, topic))) for topic in SOURCES}
        return [
            Input(topic=topic, value={"id": id, "at": at}, partition=partition, timestamp_ms=at)
            for topic, (records, old_records) in topics.items()
            for partition, id, at in records
            if (partition, id, at) not in old_records
        ]

    def frontier(self, lag: int) -> int:
        return self.end - lag - STEP - GRACE


def spans(log: Log) -> dict[str, int]:
    """Id -> time of its last tick."""
    return {id: at for _, id, at in sorted(log.ticks, key=lambda one: one[2])}


def windows(log: Log, every: int, keep: int = 0) -> int:
    starts = {(id, at // every * every - back) for _, id, at in log.ticks for back in range(0, WINDOW, every)}
    return sum(start + WINDOW + keep > log.frontier(log.lag) for _, start in starts)


def lasting(log: Log) -> int:
    return sum(at + WINDOW >= log.frontier(log.lag) for at in spans(log).values())


def versions(log: Log, lag: int) -> int:
    since = min(log.frontier(lag), log.frontier(0))
    by_product: dict[str, list[int]] = {}
    for _, id, at in log.products:
        by_product.setdefault(id, []).append(at)
    pairs = [(at, until) for times in by_product.values() for at, until in pairwise(times)]
    return len(by_product) + sum(until > max(since, at) for at, until in pairs)


#: Table -> how many rows it must have. Windows and boundaries go when the frontier reaches their end, rows and runs
#: when it is past their reach; of a product the newest version stays.
RULES: Mapping[str, Callable[[Log], int]] = {
    "tumbling": lambda log: windows(log, WINDOW),
    "hopping": lambda log: windows(log, WINDOW // 2),
    "kept": lambda log: windows(log, WINDOW, keep=WINDOW),
    "sessions": lasting,
    "sliding": lambda log: sum(at + WINDOW + 1 >= log.frontier(log.lag) for _, _, at in log.ticks),
    "paced": lambda log: windows(log, WINDOW),  # due at the end of the window that the tick is in
    "seen": lasting,
    "firsts": lasting,
    # Ticks without a payment wait for the lesser frontier, which is that of the payments.
    "orders": lambda log: sum(at + WINDOW >= log.frontier(2 * log.lag) for _, _, at in log.ticks),
    "payments": lambda log: sum(at + WINDOW >= log.frontier(log.lag) for _, _, at in log.payments),
    "waiting": lambda log: sum(at >= log.frontier(log.lag) for _, _, at in log.ticks),
    "versions": lambda log: versions(log, log.lag),
    "shared": lambda log: versions(log, 2 * log.lag),  # the payments are further behind
}


TOPOLOGY = Topology(name="stocks.state", version="1", sources=list(SOURCES.values()), operators=OPERATORS)


def sizes(spark: SparkSession, logs: Iterable[Log]) -> dict[str, list[int]]:
    """Table -> its number of rows after each log, with one slice from one to the next."""
    driver = TopologyDriver(TOPOLOGY, spark, partitions={"ticks": 2, "payments": 1, "products": 1})
    counts: dict[str, list[int]] = {table.name: [] for table in TOPOLOGY.tables}
    before = Log(end=0, lag=0)
    for log in logs:
        driver.pipe(log.since(before))
        before = log
        for name, rows in counts.items():
            rows.append(len(driver.rows(name)))
    assert driver.rows("late_records") == []
    return counts


@pytest.fixture(scope="module")
def measured(spark: SparkSession) -> dict[str, list[int]]:
    return sizes(spark, [Log(end=count * WINDOW, lag=LAG) for count in WINDOWS])


@pytest.mark.spark
@pytest.mark.parametrize("name", RULES)
def test_state_after_ten_windows_is_as_large_as_after_two(measured: Mapping[str, list[int]], name: str) -> None:
    assert measured[name] == [RULES[name](Log(end=count * WINDOW, lag=LAG)) for count in WINDOWS]
    assert measured[name][1] == measured[name][2] == measured[name][3] > 0


@pytest.mark.spark
def test_unbounded_state_grows_with_history(measured: Mapping[str, list[int]]) -> None:
    assert measured["ids"] == [len(spans(Log(end=count * WINDOW, lag=LAG))) for count in WINDOWS]
    assert measured["ids"][3] > 9 * measured["ids"][0]


@pytest.mark.spark
def test_state_grows_with_the_lag_between_partitions_and_topics(spark: SparkSession) -> None:
    half, whole = (Log(end=count * WINDOW, lag=4 * LAG) for count in WINDOWS[-2:])
    counts = sizes(spark, [half, whole])

    assert {name: counts[name] for name in RULES} == {name: [rule(half), rule(whole)] for name, rule in RULES.items()}
    assert {name for name, (first, last) in counts.items() if first != last} == {"ids"}
    # Ticks wait for payments, which are further behind now, and for the products' sake for their own second partition.
    near = Log(end=whole.end, lag=LAG)
    assert counts["orders"][1] > RULES["orders"](near)
    assert counts["waiting"][1] > RULES["waiting"](near)


def test_the_page_shows_the_figures_of_the_rules() -> None:
    section = PAGE.read_text().partition("## How much state is kept")[2].partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if "|" in line]
    rows = {row[1].strip("`"): [int(cell) for cell in row[3:]] for row in cells if row[1].startswith("`")}
    logs = [Log(end=count * WINDOW, lag=LAG) for count in WINDOWS]
    assert rows.pop("ids") == [len(spans(log)) for log in logs]
    assert rows == {name: [rule(log) for log in logs] for name, rule in RULES.items()}
