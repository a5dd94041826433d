"""An epoch whose slices are written without Spark and Kafka, and what its table has to hold after each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from hypothesis import strategies as st

from kappa import clock
from kappa.delta import queries, tables
from kappa.delta.access import declared_schema
from kappa.names import EpochPaths
from kappa.offsets.vector import OffsetRange
from kappa.record import merge_on_read
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.merge_on_read import Contents, contents_of
from kappa.slices.places import create_tables, make_durable
from kappa.slices.protocol import apply_changes, commit_slice
from kappa.slices.run import Engines, EpochRun
from kappa.topology import Source, Table, Topology
from kappa.topology.shapes import masked_of, shapes_as_dict, shapes_of

AT = datetime(2026, 3, 1, tzinfo=UTC)
TABLE = Table(name="sums", key=["id", "select"], schema="id STRING NOT NULL, `select` INT NOT NULL, total BIGINT")
TOPOLOGY = Topology(
    name="sums",
    version="1",
    sources=[Source(topic="pos", schema="id STRING NOT NULL")],
    tables=[TABLE],
    step=lambda _: {},
)
SCHEMA = pa.schema(
    {"_seq": pa.int64(), "_deleted": pa.bool_(), "id": pa.string(), "select": pa.int32(), "total": pa.int64()}
)

#: Key -> its new value, None where it is removed.
Changes = dict[tuple[str, int], int | None]
Rows = dict[tuple[str, int], int]

keys = st.tuples(st.sampled_from(["a", "b", "c'", 'd"']), st.integers(0, 1))
slices = st.lists(st.dictionaries(keys, st.one_of(st.none(), st.integers(0, 9)), max_size=5), min_size=1, max_size=8)


class Epoch:
    """An epoch whose slices are written without Spark and Kafka.

    Args:
        base: the lake.
        topology: of one table.
        epoch: its number.
    """

    def __init__(self, base: Path | str, topology: Topology = TOPOLOGY, epoch: int = 1, **settings: Any) -> None:
        self.paths = EpochPaths(lake=str(base), topology=topology.name, epoch=epoch)
        self.name = topology.tables[0].name
        ledger = Ledger(self.paths.ledger)
        ledger.create()
        ledger.claim("me", "code", ledger.state())
        create_tables(topology, self.paths)
        none: Any = None  # nothing is computed, read or sent
        self.run = EpochRun(
            topology=topology,
            paths=self.paths,
            writer="me",
            code="code",
            ledger=ledger,
            topic_ids={},
            engines=Engines(
                session=none,
                broker=none,
                bootstrap_servers="",
                **{"savepoint_grain": timedelta(days=365_000), **settings},
            ),
        )
        names = [table.name for table in topology.tables]
        places = ["dead_letters", *(f"{kind}/{name}" for kind in ("changes", "tables") for name in names)]
        ledger.append(
            LedgerRow(
                kind="commit",
                seq=0,
                writer="me",
                at=clock.now(),
                delta_versions=dict.fromkeys(places, 0),
                detail={"shapes": shapes_as_dict(shapes_of(topology)), "masked": masked_of(topology)},
            )
        )

    def merge_after(self, seconds: float) -> None:
        """From now on changes wait for this long before they are merged into the table."""
        self.run.engines = replace(self.run.engines, merge_seconds=seconds)

    def begin(self, changes: Changes) -> tuple[LedgerRow, LedgerRow]:
        """A slice up to its effects: its plan and effects rows."""
        rows = [
            {"_deleted": total is None, "id": id, "select": select, "total": total}
            for (id, select), total in changes.items()
        ]
        return self._begin(**{self.name: rows})

    def put(self, *rows: dict[str, Any]) -> LedgerRow:
        """A slice of any table's changes: rows, of which those with a true ``_deleted`` remove their key."""
        return self.put_into({self.name: rows})

    def put_into(self, changes: Mapping[str, Iterable[dict[str, Any]]]) -> LedgerRow:
        """The same of several tables, by their names."""
        plan, effects = self._begin(
            **{name: [{"_deleted": False, **row} for row in rows] for name, rows in changes.items()}
        )
        apply_changes(self.run, plan, effects)
        return commit_slice(self.run, plan, effects)

    def put_without_commit(self, *rows: dict[str, Any]) -> None:
        """A slice of which the changes are written, and nothing is committed."""
        self._begin(**{self.name: [{"_deleted": False, **row} for row in rows]})

    def _begin(self, **changes: list[dict[str, Any]]) -> tuple[LedgerRow, LedgerRow]:
        ledger = self.run.ledger
        seq = ledger.state().seq + 1
        ranges = (OffsetRange(topic="pos", partition=0, start=seq, end=seq + 1),)
        plan = ledger.append(LedgerRow(kind="plan", seq=seq, writer="me", at=clock.now(), ranges=ranges))
        self.run.scratch.written = {}
        versions = {"dead_letters": 0}
        for table in self.run.topology.tables:
            place, path = f"changes/{table.name}", self.paths.changes(table.name)
            rows = [{"_seq": seq, **row} for row in changes.get(table.name, ())]
            written = pa.Table.from_pylist(rows, declared_schema(DeltaTable(path)))
            self.run.scratch.written[place] = written
            tables.append(path, written, seq)
            versions[place] = tables.version(path)
        detail = make_durable(self.paths, ledger.state().recorded, versions)
        return plan, ledger.append(
            LedgerRow(kind="effects", seq=seq, writer="me", at=clock.now(), delta_versions=versions, detail=detail)
        )

    def slice(self, changes: Changes) -> LedgerRow:
        plan, effects = self.begin(changes)
        apply_changes(self.run, plan, effects)
        return commit_slice(self.run, plan, effects)

    def at(self, row: LedgerRow) -> Contents:
        return contents_of(self.paths, row, "sums")

    def table(self, row: LedgerRow) -> Rows:
        """The table as of a commit; the same by condition, part by part, and by the newest changes over the merge."""
        at = self.at(row)
        rows = as_rows(merge_on_read.query(at))
        parts = [row for part in merge_on_read.chunks(at, COLUMNS, 2) for row in part.to_pylist()]
        assert as_rows(pa.Table.from_pylist(parts, ROW)) == rows
        for total in range(10):
            assert as_rows(merge_on_read.query(at, where=f"total = {total}")) == {
                k: v for k, v in rows.items() if v == total
            }
        counted = merge_on_read.query(at, select='COUNT(*) AS n, MAX("select") AS most')
        assert counted.to_pylist() == [{"n": len(rows), "most": max((k[1] for k in rows), default=None)}]
        base, over = as_rows(queries.query(at.path, at.version)), merge_on_read.changed(at)
        for change in [] if over is None else over.to_pylist():
            base.pop((change["id"], change["select"]), None)
            if not change["_deleted"]:
                base[change["id"], change["select"]] = change["total"]
        assert base == rows
        return rows


COLUMNS = ["id", "select", "total"]
ROW = pa.schema([SCHEMA.field(name) for name in COLUMNS])


def as_rows(rows: pa.Table) -> Rows:
    by_key = {(row["id"], row["select"]): row["total"] for row in rows.to_pylist()}
    assert len(by_key) == rows.num_rows, "one row per key"
    return by_key


def merged(before: Rows, changes: Changes) -> Rows:
    """What one slice makes of a table."""
    return {key: total for key, total in {**before, **changes}.items() if total is not None}
