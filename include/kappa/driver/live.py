"""The live epoch: it follows the log, replaces intervals on request, and yields."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from kappa.driver import upgrade as switching
from kappa.driver.attempts import Attempts, is_shrunk
from kappa.driver.driven_epoch import DrivenEpoch
from kappa.driver.handovers import reconciliation
from kappa.driver.handovers.handover import Handover
from kappa.driver.lazy_engines import LazyEngines
from kappa.driver.merges import Merges
from kappa.driver.publications import Publications
from kappa.driver.replacements.requested_backfills import Replacements
from kappa.driver.slicing import Slices
from kappa.driver.voice import Voice
from kappa.faults import crash_point
from kappa.names import query_checkpoints
from kappa.offsets.coverage import common
from kappa.offsets.vector import OffsetRange
from kappa.presence import heartbeat
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
        self,
        epoch: DrivenEpoch,
        engines: LazyEngines,
        voice: Voice,
        merges: Merges,
        publications: Publications,
        attempts: Attempts,
        slices: Slices,
        handover: Handover,
        replacements: Replacements,
    ) -> None:
        self._epoch = epoch
        self._engines = engines
        self._voice = voice
        self._merges = merges
        self._publications = publications
        self._attempts = attempts
        self._slices = slices
        self._handover = handover
        self._replacements = replacements
        self._has_served = False

    def next(self, record: TopologyRecord, state: BegunState) -> None:
        """One act: an upgrade, a handover, going live, a replacement, or the log."""
        engines, voice, is_stuck = self._engines, self._voice, self._attempts.stuck is not None
        epoch, handover = record.epoch(self._epoch.paths.epoch), record.handover
        if epoch.upgrade is not None:
            voice.say(f"going over to code {epoch.upgrade.detail['code'][:12]}")
            switching.switch(
                self._epoch.config,
                self._epoch.epochs,
                self._epoch.paths,
                self._epoch.ledger,
                self._epoch.writer,
                epoch.upgrade,
                self._epoch.topology,
                engines.slice_run.bound,
            )
        elif handover is not None and self._handover.may_yield(record, handover, state, is_stuck=is_stuck):
            self._handover.yield_to(handover, state, is_stuck=is_stuck)
        elif state.is_yielded:
            crash_point("going_live")
            self._handover.resume(record, state)
        elif epoch.backfills:
            engines.open_sender()
            self._backfill(record, state)
        else:
            self._serve(state)
        if self._has_served:  # not before its first slice: readers of topics wait for that
            self._publications.look(record, may_merge=True)

    def _backfill(self, record: TopologyRecord, state: BegunState) -> None:
        """Replace the rows of the oldest requested interval, if any. Between two slices only."""
        started = time.monotonic()
        row = self._replacements.next(record.epoch(self._epoch.paths.epoch), state)
        if row is not None:
            self._slices.committed(row, "replacing rows", time.monotonic() - started)

    def _serve(self, state: BegunState) -> None:
        """Follow the log: bounded slices while the lag is large, Structured Streaming then."""
        epoch, engines, voice, merges = self._epoch, self._engines, self._voice, self._merges
        engines.open_sender()
        if epoch.plan.bound:
            self._serve_upstreams(state)
            return
        end = epoch.stable(engines.broker, state.position)
        # A stream reads the log only, and a micro-batch cannot be made as small as a slice that follows one that
        # failed.
        is_bounded = bool(common(state.position.span_to(end), epoch.plan.archived)) or is_shrunk(state)
        if state.position.count_to(end) > STREAM_BELOW or is_bounded or not self._has_served:
            self._begin_serving()
            if state.position != end:
                self._slices.towards(state, end, "catching up with the log")
            elif is_bounded:
                voice.say(heartbeat.LIVE)
                merges.idle()
            return
        voice.say(heartbeat.LIVE)
        session = engines.session  # it may take long to start
        epoch.ledger.check_claim(epoch.writer)  # the query's checkpoint may be a successor's by now
        query = LiveQuery(
            session,
            epoch.config.bootstrap_servers,
            state.position.naming(end),
            checkpoint=f"{query_checkpoints(epoch.config.home, epoch.paths)}/{uuid.uuid4().hex[:8]}",
            trigger_seconds=epoch.config.trigger_seconds,
            max_records=self._slices.most,
            headers=any(source.headers for source in epoch.topology.sources),
            position=lambda: epoch.ledger.begun().position,
            on_batch=self._on_batch,
        )
        try:
            while query.is_active() and (record := self._serving()) is not None:
                voice.watchdog.begin(heartbeat.WATCHING)
                time.sleep(self._epoch.config.idle_seconds / 2)
                query.between(merges.merge_when_due)  # a slice is another thread's, and so is the ledger then
                if self._publications.look(record):  # of commits: no slice waits for it
                    query.between(partial(self._publications.look, record, may_merge=True))
                if record.epoch(epoch.paths.epoch).backfills:
                    voice.watchdog.begin("waiting for the slice before a backfill", is_long=True)
                    query.between(self._backfill_now, is_waiting=True)
        finally:
            query.close()

    def _serve_upstreams(self, state: BegunState) -> None:
        """One slice, if the epochs that are read have committed one."""
        self._begin_serving()
        cut = self._slices.onward(state)
        if cut is not None:
            self._slices.cut(state, cut, sends="live", what=heartbeat.LIVE)
            return
        self._voice.say(heartbeat.LIVE)
        self._merges.idle(0.5)

    def _begin_serving(self) -> None:
        """Forget, once, the differences of one that died between its resume row and this."""
        if self._has_served:
            return
        if self._epoch.topology.reconciled_topics:
            reconciliation.forget(self._epoch.paths)
        self._engines.slice_run.look_at_commits()  # not only when the next record comes
        self._has_served = True

    def _serving(self) -> TopologyRecord | None:
        """The record, read now; None where it asks for something that ends the streaming query."""
        if self._voice.stop_reason or self._voice.is_lost:
            return None
        record = self._epoch.record()
        self._voice.notices.look(record)
        epoch = record.epoch(self._epoch.paths.epoch)
        is_asked = record.handover is not None or epoch.upgrade is not None
        return record if record.live == self._epoch.paths.epoch and not is_asked and epoch.is_wanted else None

    def _backfill_now(self) -> None:
        """Between two slices, with the record and the ledger as they are then."""
        record = self._epoch.record()
        if record.handover is None:
            self._backfill(record, self._epoch.ledger.begun())

    def _on_batch(self, ranges: Sequence[OffsetRange], raw: DataFrame) -> None:
        try:
            self._slices.micro_batch(ranges, raw)
        finally:
            self._voice.watchdog.end()
