"""`stocks.stats` on ticks written by hand, on random ones, and on prices that others wrote down."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from support.drawn_histories import KEYS
from support.oracle_histories import moment
from support.topologies import first_version, shipped

from kappa.testing import Input, TopologyDriver, assert_slice_invariant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STATS = shipped("stocks.stats")
STATS_V1 = first_version("stocks.stats")


def tick(symbol: str, at: int, price: float, partition: int = 0) -> Input:
    """A tick with its own time, sent a minute later."""
    value = {"symbol": symbol, "CreatedTime": at, "price": price, "volume": 1}
    return Input(topic="ticks", value=value, key=symbol.encode(), partition=partition, timestamp_ms=at + 60_000)


def test_a_window_has_count_range_and_average_of_five_seconds(spark: SparkSession) -> None:
    driver = TopologyDriver(STATS, spark)

    driver.pipe([tick("INFY", 5_000, 10), tick("INFY", 9_999, 11), tick("INFY", 5_000, 14.5), tick("TCS", 5_000, 1)])

    row = next(
        row for row in driver.rows("windows") if row["window_start"] == moment(5_000) and row["symbol"] == "INFY"
    )
    assert (row["trades"], row["lowest"], row["highest"]) == (3, Decimal("10.00"), Decimal("14.50"))
    assert row["average"] == Decimal("11.833333")
    # 5.000 is in the windows that begin at 1 to 5 s, 9.999 in those of 5 to 9 s.
    assert sorted(row["window_start"] for row in driver.rows("windows") if row["symbol"] == "INFY") == [
        moment(second * 1000) for second in range(1, 10)
    ]


def test_a_late_tick_lands_in_its_own_windows_or_among_the_late_records(spark: SparkSession) -> None:
    driver = TopologyDriver(STATS, spark)
    driver.pipe([tick("INFY", 5_000, 10), tick("INFY", 20_000, 20)])
    assert [row["window_end"] for row in driver.rows("stats")] == [moment(second * 1000) for second in range(6, 11)]

    driver.pipe([tick("INFY", 8_500, 30), tick("INFY", 4_999, 40)])

    windows = {row["window_start"]: row for row in driver.rows("windows")}
    # The frontier is at 10 s: of the windows with 8.5 s in them, those that end at 11 s and later take it.
    assert {start for start, row in windows.items() if row["highest"] == 30} == {moment(s * 1000) for s in (6, 7, 8)}
    assert windows[moment(5_000)]["highest"] == 10
    late = [(row["reason"], json.loads(row["record"])["CreatedTime"]) for row in driver.rows("late_records")]
    assert late == [("2 of its 5 windows are closed", 8_500), ("5 of its 5 windows are closed", 4_999)]


def test_a_final_window_is_sent_once_and_stays_in_the_table(spark: SparkSession) -> None:
    driver = TopologyDriver(STATS, spark)
    driver.pipe([tick("INFY", 5_000, 10), tick("INFY", 16_000, 1)])
    driver.pipe([tick("INFY", 17_000, 1), tick("TCS", 77_000, 1)])

    sent = sorted((key, json.loads(value or b"")["window_end"]) for key, value in driver.sent("stats-out"))
    assert sent == [(b"INFY", f"1970-01-01T00:00:{end:02}.000000Z") for end in (*range(6, 11), *range(17, 23))]
    assert len(driver.rows("windows")) == 5 + 6 + 5


def test_version_1_has_one_window_per_tick_and_no_average(spark: SparkSession) -> None:
    driver = TopologyDriver(STATS_V1, spark)
    driver.pipe([tick("INFY", 5_000, 10), tick("INFY", 9_999, 11), tick("INFY", 10_000, 12)])

    rows = [(row["window_start"], row["trades"], row["highest"]) for row in driver.rows("windows")]
    assert rows == [(moment(5_000), 2, 11), (moment(10_000), 1, 12)]
    assert "average" not in driver.rows("windows")[0]


def test_ten_years_of_real_prices_match_pandas(spark: SparkSession) -> None:
    import pandas as pd
    from vega_datasets import data

    prices = data.stocks().sort_values(["date", "symbol"], kind="stable")
    # The file has a price a month. Days are taken for 50 ms, so that a window has three or four.
    prices["at"] = (prices["date"] - pd.Timestamp(2000, 1, 1)).dt.days * 50
    partitions = {symbol: number % 3 for number, symbol in enumerate(prices["symbol"].unique())}
    ticks = [tick(row.symbol, row.at, row.price, partitions[row.symbol]) for row in prices.itertuples()]
    driver = TopologyDriver(STATS, spark, partitions={"ticks": 3})
    for part in (ticks[:200], ticks[200:]):
        driver.pipe(part)

    opened = pd.concat(prices.assign(start=prices["at"] // 1000 * 1000 - back * 1000) for back in range(5))
    grouped = opened.groupby(["symbol", "start"])["price"].agg(["count", "min", "max", "mean"])
    expected = {(symbol, moment(start)): tuple(row) for (symbol, start), *row in grouped.itertuples()}
    windows = {
        (row["symbol"], row["window_start"]): (
            row["trades"],
            float(row["lowest"]),
            float(row["highest"]),
            pytest.approx(float(row["average"]), abs=1e-6),
        )
        for row in driver.rows("windows")
    }
    print(f"{len(ticks)} prices of {len(partitions)} symbols, {len(windows)} windows")
    assert windows == expected
    frontier = moment(int(prices["at"].max()) - 10_000)
    final = {(row["symbol"], row["window_start"]) for row in driver.rows("stats")}
    assert final == {at for at in expected if at[1] + timedelta(seconds=5) <= frontier}


def test_windows_are_the_same_however_the_log_is_cut(spark: SparkSession) -> None:
    chance = random.Random(1)
    ticks = [
        tick(chance.choice(KEYS), 40_000 + 1_500 * number - chance.choice([0, 0, 3_000, 16_000]), number, number % 2)
        for number in range(20)
    ]

    assert_slice_invariant(STATS, ticks, spark, by_arrival=True, cuts=2)
