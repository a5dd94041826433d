"""Rows may have columns under the names that an operator on windows gives its own: its aggregates read theirs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from support.windowing import finals_of

from kappa import Append, Source, Topology
from kappa.operators import agg, hopping_window, session_window, sliding_window, tumbling_window
from kappa.operators.timed import sessions, sliding, windows
from kappa.testing import Input, TopologyDriver
from kappa.topology.revisions import revision_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WINDOWS: dict[str, Any] = {
    "tumbling": partial(tumbling_window, size="5 seconds", keep="1 day"),
    "hopping": partial(hopping_window, size="4 seconds", every="2 seconds"),
    "days": partial(tumbling_window, size="1 day", zone="Europe/Berlin"),
    "sliding": partial(sliding_window, size="5 seconds"),
    "sessions": partial(session_window, gap="5 seconds"),
}
OWN = sorted({*windows._OWN, *sessions._OWN, *sliding._OWN})
HOUR_MS = 3_600_000


def final_rows(spark: SparkSession, columns: list[str]) -> dict[str, list[dict[str, Any]]]:
    """What each operator makes of the same values under these names."""
    source = Source(
        topic="in", schema=", ".join(["id STRING", *(f"{name} BIGINT" for name in columns)]), grace="0 seconds"
    )
    sums = {f"sum_{place}": agg.sum(name) for place, name in enumerate(columns)}
    operators = {name: of(source, key="id", aggregates=sums, table=name) for name, of in WINDOWS.items()}
    driver = TopologyDriver(finals_of(source, operators), spark)
    for slice_times in ([1_000, 2_500, 3_000], [9_000, 50 * HOUR_MS]):
        driver.pipe(
            Input(
                topic="in",
                value={"id": "a"} | {name: at + place for place, name in enumerate(columns)},
                timestamp_ms=at,
            )
            for at in slice_times
        )
    return {name: sorted(driver.rows(f"{name}_final"), key=repr) for name in WINDOWS}


@pytest.mark.spark
def test_aggregates_read_the_columns_of_the_rows(spark: SparkSession) -> None:
    plain = final_rows(spark, [f"c{place}" for place, _ in enumerate(OWN)])
    assert all(plain.values())
    assert final_rows(spark, OWN) == plain


@pytest.mark.spark
def test_windows_of_windows_know_when_those_began(spark: SparkSession) -> None:
    source = Source(topic="in", schema="id STRING", grace="0 seconds")
    hours = tumbling_window(source, key="id", size="1 hour", aggregates={"n": agg.count()}, table="hours")
    of_hours = {
        "first": agg.min("window_start"),
        "last": agg.max("window_start"),
        "hours": agg.distinct("window_start"),
    }
    days = tumbling_window(hours.final, key="id", size="1 day", aggregates=of_hours, table="days")
    outputs = [Append(name="days_final", of=days.final)]
    driver = TopologyDriver(
        Topology(name="days.hours", version="1", sources=[source], operators=[hours, days], outputs=outputs), spark
    )
    driver.pipe(Input(topic="in", value={"id": "a"}, timestamp_ms=hour * HOUR_MS + 5) for hour in (3, 7, 9, 49))
    (day,) = driver.rows("days_final")
    assert (day["first"].hour, day["last"].hour, day["hours"]) == (3, 9, 3)


@pytest.mark.parametrize("name", WINDOWS)
def test_only_windows_that_read_such_a_column_have_a_new_revision(name: str) -> None:
    source = Source(topic="in", schema=f"id STRING, n INT, {' INT, '.join(OWN)} INT", grace="0 seconds")
    own = {"sliding": {"event_time"}, "sessions": set()}.get(name, {"window_start"})
    revised = {
        column
        for column in ("n", *OWN)
        if revision_of(WINDOWS[name](source, key="id", aggregates={"x": agg.sum(column)}, table="t").tables[0].made_by)
        == 2
    }
    assert revised == own
