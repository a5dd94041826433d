"""Merges of a driver without records, on a host whose clock is set back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.live_lake import NAME, live_lake

from kappa import clock
from kappa.control.overview import record
from kappa.driver.merges import Merges
from kappa.names import EpochPaths
from kappa.record.ledger import Ledger
from kappa.serving import published_tables
from kappa.slices.merging import unmerged_since


@pytest.mark.parametrize("hours", [1, -1])
def test_changes_that_wait_are_merged_whichever_way_the_clock_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    config = replace(live_lake(tmp_path, monkeypatch), merge_seconds=120.0)
    ledger = Ledger(EpochPaths(lake=config.lake, topology=NAME, epoch=1).ledger)
    committed = ledger.state().committed
    assert committed is not None and list(unmerged_since(committed))
    epoch: Any = SimpleNamespace(ledger=ledger, config=config)
    nothing: Any = None
    merges, begin = Merges(epoch, nothing, nothing), clock.now()
    assert not merges.is_due()
    monkeypatch.setattr(clock, "now", lambda: begin + timedelta(hours=hours))
    assert merges.is_due()


def test_the_age_of_what_is_still_to_come_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, begin = live_lake(tmp_path, monkeypatch), clock.now()
    monkeypatch.setattr(clock, "now", lambda: begin - timedelta(hours=1))
    (one,) = [one for one in published_tables.of_record(config, record(config, NAME)) if one.name == "rewards"]
    assert one.seconds_behind is None
    assert "for an unknown time" in replace(one, problem="", commits_behind=2).standing
