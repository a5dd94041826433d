"""What other programs did to a table is undone: its rows, files and statistics are what they were, by value."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties, write_deltalake

from kappa.delta import commits, queries, tables
from kappa.delta.log_state import LogState, state_of
from kappa.topology.ddl import columns_of

TEXTS = [
    "New York",
    "2026-01-01",
    "ü",
    "a/b=c",
    "100%",
    "a%20b",
    "a+b&c=d:e;f,g",
    "a#b?c",
    "'\"`",
    "[{|}]",
    "名前",
    " ",
]
#: Type of a partition column -> values of it; each has null too.
KINDS: dict[str, list[Any]] = {
    "STRING": TEXTS,
    "DATE": [date(1, 1, 1), date(2026, 3, 1), date(9999, 12, 31)],
    "TIMESTAMP": [datetime(1900, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, 12, 30, 0, 123_456, tzinfo=UTC)],
    "BOOLEAN": [True, False],
    "INT": [-(2**31), 0, 2**31 - 1],
    "BIGINT": [-(2**63), 2**63 - 1],
    "DECIMAL(10,2)": [Decimal("1.50"), Decimal("12345678.90")],
    "none": [],
}
SLICE = {"_seq": 3, "v": 7, "p": None}
Act = Callable[[str], object]


def update(path: str) -> None:
    DeltaTable(path).update({"v": "v + 100"}, predicate="v <> 1")


def delete(path: str) -> None:
    DeltaTable(path).delete("v = 0")


def delete_all(path: str) -> None:
    DeltaTable(path).delete()


def append(path: str) -> None:
    write_deltalake(path, _rows_of(path, seq=99), mode="append")


def overwrite(path: str) -> None:
    write_deltalake(path, _rows_of(path, seq=99), mode="overwrite")


def optimize(path: str) -> None:
    DeltaTable(path).optimize.compact(writer_properties=WriterProperties(compression="GZIP"))


def go_back(path: str) -> None:
    DeltaTable(path).restore(1)


def add_slice(path: str) -> None:
    """One of Kappa's, between two of another program."""
    commit = CommitProperties(app_transactions=[Transaction(tables.APP, 3)])
    rows = pa.Table.from_pylist([SLICE], tables.schema_of(path))
    write_deltalake(path, rows, mode="append", commit_properties=commit)


ACTS: dict[str, list[Act]] = {
    "append": [append],
    "delete": [delete],
    "delete all": [delete_all],
    "update": [update],
    "overwrite": [overwrite],
    "go back": [go_back],
    "append, merge files": [append, optimize],
    "delete, merge files": [delete, optimize],
    "append, a slice, delete all": [append, add_slice, delete_all],
}


@pytest.fixture
def path(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A table of two slices; the rows of each value of its partition column lie in two files."""
    kind = request.param
    path = str(tmp_path / "table")
    columns = columns_of(f"_seq BIGINT NOT NULL, v BIGINT, p {'STRING' if kind == 'none' else kind}", "test")
    tables.create(path, columns, partition_by=[] if kind == "none" else ["p"])
    for seq in (1, 2):
        rows = [{"_seq": seq, "v": number, "p": value} for number, value in enumerate([*KINDS[kind], None])]
        tables.append(path, pa.Table.from_pylist(rows, tables.schema_of(path)), seq, "plan")
    return path


def _rows_of(path: str, *, seq: int) -> pa.Table:
    """Rows of each partition that there is."""
    rows = queries.query(path, None)
    return rows.set_column(0, rows.schema.field(0), pa.array([seq] * rows.num_rows, pa.int64()))


def rows_of(path: str) -> list[str]:
    return sorted(map(str, DeltaTable(path).to_pyarrow_table().select(["_seq", "v", "p"]).to_pylist()))


def files_of(path: str) -> dict[str, Any]:
    """What the log says of each file."""
    names = ("partitionValues", "size", "modificationTime", "stats")
    return {name: {key: add.get(key) for key in names} for name, add in state(path).files.items()}


def state(path: str) -> LogState:
    state = state_of(path)
    assert state is not None
    return state


def undo(path: str, since: int) -> int | None:
    return commits.undo(path, since, list(commits.commits_after(path, since)))


@pytest.mark.parametrize("path", KINDS, indirect=True)
@pytest.mark.parametrize("acts", ACTS.values(), ids=ACTS)
@pytest.mark.parametrize("is_merged", [False, True], ids=["small files", "merged files"])
def test_rows_files_and_statistics_are_what_they_were(path: str, acts: list[Act], is_merged: bool) -> None:
    since = DeltaTable(path).version()
    if is_merged:
        optimize(path)
    rows, files = rows_of(path), files_of(path)
    for act in acts:
        act(path)
    newest = DeltaTable(path).version()
    assert undo(path, since) == newest + 1
    assert DeltaTable(path).version() == newest + 1
    has_slice = add_slice in acts
    assert rows_of(path) == sorted([*rows, str(SLICE)] if has_slice else rows)
    if optimize not in acts:  # files that somebody merged stay so, where nothing but rows of Kappa went into them
        after = files_of(path)
        assert {name: after.pop(name, None) for name in files} == files
        assert len(after) == has_slice
    assert undo(path, since) is None
