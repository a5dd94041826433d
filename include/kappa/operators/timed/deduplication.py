"""The first record of each key, without the records that repeat it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

from kappa.errors import TopologyError
from kappa.operators import agg, origin
from kappa.operators.bound import RowsOperator, cuts_along, declared_as, emission, with_event_time
from kappa.operators.frames import check_rows, check_times
from kappa.operators.keys import Key, is_present, key_columns, key_ddl, of_keys
from kappa.operators.parts import Part, Types
from kappa.operators.sequence import in_order
from kappa.operators.timed.late import IS_IN_TIME, IS_LATE, late_rows
from kappa.operators.timed.sessions import SessionWindow, sessions_of
from kappa.operators.timed.windowed import check_names, length
from kappa.topology import ORDER, Slice, Table
from kappa.topology.ddl import Column, columns_of, quote, quoted
from kappa.topology.emission import Cuts
from kappa.topology.operator import Outcome, label
from kappa.topology.operator_inputs import Reads, rows_input
from kappa.topology.times.durations import milliseconds, shown
from kappa.topology.times.event_time import Frontier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LATE = "its time lies before the frontier"
#: The column of a session's state with its first record: structs compare by their fields, the place first.
_FIRST = "first"
#: Columns of that state, whose names no key may have.
_OWN = (_FIRST, "session_start", "session_end", "origin")
_PLACE = origin.ORIGIN_TYPE.removeprefix("STRUCT<").removesuffix(">")
#: When the first record of a key is emitted.
Emit = Literal["first", "final"]


@dataclass(frozen=True, kw_only=True)
class DistinctRows:
    """The result of :class:`Deduplicate` for a slice.

    Attributes:
        rows: the first record of each key, with all its columns.
        changes: rows of the table of seen keys, at most one per key, with ``_deleted``.
        late: refused records; None without ``within``, because then none is refused.
    """

    rows: DataFrame
    changes: DataFrame
    late: DataFrame | None


@dataclass(frozen=True, kw_only=True)
class Deduplicate:
    """The computation of :func:`deduplicate`, before it is bound.

    Attributes:
        rows: Spark DDL of the input rows.
        key: names of the key columns.
        within_ms: how long after the last record of its key a record repeats it; None for ever.
        sessions: runs of repetitions, if their first record is emitted when no more can arrive; None if it is emitted
            immediately.
    """

    rows: str
    key: tuple[str, ...]
    within_ms: int | None
    sessions: SessionWindow | None = None

    def table(self, name: str) -> Table:
        """The table of seen keys: without ``within`` with the ``origin`` of the first record, otherwise with
        ``last_seen``.

        With ``emit="final"`` the table of runs that may continue, each with its first record.
        """
        if self.sessions is not None:
            made_by = self.sessions.made_by.replace("session_window(", "deduplicate(final, ", 1)
            return replace(self.sessions.table(name), made_by=made_by)
        value_schema = (
            f"{origin.ORIGIN} {origin.ORIGIN_TYPE}" if self.within_ms is None else "last_seen TIMESTAMP NOT NULL"
        )
        within = "for ever" if self.within_ms is None else shown(self.within_ms)
        made_by = f"deduplicate(key={','.join(map(quote, self.key))}, within={within})"
        return Table(
            name=name,
            key=self.key,
            schema=f"{key_ddl(self._keys)}, {value_schema}",
            made_by=made_by,
            expires=self.within_ms is not None,
        )

    def __call__(
        self, rows: DataFrame, *, before: DataFrame, frontier: Frontier | None = None, seeks: bool = False
    ) -> DistinctRows:
        """The records of a slice that repeat no other.

        Args:
            rows: the rows with the order columns; with ``within`` also ``_event_time`` and ``_frontier``.
            before: ``slice.table`` of :meth:`table`.
            frontier: ``slice.frontier`` of the rows' source, with ``within``.
            seeks: whether its keys are sought in the table, see :meth:`kappa.topology.Slice.seeks`; without ``within``.

        Raises:
            TopologyError: a column of the rows is missing or of another type.
        """
        columns = self._keys if self.sessions is None else columns_of(self.rows, "the rows of deduplicate")
        check_rows(rows, columns, "deduplicate")
        if frontier is not None:
            check_times(rows, "deduplicate")
        keyed = rows.where(is_present(self.key))
        if self.sessions is not None and frontier is not None:
            return self._final(keyed, before, frontier, self.sessions)
        if frontier is None or self.within_ms is None:
            return self._for_ever(keyed, before, seeks)
        return self._within(keyed, before, frontier, self.within_ms)

    def _for_ever(self, rows: DataFrame, before: DataFrame, seeks: bool) -> DistinctRows:
        seen_keys = of_keys(before.select(*quoted(self.key)), rows, self.key, seeks=seeks)
        unseen = rows.join(seen_keys, on=list(self.key), how="left_anti")
        numbered = unseen.selectExpr("*", f"LAG(TRUE) OVER ({in_order(unseen, self.key)}) AS _has_earlier")
        first = numbered.where("_has_earlier IS NULL").drop("_has_earlier")
        changes = first.selectExpr(*quoted(self.key), f"{origin.OF_ROW} AS {origin.ORIGIN}", "FALSE AS _deleted")
        return DistinctRows(rows=first, changes=changes, late=None)

    def _within(self, rows: DataFrame, before: DataFrame, frontier: Frontier, within_ms: int) -> DistinctRows:
        from pyspark.sql import functions as F

        within = f"INTERVAL '{within_ms // 1000}.{within_ms % 1000:03d}' SECOND"
        keys_before = before.selectExpr(*quoted(self.key), "last_seen AS _known")
        late = late_rows(rows.where(IS_LATE), operator="deduplicate", reason=_LATE)
        so_far = f"MAX(_event_time) OVER ({in_order(rows, self.key)} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        admitted = rows.where(IS_IN_TIME).join(keys_before, on=list(self.key), how="left")
        followed = admitted.selectExpr("*", f"GREATEST(_known, {so_far}) AS _seen")
        first_rows = followed.where(f"_seen IS NULL OR _event_time > _seen + {within}").drop("_known", "_seen")
        # A key is forgotten once no record that is still admitted could repeat it, which does not depend on slices.
        latest = admitted.groupBy(*quoted(self.key)).agg(F.expr("MAX(_event_time) AS _latest"))
        both = keys_before.join(latest, on=list(self.key), how="full_outer").selectExpr(
            *quoted(self.key),
            "GREATEST(_known, _latest) AS last_seen",
            f"{frontier.is_past('GREATEST(_known, _latest)', by_ms=within_ms)} AS _deleted",
            "_known",
            "_latest",
        )
        changed = both.where("IF(_deleted, _known IS NOT NULL, _latest IS NOT NULL AND NOT (last_seen <=> _known))")
        return DistinctRows(rows=first_rows, changes=changed.drop("_known", "_latest"), late=late)

    def _final(self, rows: DataFrame, before: DataFrame, frontier: Frontier, sessions: SessionWindow) -> DistinctRows:
        columns = quoted(column.name for column in columns_of(self.rows, "the rows of deduplicate"))
        records = rows.selectExpr(
            *quoted(self.key),
            f"STRUCT({', '.join([*ORDER, *columns])}) AS {_FIRST}",
            *ORDER,
            *("_event_time", "_frontier"),
        )
        runs = sessions.of_admitted(records, before=before, frontier=frontier)
        place = origin.final_at(ORDER[0], of=_FIRST)
        return DistinctRows(
            rows=with_event_time(
                runs.final.selectExpr(*(f"{_FIRST}.{name}" for name in columns), *place, "session_end AS _event_time")
            ),
            changes=runs.changes,
            late=late_rows(rows.where(IS_LATE), operator="deduplicate", reason=_LATE),
        )

    @cached_property
    def _keys(self) -> tuple[Column, ...]:
        return key_columns(self.rows, self.key, "deduplicate")


@declared_as("deduplicate(orders, key='id', within='10 minutes', table='seen')")
def deduplicate(
    of: Reads, *, key: Key, within: str | None, table: str, emit: Emit = "first", rows: str = ""
) -> RowsOperator[DistinctRows]:
    """The first record of each key in the total order; records that repeat it are dropped (first wins).

    Kafka Streams has no operator for it; its users write one with a window store. A record repeats its key when its
    event time is at most ``within`` after the latest of that key, or before it; each repetition restarts that time.
    Without ``within`` every further record of a key repeats it. A row with a null key is ignored.

    With ``emit="final"`` records of a key repeat each other when they are in one run without a gap of more than
    ``within``, as in a session; the first one in the total order is emitted once, when the frontier is past the end of
    the run by more than that. The result then does not depend on the order in which partitions are read, but it comes
    later.

    Late records: with ``within``, a record whose time is before the frontier is refused, since its key may be
    forgotten. Out of order: a record that is older than the first of its key, but after it in the total order, is
    dropped.

    State: the seen keys, until the frontier passes ``within`` after the latest record; without ``within`` for ever.
    With ``emit="final"`` the first record of each run that may continue. Class: any cut if each key stays in one
    partition, otherwise time cut; cut-bound where :func:`kappa.operators.running_total` is; with ``emit="final"`` any
    cut. Event time of emitted rows: that of the record; with ``emit="final"`` that of the last record of its run.

    Args:
        of: the source, or another operator's emission.
        key: column or columns that identify a record.
        table: the name of its table.
        within: how long a key is remembered, for example ``10 minutes``; needs a source with ``grace``. None for ever,
            for sources without event time.
        emit: ``first``: immediately, with all columns of the record; ``final``: when no repetition can arrive any more,
            with the columns of ``rows``; needs ``within``.
        rows: Spark DDL of the rows, with what the step adds to them; empty for all columns of the input.

    Raises:
        TopologyError: the key is not among the rows, ``within`` is not a length of time, or ``emit`` does not fit.

    Examples:
        >>> from kappa import Source
        >>> from kappa.operators import deduplicate
        >>> orders = Source(topic="orders", schema="id STRING NOT NULL, amount BIGINT", grace="1 minute")
        >>> first = deduplicate(orders, key="id", within="10 minutes", table="seen")
        >>> [column.name for column in first.tables[0].columns]
        ['id', 'last_seen']
        >>> final = deduplicate(orders, key="id", within="10 minutes", table="seen", emit="final")
        >>> [column.name for column in final.tables[0].columns]
        ['id', 'session_start', 'session_end', 'first', 'origin']
    """
    read_rows = rows_input(of, label("deduplicate", table), rows=rows, is_timed=within is not None)
    distinct = _deduplicate(read_rows.rows, key, within, emit)

    def compute(slice: Slice, frames: tuple[DataFrame, ...]) -> Outcome[DistinctRows]:
        frontier = None if within is None else read_rows.frontier(slice)
        result = distinct(frames[0], before=slice.table(table), frontier=frontier, seeks=slice.seeks(table))
        return Outcome(result=result, changes=(result.changes,), emitted="rows", late=result.late)

    is_final = emit == "final"
    behind_ms = (distinct.within_ms or 0) if is_final else 0
    cuts: Cuts = "any" if is_final else cuts_along(read_rows)
    emits = emission(
        label("deduplicate", table),
        read_rows.rows,
        read_rows,
        behind_ms=behind_ms,
        # Without a within no row is refused as late, and the first record of a run may be older than any bound.
        times={} if within is None or is_final else read_rows.times_passed_on(),
        is_timed=read_rows.is_timed,
        cuts=cuts,
        comes="frontier" if is_final else None,
    )
    tables = (replace(distinct.table(table), cuts=cuts if within is None else "any"),)
    return RowsOperator(name="deduplicate", inputs=(read_rows,), tables=tables, compute=compute, emits=emits)


def _deduplicate(rows: str, key: Key, within: str | None, emit: Emit) -> Deduplicate:
    keys = key_columns(rows, key, "deduplicate")
    names = tuple(column.name for column in keys)
    if emit not in get_args(Emit) or (emit == "final" and within is None):
        raise TopologyError(
            f"deduplicate of {list(names)}: emit={emit!r} with within={within!r} does not fit. Without a within, "
            "repetitions have no end to wait for. Use emit='first', or emit='final' with a within."
        )
    as_ms = length if emit == "final" else milliseconds  # a run has a length
    within_ms = None if within is None else as_ms(within, "deduplicate: within")
    sessions = None if emit == "first" or within is None else _sessions(rows, keys, within)
    return Deduplicate(rows=rows, key=names, within_ms=within_ms, sessions=sessions)


def _sessions(rows: str, keys: tuple[Column, ...], within: str) -> SessionWindow:
    """Runs of records of a key, each with its first record in the total order."""
    columns = columns_of(rows, "the rows of deduplicate")
    maps = [column.name for column in columns if column.has_map]
    if maps:
        raise TopologyError(
            f"deduplicate: columns {maps} contain a MAP. Maps have no order, which is needed to distinguish rows of "
            "one record. Leave these columns out of rows, or use emit='first'."
        )
    check_names([column.name for column in keys], "deduplicate with emit='final'", _OWN)
    record = ", ".join([_PLACE, *(f"{quote(column.name)}: {column.type}" for column in columns)])
    rows_of_runs = f"{key_ddl(keys)}, {_FIRST} STRUCT<{record}>"
    return sessions_of(rows_of_runs, [column.name for column in keys], within, {_FIRST: _first()})


def _first() -> agg.Aggregate:
    """The least row as it is, where :func:`kappa.operators.agg.min` gives zeros without a sign."""

    def parts(name: str, types: Types) -> tuple[Part, ...]:
        own = quote(name)
        return (Part(name=name, type=types[name].type, of_row=own, of_parts=f"MIN({own})", is_value=True),)

    return agg.Aggregate(text=agg.min(_FIRST).text, parts=parts, columns=(_FIRST,))
