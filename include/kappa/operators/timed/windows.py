"""Windows of a fixed size on a grid of event time.

    ticks = Source(topic="ticks", schema=TICK, time="CreatedTime", grace="10 seconds")
    prices = hopping_window(ticks, key="symbol", size="5 seconds", every="1 second", table="windows",
                            aggregates={"trades": agg.count(), "low": agg.min("price")})
    Topology(sources=[ticks], operators=[prices], outputs=[Append(name="stats", of=prices.final)], ...)

Instead of ``suppress`` in Kafka Streams there is a choice of outputs: an output of ``final`` has one row per window,
and the table has every update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kappa.operators import agg, origin
from kappa.operators.agg import Aggregate, Part
from kappa.operators.bound import FinalOperator, declared_as
from kappa.operators.keys import Key, key_ddl, quoted_names, with_key
from kappa.operators.timed.grids import grid_of
from kappa.operators.timed.late import RELEASED, late_rows
from kappa.operators.timed.windowed import (
    BOUNDS,
    KNOWN,
    LAST_INSTANT,
    Windowed,
    check_windowed,
    keys_of,
    needed,
    revision_by_names,
    windowed_operator,
)
from kappa.topology import Table
from kappa.topology.ddl import Column, quoted
from kappa.topology.operator import label
from kappa.topology.operator_inputs import Reads, rows_input
from kappa.topology.times.durations import milliseconds, shown
from kappa.topology.times.event_time import Frontier, Reach
from kappa.topology.times.grid import Grid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_OWN = ("window_start", "window_end", "is_closed", "origin")
#: Whether a kept window is closed; readers get this column too.
_CLOSED = Part(name="is_closed", type="BOOLEAN NOT NULL", of_row="FALSE", of_parts="BOOL_OR(is_closed)", is_value=True)


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
    zone: str | None = None,
    week_begins: str | None = None,
    rows: str = "",
) -> FinalOperator[Windowed]:
    """Aggregates per key in windows that follow each other (Kafka Streams: ``TimeWindows`` without ``advanceBy``).

    It is a :func:`hopping_window` whose windows do not overlap: each record is in one window. With ``zone`` a window is
    a day, week, month, quarter or year of the calendar there; a local day has 23, 24 or 25 hours.

    Args:
        of: the source, or another operator's emission.
        key: column or columns; rows without a key are ignored.
        size: length of a window; with ``zone`` "1 day", "1 week", or months that divide a year.
        aggregates: aggregates by the name of their column.
        table: the name of its table.
        keep: how long, in event time, the row of a closed window stays in the table; None for not at all.
        zone: name of the time zone of the calendar; None for equal steps since 1970-01-01T00:00:00Z.
        week_begins: with weeks, their first day; Monday by default.
        rows: Spark DDL of the rows, with what the step adds to them; empty for all columns of the input.

    Raises:
        TopologyError: a name, a length of time or an aggregate does not fit, or the input has no event time.

    Examples:
        >>> from kappa import Source
        >>> from kappa.operators import agg, tumbling_window
        >>> events = Source(topic="events", schema="id STRING", grace="1 minute")
        >>> hours = tumbling_window(
        ...     events, key="id", size="1 hour", aggregates={"events": agg.count()}, table="open_hours"
        ... )
        >>> hours.schema
        '`id` STRING NOT NULL, window_start TIMESTAMP NOT NULL, window_end TIMESTAMP NOT NULL, `events` BIGINT'
        >>> local = {"size": "1 week", "zone": "Europe/Berlin", "aggregates": {"events": agg.count()}}
        >>> tumbling_window(events, key="id", table="weeks", **local).tables[0].made_by.partition(", keep")[0]
        "tumbling_window(key=['id'], size=1 week, every=1 week, zone=Europe/Berlin, week_begins=monday"
    """
    grid = grid_of("tumbling_window", size, size, zone=zone, week_begins=week_begins)
    return _bound("tumbling_window", of, rows, key, grid, aggregates, keep, table)


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
    zone: str | None = None,
    week_begins: str | None = None,
    rows: str = "",
) -> FinalOperator[Windowed]:
    """Aggregates per key in windows that overlap (Kafka Streams: ``TimeWindows.advanceBy``).

    A window begins at each multiple of ``every`` since 1970-01-01T00:00:00Z, and also before that, and has the records
    from its start up to, but not including, its end. A week of 7 days then begins on a Thursday.

    With ``zone`` a window begins with each day, week, month, quarter or year of the calendar there, and ends where a
    later one begins. A day begins at midnight: at the first one if the clock shows it twice, and at the instant of the
    change if the clock skips midnight. The rules are those of the Java that computes the slice.

    A window refuses a record when its end is not after the frontier at the record; other windows of the record accept
    it. A record that any window refused makes one late record. Other records out of order count as if they had arrived
    in time. A slice first takes its records; then it closes the windows whose end has been reached by the frontier at
    the end of the slice.

    Columns of the table and of emitted rows: the key, ``window_start TIMESTAMP``, ``window_end TIMESTAMP``, the
    aggregates; key: the key and ``window_start``. Internal columns of the table hold what the aggregates need to merge,
    and ``origin``. The event time of emitted rows is the last instant of the window. State is kept for open windows,
    and with ``keep`` for closed ones, which then have ``is_closed BOOLEAN`` and no longer change. Class: any cut.

    Args:
        of: the source, or another operator's emission.
        key: column or columns; rows without a key are ignored.
        size: length of a window; with ``zone`` a multiple of ``every``.
        every: time from one window's start to the next; at most ``size``. With ``zone`` "1 day", "1 week", or months
            that divide a year.
        aggregates: aggregates by the name of their column.
        table: the name of its table.
        keep: how long, in event time, the row of a closed window stays in the table; None for not at all.
        zone: name of the time zone of the calendar; None for equal steps.
        week_begins: with weeks, their first day; Monday by default.
        rows: Spark DDL of the rows, with what the step adds to them; empty for all columns of the input.

    Raises:
        TopologyError: a name, a length of time or an aggregate does not fit, or the input has no event time.

    Examples:
        >>> from kappa import Source
        >>> from kappa.operators import agg, hopping_window
        >>> events = Source(topic="events", schema="id STRING", grace="1 minute")
        >>> every = {"size": "10 seconds", "every": "5 seconds", "aggregates": {"events": agg.count()}}
        >>> hopping_window(events, key="id", table="windows", **every).tables[0].made_by
        "hopping_window(key=['id'], size=10 seconds, every=5 seconds, keep=None, events=count()) of (events)"
    """
    grid = grid_of("hopping_window", size, every, zone=zone, week_begins=week_begins)
    return _bound("hopping_window", of, rows, key, grid, aggregates, keep, table)


@dataclass(frozen=True, kw_only=True)
class HoppingWindow:
    """Windows on a grid, before they are bound; :func:`hopping_window` makes them.

    Attributes:
        name: the operator, for people.
        keys: key columns.
        grid: where windows begin, and how long they are.
        keep_ms: how long a closed window's row stays; None for not at all.
        parts: columns of the aggregates.
        reads: columns that the aggregates read.
        made_by: the operator with its parameters.
    """

    name: str
    keys: tuple[Column, ...]
    grid: Grid
    keep_ms: int | None
    parts: tuple[Part, ...]
    reads: tuple[Column, ...]
    made_by: str

    def table(self, name: str) -> Table:
        """The state as a table of that name."""
        closed = () if self.keep_ms is None else (_CLOSED,)
        parts = (*self.parts, agg.ORIGIN, *closed)
        columns = f"{key_ddl(self.keys)}, {BOUNDS}, {agg.ddl_of(parts)}"
        reach = Reach(ms=self.grid.longest_ms, grid=self.grid, column="window_start", keep_ms=self.keep_ms)
        return Table(
            name=name,
            key=self._group,
            schema=columns,
            made_by=self.made_by,
            expires=True,
            reach=reach,
            internal=agg.internal(parts),
        )

    @property
    def schema(self) -> str:
        """Columns of the emitted rows, as Spark DDL."""
        return f"{key_ddl(self.keys)}, {BOUNDS}, {agg.ddl_of(agg.values(self.parts))}"

    def __call__(self, rows: DataFrame, *, before: DataFrame, frontier: Frontier) -> Windowed:
        """The windows of a slice.

        Args:
            rows: its records, with event time.
            before: the table before the slice.
            frontier: the frontier at the end of the slice.

        Raises:
            TopologyError: a column of the rows is missing or of another type, or they have no event time.
        """
        check_windowed(rows, (*self.keys, *self.reads), self.name)
        keyed = with_key(rows, self.keys)
        opened = [*quoted_names(self.keys), f"{self.grid.start('_start')} AS window_start"]
        fresh = agg.lifted(self._opened(keyed), opened, self._merging)
        whole = agg.merged(fresh, self._needed(fresh, before, frontier), self._group, self._merging)
        whole = whole.selectExpr("*", f"{self.grid.last('window_start')} AS _start")
        whole = whole.selectExpr("* EXCEPT (_start)", f"{self.grid.end('_start')} AS window_end")
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
        """Rows with the point of each window that accepts them, ``_start``: they may have a ``window_start`` too."""
        points = keyed.selectExpr(
            "*",
            f"{self._first_open('_event_time', '_frontier')} AS _begins",
            f"{self.grid.last('_event_time')} AS _start",
        )
        row_windows = points.where("_begins <= _start")
        if not self.grid.is_apart:
            each = f"EXPLODE(SEQUENCE(_begins, _start, {self.grid.stride}L)) AS _start"
            row_windows = row_windows.selectExpr("* EXCEPT (_start)", each).where(self.grid.is_window("_start"))
        return row_windows

    def _needed(self, fresh: DataFrame, before: DataFrame, frontier: Frontier) -> DataFrame:
        """Rows of the state that the slice's records touch, and rows that it closes or removes."""
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
        is_refused = f"{self._first_open('_event_time', '_frontier')} > {self.grid.first('_event_time')}"
        late = late_rows(keyed.where(is_refused), operator=self.name, reason="its window is closed")
        if self.grid.is_apart:
            return late
        late = late.selectExpr(
            "*",
            f"{self.grid.first('event_time')} AS _begins",
            f"{self.grid.last('event_time')} AS _start",
            f"{self.grid.first('frontier')} AS _valid_from",
        )
        after = f"_start + {self.grid.stride}L"
        closed = self.grid.windows("_begins", f"LEAST(GREATEST(_begins, _valid_from), {after})")
        of = self.grid.windows("_begins", after)
        released = f"IF(STARTSWITH(reason, '{RELEASED}'), '{RELEASED}', '')"
        reason = f"CONCAT({released}, {closed}, ' of its ', {of}, ' windows are closed') AS reason"
        return late.selectExpr("* EXCEPT (reason, _begins, _start, _valid_from)", reason)

    def _first_open(self, time: str, frontier: str) -> str:
        """SQL of the start of the first window whose end is after the frontier; that is a window with the frontier in
        it.
        """
        return f"GREATEST({self.grid.first(time)}, {self.grid.first(frontier)})"


