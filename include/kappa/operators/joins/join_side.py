"""One side of a join of streams: its rows are admitted, wait for partners and are removed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kappa.operators import origin
from kappa.operators.joins.join_columns import state_ddl
from kappa.operators.keys import by_content, is_present
from kappa.operators.timed.late import IS_IN_TIME, IS_LATE
from kappa.operators.timed.windowed import later
from kappa.topology import ORDER, Table
from kappa.topology.ddl import Column, quote, quoted
from kappa.topology.emission import PARTNER
from kappa.topology.times.event_time import Frontier, Reach

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A row's record and its time, as in state and emitted rows.
PLACE = (*ORDER, "_event_time")
#: The columns that identify a record.
RECORD = ("_topic", "_partition", "_offset")
#: The number of a row among those of its record: a step may make several of one record, with one key or without.
ROW = "_row"
#: The columns that identify the rows of a record in one slice: for rows of an operator, those final at one time or of
#: one partner.
EMITTED = (*RECORD, "_order_timestamp", PARTNER)
#: The types of place and row. They are the key of a state table, so they are columns and not a struct.
PLACE_DDL = (
    "_order_timestamp TIMESTAMP NOT NULL",
    "_topic STRING NOT NULL",
    "_partition INT NOT NULL",
    "_offset BIGINT NOT NULL",
    "_event_time TIMESTAMP NOT NULL",
    f"{ROW} INT NOT NULL",
)
_MET = "_has_met"


def identity(*, is_emitted: bool) -> tuple[str, ...]:
    """Columns that identify the rows of a record in one slice; with :data:`ROW` they identify one row."""
    return EMITTED if is_emitted else RECORD


def identity_ddl(*, is_emitted: bool) -> tuple[str, ...]:
    """The types of place, row and the other columns that identify a row of state."""
    return (*PLACE_DDL, f"{PARTNER} STRING NOT NULL") if is_emitted else PLACE_DDL


def place_of(rows: DataFrame, *, is_emitted: bool) -> tuple[str, ...]:
    """SQL of a row's place, and of the other columns that identify it in a state."""
    if not is_emitted:
        return PLACE
    return (*PLACE, f"COALESCE({PARTNER}, '') AS {PARTNER}" if PARTNER in rows.columns else f"'' AS {PARTNER}")


