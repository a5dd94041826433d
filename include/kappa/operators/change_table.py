"""The table that records of changes describe: of each key the newest row, by the source's own position."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from kappa.operators import origin
from kappa.operators.change_rows import PLACE, TRUNCATES, check_changes, marked_truncates, of_slice
from kappa.operators.keys import BY_KEYS, key_ddl, quoted_names
from kappa.topology import Table
from kappa.topology.ddl import Column, ddl_of, literal, quote, quoted
from kappa.topology.envelopes import CHANGE_COLUMNS
from kappa.topology.reserved import is_reserved

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Types of a fixed size, which no database keeps beside the row: a record always holds them.
_FIXED = frozenset({"byte", "short", "integer", "long", "float", "double", "boolean", "date", "timestamp"})
_CARRIED = f"ARRAY<STRUCT<column: STRING, position: STRING, origin: {origin.ORIGIN_TYPE}>>"
#: What a row of the union below comes from: the state, a record, a truncate.
_STATE, _RECORD, _TRUNCATE = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class ChangedRows:
    """What :func:`kappa.operators.cdc_table` gives for a slice.

    Attributes:
        changes: rows of the table, at most one a key, with ``_deleted``.
        deletions: rows of the table of deleted keys, likewise.
        truncates: rows of the table of truncates.
        versions: of each record that was its key's newest when it came, the row that it left; ``_deleted`` where it
            left none. What a stream is joined with.
    """

    changes: DataFrame
    deletions: DataFrame
    truncates: DataFrame
    versions: DataFrame


@dataclass(frozen=True, kw_only=True)
class ChangeTable:
    """A table of the newest rows, before it is bound.

    A record gives a value for each column but those that it leaves unchanged; a deletion and a truncate give nulls. Of
    each column the value with the greatest place stays, and the key's last record says whether there is a row: what
    stays depends on which records came, and not on the order in which they did.

    Attributes:
        columns: of the rows.
        key: the key columns among them.
    """

    columns: tuple[Column, ...]
    key: tuple[Column, ...]

    @property
    def row(self) -> str:
        """Spark DDL of the rows; of a log that begins in the middle a column may be null that the source has not so."""
        rest = ", ".join(f"{quote(column.name)} {column.type}" for column in self._rest)
        return ", ".join([key_ddl(self.key), *([rest] if rest else [])])

    def tables(self, name: str) -> tuple[Table, ...]:
        """The rows with the place of their last record, and the places of what was carried on; deleted keys; truncates.

        The last two keep away records that are older than a deletion and come later.
        """
        place = f"position STRING, {origin.ORIGIN} {origin.ORIGIN_TYPE}"
        made_by, names = f"cdc_table(key={','.join(quoted_names(self.key))})", [column.name for column in self.key]
        return (
            Table(name=name, key=names, schema=f"{self.row}, {place}, carried {_CARRIED}", made_by=made_by),
            Table(
                name=f"{name}_deleted", key=names, schema=f"{key_ddl(self.key)}, {place}", made_by=f"{made_by} deletions"
            ),
            Table(name=f"{name}_truncated", key="topic", schema=TRUNCATES, made_by=f"{made_by} truncates"),
        )

    def __call__(self, rows: DataFrame, *, before: DataFrame, deleted: DataFrame, truncated: DataFrame) -> ChangedRows:
        """The changes that a slice makes.

        Args:
            rows: records of changes.
            before: the table before the slice.
            deleted: that of deleted keys.
            truncated: that of truncates.

        Raises:
            TopologyError: a column of the rows is missing or of another type.
        """
        check_changes(rows, self.columns, "cdc_table")
        records, truncates = of_slice(rows, self.key)
        read = self._along_arrival(rows, records, truncates, before, deleted, truncated)
        last = read.where("_has_next IS NULL")
        keys, values = quoted_names(self.key), quoted_names(self._rest)
        place = ["_newest.position AS position", f"_newest.origin AS {origin.ORIGIN}"]
        is_new = "(_known IS NULL OR _newest <> _known)"
        moved = last.selectExpr("*", f"{self._carried_on} AS carried").where(
            f"(NOT _gone AND ({is_new} OR carried <> _was)) OR (_gone AND _had_row)"
        )
        changes = moved.selectExpr(*keys, *values, *place, "carried", "_gone AS _deleted")
        marks = last.selectExpr("*", "(_gone AND NOT _by_truncate) AS _stays").where(
            f"(_stays AND (NOT _had_mark OR {is_new})) OR (NOT _stays AND _had_mark)"
        )
        record = [f"_record.{quote(name)} AS {quote(name)}" for name in _of_record(rows)]
        versions = read.where(
            f"_source >= {_RECORD} AND _place = _newest AND (NOT _gone OR NOT COALESCE(_was_gone, TRUE))"
        ).selectExpr(*keys, *values, "_gone AS _deleted", *record)
        return ChangedRows(
            changes=changes,
            deletions=marks.selectExpr(*keys, *place, "NOT _stays AS _deleted"),
            truncates=marked_truncates(truncates, truncated),
            versions=origin.ordered(versions, "key"),
        )

    def _along_arrival(
        self,
        rows: DataFrame,
        records: DataFrame,
        truncates: DataFrame,
        before: DataFrame,
        deleted: DataFrame,
        truncated: DataFrame,
    ) -> DataFrame:
        """What is known of each key in its state and record after record, in the total order."""
        keys, names = quoted_names(self.key), [column.name for column in self.key]
        record = f"STRUCT({', '.join(map(quote, _of_record(rows)))}) AS _record"
        values = quoted_names(self._rest)
        nothing = [f"CAST(NULL AS {column.type}) AS {quote(column.name)}" for column in self._rest]
        own = records.selectExpr(
            *keys, *values, "_unchanged", "_operation = 'd' AS _gone", f"{PLACE} AS _place", f"{_RECORD} AS _source",
            f"{origin.OF_ROW} AS _seen", record,
        )  # fmt: skip
        mine = own.selectExpr(*keys, "TRUE AS _mine").distinct()
        of_state = f"STRUCT(position, {origin.ORIGIN} AS origin) AS _place"
        stored = before.selectExpr(
            *keys, *values, "carried AS _was", "TRANSFORM(carried, c -> c.column) AS _unchanged", "FALSE AS _gone",
            of_state,
        ).unionByName(deleted.selectExpr(*keys, *nothing, "TRUE AS _gone", of_state), allowMissingColumns=True)  # fmt: skip
        state = self._touched(stored, mine, truncates, names).selectExpr("* EXCEPT (_mine, _any)", f"{_STATE} AS _source")
        all_truncates = truncates.selectExpr(
            f"{PLACE} AS _place", f"{origin.OF_ROW} AS _seen", record
        ).unionByName(truncated.selectExpr(of_state), allowMissingColumns=True)  # fmt: skip
        from pyspark.sql import functions as F

        touched = mine.select(*keys).union(state.select(*keys)).distinct()
        cleared = touched.crossJoin(F.broadcast(all_truncates)).selectExpr(
            "*", *nothing, "TRUE AS _gone", f"{_TRUNCATE} AS _source"
        )
        union = state.unionByName(own, allowMissingColumns=True)
        for part in (self._carried_before(state), cleared):
            union = union.unionByName(part, allowMissingColumns=True)
        return self._run(union)

    def _touched(self, stored: DataFrame, mine: DataFrame, truncates: DataFrame, key: list[str]) -> DataFrame:
        """State of the slice's keys; all of it where the slice has a truncate."""
        from pyspark.sql import functions as F

        is_large = stored.sparkSession.conf.get(BY_KEYS, "false") == "true"
        found = stored.join(F.broadcast(mine) if is_large else mine, on=key, how="left")
        return found.crossJoin(F.broadcast(truncates.selectExpr("COUNT(*) > 0 AS _any"))).where("_mine OR _any")

    def _carried_before(self, state: DataFrame) -> DataFrame:
        """For each value that a row of the state carries on, what the record that gave it would say."""
        keys = quoted_names(self.key)
        names = quoted(column.name for column in self._carriable)
        every = f"ARRAY({', '.join(literal(column.name) for column in self._carriable)})"
        given = f"ARRAY_EXCEPT(CAST({every} AS ARRAY<STRING>), ARRAY(_one.column)) AS _unchanged"
        spread = state.selectExpr(*keys, *names, "_source", "EXPLODE(_was) AS _one").where("_one.origin IS NOT NULL")
        return spread.selectExpr(
            *keys, *names, given, "STRUCT(_one.position, _one.origin) AS _place", "FALSE AS _gone", "_source"
        )

    def _run(self, union: DataFrame) -> DataFrame:
        keys = quoted_names(self.key)
        order = f"PARTITION BY {', '.join(keys)} ORDER BY _seen, _source, _place"
        so_far = f"OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
        until = f"OVER ({order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        carried = []
        for number, column in enumerate(self._carriable):
            gives = f"IF(ARRAY_CONTAINS(COALESCE(_unchanged, ARRAY()), {literal(column.name)}), NULL, _place)"
            name = quote(column.name)
            carried += [f"MAX_BY({name}, {gives}) {so_far} AS {name}", f"MAX({gives}) {so_far} AS _key_{number}"]
        kept = [f"MAX_BY({quote(c.name)}, _place) {so_far} AS {quote(c.name)}" for c in self._kept]
        is_row = f"_source = {_STATE} AND _was IS NOT NULL"
        is_mark = f"_source = {_STATE} AND _gone"
        return union.selectExpr(
            *keys, *kept, *carried, "_source", "_record", "_place",
            f"MAX(_place) {so_far} AS _newest",
            f"MAX_BY(_gone, _place) {so_far} AS _gone",
            f"MAX_BY(_gone, _place) {until} AS _was_gone",
            f"MAX_BY(_source = {_TRUNCATE}, _place) {so_far} AS _by_truncate",
            f"COALESCE(BOOL_OR({is_row}) {so_far}, FALSE) AS _had_row",
            f"COALESCE(BOOL_OR({is_mark}) {so_far}, FALSE) AS _had_mark",
            f"MAX(IF({is_row} OR {is_mark}, _place, NULL)) {so_far} AS _known",
            f"MAX_BY(_was, IF({is_row}, _place, NULL)) {so_far} AS _was",
            f"LEAD(TRUE) OVER ({order}) AS _has_next",
        )  # fmt: skip

    @property
    def _carried_on(self) -> str:
        """SQL: what a row carries on, and from which record; null where that has not come."""
        each = [
            f"IF(_key_{number} <=> _newest, NULL, STRUCT({literal(column.name)} AS column, "
            f"_key_{number}.position AS position, _key_{number}.origin AS origin))"
            for number, column in enumerate(self._carriable)
        ]
        return f"CAST(FILTER(ARRAY({', '.join(each)}), c -> c IS NOT NULL) AS {_CARRIED})"

    @cached_property
    def _rest(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if column not in self.key)

    @cached_property
    def _carriable(self) -> tuple[Column, ...]:
        return tuple(column for column in self._rest if column.delta not in _FIXED)

    @cached_property
    def _kept(self) -> tuple[Column, ...]:
        return tuple(column for column in self._rest if column.delta in _FIXED)


def _of_record(rows: DataFrame) -> list[str]:
    """Columns of a record that its versions keep."""
    return [name for name in rows.columns if is_reserved(name) and name not in CHANGE_COLUMNS]
