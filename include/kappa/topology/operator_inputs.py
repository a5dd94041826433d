"""The inputs of operators: rows of sources, what other operators emit, and tables of the topology."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING

from kappa.errors import TopologyError
from kappa.topology.ddl import Column, columns_of, ddl_of, literal
from kappa.topology.earlier_code import refuse
from kappa.topology.emission import PARTNER, Comes, Cuts, Emission, Places, latest, strictest
from kappa.topology.members import Source, Table
from kappa.topology.members.descriptions import described
from kappa.topology.slice import MARK, Slice
from kappa.topology.times.event_time import Frontier, least

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The input of an operator: rows of a source, another operator's emission, or several of these.
Reads = Source | Emission | Sequence[Source | Emission]


@dataclass(frozen=True, kw_only=True, eq=False)
class RowsInput:
    """One input of an operator.

    Attributes:
        operator: the operator, for messages.
        of: the sources and emissions of the input.
        rows: Spark DDL of the rows that the operator gets.
        is_shaped: whether a column comes from the step, which then has to pass the rows.
        is_whole: whether the step may not select among them.
        is_stream: whether each row counts as one; otherwise they are of a table, and some delete its rows.
        is_kept: whether a state holds the rows by their records.
    """

    operator: str
    of: tuple[Source | Emission, ...]
    rows: str
    is_shaped: bool
    is_whole: bool = False
    is_stream: bool = True
    is_kept: bool = False

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics of the sources that the rows come from, sorted."""
        return tuple(sorted({topic for one in self.of for topic in _topics(one)}))

    @property
    def is_timed(self) -> bool:
        """Whether the rows have event time."""
        return all(_behind(one) is not None for one in self.of)

    @property
    def is_emitted(self) -> bool:
        """Whether another operator emits the rows, so that rows of one record may come in several slices."""
        return any(isinstance(one, Emission) for one in self.of)

    @property
    def is_paired(self) -> bool:
        """Whether rows of one record come in several slices, see :attr:`kappa.topology.emission.Emission.is_paired`."""
        return any(one.is_paired for one in self.of if isinstance(one, Emission))

    @property
    def places(self) -> tuple[Places, ...]:
        """The places that the rows have, by where they got them."""
        return _places(self.of)

    @property
    def cuts(self) -> Cuts:
        """Under which cuts of the log the rows are the same."""
        return strictest(one.cuts for one in self.of if isinstance(one, Emission))

    @property
    def comes(self) -> Comes:
        """When the rows come; those of a union come in no order of their own, unless each comes with its record."""
        comes = latest(one.comes for one in self.of if isinstance(one, Emission))
        return comes if len(self.of) == 1 or comes == "record" else "partner"

    @property
    def behind_ms(self) -> int:
        """How far behind the frontier of the sources the event time of a later row may be, in milliseconds."""
        return max(_behind(one) or 0 for one in self.of)

    @property
    def frontier_text(self) -> str:
        """Its frontier, one text for one frontier."""
        return "+".join(self.topics) + f" less {self.behind_ms} ms" * (self.behind_ms > 0)

    def times_passed_on(self, behind_ms: int = 0) -> dict[str, int]:
        """Columns with a time that is never null -> how far behind the frontier of the rows it may be in a later slice,
        in milliseconds, if the rows are emitted as they are.

        Args:
            behind_ms: how far the event time of a row may be behind that frontier when it is emitted.
        """
        each = [_lags(one) for one in self.of]
        shared = set.intersection(*map(set, each)) & {column.name for column in columns_of(self.rows, self.operator)}
        return {column: max(lags[column] for lags in each) + behind_ms for column in sorted(shared)}

    def frontier(self, slice: Slice) -> Frontier:
        """The event time that all rows of later slices have reached."""
        each = [_frontier(one, slice) for one in self.of]
        return replace(least(each), of=self.topics)

    def frame(self, slice: Slice, passed: DataFrame | None) -> DataFrame:
        """The rows of a slice.

        Args:
            slice: the slice.
            passed: rows that the step made from them; None for all of them, unchanged.

        Raises:
            TopologyError: the step must pass rows and did not, it passed rows of another input, or the operator that
                emits them has not been called yet; or they are changes of a table, and the operator reads a stream.
        """
        rows = self._frame(slice, passed)
        if self.is_stream:
            check_stream(rows.columns, self.operator)
        if self.is_kept and self.is_paired and PARTNER not in rows.columns:
            raise TopologyError(
                f"{self.operator} keeps {' and '.join(map(mark_of, self.of))} by their records, and they are without "
                f"{PARTNER}, which distinguishes the pairs of one record: of two that wait, one would be lost. Keep "
                "that column where the step selects."
            )
        return rows

    def check_unshaped(self) -> None:
        """Check that a stream's rows need no step that selects those that delete nothing.

        Raises:
            TopologyError: some delete their keys.
        """
        if self.is_stream:
            check_stream({mark for one in self.of for mark in _marks(one)}, self.operator)

    def _frame(self, slice: Slice, passed: DataFrame | None) -> DataFrame:
        """The rows of a slice, unchecked by what they mean."""
        if passed is not None:
            return self._checked(slice, passed)
        if self.is_shaped:
            raise TopologyError(
                f"{self.operator} declares rows={self.rows!r}, with a column that the step makes, but was called "
                f"without rows. Pass them: {self.operator.partition(' ')[0]}(slice, rows)."
            )
        if len(self.of) > 1:
            raise TopologyError(
                f"{self.operator} reads {' and '.join(map(mark_of, self.of))} but was called without rows. Pass their "
                "union: one.unionByName(other)."
            )
        (one,) = self.of
        if isinstance(one, Source):
            return slice[one.topic]
        if one not in slice.calls.emitted:
            raise TopologyError(
                f"{self.operator} reads rows of {one.operator}, and {one.operator} has not been called yet in this "
                "slice. Call it first."
            )
        return slice.calls.emitted[one]

    def _checked(self, slice: Slice, passed: DataFrame) -> DataFrame:
        """Rows that the step made, checked to be of this input."""
        if self.is_whole and passed is not slice.calls.emitted.get(self.of[0]):
            raise TopologyError(
                f"{self.operator} reads {mark_of(self.of[0])} beside its table, which has all of them, but was passed "
                "other rows. Call it without rows; select rows in the call of that operator."
            )
        if "_offset" not in passed.columns or "_topic" not in passed.columns:
            return passed  # the operator names missing columns
        mark = passed.schema["_offset"].metadata.get(MARK)
        if mark is not None and mark not in set(map(mark_of, self.of)):
            raise TopologyError(
                f"{self.operator} reads {' and '.join(map(mark_of, self.of))} but was passed rows of {mark}. The "
                "frontier of one does not bound the other. Declare the operator with the input that it is called with."
            )
        if len(slice.records) == 1:
            return passed
        # A union has only the mark of its first part, so the rows themselves are checked.
        problem = literal(
            f"{self.operator} reads {' and '.join(map(mark_of, self.of))} but was also passed rows of another source. "
            "Declare it with all of them: a list of sources. A row is of: "
        )
        topics = ", ".join(literal(topic) for topic in self.topics)
        is_own = f"IF(_topic IN ({topics}), _topic, RAISE_ERROR(CONCAT({problem}, _topic))) AS _topic"
        return passed.selectExpr("* EXCEPT (_topic)", is_own)


