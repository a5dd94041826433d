"""Delta tables of other jobs, as their logs describe them: no row is read."""

from __future__ import annotations

import json

from kappa.delta.access import id_of, is_table, open_table
from kappa.delta.table_files import missing, read_vectors, rows_of
from kappa.errors import LakeRefusedError, LakeUnreachableError, UsageError, first_line
from kappa.replay.adoption import ExistingColumns, ExistingTable
from kappa.store.address import is_remote, table_address
from kappa.topology.ddl import plain_type

#: Where a Delta schema keeps CHAR(n) and VARCHAR(n) of a string (Spark's ``CharVarcharUtils``).
_DECLARED_TYPE = "__CHAR_VARCHAR_TYPE_STRING"


def existing_table(lake: str, place: str, address: str, version: int | None) -> ExistingTable:
    """A version of a table, by default its newest one.

    Args:
        lake: the lake into which its rows are copied.
        place: what it becomes: ``tables/<name>`` or ``outputs/<name>``.
        address: where it is.
        version: the Delta version; None for the newest.

    Raises:
        UsageError: no Delta table is there, it is on a store that the lake's drivers do not reach, or it does not have
            that version any more.
    """
    path = table_address(address)
    if is_remote(path) and not is_remote(lake):
        raise UsageError(
            f"{path} is on an object store, and the lake {lake} is not: its drivers read from disks only. Copy the "
            "table to a disk, or set KAPPA_LAKE to a lake in that store.",
            address=path,
        )
    if not is_table(path):
        raise UsageError(f"There is no Delta table at {path}. Name the folder that has its _delta_log.", address=path)
    try:
        newest = open_table(path)
        table = newest if version is None else open_table(path, version)
        rows, table_id = rows_of(table), id_of(table)
    except (LakeUnreachableError, LakeRefusedError):
        raise
    except Exception as error:  # deltalake has several errors for a version that is gone
        raise UsageError(
            f"{'The newest version' if version is None else f'Version {version}'} of {path} cannot be read: "
            f"{first_line(error)}. Name another one: NAME={path}@VERSION.",
            address=path,
        ) from error
    return ExistingTable(
        place=place, address=path, version=table.version(), newest=newest.version(), rows=rows, table_id=table_id
    )


def columns_of(table: ExistingTable) -> ExistingColumns:
    """The columns of a version of a table, or why it cannot be read."""
    try:
        opened = open_table(table.address, table.version)
        if error := table.replacement(id_of(opened)):
            return ExistingColumns(error=error)
        if files := missing(table.address, opened):
            return ExistingColumns(error=f"{len(files):,} of its files are gone, such as {files[0]}")
        read_vectors(table.address, opened)
        schema = json.loads(opened.schema().to_json())
    except (LakeUnreachableError, LakeRefusedError):
        raise
    except Exception as error:  # deltalake has several errors for a version that is gone
        return ExistingColumns(error=first_line(error))
    fields = schema["fields"]
    return ExistingColumns(
        types={field["name"]: plain_type(field["type"]) for field in fields},
        padded=frozenset(field["name"] for field in fields if _is_char(field["metadata"].get(_DECLARED_TYPE))),
    )


def _is_char(declared: str | None) -> bool:
    return declared is not None and declared.lower().startswith("char(")


def batch_of(table: ExistingTable, query: str) -> int | None:
    """The last batch of a Structured Streaming query that a version of a table holds, if its log says so."""
    return open_table(table.address, table.version).transaction_version(query)
