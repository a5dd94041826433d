"""Delta tables of other jobs, as their logs describe them: no row is read."""

from __future__ import annotations

import json

from kappa.delta.access import is_table, open_table
from kappa.delta.table_files import files_of
from kappa.errors import LakeRefusedError, LakeUnreachableError, UsageError, first_line
from kappa.replay.adoption import ExistingColumns, ExistingTable
from kappa.store.address import table_address
from kappa.topology.ddl import plain_type


def existing_table(place: str, address: str, version: int | None) -> ExistingTable:
    """A version of a table, by default its newest one.

    Args:
        place: what it becomes: ``tables/<name>`` or ``outputs/<name>``.
        address: where it is.
        version: the Delta version; None for the newest.

    Raises:
        UsageError: no Delta table is there, or it does not have that version any more.
    """
    path = table_address(address)
    if not is_table(path):
        raise UsageError(f"There is no Delta table at {path}. Name the folder that has its _delta_log.", address=path)
    newest = open_table(path).version()
    try:
        table = open_table(path, version)
        files = files_of(table)
        counts = files["num_records"].to_pylist() if files.num_rows else []
    except (LakeUnreachableError, LakeRefusedError):
        raise
    except Exception as error:  # deltalake has several errors for a version that is gone
        raise UsageError(
            f"Version {version} of {path} cannot be read; the newest is {newest}: {first_line(error)}", address=path
        ) from error
    rows = None if None in counts else sum(counts)
    return ExistingTable(place=place, address=path, version=table.version(), newest=newest, rows=rows)


def columns_of(table: ExistingTable) -> ExistingColumns:
    """The columns of a version of a table, or why it cannot be read."""
    try:
        schema = json.loads(open_table(table.address, table.version).schema().to_json())
    except (LakeUnreachableError, LakeRefusedError):
        raise
    except Exception as error:  # deltalake has several errors for a version that is gone
        return ExistingColumns(error=first_line(error))
    return ExistingColumns(types={field["name"]: plain_type(field["type"]) for field in schema["fields"]})


def batch_of(table: ExistingTable, query: str) -> int | None:
    """The last batch of a Structured Streaming query that a version of a table holds, if its log says so."""
    return open_table(table.address, table.version).transaction_version(query)