@dataclass(frozen=True, kw_only=True, eq=False)
class TableInput:
    """A table of the topology that an operator reads, with the changes of the slice.

    Attributes:
        operator: the operator, for messages.
        table: the table.
        rows: Spark DDL of its rows.
    """

    operator: str
    table: Table
    rows: str

    @property
    def cuts(self) -> Cuts:
        """Under which cuts of the log the table is the same."""
        return self.table.cuts

    def frame(self, slice: Slice, passed: DataFrame | None) -> DataFrame:
        """The changes of the slice.

        Args:
            slice: the slice.
            passed: the changes if the table is not an operator's; otherwise None.

        Raises:
            TopologyError: the operator of the table has not been called yet, or changes are passed although it has one.
        """
        changes, name = slice.calls.changes.get(self.table.name), self.table.name
        if changes is None:
            if passed is None:
                raise TopologyError(
                    f"{self.operator} reads table {name!r}, which has no changes yet. Call its operator first, or pass "
                    "the changes that the step returns for it."
                )
            return passed
        if passed is not None and passed is not changes and passed is not slice.calls.handed.get(name):
            raise TopologyError(
                f"{self.operator} was passed rows for table {name!r}, whose operator has its changes. Call it without "
                "them."
            )
        return changes


def rows_input(
    of: Reads, operator: str, *, rows: str = "", is_timed: bool, is_stream: bool = True, is_kept: bool = False
) -> RowsInput:
    """An input of an operator.

    Args:
        of: a source, another operator's emission, or several of these.
        operator: the operator, for messages.
        rows: Spark DDL of the rows; empty for all columns of the input. Further columns come from the step.
        is_timed: whether the operator needs event time.
        is_stream: whether each row counts as one; otherwise they are of a table, and some delete its rows.
        is_kept: whether a state holds the rows by their records.

    Raises:
        TopologyError: ``of`` is something else, or has no event time although the operator needs it; or rows are kept,
            and two parts of them may have the place of one record.
    """
    each = (of,) if isinstance(of, Source | Emission) else tuple(of) if isinstance(of, list | tuple) else ()
    odd = [one for one in each if not isinstance(one, Source | Emission)] or ([] if each else [of])
    if odd:
        raise TopologyError(
            f"{operator} is declared with {described(odd[0])}. Declare it with a source, or with rows of another "
            "operator: hours.final, paid.rows."
        )
    for one in each:
        if is_timed and _behind(one) is None:
            raise TopologyError(f"{operator} needs event time, and {mark_of(one)} has none. {_way_to_time(one)}")
    if is_kept:
        _check_told_apart(each, operator)
    ddl = rows or _same(each, operator)
    there = {(column.name, column.type) for column in _columns(each[0])}
    is_added = any((one.name, one.type) not in there for one in columns_of(ddl, f"the rows of {operator}"))
    return RowsInput(
        operator=operator,
        of=each,
        rows=ddl,
        is_shaped=is_added and len(each) == 1,
        is_stream=is_stream,
        is_kept=is_kept,
    )


