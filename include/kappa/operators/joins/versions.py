"""The versions of a table that rows of streams may still need, by event time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kappa.errors import TopologyError
from kappa.operators.bound import declared_as
from kappa.operators.frames import check_rows, check_times
from kappa.operators.joins.join_columns import found_columns, own_columns, state_ddl
from kappa.operators.joins.join_side import ROW, identity, identity_ddl, place_of
from kappa.operators.keys import Key, by_content, is_present
from kappa.operators.records import is_deleted
from kappa.topology import ORDER, Slice, Table
from kappa.topology.ddl import Column, ddl_of, names_of, quote, quoted
from kappa.topology.operator import Operator, Outcome, label
from kappa.topology.operator_inputs import Reads, RowsInput, rows_input
from kappa.topology.readers import kept_for, least_frontier, readers_of
from kappa.topology.times.event_time import Frontier, Reach, least

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = "versions_by"
#: What messages call its rows, with the operator that they are for.
_VERSIONS = "versions of a table_join"
_DDL = ("_valid_from TIMESTAMP NOT NULL", "_is_tombstone BOOLEAN NOT NULL")
#: SQL: whether a version with ``_until`` is needed by no row any more, or was replaced before it became valid.
_IS_GONE = "COALESCE(_until <= GREATEST({since}, _valid_from), FALSE)"


@dataclass(frozen=True, kw_only=True)
class KeptVersions:
    """The result of :func:`versions_by` for a slice.

    Attributes:
        versions: all versions of the slice, for the joins.
        changes: rows of its table; rows to delete have ``_deleted``.
    """

    versions: DataFrame
    changes: DataFrame


@dataclass(frozen=True, kw_only=True)
class Versions:
    """The versions of a table, before they are bound; :func:`versions_by` and ``table_join`` make it.

    Attributes:
        columns: columns of the table's rows; key columns are never null.
        key: names of the key's columns.
        is_emitted: whether another operator emits the versions.
    """

    columns: tuple[Column, ...]
    key: tuple[str, ...]
    is_emitted: bool = False

    def table(self, name: str, made_by: str) -> Table:
        """The state: versions that a row may still need."""
        # A deletion is a version as well, without values.
        columns = [column if column.name in self.key else replace(column, nullable=True) for column in self.columns]
        return Table(
            name=name,
            key=(*self.key, *identity(is_emitted=self.is_emitted), ROW),
            schema=state_ddl(columns, *identity_ddl(is_emitted=self.is_emitted), *_DDL),
            made_by=made_by,
            expires=True,
            reach=Reach(ms=0, is_bounded=False),
        )

    def of_slice(self, rows: DataFrame, before: DataFrame) -> DataFrame:
        """All versions, with ``_is_new`` and ``_until``, the time from which a greater one is valid.

        Args:
            rows: rows of the slice: the table's columns, the order columns, ``_event_time`` and ``_frontier``, and
                ``_deleted`` for keys to delete.
            before: the state before the slice.

        Raises:
            TopologyError: a column of the rows is missing or of another type.
        """
        check_times(rows, _VERSIONS)
        check_rows(rows, self.columns, _VERSIONS)
        new = rows.where(is_present(self.key)).selectExpr(
            *quoted(column.name for column in self.columns),
            *place_of(rows, is_emitted=self.is_emitted),
            f"CAST(NULL AS INT) AS {ROW}",
            "GREATEST(_event_time, _frontier) AS _valid_from",
            f"{is_deleted(rows)} AS _is_tombstone",
            "TRUE AS _is_new",
        )
        both = new.unionByName(before.selectExpr("*", "FALSE AS _is_new"), allowMissingColumns=True)
        values = by_content({column.name: column.delta for column in self.columns})
        backwards = ", ".join(f"{name} DESC" for name in ("_event_time", *ORDER, "_is_tombstone", *values))
        keys = ", ".join(map(quote, self.key))
        until = (
            f"MIN(_valid_from) OVER (PARTITION BY {keys} ORDER BY {backwards} "
            "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        )
        # Versions with one identity are all in one slice, or were all in an earlier one: their numbers never change.
        record = ", ".join(identity(is_emitted=self.is_emitted))
        number = f"ROW_NUMBER() OVER (PARTITION BY {keys}, {record} ORDER BY {backwards})"
        return both.selectExpr("*", f"{until} AS _until").selectExpr(
            f"* EXCEPT ({ROW})", f"IF(_is_new, {number}, {ROW}) AS {ROW}"
        )

    def changes(self, versions: DataFrame, since: Frontier) -> DataFrame:
        """The rows that the state gains and forgets.

        Args:
            versions: all versions of the slice.
            since: time from which rows may need versions.
        """
        is_gone = _IS_GONE.format(since=since.sql)
        return versions.where(f"_is_new <> {is_gone}").selectExpr(
            "* EXCEPT (_is_new, _until)", "NOT _is_new AS _deleted"
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class VersionsOperator(Operator[KeptVersions]):
    """An operator that keeps the versions of a table for several joins.

    Attributes:
        versions: the versions.
        read: the input that they come from.
    """

    versions: Versions
    read: RowsInput

    @property
    def schema(self) -> str:
        """Spark DDL of the table's rows, without columns of the operator's own."""
        return ddl_of(self.versions.columns)

    def tables_beside(self, operators: Sequence[Operator[Any]]) -> tuple[Table, ...]:
        """Its table, made for the joins that read it: it forgets versions that none of them needs.

        Raises:
            TopologyError: no operator reads it.
        """
        readers = readers_of(self, operators)
        if not readers:
            raise TopologyError(
                f"{self.what} keeps versions that no operator of the topology reads. List a join with them, "
                "table_join(orders, versions, key='sku', tables='waiting_orders'), or remove the operator."
            )
        return tuple(replace(table, made_by=kept_for(table.made_by, readers)) for table in self.tables)


@declared_as("versions_by(products, key='sku', table='prices')")
def versions_by(of: Reads, *, key: Key, table: str, rows: str = "") -> VersionsOperator:
    """The versions of a table by event time, for several joins with it (Kafka Streams: a versioned ``KTable``).

    Each :func:`kappa.operators.table_join` that is declared with it instead of a source takes the versions from here,
    and gives exactly the same rows as with a table of its own. That operator describes when a version is valid, which
    one counts, and what deletes a key. The versions are kept once, and read once per slice. Left sides may be any
    streams, with any key names, and rows of one of these joins may be the left side of another.

    A version is forgotten when *all* joins have passed the time from which a greater one is valid: the frontiers of all
    their left sides, and that of the table. A stream whose frontier stands still, because it has no records or one of
    its partitions has none, holds back the versions of all; its own rows wait as well. ``Source(idle_after=...)`` of
    that stream releases them.

    A step calls it before the joins, with rows if it shapes them: ``prices(slice, rows)``. The joins are called with
    their left rows alone. In a topology without a step it is listed before them. It emits nothing: an output is ``of``
    a join.

    State: versions until all joins have passed them; the greatest version of each key stays, even if it is a deletion.
    Its ``made_by`` names the joins for which it is kept. A savepoint whose state was kept for more joins can be used;
    for an additional join versions may be gone, and history is computed from the log. Class: any cut.

    Args:
        of: the source of the table's changes, or another operator's emission, such as the versions of a
            :func:`kappa.operators.cdc_table`.
        key: column or columns.
        table: the name of its table.
        rows: Spark DDL of the versions, with what the step adds to them; empty for all columns of the input.

    Raises:
        TopologyError: a key column is not among the rows, a column has a name that the platform uses, or the input has
            no event time.

    Examples:
        >>> from kappa import Source
        >>> from kappa.operators import table_join, versions_by
        >>> products = Source(topic="products", schema="sku STRING, price DECIMAL(12,2)", grace="1 minute")
        >>> orders = Source(topic="orders", schema="id STRING, sku STRING", grace="1 minute")
        >>> returns = Source(topic="returns", schema="id STRING, item STRING", grace="1 hour")
        >>> prices = versions_by(products, key="sku", table="prices")
        >>> priced = table_join(orders, prices, key="sku", tables="waiting_orders")
        >>> returned = table_join(returns, prices, key={"item": "sku"}, how="inner", tables="waiting_returns")
        >>> returned.schema
        '`id` STRING, `item` STRING NOT NULL, `price` DECIMAL(12, 2)'
    """
    what = label(_NAME, table)
    read = rows_input(of, what, rows=rows, is_timed=True, is_stream=False, is_kept=True)
    columns = own_columns(read.rows, f"the input of {_NAME}")
    keys = found_columns(columns, names_of(key), f"the input of {_NAME}")
    present = tuple(replace(column, nullable=column.nullable and column.name not in keys) for column in columns)
    table_versions = Versions(columns=present, key=keys, is_emitted=read.is_emitted)

    def compute(slice: Slice, frames: tuple[DataFrame, ...]) -> Outcome[KeptVersions]:
        versions = table_versions.of_slice(frames[0], slice.table(table))
        slice.calls.shared.append(versions)
        since = least([read.frontier(slice), least_frontier(readers_of(operator, slice.operators), slice)])
        changes = table_versions.changes(versions, since)
        return Outcome(result=KeptVersions(versions=versions, changes=changes), changes=(changes,))

    made_by = f"{_NAME}(key=({', '.join(keys)}))"
    operator = VersionsOperator(
        name=_NAME,
        inputs=(read,),
        tables=(table_versions.table(table, made_by),),
        compute=compute,
        versions=table_versions,
        read=read,
    )
    return operator