@dataclass(frozen=True, kw_only=True)
class SideChanges:
    """The changes of a side in a slice.

    Attributes:
        rows: rows of its table; rows to delete have ``_deleted``.
        unmatched: rows that leave the table, or never entered it, without ever having had a partner; None if that is
            not tracked.
    """

    rows: DataFrame
    unmatched: DataFrame | None = None


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of an interval join.

    Attributes:
        columns: its columns.
        key: names of the key columns.
        other_key: names of their counterparts on the other side.
        back_ms: how much earlier than a row of this side a partner may be.
        ahead_ms: how much later a partner may be.
        is_tracked: whether the state has which rows have had a partner.
        keeps_all: whether rows without a partner are emitted, including those with a null key.
        is_emitted: whether another operator emits its rows.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    other_key: tuple[str, ...]
    back_ms: int
    ahead_ms: int
    is_tracked: bool
    keeps_all: bool
    is_emitted: bool = False

    def table(self, name: str, made_by: str, *, is_bounded: bool = True) -> Table:
        """Rows that may still meet a partner; ``is_bounded`` as in :class:`~kappa.topology.times.event_time.Reach`."""
        met = [f"{_MET} BOOLEAN NOT NULL"] if self.is_tracked else []
        schema = state_ddl(self.columns, *identity_ddl(is_emitted=self.is_emitted), *met)
        reach = Reach(ms=max(self.back_ms, self.ahead_ms), is_bounded=is_bounded)
        key = (*identity(is_emitted=self.is_emitted), ROW)
        return Table(name=name, key=key, schema=schema, made_by=made_by, expires=True, reach=reach)

    def admitted(self, rows: DataFrame) -> DataFrame:
        """Rows that are not late, and that have a key if one is needed."""
        place = place_of(rows, is_emitted=self.is_emitted)
        return self._its_own(rows).where(IS_IN_TIME).selectExpr(*quoted(c.name for c in self.columns), *place)

    def numbered(self, rows: DataFrame) -> DataFrame:
        """Rows with their number among those of their record in one slice, in order of their content.

        The latest time comes first, so that the others keep their numbers when rows of earlier times are left out.
        """
        order = ["_event_time DESC", *by_content({column.name: column.delta for column in self.columns})]
        of = ", ".join(identity(is_emitted=self.is_emitted))
        return rows.selectExpr("*", f"ROW_NUMBER() OVER (PARTITION BY {of} ORDER BY {', '.join(order)}) AS {ROW}")

    def refused(self, rows: DataFrame) -> DataFrame:
        """The same for late rows."""
        return self._its_own(rows).where(IS_LATE)

    def changes(
        self,
        rows: DataFrame,
        before: DataFrame,
        others: DataFrame,
        others_before: DataFrame,
        *,
        frontier: Frontier,
        lesser: Frontier,
    ) -> SideChanges:
        """The changes by arriving and by waiting rows.

        Args:
            rows: admitted rows of the slice.
            before: its table before the slice.
            others: admitted rows of the other side.
            others_before: the other table.
            frontier: frontier of the other side after the slice, which refuses earlier rows.
            lesser: the lesser frontier of both sides. Rows without a partner wait for it, so that rows that are final
                later have later times.
        """
        is_over = frontier.is_past("_event_time", by_ms=self.ahead_ms)  # no partner can arrive any more
        if not self.is_tracked:
            deletions = before.where(is_over).selectExpr("*", "TRUE AS _deleted")
            waiting_rows = self.numbered(rows.where(f"NOT {is_over}")).selectExpr("*", "FALSE AS _deleted")
            return SideChanges(rows=deletions.unionByName(waiting_rows, allowMissingColumns=True))
        is_final = lesser.is_past("_event_time", by_ms=self.ahead_ms)
        waiting_rows = self.numbered(rows.where(f"NOT {is_final}"))
        passing = rows.where(is_final).selectExpr("*", f"CAST(NULL AS INT) AS {ROW}")
        checked = self._checked(waiting_rows.unionByName(passing), before, others, others_before)
        goes = f"({is_final} OR ({_MET} AND {is_over}))"
        # An old row is written again only when it has met its first partner, or is removed.
        touched = checked.where(f"IF(_is_new, NOT {goes}, {goes} OR {_MET})")
        changed = touched.selectExpr("* EXCEPT (_is_new)", f"{goes} AS _deleted")
        deletions = before.where(f"{_MET} AND {is_over}").selectExpr("*", "TRUE AS _deleted")
        unmatched = checked.where(f"{is_final} AND NOT {_MET}").alias("l")
        partner = PARTNER if self.is_emitted else f"'' AS {PARTNER}"
        place = [*origin.final_at(later("_event_time", self.ahead_ms), "l"), "_event_time", partner]
        return SideChanges(
            rows=deletions.unionByName(changed),
            unmatched=unmatched.selectExpr(*quoted(column.name for column in self.columns), *place),
        )

    def _its_own(self, rows: DataFrame) -> DataFrame:
        return rows if self.keeps_all else rows.where(is_present(self.key))

    def _checked(self, rows: DataFrame, before: DataFrame, others: DataFrame, others_before: DataFrame) -> DataFrame:
        """Rows that have had no partner so far, with ``_is_new`` and whether they have one now.

        The last partner that is not after a row's reach decides. This takes one shuffle and a maximum that grows with
        the window, where a join would need another pass to give each row once.
        """
        waiting = before.where(f"NOT {_MET}").drop(_MET).selectExpr("*", "FALSE AS _is_new")
        keys = [f"{quote(other)} AS {quote(own)}" for own, other in zip(self.key, self.other_key, strict=True)]
        times = self._times(others, keys).unionByName(self._times(others_before, keys))
        both = waiting.unionByName(rows.selectExpr("*", "TRUE AS _is_new")).unionByName(times, allowMissingColumns=True)
        last = (
            "MAX(IF(_is_new IS NULL, UNIX_MICROS(_event_time), NULL)) OVER "
            f"(PARTITION BY {', '.join(quoted(self.key))} ORDER BY UNIX_MICROS(_event_time) "
            f"RANGE BETWEEN UNBOUNDED PRECEDING AND {self.ahead_ms * 1000}L FOLLOWING)"
        )
        meets = f"COALESCE({last} >= UNIX_MICROS(_event_time) - {self.back_ms * 1000}L, FALSE)"
        return both.selectExpr("*", f"{meets} AS {_MET}").where("_is_new IS NOT NULL")

    def _times(self, rows: DataFrame, keys: Sequence[str]) -> DataFrame:
        """Times of the other side's rows that have a key."""
        return rows.where(is_present(self.other_key)).selectExpr(*keys, "_event_time")
