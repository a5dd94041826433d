"""A removal that dies anywhere in the log of a published table: no reader is set back, and the next call finishes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from support.published_lake import RETENTION, Lake

from kappa.control.removals import served_tables
from kappa.delta.published import PublishedTable
from kappa.names import EpochPaths


class Death(BaseException):
    """A process ends."""


def deadly(unlink: Callable[..., None], calls: int) -> Callable[..., None]:
    """A removal of files that dies after some calls."""
    left = [calls]

    def until_death(*arguments: Any, **options: Any) -> None:
        if not left[0]:
            raise Death
        left[0] -= 1
        unlink(*arguments, **options)

    return until_death


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A published table that showed epoch 1, and then epoch 2, whose successor has no such table."""
    lake = Lake(tmp_path)
    for epoch, names in ((1, ["a"]), (2, ["A", "B"])):
        lake.create(epoch)
        lake.append(epoch, 1, *names)
        lake.publish(epoch)
        lake.append(epoch, 2, "z")
        lake.publish(epoch)
    return lake


@pytest.mark.parametrize("calls", range(8))
def test_a_killed_removal_sets_no_reader_back_and_is_finished_by_the_next(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    paths = EpochPaths(lake=str(tmp_path), topology="shop.sales", epoch=2)
    with monkeypatch.context() as patch, pytest.raises(Death):
        patch.setattr(os, "unlink", deadly(os.unlink, calls))
        served_tables.remove(paths)
    log = Path(lake.path, "_delta_log")
    names = sorted(file.name for file in log.glob("*.json")) if log.exists() else []
    assert not names or names[-1] == f"{3:020}.json", "the newest entry goes last"
    served_tables.remove(paths)
    assert not log.exists() and [file.name for file in Path(lake.path).iterdir()] == ["_e0001"]
    lake.published = PublishedTable(lake.path, RETENTION)
    assert lake.publish(1) == 1 and lake.ids() == ["a", "z"], "a rollback to it publishes anew"


def test_the_log_of_a_published_table_that_shows_another_epoch_stays(lake: Lake, tmp_path: Path) -> None:
    served_tables.remove(EpochPaths(lake=str(tmp_path), topology="shop.sales", epoch=1))
    assert DeltaTable(lake.path).version() == 3 and lake.ids() == ["A", "B", "z"]
