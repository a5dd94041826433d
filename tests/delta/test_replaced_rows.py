"""Rows of an interval are replaced in one Delta commit: all of them, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kappa.delta import queries, tables
from kappa.delta.access import declared_schema
from kappa.driver.replacements.interval_rows import belongs
from kappa.errors import ConflictError, DisagreementError
from kappa.offsets.vector import OffsetRange
from kappa.topology import Append

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
#: Times of every year.
EDGES = st.integers(-719_160 * 86_400 * 10**6, 2_932_890 * 86_400 * 10**6).map(
    lambda micros: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
)
#: What a column of times holds.
TIMES = st.none() | EDGES
PAID = Append(
    name="paid",
    schema="""id STRING, at TIMESTAMP, `ms of "day"` BIGINT, price DECIMAL(38,18), raw BINARY, day DATE, ratio DOUBLE,
        tags MAP<STRING, ARRAY<INT>>, place STRUCT<since: TIMESTAMP, items: ARRAY<STRUCT<sku: STRING>>>""",
)
COLUMNS = (tables.SEQ, *PAID.columns, *tables.LINEAGE)


def table_of(rows: Sequence[dict[str, Any]], path: str) -> pa.Table:
    schema = declared_schema(DeltaTable(path))
    return pa.Table.from_pylist([{**dict.fromkeys(schema.names), **row} for row in rows], schema=schema)


def row(seq: int, offset: int | None, **values: Any) -> dict[str, Any]:
    place = {"_topic": None, "_partition": None} if offset is None else {"_topic": "p.o-s", "_partition": offset % 2}
    return {"_seq": seq, "id": f"r{offset}", "_offset": offset, **place, **values}


def replace(path: str, rows: pa.Table, where: str, seq: int, plan: str = "plan") -> None:
    tables.replace_where(path, rows.to_reader(7), where, seq, plan)


def ids(path: str) -> list[str]:
    return sorted(f"{one['_seq']}:{one['id']}" for one in queries.query(path, None).to_pylist())


@pytest.fixture
def path(tmp_path: Path) -> str:
    folder = str(tmp_path / "out put")
    tables.create(folder, COLUMNS)
    return folder


def test_one_commit_replaces_the_interval_and_keeps_rows_without_a_record(path: str) -> None:
    tables.append(path, table_of([row(1, n) for n in range(20)] + [row(1, None)], path), 1)
    ranges = [OffsetRange(topic="p.o-s", partition=n, start=4, end=9) for n in (0, 1)]
    where = belongs(PAID, None, BEGIN, BEGIN, ranges, engine="deltalake")
    before = tables.version(path)
    replace(path, table_of([row(2, n) for n in (5, 8)], path), where, 2)
    assert tables.version(path) == before + 1
    assert ids(path) == sorted(["1:rNone", "2:r5", "2:r8", *(f"1:r{n}" for n in range(20) if not 4 <= n < 9)])
    assert ids(path) != [f"{r['_seq']}:{r['id']}" for r in queries.query(path, before).to_pylist()]
    (commit,) = DeltaTable(path).history(1)
    assert commit["userMetadata"] == "slice=2 plan=plan"


def test_a_replacement_without_rows_removes_the_old_ones_in_a_commit(path: str) -> None:
    tables.append(path, table_of([row(1, n) for n in range(4)], path), 1)
    where = belongs(PAID, None, BEGIN, BEGIN, [OffsetRange(topic="p.o-s", partition=1, start=0, end=9)])
    replace(path, table_of([], path), where, 2)
    assert ids(path) == ["1:r0", "1:r2"]
    replace(path, table_of([], path), "FALSE", 3)
    assert tables.is_written(path, 3), "a writer that wakes up late finds its number taken"
    assert ids(path) == ["1:r0", "1:r2"]


def test_repeating_a_replacement_changes_nothing_and_another_plan_is_refused(path: str) -> None:
    tables.append(path, table_of([row(1, 1)], path), 1)
    for _ in range(2):
        replace(path, table_of([row(2, 1)], path), "_offset = 1", 2)
    assert (ids(path), tables.version(path)) == (["2:r1"], 2)
    with pytest.raises(DisagreementError, match="not by plan other"):
        replace(path, table_of([row(2, 1)], path), "_offset = 1", 2, "other")


def test_rows_outside_the_interval_are_refused_without_a_change(path: str) -> None:
    tables.append(path, table_of([row(1, n) for n in range(4)], path), 1)
    with pytest.raises(Exception, match="failed validation"):
        replace(path, table_of([row(2, 1), row(2, 3)], path), "_offset = 1", 2)
    assert (ids(path), tables.version(path)) == (["1:r0", "1:r1", "1:r2", "1:r3"], 1)


def test_a_replacement_that_another_writer_overtakes_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tables.append(path, table_of([row(1, 1)], path), 1)

    def is_overtaken(*arguments: Any, **how: Any) -> None:
        monkeypatch.undo()
        replace(path, table_of([row(2, 1)], path), "_offset = 1", 2)
        deltalake.write_deltalake(*arguments, **how)

    monkeypatch.setattr(deltalake, "write_deltalake", is_overtaken)
    with pytest.raises(ConflictError):
        replace(path, table_of([row(2, 1)], path), "_offset = 1", 2)
    assert ids(path) == ["2:r1"]


def test_a_replacement_is_undone(path: str) -> None:
    tables.append(path, table_of([row(1, n) for n in range(4)], path), 1)
    replace(path, table_of([row(2, 1)], path), "_offset = 1", 2)
    tables.put_back(path, 1, 2, "plan")
    assert ids(path) == ["1:r0", "1:r1", "1:r2", "1:r3"]


def test_every_type_is_unchanged_inside_and_outside_the_interval(path: str) -> None:
    values: dict[str, Any] = {
        "at": BEGIN,
        'ms of "day"': -(2**62),
        "price": None,
        "raw": bytes([0, 255]),
        "day": date(1582, 10, 4),
        "ratio": float("inf"),
        "tags": [("ö", [1, None]), ("", [])],
        "place": {"since": BEGIN - timedelta(days=700_000), "items": [{"sku": None}, None]},
    }
    rows = [row(1, n, **values) for n in range(4)] + [row(1, 4)]
    tables.append(path, table_of(rows, path), 1)
    again = [{**one, "_seq": 2} for one in rows[:2]]
    replace(path, table_of(again, path), "_offset < 2", 2)
    actual = queries.query(path, None, order_by="_offset")
    assert actual == table_of([*again, *rows[2:]], path).select(actual.schema.names)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(
    times=st.lists(TIMES, min_size=1, max_size=30), begin=EDGES, end=EDGES, by=st.sampled_from(["at", 'ms of "day"'])
)
def test_an_interval_includes_its_beginning_and_excludes_its_end(
    tmp_path_factory: pytest.TempPathFactory, times: list[datetime | None], begin: datetime, end: datetime, by: str
) -> None:
    path = str(tmp_path_factory.mktemp("t"))
    tables.create(path, COLUMNS)
    epoch, milli = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
    whole = [None if at is None else epoch + (at - epoch) // milli * milli for at in times]
    rows = [
        row(1, n, **{"at": at, 'ms of "day"': None if at is None else (at - epoch) // milli})
        for n, at in enumerate(whole)
    ]
    tables.append(path, table_of(rows, path), 1)
    where = belongs(PAID, by, begin, end, (), engine="deltalake")
    inside = {n for n, at in enumerate(whole) if at is not None and begin <= at < end}
    rows_inside = queries.batches(path, 1, ["id"], where=where).read_all()["id"].to_pylist()
    assert sorted(rows_inside) == sorted(f"r{n}" for n in inside), "as the driver reads the computed rows"
    replace(path, table_of([], path), where, 2)
    assert ids(path) == sorted(f"1:r{n}" for n in range(len(whole)) if n not in inside)
