"""One side of a join of streams: the rows that are admitted, wait for partners and go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kappa.operators.join_columns import state_ddl
from kappa.operators.keys import is_present
from kappa.operators.late import IS_IN_TIME, IS_LATE
from kappa.topology import ORDER, Table
from kappa.topology.ddl import Column, quote, quoted
from kappa.topology.event_time import Frontier, Reach

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: A row's record and its time, as state and emitted rows have them.
PLACE = (*ORDER, "_event_time")
#: Their types. A state table is keyed by the record too: these are columns and no struct.
PLACE_DDL = (
    "_order_timestamp TIMESTAMP NOT NULL",
    "_topic STRING NOT NULL",
    "_partition INT NOT NULL",
    "_offset BIGINT NOT NULL",
    "_event_time TIMESTAMP NOT NULL",
)
#: What names a record.
RECORD = ("_topic", "_partition", "_offset")
_MET = "_has_met"


@dataclass(frozen=True, kw_only=True)
class SideChanges:
    """What becomes of a side in a slice.

    Attributes:
        rows: rows of its table; those that go have ``_deleted``.
        unmatched: rows that go, or never came into the table, without ever having had a partner; None where that is not
            tracked.
    """

    rows: DataFrame
    unmatched: DataFrame | None = None


@dataclass(frozen=True, kw_only=True)
class Side:
    """One side of an interval join.

    Attributes:
        columns: its columns.
        key: names of the key's.
        other_key: names of their counterparts on the other side.
        back_ms: how much earlier than a row of this side a partner may be.
        ahead_ms: how much later.
        is_tracked: whether rows without a partner are wanted.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    other_key: tuple[str, ...]
    back_ms: int
    ahead_ms: int
    is_tracked: bool

    def table(self, name: str, made_by: str, *, is_bounded: bool = True) -> Table:
        """The rows that may still meet a partner; ``is_bounded``: see :class:`~kappa.topology.event_time.Reach`."""
        met = [f"{_MET} BOOLEAN NOT NULL"] if self.is_tracked else []
        schema = state_ddl(self.columns, *PLACE_DDL, *met)
        reach = Reach(ms=max(self.back_ms, self.ahead_ms), is_bounded=is_bounded)
        key = (*self.key, *RECORD)
        return Table(name=name, key=key, schema=schema, made_by=made_by, expires=True, reach=reach)

    def admitted(self, rows: DataFrame) -> DataFrame:
        """Rows with a key that are not late."""
        present = rows.where(f"{is_present(self.key)} AND {IS_IN_TIME}")
        return present.selectExpr(*quoted(column.name for column in self.columns), *PLACE)

    def refused(self, rows: DataFrame) -> DataFrame:
        """Rows with a key that are late."""
        return rows.where(f"{is_present(self.key)} AND {IS_LATE}")

    def stored(self, rows: DataFrame, met: str = "FALSE") -> DataFrame:
        """Admitted rows as the table has them."""
        return rows.selectExpr("*", f"{met} AS {_MET}") if self.is_tracked else rows

    def changes(
        self, rows: DataFrame, before: DataFrame, others: DataFrame, others_before: DataFrame, *, frontier: Frontier
    ) -> SideChanges:
        """What becomes of rows that came and of those that waited.

        Args:
            rows: admitted rows of the slice.
            before: its table before the slice.
            others: admitted rows of the other side.
            others_before: the other table.
            frontier: that of the other side, behind the slice: it refuses what is before.
        """
        is_over = frontier.is_past("_event_time", by_ms=self.ahead_ms)  # no partner can come any more
        gone = before.where(is_over).selectExpr("*", "TRUE AS _deleted")
        if not self.is_tracked:
            kept = rows.where(f"NOT {is_over}").selectExpr("*", "FALSE AS _deleted")
            return SideChanges(rows=gone.unionByName(kept))
        checked = self._checked(rows, before, others, others_before)
        # An old row is written again only when it has met its first partner.
        kept = self.stored(
            checked.where(f"NOT {is_over} AND (_is_new OR _meets)").drop("_is_new"), "_meets"
        ).selectExpr("* EXCEPT (_meets)", "FALSE AS _deleted")
        return SideChanges(rows=gone.unionByName(kept), unmatched=checked.where(f"{is_over} AND NOT _meets"))

    def _checked(self, rows: DataFrame, before: DataFrame, others: DataFrame, others_before: DataFrame) -> DataFrame:
        """Rows that have had no partner until now, with ``_is_new`` and ``_meets``.

        The last partner that is not behind a row's reach decides: one shuffle, and a maximum that grows as the window
        does, where a join would have to give each row once again.
        """
        waiting = before.where(f"NOT {_MET}").drop(_MET).selectExpr("*", "FALSE AS _is_new")
        keys = [f"{quote(other)} AS {quote(own)}" for own, other in zip(self.key, self.other_key, strict=True)]
        times = _times(others, keys).unionByName(_times(others_before, keys))
        both = waiting.unionByName(rows.selectExpr("*", "TRUE AS _is_new")).unionByName(times, allowMissingColumns=True)
        last = (
            "MAX(IF(_is_new IS NULL, UNIX_MICROS(_event_time), NULL)) OVER "
            f"(PARTITION BY {', '.join(quoted(self.key))} ORDER BY UNIX_MICROS(_event_time) "
            f"RANGE BETWEEN UNBOUNDED PRECEDING AND {self.ahead_ms * 1000}L FOLLOWING)"
        )
        meets = f"COALESCE({last} >= UNIX_MICROS(_event_time) - {self.back_ms * 1000}L, FALSE)"
        return both.selectExpr("*", f"{meets} AS _meets").where("_is_new IS NOT NULL")


def _times(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    return rows.selectExpr(*keys, "_event_time")
