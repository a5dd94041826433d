"""All rows that change records describe, with the times from which and to which each was valid."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kappa.operators.changes.change_rows import (
    PLACE,
    PLACE_TYPE,
    VERSION,
    OfChanges,
    check_changes,
    marked_as_touched,
    of_slice,
)
from kappa.operators.keys import by_content, key_ddl, quoted_names
from kappa.topology import Table
from kappa.topology.ddl import literal, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Columns of the table besides those of the rows.
TIMES = ("valid_from", "valid_to", "is_current")
_STATE, _RECORD = 0, 1
#: SQL of the end of a row that has none in the table.
_NO_END = "CAST(NULL AS STRUCT<valid_to: TIMESTAMP, is_current: BOOLEAN>) AS _until"


@dataclass(frozen=True, kw_only=True)
class ChangedVersions:
    """The result of :func:`kappa.operators.cdc_table` with ``history`` for a slice.

    Attributes:
        changes: rows of the table, at most one for each key and version.
        deletions: rows of the table of deletions, likewise.
        truncates: rows of the table of truncates.
    """

    changes: DataFrame
    deletions: DataFrame
    truncates: DataFrame


@dataclass(frozen=True, kw_only=True)
class ChangeHistory(OfChanges):
    """A table of all rows with their times, before it is bound.

    The table has the records of a key in the order of their places. A slice reads those of its keys again together with
    its own records, so that a late record gets its time between the others.
    """

    @property
    def row(self) -> str:
        """Spark DDL of a row and its time."""
        return self._row("valid_from TIMESTAMP, valid_to TIMESTAMP, is_current BOOLEAN")

    def tables(self, name: str) -> tuple[Table, ...]:
        """The rows, the deletions of keys, and the truncates; deletions and truncates end a row and begin none."""
        key, made_by = key_ddl(self.key), f"cdc_table(key={','.join(quoted_names(self.key))}, history=True)"
        version = "_version STRING NOT NULL"
        at = f"_place {PLACE_TYPE}, _at TIMESTAMP"
        names = [*(column.name for column in self.key), "_version"]
        return (
            Table(
                name=name,
                key=names,
                schema=f"{self.row}, {version}, _place {PLACE_TYPE}, _carried ARRAY<STRING>",
                made_by=made_by,
                internal=("_version", "_place", "_carried"),
            ),
            Table(name=f"{name}_deleted", key=names, schema=f"{key}, {version}, {at}", made_by=f"{made_by} deletions"),
            Table(
                name=f"{name}_truncated",
                key=["topic", "_version"],
                schema=f"topic STRING NOT NULL, {version}, {at}",
                made_by=f"{made_by} truncates",
            ),
        )

    def __call__(
        self, rows: DataFrame, *, before: DataFrame, deleted: DataFrame, truncated: DataFrame, seeks: bool = False
    ) -> ChangedVersions:
        """The changes that a slice makes.

        Args:
            rows: records of changes.
            before: the table before the slice.
            deleted: the table of deletions before the slice.
            truncated: the table of truncates before the slice.
            seeks: whether its keys are sought in them, see :meth:`kappa.topology.Slice.seeks`.

        Raises:
            TopologyError: a column of the rows is missing or of another type.
        """
        check_changes(rows, self.columns, "cdc_table")
        records, truncates = of_slice(rows, self.key)
        keys, values = quoted_names(self.key), quoted_names(self._rest)
        at = [f"{PLACE} AS _place", f"{VERSION} AS _version", "_source_time AS _at"]
        own = records.selectExpr(
            *keys, *values, *at, "COALESCE(_unchanged, ARRAY()) AS _carried", "_operation = 'd' AS _gone",
            _NO_END, f"{_RECORD} AS _source",
        )  # fmt: skip
        new = truncates.selectExpr("_topic AS topic", *at)
        stored = self._stored(own, before, deleted, new, seeks)
        clearing = new.drop("topic").union(truncated.select("_place", "_version", "_at"))
        of_all = own.select(*keys).union(stored.select(*keys)).distinct()
        cleared = of_all.crossJoin(_broadcast(clearing)).selectExpr(
            *keys, *self._nothing, "_place", "_version", "_at", "ARRAY() AS _carried", "TRUE AS _gone",
            _NO_END, f"{_STATE} AS _source",
        )  # fmt: skip
        versions = self._along_positions(own.union(stored).union(cleared))
        content = by_content({column.name: column.delta for column in self._rest})
        of_was = by_content({column.name: column.delta for column in self._rest}, of="_was.")
        differs = " OR ".join(
            [f"NOT (STRUCT(valid_to, is_current) <=> _until) OR _source = {_RECORD}"]
            + [f"NOT ({one} <=> {other})" for one, other in zip(content, of_was, strict=True)]
        )
        changes = versions.where(f"NOT _gone AND ({differs})").selectExpr(
            *keys, *values, "_at AS valid_from", "valid_to", "is_current", "_version", "_place", "_carried",
            "FALSE AS _deleted",
        )  # fmt: skip
        names = ["_version", "_place", "_at"]
        ends = own.union(stored).where("_gone").selectExpr(*keys, *names, "_source")
        all_truncates = new.selectExpr("topic", *names, f"{_RECORD} AS _source").union(
            truncated.selectExpr("topic", *names, f"{_STATE} AS _source")
        )
        return ChangedVersions(
            changes=changes,
            deletions=_new_ones(ends, [*keys, "_version"]),
            truncates=_new_ones(all_truncates, ["topic", "_version"]),
        )

    def _stored(
        self, own: DataFrame, before: DataFrame, deleted: DataFrame, truncates: DataFrame, seeks: bool
    ) -> DataFrame:
        """The state of the slice's keys; all of it if the slice has a truncate."""
        keys, values = quoted_names(self.key), quoted_names(self._rest)
        at = ["_place", "_version"]
        rows = before.selectExpr(
            *keys, *values, *at, "valid_from AS _at", "_carried", "FALSE AS _gone",
            "STRUCT(valid_to, is_current) AS _until", f"{_STATE} AS _source",
        )  # fmt: skip
        ends = deleted.selectExpr(
            *keys, *self._nothing, *at, "_at", "ARRAY() AS _carried", "TRUE AS _gone",
            _NO_END, f"{_STATE} AS _source",
        )  # fmt: skip
        marked = marked_as_touched(rows.union(ends), own, self.key, seeks=seeks)
        has_any = _broadcast(truncates.selectExpr("COUNT(*) > 0 AS _any"))
        return marked.crossJoin(has_any).where("_mine OR _any").drop("_mine", "_any")

    def _along_positions(self, union: DataFrame) -> DataFrame:
        """The rows of each key in the order of their places, with the values that they carry on and the end of their
        validity.
        """
        keys, values = quoted_names(self.key), quoted_names(self._rest)
        order = f"OVER (PARTITION BY {', '.join(keys)} ORDER BY _place, _source)"
        # A change that arrived twice has one position: the record that arrived last represents it. A row and a deletion
        # at one position are two changes: sources may give all changes of a transaction one position.
        repeats = f"OVER (PARTITION BY {', '.join(keys)}, _version, _gone ORDER BY _place, _source)"
        once = union.selectExpr("*", f"LEAD(TRUE) {repeats} AS _has_next").where("_has_next IS NULL")
        so_far = f"{order[:-1]} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
        carried = [
            f"(LAST(IF(ARRAY_CONTAINS(_carried, {literal(c.name)}), NULL, STRUCT({quote(c.name)} AS v)), TRUE) "
            f"{so_far}).v AS {quote(c.name)}"
            for c in self._rest
        ]
        was = f"STRUCT({', '.join([*values, 'TRUE AS _is_known'])}) AS _was"
        return once.selectExpr(
            *keys, *carried, "_place", "_version", "_at", "_carried", "_gone", "_until", "_source", was,
            f"LEAD(_at) {order} AS valid_to", f"LEAD(_place) {order} IS NULL AS is_current",
        )  # fmt: skip

    @property
    def _nothing(self) -> list[str]:
        return [f"CAST(NULL AS {column.type}) AS {quote(column.name)}" for column in self._rest]


def _broadcast(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return F.broadcast(rows)


def _new_ones(rows: DataFrame, key: list[str]) -> DataFrame:
    """The row with the greatest place, per key, where that is one of the slice."""
    has_next = f"LEAD(TRUE) OVER (PARTITION BY {', '.join(key)} ORDER BY _place) AS _has_next"
    last = rows.selectExpr("*", has_next).where(f"_has_next IS NULL AND _source = {_RECORD}")
    return last.selectExpr("* EXCEPT (_has_next, _source)", "FALSE AS _deleted")
