"""A published table of two epochs without a driver: their tables are written, and published, by the test."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from kappa.delta import tables
from kappa.delta.access import open_table
from kappa.delta.log_entries import actions_of
from kappa.delta.log_state import state_of
from kappa.delta.publication import Origin
from kappa.delta.published import PublishedTable
from kappa.topology.ddl import columns_of

#: Columns of each epoch's table, unless a test has others.
SCHEMA = "id STRING NOT NULL, amount BIGINT"
RETENTION = timedelta(days=7)
HIDDEN = frozenset(column.name for column in (tables.SEQ, *tables.LINEAGE))


class Lake:
    """A published table, and tables of epochs below it.

    Args:
        root: a folder, or an address on S3.
    """

    def __init__(self, root: Path | str) -> None:
        self.path = f"{root}/shop.sales/sales"
        self.published = PublishedTable(self.path, RETENTION)

    def source(self, epoch: int) -> str:
        return f"{self.path}/_e{epoch:04d}"

    def create(self, epoch: int, schema: str = SCHEMA, partition_by: tuple[str, ...] = ()) -> None:
        columns = (tables.SEQ, *columns_of(schema, "sales"), *tables.LINEAGE)
        tables.create(self.source(epoch), columns, partition_by=partition_by)

    def append(self, epoch: int, seq: int, *ids: str | None, **more: Any) -> None:
        rows = [{"_seq": seq, "id": name, "amount": seq, **more} for name in ids]
        table = open_table(self.source(epoch))
        schema = pa.schema(table.schema().to_arrow())
        tables.append(self.source(epoch), pa.Table.from_pylist(rows, schema), seq, "plan")

    def origin(self, epoch: int) -> Origin:
        path = self.source(epoch)
        return Origin(
            path=path,
            folder=f"_e{epoch:04d}",
            epoch=epoch,
            version=tables.version(path),
            hidden=HIDDEN,
            offsets=lambda seq: {"sales": {"0": seq}},
        )

    def publish(self, epoch: int) -> int:
        """Publish until all is shown; how many commits it took."""
        before = -1 if (state := state_of(self.path)) is None else state.version
        while not self.published.publish(self.origin(epoch), self.published.version):
            pass
        return open_table(self.path).version() - before

    def ids(self, version: int | None = None) -> list[str]:
        return sorted(open_table(self.path, version).to_pyarrow_table()["id"].to_pylist())

    def entry(self, version: int | None = None) -> list[dict[str, Any]]:
        number = open_table(self.path).version() if version is None else version
        actions = actions_of(self.path, number)
        assert actions is not None
        return actions

    def changes(self, version: int) -> set[bool]:
        """Whether the files of an entry change rows."""
        files = [action.get("add") or action.get("remove") for action in self.entry(version)]
        return {file["dataChange"] for file in files if file is not None}
