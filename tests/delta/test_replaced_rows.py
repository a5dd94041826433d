"""Rows of an interval that give way to others in one Delta commit: those of the interval, all of them, no other."""

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
from kappa.driver.backfill import belongs
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


def made(rows: Sequence[dict[str, Any]], path: str) -> pa.Table:
    schema = tables.declared_schema(DeltaTable(path))
    return pa.Table.from_pylist([{**dict.fromkeys(schema.names), **row} for row in rows], schema=schema)


def row(seq: int, offset: int | None, **values: Any) -> dict[str, Any]:
    place = {"_topic": None, "_partition": None} if offset is None else {"_topic": "p.o-s", "_partition": offset % 2}
    return {"_seq": seq, "id": f"r{offset}", "_offset": offset, **place, **values}


def replace(path: str, rows: pa.Table, where: str, seq: int, plan: str = "plan") -> None:
    tables.replace_where(path, rows.to_reader(7), where, seq, plan)


def ids(path: str) -> list[str]:
    return sorted(f"{found['_seq']}:{found['id']}" for found in queries.query(path, None).to_pylist())


@pytest.fixture
def path(tmp_path: Path) -> str:
    made_at = str(tmp_path / "out put")
    tables.create(made_at, COLUMNS)
    return made_at


def test_rows_of_the_interval_go_in_one_commit_and_rows_without_a_record_stay(path: str) -> None:
    tables.append(path, made([row(1, n) for n in range(20)] + [row(1, None)], path), 1)
    ranges = [OffsetRange(topic="p.o-s", partition=n, start=4, end=9) for n in (0, 1)]
    where = belongs(PAID, None, BEGIN, BEGIN, ranges)
    before = tables.version(path)
    replace(path, made([row(2, n) for n in (5, 8)], path), where, 2)
    assert tables.version(path) == before + 1
    assert ids(path) == sorted(["1:rNone", "2:r5", "2:r8", *(f"1:r{n}" for n in range(20) if not 4 <= n < 9)])
    assert ids(path) != [f"{r['_seq']}:{r['id']}" for r in queries.query(path, before).to_pylist()]
    (said,) = DeltaTable(path).history(1)
    assert said["userMetadata"] == "slice=2 plan=plan"


def test_no_new_row_removes_the_old_ones_and_an_interval_without_rows_is_a_commit_too(path: str) -> None:
    tables.append(path, made([row(1, n) for n in range(4)], path), 1)
    where = belongs(PAID, None, BEGIN, BEGIN, [OffsetRange(topic="p.o-s", partition=1, start=0, end=9)])
    replace(path, made([], path), where, 2)
    assert ids(path) == ["1:r0", "1:r2"]
    replace(path, made([], path), "FALSE", 3)
    assert tables.is_written(path, 3), "a writer that wakes up late finds its number taken"
    assert ids(path) == ["1:r0", "1:r2"]


def test_a_second_replacement_by_the_same_plan_changes_nothing_and_by_another_is_refused(path: str) -> None:
    tables.append(path, made([row(1, 1)], path), 1)
    for _ in range(2):
        replace(path, made([row(2, 1)], path), "_offset = 1", 2)
    assert (ids(path), tables.version(path)) == (["2:r1"], 2)
    with pytest.raises(DisagreementError, match="not by plan other"):
        replace(path, made([row(2, 1)], path), "_offset = 1", 2, "other")


def test_rows_outside_of_the_interval_are_refused_and_nothing_is_changed(path: str) -> None:
    tables.append(path, made([row(1, n) for n in range(4)], path), 1)
    with pytest.raises(Exception, match="failed validation"):
        replace(path, made([row(2, 1), row(2, 3)], path), "_offset = 1", 2)
    assert (ids(path), tables.version(path)) == (["1:r0", "1:r1", "1:r2", "1:r3"], 1)


def test_a_replacement_that_another_writer_overtakes_is_refused(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tables.append(path, made([row(1, 1)], path), 1)

    def is_overtaken(*given: Any, **how: Any) -> None:
        monkeypatch.undo()
        replace(path, made([row(2, 1)], path), "_offset = 1", 2)
        deltalake.write_deltalake(*given, **how)

    monkeypatch.setattr(deltalake, "write_deltalake", is_overtaken)
    with pytest.raises(ConflictError):
        replace(path, made([row(2, 1)], path), "_offset = 1", 2)
    assert ids(path) == ["2:r1"]


def test_a_replacement_is_put_back(path: str) -> None:
    tables.append(path, made([row(1, n) for n in range(4)], path), 1)
    replace(path, made([row(2, 1)], path), "_offset = 1", 2)
    tables.put_back(path, 1, 2, "plan")
    assert ids(path) == ["1:r0", "1:r1", "1:r2", "1:r3"]


def test_every_type_stays_as_it_was_beside_the_interval_and_within(path: str) -> None:
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
    tables.append(path, made(rows, path), 1)
    again = [{**found, "_seq": 2} for found in rows[:2]]
    replace(path, made(again, path), "_offset < 2", 2)
    found = queries.query(path, None, order_by="_offset")
    assert found == made([*again, *rows[2:]], path).select(found.schema.names)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(
    times=st.lists(TIMES, min_size=1, max_size=30), begin=EDGES, end=EDGES, by=st.sampled_from(["at", 'ms of "day"'])
)
def test_an_interval_of_a_column_is_from_its_beginning_to_before_its_end(
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
    tables.append(path, made(rows, path), 1)
    replace(path, made([], path), belongs(PAID, by, begin, end, ()), 2)
    assert ids(path) == sorted(f"1:r{n}" for n, at in enumerate(whole) if at is None or not begin <= at < end)
