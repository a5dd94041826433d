"""A planned slice that cannot be done is closed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from kappa import clock
from kappa.delta import tables
from kappa.errors import LedgerError
from kappa.faults import crash_point
from kappa.record.ledger_rows import LedgerRow, plan_hash
from kappa.slices.places import effect_places
from kappa.slices.run import EpochRun
from kappa.slices.topics.sending import is_sent


def abandon_slice(run: EpochRun, plan: LedgerRow, detail: Mapping[str, Any] | None = None) -> None:
    """Close a plan that cannot be done: remove what it wrote, seal it against late writers, and put it on record.

    Only for a slice whose marker is not in Kafka: nothing of it was sent. Idempotent. A crash leaves a row that gives
    the slice up, and rows of it in some tables: it is to be abandoned again.

    Args:
        plan: the planned slice.
        detail: why, for the ledger: ``most`` bounds the next slices, ``miscounted`` says what did not add up,
            ``reread`` how the records changed between two attempts. That of an earlier call counts.
    """
    if is_sent(run, plan):
        raise LedgerError(f"Slice {plan.seq} was sent; it can only be finished.", seq=plan.seq)
    run.ledger.check_claim(run.writer)
    reason = begin_sealing(run, plan, detail or {})
    for place in effect_places(run.topology):
        tables.seal(run.paths.place(place), plan.seq, plan_hash(plan))
    end_sealing(run, plan, reason)
    run.scratch.written = {}
    crash_point("abandon", plan.seq)


def begin_sealing(run: EpochRun, plan: LedgerRow, detail: Mapping[str, Any]) -> Mapping[str, Any]:
    """Put it on record that a planned slice is given up, before any of what it wrote goes; why, by that row.

    A driver that found some of it gone, and did not know why, would take the slice for written and commit it. Does
    nothing where the row is there.

    Raises:
        StaleWriterError: another driver claimed the epoch.
    """
    seal = run.ledger.state(look=False).open_seal
    if seal is None:
        seal = run.ledger.append(_row(run, plan, "seal", detail))
    return seal.detail


def end_sealing(run: EpochRun, plan: LedgerRow, detail: Mapping[str, Any]) -> None:
    """Put it on record that nothing is left of a planned slice, which is closed by that.

    Raises:
        StaleWriterError: another driver claimed the epoch.
    """
    run.ledger.append(_row(run, plan, "abandon", detail))


def _row(run: EpochRun, plan: LedgerRow, kind: Literal["seal", "abandon"], detail: Mapping[str, Any]) -> LedgerRow:
    return LedgerRow(
        kind=kind, seq=plan.seq, writer=run.writer, at=clock.now(), ranges=plan.ranges, code=run.code, detail=detail
    )
