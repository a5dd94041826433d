"""The table that change records describe: the newest row of each key, by the source's own position."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from kappa.operators import origin
from kappa.operators.changes.change_rows import (
    PLACE,
    PLACE_TYPE,
    TRUNCATES,
    OfChanges,
    check_changes,
    marked_as_touched,
    marked_truncates,
    of_slice,
)
from kappa.operators.keys import key_ddl, quoted_names
from kappa.topology import ORDER, Table
from kappa.topology.ddl import Column, literal, quote
from kappa.topology.reserved import is_reserved
from kappa.topology.schemas.envelopes import CHANGE_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Types of a fixed size, which no database stores outside the row: a record always has them.
_FIXED = ("byte", "short", "integer", "long", "float", "double", "boolean", "date", "timestamp")
_CARRIED = f"ARRAY<STRUCT<column: STRING, place: {PLACE_TYPE}>>"


@dataclass(frozen=True, kw_only=True)
class ChangedRows:
    """The result of :func:`kappa.operators.cdc_table` for a slice.

    Attributes:
        changes: rows of the table, at most one per key, with ``_deleted``.
        deletions: rows of the table of deleted keys, likewise.
        truncates: rows of the table of truncates.
        versions: for each record that was the newest of its key on arrival, the row that it left, or ``_deleted`` if it
            left none. Streams are joined with these.
    """

    changes: DataFrame
    deletions: DataFrame
    truncates: DataFrame
    versions: DataFrame


@dataclass(frozen=True, kw_only=True)
class ChangeTable(OfChanges):
    """A table of the newest rows, before it is bound.

    A record gives a value for each column except those that it leaves unchanged; a deletion and a truncate give nulls.
    For each column the value with the greatest place stays, and the key's last record decides whether there is a row.
    So the result depends on the set of records, not on the order of their arrival.
    """

    @property
    def row(self) -> str:
        """Spark DDL of the rows."""
        return self._row()

    def tables(self, name: str) -> tuple[Table, ...]:
        """The rows with the place of their last record and the places of carried values; deleted keys; truncates.

        The last two keep out records that are older than a deletion and arrive later.
        """
        place = f"_place {PLACE_TYPE}"
        made_by, names = f"cdc_table(key={','.join(quoted_names(self.key))})", [column.name for column in self.key]
        row_schema = f"{self.row}, {place}" + (f", _carried {_CARRIED}" if self._carriable else "")
        own = ("_place", *(["_carried"] if self._carriable else []))
        deletion_schema = f"{key_ddl(self.key)}, {place}"
        return (
            Table(name=name, key=names, schema=row_schema, made_by=made_by, internal=own),
            Table(name=f"{name}_deleted", key=names, schema=deletion_schema, made_by=f"{made_by} deletions"),
            Table(name=f"{name}_truncated", key="topic", schema=TRUNCATES, made_by=f"{made_by} truncates"),
        )

    def __call__(
        self, rows: DataFrame, *, before: DataFrame, deleted: DataFrame, truncated: DataFrame, seeks: bool = False
    ) -> ChangedRows:
        """The changes that a slice makes.

        Args:
            rows: records of changes.
            before: the table before the slice.
            deleted: the table of deleted keys before the slice.
            truncated: the table of truncates before the slice.
            seeks: whether its keys are sought in them, see :meth:`kappa.topology.Slice.seeks`.

        Raises:
            TopologyError: a column of the rows is missing or of another type.
        """
        check_changes(rows, self.columns, "cdc_table")
        records, truncates = of_slice(rows, self.key)
        own = self._of_records(records, _of_record(rows))
        marked = marked_as_touched(self._of_state(before, deleted), own, self.key, seeks=seeks)
        whole = self._whole(own, marked, truncates, truncated)
        keys = quoted_names(self.key)
        carried = ["_carried"] if self._carriable else []
        is_moved = "(_known IS NULL OR _newest <> _known" + (" OR _carried <> _was)" if self._carriable else ")")
        changes = whole.where(f"IF(_stays, {is_moved}, _had_row)")
        # A truncate keeps out older records of all keys: a deleted key then needs no mark of its own.
        marks = whole.selectExpr("*", "_gone AND NOT _is_cleared AS _is_marked")
        marks = marks.where("IF(_is_marked, NOT _had_mark OR _newest <> _known, _had_mark)")
        return ChangedRows(
            changes=changes.selectExpr(
                *keys, *quoted_names(self._rest), "_newest AS _place", *carried, "NOT _stays AS _deleted"
            ),
            deletions=marks.selectExpr(*keys, "_newest AS _place", "NOT _is_marked AS _deleted"),
            truncates=marked_truncates(truncates, truncated),
            versions=self._versions(own, marked, truncates, truncated, _of_record(rows)),
        )

    def _of_records(self, records: DataFrame, names: list[str]) -> DataFrame:
        """Records with, for each column that may be carried on, the place at which they give its value."""
        value_places = [
            f"IF(ARRAY_CONTAINS(COALESCE(_unchanged, ARRAY()), {literal(c.name)}), NULL, {PLACE}) AS _key_{number}"
            for number, c in enumerate(self._carriable)
        ]
        was = [f"CAST(NULL AS {_CARRIED}) AS _was"] if self._carriable else []
        return records.selectExpr(
            *quoted_names(self.columns), "_operation = 'd' AS _gone", f"{PLACE} AS _place", "0 AS _source",
            *value_places, *was, f"STRUCT({', '.join(map(quote, names))}) AS _record",
        )  # fmt: skip

    def _of_state(self, before: DataFrame, deleted: DataFrame) -> DataFrame:
        """Rows of the state in the same columns, except the last; ``_source`` is 1 for rows of the table, 2 for deleted
        keys.
        """
        value_places = []
        for number, column in enumerate(self._carriable):
            is_it = f"_one -> _one.column = {literal(column.name)}"
            of_older = f"GET(FILTER(_carried, {is_it}), 0).place"
            value_places.append(f"IF(EXISTS(_carried, {is_it}), {of_older}, _place) AS _key_{number}")
        was, was_not = (["_carried AS _was"], [f"CAST(NULL AS {_CARRIED})"]) if self._carriable else ([], [])
        names = {column.name for column in self.key}
        nothing = [
            quote(c.name) if c.name in names else f"CAST(NULL AS {c.type}) AS {quote(c.name)}" for c in self.columns
        ]
        rows = before.selectExpr(
            *quoted_names(self.columns), "FALSE AS _gone", "_place", "1 AS _source", *value_places, *was
        )
        of_deleted = [f"_place AS _key_{number}" for number in range(len(self._carriable))]
        return rows.union(
            deleted.selectExpr(*nothing, "TRUE AS _gone", "_place", "2 AS _source", *of_deleted, *was_not)
        )

    def _whole(self, own: DataFrame, marked: DataFrame, truncates: DataFrame, truncated: DataFrame) -> DataFrame:
        """The last record and the last value of each column, per key that the slice touches."""
        from pyspark.sql import functions as F

        keys = quoted_names(self.key)
        cleared = truncates.selectExpr(f"{PLACE} AS _cleared").union(truncated.select("_place"))
        last = F.broadcast(cleared.selectExpr("MAX(_cleared) AS _cleared"))
        # A truncate cleared values that a row carries on from an unknown place.
        older = [f"COALESCE(_key_{number} < _cleared, _cleared IS NOT NULL)" for number in range(len(self._carriable))]
        is_hit = " OR ".join(["_place < _cleared", *older])
        touched = marked.crossJoin(last).where(f"_mine OR {is_hit}").drop("_mine")
        union = own.drop("_record").crossJoin(last).unionByName(touched)
        newest_values = [f"MAX_BY({quote(c.name)}, _place) AS {quote(c.name)}" for c in self._fixed]
        carried = [
            part
            for number, c in enumerate(self._carriable)
            for part in (
                f"MAX_BY({quote(c.name)}, _key_{number}) AS {quote(c.name)}",
                f"MAX(_key_{number}) AS _key_{number}",
            )
        ]
        was = ["MAX_BY(_was, _place) FILTER (WHERE _source = 1) AS _was"] if self._carriable else []
        states = union.groupBy(*map(F.expr, keys)).agg(
            *map(
                F.expr,
                [
                    *newest_values,
                    *carried,
                    *was,
                    "MAX(_place) AS _newest",
                    "MAX_BY(_gone, _place) AS _gone",
                    "MAX(_cleared) AS _cleared",
                    "COALESCE(BOOL_OR(_source = 1), FALSE) AS _had_row",
                    "COALESCE(BOOL_OR(_source = 2), FALSE) AS _had_mark",
                    "MAX(_place) FILTER (WHERE _source > 0) AS _known",
                ],
            )
        )
        return self._after_truncates(states)

    def _after_truncates(self, states: DataFrame) -> DataFrame:
        """The states after truncates: a truncate also gives nulls, at its place and for every key."""
        is_cleared = "COALESCE(_newest < _cleared, FALSE)"
        others = [
            f"IF(_key_{number} < _cleared, NULL, {quote(c.name)}) AS {quote(c.name)}"
            for number, c in enumerate(self._carriable)
        ]
        each = [
            f"IF(_key_{number} <=> _newest, NULL, "
            f"STRUCT({literal(c.name)} AS column, GREATEST(_key_{number}, _cleared) AS place))"
            for number, c in enumerate(self._carriable)
        ]
        present = f"FILTER(ARRAY({', '.join(each)}), _one -> _one IS NOT NULL)"
        carried = [f"CAST({present} AS {_CARRIED}) AS _carried"] if each else []
        was = ["_was"] if each else []
        return states.selectExpr(
            *quoted_names(self.key), *quoted_names(self._fixed), *others, *carried, *was, "_newest", "_gone", "_known",
            "_had_row", "_had_mark", f"{is_cleared} AS _is_cleared", f"NOT _gone AND NOT {is_cleared} AS _stays",
        )  # fmt: skip

    def _versions(
        self, own: DataFrame, marked: DataFrame, truncates: DataFrame, truncated: DataFrame, record: list[str]
    ) -> DataFrame:
        """The row that each record left on its arrival, along the total order."""
        from pyspark.sql import functions as F

        keys = quoted_names(self.key)
        clearing = truncates.selectExpr(
            f"{PLACE} AS _place", f"STRUCT({', '.join(map(quote, record))}) AS _record"
        ).unionByName(truncated.select("_place"), allowMissingColumns=True)
        has_any = F.broadcast(truncates.selectExpr("COUNT(*) > 0 AS _any"))
        stored = marked.crossJoin(has_any).where("_mine OR _any").drop("_mine", "_any")
        cleared = own.select(*keys).union(stored.select(*keys)).distinct().crossJoin(F.broadcast(clearing))
        of_each = [f"_place AS _key_{number}" for number in range(len(self._carriable))]
        parts = [stored, own, cleared.selectExpr("*", "TRUE AS _gone", *of_each)]
        union = parts[0]
        for part in parts[1:]:
            union = union.unionByName(part, allowMissingColumns=True)
        total_order = ", ".join(f"_record.{name}" for name in ORDER)
        window = f"PARTITION BY {', '.join(keys)} ORDER BY {total_order}, _place"
        so_far = f"OVER ({window} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
        until = f"OVER ({window} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        places = {c.name: "_place" for c in self._fixed}
        places |= {c.name: f"_key_{number}" for number, c in enumerate(self._carriable)}
        read = union.selectExpr(
            *keys, *(f"MAX_BY({quote(c.name)}, {places[c.name]}) {so_far} AS {quote(c.name)}" for c in self._rest),
            "_record", "_place", "_gone", f"MAX(_place) {so_far} AS _newest",
            f"COALESCE(MAX_BY(_gone, _place) {until}, TRUE) AS _was_gone",
        )  # fmt: skip
        return origin.ordered(
            read.where("_record IS NOT NULL AND _place = _newest AND NOT (_gone AND _was_gone)").selectExpr(
                *keys,
                *quoted_names(self._rest),
                "_gone AS _deleted",
                *(f"_record.{quote(name)} AS {quote(name)}" for name in record),
            ),
            "key",
        )

    @cached_property
    def _carriable(self) -> tuple[Column, ...]:
        return tuple(column for column in self._rest if column.delta not in _FIXED)

    @cached_property
    def _fixed(self) -> tuple[Column, ...]:
        return tuple(column for column in self._rest if column not in self._carriable)


def _of_record(rows: DataFrame) -> list[str]:
    """Columns of a record that its versions keep."""
    return [name for name in rows.columns if is_reserved(name) and name not in CHANGE_COLUMNS]
