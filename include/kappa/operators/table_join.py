"""A stream joined with the versions of a table, as of each row's time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from kappa.operators import origin
from kappa.operators.bound import RowsOperator, declared_as, emission, with_event_time
from kappa.operators.join_columns import JoinColumns, JoinKey, join_columns, state_ddl
from kappa.operators.join_side import ROW, Side, identity, identity_ddl, place_of
from kappa.operators.keys import by_content, is_present
from kappa.operators.late import late_rows
from kappa.operators.records import is_deleted
from kappa.topology import ORDER, Slice, Table
from kappa.topology.ddl import ddl_of, quote, quoted
from kappa.topology.event_time import Frontier, Reach, least
from kappa.topology.operator import Outcome, Reads, label, rows_input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = "table_join"
_VERSION_DDL = ("_valid_from TIMESTAMP NOT NULL", "_is_tombstone BOOLEAN NOT NULL")
#: SQL: of versions with ``_until``, those that no row asks for any more, or that were replaced before they were valid.
_IS_GONE = "COALESCE(_until <= GREATEST({since}, _valid_from), FALSE)"


@declared_as("table_join(orders, products, key='sku', tables=('waiting_orders', 'prices'))")
def table_join(
    left: Reads,
    versions: Reads,
    *,
    key: JoinKey,
    tables: tuple[str, str],
    how: Literal["inner", "left"] = "left",
    left_rows: str = "",
    version_rows: str = "",
) -> RowsOperator[TableJoined]:
    """Rows of a stream with the table's row that was valid at their time (Kafka Streams: ``KStream.join`` of a
    versioned ``KTable`` with a grace period).

    The table's changes come as a stream of versions with event time. A version is valid from its own time; one that
    comes late, from the frontier at its record: what is emitted stays as it is. Of those valid at a row's time the one
    with the greatest own time counts, of equal times the last in the total order, of one record the last in order of
    its values. A row waits until both frontiers are past its time, then it is emitted once: no version that it could
    see comes any more, and rows come in order of their times. That costs the left grace in latency. Where the table
    seldom changes, its frontier stands still and rows wait for its next record;
    :func:`kappa.operators.newest_table_join` does not wait.

    Columns: those of the left side, then those of the table without its key; a table's column of a name that the left
    side has too ends in ``_right``. Emitted rows also carry ``_event_time`` and the left record; their place begins
    with their time.

    A left row is refused when its time is before its own frontier at the record; a version never is. A left row with a
    null key finds none: ``left`` keeps it, ``inner`` leaves it out. A version with a null key is left out. A version
    whose ``_deleted`` is true deletes its key, see :func:`kappa.operators.tombstones`; a left row then finds none. Of
    one record either side may have several rows, of one key or of several.

    State, in two tables: left rows until both frontiers have passed their time; versions until they have passed the
    time from which a greater one is valid. The greatest version of a key stays, a deletion too: an older version that
    comes later is known by it. Class: any cut. A key's rows are read once, in order of time.

    Args:
        left: the source of the left rows, or what another operator emits.
        versions: the source of the table's changes, or what another operator emits.
        key: column or columns that both sides have, or left column -> table's column.
        tables: names of its tables: left rows that wait, and versions.
        how: ``left`` keeps rows that find no version.
        left_rows: Spark DDL of the left rows, with what the step adds to them; empty for all columns of what is read.
        version_rows: the same of the versions.

    Raises:
        TopologyError: a column or ``how`` does not fit, or what is read has no event time.

    Examples:
        >>> from kappa import Source
        >>> from kappa.operators import table_join
        >>> orders = Source(topic="orders", schema="id STRING, sku STRING", grace="1 minute")
        >>> products = Source(topic="products", schema="sku STRING, price DECIMAL(12,2)", grace="1 minute")
        >>> priced = table_join(orders, products, key="sku", tables=("waiting_orders", "prices"))
        >>> priced.schema
        '`id` STRING, `sku` STRING, `price` DECIMAL(12, 2)'
    """
    what = label(_NAME, *tables)
    lefts, of_table = (
        rows_input(of, what, rows=rows, is_timed=True) for of, rows in ((left, left_rows), (versions, version_rows))
    )
    columns = join_columns(
        what=_NAME, left=lefts.rows, right=of_table.rows, key=key, how=how, allowed=("inner", "left"), of_streams=True
    )
    join = TableJoin(columns=columns, is_left_emitted=lefts.is_emitted, is_version_emitted=of_table.is_emitted)
    waiting_table, versions_table = tables

    def compute(slice: Slice, rows: tuple[DataFrame, ...]) -> Outcome[TableJoined]:
        result = join(
            *rows,
            waiting_before=slice.table(waiting_table),
            versions_before=slice.table(versions_table),
            left_frontier=lefts.frontier(slice),
            table_frontier=of_table.frontier(slice),
        )
        changes = (result.waiting_changes, result.version_changes)
        return Outcome(result=result, changes=changes, emitted="rows", late=result.late)

    return RowsOperator(
        name=_NAME,
        inputs=(lefts, of_table),
        tables=(join.waiting_table(waiting_table), join.versions_table(versions_table)),
        compute=compute,
        emits=emission(what, join.schema, lefts, of_table, times=lefts.times_passed_on()),
    )


@dataclass(frozen=True, kw_only=True)
class TableJoined:
    """What a join with a table gives for a slice.

    Attributes:
        rows: left rows with what the table had at their time, each once in the life of the stream, with the order
            columns of the left record and ``_event_time``.
        waiting_changes: rows of the table of waiting rows; those that go have ``_deleted``.
        version_changes: the same of the table of versions.
        late: refused left rows, as the output ``late_records`` keeps them.
    """

    rows: DataFrame
    waiting_changes: DataFrame
    version_changes: DataFrame
    late: DataFrame


@dataclass(frozen=True, kw_only=True)
class TableJoin:
    """A join with a table as of event time, before it is bound; :func:`table_join` makes it.

    Attributes:
        columns: columns of both sides and of the joined rows.
        is_left_emitted: whether left rows are what another operator emits.
        is_version_emitted: whether versions are.
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
        return self._left.table(name, self._made_by, is_bounded=False)

    def versions_table(self, name: str) -> Table:
        """The state of the table: versions that a row may still see."""
        key = self.columns.right_key
        # A deletion is a version as well, without values.
        columns = [column if column.name in key else replace(column, nullable=True) for column in self.columns.right]
        schema = state_ddl(columns, *identity_ddl(is_emitted=self.is_version_emitted), *_VERSION_DDL)
        reach = Reach(ms=0, is_bounded=False)
        return Table(
            name=name,
            key=(*key, *identity(is_emitted=self.is_version_emitted), ROW),
            schema=schema,
            made_by=self._made_by,
            expires=True,
            reach=reach,
        )

    def __call__(
        self,
        left: DataFrame,
        versions: DataFrame,
        *,
        waiting_before: DataFrame,
        versions_before: DataFrame,
        left_frontier: Frontier,
        table_frontier: Frontier,
    ) -> TableJoined:
        """Join the left rows of a slice, and those that wait, with the versions of their time.

        Args:
            left: rows with the left columns, ``_event_time``, ``_frontier`` and the order columns.
            versions: rows with the table's columns and the same, and ``_deleted`` where keys are deleted.
            waiting_before: the table of waiting rows before the slice.
            versions_before: the table of versions before the slice.
            left_frontier: the frontier of the left source at the end of the slice.
            table_frontier: the frontier of the table's source.
        """
        admitted = self._left.admitted(left)
        lesser = least([left_frontier, table_frontier])
        is_due = lesser.is_past("_event_time")
        known = self._known(versions, versions_before)
        is_gone = _IS_GONE.format(since=lesser.sql)
        waiting = self._left.numbered(admitted.where(f"NOT {is_due}")).selectExpr("*", "FALSE AS _deleted")
        due = waiting_before.drop(ROW).unionByName(admitted).where(is_due)
        gone = waiting_before.where(is_due).selectExpr("*", "TRUE AS _deleted")
        return TableJoined(
            rows=self._as_of(due, known),
            waiting_changes=waiting.unionByName(gone, allowMissingColumns=True),
            version_changes=known.where(f"_is_new <> {is_gone}").selectExpr(
                "* EXCEPT (_is_new, _until)", "NOT _is_new AS _deleted"
            ),
            late=late_rows(self._left.refused(left), operator=_NAME, reason="the left row is before its frontier"),
        )

    def _known(self, versions: DataFrame, before: DataFrame) -> DataFrame:
        """All versions, with ``_is_new`` and ``_until``, the time from which a greater one is valid."""
        new = versions.where(is_present(self.columns.right_key)).selectExpr(
            *quoted(column.name for column in self.columns.right),
            *place_of(versions, is_emitted=self.is_version_emitted),
            f"CAST(NULL AS INT) AS {ROW}",
            "GREATEST(_event_time, _frontier) AS _valid_from",
            f"{is_deleted(versions)} AS _is_tombstone",
            "TRUE AS _is_new",
        )
        both = new.unionByName(before.selectExpr("*", "FALSE AS _is_new"), allowMissingColumns=True)
        values = by_content({column.name: column.delta for column in self.columns.right})
        backwards = ", ".join(f"{name} DESC" for name in ("_event_time", *ORDER, "_is_tombstone", *values))
        keys = ", ".join(map(quote, self.columns.right_key))
        until = (
            f"MIN(_valid_from) OVER (PARTITION BY {keys} ORDER BY {backwards} "
            "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
        )
        # Versions of one name are there in one slice, or were there in one before: their numbers never change.
        record = ", ".join(identity(is_emitted=self.is_version_emitted))
        number = f"ROW_NUMBER() OVER (PARTITION BY {keys}, {record} ORDER BY {backwards})"
        return both.selectExpr("*", f"{until} AS _until").selectExpr(
            f"* EXCEPT ({ROW})", f"IF(_is_new, {number}, {ROW}) AS {ROW}"
        )

    def _as_of(self, due: DataFrame, known: DataFrame) -> DataFrame:
        """Rows with the last version of their key that is valid before them: the spans of versions do not overlap."""
        columns = self.columns
        keys = [f"_key_{number}" for number in range(len(columns.left_key))]
        of_left, of_right = (
            [f"{quote(name)} AS {key}" for name, key in zip(names, keys, strict=True)]
            for names in (columns.left_key, columns.right_key)
        )
        lefts = due.selectExpr(*of_left, "_event_time AS _at", "1 AS _turn", "STRUCT(*) AS l")
        spans = known.where("_until IS NULL OR _until > _valid_from").selectExpr(
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
    def _made_by(self) -> str:
        return f"{_NAME}({self.columns.key_text}, how={self.columns.how})"