def _check_told_apart(each: Sequence[Source | Emission], operator: str) -> None:
    """Check that a state which holds rows by their records tells those of several inputs apart.

    Raises:
        TopologyError: two of them may have the place of one record.
    """
    for places, others in combinations(_places(each), 2):
        if places.may_meet(others):
            refuse(
                f"{operator} keeps rows by their records, and {places.of} and {others.of} may have one record: of two "
                "rows that wait, one would be lost. Join each of them by an operator of its own."
            )


def check_stream(columns: Collection[str], operator: str) -> None:
    """Check that rows are those of a stream, and not changes of a table, of a database or of a topic read as a table.

    Args:
        columns: names of their columns.
        operator: the operator, for messages.

    Raises:
        TopologyError: they have ``_deleted``, ``_operation`` or ``_tombstone``.
    """
    check_no_changes(columns, operator)
    if "_deleted" in columns:
        raise TopologyError(
            f"{operator}: the rows have _deleted, so they are changes of a table, and an update would count as one "
            "more row. Use aggregate_table for aggregates of a table, or a join of tables; or pass only the rows that "
            "delete nothing: rows.where('NOT _deleted').drop('_deleted', '_tombstone')."
        )
    if "_tombstone" in columns:
        raise TopologyError(
            f"{operator}: the rows have _tombstone, so null values are among them and each would count as a row. Pass "
            "the others: rows.where('NOT _tombstone').drop('_tombstone'); or read the topic as a table, with newest_by."
        )


def check_no_changes(columns: Collection[str], operator: str) -> None:
    """Check that rows are not change records of a database, which only their own operator understands.

    Raises:
        TopologyError: they have ``_operation``.
    """
    if "_operation" in columns:
        raise TopologyError(
            f"{operator}: the rows have _operation, so they are changes of a database: some delete one key or all "
            "keys, some have only part of a row, and their order is that of the source. Keep their table with "
            'cdc_table and read its versions; or pass rows of one kind: rows.where("_operation = '
            "'c'\").drop('_operation')."
        )


def mark_of(one: Source | Emission) -> str:
    """What rows are marked as, and messages call them."""
    return f"source {one.topic!r}" if isinstance(one, Source) else f"rows of {one.operator}"


def _places(each: Sequence[Source | Emission]) -> tuple[Places, ...]:
    places: list[Places] = []
    for one in each:
        if isinstance(one, Emission):
            places += one.places
        else:
            places.append(Places(of=mark_of(one), topics=_topics(one), comes="record"))
    return tuple(places)


def _behind(one: Source | Emission) -> int | None:
    if isinstance(one, Emission):
        return one.behind_ms
    return 0 if one.has_event_time else None


def _marks(one: Source | Emission) -> set[str]:
    """Columns that say which rows delete their keys."""
    if isinstance(one, Emission):
        return {"_deleted"} if one.deletes else set()
    return {"_deleted", "_operation", "_tombstone"}.intersection(one.record_columns)


def _lags(one: Source | Emission) -> Mapping[str, int]:
    """Columns with a time that is never null -> how far behind the event time of its row it may be."""
    if isinstance(one, Emission):
        return one.lags
    own = {column.name for column in one.columns if column.name == one.time}
    return dict.fromkeys(own, 0) if one.has_event_time and not one.tombstones else {}


def _way_to_time(one: Source | Emission) -> str:
    if isinstance(one, Emission):
        return "Use a source."
    by_upstream = "" if one.of is None else f", or, to follow {one.of}, name the column of its time: time='window_end'"
    return f"Declare how late a record may be: grace='10 seconds'{by_upstream}."


def _frontier(one: Source | Emission, slice: Slice) -> Frontier:
    return slice.frontier(*_topics(one)).ago(_behind(one) or 0)


def _topics(one: Source | Emission) -> tuple[str, ...]:
    return (one.topic,) if isinstance(one, Source) else one.topics


def _columns(one: Source | Emission) -> tuple[Column, ...]:
    return one.columns if isinstance(one, Source) else columns_of(one.schema, f"the rows of {one.operator}")


def _same(each: Sequence[Source | Emission], operator: str) -> str:
    """The schema that all inputs have."""
    schemas = [ddl_of(_columns(one)) for one in each]
    if len(set(schemas)) > 1:
        raise TopologyError(
            f"{operator} reads {' and '.join(map(mark_of, each))}, whose columns differ. Declare the rows that the "
            "step makes from them: rows='id STRING, amount BIGINT'."
        )
    return schemas[0]
