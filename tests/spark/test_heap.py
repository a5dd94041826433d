"""When old objects of a driver's JVM are collected."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from kappa.spark.jvm_heap import GROWTH, LEAST, LEAST_LIVE, OldObjects

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Jvm:
    """A JVM whose old objects are a number."""

    def __init__(self, pool: str) -> None:
        self.used, self.alive, self.collected = 0, 0, 0
        usage = SimpleNamespace(getUsed=lambda: self.used)
        pools = [
            SimpleNamespace(getName=lambda name=name: name, getUsage=lambda: usage) for name in ("Eden Space", pool)
        ]
        factory = SimpleNamespace(getMemoryPoolMXBeans=lambda: pools)
        lang = SimpleNamespace(
            management=SimpleNamespace(ManagementFactory=factory), System=SimpleNamespace(gc=self.gc)
        )
        self.session: Any = SimpleNamespace(
            sparkContext=SimpleNamespace(_jvm=SimpleNamespace(java=SimpleNamespace(lang=lang)))
        )

    def gc(self) -> None:
        self.used = self.alive
        self.collected += 1


def test_old_objects_are_collected_after_growing_since_the_last_look() -> None:
    jvm = Jvm("Tenured Gen")
    old = OldObjects(jvm.session)
    jvm.used, jvm.alive = LEAST - 1, LEAST
    assert not old.collect_if_grown()
    jvm.used = 2 * LEAST
    assert old.collect_if_grown()
    jvm.used = int(GROWTH * LEAST) - 1
    assert not old.collect_if_grown()
    jvm.used = int(GROWTH * LEAST)
    assert old.collect_if_grown()
    assert jvm.collected == 2


def test_old_objects_are_collected_later_while_readers_run() -> None:
    jvm = Jvm("Tenured Gen")
    old = OldObjects(jvm.session)
    jvm.used = LEAST_LIVE - 1
    assert not old.collect_if_grown(LEAST_LIVE)
    jvm.used = LEAST_LIVE
    assert old.collect_if_grown(LEAST_LIVE)


def test_another_collector_is_left_alone() -> None:
    jvm = Jvm("G1 Old Gen")
    old = OldObjects(jvm.session)
    jvm.used = 100 * LEAST
    assert not old.collect_if_grown()
    assert jvm.collected == 0


@pytest.mark.spark
def test_a_real_jvm_reports_and_collects_old_objects(spark: SparkSession) -> None:
    old = OldObjects(spark)
    assert not old.collect_if_grown(1 << 40)
    assert old.collect_if_grown(1)
    assert not old.collect_if_grown(1)
