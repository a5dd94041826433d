"""Commits that undo others, and upkeep, on a store that does not answer, refuses, or whose answer is lost."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from support.s3_proxy import CUT, Proxy

from kappa.delta import commits, tables, vacuum
from kappa.delta.access import open_table, storage_options
from kappa.errors import ConflictError, LakeRefusedError, LakeUnreachableError
from kappa.topology.ddl import Column

COLUMNS = (tables.SEQ, Column(name="id", type="STRING", nullable=False, delta="string"))


def rows(seq: int, name: str) -> pa.Table:
    return pa.table({"_seq": pa.array([seq], pa.int64()), "id": [name]})


@pytest.fixture
def path(proxied_lake: str) -> str:
    """A table of three slices, whose rows of one another program deleted."""
    path = f"{proxied_lake}/table"
    tables.create(path, COLUMNS)
    for seq, name in ((1, "a"), (2, "b"), (3, "c")):
        tables.append(path, rows(seq, name), seq, "plan")
    DeltaTable(path, storage_options=storage_options(path)).delete("id = 'a'")
    assert open_table(path).version() == 4
    return path


def undo(path: str) -> int | None:
    return commits.undo(path, 3, list(commits.commits_after(path, 3)))


def ids(path: str) -> list[str]:
    return sorted(open_table(path).to_pyarrow_table()["id"].to_pylist())


@pytest.mark.parametrize("status", [500, CUT])
def test_a_commit_whose_answer_is_lost_is_its_own(path: str, proxy: Proxy, status: int | None) -> None:
    lost = proxy.lose_answer(r"/0+5\.json$", status=status)
    assert undo(path) == 5
    assert lost.answers == [200]
    assert ids(path) == ["a", "b", "c"]
    assert undo(path) is None


def test_a_commit_of_another_writer_in_between_is_a_conflict(path: str) -> None:
    seen = list(commits.commits_after(path, 3))
    tables.append(path, rows(4, "d"), 4, "plan")
    with pytest.raises(ConflictError, match=r"^Another process wrote to .*/table while version 5 .*: kappa restore$"):
        commits.undo(path, 3, seen)


@pytest.mark.parametrize(("status", "kind"), [(503, LakeUnreachableError), (403, LakeRefusedError)])
def test_each_change_of_a_table_has_the_errors_of_the_lake(
    path: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, status: int, kind: type[Exception]
) -> None:
    monkeypatch.setattr(vacuum, "COMPACT_AFTER", 0)
    change = pa.table({"id": ["d"], "_seq": pa.array([4], pa.int64()), "_deleted": [False]})
    calls: dict[str, Callable[[], object]] = {
        "undo": lambda: undo(path),
        "compact": lambda: vacuum.compact(path),
        "forget": lambda: vacuum.forget_before(path, 3),
        "merge": lambda: tables.merge(path, change, ["id"], COLUMNS, 4),
        "seal": lambda: tables.seal(path, 3, "plan"),
    }
    for name, call in calls.items():
        proxy.refuse("", "PUT", status=status)
        try:
            call()
        except Exception as error:
            assert type(error) is kind, name
        else:
            pytest.fail(f"{name} needs no request")
        proxy.clear()
    assert open_table(path).version() == 4


def test_a_listing_for_a_vacuum_has_the_errors_of_the_lake(path: str, proxy: Proxy) -> None:
    proxy.refuse("^lake/table/?$", "LIST", status=403)
    with pytest.raises(LakeRefusedError):
        vacuum.vacuum(path, lambda: (), age=timedelta(0), check=lambda: None)
