"""`movies.ratings` on votes written by hand."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from support.topologies import first_version, shipped

from kappa.testing import Input, TopologyDriver, assert_slice_invariant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

RATINGS = shipped("movies.ratings")


def vote(movie: str, user: str, rating: int, at: int = 0, partition: int = 0) -> Input:
    value = {"movieID": movie, "userID": user, "rating": rating}
    return Input(topic="ratings", key=movie.encode(), value=value, partition=partition, timestamp_ms=at)


def averages(driver: TopologyDriver) -> dict[str, tuple[int, Decimal]]:
    return {row["movieID"]: (row["count"], row["average"]) for row in driver.rows("averages")}


def test_the_average_moves_with_each_vote(spark: SparkSession) -> None:
    driver = TopologyDriver(RATINGS, spark)

    driver.pipe([vote("m1", "u1", 8), vote("m1", "u2", 9), vote("m2", "u1", 1)])
    assert averages(driver) == {"m1": (2, Decimal("8.5")), "m2": (1, Decimal(1))}
    driver.pipe([vote("m1", "u3", 3), Input(topic="ratings", value=None)])

    assert averages(driver) == {"m1": (3, Decimal("6.6667")), "m2": (1, Decimal(1))}


def test_the_first_vote_of_a_viewer_counts_since_version_2(spark: SparkSession) -> None:
    second, first = TopologyDriver(RATINGS, spark), TopologyDriver(first_version("movies.ratings"), spark)

    for driver in (second, first):
        driver.pipe([vote("m1", "u1", 8), vote("m1", "u1", 2)])
        driver.pipe([vote("m1", "u1", 2)])

    assert averages(second) == {"m1": (1, Decimal(8))}
    assert averages(first) == {"m1": (3, Decimal(4))}


def test_no_cut_changes_an_average(spark: SparkSession) -> None:
    cast = [("m1", "u1", 8, 3, 0), ("m1", "u1", 1, 4, 0), ("m1", "u2", 5, 5, 0), ("m2", "u1", 7, 1, 1)]
    votes = [vote(movie, user, rating, at, partition) for movie, user, rating, at, partition in cast]

    assert_slice_invariant(RATINGS, [*votes, vote("m2", "u1", 2, 9, 1)], spark, cuts=1, by_arrival=True)
