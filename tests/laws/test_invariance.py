"""Results do not depend on how the log is cut into slices: by time all of them, by arrival the balances."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from kappa.offsets.cuts import next_cut
from kappa.offsets.vector import Offsets
from kappa.testing import Input, TopologyDriver
from kappa.topology.registry import load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TOPOLOGIES = Path(__file__).resolve().parents[2] / "include" / "topologies"
START_MS = 1_700_000_000_000
FEW = settings(
    max_examples=6,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    # an example takes seconds: none is shrunk, and the failing one can be run again by what is printed
    print_blob=True,
)

#: Times that go back and forth by a few milliseconds, with equal ones, and clocks that are far off.
times = st.one_of(st.integers(0, 6), st.sampled_from([-START_MS, -86_400_000, 10**9])).map(lambda ms: START_MS + ms)
#: Customer, cents, whether the invoice earns points; three customers who buy everywhere.
invoices = st.tuples(
    st.sampled_from(["c1", "c2", "c3"]), st.integers(1, 10**6), st.sampled_from([True, True, True, False])
)
#: A broken record now and then: it has a place and a time, too.
records = st.tuples(times, st.one_of(invoices, invoices, invoices, st.none()))
#: Three partitions.
logs = st.lists(st.lists(records, max_size=8), min_size=3, max_size=3).filter(lambda parts: sum(map(len, parts)) > 3)

Part = Sequence[tuple[int, tuple[str, int, bool] | None]]


def value(number: str, invoice: tuple[str, int, bool] | None) -> Any:
    if invoice is None:
        return b"{"
    customer, cents, is_prime = invoice
    return {
        "InvoiceNumber": number,
        "CustomerType": "PRIME" if is_prime else "REGULAR",
        "CustomerCardNo": customer,
        "TotalAmount": cents / 100,
    }


def inputs(log: Sequence[Part], start: Offsets, end: Offsets) -> list[Input]:
    records = []
    for partition, part in enumerate(log):
        for offset in range(start.get("pos", partition) or 0, end.get("pos", partition) or 0):
            ms, invoice = part[offset]
            records.append(
                Input(topic="pos", value=value(f"{partition}-{offset}", invoice), partition=partition, timestamp_ms=ms)
            )
    return records


def expected(log: Sequence[Part]) -> tuple[list[tuple[str, Decimal]], dict[str, Decimal]]:
    """Notifications in the total order, and balances, by plain Python."""
    order = []
    for partition, part in enumerate(log):
        running = None
        for offset, (ms, invoice) in enumerate(part):
            running = ms if running is None else max(running, ms)
            order.append((running, partition, offset, invoice))
    balances: dict[str, Decimal] = {}
    notifications = []
    for _, partition, offset, invoice in sorted(order, key=lambda item: item[:3]):
        if invoice is not None and invoice[2]:
            customer, cents, _ = invoice
            balances[customer] = balances.get(customer, Decimal(0)) + Decimal(cents) / 100 * Decimal("0.02")
            notifications.append((f"{partition}-{offset}", balances[customer]))
    return notifications, balances


def index(log: Sequence[Part], time_ms: int, since: Offsets) -> Offsets:
    """Kafka's answer for a time: of each partition the first offset from ``since`` on at or past it, or the end."""
    return Offsets.of(
        ((topic, p), next((o for o in range(start, len(log[p])) if log[p][o][0] >= time_ms), len(log[p])))
        for (topic, p), start in since.items()
    )


def reached(log: Sequence[Part], position: Offsets) -> dict[tuple[str, int], int]:
    return {
        ("pos", p): max(ms for ms, _ in part[: position.get("pos", p)])
        for p, part in enumerate(log)
        if position.get("pos", p)
    }


def ends(log: Sequence[Part]) -> Offsets:
    return Offsets({"pos": {p: len(part) for p, part in enumerate(log)}})


def balances(driver: TopologyDriver) -> dict[str, Decimal]:
    return {row["CustomerCardNo"]: row["TotalLoyaltyPoints"] for row in driver.rows("rewards")}


@FEW
@given(log=logs, sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_every_cut_by_time_gives_the_same_notifications_and_balances(
    spark: SparkSession, log: list[Part], sizes: list[int]
) -> None:
    driver = TopologyDriver(load(TOPOLOGIES, "retail.loyalty"), spark)
    position, end = Offsets({"pos": dict.fromkeys(range(3), 0)}), ends(log)
    turn = 0
    while position != end:
        size = max(sizes[turn % len(sizes)], sum(map(len, log)) // 4)  # at most five slices: each takes a second
        cut = next_cut(partial(index, log), position, end, max_records=size, reached_ms=reached(log, position))
        driver.pipe(inputs(log, position, cut))
        position, turn = cut, turn + 1
    notifications, rewards = expected(log)
    assert [(row["InvoiceNumber"], row["TotalLoyaltyPoints"]) for row in driver.rows("notifications")] == notifications
    assert balances(driver) == rewards
    assert len(driver.dead_letters) == sum(invoice is None for part in log for _, invoice in part)


@FEW
@given(log=logs, data=st.data())
def test_any_cut_gives_the_same_balances(spark: SparkSession, log: list[Part], data: st.DataObject) -> None:
    driver = TopologyDriver(load(TOPOLOGIES, "retail.loyalty"), spark)
    position, end = Offsets({"pos": dict.fromkeys(range(3), 0)}), ends(log)
    for _ in range(data.draw(st.integers(0, 3), label="cuts")):
        cut = Offsets(
            {
                "pos": {
                    p: data.draw(st.integers(position.get("pos", p) or 0, len(part)), label=f"pos[{p}]")
                    for p, part in enumerate(log)
                }
            }
        )
        driver.pipe(inputs(log, position, cut))
        position = cut
    driver.pipe(inputs(log, position, end))
    notifications, rewards = expected(log)
    assert balances(driver) == rewards
    assert sorted(row["InvoiceNumber"] for row in driver.rows("notifications")) == sorted(
        number for number, _ in notifications
    )
