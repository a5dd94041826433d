"""A key's newest row, at most once in an interval of stream time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kappa.errors import TopologyError
from kappa.operators import origin
from kappa.operators.bound import FinalOperator, declared_as
from kappa.operators.keys import Key, key_ddl, quoted_names, with_key
from kappa.operators.timed.grids import grid_of
from kappa.operators.timed.late import no_late_rows
from kappa.operators.timed.windowed import (
    LAST_INSTANT,
    Windowed,
    check_names,
    check_windowed,
    keys_of,
    needed,
    windowed_operator,
)
from kappa.topology import Table
from kappa.topology.ddl import Column, columns_of, ddl_of, quoted
from kappa.topology.operator import label
from kappa.topology.operator_inputs import Reads, rows_input
from kappa.topology.times.event_time import Frontier, Reach
from kappa.topology.times.grid import Grid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = "at_most_every"
_OWN = ("boundary", "counts_from", "origin")


@declared_as("at_most_every(ticks, key='symbol', every='1 hour', table='due')")
def at_most_every(
    of: Reads,
    *,
    key: Key,
    every: str,
    table: str,
    zone: str | None = None,
    week_begins: str | None = None,
    rows: str = "",
) -> FinalOperator[Windowed]:
    """The newest row of each key at the boundaries of a grid (Kafka Streams: a ``punctuate`` by stream time).

    Boundaries are the multiples of ``every`` since 1970-01-01T00:00:00Z; with ``zone`` the beginnings of days, weeks or
    months there, as in :func:`~kappa.operators.hopping_window`. A key with rows since the previous boundary is emitted
    once, when the frontier at the end of a slice has reached the boundary, with the last row that counts before it. A
    row counts from its event time, or from the frontier at it if that is later, so no row is late. Of rows that count
    from the same time, the last one in the total order is taken; of rows of one record, the greatest.

    Columns of the table and of emitted rows: the key, ``boundary TIMESTAMP``, the other columns of ``rows``; key: the
    key and ``boundary``. Internal columns of the table are ``counts_from TIMESTAMP`` and ``origin``. The event time of
    emitted rows is the last instant before the boundary. State is kept for boundaries that the frontier has not
    reached. Class: any cut.

    Args:
        of: the source, or another operator's emission.
        key: column or columns; rows without a key are ignored.
        every: time from one boundary to the next; with ``zone`` "1 day", "1 week", or months that divide a year.
        table: the name of its table.
        zone: name of the time zone whose days, weeks or months begin at boundaries; None for equal steps in UTC.
        week_begins: with weeks, their first day; Monday by default.
        rows: Spark DDL of the emitted columns, including the key, with what the step adds; empty for all columns of the
            input.

    Raises:
        TopologyError: a name or a length of time does not fit, the input has no event time, or a column has a map: maps
            have no order.

    Examples:
        >>> from kappa import Source
        >>> from kappa.operators import at_most_every
        >>> ticks = Source(topic="ticks", schema="id STRING, price DECIMAL(12,2)", grace="1 minute")
        >>> hourly = at_most_every(ticks, key="id", every="1 hour", table="due")
        >>> hourly.schema
        '`id` STRING NOT NULL, boundary TIMESTAMP NOT NULL, `price` DECIMAL(12, 2)'
    """
    read_rows = rows_input(of, label(_NAME, table), rows=rows, is_timed=True)
    keys = keys_of(read_rows.rows, key, _NAME, _OWN)
    names = [column.name for column in keys]
    others = tuple(column for column in columns_of(read_rows.rows, _NAME) if column.name not in names)
    check_names([column.name for column in others], _NAME, _OWN)
    maps = [column.name for column in others if column.has_map]
    if maps:
        raise TopologyError(
            f"{_NAME}: columns {maps} contain a MAP. Maps have no order, which is needed to distinguish rows of one "
            "record. Leave these columns out of rows."
        )
    at_boundaries = AtMostEvery(
        keys=keys, others=others, grid=grid_of(_NAME, every, every, zone=zone, week_begins=week_begins)
    )
    last = LAST_INSTANT.format(end="boundary")
    return windowed_operator(read_rows, table, at_boundaries, name=_NAME, time=last, times={"boundary": 0})


@dataclass(frozen=True, kw_only=True)
class AtMostEvery:
    """Rows at the boundaries of a grid, before they are bound; :func:`at_most_every` makes them.

    Attributes:
        keys: key columns.
        others: the other emitted columns.
        grid: the grid of the boundaries, at which its windows begin.
    """

    keys: tuple[Column, ...]
    others: tuple[Column, ...]
    grid: Grid

    def table(self, name: str) -> Table:
        """The state as a table of that name."""
        names = [column.name for column in self.keys]
        return Table(
            name=name,
            key=[*names, "boundary"],
            schema=f"{self.schema}, counts_from TIMESTAMP NOT NULL, origin {origin.ORIGIN_TYPE}",
            made_by=f"{_NAME}(key={names}, {self.grid.boundaries_text})",
            expires=True,
            reach=Reach(ms=self.grid.longest_ms, grid=self.grid, column="boundary"),
            internal=("counts_from", origin.ORIGIN),
        )

    @property
    def schema(self) -> str:
        """Columns of the emitted rows, as Spark DDL."""
        return ", ".join([key_ddl(self.keys), "boundary TIMESTAMP NOT NULL", *filter(None, [ddl_of(self.others)])])

    def __call__(self, rows: DataFrame, *, before: DataFrame, frontier: Frontier) -> Windowed:
        """The rows that are due at the end of a slice. ``late`` has no rows.

        Args:
            rows: its records, with event time.
            before: the table before the slice.
            frontier: the frontier at the end of the slice.

        Raises:
            TopologyError: a column of the rows is missing or of another type, or they have no event time.
        """
        check_windowed(rows, (*self.keys, *self.others), _NAME)
        from pyspark.sql import functions as F

        others = quoted(column.name for column in self.others)
        group = [*(column.name for column in self.keys), "boundary"]
        columns = [*quoted(group), *others, "counts_from", "origin"]
        due = frontier.has_reached("boundary")
        fresh = self._fresh(rows)
        stored_rows = needed(before, fresh, group, due).selectExpr(*columns, "TRUE AS _known")
        both = fresh.selectExpr(*columns, "FALSE AS _known").union(stored_rows)
        # Structs compare by their fields: by the time from which a row counts, then by the total order.
        newest = f"MAX(STRUCT({', '.join(['counts_from', 'origin', *others])})) AS _newest"
        whole = both.groupBy(*quoted(group)).agg(F.expr(newest), F.expr("BOOL_OR(_known) AS _known"))
        boundaries = whole.selectExpr(*quoted(group), "_newest.*", "_known")
        return Windowed(
            changes=boundaries.where(f"_known OR NOT ({due})").selectExpr(*columns, f"({due}) AS _deleted"),
            final=origin.ordered(
                boundaries.where(due).selectExpr(*quoted(group), *others, *origin.final_at("boundary")), "topic"
            ),
            late=no_late_rows(rows, operator=_NAME),
        )

    def _fresh(self, rows: DataFrame) -> DataFrame:
        """Rows with the boundary at which they are due."""
        counts_from = "GREATEST(_event_time, _frontier)"
        timed = with_key(rows, self.keys).selectExpr(
            *quoted_names(self.keys),
            *quoted(column.name for column in self.others),
            f"{counts_from} AS counts_from",
            f"{origin.OF_ROW} AS origin",
        )
        return timed.selectExpr("*", f"{self.grid.last('counts_from')} AS _start").selectExpr(
            "* EXCEPT (_start)", f"{self.grid.end('_start')} AS boundary"
        )
