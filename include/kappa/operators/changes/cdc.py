"""A database table, maintained from its change records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from kappa.errors import TopologyError
from kappa.operators.bound import TableOperator, declared_as, emission
from kappa.operators.changes.change_history import TIMES, ChangedVersions, ChangeHistory
from kappa.operators.changes.change_table import ChangedRows, ChangeTable
from kappa.operators.keys import Key, key_columns
from kappa.topology import Slice, Source
from kappa.topology.ddl import Column, columns_of, names_of
from kappa.topology.emission import Emission
from kappa.topology.members.descriptions import described
from kappa.topology.operator import Outcome, label
from kappa.topology.operator_inputs import rows_input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

R = TypeVar("R", bound=Any)

_NAME = "cdc_table"


@dataclass(frozen=True, kw_only=True, eq=False)
class ChangeTableOperator(TableOperator[R]):
    """An operator whose result is a database table, and the row that each change left."""

    @property
    def versions(self) -> Emission:
        """These rows, for a join with a stream: ``table_join``, or ``newest_table_join``.

        Raises:
            TopologyError: the table is a history, whose rows end when a later one arrives.
        """
        if self.emits is None:
            raise TopologyError(
                f"{self.what} is a history and emits no versions: a row gets its end when the next one arrives. "
                "Declare another cdc_table without history for the join."
            )
        return self.emits


@overload
def cdc_table(
    of: Source, *, key: Key, table: str, history: Literal[False] = False
) -> ChangeTableOperator[ChangedRows]: ...


@overload
def cdc_table(of: Source, *, key: Key, table: str, history: Literal[True]) -> ChangeTableOperator[ChangedVersions]: ...


@declared_as("cdc_table(customers, key='id', table='customers')")
def cdc_table(of: Source, *, key: Key, table: str, history: bool = False) -> ChangeTableOperator[Any]:
    """A database table, maintained from its change records (a KTable over Debezium's topic).

    The newest row of each key stays, by the source's own position and not by arrival: a record that arrives again or
    late does not bring back an old row. A deletion removes its key, and a truncate removes all rows that are older than
    it. A changed key is a deletion and a new row. If a record omits a column because the change did not touch it, the
    column keeps its value.

    With ``history`` all rows stay, with ``valid_from``, ``valid_to`` and ``is_current`` (a slowly changing dimension of
    type 2). The two times are the source's times of the change that made the row and of the change that ended it. If
    one transaction changes a row twice, the row in between has two equal times.

    Columns of the table: those of the source; a history also has ``_version``, which is part of its key. Internal
    columns are ``_place``, the place of the last record by its position and then by the total order, and ``_carried``,
    the columns whose value comes from an older record. A column is null if it is unchanged and no record with its value
    was read.

    State: the row of each key; the place of each deleted key, for ever, in ``<table>_deleted``; the last truncate,
    which makes older deletions unnecessary, in ``<table>_truncated``. A history keeps all rows, deletions and truncates
    for ever; a slice reads those of its keys. Class: any cut; of :attr:`ChangeTableOperator.versions`, time cut.

    Args:
        of: a source with an envelope, whose ``key_schema`` has the key.
        key: column or columns.
        table: the name of its table.
        history: whether rows stay when they are changed or deleted.

    Raises:
        TopologyError: the source has no envelope, its keys do not contain the key, or a column has the name of a
            history column.

    Examples:
        >>> from kappa import Source
        >>> from kappa.operators import cdc_table
        >>> changes = Source(
        ...     topic="shop.public.customers", schema="name STRING", key_schema="id BIGINT", envelope="debezium"
        ... )
        >>> cdc_table(changes, key="id", table="customers").schema
        '`id` BIGINT NOT NULL, `name` STRING'
        >>> cdc_table(changes, key="id", table="customers", history=True).schema
        '`id` BIGINT NOT NULL, `name` STRING, `valid_from` TIMESTAMP, `valid_to` TIMESTAMP, `is_current` BOOLEAN'
    """
    what = label(_NAME, table)
    check_changes_of(of, key, what)
    read_rows = rows_input(of, what, is_timed=False, is_stream=False)
    columns, keys = columns_of(read_rows.rows, "the rows of cdc_table"), key_columns(read_rows.rows, key, _NAME)
    if history:
        _check_times(columns, what)
    change_table = (ChangeHistory if history else ChangeTable)(columns=columns, key=keys)
    tables = change_table.tables(table)

    def compute(slice: Slice, frames: tuple[DataFrame, ...]) -> Outcome[ChangedRows | ChangedVersions]:
        before, deleted, truncated = (slice.table(one.name) for one in tables)
        seeks = slice.seeks(*(one.name for one in tables))
        result = change_table(frames[0], before=before, deleted=deleted, truncated=truncated, seeks=seeks)
        changes = (result.changes, result.deletions, result.truncates)
        return Outcome(result=result, changes=changes, emitted=None if history else "versions")

    versions = emission(what, change_table.row, read_rows, is_timed=read_rows.is_timed, cuts="time")
    emitted = None if history else replace(versions, deletes=True)
    return ChangeTableOperator(name=_NAME, inputs=(read_rows,), tables=tables, compute=compute, emits=emitted)


def _check_times(columns: Sequence[Column], what: str) -> None:
    clash = [column.name for column in columns if column.name.lower() in TIMES]
    if clash:
        raise TopologyError(
            f"{what}: columns {clash} of the source have names of history columns. Remove them from the source's "
            "schema, or keep the table without history."
        )


def check_changes_of(of: Source, key: Key, what: str) -> None:
    """Check that the operator reads one source of change records, whose keys contain the table's key.

    Raises:
        TopologyError: it is not one, or they do not.
    """
    if not isinstance(of, Source):
        raise TopologyError(
            f"{what} is declared with {described(of)}. Positions of two sources cannot be compared, and "
            "rows that an operator emits have none: declare it with one source that has envelope='debezium'."
        )
    if of.envelope == "none":
        raise TopologyError(
            f"{what} reads source {of.topic!r}, whose records are rows and not changes of rows. Declare the source "
            "with envelope='debezium'; or use newest_by, which takes the newest row of each key by the total order."
        )
    keys = [column.name for column in of.key_columns]
    missing = [name for name in names_of(key) if name not in keys]
    if missing:
        raise TopologyError(
            f"{what}: key columns {missing} are not in the keys of source {of.topic!r}, which have {keys}. The record "
            f"of a deletion has only its key: key_schema={', '.join(f'{name} ...' for name in missing)!r}."
        )
