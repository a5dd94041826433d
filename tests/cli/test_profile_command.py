"""`kappa profile` tells where the time of slices goes, as the ledger has it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result
from support.live_lake import NAME, further_slices, live_lake
from typer.testing import CliRunner

from kappa import clock
from kappa.cli import app
from kappa.config import Config
from kappa.control.profile import profile
from kappa.errors import UnknownEpochError, UnknownTopologyError
from kappa.names import EpochPaths
from kappa.offsets.vector import OffsetRange
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    return live_lake(tmp_path, monkeypatch)


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["profile", NAME, *words])


def timed(config: Config, *slices: dict[str, float], records: int = 1_000) -> None:
    """Slices behind those that there are, of this many records and with these seconds."""
    ledger = Ledger(EpochPaths(lake=config.lake, topology=NAME, epoch=1).ledger)
    for seconds in slices:
        state = ledger.begun()
        end = state.position.get("pos", 0) or 0
        row = LedgerRow(
            kind="plan",
            seq=state.seq + 1,
            writer="me",
            at=clock.now(),
            ranges=(OffsetRange(topic="pos", partition=0, start=end, end=end + records),),
        )
        ledger.append(row)
        ledger.append(replace(row, kind="effects", ranges=(), delta_versions=state.committed.delta_versions))
        detail = {"started_at": clock.now().isoformat(), "seconds": seconds}
        versions = state.committed.delta_versions
        ledger.append(replace(row, kind="commit", rows_read=records, delta_versions=versions, detail=detail))


def test_lines_are_shown_with_median_and_share(config: Config) -> None:
    timed(
        config,
        {"effects": 2.0, "send": 1.0, "apply": 0.0, "commit": 0.0},
        {"effects": 4.0, "send": 1.0, "apply": 0.0, "commit": 0.0},
    )
    report = profile(config, NAME, slices=2)
    assert [one.seq for one in report.slices] == [3, 4]
    assert (report.lines["effects"].middle, report.lines["send"].share) == (3.0, 0.25)
    assert report.records_per_second == 250
    lines = run("--slices", "2").stdout.splitlines()
    assert lines[0] == f"{NAME} epoch 1, slices 3 to 4: 2,000 records, 250 records/s"
    assert [line.split()[0] for line in lines[1:]] == ["line", "between", "effects", "send", "apply", "commit"]
    assert lines[3].split() == ["effects", "3.000", "3.900", "75", "%"]


def test_a_line_that_a_dead_driver_did_is_left_out(config: Config) -> None:
    timed(config, {"apply": 0.5, "commit": 0.5})
    report = profile(config, NAME, slices=1)
    assert list(report.lines) == ["between", "apply", "commit"]
    assert json.loads(run("--slices", "1", "--json").stdout)["slices"][0]["lines"] == {"apply": 0.5, "commit": 0.5}


def test_slices_that_the_protocol_makes_are_timed_and_status_tells_of_the_last(config: Config) -> None:
    further_slices(config, 2)
    slices = profile(config, NAME).slices
    assert [one.seq for one in slices] == [1, 2, 3, 4]
    assert all(one.lines["commit"] > 0 for one in slices)
    status = CliRunner().invoke(app, ["status", NAME]).stdout
    assert f"{NAME} epoch 1, slice 4 of 3 records: commit 0." in status


def test_slices_of_earlier_drivers_are_no_part_of_it(config: Config) -> None:
    ledger = Ledger(EpochPaths(lake=config.lake, topology=NAME, epoch=1).ledger)
    untimed = replace(ledger.state().commits[-1], detail={})
    timed(config, {"effects": 1.0})
    ledger.state()
    ledger.append(replace(untimed, seq=4, ranges=(OffsetRange(topic="pos", partition=0, start=1_002, end=1_003),)))
    assert 4 not in [one.seq for one in profile(config, NAME).slices]


def test_what_cannot_be_shown_is_refused(config: Config) -> None:
    assert isinstance(run("7").exception, UnknownEpochError)
    assert isinstance(
        CliRunner().invoke(app, ["profile", "shop.none"]).exception, UnknownEpochError | UnknownTopologyError
    )
