"""The first record of each key, and none of those that repeat it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from kappa.errors import TopologyError
from kappa.operators import origin
from kappa.operators.keys import Key, in_order, is_present, key_columns, key_ddl
from kappa.operators.late import IS_IN_TIME, IS_LATE, late_rows
from kappa.topology import Table
from kappa.topology.ddl import Column, quote, quoted
from kappa.topology.durations import milliseconds, shown
from kappa.topology.event_time import Frontier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LATE = "its time lies before the frontier"


@dataclass(frozen=True, kw_only=True)
class DistinctRows:
    """What :class:`Deduplicate` makes of a slice.

    Attributes:
        rows: the first record of each key, with all its columns.
        changes: rows of the table of keys that were seen, at most one a key, with ``_deleted``.
        late: records that were refused; None without ``within``, which refuses none.
    """

    rows: DataFrame
    changes: DataFrame
    late: DataFrame | None


@dataclass(frozen=True, kw_only=True)
class Deduplicate:
    """The operator that :func:`deduplicate` makes; call it in the step.

    Attributes:
        rows: Spark DDL of the rows that go in.
        key: names of the key columns.
        within_ms: how far a record may lie behind the last one of its key and repeat it; None for ever.
    """

    rows: str
    key: tuple[str, ...]
    within_ms: int | None

    def table(self, name: str) -> Table:
        """The table of keys that were seen: for ever with the ``origin`` of the first, else with ``last_seen``."""
        kept = f"{origin.ORIGIN} {origin.ORIGIN_TYPE}" if self.within_ms is None else "last_seen TIMESTAMP NOT NULL"
        within = "for ever" if self.within_ms is None else shown(self.within_ms)
        made_by = f"deduplicate(key={','.join(map(quote, self.key))}, within={within})"
        return Table(
            name=name,
            key=self.key,
            schema=f"{key_ddl(self._keys)}, {kept}",
            made_by=made_by,
            expires=self.within_ms is not None,
        )

    def __call__(self, rows: DataFrame, *, before: DataFrame, frontier: Frontier | None = None) -> DistinctRows:
        """The records of a slice that repeat none.

        Args:
            rows: the rows with the order columns; with ``within`` also ``_event_time`` and ``_frontier``.
            before: ``slice.table`` of :meth:`table`.
            frontier: ``slice.frontier`` of the rows' source, with ``within``.

        Raises:
            TopologyError: the frontier is missing where there is ``within``, or given where there is none.
        """
        if (self.within_ms is None) != (frontier is None):
            raise TopologyError(
                f"deduplicate of {list(self.key)}: within and frontier go together. Give frontier=slice.frontier(...) "
                "where there is a within, and only there."
            )
        keyed = rows.where(is_present(self.key))
        return self._for_ever(keyed, before) if frontier is None else self._within(keyed, before, frontier)

    def _for_ever(self, rows: DataFrame, before: DataFrame) -> DistinctRows:
        unseen = rows.join(before.select(*quoted(self.key)), on=list(self.key), how="left_anti")
        numbered = unseen.selectExpr("*", f"LAG(TRUE) OVER ({in_order(self.key)}) AS _has_earlier")
        first = numbered.where("_has_earlier IS NULL").drop("_has_earlier")
        changes = first.selectExpr(*quoted(self.key), f"{origin.OF_ROW} AS {origin.ORIGIN}", "FALSE AS _deleted")
        return DistinctRows(rows=first, changes=changes, late=None)

    def _within(self, rows: DataFrame, before: DataFrame, frontier: Frontier) -> DistinctRows:
        from pyspark.sql import functions as F

        assert self.within_ms is not None
        within = f"INTERVAL '{self.within_ms // 1000}.{self.within_ms % 1000:03d}' SECOND"
        known = before.selectExpr(*quoted(self.key), "last_seen AS _known")
        late = late_rows(rows.where(IS_LATE), operator="deduplicate", reason=_LATE)
        so_far = f"MAX(_event_time) OVER ({in_order(self.key)} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        admitted = rows.where(IS_IN_TIME).join(known, on=list(self.key), how="left")
        followed = admitted.selectExpr("*", f"GREATEST(_known, {so_far}) AS _seen")
        kept = followed.where(f"_seen IS NULL OR _event_time > _seen + {within}").drop("_known", "_seen")
        # A key is forgotten once no record that is still admitted could repeat it: that depends on no slice.
        latest = admitted.groupBy(*quoted(self.key)).agg(F.expr("MAX(_event_time) AS _latest"))
        both = known.join(latest, on=list(self.key), how="full_outer").selectExpr(
            *quoted(self.key),
            "GREATEST(_known, _latest) AS last_seen",
            f"{frontier.is_past('GREATEST(_known, _latest)', by_ms=self.within_ms)} AS _deleted",
            "_known",
            "_latest",
        )
        changed = both.where("IF(_deleted, _known IS NOT NULL, _latest IS NOT NULL AND NOT (last_seen <=> _known))")
        return DistinctRows(rows=kept, changes=changed.drop("_known", "_latest"), late=late)

    @cached_property
    def _keys(self) -> tuple[Column, ...]:
        return key_columns(self.rows, self.key, "deduplicate")


def deduplicate(*, rows: str, key: Key, within: str | None) -> Deduplicate:
    """The first record of each key in the total order; what repeats it is left out (first wins).

    Kafka Streams has no operator for it; its users write one with a window store. A record repeats its key when its
    event time is no more than ``within`` past the latest of that key, or before it; each repetition begins that time
    anew. Without ``within`` every further record of a key repeats it. A row with a null key is left out.

    Late: with ``within``, a record whose time lies before the frontier is refused, since its key may be forgotten. Out
    of order: a record that is older than the first of its key and comes after it in the total order is left out.

    State: the keys that were seen, until the frontier passes ``within`` after the latest; without ``within`` for ever.
    Class: any cut where each key stays in one partition, else time cut.

    Args:
        rows: Spark DDL of the rows, key columns included.
        key: column or columns: what makes two records the same.
        within: for how long a key is remembered, for example ``10 minutes``; needs a source with ``grace``. None for
            ever, for sources without event time.

    Raises:
        TopologyError: the key is not among the rows, or ``within`` is no length of time.

    Examples:
        >>> from kappa.operators import deduplicate
        >>> first = deduplicate(rows="id STRING NOT NULL, amount BIGINT", key="id", within="10 minutes")
        >>> [column.name for column in first.table("seen").columns]
        ['id', 'last_seen']
    """
    keys = key_columns(rows, key, "deduplicate")
    within_ms = None if within is None else milliseconds(within, "deduplicate: within")
    return Deduplicate(rows=rows, key=tuple(column.name for column in keys), within_ms=within_ms)
