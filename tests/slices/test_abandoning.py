"""A slice that is given up leaves nothing, wherever its driver ends meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.slices import AT, SCHEMA, Epoch

from kappa.delta import queries, tables
from kappa.offsets.vector import OffsetRange
from kappa.record.ledger_rows import LedgerRow
from kappa.slices.abandoning import abandon_slice
from kappa.slices.writing import write_frames

PLAN = LedgerRow(
    kind="plan", seq=1, writer="me", at=AT, ranges=(OffsetRange(topic="pos", partition=0, start=0, end=9),)
)


class Ended(BaseException):
    """The end of a driver."""


@pytest.mark.parametrize("last", ["dead_letters", "changes/sums"])
def test_a_driver_that_ends_while_it_gives_a_slice_up_leaves_that_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str
) -> None:
    """Else the next one takes what is gone for written, and commits the slice without it."""
    epoch = Epoch(tmp_path / "lake")
    run, ledger, seal = epoch.run, epoch.run.ledger, tables.seal
    plan = ledger.append(PLAN)
    rows = pa.Table.from_pylist([{"id": "a", "select": 0, "total": 2, "_deleted": False}], SCHEMA.remove(0))
    assert write_frames(run, plan, {}, {"sums": rows})

    def ends(path: str, *rest: Any) -> None:
        seal(path, *rest)
        if path == epoch.paths.place(last):
            raise Ended

    monkeypatch.setattr(tables, "seal", ends)
    with pytest.raises(Ended):
        abandon_slice(run, plan, {"most": 1, "tries": 3})
    monkeypatch.setattr(tables, "seal", seal)
    state = ledger.state()
    assert (state.open_plan, state.open_seal is not None) == (plan, True)
    abandon_slice(run, plan)
    state = ledger.state()
    assert (state.open_plan, state.open_seal) == (None, None)
    assert state.shrunk is not None and state.shrunk.detail == {"most": 1, "tries": 3}, "as it was decided"
    assert [row.kind for row in ledger.rows()][-3:] == ["plan", "seal", "abandon"]
    assert queries.query(epoch.paths.changes("sums"), None).num_rows == 0
