"""The comparison of keys ahead of a handover, as its file has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kappa.names import EpochPaths
from kappa.record.ledger_state import LedgerState
from kappa.topology import Table
from kappa.verify.key_comparison import ComparedSide, last_comparison


@pytest.mark.parametrize("text", ["", '{"format": 1, "live_ep'])
def test_a_torn_file_is_taken_for_no_comparison(tmp_path: Path, text: str) -> None:
    own, live = (
        ComparedSide(paths=EpochPaths(lake=str(tmp_path), topology="a.b", epoch=epoch), state=LedgerState())
        for epoch in (2, 1)
    )
    file = Path(own.paths.key_comparisons("t"), "last.json")
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert last_comparison(own, live, Table(name="t", key="id", schema="id STRING NOT NULL")) is None
