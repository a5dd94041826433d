"""The metrics of a simulated driver, as Prometheus scrapes them."""

from __future__ import annotations

from typing import Any

from kappa import clock
from kappa.monitoring.metrics import Metrics
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.record.ledger_rows import LedgerRow
from kappa.replay.proof.certificate import Sends
from kappa.topology import Append, Source, Topology
from support.metrics import Samples, samples_of

AT = {"topology": "a.b", "epoch": "1", "owner": "team-a"}
#: What Prometheus itself says of a target.
UP = ("up", frozenset[tuple[str, str]]())


def measured() -> Topology:
    """A topology with event time."""
    return Topology(
        name="a.b",
        version="1",
        owner="team-a",
        sources=[Source(topic="in", schema="a STRING, at BIGINT", time="at", grace="0 seconds")],
        outputs=[Append(name="rows", schema="a STRING")],
        step=lambda slice: {},
    )


class MeasuredDriver:
    """A simulated driver.

    Args:
        epoch: its epoch.
        sends: what its slices send.

    Attributes:
        at: the labels of all its series.
    """

    def __init__(self, epoch: int = 1, sends: Sends = "live") -> None:
        self.sends, self.at = sends, {**AT, "epoch": str(epoch)}
        begin, end = Offsets({"in": {0: 0, 1: 0}}), Offsets({"in": {0: 1000, 1: 1000}})
        self.metrics = Metrics(measured(), epoch, bound={}, start=begin, end=end)
        self.state = "running"
        self.metrics.watch(lambda: self.state)
        self.commit(1, 1000, rows_read=1000)
        self.metrics.lag(0)
        self.metrics.published("output", "rows", None)

    def commit(self, seq: int, end: int, at: tuple[int, int] = (1_000, 2_000), **counts: Any) -> None:
        """A slice of both partitions, which are at these event times in milliseconds."""
        ranges = tuple(OffsetRange(topic="in", partition=p, start=0, end=end) for p in (0, 1))
        times = {"in": dict(enumerate(at))}
        row = LedgerRow(
            kind="commit",
            seq=seq,
            writer="w",
            at=clock.now(),
            sends=self.sends,
            ranges=ranges,
            stream_times=times,
            **counts,
        )
        self.metrics.committed(row, 1.0)

    def samples(self) -> Samples:
        """What is scraped now."""
        return {**samples_of(self.metrics.registry.collect(), self.at), UP: 1}
