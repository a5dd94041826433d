"""A replacement that is given up is undone to the end, whichever driver does it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.slices import AT, Epoch

from kappa.driver.replacements import replacement
from kappa.driver.replacements.requested_backfills import Replacements
from kappa.record.ledger_rows import LedgerRow


@pytest.mark.parametrize("is_given_up", [False, True])
def test_a_driver_goes_on_to_undo_what_the_one_before_began_to_undo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_given_up: bool
) -> None:
    """Some outputs have their old rows back: finished, others would have new ones beside them."""
    epoch = Epoch(tmp_path / "lake")
    detail = {"backfill": {"n": 7, "outputs": {}}}
    plan = epoch.run.ledger.append(LedgerRow(kind="plan", seq=1, writer="me", at=AT, detail=detail))
    if is_given_up:
        epoch.run.ledger.append(LedgerRow(kind="seal", seq=1, writer="me", at=AT, detail=detail))
    acts: list[str] = []
    monkeypatch.setattr(replacement, "undo", lambda run, planned: acts.append("undo"))
    monkeypatch.setattr(replacement, "finish", lambda run, planned: acts.append("finish"))
    record = SimpleNamespace(epoch=lambda _: SimpleNamespace(backfills=()))
    driven: Any = SimpleNamespace(
        record=lambda: record, paths=epoch.paths, ledger=epoch.run.ledger, config=SimpleNamespace(attempts=3)
    )
    engines: Any = SimpleNamespace(slice_run=epoch.run)
    attempts: Any = SimpleNamespace(failures=0, error="")
    voice: Any = SimpleNamespace()
    Replacements(driven, engines, voice, attempts).finish(plan)
    assert acts == ["undo" if is_given_up else "finish"]


def test_an_undone_replacement_is_on_record_before_the_first_row_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    epoch = Epoch(tmp_path / "lake")
    detail = {"backfill": {"n": 7, "outputs": {"sums": {"table": True}}}}
    plan = epoch.run.ledger.append(LedgerRow(kind="plan", seq=1, writer="me", at=AT, detail=detail))
    seal = replacement.tables.seal

    def looks(path: str, *rest: Any) -> None:
        assert epoch.run.ledger.state().open_seal is not None
        seal(path, *rest)

    monkeypatch.setattr(replacement.tables, "seal", looks)
    replacement.undo(epoch.run, plan)
    assert [row.kind for row in epoch.run.ledger.rows()][-3:] == ["plan", "seal", "abandon"]
    assert epoch.run.ledger.state().open_plan is None
