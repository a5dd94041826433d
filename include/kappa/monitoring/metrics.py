"""The measures of an epoch, as Prometheus metrics.

Every series has the labels ``topology`` and ``epoch``, and ``owner`` where the topology names one. Any other label
comes from the topology's file, or is a fixed word, so that the number of series does not grow with the stream.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kappa import clock as wall_clock
from kappa.offsets.floors import Floors, least_frontiers
from kappa.offsets.vector import Offsets, ranges_end
from kappa.topology.times.event_time import frontier_of

if TYPE_CHECKING:
    from kappa.record.ledger_rows import LedgerRow
    from kappa.topology import Topology

#: Lines of the slice protocol.
LINES = ("plan", "effects", "send", "apply", "commit")
STATES = ("running", "slow", "stuck", "stopped")
#: A live slice takes a fraction of a second, and a slice of a replay minutes.
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Metrics:
    """The measures of one epoch, in a registry of their own.

    Measures of commits have no value before the first one. Counters begin at 0 in each process.

    Args:
        bound: source -> the name of its topic in Kafka, if that differs.
        start: where the plan of the epoch begins.
        end: where its bulk work ends.
        floors: gives the least frontiers that hold at the last commit: a longer grace takes none of them back.
        clock: monotonic seconds.

    Attributes:
        registry: the content of the endpoint.
        position: next offset of each partition; None before the first commit.
    """

    def __init__(
        self,
        topology: Topology,
        epoch: int,
        *,
        bound: Mapping[str, str],
        start: Offsets,
        end: Offsets,
        floors: Callable[[], Floors] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        self.registry = CollectorRegistry()
        self.position: Offsets | None = None
        self._sources = [source for source in topology.sources if source.grace_ms is not None]
        self._floors = floors
        self._bound, self._start, self._end, self._clock = bound, start, end, clock
        self._line: tuple[str, float] | None = None
        self._seconds: dict[str, float] = {}
        self._at = {"topology": topology.name, "epoch": str(epoch)}
        if topology.owner:
            self._at["owner"] = topology.owner

        def one(kind: Any, name: str, text: str, *labels: str, **options: Any) -> Any:
            return kind(name, text, [*self._at, *labels], registry=self.registry, **options)

        self._state = one(
            Gauge, "kappa_driver_state", "1 for the state that the driver is in, 0 for the others.", "state"
        )
        self._is_live = one(Gauge, "kappa_is_live", "1 while the epoch is the live one, otherwise 0.")
        self._seq = one(Gauge, "kappa_committed_seq", "Number of the last committed slice.")
        self._at_seconds = one(Gauge, "kappa_committed_timestamp_seconds", "When that slice was committed.")
        self._lag = one(
            Gauge, "kappa_lag_records", "Offsets between the last commit and the stable end of the sources."
        )
        self._records = one(Counter, "kappa_records_total", "Records read by committed slices.")
        self._dead = one(Counter, "kappa_dead_letters_total", "Records that did not parse.")
        self._aside = one(Counter, "kappa_set_aside_total", "Records that a decision set aside.")
        self._late = one(Counter, "kappa_late_records_total", "Records that an operator refused as late.")
        self._rows = one(Counter, "kappa_rows_total", "Rows written by committed slices.", "kind", "name")
        self._failures = one(Counter, "kappa_failures_total", "Errors that the driver has weighed.", "kind")
        self._in_a_row = one(Gauge, "kappa_failures_in_a_row", "Failures at one place without a commit since.")
        self._lines = one(
            Histogram, "kappa_slice_seconds", "Time of a slice in a line of the protocol.", "line", buckets=SECONDS
        )
        self._slices = one(
            Histogram, "kappa_slice_duration_seconds", "Time of a slice from plan to commit.", buckets=SECONDS
        )
        self._progress = one(Gauge, "kappa_replay_progress_ratio", "Share of the plan's range that is computed.")
        self._frontier = one(
            Gauge,
            "kappa_frontier_timestamp_seconds",
            "Event time that all partitions have passed, less the grace.",
            "source",
        )
        self._furthest = one(Gauge, "kappa_stream_time_seconds", "Largest event time of any partition.", "source")
        self._skew = one(
            Gauge,
            "kappa_event_time_skew_seconds",
            "By how much the slowest partition is behind the furthest; infinite if one had no record.",
            "source",
        )
        self._published = one(
            Gauge,
            "kappa_published_behind_seconds",
            "How long the oldest commit has waited that a published table lacks; 0 if it lacks none.",
            "kind",
            "name",
        )
        self._unmeasured = one(Counter, "kappa_unmeasured_total", "Measures that failed; the log says why.")
        for metric in (
            self._records,
            self._dead,
            self._aside,
            self._late,
            self._in_a_row,
            self._slices,
            self._unmeasured,
        ):
            metric.labels(**self._at)
        for kind in ("failure", "wait"):
            self._failures.labels(**self._at, kind=kind)
        for line in LINES:
            self._lines.labels(**self._at, line=line)
        for kind, members in (("table", topology.tables), ("output", topology.appends)):
            for member in members:
                self._rows.labels(**self._at, kind=kind, name=member.name)

    def watch(self, state: Callable[[], str]) -> None:
        """Take the driver's state from this function at each scrape."""
        for name in STATES:
            self._state.labels(**self._at, state=name).set_function(lambda name=name: float(state() == name))

    def started(self, committed: LedgerRow | None, *, is_live: bool) -> None:
        """Set the state in which the epoch's last driver left it."""
        self._is_live.labels(**self._at).set(is_live)
        if committed is not None:
            self.stands_at(committed)

    def begin(self, line: str) -> None:
        """Note that a line begins and the previous one has ended; lines outside the protocol are not measured.

        Args:
            line: its name, alone or with further words: ``effects of slice 7``.
        """
        now = self._clock()
        if self._line is not None:
            name, since = self._line
            self._seconds[name] = self._seconds.get(name, 0.0) + now - since
        name = line.partition(" ")[0]
        self._line = (name, now) if name in LINES else None
        if name == "plan":
            self._seconds = {}

    def committed(self, row: LedgerRow, seconds: float) -> None:
        """A slice was committed."""
        self.begin("")
        for line, duration in self._seconds.items():
            self._lines.labels(**self._at, line=line).observe(duration)
        self._seconds = {}
        self._slices.labels(**self._at).observe(seconds)
        self._records.labels(**self._at).inc(row.rows_read)
        self._dead.labels(**self._at).inc(row.rows_dead)
        self._aside.labels(**self._at).inc(row.rows_set_aside)
        self._late.labels(**self._at).inc(row.rows_late)
        self._in_a_row.labels(**self._at).set(0)
        self._is_live.labels(**self._at).set(row.sends == "live")
        self.stands_at(row)

    def failed(self, kind: str, in_a_row: int) -> None:
        """Count an error that the driver has weighed; the time of the present slice is not counted.

        Args:
            kind: ``failure``, or ``wait`` for a transient error.
            in_a_row: consecutive failures at this place.
        """
        self._line, self._seconds = None, {}
        self._failures.labels(**self._at, kind=kind).inc()
        self._in_a_row.labels(**self._at).set(in_a_row)

    def written(self, kind: str, name: str, rows: int) -> None:
        """Count rows of a table's changes (``table``) or of an append output (``output``)."""
        self._rows.labels(**self._at, kind=kind, name=name).inc(rows)

    def lag(self, offsets: int | None) -> None:
        """Set the lag; None if it is not known, which ends the series."""
        if offsets is None:
            self._lag.clear()
        else:
            self._lag.labels(**self._at).set(offsets)

    def published(self, kind: str, name: str, since: datetime | None) -> None:
        """Set since when a published table lacks a commit; None if it lacks none. The gauge grows until the next call,
        and is NaN while that time is still to come by this clock.

        Args:
            kind: ``table`` or ``output``.
        """
        gauge = self._published.labels(**self._at, kind=kind, name=name)

        def seconds() -> float:
            age = 0.0 if since is None else wall_clock.age_seconds(since)
            return math.nan if age is None else age

        gauge.set_function(seconds)

    def unpublished(self) -> None:
        """The epoch is not the live one: others publish. Ends the series."""
        self._published.clear()

    def unmeasured(self) -> None:
        """Count a measure that failed."""
        self._unmeasured.labels(**self._at).inc()

    def stands_at(self, row: LedgerRow) -> None:
        """Note that the last commit is this one, a slice or the seed."""
        self.position = ranges_end(row.ranges)
        self._seq.labels(**self._at).set(row.seq)
        self._at_seconds.labels(**self._at).set(row.at.timestamp())
        offsets, total = self._start.processed(self.position, self._end)
        self._progress.labels(**self._at).set(offsets / total if total else 1.0)
        floors = self._floors() if self._sources else {}
        for source in self._sources:
            topic = self._bound.get(source.topic, source.topic)
            times = row.stream_times.get(topic, {})
            partitions = [item.partition for item in row.ranges if item.topic == topic]
            least = least_frontiers(floors.get(topic, {}))
            frontier = frontier_of(times, partitions, source.grace_ms or 0, least)
            if frontier.ms is not None:
                self._frontier.labels(**self._at, source=source.topic).set(frontier.ms / 1000)
            if times:
                own_times = [times[partition] for partition in partitions if partition in times]
                behind = (max(own_times) - min(own_times)) / 1000 if len(own_times) == len(partitions) else math.inf
                self._furthest.labels(**self._at, source=source.topic).set(max(own_times) / 1000)
                self._skew.labels(**self._at, source=source.topic).set(behind)
