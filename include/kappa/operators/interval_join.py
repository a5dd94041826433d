"""Two streams joined: rows of one key whose times are near each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kappa.errors import TopologyError
from kappa.operators.join_columns import How, JoinColumns, JoinKey, join_columns
from kappa.operators.join_side import PLACE, Side
from kappa.operators.late import late_records, late_rows
from kappa.topology import Table
from kappa.topology.ddl import ddl_of
from kappa.topology.durations import milliseconds, shown
from kappa.topology.event_time import Frontier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = "interval_join"
_TIME = "UNIX_MICROS({0}._event_time)"


def interval_join(
    *,
    left: str,
    right: str,
    key: JoinKey,
    within: str | None = None,
    before: str | None = None,
    after: str | None = None,
    how: How = "inner",
) -> IntervalJoin:
    """Rows of two streams with the same key and times near each other (Kafka Streams: ``KStream.join`` with
    ``JoinWindows``).

    A right row is a partner when its time lies from ``before`` before the left row's to ``after`` after it, both
    included. A pair is emitted once, in the slice in which both are there. A row without a partner is emitted once,
    when none can come any more: its reach is before the frontier of the *other* side. Kafka Streams emits it with the
    first record behind the window's end, or before version 3.1 at once, to correct it later.

    Columns: those of the left side, then those of the right one without its key; a right column of a name that the left
    side has too ends in ``_right``. With ``outer``, the key of a right row stands under the left name. Emitted rows
    also carry ``_event_time``, the later of both times, and the place of the left record; a right row without a partner
    its own.

    A row is refused when its time is before its own frontier at the record. What comes out of order otherwise is joined
    as if it had come in time. A row with a null key has no history and is left out, with ``left`` and ``outer`` too.
    Of one record, a side has at most one row a key.

    State, in two tables: each side's rows until the other side's frontier has passed their reach; with ``left`` and
    ``outer`` also whether they have had a partner. A row so stays for its reach, the other side's grace, and as long as
    that side is behind. Class: any cut.

    Args:
        left: Spark DDL of the left rows.
        right: Spark DDL of the right rows.
        key: column or columns that both sides have, or left column -> right column.
        within: how far apart the times may be, either way.
        before: instead of it, how much earlier the right row may be; nothing unless it is given.
        after: how much later it may be; likewise.
        how: ``inner``: pairs; ``left``: left rows without a partner too; ``outer``: those of both sides.

    Raises:
        TopologyError: a column, a length of time or ``how`` does not fit.

    Examples:
        >>> from kappa.operators import interval_join
        >>> order, payment = "id STRING, sku STRING", "id STRING, amount DECIMAL(12,2)"
        >>> paid = interval_join(left=order, right=payment, key="id", within="10 minutes", how="left")
        >>> paid.schema
        '`id` STRING NOT NULL, `sku` STRING, `amount` DECIMAL(12, 2)'
    """
    columns = join_columns(what=_NAME, left=left, right=right, key=key, how=how, allowed=("inner", "left", "outer"))
    back, ahead = _reach(within, before, after)
    return IntervalJoin(columns=columns, before_ms=back, after_ms=ahead)


@dataclass(frozen=True, kw_only=True)
class IntervalJoined:
    """What an interval join gives for a slice.

    Attributes:
        rows: pairs, and rows without a partner, each once in the life of the stream, with the order columns of the left
            record and ``_event_time``.
        left_changes: rows of the left table; those that go have ``_deleted``.
        right_changes: the same of the right table.
        late: refused records, as the output ``late_records`` keeps them.
    """

    rows: DataFrame
    left_changes: DataFrame
    right_changes: DataFrame
    late: DataFrame


@dataclass(frozen=True, kw_only=True)
class IntervalJoin:
    """A declared interval join; :func:`interval_join` makes it.

    Attributes:
        columns: columns of both sides and of the joined rows.
        before_ms: how much earlier than the left row the right one may be.
        after_ms: how much later.
    """

    columns: JoinColumns
    before_ms: int
    after_ms: int

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
        """Join the rows of a slice with each other and with those that wait.

        Args:
            left: rows with the left columns, ``_event_time``, ``_frontier`` and the order columns.
            right: rows with the right columns and the same.
            left_before: the left table before the slice.
            right_before: the right table before the slice.
            left_frontier: the frontier of the left source at the end of the slice.
            right_frontier: the frontier of the right source.
        """
        lefts, rights = self._left.admitted(left), self._right.admitted(right)
        # A new row meets what the other side has; an old one only what is new there. A small slice then reaches the
        # whole state without a shuffle of it.
        rows = self._pairs(lefts, right_before.unionByName(self._right.stored(rights))).unionByName(
            self._pairs(left_before, rights)
        )
        left_changes = self._left.changes(lefts, left_before, rights, right_before, frontier=right_frontier)
        right_changes = self._right.changes(rights, right_before, lefts, left_before, frontier=left_frontier)
        if left_changes.unmatched is not None:
            rows = rows.unionByName(left_changes.unmatched.selectExpr(*self.columns.of_left, *PLACE))
        if right_changes.unmatched is not None:
            rows = rows.unionByName(right_changes.unmatched.selectExpr(*self.columns.of_right, *PLACE))
        return IntervalJoined(
            rows=rows,
            left_changes=left_changes.rows,
            right_changes=right_changes.rows,
            late=late_records(
                late_rows(self._left.refused(left), operator=_NAME, reason="the left row is before its frontier"),
                late_rows(self._right.refused(right), operator=_NAME, reason="the right row is before its frontier"),
            ),
        )

    def _pairs(self, left: DataFrame, right: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        l_time, r_time = _TIME.format("l"), _TIME.format("r")
        is_near = f"{r_time} BETWEEN {l_time} - {self.before_ms * 1000}L AND {l_time} + {self.after_ms * 1000}L"
        pairs = left.alias("l").join(right.alias("r"), F.expr(f"{self.columns.is_equal} AND {is_near}"), "inner")
        *place, _ = (f"l.{name}" for name in PLACE)
        return pairs.selectExpr(*self.columns.of_pair, *place, "GREATEST(l._event_time, r._event_time) AS _event_time")

    @property
    def _left(self) -> Side:
        return Side(
            columns=self.columns.left,
            key=self.columns.left_key,
            other_key=self.columns.right_key,
            back_ms=self.before_ms,
            ahead_ms=self.after_ms,
            is_tracked=self.columns.how != "inner",
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
