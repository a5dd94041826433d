"""What a new process reads of a grown record: neither documents nor epochs that ended long ago, until one asks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from kappa import clock
from kappa.delta import row_files
from kappa.delta.row_files import LateColumn
from kappa.errors import LedgerError
from kappa.names import epochs_log
from kappa.record import epochs as epochs_module
from kappa.record.epochs import Epochs
from kappa.record.events import DOCUMENTS, EventKind
from kappa.record.topology_records import record_of

BUILDING: tuple[EventKind, ...] = ("rewound", "seeded", "replayed", "caught_up", "verified", "approved")
DETAIL: Mapping[str, Mapping[str, Any]] = {
    "planned": {"plan_id": "p", "code": "c", "version": "1"},
    "verified": {"verdict": "same", "report": '{"tables": []}'},
    "moved": {"from": None, "at": {}, "seq": 3, "certificate": '{"complete": true}'},
}


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock is an hour after the one before; ten events are enough for a roll-up."""
    times = iter(range(1_000_000))
    monkeypatch.setattr(clock, "now", lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=next(times)))
    monkeypatch.setattr(epochs_module, "ROLL_UP_EVENTS", 10)


def put(epochs: Epochs, epoch: int, *kinds: EventKind, **detail: Any) -> None:
    """Some events of an epoch, one after the other."""
    for kind in kinds:
        epochs.add("a.a", epoch, kind, actor="test", **{**DETAIL.get(kind, {}), **detail})


def build(epochs: Epochs, epoch: int) -> None:
    """An epoch that goes live."""
    put(epochs, epoch, "planned", *BUILDING, "handover", "moved")


def check_as_a_whole(epochs: Epochs) -> None:
    """Compare what the record says without epochs that ended long ago with what all events say."""
    record = epochs.record("a.a")
    whole = record_of("a.a", record.events)
    names = ("live", "recent", "recent_events", "handover", "standing", "last_move", "savepoints")
    for name in (*names, "candidate", "default_epoch"):
        assert getattr(record, name) == getattr(whole, name), name


@pytest.mark.usefixtures("hours")
def test_a_look_reads_no_document_and_each_is_there_for_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = Epochs(str(tmp_path))
    for epoch in range(1, 8):
        build(epochs, epoch)
        if epoch > 2:
            put(epochs, epoch - 2, "dropped")
    reads: list[int] = []
    real = LateColumn.value

    def value(column: LateColumn, n: int) -> Any:
        reads.append(n)
        return real(column, n)

    monkeypatch.setattr(LateColumn, "value", value)
    record = Epochs(str(tmp_path)).record("a.a")
    verified = record.epoch(7).verified
    assert record.live == 7 and max(record.recent) == 7 and min(record.recent) > 1
    assert verified is not None and verified.detail["verdict"] == "same"
    assert [move.epoch for move in record.moves] == list(range(1, 8))
    assert reads == []
    documents = [
        event for event in record.events if event.event in DOCUMENTS and record.epoch(event.epoch).rolled_up == ""
    ]
    assert len(documents) >= 4
    for event in documents:
        assert dict(event.detail) == DETAIL[event.event]
    assert all("certificate" not in move.detail for move in record.moves if record.epoch(move.epoch).rolled_up)


