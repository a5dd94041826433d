"""Windows of a fixed size on a grid of event time.

    ticks = Source(topic="ticks", schema=TICK, time="CreatedTime", grace="10 seconds")
    prices = hopping_window(ticks, key="symbol", size="5 seconds", every="1 second", table="windows",
                            aggregates={"trades": agg.count(), "low": agg.min("price")})
    Topology(sources=[ticks], operators=[prices], outputs=[Append(name="stats", of=prices.final)], ...)

What ``suppress`` is for in Kafka Streams is a choice of outputs here: an output of ``final`` has one row per window,
the table has every update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kappa.errors import TopologyError
from kappa.operators import agg, origin
from kappa.operators.agg import Aggregate, Part
from kappa.operators.bound import FinalOperator, declared_as
from kappa.operators.keys import Key, key_ddl, with_key
from kappa.operators.late import RELEASED, late_rows
from kappa.operators.windowed import (
    BOUNDS,
    KNOWN,
    LAST_INSTANT,
    Windowed,
    check_windowed,
    floored,
    keys_of,
    later,
    length,
    needed,
    windowed_operator,
)
from kappa.topology import Table
from kappa.topology.ddl import Column, quoted
from kappa.topology.durations import milliseconds, shown
from kappa.topology.event_time import Frontier, Reach
from kappa.topology.operator import Reads, label, rows_input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: In so many windows a record may be.
_MOST_WINDOWS = 5_000
_OWN = ("window_start", "window_end", "is_closed", "origin")
_CLOSED = Part(name="is_closed", type="BOOLEAN NOT NULL", of_row="FALSE", of_parts="BOOL_OR(is_closed)")


@declared_as(
    "tumbling_window(ticks, key='symbol', size='1 minute', aggregates={'trades': agg.count()}, table='windows')"
)
def tumbling_window(
    of: Reads,
    *,
    key: Key,
    size: str,
    aggregates: Mapping[str, Aggregate],
    table: str,
    keep: str | None = None,
    rows: str = "",
) -> FinalOperator[Windowed]:
    """Aggregates of each key in windows that follow each other (Kafka Streams: ``TimeWindows`` without ``advanceBy``).

    It is a :func:`hopping_window` whose windows do not overlap: each record is in one.

    Args:
        of: the source, or what another operator emits.
        key: column or columns; a row without a key is left out.
        size: how long a window is.
        aggregates: by the name of their column.
        table: the name of its table.
        keep: how long, in event time, the row of a closed window stays in the table; None for not at all.
        rows: Spark DDL of the rows, with what the step adds to them; empty for all columns of what is read.

    Raises:
        TopologyError: a name, a length of time or an aggregate does not fit, or what is read has no event time.

    Examples:
        >>> from kappa import Source
        >>> from kappa.operators import agg, tumbling_window
        >>> events = Source(topic="events", schema="id STRING", grace="1 minute")
        >>> hours = tumbling_window(
        ...     events, key="id", size="1 hour", aggregates={"events": agg.count()}, table="open_hours"
        ... )
        >>> hours.schema
        '`id` STRING NOT NULL, window_start TIMESTAMP NOT NULL, window_end TIMESTAMP NOT NULL, `events` BIGINT'
    """
    return _bound("tumbling_window", of, rows, key, size, size, aggregates, keep, table)


@declared_as(
    "hopping_window(ticks, key='symbol', size='1 minute', every='10 seconds', "
    "aggregates={'trades': agg.count()}, table='windows')"
)
def hopping_window(
    of: Reads,
    *,
    key: Key,
    size: str,
    every: str,
    aggregates: Mapping[str, Aggregate],
    table: str,
    keep: str | None = None,
    rows: str = "",
) -> FinalOperator[Windowed]:
    """Aggregates of each key in windows that overlap (Kafka Streams: ``TimeWindows.advanceBy``).

    A window begins at each multiple of ``every`` since 1970-01-01T00:00:00Z, before it too, and holds the records from
    its start up to, not including, its end.

    A window refuses a record when its end is not after the frontier at the record; the other windows of the record take
    it. A record that a window refused makes one late record. What comes out of order otherwise counts as if it had come
    in time. A slice first takes its records; then it closes the windows whose end the frontier of its end has reached.

    Columns of the table: the key, ``window_start TIMESTAMP``, ``window_end TIMESTAMP``, the aggregates with what they
    need to merge, ``origin``; key: the key and ``window_start``. Columns that are emitted: the same without ``origin``
    and the helpers; their event time is the last instant of the window. State is kept for windows that are open, and
    with ``keep`` for closed ones, which then have ``is_closed`` and change no more. Class: any cut.

    Args:
        of: the source, or what another operator emits.
        key: column or columns; a row without a key is left out.
        size: how long a window is.
        every: from one window's start to the next one's; at most ``size``.
        aggregates: by the name of their column.
        table: the name of its table.
        keep: how long, in event time, the row of a closed window stays in the table; None for not at all.
        rows: Spark DDL of the rows, with what the step adds to them; empty for all columns of what is read.

    Raises:
        TopologyError: a name, a length of time or an aggregate does not fit, or what is read has no event time.

    Examples:
        >>> from kappa import Source
        >>> from kappa.operators import agg, hopping_window
        >>> events = Source(topic="events", schema="id STRING", grace="1 minute")
        >>> every = {"size": "10 seconds", "every": "5 seconds", "aggregates": {"events": agg.count()}}
        >>> hopping_window(events, key="id", table="windows", **every).tables[0].made_by
        "hopping_window(key=['id'], size=10 seconds, every=5 seconds, keep=None, events=count())"
    """
    return _bound("hopping_window", of, rows, key, size, every, aggregates, keep, table)


@dataclass(frozen=True, kw_only=True)
class HoppingWindow:
    """Windows on a grid, before they are bound; :func:`hopping_window` makes them.

    Attributes:
        name: the operator, for people.
        keys: key columns.
        size_ms: how long a window is.
        every_ms: from one window's start to the next one's.
        keep_ms: how long a closed window's row stays; None for not at all.
        parts: columns of the aggregates.
        reads: columns that the aggregates read.
        made_by: the operator with its parameters.
    """

    name: str
    keys: tuple[Column, ...]
    size_ms: int
    every_ms: int
    keep_ms: int | None
    parts: tuple[Part, ...]
    reads: tuple[Column, ...]
    made_by: str

    def table(self, name: str) -> Table:
        """The state as a table of that name."""
        closed = () if self.keep_ms is None else (_CLOSED,)
        columns = f"{key_ddl(self.keys)}, {BOUNDS}, {agg.ddl_of((*self.parts, agg.ORIGIN, *closed))}"
        reach = Reach(ms=self.size_ms, grid_ms=self.every_ms, column="window_start", keep_ms=self.keep_ms)
        return Table(name=name, key=self._group, schema=columns, made_by=self.made_by, expires=True, reach=reach)

    @property
    def schema(self) -> str:
        """Columns of the rows that are emitted, as Spark DDL."""
        return f"{key_ddl(self.keys)}, {BOUNDS}, {agg.ddl_of(agg.values(self.parts))}"

    def __call__(self, rows: DataFrame, *, before: DataFrame, frontier: Frontier) -> Windowed:
        """The windows of a slice.

        Args:
            rows: its records, with event time.
            before: the table before the slice.
            frontier: that of its end.

        Raises:
            TopologyError: a column of the rows is missing or of another type, they have no event time, or they are
                changes of a table.
        """
        check_windowed(rows, (*self.keys, *self.reads), self.name)
        keyed = with_key(rows, self.keys)
        fresh = agg.lifted(self._opened(keyed), quoted(self._group), self._merging)
        whole = agg.merged(fresh, self._needed(fresh, before, frontier), self._group, self._merging)
        whole = whole.selectExpr("*", f"{later('window_start', self.size_ms)} AS window_end")
        goes, closes = self._goes(frontier), self._closes(frontier)
        columns = [*quoted(self._group), "window_end"]
        changes = [*columns, *quoted(part.name for part in self.parts), "origin", f"({goes}) AS _deleted"]
        is_new = "TRUE"
        if self.keep_ms is not None:
            changes.append(f"(is_closed OR {closes}) AS is_closed")
            is_new = "NOT is_closed"
        values = quoted(part.name for part in agg.values(self.parts))
        final = whole.where(f"{is_new} AND {closes}")
        return Windowed(
            changes=whole.where(f"_known OR NOT ({goes})").selectExpr(*changes),
            final=origin.ordered(final.selectExpr(*columns, *values, *origin.final_at("window_end")), "topic"),
            late=self._late(keyed),
        )

    @property
    def _group(self) -> list[str]:
        return [*(column.name for column in self.keys), "window_start"]

    @property
    def _merging(self) -> tuple[Part, ...]:
        return (*self.parts, agg.ORIGIN, KNOWN, *(() if self.keep_ms is None else (_CLOSED,)))

    def _opened(self, keyed: DataFrame) -> DataFrame:
        """Rows with each window that takes them."""
        first, last = self._first_open("_event_time", "_frontier"), self._last("_event_time")
        taken = keyed.where(f"{first} <= {last}").drop("window_start")  # rows of windows have their own
        if self.every_ms == self.size_ms:
            return taken.selectExpr("*", f"TIMESTAMP_MICROS({last}) AS window_start")
        starts = taken.selectExpr("*", f"EXPLODE(SEQUENCE({first}, {last}, {self.every_ms * 1000}L)) AS _start")
        return starts.selectExpr("*", "TIMESTAMP_MICROS(_start) AS window_start")

    def _needed(self, fresh: DataFrame, before: DataFrame, frontier: Frontier) -> DataFrame:
        """Rows of the state that the slice's records are in, and those that it closes or removes."""
        ends = self._closes(frontier)
        if self.keep_ms is not None:
            ends = f"(NOT is_closed AND {ends}) OR {self._goes(frontier)}"
        return needed(before.selectExpr("*", "TRUE AS _known"), fresh, self._group, ends)

    def _closes(self, frontier: Frontier) -> str:
        """SQL: whether the frontier has reached a window's end."""
        return frontier.has_reached("window_end")

    def _goes(self, frontier: Frontier) -> str:
        """SQL: whether a window's row leaves the state."""
        return frontier.has_reached("window_end", by_ms=self.keep_ms or 0)

    def _late(self, keyed: DataFrame) -> DataFrame:
        """One row for each record that a window refused."""
        is_refused = f"{self._first_open('_event_time', '_frontier')} > {self._first('_event_time')}"
        late = late_rows(keyed.where(is_refused), operator=self.name, reason="its window is closed")
        if self.every_ms == self.size_ms:
            return late
        first, last, step = self._first("event_time"), self._last("event_time"), self.every_ms * 1000
        closed = f"(LEAST({self._first_open('event_time', 'frontier')}, {last} + {step}L) - {first}) DIV {step}L"
        of = f"({last} - {first}) DIV {step}L + 1"
        released = f"IF(STARTSWITH(reason, '{RELEASED}'), '{RELEASED}', '')"
        reason = f"CONCAT({released}, {closed}, ' of its ', {of}, ' windows are closed') AS reason"
        return late.selectExpr("* EXCEPT (reason)", reason)

    def _first(self, time: str) -> str:
        """SQL: where the first window with a time begins, epoch microseconds; windows are a grid's steps apart."""
        return (
            f"({floored(f'(UNIX_MICROS({time}) - {self.size_ms * 1000}L)', self.every_ms)} + {self.every_ms * 1000}L)"
        )

    def _last(self, time: str) -> str:
        """SQL: where the last one begins."""
        return floored(f"UNIX_MICROS({time})", self.every_ms)

    def _first_open(self, time: str, frontier: str) -> str:
        """SQL: where the first one begins whose end is after the frontier; a window with the frontier in it is that."""
        return f"GREATEST({self._first(time)}, {self._first(frontier)})"


