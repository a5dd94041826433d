"""The archive's commands, as far as they need neither Kafka nor Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from kappa.cli import app
from kappa.errors import UnknownArchiveError
from kappa.names import ArchivePaths
from kappa.record.ledger import Ledger
from kappa.record.ledger_state import LedgerState


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("KAPPA_HOME", str(tmp_path))
    return str(tmp_path / "lake")


def test_without_an_archive_it_says_how_to_begin_one(lake: str) -> None:
    result = CliRunner().invoke(app, ["archive", "status"])
    assert (result.exit_code, "kappa archive start <topic> --execute" in result.output) == (0, True)


def test_a_topic_without_an_archive_is_an_error_of_its_own(lake: str) -> None:
    result = CliRunner().invoke(app, ["archive", "status", "pos"])
    assert isinstance(result.exception, UnknownArchiveError)


def test_a_stop_is_a_dry_run_first_and_takes_the_claim_only_once(lake: str) -> None:
    ledger = Ledger(ArchivePaths(lake=lake, topic="pos").ledger)
    ledger.create()
    ledger.claim("somebody", "", LedgerState())

    def stopped(*more: str) -> str:
        return CliRunner().invoke(app, ["archive", "stop", "pos", *more]).output

    assert "Nothing was changed. To do it: kappa archive stop pos --execute" in stopped()
    ledger.check_claim("somebody")
    assert "The archiver of pos stops." in stopped("--execute")
    claim = ledger.state().claim
    assert claim is not None
    assert claim.writer != "somebody"
    assert "pos has no archiver" in stopped("--execute")
