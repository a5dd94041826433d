"""``kappa backfill`` takes days of a zone, and refuses what is none before it starts Spark."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kappa.cli import app
from kappa.control.backfills import backfill_plan
from kappa.control.backfills.proposal import Backfill
from kappa.errors import UsageError

DAY = ["backfill", "a.b", "--from", "2026-03-29", "--to", "2026-03-30"]


@pytest.fixture
def intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[datetime, datetime]]:
    """Intervals that somebody proposed."""
    (tmp_path / "one.py").write_text("Topology(name='a.b', version='1')")
    monkeypatch.setenv("KAPPA_HOME", str(tmp_path))
    monkeypatch.setenv("KAPPA_TOPOLOGIES", str(tmp_path))
    intervals: list[tuple[datetime, datetime]] = []

    def propose(_: Any, __: Any, topology: str, begin: datetime, end: datetime, outputs: Any) -> Backfill:
        intervals.append((begin, end))
        return Backfill(
            topology=topology, epoch=1, code="c", version="1", begin=begin, end=end, outputs=tuple(outputs) or ("days",)
        )

    monkeypatch.setattr(backfill_plan, "propose", propose)
    return intervals


def test_days_are_those_of_the_zone_which_the_next_command_names_too(
    intervals: list[tuple[datetime, datetime]],
) -> None:
    result = CliRunner().invoke(app, [*DAY, "--zone", "Europe/Berlin", "--output", "days"])
    assert intervals == [
        (datetime.fromisoformat("2026-03-28T23:00:00+00:00"), datetime.fromisoformat("2026-03-29T22:00:00+00:00"))
    ]
    assert "from 2026-03-28 23:00 UTC to 2026-03-29 22:00 UTC" in result.output
    assert "--from 2026-03-29 --to 2026-03-30 --zone Europe/Berlin --output days --execute" in result.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "Write it as 2026-03-29T00:00:00Z or with an offset"),
        (["--zone", "Europe/Berln"], "Did you mean 'Europe/Berlin'"),
    ],
)
def test_days_of_no_zone_are_refused(intervals: list[Any], words: list[str], message: str) -> None:
    error = CliRunner().invoke(app, [*DAY, *words]).exception
    assert isinstance(error, UsageError) and message in str(error) and intervals == []
