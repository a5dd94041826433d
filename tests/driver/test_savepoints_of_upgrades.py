"""The names that upgrades give to commits end by themselves, and no other name does."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kappa import clock
from kappa.driver.upgrade import expire_savepoints, savepoint_name
from kappa.names import EpochPaths
from kappa.record.epochs import Epochs

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def test_the_name_of_an_upgrade_ends_after_its_time_and_a_name_of_a_person_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "now", lambda: BEGIN)
    epochs, paths = Epochs(str(tmp_path)), EpochPaths(lake=str(tmp_path), topology="a.b", epoch=2)
    epochs.add("a.b", 2, "planned", actor="test", code="c", version="1", plan_id="p")
    for name, seq, actor in (
        (savepoint_name(2, 7), 7, "driver"),
        ("before-upgrade-e2-s9", 9, "ada"),
        ("before-the-sale", 8, "ada"),
    ):
        epochs.add("a.b", 2, "savepoint", actor=actor, name=name, seq=seq, offsets={}, delta_versions={})
    expire_savepoints(epochs, paths, BEGIN)
    assert epochs.record("a.b").named_seqs(2) == {7, 8, 9}
    for _ in range(2):
        expire_savepoints(epochs, paths, BEGIN + timedelta(seconds=1))
        assert epochs.record("a.b").named_seqs(2) == {8, 9}
    last = epochs.events()[-1]
    assert (last.event, last.actor, last.detail) == (
        "savepoint_dropped",
        "driver",
        {"name": savepoint_name(2, 7), "seq": 7},
    )
    assert last.n == 5
