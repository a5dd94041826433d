"""What fails after a commit changes nothing: its rows are on record once, and whoever wrote them hears so."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.table import TableOptimizer

from kappa.delta import append_log
from kappa.delta.access import CHECKPOINT_INTERVAL, open_table
from kappa.delta.append_log import AppendLog
from kappa.errors import ConflictError, IllegalTransitionError, LakeRefusedError, LakeUnreachableError
from kappa.names import epochs_log
from kappa.offsets.vector import OffsetRange
from kappa.record import epochs as epochs_module
from kappa.record.epochs import Epochs, Now
from kappa.record.events import Event
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import Kind, LedgerRow
from kappa.record.rollup import rolled_up

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
ERRORS = [
    DeltaError("Failed to parse parquet: External: No space left on device"),
    CommitFailedError("Transaction failed"),
    OSError(errno.ENOSPC, "No space left on device"),
    LakeRefusedError("The store refuses. Look: kappa doctor"),
    LakeUnreachableError("The store does not answer. Look: kappa doctor"),
]


class Failures:
    """Each commit of ``deltalake`` is made and raises then, while there is an error; of the first ones."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.raised = 0

    def after(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            result = call(*arguments, **options)
            if self.error is not None and self.raised < 10:
                self.raised += 1
                raise self.error
            return result

        return called


@pytest.fixture
def failures(monkeypatch: pytest.MonkeyPatch) -> Failures:
    own = Failures()
    monkeypatch.setattr(deltalake, "write_deltalake", own.after(deltalake.write_deltalake))
    monkeypatch.setattr(DeltaTable, "create_write_transaction", own.after(DeltaTable.create_write_transaction))
    return own


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    (tmp_path / "e").mkdir()
    ledger = Ledger(str(tmp_path / "e" / "ledger"))
    ledger.create()
    ledger.claim("me", "code", ledger.state())
    return ledger


def row(kind: Kind, seq: int) -> LedgerRow:
    ranges = (OffsetRange(topic="p", partition=0, start=10 * max(0, seq - 1), end=10 * seq),)
    return LedgerRow(kind=kind, seq=seq, writer="me", at=BEGIN + timedelta(seconds=seq), ranges=ranges, code="code")


def kinds(ledger: Ledger) -> list[tuple[str, int]]:
    """Kind and slice of each row, read anew."""
    return [(one.kind, one.seq) for one in Ledger(ledger.path).rows()]


def no_checkpoint_of(path: str) -> None:
    """Let the first checkpoint of a table fail: a folder is in its place."""
    for version in (CHECKPOINT_INTERVAL - 1, CHECKPOINT_INTERVAL):
        Path(path, "_delta_log", f"{version:020}.checkpoint.parquet").mkdir()


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_row_of_a_ledger_is_there_once(ledger: Ledger, failures: Failures, error: Exception) -> None:
    failures.error = error
    for seq in range(3):
        assert ledger.append(row("plan", seq)).n == 2 * seq + 2
        ledger.append(row("commit", seq))
    ledger.claim("you", "code", ledger.state())
    failures.error = None
    slices = [(kind, seq) for seq in range(3) for kind in ("plan", "commit")]
    assert kinds(ledger) == [("claim", -1), *slices, ("claim", 2)]
    assert failures.raised == 7


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_ledger_that_was_rolled_up_goes_on(ledger: Ledger, failures: Failures, error: Exception) -> None:
    for seq in range(20):
        ledger.append(row("commit", seq))
    before = kinds(ledger)
    summary = rolled_up(ledger.state(), writer="me", code="code", at=BEGIN)
    assert summary is not None
    failures.error = error
    ledger.roll_up(summary)
    failures.error = None
    ledger.append(row("commit", 20))
    assert Ledger(ledger.path).state().slices == ledger.state().slices == 20
    history = Counter((one.kind, one.seq) for piece in ledger.history() for one in piece)
    assert history == Counter([*before, ("rollup", 19), ("commit", 20)])


def test_a_ledger_whose_checkpoint_fails_has_each_row_once(ledger: Ledger) -> None:
    no_checkpoint_of(ledger.path)
    slices = range(CHECKPOINT_INTERVAL + 5)
    for seq in slices:
        ledger.append(row("commit", seq))
    assert kinds(ledger) == [("claim", -1), *(("commit", seq) for seq in slices)]


def test_a_row_that_the_writer_itself_put_there_is_not_repeated(ledger: Ledger) -> None:
    """Another object of the process wrote it, or a call that ended without an answer."""
    twin = Ledger(ledger.path)
    twin.state()
    ledger.append(row("commit", 0))
    with pytest.raises(ConflictError):
        twin.append(row("commit", 0))
    assert kinds(ledger) == [("claim", -1), ("commit", 0)]
    twin.append(row("plan", 1))
    assert kinds(ledger)[-1] == ("plan", 1)


@pytest.mark.parametrize("step", [(TableOptimizer, "compact"), (DeltaTable, "vacuum")], ids=["merge", "removal"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_row_is_there_though_small_files_cannot_be_merged_or_removed(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, error: Exception, step: tuple[type, str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(append_log, "COMPACT_AFTER", 2)
    monkeypatch.setattr(append_log, "VACUUM_AFTER", 1)
    monkeypatch.setattr(*step, refuse)
    for seq in range(5):
        ledger.append(row("commit", seq))
    assert kinds(ledger) == [("claim", -1), *(("commit", seq) for seq in range(5))]


def hand_over(now: Now) -> Sequence[Event]:
    if any(event.event == "handover" for event in now.record.events):
        raise IllegalTransitionError("A handover is pending. Look: kappa status")
    return [now.event("handover", 1, actor="ann", detail={"from": None})]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_act_on_record_is_done_and_there_once(tmp_path: Path, failures: Failures, error: Exception) -> None:
    epochs = Epochs(str(tmp_path))
    epochs.add("a.b", 1, "planned", actor="test", plan_id="p")
    failures.error = error
    epochs.add("a.b", 1, "stop", actor="ann")
    assert [event.event for event in epochs.change("a.b", hand_over)] == ["handover"]
    failures.error = None
    assert [event.event for event in Epochs(str(tmp_path)).events()] == ["planned", "stop", "handover"]


def test_an_act_whose_checkpoint_fails_is_done_and_there_once(tmp_path: Path) -> None:
    epochs = Epochs(str(tmp_path))
    epochs.add("a.b", 1, "planned", actor="test", plan_id="p")
    no_checkpoint_of(epochs_log(str(tmp_path)))
    while open_table(epochs_log(str(tmp_path))).version() < CHECKPOINT_INTERVAL - 2:
        epochs.add("a.b", 1, "stop", actor="ann")
    before = len(epochs.events())
    epochs.change("a.b", hand_over)
    epochs.add("a.b", 1, "stop", actor="ann")
    assert [event.event for event in Epochs(str(tmp_path)).events()][before:] == ["handover", "stop"]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_the_file_that_the_record_names_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: Failures, error: Exception
) -> None:
    monkeypatch.setattr(epochs_module, "ROLL_UP_EVENTS", 10)
    monkeypatch.setattr(epochs_module, "EVENTS_STAY", timedelta(0))
    epochs = Epochs(str(tmp_path))
    for number in range(1, 5):
        epochs.add("a.b", number, "planned", actor="test", plan_id="p")
        epochs.add("a.b", number, "stop", actor="test")
        epochs.add("a.b", number, "aborted", actor="test")
    epochs.add("a.b", 5, "planned", actor="test", plan_id="p")
    failures.error = error
    epochs.add("a.b", 5, "aborted", actor="test")
    failures.error = None
    again = Epochs(str(tmp_path))
    assert [event.n for event in again.history()] == list(range(1, 15))
    assert again.rolled_up_to > 0


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_rows_with_more_columns_and_rows_in_the_place_of_others_are_there_once(
    tmp_path: Path, failures: Failures, error: Exception
) -> None:
    path, words = str(tmp_path / "log"), pa.schema({"n": pa.int64(), "word": pa.string()})
    more = words.append(pa.field("letters", pa.int64()))
    AppendLog(path, words).create()
    log = AppendLog(path, more)
    log.refresh()
    failures.error = error
    log.append([{"word": "a", "letters": 1}])
    log.refresh()
    log.append([{"word": "b", "letters": 1}])
    log.refresh()
    log.replace([], [{"word": "c", "letters": 1}], 2, [{"n": 2, "word": "late", "letters": 4}])
    log.refresh()
    log.append([{"word": "d", "letters": 1}])
    failures.error = None
    again = AppendLog(path, more, late_by="word")
    assert [(one["n"], one["word"]) for one in again.refresh()] == [(3, "c"), (4, "d")]
    assert [one["n"] for one in again.rows()] == [2, 3, 4]
