"""The live epoch: it follows the log, replaces intervals on request, and yields."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kappa.driver import upgrade as switching
from kappa.driver.attempts import Attempts, is_shrunk
from kappa.driver.backfill import Replacements
from kappa.driver.context import IDLE_SECONDS, Context
from kappa.driver.handovers import reconciliation
from kappa.driver.handovers.handover import Handover
from kappa.driver.slicing import Slices
from kappa.faults import crash_point
from kappa.offsets.coverage import common
from kappa.offsets.vector import OffsetRange
from kappa.record.epoch_record import TopologyRecord
from kappa.record.ledger_state import BegunState
from kappa.spark.live_query import LiveQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Lag in offsets up to which a live epoch follows by Structured Streaming instead of bounded slices.
STREAM_BELOW = 50_000


class Live:
    """What the driver of a live epoch does next.

    Args:
        handover: the epoch's part in handovers.
        replacements: its part in backfills.
    """

    def __init__(
        self, context: Context, attempts: Attempts, slices: Slices, handover: Handover, replacements: Replacements
    ) -> None:
        self._context = context
        self._attempts = attempts
        self._slices = slices
        self._handover = handover
        self._replacements = replacements
        self._has_served = False

    def next(self, record: TopologyRecord, state: BegunState) -> None:
        """One act: an upgrade, a handover, going live, a replacement, or the log."""
        context, is_stuck = self._context, self._attempts.stuck is not None
        epoch, handover = record.epoch(context.paths.epoch), record.handover
        if epoch.upgrade is not None:
            context.say(f"going over to code {epoch.upgrade.detail['code'][:12]}")
            switching.switch(
                context.config,
                context.epochs,
                context.paths,
                context.ledger,
                context.writer,
                epoch.upgrade,
                context.topology,
                context.slice_run.bound,
            )
        elif handover is not None and self._handover.may_yield(record, handover, state, is_stuck=is_stuck):
            self._handover.yield_to(handover, state, is_stuck=is_stuck)
        elif state.is_yielded:
            crash_point("going_live")
            self._handover.resume(record, state)
        elif epoch.backfills:
            context.open_sender()
            self._backfill(record, state)
        else:
            self._serve(state)

    def _backfill(self, record: TopologyRecord, state: BegunState) -> None:
        """Replace the rows of the oldest requested interval, if any. Between two slices only."""
        started = time.monotonic()
        row = self._replacements.next(record.epoch(self._context.paths.epoch), state)
        if row is not None:
            self._slices.committed(row, "replacing rows", time.monotonic() - started)

    def _serve(self, state: BegunState) -> None:
        """Follow the log: bounded slices while the lag is large, Structured Streaming then."""
        context = self._context
        context.open_sender()
        if context.plan.bound:
            self._serve_upstreams(state)
            return
        end = context.stable(state.position)
        # A stream reads the log only, and a micro-batch cannot be made as small as a slice that follows one that
        # failed.
        is_bounded = bool(common(state.position.span_to(end), context.plan.archived)) or is_shrunk(state)
        if state.position.count_to(end) > STREAM_BELOW or is_bounded or not self._has_served:
            self._begin_serving()
            if state.position != end:
                self._slices.towards(state, end, "catching up with the log")
            elif is_bounded:
                context.say("live")
                context.idle()
            return
        context.say("live")
        session = context.session  # it may take long to start
        context.ledger.check_claim(context.writer)  # the query's checkpoint may be a successor's by now
        query = LiveQuery(
            session,
            context.config.bootstrap_servers,
            state.position.naming(end),
            checkpoint=context.paths.query_checkpoint(uuid.uuid4().hex[:8]),
            trigger_seconds=context.config.trigger_seconds,
            max_records=self._slices.most,
            headers=any(source.headers for source in context.topology.sources),
            position=lambda: context.ledger.begun().position,
            on_batch=self._on_batch,
        )
        try:
            while query.is_active() and (record := self._serving()) is not None:
                context.watchdog.begin("watching micro-batches")
                time.sleep(IDLE_SECONDS / 2)
                query.between(context.merge_when_due)  # a slice is another thread's, and so is the ledger then
                if record.epoch(context.paths.epoch).backfills:
                    query.between(self._backfill_now)
        finally:
            query.close()

    def _serve_upstreams(self, state: BegunState) -> None:
        """One slice, if the epochs that are read have committed one."""
        self._begin_serving()
        cut = self._slices.onward(state)
        if cut is not None:
            self._slices.cut(state, cut, sends="live", what="live")
            return
        self._context.say("live")
        self._context.idle(IDLE_SECONDS / 2)

    def _begin_serving(self) -> None:
        """Forget, once, the differences of one that died between its resume row and this."""
        if self._has_served:
            return
        if self._context.topology.reconciled_topics:
            reconciliation.forget(self._context.paths)
        self._context.slice_run.look_at_commits()  # not only when the next record comes
        self._has_served = True

    def _serving(self) -> TopologyRecord | None:
        """The record, read now; None where it asks for something that ends the streaming query."""
        if self._context.stop_reason or self._context.beat.is_lost:
            return None
        record = self._context.record()
        self._context.notices.look(record.events)
        epoch = record.epoch(self._context.paths.epoch)
        is_asked = record.handover is not None or epoch.upgrade is not None
        return record if record.live == self._context.paths.epoch and not is_asked and epoch.is_wanted else None

    def _backfill_now(self) -> None:
        """Between two slices, with the record and the ledger as they are then."""
        record = self._context.record()
        if record.handover is None:
            self._backfill(record, self._context.ledger.begun())

    def _on_batch(self, ranges: Sequence[OffsetRange], raw: DataFrame) -> None:
        try:
            self._slices.micro_batch(ranges, raw)
        finally:
            self._context.watchdog.end()
