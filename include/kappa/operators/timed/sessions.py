"""Sessions: records of a key that follow each other without a long gap."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kappa.operators import agg, origin
from kappa.operators.agg import Aggregate, Part
from kappa.operators.bound import FinalOperator, declared_as
from kappa.operators.keys import Key, key_ddl, quoted_names, with_key
from kappa.operators.timed.late import IS_IN_TIME, IS_LATE, late_rows, no_late_rows
from kappa.operators.timed.windowed import (
    BEFORE_THE_FRONTIER,
    Windowed,
    check_windowed,
    keys_of,
    later,
    length,
    needed,
    windowed_operator,
)
from kappa.topology import Table
from kappa.topology.ddl import Column, quoted
from kappa.topology.operator import label
from kappa.topology.operator_inputs import Reads, rows_input
from kappa.topology.times.durations import shown
from kappa.topology.times.event_time import Frontier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = "session_window"
_OWN = ("session_start", "session_end", "origin")
_BOUNDS = "session_start TIMESTAMP NOT NULL, session_end TIMESTAMP NOT NULL"
_START = Part(name="session_start", type="TIMESTAMP", of_row="_event_time", of_parts="MIN(session_start)")
_END = Part(name="session_end", type="TIMESTAMP", of_row="_event_time", of_parts="MAX(session_end)")
#: Starts of the stored sessions that became one: the rows that it replaces.
_STORED = Part(
    name="_stored",
    type="ARRAY<TIMESTAMP>",
    of_row="CAST(ARRAY() AS ARRAY<TIMESTAMP>)",
    of_parts="SORT_ARRAY(FLATTEN(COLLECT_LIST(_stored)))",
)
_FRESH = Part(name="_fresh", type="BOOLEAN", of_row="TRUE", of_parts="BOOL_OR(_fresh)")


@declared_as(
    "session_window(clicks, key='visitor', gap='30 minutes', aggregates={'clicks': agg.count()}, table='open_visits')"
)
def session_window(
    of: Reads, *, key: Key, gap: str, aggregates: Mapping[str, Aggregate], table: str, rows: str = ""
) -> FinalOperator[Windowed]:
    """Aggregates of each key's runs of records that are at most ``gap`` apart (Kafka Streams: ``SessionWindows``).

    A record at most ``gap`` from two sessions joins them: the row of the later one leaves the table. A record is
    refused when its time is before the frontier at it, whatever session it would belong to. Kafka Streams accepts such
    a record if its session reaches the frontier, so that the order of two records decides. Other records out of order
    count as if they had arrived in time. A slice first takes its records; then it closes the sessions whose end plus
    ``gap`` is before the frontier at the end of the slice.

    Columns of the table: the key, ``session_start TIMESTAMP`` and ``session_end TIMESTAMP``, the times of its first and
    its last record, the aggregates; key: the key and ``session_start``. Internal columns hold what the aggregates need
    to merge, and ``origin``. Emitted columns: those of the table. Their event time is ``session_end``. State is kept
    for open sessions. Class: any cut.

    Args:
        of: the source, or another operator's emission.
        key: column or columns; rows without a key are ignored.
        gap: the longest time between two records of a session.
        aggregates: aggregates by the name of their column.
        table: the name of its table.
        rows: Spark DDL of the rows, with what the step adds to them; empty for all columns of the input.

    Raises:
        TopologyError: a name, a length of time or an aggregate does not fit, or the input has no event time.

    Examples:
        >>> from kappa import Source
        >>> from kappa.operators import agg, session_window
        >>> clicks = Source(topic="clicks", schema="id STRING", grace="1 minute")
        >>> visits = session_window(
        ...     clicks, key="id", gap="30 minutes", aggregates={"clicks": agg.count()}, table="open_visits"
        ... )
        >>> visits.schema
        '`id` STRING NOT NULL, session_start TIMESTAMP NOT NULL, session_end TIMESTAMP NOT NULL, `clicks` BIGINT'
    """
    read_rows = rows_input(of, label(_NAME, table), rows=rows, is_timed=True)
    sessions = sessions_of(read_rows.rows, key, gap, aggregates)
    gap_ms = sessions.gap_ms  # a session may begin at any time before its end
    times = {"session_end": gap_ms}
    return windowed_operator(
        read_rows, table, sessions, name=_NAME, time="session_end", times=times, behind_ms=gap_ms, parts=sessions.parts
    )


def sessions_of(rows: str, key: Key, gap: str, aggregates: Mapping[str, Aggregate]) -> SessionWindow:
    """Sessions of rows with these columns, before they are bound; see :func:`session_window`."""
    keys = keys_of(rows, key, _NAME, _OWN)
    gap_ms = length(gap, f"{_NAME}: gap")
    names = [column.name for column in keys]
    parts = agg.parts_of(aggregates, rows=rows, what=_NAME, own_names=[*_OWN, *names])
    return SessionWindow(
        keys=keys,
        gap_ms=gap_ms,
        parts=parts,
        reads=agg.read_columns(aggregates, rows=rows, what=_NAME),
        made_by=f"{_NAME}(key={names}, gap={shown(gap_ms)}, {agg.text_of(aggregates, parts)})",
    )


@dataclass(frozen=True, kw_only=True)
class SessionWindow:
    """Sessions, before they are bound; :func:`session_window` makes them.

    Attributes:
        keys: key columns.
        gap_ms: the longest time between two records of a session.
        parts: columns of the aggregates.
        reads: columns that the aggregates read.
        made_by: the operator with its parameters.
    """

    keys: tuple[Column, ...]
    gap_ms: int
    parts: tuple[Part, ...]
    reads: tuple[Column, ...]
    made_by: str

    def table(self, name: str) -> Table:
        """The state as a table of that name."""
        parts = (*self.parts, agg.ORIGIN)
        return Table(
            name=name,
            key=[*(column.name for column in self.keys), "session_start"],
            schema=f"{key_ddl(self.keys)}, {_BOUNDS}, {agg.ddl_of(parts)}",
            made_by=self.made_by,
            expires=True,
            internal=agg.internal(parts),
        )

    @property
    def schema(self) -> str:
        """Columns of the emitted rows, as Spark DDL."""
        return f"{key_ddl(self.keys)}, {_BOUNDS}, {agg.ddl_of(agg.values(self.parts))}"

    def __call__(self, rows: DataFrame, *, before: DataFrame, frontier: Frontier) -> Windowed:
        """The sessions of a slice.

        Args:
            rows: its records, with event time.
            before: the table before the slice.
            frontier: the frontier at the end of the slice.

        Raises:
            TopologyError: a column of the rows is missing or of another type, or they have no event time.
        """
        check_windowed(rows, (*self.keys, *self.reads), _NAME)
        late = with_key(rows, self.keys).where(IS_LATE)
        return replace(
            self.of_admitted(rows, before=before, frontier=frontier),
            late=late_rows(late, operator=_NAME, reason=BEFORE_THE_FRONTIER),
        )

    def of_admitted(self, rows: DataFrame, *, before: DataFrame, frontier: Frontier) -> Windowed:
        """The sessions of a slice, for operators that report late records themselves: ``late`` has none."""
        keyed, key = with_key(rows, self.keys), quoted_names(self.keys)
        whole = self._merged(keyed.where(IS_IN_TIME), before, frontier)
        # A row for each stored row that a session replaces, and one for the session itself while it is open.
        places = "IF(_closes, _stored, ARRAY_UNION(ARRAY(session_start), _stored))"
        changes = whole.selectExpr("*", f"EXPLODE({places}) AS _place").selectExpr(
            *key,
            "_place AS session_start",
            "session_end",
            *quoted(part.name for part in self.parts),
            "origin",
            "(_closes OR _place <> session_start) AS _deleted",
        )
        values = quoted(part.name for part in agg.values(self.parts))
        place = origin.final_at(later("session_end", self.gap_ms))
        final = whole.where("_closes").selectExpr(*key, "session_start", "session_end", *values, *place)
        return Windowed(changes=changes, final=origin.ordered(final, "topic"), late=no_late_rows(keyed, operator=_NAME))

    def _merged(self, admitted: DataFrame, before: DataFrame, frontier: Frontier) -> DataFrame:
        """Sessions that have new records or that close."""
        merging = (_START, _END, *self.parts, agg.ORIGIN, _STORED, _FRESH)
        names = [column.name for column in self.keys]
        fresh = agg.lifted(admitted, quoted(names), merging)
        stored = ("*", "ARRAY(session_start) AS _stored", "FALSE AS _fresh")
        open_sessions = needed(before, admitted, names, self._closes(frontier)).selectExpr(*stored)
        both = fresh.union(open_sessions.select(*quoted(fresh.columns)))
        in_order = (
            f"PARTITION BY {', '.join(quoted(names))} ORDER BY session_start ROWS BETWEEN UNBOUNDED PRECEDING AND"
        )
        reach = later(f"MAX(session_end) OVER ({in_order} 1 PRECEDING)", self.gap_ms)
        starts = both.selectExpr("*", f"IF(session_start <= {reach}, 0, 1) AS _begins")
        runs = starts.selectExpr("*", f"SUM(_begins) OVER ({in_order} CURRENT ROW) AS _run")
        whole = agg.merged(runs, None, [*names, "_run"], merging)
        return whole.selectExpr("*", f"{self._closes(frontier)} AS _closes").where("_fresh OR _closes")

    def _closes(self, frontier: Frontier) -> str:
        """SQL: whether no record can belong to a session any more."""
        return frontier.is_past("session_end", by_ms=self.gap_ms)
