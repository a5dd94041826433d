"""A join of a stream with the versions of a table, as of each row's time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kappa.errors import TopologyError
from kappa.operators import origin
from kappa.operators.bound import RowsOperator, declared_as, emission, with_event_time
from kappa.operators.frames import check_rows, check_times
from kappa.operators.joins.join_columns import JoinColumns, JoinKey, join_columns
from kappa.operators.joins.join_side import ROW, Side
from kappa.operators.joins.versions import Versions, VersionsOperator
from kappa.operators.timed.late import late_rows
from kappa.topology import Slice, Table
from kappa.topology.ddl import ddl_of, names_of, quote
from kappa.topology.operator import Outcome, VersionsInput, label
from kappa.topology.operator_inputs import Reads, rows_input
from kappa.topology.times.event_time import Frontier, least

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = "table_join"


@declared_as("table_join(orders, products, key='sku', tables=('waiting_orders', 'prices'))")
def table_join(
    left: Reads,
    versions: Reads | VersionsOperator,
    *,
    key: JoinKey,
    tables: tuple[str, str] | str,
    how: Literal["inner", "left"] = "left",
    left_rows: str = "",
    version_rows: str = "",
) -> RowsOperator[TableJoined]:
    """Rows of a stream with the table's row that was valid at their time (Kafka Streams: ``KStream.join`` of a
    versioned ``KTable`` with a grace period).

    The table's changes arrive as a stream of versions with event time. A version is valid from its own time; a late one
    is valid from the frontier at its record, so that emitted rows stay as they are. Among the versions that are valid
    at a row's time, the one with the greatest own time counts; with equal times, the last in the total order; within
    one record, the last in order of its values. A row waits until both frontiers are past its time and is then emitted
    once: no version that it could see can arrive any more, and rows are emitted in order of their times. This costs the
    left grace in latency. If the table seldom changes, its frontier stands still and rows wait for its next record;
    :func:`kappa.operators.newest_table_join` does not wait.

    Columns: those of the left side, then those of the table without its key; a column of the table whose name the left
    side also has ends in ``_right``. Emitted rows also carry ``_event_time`` and the left record; their place begins
    with their time.

    A left row is refused when its time is before its own frontier at the record; a version is never refused. A left row
    with a null key finds no version: ``left`` keeps it, ``inner`` drops it. A version with a null key is ignored. A
    null value of a source with ``tombstones=True`` deletes its key, and so does a version whose ``_deleted`` is true; a
    left row then finds none. A left row that deletes a key is refused. Either side may have several rows of one record,
    with one key or several.

    State, in two tables: left rows until both frontiers have passed their time; versions until both have passed the
    time from which a greater one is valid. The greatest version of a key stays, even if it is a deletion, so that an
    older version that arrives later is recognised. Class: any cut. A key's rows are read once, in order of time.
    Several joins with one table share its versions: :func:`kappa.operators.versions_by`.

    Args:
        left: the source of the left rows, or another operator's emission.
        versions: the source of the table's changes, or another operator's emission; or the versions that several joins
            share, :func:`kappa.operators.versions_by`.
        key: column or columns that both sides have, or left column -> table's column.
        tables: names of its tables: waiting left rows, and versions; with shared versions, only the former.
        how: ``left`` keeps rows without a version.
        left_rows: Spark DDL of the left rows, with what the step adds to them; empty for all columns of the input.
        version_rows: the same for the versions; rows of shared versions are declared with them.

    Raises:
        TopologyError: a column, ``how`` or ``tables`` does not fit, shared versions have another key, or an input has
            no event time.

    Examples:
        >>> from kappa import Source
        >>> from kappa.operators import table_join
        >>> orders = Source(topic="orders", schema="id STRING, sku STRING", grace="1 minute")
        >>> products = Source(topic="products", schema="sku STRING, price DECIMAL(12,2)", grace="1 minute")
        >>> priced = table_join(orders, products, key="sku", tables=("waiting_orders", "prices"))
        >>> priced.schema
        '`id` STRING, `sku` STRING, `price` DECIMAL(12, 2)'
    """
    names = names_of(tables)
    what = label(_NAME, *names)
    lefts = rows_input(left, what, rows=left_rows, is_timed=True, is_kept=True)
    shared = versions if isinstance(versions, VersionsOperator) else None
    _check_tables(what, shared, names, version_rows)
    if isinstance(versions, VersionsOperator):
        of_table, right = versions.read, versions.schema
    else:
        of_table = rows_input(versions, what, rows=version_rows, is_timed=True, is_stream=False, is_kept=True)
        right = of_table.rows
    waiting_table, *own = names
    columns = join_columns(
        what=_NAME, left=lefts.rows, right=right, key=key, how=how, allowed=("inner", "left"), of_streams=True
    )
    join = TableJoin(columns=columns, is_left_emitted=lefts.is_emitted, is_version_emitted=of_table.is_emitted)
    if shared is not None:
        _check_key(what, shared, columns)

    def compute(slice: Slice, rows: tuple[DataFrame, ...]) -> Outcome[TableJoined]:
        lesser = least([lefts.frontier(slice), of_table.frontier(slice)])
        slice_versions = rows[1] if shared is not None else join.versions.of_slice(rows[1], slice.table(own[0]))
        result = join(rows[0], slice_versions, waiting_before=slice.table(waiting_table), frontier=lesser)
        changes = () if shared is not None else (join.versions.changes(slice_versions, lesser),)
        return Outcome(result=result, changes=(result.waiting_changes, *changes), emitted="rows", late=result.late)

    times = lefts.times_passed_on()  # a row has the event time of its left record
    return RowsOperator(
        name=_NAME,
        inputs=(lefts, of_table if shared is None else VersionsInput(operator=what, of=shared)),
        tables=(join.waiting_table(waiting_table), *(join.versions.table(name, join.made_by) for name in own)),
        compute=compute,
        emits=emission(what, join.schema, lefts, of_table, times=times, lags=times, comes="frontier"),
    )


def _check_tables(what: str, shared: VersionsOperator | None, names: Sequence[str], version_rows: str) -> None:
    """Check that a join either has a table of versions of its own, or uses a shared one."""
    if shared is None and len(names) != 2:
        raise TopologyError(
            f"{what} names {len(names)} tables but keeps two, waiting rows and versions. Name both, "
            "tables=('waiting_orders', 'prices'); or declare it with versions_by(...) as its input."
        )
    if shared is not None and (len(names) != 1 or version_rows):
        says = f"names {len(names)} tables" if len(names) != 1 else f"gives version_rows={version_rows!r}"
        raise TopologyError(
            f"{what} reads the versions of {shared.what} and {says}. Versions have their table and their rows there. "
            "Name only the table of waiting rows, tables='waiting_orders', and omit version_rows."
        )


def _check_key(what: str, shared: VersionsOperator, columns: JoinColumns) -> None:
    """Check the key: a version is valid until the next one of its key, so it is looked up by that."""
    if sorted(columns.right_key) != sorted(shared.versions.key):
        raise TopologyError(
            f"{what} compares columns {list(columns.right_key)} of {shared.what}, which keeps versions by "
            f"{list(shared.versions.key)}. Compare all columns of that key, and no others; or declare another "
            "versions_by with this key."
        )


@dataclass(frozen=True, kw_only=True)
class TableJoined:
    """The result of a join with a table for a slice.

    Attributes:
        rows: left rows with the table's rows of their time, each once in the life of the stream, with the order columns
            of the left record and ``_event_time``.
        waiting_changes: rows of the table of waiting rows; rows to delete have ``_deleted``.
        late: refused left rows, in the form of the output ``late_records``.
    """

    rows: DataFrame
    waiting_changes: DataFrame
    late: DataFrame


@dataclass(frozen=True, kw_only=True)
class TableJoin:
    """A join with a table as of event time, before it is bound; :func:`table_join` makes it.

    Attributes:
        columns: columns of both sides and of the joined rows.
        is_left_emitted: whether another operator emits the left rows.
        is_version_emitted: whether another operator emits the versions.
    """

    columns: JoinColumns
    is_left_emitted: bool = False
    is_version_emitted: bool = False

    @property
    def schema(self) -> str:
        """DDL of the emitted rows."""
        return ddl_of(self.columns.joined)

    def waiting_table(self, name: str) -> Table:
        """The state of the left side: rows whose time both frontiers have not passed."""
        return self._left.table(name, self.made_by, is_bounded=False)

    @property
    def versions(self) -> Versions:
        """The table's versions."""
        columns = self.columns
        return Versions(columns=columns.right, key=columns.right_key, is_emitted=self.is_version_emitted)

    def __call__(
        self, left: DataFrame, versions: DataFrame, *, waiting_before: DataFrame, frontier: Frontier
    ) -> TableJoined:
        """Join the left rows of a slice and the waiting rows with the versions of their time.

        Args:
            left: rows with the left columns, ``_event_time``, ``_frontier`` and the order columns.
            versions: all versions of the slice, see :meth:`Versions.of_slice`.
            waiting_before: the table of waiting rows before the slice.
            frontier: the lesser frontier of both sides at the end of the slice.

        Raises:
            TopologyError: a column of the left rows is missing or of another type.
        """
        check_times(left, _NAME)
        check_rows(left, self.columns.left, _NAME)
        admitted = self._left.admitted(left)
        is_due = frontier.is_past("_event_time")
        waiting = self._left.numbered(admitted.where(f"NOT {is_due}")).selectExpr("*", "FALSE AS _deleted")
        due = waiting_before.drop(ROW).unionByName(admitted).where(is_due)
        deletions = waiting_before.where(is_due).selectExpr("*", "TRUE AS _deleted")
        return TableJoined(
            rows=self._as_of(due, versions),
            waiting_changes=waiting.unionByName(deletions, allowMissingColumns=True),
            late=late_rows(self._left.refused(left), operator=_NAME, reason="the left row is before its frontier"),
        )

    def _as_of(self, due: DataFrame, versions: DataFrame) -> DataFrame:
        """Rows with the last version of their key that became valid before them; the spans of versions do not
        overlap.
        """
        columns = self.columns
        keys = [f"_key_{number}" for number in range(len(columns.left_key))]
        of_left, of_right = (
            [f"{quote(name)} AS {key}" for name, key in zip(names, keys, strict=True)]
            for names in (columns.left_key, columns.right_key)
        )
        lefts = due.selectExpr(*of_left, "_event_time AS _at", "1 AS _turn", "STRUCT(*) AS l")
        spans = versions.where("_until IS NULL OR _until > _valid_from").selectExpr(
            *of_right, "_valid_from AS _at", "0 AS _turn", "STRUCT(*) AS r"
        )
        last = (
            f"LAST(r, TRUE) OVER (PARTITION BY {', '.join(keys)} ORDER BY _at, _turn "
            "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
        )
        read = spans.unionByName(lefts, allowMissingColumns=True).selectExpr("l", "_turn", f"{last} AS r")
        is_valid = "(NOT r._is_tombstone AND (r._until IS NULL OR l._event_time < r._until))"
        joined = read.where("_turn = 1").selectExpr("l", f"IF({is_valid}, r, NULL) AS r")
        present = joined.where("r IS NOT NULL") if columns.how == "inner" else joined
        rows = present.selectExpr(*columns.of_pair, *origin.final_at("l._event_time", "l"), "l._event_time")
        return origin.ordered(with_event_time(rows), "topic")

    @property
    def _left(self) -> Side:
        return Side(
            columns=self.columns.left,
            key=self.columns.left_key,
            other_key=self.columns.right_key,
            back_ms=0,
            ahead_ms=0,
            is_tracked=False,
            keeps_all=self.columns.how == "left",
            is_emitted=self.is_left_emitted,
        )

    @property
    def made_by(self) -> str:
        """The maker of its state, see :attr:`kappa.topology.Table.made_by`."""
        return f"{_NAME}({self.columns.key_text}, how={self.columns.how})"