def _bound(
    name: str,
    of: Reads,
    rows: str,
    key: Key,
    grid: Grid,
    aggregates: Mapping[str, Aggregate],
    keep: str | None,
    table: str,
) -> FinalOperator[Windowed]:
    read_rows = rows_input(of, label(name, table), rows=rows, is_timed=True)
    windows = _windows(name, read_rows.rows, key, grid, aggregates, keep)
    times = {"window_start": grid.longest_ms, "window_end": 0}
    last = LAST_INSTANT.format(end="window_end")
    return windowed_operator(
        read_rows,
        table,
        windows,
        name=name,
        time=last,
        times=times,
        parts=windows.parts,
        revision=revision_by_names(windows.reads, "window_start"),
    )


def _windows(
    name: str, rows: str, key: Key, grid: Grid, aggregates: Mapping[str, Aggregate], keep: str | None
) -> HoppingWindow:
    keys = keys_of(rows, key, name, _OWN)
    keep_ms = None if keep is None else milliseconds(keep, f"{name}: keep")
    own_names = [*_OWN, *(column.name for column in keys)]
    parts = agg.parts_of(aggregates, rows=rows, what=name, own_names=own_names)
    made_by = f"{name}(key={[column.name for column in keys]}, {grid.text}, "
    return HoppingWindow(
        name=name,
        keys=keys,
        grid=grid,
        keep_ms=keep_ms,
        parts=parts,
        reads=agg.read_columns(aggregates, rows=rows, what=name),
        made_by=f"{made_by}keep={None if keep_ms is None else shown(keep_ms)}, {agg.text_of(aggregates, parts)})",
    )