def _bound(
    name: str,
    of: Reads,
    rows: str,
    key: Key,
    size: str,
    every: str,
    aggregates: Mapping[str, Aggregate],
    keep: str | None,
    table: str,
) -> FinalOperator[Windowed]:
    read_rows = rows_input(of, label(name, table), rows=rows, is_timed=True)
    windows = _windows(name, read_rows.rows, key, size, every, aggregates, keep)
    times = {"window_start": windows.size_ms, "window_end": 0}
    last = LAST_INSTANT.format(end="window_end")
    return windowed_operator(read_rows, table, windows, name=name, time=last, times=times)


def _windows(
    name: str, rows: str, key: Key, size: str, every: str, aggregates: Mapping[str, Aggregate], keep: str | None
) -> HoppingWindow:
    keys = keys_of(rows, key, name, _OWN)
    size_ms, every_ms = length(size, f"{name}: size"), length(every, f"{name}: every")
    keep_ms = None if keep is None else milliseconds(keep, f"{name}: keep")
    if every_ms > size_ms:
        raise TopologyError(
            f"{name}: a window of {shown(size_ms)} every {shown(every_ms)} leaves out the records in between. Use an "
            "every of at most the size."
        )
    if -(-size_ms // every_ms) > _MOST_WINDOWS:
        raise TopologyError(
            f"{name}: each record would be in {-(-size_ms // every_ms):,} windows of {shown(size_ms)}, one every "
            f"{shown(every_ms)}, and a row of state in each. At most {_MOST_WINDOWS:,} are taken: use a longer every, "
            "a shorter size, or a sliding_window, which has a window at each record.",
            windows=-(-size_ms // every_ms),
        )
    taken = [*_OWN, *(column.name for column in keys)]
    made_by = f"{name}(key={[column.name for column in keys]}, size={shown(size_ms)}, every={shown(every_ms)}, "
    return HoppingWindow(
        name=name,
        keys=keys,
        size_ms=size_ms,
        every_ms=every_ms,
        keep_ms=keep_ms,
        parts=agg.parts_of(aggregates, rows=rows, what=name, taken=taken),
        reads=agg.read_columns(aggregates, rows=rows, what=name),
        made_by=f"{made_by}keep={None if keep_ms is None else shown(keep_ms)}, {agg.text_of(aggregates)})",
    )
