"""Dead letters counted by reason, with a few of them each, and the command that shows them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.epoch_record import FIRST, empty_lake, tell
from typer.testing import CliRunner

from kappa.cli import app
from kappa.config import Config
from kappa.delta import queries, tables
from kappa.names import EpochPaths
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import LedgerState
from kappa.serving.dead_letter_reasons import MOST, reasons_of

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
NO_JSON, ASIDE = "not a JSON object", "set aside by decision 7: it's a bad deploy"


def letters(*rows: tuple[int, str, bytes | None], at: datetime | int = AT) -> pa.Table:
    """Offset, reason and value of records."""
    return pa.table(
        {
            "_seq": pa.array([1 + offset // 10 for offset, *_ in rows], pa.int64()),
            "topic": ["pos"] * len(rows),
            "partition": pa.array([0] * len(rows), pa.int32()),
            "offset": pa.array([offset for offset, *_ in rows], pa.int64()),
            "timestamp": pa.array([at] * len(rows), pa.timestamp("us", "UTC")),
            "key": pa.array([None] * len(rows), pa.string()),
            "value": pa.array([value for *_, value in rows], pa.binary()),
            "reason": [reason for _, reason, _ in rows],
        }
    )


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A live epoch with eight dead letters of two reasons in its first slice, and one in a slice at work."""
    config = empty_lake(tmp_path, monkeypatch)
    tell(config, "a.b", 1, *FIRST, by_event={"moved": {"from": None, "at": {}}})
    paths = EpochPaths(lake=config.lake, topology="a.b", epoch=1)
    tables.create(paths.dead_letters, tables.DEAD_LETTER)
    bad = [(offset, NO_JSON, f"bad {offset}\n".encode()) for offset in range(6)]
    tables.append(paths.dead_letters, letters(*bad, (6, ASIDE, None), (7, ASIDE, b"x" * 500)), 1, "plan")
    tables.append(paths.dead_letters, letters((12, "not committed", b"")), 2, "plan")
    ledger = Ledger(paths.ledger)
    ledger.create()
    ledger.claim("w", "code", LedgerState())
    ledger.append(LedgerRow(kind="commit", seq=1, writer="w", at=AT, rows_dead=8, delta_versions={"dead_letters": 2}))
    return config


def test_reasons_are_counted_at_a_commit_with_the_newest_records_per_reason(lake: Config) -> None:
    paths = EpochPaths(lake=lake.lake, topology="a.b", epoch=1)
    committed = Ledger(paths.ledger).last_commit()
    assert committed is not None
    reasons = reasons_of(paths, committed)
    assert [(one.reason, one.count) for one in reasons] == [(NO_JSON, 6), (ASIDE, 2)]
    assert [(one.offset, one.value) for one in reasons[0].letters] == [
        (5, "bad 5\\n"),
        (4, "bad 4\\n"),
        (3, "bad 3\\n"),
    ]
    assert [(one.offset, one.size) for one in reasons[1].letters] == [(7, 500), (6, None)]
    assert len(reasons[1].letters[0].value or "") < 200, "the beginning of a long value"
    (one,) = reasons_of(paths, committed, reason="it's a bad", samples=0)
    assert (one.reason, one.letters) == (ASIDE, ())
    assert {letter.value for one in reasons_of(paths, committed, with_values=False) for letter in one.letters} == {None}


def test_the_command_shows_reasons_and_records_as_text_and_json(lake: Config) -> None:
    text = CliRunner().invoke(app, ["dead-letters", "a.b", "--limit", "1"]).output
    assert "Epoch 1 of a.b has 8 dead letters." in text and "6  not a JSON object" in text
    assert "pos[0] at 5, 2026-01-02T03:04:05.000000Z: bad 5\\n" in text and "bad 4" not in text
    report = json.loads(CliRunner().invoke(app, ["dead-letters", "a.b", "--reason", "aside", "--json"]).output)
    assert [(one["count"], one["letters"][1]["value"]) for one in report["reasons"]] == [(2, None)]


def test_records_are_read_of_the_most_frequent_reasons_only(lake: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = EpochPaths(lake=lake.lake, topology="a.b", epoch=1)
    asides = [(20 + n, f"set aside by decision {n}: bad", b"x") for n in range(100, 100 + MOST)]
    tables.append(paths.dead_letters, letters(*asides), 3, "plan")
    commit = LedgerRow(kind="commit", seq=20, writer="w", at=AT, delta_versions={"dead_letters": 3})
    Ledger(paths.ledger).append(commit)
    real, paths_read = queries.query, []

    def query(path: str, *arguments: Any, **named: Any) -> pa.Table:
        paths_read.append(path)
        return real(path, *arguments, **named)

    monkeypatch.setattr(queries, "query", query)
    reasons = reasons_of(paths, commit)
    assert len(reasons) == MOST + 3 and sum(one.count for one in reasons) == MOST + 9
    assert paths_read == [paths.dead_letters] * MOST
    assert [bool(one.letters) for one in reasons] == [True] * MOST + [False] * 3
    text = CliRunner().invoke(app, ["dead-letters", "a.b"]).output
    assert "decision 119: bad" in text and text.endswith("For those of another one: --reason TEXT\n")


def test_the_command_writes_control_characters_of_a_reason_out(lake: Config) -> None:
    paths = EpochPaths(lake=lake.lake, topology="a.b", epoch=1)
    aside = "set aside by decision 9: one\n       99  \x1b[2Jtwo"
    tables.append(paths.dead_letters, letters((20, aside, None)), 3, "plan")
    Ledger(paths.ledger).append(LedgerRow(kind="commit", seq=3, writer="w", at=AT, delta_versions={"dead_letters": 3}))
    text = CliRunner().invoke(app, ["dead-letters", "a.b"], color=True).output
    assert r"1  set aside by decision 9: one\n       99  \x1b[2Jtwo" in text


def test_the_command_says_that_an_epoch_was_removed(lake: Config) -> None:
    tell(lake, "a.b", 2, *FIRST[:-1], "aborted", by_event={})
    error = CliRunner().invoke(app, ["dead-letters", "a.b", "--epoch", "2"]).exception
    assert "Epoch 2 of 'a.b' was aborted" in str(error)


def test_a_record_with_a_time_beyond_the_calendar_is_shown_with_that_time(lake: Config) -> None:
    paths = EpochPaths(lake=lake.lake, topology="a.b", epoch=1)
    far = 1_772_323_200_000_000_000  # a producer took microseconds for milliseconds
    tables.append(paths.dead_letters, letters((20, NO_JSON, b"bad 20"), at=far), 3, "plan")
    ledger = Ledger(paths.ledger)
    commit = LedgerRow(kind="commit", seq=3, writer="w", at=AT, rows_dead=10, delta_versions={"dead_letters": 3})
    ledger.append(commit)
    assert (
        "pos[0] at 20, +58132-09-08T00:00:00.000000Z: bad 20" in CliRunner().invoke(app, ["dead-letters", "a.b"]).output
    )
    (one,) = reasons_of(paths, commit, reason=NO_JSON)
    assert [letter.timestamp for letter in one.letters[:2]] == [
        "+58132-09-08T00:00:00.000000Z",
        "2026-01-02T03:04:05.000000Z",
    ]
