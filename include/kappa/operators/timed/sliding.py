"""Windows that slide along a key's records: one ends at each record, and one begins after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kappa.operators import agg, origin
from kappa.operators.agg import Aggregate, Part
from kappa.operators.bound import FinalOperator, declared_as
from kappa.operators.keys import Key, key_ddl, quoted_names, with_key
from kappa.operators.timed.late import IS_IN_TIME, IS_LATE, late_rows
from kappa.operators.timed.windowed import (
    BEFORE_THE_FRONTIER,
    BOUNDS,
    KNOWN,
    Windowed,
    check_windowed,
    keys_of,
    later,
    length,
    needed,
    revision_by_names,
    windowed_operator,
)
from kappa.topology import Table
from kappa.topology.ddl import Column, quoted
from kappa.topology.operator import label
from kappa.topology.operator_inputs import Reads, rows_input
from kappa.topology.times.durations import shown
from kappa.topology.times.event_time import Frontier
from kappa.topology.times.grid import floored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = "sliding_window"
_OWN = ("event_time", "is_emitted", "window_start", "window_end", "origin")
#: Whether the window that ends at the records was emitted.
_EMITTED = Part(name="is_emitted", type="BOOLEAN NOT NULL", of_row="FALSE", of_parts="BOOL_OR(is_emitted)")
#: Kafka counts time in milliseconds: the window after a record begins one after it.
_TICK_MS = 1


@declared_as("sliding_window(ticks, key='symbol', size='1 minute', aggregates={'trades': agg.count()}, table='recent')")
def sliding_window(
    of: Reads, *, key: Key, size: str, aggregates: Mapping[str, Aggregate], table: str, rows: str = ""
) -> FinalOperator[Windowed]:
    """Aggregates of each key's records that are at most ``size`` apart (Kafka Streams: ``SlidingWindows``).

    A window holds the records from its start to its end, both included, which lie ``size`` apart. One ends at each
    record. One begins a millisecond after each record, if there is a record in it. A window is emitted once, when the
    frontier of a slice's end is past its end. A record is refused when its time is before the frontier at it. Other
    records out of order count as if they had arrived in time. Microseconds of a record's time do not count.

    Differences from Kafka Streams: windows are emitted only when they are final, so the table has records and no
    windows; a refused record is in none of its windows, while there open windows accept it; windows may begin before
    1970, while there the first ones are cut.

    Columns of the table: the key, ``event_time TIMESTAMP``, the aggregates of the records of that time; key: the key
    and ``event_time``. Internal columns hold what the aggregates need to merge, ``origin`` and ``is_emitted BOOLEAN``.
    Emitted columns: the key, ``window_start TIMESTAMP``, ``window_end TIMESTAMP``, which is their event time, and the
    aggregates. State is kept for the records of the last ``size`` before the frontier and of all times after it. Class:
    any cut.

    Each window is computed from its records: the cost of a slice is the number of closed windows times their records.

    Args:
        of: the source, or another operator's emission.
        key: column or columns; rows without a key are ignored.
        size: the longest time between two records of a window.
        aggregates: aggregates by the name of their column.
        table: the name of its table.
        rows: Spark DDL of the rows, with what the step adds to them; empty for all columns of the input.

    Raises:
        TopologyError: a name, a length of time or an aggregate does not fit, or the input has no event time.

    Examples:
        >>> from kappa import Source
        >>> from kappa.operators import agg, sliding_window
        >>> events = Source(topic="events", schema="id STRING", grace="1 minute")
        >>> near = sliding_window(
        ...     events, key="id", size="5 minutes", aggregates={"events": agg.count()}, table="recent_events"
        ... )
        >>> near.schema
        '`id` STRING NOT NULL, window_start TIMESTAMP NOT NULL, window_end TIMESTAMP NOT NULL, `events` BIGINT'
    """
    read_rows = rows_input(of, label(_NAME, table), rows=rows, is_timed=True)
    keys = keys_of(read_rows.rows, key, _NAME, _OWN)
    size_ms = length(size, f"{_NAME}: size")
    names = [column.name for column in keys]
    parts = agg.parts_of(aggregates, rows=read_rows.rows, what=_NAME, own_names=[*_OWN, *names])
    windows = SlidingWindow(
        keys=keys,
        size_ms=size_ms,
        parts=parts,
        reads=agg.read_columns(aggregates, rows=read_rows.rows, what=_NAME),
        made_by=f"{_NAME}(key={names}, size={shown(size_ms)}, {agg.text_of(aggregates, parts)})",
    )
    times = {"window_start": size_ms, "window_end": 0}
    return windowed_operator(
        read_rows,
        table,
        windows,
        name=_NAME,
        time="window_end",
        times=times,
        parts=windows.parts,
        revision=revision_by_names(windows.reads, "event_time"),
    )


@dataclass(frozen=True, kw_only=True)
class SlidingWindow:
    """Windows that slide, before they are bound; :func:`sliding_window` makes them.

    Attributes:
        keys: key columns.
        size_ms: the longest time between two records of a window.
        parts: columns of the aggregates.
        reads: columns that the aggregates read.
        made_by: the operator with its parameters.
    """

    keys: tuple[Column, ...]
    size_ms: int
    parts: tuple[Part, ...]
    reads: tuple[Column, ...]
    made_by: str

    def table(self, name: str) -> Table:
        """The state as a table of that name."""
        parts = (*self.parts, agg.ORIGIN, _EMITTED)
        return Table(
            name=name,
            key=self._group,
            schema=f"{key_ddl(self.keys)}, event_time TIMESTAMP NOT NULL, {agg.ddl_of(parts)}",
            made_by=self.made_by,
            expires=True,
            internal=agg.internal(parts),
        )

    @property
    def schema(self) -> str:
        """Columns of the emitted rows, as Spark DDL."""
        return f"{key_ddl(self.keys)}, {BOUNDS}, {agg.ddl_of(agg.values(self.parts))}"

    def __call__(self, rows: DataFrame, *, before: DataFrame, frontier: Frontier) -> Windowed:
        """The windows that a slice closes, and the records that later ones need.

        Args:
            rows: its records, with event time.
            before: the table before the slice.
            frontier: the frontier at the end of the slice.

        Raises:
            TopologyError: a column of the rows is missing or of another type, or they have no event time.
        """
        check_windowed(rows, (*self.keys, *self.reads), _NAME)
        keyed = with_key(rows, self.keys)
        at = "TIMESTAMP_MILLIS(UNIX_MILLIS(_event_time)) AS event_time"
        fresh = agg.lifted(keyed.where(IS_IN_TIME), [*quoted_names(self.keys), at], self._merging)
        state = before.selectExpr("*", "TRUE AS _known")
        return Windowed(
            changes=self._changes(fresh, state, frontier),
            final=self._final(fresh, state, frontier),
            late=late_rows(keyed.where(IS_LATE), operator=_NAME, reason=BEFORE_THE_FRONTIER),
        )

    @property
    def _group(self) -> list[str]:
        return [*(column.name for column in self.keys), "event_time"]

    @property
    def _merging(self) -> tuple[Part, ...]:
        return (*self.parts, agg.ORIGIN, KNOWN, _EMITTED)

    def _changes(self, fresh: DataFrame, state: DataFrame, frontier: Frontier) -> DataFrame:
        """Records by their time: new ones, those at which a window was emitted, and those that no window needs."""
        state_rows = needed(state, fresh, self._group, self._closes(frontier))
        whole = agg.merged(fresh, state_rows, self._group, self._merging)
        goes = self._goes(frontier)
        return whole.where(f"_known OR NOT ({goes})").selectExpr(
            *quoted(self._group),
            *quoted(part.name for part in self.parts),
            "origin",
            f"(is_emitted OR {self._is_past(frontier)}) AS is_emitted",
            f"({goes}) AS _deleted",
        )

    def _final(self, fresh: DataFrame, state: DataFrame, frontier: Frontier) -> DataFrame:
        """Windows that close, each computed from all its records, which are before the frontier."""
        names = [column.name for column in self.keys]
        parts = (*self.parts, agg.ORIGIN)
        contents = [*quoted(self._group), *quoted(part.name for part in parts if part.of_parts)]
        records = fresh.select(*contents).union(state.select(*contents)).where(self._is_past(frontier))
        width = self.size_ms + _TICK_MS  # a window reaches into two cells of this many milliseconds at most
        cells = f"ARRAY_DISTINCT(ARRAY({_cell('window_start', width)}, {_cell('window_end', width)}))"
        windows = self._closing(fresh, state, frontier).selectExpr("*", f"EXPLODE({cells}) AS _cell")
        placed = records.selectExpr("*", f"{_cell('event_time', width)} AS _cell")
        joined = windows.join(placed, on=[*names, "_cell"], how="inner")
        within = joined.where("event_time BETWEEN window_start AND window_end")
        whole = agg.merged(within, None, [*names, "window_start", "window_end"], parts)
        values = quoted(part.name for part in agg.values(parts))
        place = origin.final_at("window_end")
        final = whole.selectExpr(*quoted(names), "window_start", "window_end", *values, *place)
        return origin.ordered(final, "topic")

    def _closing(self, fresh: DataFrame, state: DataFrame, frontier: Frontier) -> DataFrame:
        """Bounds of the windows that close; one of them may have no record."""
        places = [*quoted(self._group), "is_emitted"]
        past = fresh.where(self._is_past(frontier)).select(*places)
        closing = past.union(state.where(self._closes(frontier)).select(*places))
        at_it = f"IF(is_emitted, NULL, {later('event_time', -self.size_ms)})"
        behind = f"IF({self._goes(frontier)}, {later('event_time', _TICK_MS)}, NULL)"
        starts = closing.selectExpr(
            *quoted_names(self.keys), f"EXPLODE(ARRAY_COMPACT(ARRAY({at_it}, {behind}))) AS window_start"
        )
        return starts.distinct().selectExpr("*", f"{later('window_start', self.size_ms)} AS window_end")

    def _is_past(self, frontier: Frontier) -> str:
        """SQL: whether the frontier is past a record's time, and with it past the window that ends there."""
        return frontier.is_past("event_time")

    def _goes(self, frontier: Frontier) -> str:
        """SQL: whether the frontier is past the window after a record, and so past all windows with the record."""
        return frontier.is_past("event_time", by_ms=self.size_ms + _TICK_MS)

    def _closes(self, frontier: Frontier) -> str:
        """SQL: whether a window at a record of the state closes."""
        return f"({self._is_past(frontier)} AND NOT is_emitted OR {self._goes(frontier)})"


def _cell(time: str, width: int) -> str:
    """SQL of the cell of a grid that a time lies in."""
    return floored(f"UNIX_MICROS({time})", width)
