"""Changes brought into a table by Spark: it looks for the files that hold changed keys, and writes those anew.

Nothing of the table passes through the driver's Python process. The other ways are in :mod:`kappa.delta.tables`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kappa.delta.tables import APP
from kappa.errors import ConflictError
from kappa.topology.ddl import Column, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_APP, _VERSION = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"


def merge_frame(
    session: SparkSession, path: str, changes: DataFrame, key: Sequence[str], columns: Sequence[Column], seq: int
) -> None:
    """Apply changes to a table with Spark: upsert, and remove where ``_deleted``. Idempotent.

    A crash leaves all of the changes in the table or none, and maybe files that no commit names.

    Args:
        session: one for this merge: the slice's number stays in its settings.
        path: the table.
        changes: at most one per key.
        key: the table's key.
        columns: its columns.
        seq: the slice up to which the table then holds all changes.

    Raises:
        ConflictError: another process wrote to the table at the same time.
    """
    from delta import exceptions
    from delta.tables import DeltaTable

    session.conf.set(_APP, APP)
    session.conf.set(_VERSION, str(seq))
    assignments: dict[str, str] = {quote(column.name): f"s.{quote(column.name)}" for column in columns}
    on = " AND ".join(f"t.{quote(name)} = s.{quote(name)}" for name in key)
    merger = (
        DeltaTable.forPath(session, path)
        .alias("t")
        .merge(changes.alias("s"), on)
        .whenMatchedDelete("s.`_deleted`")
        .whenMatchedUpdate(set=assignments)  # type: ignore[arg-type]
        .whenNotMatchedInsert("NOT s.`_deleted`", values=assignments)  # type: ignore[arg-type]
    )
    try:
        merger.execute()
    except (
        exceptions.ConcurrentTransactionException,
        exceptions.ConcurrentAppendException,
        exceptions.ConcurrentDeleteReadException,
        exceptions.ConcurrentDeleteDeleteException,
        exceptions.ConcurrentWriteException,
        exceptions.MetadataChangedException,
        exceptions.ProtocolChangedException,
    ) as error:
        raise ConflictError(f"Another process wrote to {path} while slice {seq} did.", path=path, seq=seq) from error
