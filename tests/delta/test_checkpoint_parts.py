"""The state of a table whose checkpoint is in parts: of one set, though two writers cut it differently."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from support.published_lake import Lake

from kappa.delta.log_state import LogState, state_of
from kappa.errors import LedgerError


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A table whose log begins with a checkpoint of one file."""
    lake = Lake(tmp_path)
    lake.create(1)
    for seq in range(1, 5):
        lake.append(1, seq, f"r{seq}")
    DeltaTable(lake.source(1)).create_checkpoint()
    for file in log(lake).glob("0*.json"):
        file.unlink()
    return lake


def log(lake: Lake) -> Path:
    return Path(lake.source(1), "_delta_log")


def cut(lake: Lake, total: int) -> list[Path]:
    """Write the checkpoint in parts."""
    (whole,) = log(lake).glob(f"{4:020}.checkpoint.parquet")
    rows = pq.read_table(whole)
    size = -(-rows.num_rows // total)
    parts = [log(lake) / f"{4:020}.checkpoint.{part:010}.{total:010}.parquet" for part in range(1, total + 1)]
    for number, path in enumerate(parts):
        pq.write_table(rows.slice(number * size, size), path)
    return parts


def drop_whole(lake: Lake) -> None:
    (log(lake) / f"{4:020}.checkpoint.parquet").unlink()


def state(lake: Lake) -> LogState:
    state = state_of(lake.source(1))
    assert state is not None and state.version == 4
    return state


@pytest.mark.parametrize("missing", range(3))
def test_parts_of_a_set_that_is_not_whole_are_not_mixed_with_those_of_another(lake: Lake, missing: int) -> None:
    expected = state(lake)
    cut(lake, 2)
    cut(lake, 3)[missing].unlink()
    drop_whole(lake)
    assert state(lake) == expected


def test_of_several_whole_checkpoints_one_counts(lake: Lake) -> None:
    expected = state(lake)
    cut(lake, 3), cut(lake, 2), cut(lake, 1)
    assert state(lake) == expected
    drop_whole(lake)
    assert state(lake) == expected


def test_a_set_that_is_not_whole_is_not_a_checkpoint(lake: Lake) -> None:
    (log(lake) / f"{5:020}.json").write_text('{"commitInfo": {}}')
    cut(lake, 2)[1].unlink()
    cut(lake, 3)[0].unlink()
    drop_whole(lake)
    with pytest.raises(LedgerError):
        state_of(lake.source(1))
