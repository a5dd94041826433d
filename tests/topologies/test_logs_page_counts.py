"""`logs.page_counts` on views written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.topologies import first_version, shipped

from kappa.testing import Input, TopologyDriver, assert_slice_invariant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE_COUNTS = shipped("logs.page_counts")


def views(page: str, count: int, agent: str | None = "Firefox", at: int = 0, partition: int = 0) -> list[Input]:
    value = {"page": page, "agent": agent}
    one = Input(topic="page-views", key=page.encode(), value=value, partition=partition, timestamp_ms=at)
    return [one] * count


def test_views_by_people_count_and_views_by_crawlers_do_not(spark: SparkSession) -> None:
    driver = TopologyDriver(PAGE_COUNTS, spark)

    driver.pipe([*views("/a", 2), *views("/a", 3, agent="ExampleBot"), *views("/b", 1, agent=None)])
    driver.pipe([*views("/a", 1), Input(topic="page-views", value=None)])

    assert driver.rows("counts") == [{"page": "/a", "views": 3}, {"page": "/b", "views": 1}]
    assert driver.sent("counter_topic") == [
        (b"/a", b'{"page":"/a","views":2}'),
        (b"/b", b'{"page":"/b","views":1}'),
        (b"/a", b'{"page":"/a","views":3}'),
    ]


@pytest.mark.parametrize("slices", [(998, 6), (999, 1, 1), (1004,), (1000, 1000)])
def test_the_thousandth_view_alerts_exactly_once(spark: SparkSession, slices: tuple[int, ...]) -> None:
    driver = TopologyDriver(PAGE_COUNTS, spark)

    for count in slices:
        driver.pipe(views("/a", count))

    assert driver.rows("popular") == [{"page": "/a", "views": 1000, "threshold": 1000}]
    assert len(driver.sent("alerts")) == 1


def test_version_1_counts_crawlers_too(spark: SparkSession) -> None:
    driver = TopologyDriver(first_version("logs.page_counts"), spark)

    driver.pipe([*views("/a", 2), *views("/a", 3, agent="ExampleBot")])

    assert driver.rows("counts") == [{"page": "/a", "views": 5}]


def test_no_cut_changes_a_count(spark: SparkSession) -> None:
    sent = [*views("/a", 2, at=1), *views("/b", 2, at=2, partition=1), *views("/a", 2, at=3), *views("/c", 1, at=1)]

    assert_slice_invariant(PAGE_COUNTS, sent, spark, cuts=1, by_arrival=True)
