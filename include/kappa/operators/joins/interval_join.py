"""A join of two streams: rows of one key whose times are near each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kappa.errors import TopologyError
from kappa.operators import origin
from kappa.operators.bound import RowsOperator, declared_as, emission, with_event_time
from kappa.operators.frames import check_rows, check_times
from kappa.operators.joins.join_columns import How, JoinColumns, JoinKey, join_columns
from kappa.operators.joins.join_side import PLACE, Side, identity
from kappa.operators.timed.late import late_records, late_rows
from kappa.topology import Slice, Table
from kappa.topology.ddl import ddl_of, quoted
from kappa.topology.emission import PARTNER
from kappa.topology.operator import Outcome, label
from kappa.topology.operator_inputs import Reads, rows_input
from kappa.topology.times.durations import milliseconds, shown
from kappa.topology.times.event_time import Frontier, least

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = "interval_join"
_MICROS = "UNIX_MICROS(_event_time)"
_TIME = "UNIX_MICROS({0}._event_time)"


@declared_as(
    "interval_join(orders, payments, key='id', within='10 minutes', tables=('waiting_orders', 'waiting_payments'))"
)
def interval_join(
    left: Reads,
    right: Reads,
    *,
    key: JoinKey,
    tables: tuple[str, str],
    within: str | None = None,
    before: str | None = None,
    after: str | None = None,
    how: How = "inner",
    left_rows: str = "",
    right_rows: str = "",
) -> RowsOperator[IntervalJoined]:
    """Rows of two streams with the same key and times near each other (Kafka Streams: ``KStream.join`` with
    ``JoinWindows``).

    A right row is a partner when its time lies from ``before`` before the left row's to ``after`` after it, both
    included. A pair is emitted once, in the slice in which both rows are present. A row without a partner is emitted
    once, when its reach is before the frontiers of *both* sides: then no partner can arrive any more, and rows of one
    key are emitted in order of their times. This costs the grace of its own side in latency. Kafka Streams emits it
    with the first record after the window's end; before version 3.1 it emitted it immediately, to correct it later.

    Columns: those of the left side, then those of the right one without its key; a right column whose name the left
    side also has ends in ``_right``. With ``outer``, the key of a right row has the left name. Emitted rows also carry
    ``_event_time``, the later of both times, the place of the left record, and ``_partner``, which tells the pairs of
    one record apart: a further join needs it, so a step keeps it where it selects. The place of a row without a partner
    begins with the time at which it became final, the end of its reach.

    A row is refused when its time is before its own frontier at the record. Other rows that arrive out of order are
    joined as if they had arrived in time. A row with a null key has no partner: ``inner`` drops it, ``left`` keeps it
    on the left, ``outer`` on both sides, and it waits like others. A side may have several rows of one record, with one
    key or several. Rows that delete a key are refused on both sides: null values of a source with ``tombstones=True``,
    changes of a table and of a database.

    State, in two tables: each side's rows until the other side's frontier has passed their reach. If a side's rows
    without a partner are emitted, the state also has whether a row has had one; rows without one wait for both
    frontiers. So a row stays for its reach, the greater grace, and as long as one side is behind. Class: any cut. The
    cost of a slice is its pairs and the rows of a key within some reaches of each other, not all rows of a key.

    Args:
        left: the source of the left rows, or another operator's emission.
        right: the same for the right rows.
        key: column or columns that both sides have, or left column -> right column.
        tables: names of its tables: waiting left rows, and waiting right rows.
        within: how far apart the times may be, either way.
        before: instead of ``within``, how much earlier the right row may be; by default not at all.
        after: likewise, how much later the right row may be.
        how: ``inner``: pairs; ``left``: also left rows without a partner; ``outer``: also those of both sides.
        left_rows: Spark DDL of the left rows, with what the step adds to them; empty for all columns of the input.
        right_rows: the same for the right rows.

    Raises:
        TopologyError: a column, a length of time or ``how`` does not fit, or an input has no event time.

    Examples:
        >>> from kappa import Source
        >>> from kappa.operators import interval_join
        >>> orders = Source(topic="orders", schema="id STRING, sku STRING", grace="1 minute")
        >>> payments = Source(topic="payments", schema="id STRING, amount DECIMAL(12,2)", grace="1 minute")
        >>> waiting = ("waiting_orders", "waiting_payments")
        >>> paid = interval_join(orders, payments, key="id", within="10 minutes", how="left", tables=waiting)
        >>> paid.schema
        '`id` STRING, `sku` STRING, `amount` DECIMAL(12, 2)'
    """
    what = label(_NAME, *tables)
    lefts, rights = (
        rows_input(of, what, rows=rows, is_timed=True, is_kept=True)
        for of, rows in ((left, left_rows), (right, right_rows))
    )
    columns = join_columns(
        what=_NAME,
        left=lefts.rows,
        right=rights.rows,
        key=key,
        how=how,
        allowed=("inner", "left", "outer"),
        of_streams=True,
    )
    back, ahead = _reach(within, before, after)
    join = IntervalJoin(
        columns=columns,
        before_ms=back,
        after_ms=ahead,
        is_left_emitted=lefts.is_emitted,
        is_right_emitted=rights.is_emitted,
    )
    left_table, right_table = tables

    def compute(slice: Slice, rows: tuple[DataFrame, ...]) -> Outcome[IntervalJoined]:
        result = join(
            *rows,
            left_before=slice.table(left_table),
            right_before=slice.table(right_table),
            left_frontier=lefts.frontier(slice),
            right_frontier=rights.frontier(slice),
        )
        changes = (result.left_changes, result.right_changes)
        return Outcome(result=result, changes=changes, emitted="rows", late=result.late)

    # A row without a partner is older than the frontier by its reach; the later record of a pair is new.
    behind = {"inner": 0, "left": ahead, "outer": max(back, ahead)}[how]
    times = {} if how == "outer" else lefts.times_passed_on(ahead)  # the left record of a pair may be the earlier one
    return RowsOperator(
        name=_NAME,
        inputs=(lefts, rights),
        tables=(join.left_table(left_table), join.right_table(right_table)),
        compute=compute,
        # The event time of a pair is that of its later record.
        emits=emission(what, join.schema, lefts, rights, behind_ms=behind, times=times, lags=times, comes="partner"),
    )


@dataclass(frozen=True, kw_only=True)
class IntervalJoined:
    """The result of an interval join for a slice.

    Attributes:
        rows: pairs, and rows without a partner, each once in the life of the stream, with the order columns of the left
            record and ``_event_time``.
        left_changes: rows of the left table; rows to delete have ``_deleted``.
        right_changes: the same for the right table.
        late: refused records, in the form of the output ``late_records``.
    """

    rows: DataFrame
    left_changes: DataFrame
    right_changes: DataFrame
    late: DataFrame


@dataclass(frozen=True, kw_only=True)
class IntervalJoin:
    """A join by interval, before it is bound; :func:`interval_join` makes it.

    Attributes:
        columns: columns of both sides and of the joined rows.
        before_ms: how much earlier than the left row the right one may be.
        after_ms: how much later.
        is_left_emitted: whether another operator emits the left rows.
        is_right_emitted: whether another operator emits the right rows.
    """

    columns: JoinColumns
    before_ms: int
    after_ms: int
    is_left_emitted: bool = False
    is_right_emitted: bool = False

    @property
    def schema(self) -> str:
        """DDL of the emitted rows."""
        return ddl_of(self.columns.joined)

    def left_table(self, name: str) -> Table:
        """The state of the left side."""
        return self._left.table(name, self._made_by)

    def right_table(self, name: str) -> Table:
        """The state of the right side."""
        return self._right.table(name, self._made_by)

    def __call__(
        self,
        left: DataFrame,
        right: DataFrame,
        *,
        left_before: DataFrame,
        right_before: DataFrame,
        left_frontier: Frontier,
        right_frontier: Frontier,
    ) -> IntervalJoined:
        """Join the rows of a slice with each other and with waiting rows.

        Args:
            left: rows with the left columns, ``_event_time``, ``_frontier`` and the order columns.
            right: rows with the right columns and the same.
            left_before: the left table before the slice.
            right_before: the right table before the slice.
            left_frontier: the frontier of the left source at the end of the slice.
            right_frontier: the frontier of the right source.

        Raises:
            TopologyError: a column of the rows is missing or of another type.
        """
        for rows, side in ((left, self._left), (right, self._right)):
            check_times(rows, _NAME)
            check_rows(rows, side.columns, _NAME)
        lefts, rights = self._left.admitted(left), self._right.admitted(right)
        waiting_rights = right_before.select(*quoted(rights.columns))
        # A new row is compared with all rows of the other side, an old one only with new rows there. So a small slice
        # reaches the whole state without shuffling it.
        rows = self._pairs(lefts, waiting_rights.unionByName(rights)).unionByName(self._pairs(left_before, rights))
        lesser = least([left_frontier, right_frontier])
        left_changes = self._left.changes(
            lefts, left_before, rights, right_before, frontier=right_frontier, lesser=lesser
        )
        right_changes = self._right.changes(
            rights, right_before, lefts, left_before, frontier=left_frontier, lesser=lesser
        )
        if left_changes.unmatched is not None:
            rows = rows.unionByName(left_changes.unmatched.selectExpr(*self.columns.of_left, *PLACE, PARTNER))
        if right_changes.unmatched is not None:
            rows = rows.unionByName(right_changes.unmatched.selectExpr(*self.columns.of_right, *PLACE, PARTNER))
        return IntervalJoined(
            rows=origin.ordered(with_event_time(rows), "contributor"),
            left_changes=left_changes.rows,
            right_changes=right_changes.rows,
            late=late_records(
                late_rows(self._left.refused(left), operator=_NAME, reason="the left row is before its frontier"),
                late_rows(self._right.refused(right), operator=_NAME, reason="the right row is before its frontier"),
            ),
        )

    def _pairs(self, left: DataFrame, right: DataFrame) -> DataFrame:
        """Pairs of rows that are near each other, sought in the cells of a grid: a right row lies in one cell, and the
        reach of a left row in one or two.
        """
        from pyspark.sql import functions as F

        first, last = (f"({_MICROS} {by * 1000:+}L)" for by in (-self.before_ms, self.after_ms))
        cells = f"EXPLODE(SEQUENCE({self._cell(first)}, {self._cell(last)}, {self._width}L)) AS _cell"
        lefts = left.selectExpr("*", cells).alias("l")
        rights = right.selectExpr("*", f"{self._cell(_MICROS)} AS _cell").alias("r")
        l_time, r_time = _TIME.format("l"), _TIME.format("r")
        is_near = f"{r_time} BETWEEN {l_time} - {self.before_ms * 1000}L AND {l_time} + {self.after_ms * 1000}L"
        on = F.expr(f"{self.columns.is_equal} AND l._cell = r._cell AND {is_near}")
        *place, _ = (f"l.{name}" for name in PLACE)
        return lefts.join(rights, on, "inner").selectExpr(
            *self.columns.of_pair,
            *place,
            "GREATEST(l._event_time, r._event_time) AS _event_time",
            f"CONCAT_WS('|', {', '.join(self._partner)}) AS {PARTNER}",
        )

    @property
    def _partner(self) -> list[str]:
        """SQL of the columns that distinguish pairs of one left record: the further identity of the left row, and the
        whole identity of the right one.
        """
        left = [f"l.{PARTNER}"] if self.is_left_emitted else []
        return [*left, *(f"CAST(r.{name} AS STRING)" for name in identity(is_emitted=self.is_right_emitted))]

    @property
    def _width(self) -> int:
        """Width of a cell in microseconds: some reaches. With narrower cells most left rows would appear twice."""
        return 4 * (self.before_ms + self.after_ms) * 1000 + 1

    def _cell(self, micros: str) -> str:
        """SQL of the cell that a time lies in."""
        return f"({micros} - PMOD({micros}, {self._width}L))"

    @property
    def _left(self) -> Side:
        return Side(
            columns=self.columns.left,
            key=self.columns.left_key,
            other_key=self.columns.right_key,
            back_ms=self.before_ms,
            ahead_ms=self.after_ms,
            is_tracked=self.columns.how != "inner",
            keeps_all=self.columns.how != "inner",
            is_emitted=self.is_left_emitted,
        )

    @property
    def _right(self) -> Side:
        return Side(
            columns=self.columns.right,
            key=self.columns.right_key,
            other_key=self.columns.left_key,
            back_ms=self.after_ms,
            ahead_ms=self.before_ms,
            is_tracked=self.columns.how == "outer",
            keeps_all=self.columns.how == "outer",
            is_emitted=self.is_right_emitted,
        )

    @property
    def _made_by(self) -> str:
        reach = f"before={shown(self.before_ms)}, after={shown(self.after_ms)}"
        return f"{_NAME}({self.columns.key_text}, {reach}, how={self.columns.how})"


def _reach(within: str | None, before: str | None, after: str | None) -> tuple[int, int]:
    if (within is None) == (before is None and after is None):
        raise TopologyError(
            f"{_NAME}: within={within!r}, before={before!r}, after={after!r}. Give within, or before and after: "
            "within='10 minutes'."
        )
    if within is not None:
        reach = milliseconds(within, f"{_NAME}: within")
        return reach, reach
    back = 0 if before is None else milliseconds(before, f"{_NAME}: before")
    return back, 0 if after is None else milliseconds(after, f"{_NAME}: after")