@pytest.fixture
def rows_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each file had that was read, of those that somebody wanted."""
    counts: list[int] = []
    real = row_files.read

    def read(*arguments: Any, **named: Any) -> pa.Table:
        rows = real(*arguments, **named)
        counts.append(rows.num_rows)
        return rows

    monkeypatch.setattr(row_files, "read", read)
    return counts


@pytest.mark.usefixtures("hours")
def test_a_first_look_reads_as_many_rows_after_many_nights_as_after_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_read: list[int]
) -> None:
    """Also after small files were merged, and a document that stays is read of as few."""
    monkeypatch.setattr("kappa.delta.append_log.LATE_BYTES", 1)
    monkeypatch.setattr("kappa.delta.append_log.COMPACT_AFTER", 2)
    lake, counts = str(tmp_path), []
    epochs = Epochs(lake)
    for epoch in range(1, 25):
        build(epochs, epoch)
        if epoch > 2:
            put(epochs, epoch - 2, "dropped")
        if epoch in (8, 24):
            rows_read.clear()
            record = Epochs(lake).record("a.a")
            counts.append((sum(rows_read), len(record.recent)))
            assert (record.live, max(record.recent)) == (epoch, epoch)
    assert counts[0] == counts[1]
    operations = [commit["operation"] for commit in DeltaTable(epochs_log(lake)).history()]
    assert operations.count("OPTIMIZE") > 10
    rows_read.clear()
    assert [move.epoch for move in record.moves] == list(range(1, 25)) and len(rows_read) == 1
    assert len(record.epochs) == 24 and len(rows_read) == 1, "once"


def test_only_rows_of_a_topology_are_read_of_the_past(tmp_path: Path, rows_read: list[int]) -> None:
    rows = [{"n": n, "word": "ab"[n // 5000]} for n in range(10_000)]
    file = tmp_path / "late.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=1_000)
    late = row_files.LateRows("log", "word", format=1, what="row")
    late.update({"late": file.read_bytes()})
    assert [row["n"] for row in late.of("b")] == list(range(5_000, 10_000))
    assert late.of("c") == [] and rows_read == [5_000, 0]


@pytest.mark.usefixtures("hours")
def test_what_comes_after_all_epochs_of_a_topology_were_rolled_up_is_on_record(tmp_path: Path) -> None:
    lake = str(tmp_path)
    epochs = Epochs(lake, is_anywhere=True)
    for epoch in range(1, 7):
        put(epochs, epoch, "planned", "rewound", "aborted")
    epochs.add("b.b", 1, "planned", actor="test", **DETAIL["planned"])
    for _ in range(30):  # hours
        clock.now()
    epochs.add("b.b", 1, "aborted", actor="test")
    assert epochs.record("a.a").epoch(6).rolled_up
    for _ in range(2):
        put(epochs, 6, "relocated", to=lake)
        for one in (epochs, Epochs(lake, is_anywhere=True)):
            record = one.record("a.a")
            assert sorted(record.epochs) == list(range(1, 7)) and record.epoch(6).stage == "ABORTED"
            assert (one.place(), one.topologies()) == (lake, ["a.a", "b.b"])


@pytest.mark.usefixtures("hours")
def test_a_record_without_its_past_says_what_all_events_say(tmp_path: Path) -> None:
    """With a move to an epoch that ended since, after those of an epoch that is still there."""
    epochs = Epochs(str(tmp_path))
    build(epochs, 1)
    put(epochs, 2, "planned", *BUILDING, "handover")
    put(epochs, 2, "moved", keep_old_running=True)
    put(epochs, 1, "savepoint", name="before", seq=1)
    build(epochs, 3)
    build(epochs, 4)
    put(epochs, 3, "dropped")
    put(epochs, 2, "dropped")
    for epoch in range(5, 13):
        put(epochs, epoch, "planned", "rewound", "handover" if epoch == 5 else "seeded")
        put(epochs, epoch, "aborted")
        check_as_a_whole(epochs)
    put(epochs, 13, "planned", *BUILDING, "handover")
    for one in (epochs, Epochs(str(tmp_path))):
        record = one.record("a.a")
        assert record.epoch(3).rolled_up and not record.epoch(1).rolled_up
        assert record.handover is not None and record.handover.epoch == 13 and record.epoch(1).is_kept
        check_as_a_whole(one)


def former(lake: str) -> None:
    """Write every row as code before format 2 did: in a table without the column, documents among the details."""
    log = epochs_log(lake)
    rows = [
        {
            **{name: value for name, value in row.items() if name not in ("document", "format")},
            "format": 1,
            "detail": json.dumps(
                json.loads(row["detail"]) | ({DOCUMENTS[row["event"]]: row["document"]} if row["document"] else {})
            ),
        }
        for row in sorted(DeltaTable(log).to_pyarrow_table().to_pylist(), key=lambda row: int(row["n"]))
    ]
    schema = pa.schema([field for field in pa.schema(DeltaTable(log).schema().to_arrow()) if field.name != "document"])
    write_deltalake(log, pa.Table.from_pylist(rows, schema), mode="overwrite", schema_mode="overwrite")


@pytest.mark.usefixtures("hours")
def test_a_lake_of_code_before_documents_had_a_column_is_read_and_goes_on(tmp_path: Path) -> None:
    lake = str(tmp_path)
    first = Epochs(lake)
    build(first, 1)
    build(first, 2)
    before = first.events()
    former(lake)
    epochs = Epochs(lake)
    assert epochs.events() == before
    assert epochs.record("a.a").epoch(2).verified is not None
    for epoch in range(3, 7):
        build(epochs, epoch)
        put(epochs, epoch - 2, "dropped")
    again = Epochs(lake)
    assert again.history()[: len(before)] == before and again.rolled_up_to > 0
    assert [event.n for event in again.history()] == list(range(1, again.records().last + 1))
    assert dict(again.record("a.a").moves[-1].detail) == DETAIL["moved"]
    assert "certificate" not in again.record("a.a").moves[0].detail


def test_a_process_that_goes_on_holds_each_document_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kappa.delta.append_log.COMPACT_AFTER", 4)
    processes = [Epochs(str(tmp_path)), Epochs(str(tmp_path))]
    for epoch in range(1, 5):
        build(processes[0], epoch)
        table = {Path(uri).name for uri in DeltaTable(epochs_log(str(tmp_path))).file_uris()}
        for epochs in processes:
            verified = epochs.record("a.a").epoch(1).verified
            assert verified is not None and verified.detail["report"] == DETAIL["verified"]["report"]
            assert set(epochs._log.late._files) <= table
    operations = [commit["operation"] for commit in DeltaTable(epochs_log(str(tmp_path))).history()]
    assert operations.count("OPTIMIZE") > 4


@pytest.mark.usefixtures("hours")
def test_an_event_has_its_document_also_after_its_file_was_merged_and_rolled_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kappa.delta.append_log.COMPACT_AFTER", 4)
    monkeypatch.setattr("kappa.delta.append_log.KEEP_HOURS", 0)
    monkeypatch.setattr("kappa.delta.append_log.VACUUM_AFTER", 1)
    epochs = Epochs(str(tmp_path))
    build(epochs, 1)
    reader = Epochs(str(tmp_path))
    verified = reader.record("a.a").epoch(1).verified
    for epoch in range(2, 8):
        build(epochs, epoch)
        put(epochs, epoch - 1, "dropped")
    assert reader.record("a.a").epoch(1).rolled_up
    assert verified is not None and verified.detail["report"] == DETAIL["verified"]["report"]
    assert [dict(move.detail) for move in reader.record("a.a").moves[-1:]] == [DETAIL["moved"]]


@pytest.mark.parametrize(("has_statistics", "reads"), [(True, [1, 1, 0]), (False, [3, 1, 3])])
def test_a_document_is_read_of_the_file_that_has_its_row(
    monkeypatch: pytest.MonkeyPatch, has_statistics: bool, reads: list[int]
) -> None:
    """Where the files say which rows they have; otherwise of one after the other, from the newest on."""
    contents = {}
    for begin in (1, 3, 5):
        file = BytesIO()
        rows = pa.table({"n": [begin, begin + 1], "document": [None, f"row {begin + 1}"]})
        pq.write_table(rows, file, write_statistics=has_statistics)
        contents[f"{begin}.parquet"] = file.getvalue()
    column = LateColumn("document")
    column.update(contents, contents)
    opened: list[int] = []
    real = pq.ParquetFile

    def open_file(source: Any) -> pq.ParquetFile:
        opened[-1] += 1
        return real(source)

    monkeypatch.setattr(pq, "ParquetFile", open_file)
    for n, value in ((2, "row 2"), (6, "row 6")):
        opened.append(0)
        assert [column.value(n), column.value(n - 1), column.value(n)] == [value, None, value]
    opened.append(0)
    with pytest.raises(LedgerError, match="of row 7"):
        column.value(7)
    assert opened == reads
