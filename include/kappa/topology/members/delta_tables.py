"""The members of a topology that are Delta tables: keyed state, and rows that are appended."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import get_args

from kappa.errors import TopologyError
from kappa.topology import reserved
from kappa.topology.ddl import Column, column_names, columns_of, is_numeric
from kappa.topology.emission import Cuts, Emission
from kappa.topology.revisions import operator_of
from kappa.topology.thresholds import OUTPUT_MEASURES, TABLE_MEASURES
from kappa.topology.times.event_time import Reach

_MEMBER = re.compile(r"[a-z][a-z0-9_]*")
_NESTED_KEY = "Key the table by columns of plain types; for a STRUCT use its fields, each as a column of its own."
_NUMBER_KEY = "NaN, and -0 beside 0, are not keys: cast it to a DECIMAL or to STRING in the step."
#: Types of Delta columns for partitions: docs/decisions/partition-columns-hold-what-both-writers-keep.md.
_PARTITION_TYPES = ("string", "long", "integer", "short", "byte", "boolean", "date", "timestamp")


@dataclass(frozen=True, kw_only=True)
class Table:
    """Keyed state: the newest row of each key (a KTable).

    The step's effect of this name holds at most one row for each key of the slice. A row whose boolean column
    ``_deleted`` is true removes its key.

    Attributes:
        name: name within the topology.
        key: key column or columns, ``NOT NULL`` in the schema.
        schema: Spark DDL of the row, key columns included.
        masked: columns whose values never appear in a report, which shows ``***`` instead, and a hash for key columns.
        made_by: the operator whose state it is, with its parameters; empty for a table of the author's own. State with
            other parameters is not reused. A topology adds the joins for which versions are kept.
        expires: whether rows are removed when their time is over, which is not a deletion; no topic is made from such a
            table.
        reach: how far in event time rows from this state reach; None if no interval of time bounds them.
        cuts: see :data:`Cuts`.
        internal: columns that an operator keeps for its own use; readers, topics and differences have the others. A key
            column is never :attr:`hidden` from readers, since it identifies rows.

    Examples:
        >>> from kappa import Table
        >>> Table(name="spending", key=["customer"], schema="customer STRING NOT NULL, spent STRING").measures
        ('spending.keys_added', 'spending.keys_removed', 'spending.keys_changed', 'spending.rows')
    """

    name: str
    key: str | tuple[str, ...] | list[str]
    schema: str
    masked: tuple[str, ...] | list[str] = ()
    made_by: str = ""
    expires: bool = False
    reach: Reach | None = None
    cuts: Cuts = "any"
    internal: tuple[str, ...] | list[str] = ()

    def __post_init__(self) -> None:
        _check_name("table", self.name)
        what = f"Table {self.name!r}"
        object.__setattr__(self, "key", column_names(what, "key", self.key))
        object.__setattr__(self, "masked", column_names(what, "masked", self.masked))
        object.__setattr__(self, "internal", column_names(what, "internal", self.internal))
        _check_cuts("Table", self.name, self.cuts)
        columns = {column.name: column for column in self.columns}
        reserved.check_names(
            f"Table {self.name!r}",
            columns,
            "Rename them in the schema and in the step.",
            reserved_names=reserved.OF_TABLES if self.made_by else None,
        )
        _check_key(self)
        _check_masked(f"Table {self.name!r}", self.masked, columns)
        _check_internal(self, columns)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of a row."""
        beside = f", with what {operator_of(self.made_by)} keeps beside your columns," if self.made_by else ""
        return columns_of(self.schema, f"table {self.name!r}{beside}")

    @property
    def results(self) -> tuple[Column, ...]:
        """Columns of a row without internal ones."""
        return tuple(column for column in self.columns if column.name not in self.internal)

    @property
    def hidden(self) -> tuple[str, ...]:
        """Columns that no reader gets."""
        return tuple(name for name in self.internal if name not in self.key)

    @property
    def is_timed(self) -> bool:
        """Whether frontiers of sources decide when its rows come and go."""
        return self.expires or self.reach is not None

    @property
    def measures(self) -> tuple[str, ...]:
        """Full names of what a threshold may limit."""
        drift = (f"drift.{c.name}" for c in self.results if is_numeric(c) and c.name not in (*self.key, *self.masked))
        return tuple(f"{self.name}.{measure}" for measure in (*TABLE_MEASURES, *drift))


