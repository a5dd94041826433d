"""Law 5 in the ledger itself: a claim is compare-and-set, and whoever lost it writes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from kappa import clock
from kappa.errors import ConflictError, StaleWriterError
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A ledger without a row."""
    Ledger(str(tmp_path / "ledger")).create()
    return str(tmp_path / "ledger")


def test_a_writer_with_a_superseded_claim_appends_nothing(path: str) -> None:
    stale, other = Ledger(path), Ledger(path)
    stale.claim("stale", "code", stale.state())
    other.claim("other", "code", other.state())
    with pytest.raises(StaleWriterError, match="claimed by other"):
        stale.append(LedgerRow(kind="plan", seq=1, writer="stale", at=clock.now()))
    assert [row.writer for row in Ledger(path).rows()] == ["stale", "other"]
    assert [ledger.has_claim("stale") for ledger in (stale, other)] == [False, False]
    assert other.has_claim("other")


def test_one_of_two_claims_on_the_same_state_is_refused(path: str) -> None:
    one, two = Ledger(path), Ledger(path)
    states = one.state(), two.state()
    one.claim("one", "code", states[0])
    with pytest.raises(ConflictError, match="moved while it was being claimed"):
        two.claim("two", "code", states[1])
    assert [row.writer for row in Ledger(path).rows()] == ["one"]
