"""`logs.captcha` on actions and captchas written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.topologies import first_version, shipped

from kappa.testing import Input, TopologyDriver, assert_slice_invariant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

CAPTCHA = shipped("logs.captcha")


def actions(count: int, at: int, browser: str = "b1") -> list[Input]:
    value = {"browser": browser, "action": "search"}
    return [Input(topic="logs", key=browser.encode(), value=value, timestamp_ms=at)] * count


def captcha(at: int, *, passed: bool = True, browser: str = "b1") -> Input:
    value = {"browser": browser, "passed": passed}
    return Input(topic="captcha", key=browser.encode(), value=value, timestamp_ms=at)


def requests(driver: TopologyDriver) -> list[tuple[str, int]]:
    return [(row["browser"], row["actions"]) for row in driver.rows("asked")]


def test_a_browser_gets_captchas_from_its_fifth_action_on(spark: SparkSession) -> None:
    driver = TopologyDriver(CAPTCHA, spark)

    driver.pipe([*actions(4, at=1), *actions(4, at=1, browser="b2")])
    assert requests(driver) == []
    driver.pipe(actions(2, at=2))

    assert requests(driver) == [("b1", 5), ("b1", 6)]
    assert [key for key, _ in driver.sent("ask-captcha")] == [b"b1", b"b1"]


def test_a_passed_captcha_restarts_the_count_even_within_a_slice(spark: SparkSession) -> None:
    driver = TopologyDriver(CAPTCHA, spark)

    driver.pipe([*actions(5, at=1), captcha(2), *actions(4, at=3)])
    assert requests(driver) == [("b1", 5)]
    driver.pipe([*actions(1, at=4), captcha(5, passed=False), *actions(1, at=6)])

    assert requests(driver) == [("b1", 5), ("b1", 5), ("b1", 6)]


def test_a_captcha_passed_later_in_the_order_does_not_count_yet(spark: SparkSession) -> None:
    driver = TopologyDriver(CAPTCHA, spark)

    driver.pipe([captcha(9), *actions(5, at=8)])
    driver.pipe(actions(1, at=10))

    assert requests(driver) == [("b1", 5)]
    assert driver.rows("actions") == [{"browser": "b1", "passes": 1, "actions": 1}]


def test_version_1_stops_after_one_passed_captcha(spark: SparkSession) -> None:
    driver = TopologyDriver(first_version("logs.captcha"), spark)

    driver.pipe([*actions(5, at=1), captcha(2, passed=False), *actions(1, at=3)])
    driver.pipe([captcha(4), *actions(9, at=5)])

    assert requests(driver) == [("b1", 5), ("b1", 6)]


def test_no_cut_by_time_changes_the_captchas(spark: SparkSession) -> None:
    sent = [*actions(3, at=1), *actions(2, at=2), captcha(2), *actions(1, at=4)]

    assert_slice_invariant(CAPTCHA, sent, spark, cuts=1)
