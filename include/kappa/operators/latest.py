"""The newest row of each key, also where the records of a key lie in several partitions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

from kappa.errors import TopologyError
from kappa.operators import origin
from kappa.operators.frames import check_rows
from kappa.operators.keys import Key, key_columns, key_ddl, of_keys
from kappa.operators.records import is_deleted, last_of_each
from kappa.operators.sequence import content as content_of
from kappa.topology import ORDER, Table
from kappa.topology.ddl import Column, columns_of, ddl_of, quote, quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Where the records of one key may lie.
Scope = Literal["partition", "all"]


@dataclass(frozen=True, kw_only=True)
class NewestRows:
    """What :class:`NewestBy` makes of a slice.

    Attributes:
        changes: rows of the table, at most one a key, with ``_deleted``.
        deletions: rows of the table of deleted keys, likewise; None unless ``scope`` is ``all``.
    """

    changes: DataFrame
    deletions: DataFrame | None


@dataclass(frozen=True, kw_only=True)
class NewestBy:
    """The operator that :func:`newest_by` makes; call it in the step.

    Attributes:
        rows: Spark DDL of the rows that go in.
        key: names of the key columns.
        scope: where the records of one key may lie.
    """

    rows: str
    key: tuple[str, ...]
    scope: Scope

    def table(self, name: str) -> Table:
        """The table of the newest rows: their columns, and ``origin``, the place that each has in the total order."""
        keys = key_ddl(self._keys)
        rest = ddl_of(column for column in self._columns if column.name not in self.key)
        parts = [keys, *([rest] if rest else []), f"{origin.ORIGIN} {origin.ORIGIN_TYPE}"]
        return Table(name=name, key=self.key, schema=", ".join(parts), made_by=self._made_by)

    def deletions(self, name: str) -> Table:
        """The table of keys that were deleted last, and where; only with ``scope="all"``.

        Raises:
            TopologyError: the scope is ``partition``, which needs none.
        """
        if self.scope != "all":
            raise TopologyError(
                f"newest_by of {list(self.key)}: scope={self.scope!r} keeps no deleted keys. Leave the table out, or "
                "choose scope='all'."
            )
        schema = f"{key_ddl(self._keys)}, {origin.ORIGIN} {origin.ORIGIN_TYPE}"
        return Table(name=name, key=self.key, schema=schema, made_by=f"{self._made_by} deletions")

    def __call__(self, rows: DataFrame, *, before: DataFrame, deletions: DataFrame | None = None) -> NewestRows:
        """The changes that a slice makes.

        Args:
            rows: the rows with the order columns; a true ``_deleted`` deletes its key, see
                :func:`kappa.operators.tombstones`.
            before: ``slice.table`` of :meth:`table`.
            deletions: that of :meth:`deletions`.

        Raises:
            TopologyError: ``deletions`` is missing where the scope is ``all``, or given where it is not; a column of
                the rows is missing or of another type.
        """
        if (self.scope == "all") != (deletions is not None):
            raise TopologyError(
                f"newest_by of {list(self.key)}: its scope is {self.scope!r}, and the table of deletions is "
                f"{'missing' if deletions is None else 'given'}. Give it where the scope is 'all', and only there."
            )
        check_rows(rows, self._columns, "newest_by")
        keys, names = quoted(self.key), quoted(column.name for column in self._columns)
        declared = rows.selectExpr(*names, *ORDER, f"{is_deleted(rows)} AS _deleted")
        mine = last_of_each(declared, key=self.key).selectExpr(
            *names, f"{origin.OF_ROW} AS {origin.ORIGIN}", "_deleted"
        )
        # Rows of one record are in one slice; several pairs of one left row need not be.
        content = content_of(before.select(*names)) if origin.order_of(rows) == "contributor" else []
        place = f"STRUCT({', '.join([origin.ORIGIN, *content])})"
        was = of_keys(before.selectExpr(*keys, f"{place} AS _known"), mine, self.key)
        known = mine.join(was, on=list(self.key), how="left")
        columns = [*names, origin.ORIGIN]
        if deletions is None:
            newer = known.where(f"_known IS NULL OR {place} > _known")
            return NewestRows(changes=_changed(newer, columns), deletions=None)
        gone = of_keys(deletions.selectExpr(*keys, f"{origin.ORIGIN} AS _gone"), mine, self.key)
        newer = known.join(gone, on=list(self.key), how="left").where(
            f"(_known IS NULL OR {place} > _known) AND (_gone IS NULL OR {origin.ORIGIN} > _gone)"
        )
        marks = newer.where("_deleted OR _gone IS NOT NULL").selectExpr(
            *keys, origin.ORIGIN, "NOT _deleted AS _deleted"
        )
        return NewestRows(changes=_changed(newer, columns), deletions=marks)

    @cached_property
    def _columns(self) -> tuple[Column, ...]:
        return columns_of(self.rows, "the rows of newest_by")

    @cached_property
    def _keys(self) -> tuple[Column, ...]:
        return key_columns(self.rows, self.key, "newest_by")

    @property
    def _made_by(self) -> str:
        return f"newest_by(key={','.join(map(quote, self.key))}, scope={self.scope})"


def newest_by(*, rows: str, key: Key, scope: Scope = "partition") -> NewestBy:
    """The newest row of each key in the total order, remembered from slice to slice (a KTable).

    Where :func:`kappa.operators.newest` looks at one slice, this compares with the row that the table has: a record of
    a partition that lags changes nothing when a newer one of its key is there. A row with a null key has no history and
    is left out. A deleted key leaves the table; a deletion of a key that is not there changes nothing.

    State: each key's row with its ``origin``, until it is deleted. With ``scope="all"`` also the keys that are deleted,
    for ever: without them a record that is older than the deletion, and comes later, would bring its key back. Class:
    any cut; with deletions and ``scope="partition"`` only where each key stays in one partition.

    Args:
        rows: Spark DDL of the rows, key columns included.
        key: column or columns.
        scope: ``partition`` where keys that are deleted stay in one partition, ``all`` where they need not.

    Raises:
        TopologyError: the key is not among the rows, or there is no such scope.

    Examples:
        >>> from kappa.operators import newest_by
        >>> orders = newest_by(rows="id STRING NOT NULL, amount BIGINT", key="id")
        >>> [column.name for column in orders.table("orders").columns]
        ['id', 'amount', 'origin']
    """
    if scope not in get_args(Scope):
        raise TopologyError(f"newest_by: scope={scope!r} is none of {', '.join(get_args(Scope))}.")
    keys = key_columns(rows, key, "newest_by")
    return NewestBy(rows=rows, key=tuple(column.name for column in keys), scope=scope)


def _changed(newer: DataFrame, columns: list[str]) -> DataFrame:
    """A deletion of a key that the table lacks is no change."""
    return newer.where("NOT _deleted OR _known IS NOT NULL").selectExpr(*columns, "_deleted")
