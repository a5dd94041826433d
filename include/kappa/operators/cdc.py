"""A table of a database by the records of its changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kappa.errors import TopologyError
from kappa.operators.bound import TableOperator, declared_as, emission
from kappa.operators.change_table import ChangedRows, ChangeTable
from kappa.operators.keys import Key, key_columns
from kappa.topology import Slice, Source
from kappa.topology.ddl import columns_of, names_of
from kappa.topology.emission import Emission
from kappa.topology.operator import Outcome, label, rows_input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NAME = "cdc_table"


@dataclass(frozen=True, kw_only=True, eq=False)
class ChangeTableOperator(TableOperator[ChangedRows]):
    """An operator whose result is a table, and the rows that each change of it left."""

    @property
    def versions(self) -> Emission:
        """These rows, for a join with a stream: ``table_join``, or ``newest_table_join``."""
        assert self.emits is not None
        return self.emits


@declared_as("cdc_table(customers, key='id', table='customers')")
def cdc_table(of: Source, *, key: Key, table: str) -> ChangeTableOperator:
    """A table of a database as the records of its changes describe it (a KTable over Debezium's topic).

    The newest row of each key stays, by the source's own position and not by arrival: a record that comes again, or
    late, brings no old row back. A deletion removes its key, a truncate all rows that are older than it, a changed key
    is a deletion and a new row. A column that a record does not hold since the change left it as it was keeps its value.

    Columns of the table: those of the source, ``position STRING`` and ``origin``, the place of the last record, and
    ``carried``, which columns have a value of an older record, and of which. A column is null where it is unchanged and
    no record with its value was read. State: the row of each key; of a deleted key its place, for ever, in
    ``<table>_deleted``; the last truncate, which makes those before it superfluous, in ``<table>_truncated``. Class: any
    cut; of :attr:`ChangeTableOperator.versions`, time cut.

    Args:
        of: a source with an envelope, whose ``key_schema`` has the key.
        key: column or columns.
        table: the name of its table.

    Raises:
        TopologyError: the source has no envelope, or its keys do not hold the key.

    Examples:
        >>> from kappa import Source
        >>> from kappa.operators import cdc_table
        >>> changes = Source(
        ...     topic="shop.public.customers", schema="name STRING", key_schema="id BIGINT", envelope="debezium"
        ... )
        >>> customers = cdc_table(changes, key="id", table="customers")
        >>> customers.schema
        '`id` BIGINT NOT NULL, `name` STRING'
        >>> [table.name for table in customers.tables]
        ['customers', 'customers_deleted', 'customers_truncated']
    """
    what = label(_NAME, table)
    check_changes_of(of, key, what)
    read_rows = rows_input(of, what, is_timed=False)
    kept = ChangeTable(columns=columns_of(read_rows.rows, "the rows of cdc_table"), key=key_columns(read_rows.rows, key, _NAME))
    tables = kept.tables(table)

    def compute(slice: Slice, frames: tuple[DataFrame, ...]) -> Outcome[ChangedRows]:
        before, deleted, truncated = (slice.table(one.name) for one in tables)
        result = kept(frames[0], before=before, deleted=deleted, truncated=truncated)
        changes = (result.changes, result.deletions, result.truncates)
        return Outcome(result=result, changes=changes, emitted="versions")

    return ChangeTableOperator(
        name=_NAME,
        inputs=(read_rows,),
        tables=tables,
        compute=compute,
        row=kept.row,
        emits=emission(what, kept.row, read_rows, is_timed=read_rows.is_timed, cuts="time"),
    )


def check_changes_of(of: Source, key: Key, what: str) -> None:
    """What is read is one source of records of changes, whose keys hold the table's key.

    Raises:
        TopologyError: it is not, or they do not.
    """
    if not isinstance(of, Source):
        raise TopologyError(
            f"{what} is declared with {type(of).__name__} {of!r}. Positions of two sources do not compare, and rows "
            "that an operator emits have none: declare it with one source that has envelope='debezium'."
        )
    if of.envelope == "none":
        raise TopologyError(
            f"{what} reads source {of.topic!r}, whose records are rows and no changes of rows. Declare the source with "
            "envelope='debezium'; or use newest_by, which takes the newest row of each key by the total order."
        )
    keys = [column.name for column in of.key_columns]
    lacking = [name for name in names_of(key) if name not in keys]
    if lacking:
        raise TopologyError(
            f"{what}: key columns {lacking} are not in the keys of source {of.topic!r}, which hold {keys}. The record of "
            f"a deletion has nothing but its key: key_schema={', '.join(f'{name} ...' for name in lacking)!r}."
        )
