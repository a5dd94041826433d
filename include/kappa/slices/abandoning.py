"""A planned slice that cannot be done is closed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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

    Only for a slice whose marker is not in Kafka: nothing of it was sent. Idempotent.

    Args:
        plan: the planned slice.
        detail: why, for the ledger: ``most`` bounds the next slices, ``miscounted`` says what did not add up,
            ``reread`` how the records changed between two attempts.
    """
    if is_sent(run, plan):
        raise LedgerError(f"Slice {plan.seq} was sent; it can only be finished.", seq=plan.seq)
    run.ledger.check_claim(run.writer)
    for place in effect_places(run.topology):
        tables.seal(run.paths.place(place), plan.seq, plan_hash(plan))
    run.ledger.append(
        LedgerRow(
            kind="abandon",
            seq=plan.seq,
            writer=run.writer,
            at=clock.now(),
            ranges=plan.ranges,
            code=run.code,
            detail=detail or {},
        )
    )
    run.scratch.written = {}
    crash_point("abandon", plan.seq)
