"""The record at which a slice is stuck, sought when nothing else is left to try."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kappa.driver.context import Context
from kappa.errors import StaleWriterError, first_line
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import BegunState
from kappa.slices.input.reading import is_small
from kappa.slices.probing import Probe, Refusal, named_by, refused
from kappa.spark.error_classes import error_class

if TYPE_CHECKING:
    from kappa.driver.attempts import Attempts


def refusal_of(context: Context, attempts: Attempts, state: BegunState, plan: LedgerRow) -> Refusal | None:
    """The record that the planned slice fails at; None where no record fails alone, or it cannot be found.

    Nothing is computed again where drivers only died at the slice: this one would too.

    Raises:
        StaleWriterError: another driver claimed the epoch.
    """
    error = attempts.cause
    spans = [item for item in plan.ranges if item.count]
    refusal = named_by(error, spans)
    if refusal is None and len(spans) == 1 and spans[0].count == 1:
        word = "the end of its driver" if error is None else error_class(error)
        refusal = Refusal(topic=spans[0].topic, partition=spans[0].partition, offset=spans[0].start, error=word)
    if error is None or state.open_effects is not None or not is_small(plan.ranges, context.config.small_slice):
        return refusal
    try:
        with Probe(context.slice_run, plan, state) as probe:
            return refused(probe, spans, None if refusal is None else refusal.range) or refusal
    except StaleWriterError:
        raise
    except Exception as failed:  # the epoch is stuck all the same, for the reason that is known
        context.log.warning("record not found", error=f"{type(failed).__name__}: {first_line(failed)}", seq=plan.seq)
        return refusal
