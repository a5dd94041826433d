"""Event time: how far a source has come, and when its records are late.

*Stream time* at a record is the largest event time of its partition so far, the record's own included. Stream time
minus the source's ``grace`` is the *frontier*: an operator refuses records before it, and closes windows that it has
passed. Both depend on offsets alone, so a replay that is cut in another way refuses and closes the same.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from kappa.topology.times.grid import Grid

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: As the time of a source: a record's event time is the time at which its slice was planned. Results cannot be computed
#: again, so a replay is refused.
WALL_CLOCK = "wall clock"
#: Columns that only records of a source with event time have. ``_is_released``: a release of the partition has set the
#: frontier.
EVENT_COLUMNS = {"_event_time": "TIMESTAMP", "_frontier": "TIMESTAMP", "_is_released": "BOOLEAN"}
#: The output of records that an operator refused, which every topology with event time has.
LATE_RECORDS = "late_records"
#: Its columns. ``record`` is the row as JSON, without the record's metadata; null if the source is sensitive.
LATE_SCHEMA = """
    operator STRING NOT NULL, reason STRING NOT NULL, event_time TIMESTAMP NOT NULL, frontier TIMESTAMP, record STRING
"""


@dataclass(frozen=True, kw_only=True)
class Reach:
    """The reach in event time of the records that a row of an operator is made from.

    Attributes:
        ms: largest distance from the row's own time in milliseconds, in both directions.
        grid: the grid of windows of the rows; None if rows do not belong to windows.
        column: the column with the row's own time, in its table and in emitted rows; None if that is the time of a
            record.
        keep_ms: how long a final row stays in its table after its ``window_end``; None if it is removed immediately.
        is_bounded: whether records beyond the reach do not matter. Otherwise rows need earlier state.
    """

    ms: int
    grid: Grid | None = None
    column: str | None = None
    keep_ms: int | None = None
    is_bounded: bool = True


@dataclass(frozen=True, kw_only=True)
class Frontier:
    """The event time that every partition of one or more sources has passed, less the grace.

    Attributes:
        ms: epoch milliseconds; None while a partition has no record yet, so that nothing closes.
        of: topics of the sources; empty if that is not known.
    """

    ms: int | None
    of: tuple[str, ...] = field(default=(), compare=False)

    @property
    def sql(self) -> str:
        """The frontier as an SQL expression of type TIMESTAMP; null if there is none."""
        return "CAST(NULL AS TIMESTAMP)" if self.ms is None else f"timestamp_millis({self.ms})"

    def ago(self, ms: int) -> Frontier:
        """The frontier of rows whose event times are some milliseconds behind this one."""
        return Frontier(ms=None if self.ms is None else self.ms - ms, of=self.of)

    def is_past(self, time: str, *, by_ms: int = 0) -> str:
        """SQL: whether the frontier is past a time by more than some milliseconds; false if there is none."""
        return self._compared(time, "<", by_ms)

    def has_reached(self, time: str, *, by_ms: int = 0) -> str:
        """SQL: whether the frontier has reached a time plus ``by_ms``; false if there is none."""
        return self._compared(time, "<=", by_ms)

    def _compared(self, time: str, how: str, by_ms: int) -> str:
        return "FALSE" if self.ms is None else f"({time} {how} {Frontier(ms=self.ms - by_ms).sql})"


def least(frontiers: Iterable[Frontier]) -> Frontier:
    """The time that all of the frontiers have passed."""
    times = [frontier.ms for frontier in frontiers]
    bounds = [ms for ms in times if ms is not None]
    return Frontier(ms=min(bounds) if times and len(bounds) == len(times) else None)


def frontier_of(
    stream_times: Mapping[int, int], partitions: Iterable[int], grace_ms: int, floors: Mapping[int, int] | None = None
) -> Frontier:
    """The frontier of a topic.

    Args:
        stream_times: partition -> its stream time, epoch milliseconds; absent while it has no record.
        partitions: all partitions of the topic.
        grace_ms: how late a record may be.
        floors: partition -> its least frontier, epoch milliseconds, if a longer grace took effect later.
    """

    def of(partition: int) -> Frontier:
        if partition not in stream_times:
            return Frontier(ms=None)
        ms = stream_times[partition] - grace_ms
        return Frontier(ms=max(ms, (floors or {}).get(partition, ms)))

    return least(map(of, partitions))


def described(
    stream_times: Mapping[str, Mapping[int, int]],
    counts: Mapping[tuple[str, int], int],
    releases: Mapping[str, Container[int]],
) -> str:
    """How far the event times of an epoch's sources have come, and the partition that is behind the others, in one
    line.

    Args:
        stream_times: topic -> partition -> stream time, epoch milliseconds.
        counts: partition -> its offsets in the last slice.
        releases: topic -> partitions that the last slice released. They hold nothing back: others have records, and
            they follow those.
    """
    times = {(topic, partition): ms for topic, parts in stream_times.items() for partition, ms in parts.items()}
    if not times:
        return ""
    furthest = f"; the furthest is at {shown(max(times.values()))}"
    without = sorted(at for at in counts if at[0] in stream_times and at not in times)
    if without:
        topic, partition = without[0]
        return f"no event time, held by {topic}[{partition}], which has no record yet{furthest}"
    awake = [at for at in times if counts.get(at) or at[1] not in releases.get(at[0], ())]
    topic, partition = min(awake or times, key=lambda at: (times[at], not counts.get(at), at))
    held = f", held by {topic}[{partition}]" if len(awake) > 1 else ""
    return f"event time {shown(min(times.values()))}{held}{furthest if len(times) > 1 else ''}"


def shown(ms: int) -> str:
    """Epoch milliseconds as a time in UTC, or as a number outside the calendar."""
    try:
        return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        return f"{ms} ms"
