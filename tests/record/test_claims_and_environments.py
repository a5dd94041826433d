"""A claim says in which environment its driver runs, and which one is the epoch's own."""

from __future__ import annotations

from pathlib import Path

from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow


def claims(ledger: Ledger, writer: str, **environment: str) -> LedgerRow:
    ledger.create()
    ledger.claim(writer, "code", ledger.state(), environment=environment)
    row = ledger.state().claim
    assert row is not None
    return row


def test_the_environment_of_a_driver_is_the_epochs_own_unless_the_claim_names_another(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "ledger"))
    first = claims(ledger, "one", environment="e1")
    assert (first.environment, first.own_environment) == ("e1", "e1")
    second = claims(ledger, "two", environment="e2", instead_of="e1")
    assert (second.environment, second.own_environment) == ("e2", "e1")
    earlier = claims(ledger, "three")
    assert (earlier.environment, earlier.own_environment) == ("", "")


def test_a_claim_that_no_driver_makes_keeps_what_the_one_before_says(tmp_path: Path) -> None:
    ledger = Ledger(str(tmp_path / "ledger"))
    claims(ledger, "one", environment="e2", instead_of="e1")
    ledger.take("a copy of the lake")
    row = Ledger(ledger.path).state().claim
    assert row is not None and row.is_taken
    assert row.own_environment == "e1"