@dataclass(frozen=True, kw_only=True)
class Append:
    """Rows that are appended to a Delta table, once per slice.

    Attributes:
        name: name within the topology.
        schema: Spark DDL of the row; empty if ``of`` gives it.
        of: the rows that an operator emits. They are the output's rows unless the step returns others for it.
        masked: columns whose values never appear in a report.
        partition_by: columns by which the Delta table is partitioned, for example a day.
        time: column by which a row belongs to an interval of time in a backfill, TIMESTAMP or BIGINT in epoch
            milliseconds; for a join the left row's event time. Rows of windows belong by ``window_start``.
        cuts: see :data:`Cuts`.

    Examples:
        >>> from kappa import Append
        >>> [column.name for column in Append(name="purchases", schema="id STRING NOT NULL, amount BIGINT").columns]
        ['id', 'amount']
    """

    name: str
    schema: str = ""
    of: Emission | None = field(default=None, compare=False)
    masked: tuple[str, ...] | list[str] = ()
    partition_by: tuple[str, ...] | list[str] = ()
    time: str | None = None
    cuts: Cuts = "any"

    def __post_init__(self) -> None:
        _check_name("output", self.name)
        if self.of is not None and not isinstance(self.of, Emission):
            raise TopologyError(
                f"Output {self.name!r} is of {type(self.of).__name__}. Name the rows of an operator: of=windows.final, "
                "or of=joined.rows."
            )
        if self.of is not None and self.of.deletes:
            raise TopologyError(
                f"Output {self.name!r} is of the versions of {self.of.operator}, some of which delete their key: an "
                "appended deletion would be a row of nulls. Declare cdc_table with history=True, whose table has all "
                "rows with their times; or append rows that the step makes from the versions."
            )
        if self.of is not None:
            object.__setattr__(self, "schema", self.schema or self.of.schema)
            object.__setattr__(self, "cuts", self.of.cuts if self.cuts == "any" else self.cuts)
        what = f"Output {self.name!r}"
        object.__setattr__(self, "masked", column_names(what, "masked", self.masked))
        object.__setattr__(self, "partition_by", column_names(what, "partition_by", self.partition_by))
        _check_cuts("Output", self.name, self.cuts)
        if not self.columns:
            raise TopologyError(f"Output {self.name!r} has no columns.")
        names = [column.name for column in self.columns]
        _check_masked(f"Output {self.name!r}", self.masked, names)
        _check_partitions(self)
        reserved.check_names(f"Output {self.name!r}", names, "Rename them in the schema and in the step.")
        types = {column.name: column.type for column in self.columns}
        if self.time is not None and types.get(self.time) not in ("TIMESTAMP", "BIGINT"):
            raise TopologyError(
                f"Output {self.name!r}: time column {self.time!r} is {types.get(self.time, 'not in its schema')}. Name "
                "a column of type TIMESTAMP, or BIGINT in epoch milliseconds."
            )

    @property
    def measures(self) -> tuple[str, ...]:
        """Full names of what a threshold may limit."""
        return tuple(f"{self.name}.{measure}" for measure in OUTPUT_MEASURES)

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns of a row, without the lineage columns that the platform adds."""
        return columns_of(self.schema, f"output {self.name!r}")


def _check_cuts(kind: str, name: str, cuts: Cuts) -> None:
    if cuts not in get_args(Cuts):
        raise TopologyError(f"{kind} {name!r}: cuts {cuts!r} is not one of {', '.join(get_args(Cuts))}.")


def _check_name(kind: str, name: str) -> None:
    if not isinstance(name, str) or not _MEMBER.fullmatch(name):
        raise TopologyError(
            f"The name of {kind} {name!r} must be one lower-case word (letters, digits, '_'). Write it like "
            "name='spending'."
        )


def _check_internal(table: Table, columns: Iterable[str]) -> None:
    if table.internal and not table.made_by:
        raise TopologyError(
            f"Table {table.name!r}: internal={list(table.internal)} is only for tables that an operator keeps, and "
            "this one is the step's. Keep data that only the step needs in a table of its own."
        )
    odd = [name for name in table.internal if name not in columns]
    if odd:
        raise TopologyError(
            f"Table {table.name!r}: internal columns {odd} are not in its schema, which has {sorted(columns)}."
        )


def _check_masked(what: str, masked: Iterable[str], columns: Iterable[str]) -> None:
    for name in masked:
        if name not in columns:
            raise TopologyError(f"{what}: masked column {name!r} is not in its schema, which has {sorted(columns)}.")


def _check_key(table: Table) -> None:
    """Check that a table's key has columns of the table, each once, never null, and of types whose values can be keys.

    Raises:
        TopologyError: it is not.
    """
    columns = {column.name: column for column in table.columns}
    if not table.key:
        raise TopologyError(f"Table {table.name!r} has no key. Name at least one column: key=['id'].")
    for key in table.key:
        if key not in columns:
            raise TopologyError(
                f"Table {table.name!r}: key column {key!r} is not in its schema, which has {sorted(columns)}."
            )
        if columns[key].nullable:
            raise TopologyError(f"Table {table.name!r}: key column {key!r} may be null. Declare it NOT NULL.")
        if not columns[key].is_key:
            remedy = _NUMBER_KEY if isinstance(columns[key].delta, str) else _NESTED_KEY
            raise TopologyError(
                f"Table {table.name!r}: key column {key!r} is {columns[key].type}, whose values cannot be keys. "
                f"{remedy}"
            )
    if len(set(table.key)) < len(table.key):
        raise TopologyError(f"Table {table.name!r}: key {list(table.key)} names a column twice. Name each once.")


def _check_partitions(output: Append) -> None:
    """Check that an output can be partitioned as declared.

    Raises:
        TopologyError: it cannot.
    """
    columns, parts = {column.name: column for column in output.columns}, output.partition_by
    unknown = sorted(set(parts) - set(columns))
    if unknown:
        raise TopologyError(
            f"Output {output.name!r}: partition_by {unknown} is not in its schema, which has {list(columns)}; case "
            "counts."
        )
    for name in parts:
        if columns[name].delta not in _PARTITION_TYPES:
            raise TopologyError(
                f"Output {output.name!r}: partition_by names {name!r}, which is {columns[name].type}. Partition by "
                "text, integers, BOOLEAN, DATE or TIMESTAMP."
            )
        if ":" in name:
            raise TopologyError(
                f"Output {output.name!r}: partition_by names {name!r}, but Spark cannot read a folder with ':' in its "
                "name. Rename the column."
            )
    if len(set(parts)) < len(parts) or len(parts) == len(columns):
        raise TopologyError(
            f"Output {output.name!r}: partition_by {list(parts)} names a column twice, or leaves no column for the "
            "files of a partition. Name each column once, and not all of them."
        )
