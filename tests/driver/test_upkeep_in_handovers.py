"""Nobody looks after files while an epoch hands over: that may take longer than a handover may."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from kappa.driver.slicing import Slices
from kappa.errors import StaleWriterError


@pytest.mark.parametrize("handover", [None, "an event"])
def test_files_are_looked_after_between_two_handovers(handover: str | None) -> None:
    words: list[str] = []

    def look_at_commits() -> None:
        raise StaleWriterError("it began")

    commit = SimpleNamespace(at=datetime.now(UTC) - timedelta(hours=1))
    state = SimpleNamespace(maintained=None, commits=[commit], open_plan=None, committed=commit)
    record = SimpleNamespace(handover=handover)
    run = SimpleNamespace(ledger=SimpleNamespace(state=lambda: state), look_at_commits=look_at_commits)
    own: Any = SimpleNamespace(
        _epoch=SimpleNamespace(
            config=SimpleNamespace(maintain_minutes=10.0, savepoint_hours=24.0),
            ledger=SimpleNamespace(state=lambda *, look: state),
            record=lambda: record,
            epochs=SimpleNamespace(change=lambda topology, decide: ()),
            paths=SimpleNamespace(topology="a.b", epoch=1),
        ),
        _engines=SimpleNamespace(slice_run=run),
        _voice=SimpleNamespace(say=words.append),
        _named=set,
        _published_files=set,
    )
    if handover is None:
        with pytest.raises(StaleWriterError, match="it began"):
            Slices._maintain(own)
    else:
        Slices._maintain(own)
    assert words == ([] if handover else ["looking after files"])
