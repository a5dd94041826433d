"""`music.charts` on plays written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.topologies import first_version, shipped

from kappa.testing import Input, TopologyDriver, assert_slice_invariant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CHARTS = shipped("music.charts")


def plays(song: str, count: int = 1, genre: str = "Jazz", seconds: int = 30, at: int = 0) -> list[Input]:
    value = {"songID": song, "name": song.upper(), "genre": genre, "duration_ms": seconds * 1000}
    return [Input(topic="plays", key=song.encode(), value=value, partition=len(song), timestamp_ms=at)] * count


def chart(driver: TopologyDriver, name: str) -> list[tuple[str, int]]:
    return [
        (song["value"], song["by"]) for row in driver.rows("charts") if row["chart"] == name for song in row["songs"]
    ]


def test_a_chart_has_the_five_most_played_songs(spark: SparkSession) -> None:
    driver = TopologyDriver(CHARTS, spark)

    driver.pipe([play for count, song in enumerate("abcdef", 1) for play in plays(song, count)])
    driver.pipe([*plays("a", 6), *plays("x", 4, genre="Folk"), Input(topic="plays", value=None)])

    assert chart(driver, "Jazz") == [("a", 7), ("f", 6), ("e", 5), ("d", 4), ("c", 3)]
    assert chart(driver, "Folk") == [("x", 4)]
    assert chart(driver, "all") == [("a", 7), ("f", 6), ("e", 5), ("x", 4), ("d", 4)]


def test_plays_shorter_than_half_a_minute_do_not_count_since_version_2(spark: SparkSession) -> None:
    second, first = TopologyDriver(CHARTS, spark), TopologyDriver(first_version("music.charts"), spark)

    for driver in (second, first):
        driver.pipe([*plays("a", 2, seconds=29), *plays("b", seconds=30)])

    assert chart(second, "all") == [("b", 1)]
    assert chart(first, "all") == [("A", 2), ("B", 1)]


def test_two_songs_with_the_same_name_are_two_entries(spark: SparkSession) -> None:
    driver = TopologyDriver(CHARTS, spark)
    same = {"name": "Hallelujah", "genre": "Folk", "duration_ms": 30_000}

    driver.pipe([Input(topic="plays", value={"songID": song, **same}) for song in ("cohen", "buckley", "cohen")])

    assert chart(driver, "Folk") == [("cohen", 2), ("buckley", 1)]


def test_no_cut_changes_a_chart(spark: SparkSession) -> None:
    heard = [*plays("a", 2, at=1), *plays("bb", at=2), *plays("a", at=3), *plays("bb", 2, genre="Folk", at=4)]

    assert_slice_invariant(CHARTS, heard, spark, cuts=1, by_arrival=True)
