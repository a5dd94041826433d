"""Slice invariance: a topology gives the same however its log is cut."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kappa.offsets.releases import Releases
from kappa.offsets.small_logs import Placed, cut_by_arrival, cut_by_time, placed, time_of
from kappa.offsets.vector import Offsets
from kappa.operators.origin import Order
from kappa.testing.topology_driver import BEGIN, Input, TopologyDriver, time_at, with_times
from kappa.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def assert_slice_invariant(
    topology: Topology,
    inputs: Iterable[Input],
    session: SparkSession,
    *,
    cuts: int = 3,
    seed: int = 0,
    by_arrival: bool = False,
) -> None:
    """Assert that a topology gives the same however its log is cut.

    By time, as a replay cuts it; with ``by_arrival`` by what happened to be there, as a live stream cuts it. What holds
    under both is the same live and replayed. Tables and outputs that declare other ``cuts`` are left out where they may
    differ.

    The records are run as one slice, as one slice per record, and in several random ways. What is compared with the one
    slice: rows of tables by key; rows of append outputs in the total order; what is sent to a topic, in the order that
    the operator of its rows declares (docs/event-time.md): all of it, key by key, or in none (of a topic made from a
    table, and keyed like it, the newest value of each key); dead letters. Takes about a second for each slice: hand in
    dozens of records, not thousands.

    Args:
        inputs: records of its sources; those of one partition in the order given. One without a time is of 1970. Of a
            source that follows a topology, that is the time of the row: up to then rows are final after each slice.
        cuts: how many random ways, each at one to four times.
        seed: which random ways.
        by_arrival: also cut each partition at a place of its own, so that partitions and topics lag each other. Of
            what was sent key by key the order is then not compared.

    Raises:
        AssertionError: a result differs; names the table, output or topic, the cut, and the first rows that differ.
    """
    log = placed(with_times(inputs, BEGIN))
    chance = random.Random(seed)  # noqa: S311 - reproducible on purpose
    ways = [(False, *way) for way in cut_by_time(log, cuts, chance)]
    ways += [(True, *way) for way in cut_by_arrival(log, cuts, chance)] if by_arrival else []
    released = _released(topology, session, log, chance) if topology.has_idle_partitions else None
    whole = _results(topology, session, [log], released, is_ordered=not by_arrival)
    for is_arrival, name, slices in ways:
        rest = topology.depending_on_cuts(by_arrival=is_arrival)
        results = _results(topology, session, slices, released, is_ordered=not by_arrival, without=rest)
        for what, rows in results.items():
            if rows != whole[what]:
                raise AssertionError(_difference(topology.name, what, name, whole[what], rows))


def _run(
    topology: Topology,
    session: SparkSession,
    slices: Sequence[Sequence[Placed[Input]]],
    released: Sequence[tuple[Offsets, Releases]] | None = None,
) -> TopologyDriver:
    """A driver that has run these slices."""
    partitions: Counter[str] = Counter()
    for one in (one for part in slices for one in part):
        partitions[one.topic] = max(partitions[one.topic], one.partition + 1)
    driver = TopologyDriver(topology, session, partitions=partitions, released=released)
    for n, part in enumerate(slices):
        driver.pipe((one.item for one in part), final=_final(topology, slices, n))
    return driver


def _final(topology: Topology, slices: Sequence[Sequence[Placed[Input]]], n: int) -> dict[str, datetime]:
    """Up to when the rows of topics that are followed may be final after a slice: as late as those after it allow."""
    times_by_topic = {}
    for topic in (source.topic for source in topology.sources if source.follows_upstream):
        times = [[time_of(one.item) for one in part if one.topic == topic] for part in slices]
        still_to_come = [ms for part in times[n + 1 :] for ms in part]
        so_far = [ms for part in times[: n + 1] for ms in part]
        if still_to_come or so_far:
            times_by_topic[topic] = time_at(min(still_to_come or [max(so_far)]))
    return times_by_topic


def _released(
    topology: Topology, session: SparkSession, log: list[Placed[Input]], chance: random.Random
) -> Sequence[tuple[Offsets, Releases]]:
    """The releases of a live stream that reads the records as they come."""
    ((_, slices),) = cut_by_arrival(log, 1, chance)
    return _run(topology, session, slices).released


def _results(
    topology: Topology,
    session: SparkSession,
    slices: Iterable[Sequence[Placed[Input]]],
    released: Sequence[tuple[Offsets, Releases]] | None,
    *,
    is_ordered: bool = True,
    without: Collection[str] = (),
) -> dict[str, list[Any]]:
    """The results, by ``table <name>`` and the like, in an order that does not depend on the slices."""
    driver = _run(topology, session, list(slices), released)
    names = [table.name for table in topology.tables if table.name not in without]
    results: dict[str, list[Any]] = {f"table {name}": driver.state(name) for name in names}
    for append in (append for append in topology.appends if append.name not in without):
        results[f"output {append.name}"] = driver.rows_in_order(append.name)
    keys = {table.name: table.key for table in topology.tables}
    for topic in (topic for topic in topology.topics if topic.of not in without):
        sent = driver.sent(topic.name)
        if topic.of not in keys:
            results[f"topic {topic.name}"] = _as_declared(sent, driver.orders.get(topic.of), is_ordered=is_ordered)
        elif set(topic.key) == set(keys[topic.of]):
            results[f"topic {topic.name}"] = sorted(pair for pair in dict(sent).items() if pair[1] is not None)
    order = ("_topic", "_partition", "_offset")
    results["dead letters"] = sorted(driver.dead_letters, key=lambda letter: [letter[name] for name in order])
    return {what: _comparable(rows) for what, rows in results.items()}


def _comparable(value: Any) -> Any:
    """A value with a text for NaN, which equals nothing, not even itself."""
    if isinstance(value, dict):
        return {name: _comparable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_comparable(item) for item in value]
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


def _as_declared(
    sent: list[tuple[bytes | None, bytes | None]], order: Order | None, *, is_ordered: bool
) -> list[tuple[bytes | None, bytes | None]]:
    """The records that were sent, sorted except for the order that their rows declare, which is compared.

    Kafka keeps the order of a key's records; those without a key have none.

    Args:
        sent: key and value of each record.
        order: what the operator of the rows declares.
        is_ordered: whether partitions come in one order under all cuts that are compared.
    """
    if order == "topic":
        return sent
    by_value = not is_ordered or order in ("contributor", "none")
    return sorted(
        sent, key=lambda one: (one[0] is not None, one[0] or b"", one[1] or b"" if one[0] is None or by_value else b"")
    )


def _difference(topology: str, what: str, way: str, expected: list[Any], actual: list[Any]) -> str:
    first = next(
        (at for at, (a, b) in enumerate(zip(expected, actual, strict=False)) if a != b), min(len(expected), len(actual))
    )
    lines = [
        f"{topology}: {what} depends on how the log is cut.",
        f"  one slice gives {len(expected)} rows, {way} gives {len(actual)}; the first difference is at row {first}:",
    ]
    for name, rows in (("one slice", expected), (way, actual)):
        lines += [f"  {name}:", *(f"    {row}" for row in rows[first : first + 3] or ["(no further row)"])]
    return "\n".join(lines)
