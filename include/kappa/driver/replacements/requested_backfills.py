"""The backfills that a live epoch was asked for, each met or withdrawn by its driver between two slices."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from kappa.driver.replacements import replacement
from kappa.errors import StaleWriterError, Transient
from kappa.offsets.notation import utc
from kappa.record.events import Event
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import BegunState
from kappa.slices.topics.sending import is_sent

if TYPE_CHECKING:
    from kappa.driver.attempts import Attempts
    from kappa.driver.driven_epoch import DrivenEpoch
    from kappa.driver.lazy_engines import LazyEngines
    from kappa.driver.voice import Voice
    from kappa.record.epoch_record import EpochRecord


class Replacements:
    """What the driver of a live epoch does about requested backfills."""

    def __init__(self, epoch: DrivenEpoch, engines: LazyEngines, voice: Voice, attempts: Attempts) -> None:
        self._epoch = epoch
        self._engines = engines
        self._voice = voice
        self._attempts = attempts

    def next(self, epoch: EpochRecord, state: BegunState) -> LedgerRow | None:
        """Replace the rows of the oldest requested interval; the commit row, or None where nothing was replaced.

        A request that cannot be met is withdrawn, and the stream goes on.

        Raises:
            StaleWriterError: another driver claimed the epoch.
            Transient: Kafka or the lake does not answer.
        """
        if not epoch.backfills:
            return None
        engines, request = self._engines, epoch.backfills[0]
        committed = replacement.commit_for(state, request)
        if committed is not None:  # the driver before died between the ledger and the record
            replacement.conclude(self._epoch.epochs, engines.slice_run, request, replacement.outcome(committed))
            return None
        begin, end = (datetime.fromisoformat(request.detail[name]) for name in ("from", "to"))
        self._voice.say(f"replacing rows from {utc(begin)} to {utc(end)}")
        try:
            replacement.check(engines.slice_run, request)
        except (StaleWriterError, Transient):
            raise
        except Exception as error:  # no error is a reason to stop the stream
            self._withdraw(request, str(error))
            return None
        return self.finish(replacement.plan(engines.slice_run, state, request))

    def finish(self, planned: LedgerRow, *, is_leaving: bool = False) -> LedgerRow | None:
        """Go on with a planned replacement; the commit row, or None where it failed too often.

        Then it is undone and withdrawn. One whose marker is in Kafka can only be finished: the epoch is stuck, and
        waits for a decision.

        Args:
            planned: its plan.
            is_leaving: whether another epoch waits for it: it is tried though the epoch is stuck.
        """
        engines = self._engines
        epoch = self._epoch.record().epoch(self._epoch.paths.epoch)
        request = next((event for event in epoch.backfills if event.n == planned.detail[replacement.DETAIL]["n"]), None)
        ledger = self._epoch.ledger.state()
        tried = ledger.tries + self._attempts.failures
        is_given_up = ledger.open_seal is not None  # by a driver that ended while it put rows back
        if planned.logged:
            engines.open_sender()
        is_marked = planned.logged and is_sent(engines.slice_run, planned)
        if (is_given_up or tried >= self._epoch.config.attempts) and not is_marked:
            replacement.undo(engines.slice_run, planned)
            if request is not None:
                self._withdraw(
                    request, f"it failed {tried} times, the last time with: {self._attempts.error or 'no word'}"
                )
            return None
        if is_marked and not is_leaving:
            state = self._epoch.ledger.state()
            if self._attempts.next(state, planned, self._epoch.record().recent_events) == "stuck":
                self._attempts.give_up(state)
                return None
        row = replacement.finish(engines.slice_run, planned)
        if request is not None:
            replacement.conclude(self._epoch.epochs, engines.slice_run, request, replacement.outcome(row))
        return row

    def _withdraw(self, request: Event, reason: str) -> None:
        self._voice.log.error("backfill withdrawn", reason=reason, request=request.n)
        replacement.conclude(self._epoch.epochs, self._engines.slice_run, request, None, reason)
