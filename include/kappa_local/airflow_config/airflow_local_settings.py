"""Airflow's metadata in SQLite: a savepoint begins with the write lock. Airflow imports this by its name.

A savepoint outside a transaction begins a reading one. If another process wrote in between, its first write fails
immediately, however long the timeout is: ``airflow backfill create`` ends in the middle beside a busy scheduler
(apache/airflow issue 66726).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import event
from sqlalchemy.engine import Engine

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

__all__: list[str] = []  # nothing here replaces a setting


@event.listens_for(Engine, "savepoint")
def _lock_before_savepoint(connection: Connection, name: str | None) -> None:
    if (connection.dialect.name, connection.dialect.driver) != ("sqlite", "pysqlite"):
        return
    raw = connection.connection.dbapi_connection
    if raw is not None and not raw.in_transaction:
        raw.cursor().execute("BEGIN IMMEDIATE")
