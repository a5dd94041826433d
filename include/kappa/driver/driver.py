"""The one Spark application of an epoch, from its first slice to its last.

The driver keeps no state of its own: before every act it looks at the record of epochs and at the ledger, and does what
comes next. Whatever kills it, the next one looks at the same two places and goes on.
"""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kappa import clock
from kappa.config import Config
from kappa.driver import reconciliation
from kappa.driver import upgrade as switching
from kappa.driver.attempts import SHRINK, Attempts, is_abandonable, is_shrunk, said, slice_records
from kappa.driver.backfill import Replacements
from kappa.driver.context import IDLE_SECONDS, Workbench
from kappa.driver.handover import Handover
from kappa.driver.maintenance import is_due, maintain
from kappa.driver.next_slice import Chained
from kappa.driver.upstreams import Cut
from kappa.errors import ConflictError, DisagreementError, LedgerError, StaleWriterError, SupersededError
from kappa.faults import crash_point
from kappa.lake import chains, heartbeat, liveness, rollup
from kappa.lake.epoch_record import EpochRecord, TopologyRecord
from kappa.lake.ledger import Ledger
from kappa.lake.ledger_rows import LedgerRow
from kappa.lake.ledger_state import LedgerState
from kappa.lake.watchdog import JvmProbe
from kappa.offsets.coverage import common
from kappa.offsets.vector import OffsetRange, Offsets, ranges_end
from kappa.replay.certificate import Sends
from kappa.replay.chains import is_at, topics_of
from kappa.replay.stages import Stage
from kappa.replay.standing import has_common_topic, later
from kappa.slices import changelog, ownership, versioned_topics
from kappa.slices.abandoning import abandon_slice
from kappa.slices.cuts import cut_by_time
from kappa.slices.protocol import finish_slice, run_slice
from kappa.slices.reading import is_small
from kappa.slices.seeding import SeedSource, seed
from kappa.spark.jvm_heap import OldObjects
from kappa.spark.live_query import LiveQuery
from kappa.topology.shapes import tables_only
from kappa.topology.thresholds import limits_of
from kappa.verify import measurements
from kappa.verify.inspection import inspected
from kappa.verify.second_run import SECOND_RUN, discard

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Lag in offsets up to which a candidate counts as caught up, as a share of a slice.
CAUGHT_UP_SHARE = 0.1
#: Lag in offsets up to which a live epoch follows by Structured Streaming instead of bounded slices.
STREAM_BELOW = 50_000


def run_epoch(config: Config, topology: str, epoch: int, *, code: str | None = None) -> str:
    """Run an epoch's driver until the epoch needs it no more, or it is told to stop.

    Idempotent: started again after any crash it goes on where the ledger says.

    Args:
        config: where everything is.
        topology: name of the topology; its code is taken from ``config.topologies``.
        epoch: number of the epoch.
        code: content hash of the code that runs; None for that of the epoch's plan.

    Returns:
        Why it ended.

    Raises:
        DriverAlreadyRunningError: another driver with a fresh heartbeat has the epoch.
        StaleWriterError: another driver took the epoch over; this one has changed nothing since.
        SupersededError: the epoch was rebuilt in another lake; that is on record, and its driver is not wanted any more.
    """
    driver = Driver(config, topology, epoch, code=code)
    signal.signal(signal.SIGTERM, driver.on_signal)
    signal.signal(signal.SIGINT, driver.on_signal)
    return driver.run()


class Driver(Workbench):
    """An epoch's life; see :func:`run_epoch`.

    Args:
        config: where everything is.
        topology: name of the topology.
        epoch: number of the epoch.
        code: content hash of the code that runs; None for that of the epoch's plan.
        session: Spark; None starts one when it is needed, and stops it at the end.
    """

    def __init__(
        self, config: Config, topology: str, epoch: int, *, code: str | None = None, session: SparkSession | None = None
    ) -> None:
        super().__init__(config, topology, epoch, code=code, session=session)
        self.handover = Handover(self, self._read_on)
        self._chained = Chained(self)
        self._stop_reason: str | None = None
        self._attempts = Attempts(self)
        self._replacements = Replacements(self, self._attempts)
        self._is_overtaken = False
        self._is_attested = False

    @cached_property
    def _old_objects(self) -> OldObjects:
        return OldObjects(self.session)

    def on_signal(self, number: int, _: object) -> None:
        """Stop at the next slice boundary."""
        self.stop(f"signal {signal.Signals(number).name}")

    def stop(self, reason: str) -> None:
        """Stop at the next slice boundary."""
        self._stop_reason = reason

    def run(self) -> str:
        """Claim the epoch, then do what comes next until nothing does."""
        self.claim()
        first = replace(heartbeat.this_process(self.writer, self.code), **self._standing())
        self.beat = heartbeat.Beating(
            self.paths.heartbeat, first, self.config.heartbeat_seconds, self.has_claim, watchdog=self.watchdog, alarm=self.alarm,
        )  # fmt: skip
        probe = JvmProbe(self.watchdog, lambda: self.__dict__.get("session"), self.config.heartbeat_seconds)
        self.log.info("claimed", code=self.code)
        if self.record().epoch(self.paths.epoch).stage is not Stage.SEEDED:
            discard(self.paths, SECOND_RUN)  # its result is on record, and whoever wrote it did not come to this
        reason = "failed"
        try:
            reason = self._loop()
            self.fold(is_asked=True)  # who knows only the path sees all of an epoch that stands
        except (StaleWriterError, SupersededError) as error:
            reason = str(error)
            raise
        finally:
            probe.close()
            self.beat.close(message=reason)
            self.close()
            self.log.info("ended", reason=reason)
        if self._is_overtaken:
            self.start_successor()
        return reason

    def _standing(self) -> dict[str, Any]:
        """What a first heartbeat says of the epoch: where its last driver left it."""
        committed = self.ledger.state().committed
        is_live = self.record().live == self.paths.epoch
        return {
            "role": "live" if is_live else "candidate",
            **({} if committed is None else {"seq": committed.seq}),
        }

    # What comes next

    def _loop(self) -> str:
        while True:
            try:
                ended = self._next()
                if ended is not None:
                    return ended
                self._attempts.done()
            except (KeyboardInterrupt, SystemExit):
                raise
            except Exception as error:  # anything that a step or an engine raises is weighed
                self._is_attested &= not isinstance(error, DisagreementError)
                self._pause(self._attempts.failed(error))

    def _next(self) -> str | None:
        """One act; the reason to end, or None to look again."""
        self.watchdog.begin("looking at the record")
        record = self.record()
        mine = record.epoch(self.paths.epoch)
        ended = self._stop_reason or self._unwanted(mine) or self._overtaken(mine)
        if ended is not None:
            return ended
        if self._attempts.stuck is not None:
            self._wait_stuck(record)
            return None
        if not self._is_attested:
            self.attest(record)
            self._is_attested = True
        state = self.ledger.state()
        if state.open_plan is not None:
            self._finish_open(record, state)
            return None
        if record.live == self.paths.epoch:
            self._live(record, state)
        else:
            self._candidate(record, mine)
        return None

    def _unwanted(self, mine: EpochRecord) -> str | None:
        """Why the epoch needs no driver, or None."""
        if self.beat.is_lost:
            Ledger(self.paths.ledger).check_claim(self.writer)
        if mine.stage.is_ended:
            return f"epoch is {mine.stage.lower()}"
        if not mine.is_wanted:
            return "stopped on request" if mine.stage is not Stage.RETIRED else "retired"
        return None

    def _overtaken(self, mine: EpochRecord) -> str | None:
        """Why the epoch needs a driver with other code, or None."""
        found = switching.overtaken(self.epochs, self.paths, mine, self.ledger.state(), self.code)
        self._is_overtaken = found is not None
        return found

    def _candidate(self, record: TopologyRecord, mine: EpochRecord) -> None:
        match mine.stage:
            case Stage.PLANNED:
                self._rewind()
            case Stage.REWOUND:
                self._seed()
            case Stage.SEEDED:
                self._replay(record)
            case Stage.REPLAYED:
                self._follow(record, mine)
            case Stage.RETIRED if mine.is_recalled:
                self._follow(record, mine)
            case Stage.RETIRED:
                self._keep_up(record)
            case Stage.CAUGHT_UP if not mine.is_recalled:
                self._verify(record, mine)
            case _:
                self._wait_for_handover(record, mine)

    # Stages of a replay

    def _rewind(self) -> None:
        """Create the consumer group at the plan's start: from here on Kafka's own tools show it."""
        self.say("rewinding")
        ownership.claim(self.broker, self.paths, self.epochs.lake_id())
        if not versioned_topics.put_names_on_record(self.epochs, self.broker, self.topology, self.paths):
            return
        self.set_group(self.plan.start)
        crash_point("rewind.group")
        changelog.create_topics(self.broker, self.topology, self.paths, self.partitions())
        versioned_topics.create_topics(self.broker, self.topology, self.paths, self.partitions())
        crash_point("rewind.topics")
        self.event("rewound", group=self.paths.name)

    def _seed(self) -> None:
        self.say(f"seeding {self.plan.seed}")
        source = SeedSource(kind=self.plan.seed, epoch=self.plan.seed_epoch, seq=self.plan.seed_seq)
        begun, is_done = time.monotonic(), bool(self.ledger.state().commits)
        seed(self.slice_run, source, self.plan.start)
        folded = {} if is_done else measurements.folded(self.broker, self.paths, self.plan, time.monotonic() - begun)
        crash_point("seeded")
        # Here, where there is a JVM anyway, and before hours of replay: a plan is made without one.
        findings = inspected(self.session, self.topology)
        for finding in findings:
            self.log.warning("finding", code=finding.code, message=finding.message)
        self.event("seeded", findings=[finding.as_dict() for finding in findings], **folded)

    def _replay(self, record: TopologyRecord) -> None:
        """Bounded slices from the start to the frozen end; the first epoch of a topology goes live instead."""
        state = self.ledger.state()
        if state.seq == 0:
            self.check_group()
        if self.topology.versioned_topics and state.baseline_seq is None:
            # Now, not before the cutover: what a slice sends is one transaction with its changelog and marker.
            self._baseline()
            return
        if record.live is None:
            self.handover.move(record, None, state)
            return
        if state.position == self.plan.end:
            self._replayed(record, state)
            return
        self._throttle(record)
        if self.plan.bound:
            self._cut_slice(state, self._chained.bulk(state, self._slice_records), sends=self._apart, what="replaying")
        else:
            self._bounded(state, self.plan.end, sends=self._apart, what="replaying")

    def _replayed(self, record: TopologyRecord, state: LedgerState) -> None:
        """The range is computed; where the plan says so it is computed a second time first, slice by slice."""
        detail: dict[str, Any] = {"seq": state.seq, "throttled_seconds": round(self._throttled, 3)}
        if self.plan.request.determinism:
            self.say("computing the range again")
            self._throttle(record)
            found = self.second_run.advance(self.time_index(), most=self._second_size, check=self.check_low)
            self._attempts.committed()
            if found is None:
                return
            detail["determinism"] = found.as_dict()
            self.log.info("computed twice", is_same=found.is_same, failures=list(found.failures))
        self.event("replayed", **detail, **measurements.replayed(self.paths, self.plan, state))
        if self.plan.request.determinism:
            crash_point("recomputed.record")
            self.second_run.close()

    @property
    def _second_size(self) -> int:
        """Most offsets of a slice of the second run: fewer after one of them failed twice."""
        most = self.plan.request.slice_records
        return most if self._attempts.failures < 2 else max(1, most // SHRINK)

    @property
    def _slice_records(self) -> int:
        """Most offsets of the next slice: by the plan, by this process's settings, and by what failed."""
        return slice_records(self.ledger.state(), min(self.plan.request.slice_records, self.config.slice_records))

    def _throttle(self, record: TopologyRecord) -> None:
        """Leave the machine to the live stream while that is far behind, but never for longer than the last two slices took.

        A live epoch whose driver does not run gets nothing from it.
        """
        live = self.live_paths(record)
        deadline = time.monotonic() + 2 * self._slice_seconds
        begun = time.monotonic()
        while time.monotonic() < deadline and not self._stop_reason:
            found = liveness.look(live.heartbeat, self.config.stale_seconds)
            position = self.live_ledger(record).state().position
            end = self.broker.stable_offsets(position.topics) if self.is_chained(record) else self.stable(position)
            lag = position.count_to(position.merge(end))
            if lag <= self.config.throttle_lag or not found.may_live:
                break
            self.say(f"pausing: the live stream is {lag:,} offsets behind")
            time.sleep(min(1.0, 2 * self._slice_seconds))
        self._throttled += time.monotonic() - begun

    _slice_seconds = 0.0
    _throttled = 0.0

    def _follow(self, record: TopologyRecord, mine: EpochRecord) -> None:
        """Slices that end on commits of the live epoch, held, until the lag is small."""
        if mine.is_recalled:
            self.handover.get_ready(record)  # before it says that it can take over
        has_moved = self._follow_once(record, "catching up")
        if not has_moved and not self.plan.bound:
            self.event("caught_up", seq=self.ledger.state().seq)
            return
        lag = self.lag_to_live(record)
        is_near = lag <= self.plan.request.slice_records * CAUGHT_UP_SHARE
        # It may be between two commits of the live epoch, where nothing can be compared.
        if is_near and self._is_level(record):
            self.event("caught_up", seq=self.ledger.state().seq, lag=lag)
        elif not has_moved:
            self.say("waiting for the epochs that it reads to come to where the live epoch stands")
            time.sleep(IDLE_SECONDS)

    def _is_level(self, record: TopologyRecord) -> bool:
        """Whether the epoch stands where a commit of the live epoch stands."""
        standing = self.ledger.state().standing
        commits = reversed(self.live_ledger(record).state().commits)
        return any(is_at(row.standing, standing, is_bound=self.is_chained(record)) for row in commits)

    def _keep_up(self, record: TopologyRecord) -> None:
        """Retired and kept running: follow the live epoch, held, so that a rollback finds it where it has to be."""
        if not self._follow_once(record, "following, retired"):
            self.say("following, retired")
            self.idle()

    def _verify(self, record: TopologyRecord, epoch: EpochRecord) -> None:
        from kappa.verify.diff import verify

        state = self.ledger.state()
        assert state.committed is not None
        live, theirs = self.live_paths(record), self.live_ledger(record).state()
        commits = [
            theirs.resolved(row)
            for row in theirs.commits
            if is_at(row.standing, state.standing, is_bound=self.is_chained(record))
        ]
        if not commits:
            raise LedgerError(
                f"No commit of live epoch {record.live} ends at {state.standing.to_json()}: nothing to compare with."
            )
        self.handover.get_ready(record)
        self.say("verifying")
        limits = {**limits_of(self.topology.thresholds), **limits_of(self.plan.request.thresholds)}
        mine = (self.paths, state.committed)
        shapes = tables_only(self.live_ledger(record).state().shapes)
        keys = {place.removeprefix("tables/"): shape.key for place, shape in shapes.items()}
        by_origin = topics_of(self.plan.bound) == topics_of(record.epoch(live.epoch).bound)
        found = verify(
            self.session,
            self.topology,
            (live, commits[-1]),
            mine,
            limits=limits,
            keys=keys,
            by_origin=by_origin,
            begun=later(ranges_end(theirs.commits[0].ranges), ranges_end(state.commits[0].ranges)),
        )
        report = replace(found, findings=epoch.step_findings, determinism=epoch.determinism)
        crash_point("verify")
        self.event("verified", verdict=report.verdict, report=report.to_json(), live_epoch=record.live)

    def _wait_for_handover(self, record: TopologyRecord, mine: EpochRecord) -> None:
        """Follow the live epoch, held, with the changelog kept up, until it hands over."""
        state = self.ledger.state()
        if state.baseline_seq is None:
            self._baseline()
            return
        self.handover.get_ready(record)
        if self._follow_once(record, "following"):
            return
        handover = record.handover
        if handover is not None and handover.epoch == self.paths.epoch:
            self.handover.take_over(record, handover)
            return
        self.say("following, held")
        self.handover.prepare(record)
        self.idle()

    def _baseline(self) -> None:
        self.say("writing the baseline")
        self.open_sender()
        changelog.write_baseline(self.slice_run)

    @property
    def _apart(self) -> Sends:
        """What a slice sends while another epoch is live: nothing, or what goes to this epoch's own topics."""
        return "versioned" if self.topology.versioned_topics else "held"

    # The live epoch

    def _live(self, record: TopologyRecord, state: LedgerState) -> None:
        handover, upgrade = record.handover, record.epoch(self.paths.epoch).upgrade
        if upgrade is not None:
            self.say(f"going over to code {upgrade.detail['code'][:12]}")
            switching.switch(self.config, self.epochs, self.paths, self.ledger, self.writer, upgrade)
        elif handover is not None and self.handover.may_yield(
            record, handover, state, is_stuck=self._attempts.stuck is not None
        ):
            self.handover.yield_to(handover, state, is_stuck=self._attempts.stuck is not None)
        elif state.is_yielded:
            crash_point("going_live")
            self.handover.resume(record, state)
        elif record.epoch(self.paths.epoch).backfills:
            self.open_sender()
            self._backfill(record, state)
        else:
            self._serve(state)

    def _backfill(self, record: TopologyRecord, state: LedgerState) -> None:
        """Replace the rows of an interval for which that is asked, if any. Between two slices only."""
        started = time.monotonic()
        row = self._replacements.next(record.epoch(self.paths.epoch), state)
        if row is not None:
            self._committed(row, "replacing rows", time.monotonic() - started)

    def _backfill_when_asked(self) -> None:
        record = self.record()
        if record.epoch(self.paths.epoch).backfills and record.handover is None:
            self._backfill(record, self.ledger.state())

    def _serve(self, state: LedgerState) -> None:
        """Follow the log: bounded slices while the lag is large, Structured Streaming then."""
        self.open_sender()
        if self.plan.bound:
            self._serve_chained(state)
            return
        end = self.stable(state.position)
        is_archived = bool(common(state.position.span_to(end), self.plan.archived))  # a stream reads the log only
        # A micro-batch cannot be made as small as a slice that follows one that failed.
        is_bounded = is_archived or is_shrunk(state)
        if state.position.count_to(end) > STREAM_BELOW or is_bounded or not self._has_served:
            self._begin_serving()
            if state.position != end:
                self._bounded(state, end, sends="live", what="catching up with the log")
            elif is_bounded:
                self.say("live")
                self.idle()
            return
        self.say("live")
        query = LiveQuery(
            self.session, self.config.bootstrap_servers, state.position.naming(end),
            checkpoint=self.paths.query_checkpoint(uuid.uuid4().hex[:8]), trigger_seconds=self.config.trigger_seconds,
            max_records=self._slice_records, headers=any(source.headers for source in self.topology.sources), position=lambda: self.ledger.state().position, on_batch=self._on_batch,
        )  # fmt: skip
        try:
            while query.is_active() and self._may_go_on():
                self.watchdog.begin("watching micro-batches")
                time.sleep(IDLE_SECONDS / 2)
                query.between(self.fold_when_due)  # a slice is another thread's, and so is the ledger then
                query.between(self._backfill_when_asked)
        finally:
            query.close()

    def _serve_chained(self, state: LedgerState) -> None:
        """One slice, if the epochs that are read have committed one."""
        self._begin_serving()
        cut = self._chained.onward(state, self._slice_records)
        if cut is not None:
            self._cut_slice(state, cut, sends="live", what="live")
            return
        self.say("live")
        self.idle(IDLE_SECONDS / 2)

    def _begin_serving(self) -> None:
        """Forget, once, the differences of one that died between its resume row and this."""
        if not self._has_served and self.topology.reconciled_topics:
            reconciliation.forget(self.paths)
        if not self._has_served:
            self.slice_run.look_at_commits()  # not only when the next record comes
        self._has_served = True

    _has_served = False

    def _may_go_on(self) -> bool:
        if self._stop_reason or self.beat.is_lost:
            return False
        record = self.record()
        mine = record.epoch(self.paths.epoch)
        is_asked = record.handover is not None or mine.upgrade is not None
        return record.live == self.paths.epoch and not is_asked and mine.is_wanted

    def _on_batch(self, ranges: Sequence[OffsetRange], raw: DataFrame) -> None:
        try:
            self._slice(ranges, sends="live", what="live", raw=raw)
        finally:
            self.watchdog.end()

    # Slices

    def _read_on(self, state: LedgerState, end: Offsets) -> None:
        """One live slice towards ``end``, where all that hand over together yield."""
        if self.plan.bound:
            cut = self._chained.towards(state, end, self._slice_records)
            if cut is not None:
                self._cut_slice(state, cut, sends="live", what="going on to where its companions stand")
            else:
                time.sleep(IDLE_SECONDS / 2)
            return
        self._bounded(state, end, sends="live", what="going on to where its companions stand")

    def _bounded(self, state: LedgerState, end: Offsets, *, sends: Sends, what: str) -> None:
        """One slice towards ``end``, cut by time."""
        cut = cut_by_time(self.time_index(), state, end, self._slice_records)
        self._slice(state.position.span_to(cut), sends=sends, what=what)

    def _follow_once(self, record: TopologyRecord, what: str) -> bool:
        """One held slice that ends on a commit of the live epoch, or is a step towards one; False when there is none to follow."""
        if record.live is None:
            return False
        state = self.ledger.state()
        position = state.standing
        theirs = self.live_ledger(record).state().committed
        if theirs is not None and not self.plan.bound and not has_common_topic(theirs.standing, position):
            return record.handover is None and self._read_apart(state, what)
        ahead: list[Offsets] = []
        for row in reversed(self.live_ledger(record).state().commits):
            end = row.standing.beside(position)
            here = position.beside(end)
            if end == here or not end.dominates(here):
                break
            ahead.insert(0, end)
        if not ahead:
            return False
        if self.plan.bound:
            cut = self._chained.following(state, ahead, self._slice_records)
            if cut is not None:
                self._cut_slice(state, cut, sends=self._apart, what=what)
            return cut is not None
        # Topics that the live epoch does not read have no commit to follow: they are read as far as they go.
        own = set(position.topics) - set(ahead[0].topics)
        rest = position.merge(self.stable(position).only(own)) if own else position
        most = self._slice_records
        fitting = [end for end in ahead if position.count_to(rest.merge(end)) <= most]
        # The commits up to the first that is a row may be rolled up: then it lies further away than one slice of theirs.
        is_far = self.live_ledger(record).state().rolled is not None
        if not fitting and (is_far or is_shrunk(state)):
            self._bounded(state, rest.merge(ahead[0]), sends=self._apart, what=what)
            return True
        self._slice(position.span_to(rest.merge(fitting[-1] if fitting else ahead[0])), sends=self._apart, what=what)
        return True

    def _read_apart(self, state: LedgerState, what: str) -> bool:
        """One held slice towards the end of topics of which the live epoch reads none; False when there is nothing to read."""
        end = self.stable(state.position)
        if end == state.position:
            return False
        self._bounded(state, end, sends=self._apart, what=what)
        return True

    def _cut_slice(self, state: LedgerState, cut: Cut, *, sends: Sends, what: str) -> None:
        self._slice(state.position.span_to(cut.end), sends=sends, what=what, roots=cut.standing)

    def _slice(
        self, ranges: Sequence[OffsetRange], *, sends: Sends, what: str, raw: DataFrame | None = None, roots: Offsets | None = None
    ) -> None:  # fmt: skip
        self.check_low(ranges)
        logged = self.ledger.state().baseline_seq is not None
        if logged:
            self.open_sender()
        started = time.monotonic()
        row = run_slice(self.slice_run, ranges, sends=sends, logged=logged, raw=raw, roots=roots)
        self._slice_seconds = time.monotonic() - started
        self._committed(row, what, self._slice_seconds)
        # Nobody waits for the next slice of a replay. What large slices leave behind takes them longer to collect than to outgrow.
        if sends != "live" and is_small(ranges, self.config.small_slice):
            self._old_objects.collect_if_grown()

    def _finish_open(self, record: TopologyRecord, state: LedgerState) -> None:
        """Redo a slice that was planned and not committed, with its own ranges; or give it up where that failed too often."""
        plan = state.open_plan
        assert plan is not None
        self.say(f"finishing slice {plan.seq}")
        if plan.logged or plan.sends != "held":
            self.open_sender()
        if plan.is_replacement:
            started = time.monotonic()
            done = self._replacements.finish(plan)
            if done is not None:
                self._committed(done, "replacing rows", time.monotonic() - started)
            return
        is_leaving = record.live == self.paths.epoch and record.handover is not None
        if is_leaving and state.tries and is_abandonable(self.slice_run, state):
            self._attempts.abandon(state)  # the epoch that takes over reads it
            return
        match self._attempts.next(state, record.events):
            case "smaller":
                self._attempts.abandon(state)
            case "again":
                self._attempts.abandon(state, is_same=True)
            case "stuck":
                self._attempts.give_up(state)
            case _:
                started = time.monotonic()
                row = finish_slice(self.slice_run, plan)
                self._committed(row, "finishing", time.monotonic() - started)

    def _committed(self, row: LedgerRow, what: str, seconds: float) -> None:
        self._attempts.committed()
        rate = row.rows_read / seconds if seconds else None
        self.beat.say(
            seq=row.seq, message=what, records_per_second=rate, role="live" if row.sends == "live" else "candidate"
        )
        self.log.info(
            "slice",
            seq=row.seq,
            what=what,
            rows=row.rows_read,
            dead=row.rows_dead,
            sends=row.sends,
            seconds=round(seconds, 3),
        )
        if not row.logged:
            # The group is moved by the slice's own transaction otherwise; here it only shows how far the replay is.
            self._show_position(ranges_end(row.ranges))
        self._maintain()
        self._roll_up()

    def _roll_up(self) -> None:
        """Put one row in the place of the ledger's rows of slices long done, when there are enough of them."""
        state = self.ledger.state()
        if not rollup.is_due(state, self.config.rollup_slices):
            return
        if chains.is_read_by_replay(self.epochs.events(), self.topology.name, self.paths.epoch):
            return
        row = rollup.rolled_up(state, writer=self.writer, code=self.code, at=clock.now())
        if row is None:
            return
        try:
            self.ledger.roll_up(row)
        except (StaleWriterError, ConflictError):
            raise
        except Exception as error:  # a ledger that is longer stops no stream; it is tried again after the next slice
            self.log.error("not rolled up", error=f"{type(error).__name__}: {said(error)}", seq=row.seq)
            return
        self.log.info("rolled up", seq=row.detail["seq"], commits=row.detail["commits"])

    def _show_position(self, position: Offsets) -> None:
        """A consumer that was started with the epoch's group keeps the group from being moved; the slice is done all the same."""
        try:
            self.set_group(position)
        except ConflictError as error:
            self.log.warning("group not moved", error=str(error))

    def _maintain(self) -> None:
        """Look after the Delta files, when it is time."""
        state = self.ledger.state()
        if not is_due(state, self.config, clock.now()):
            return
        record = self.record()
        candidate = record.candidate
        named = record.named_seqs(self.paths.epoch)
        is_compared = False
        if record.live == self.paths.epoch and candidate is not None:
            plan = candidate.plan
            if plan.seed_epoch == self.paths.epoch and plan.seed_seq is not None:
                named.add(plan.seed_seq)
            # It compares itself with the commit at which it stands, however old that is by then.
            is_compared = candidate.stage in (Stage.REPLAYED, Stage.CAUGHT_UP) and not candidate.is_recalled
        self.say("looking after files")
        try:
            row = maintain(self.slice_run, self.config, clock.now(), named, keeps_all=is_compared)
        except StaleWriterError:
            raise
        except Exception as error:  # files that stay longer stop no stream; it is tried again when it is time
            self.log.error("not maintained", error=f"{type(error).__name__}: {said(error)}", seq=state.seq)
            return
        self.log.info("maintained", seq=row.seq, readable_from=row.detail["readable_from"])

    # Failures

    def _wait_stuck(self, record: TopologyRecord) -> None:
        """Wait for a decision: a start tries again; a handover ends the epoch at its last commit, an upgrade goes on from there."""
        stuck = self._attempts.stuck
        assert stuck is not None
        if self._attempts.is_decided(record.events):
            self.beat.say(state="running", message="trying again")
            return
        if not self._is_attested:  # its last commit is not where the epoch stopped sending: no other can begin there
            if record.handover is not None and record.live == self.paths.epoch:
                self.handover.refuse(record.handover, stuck.reason)
            time.sleep(IDLE_SECONDS)
            return
        state = self.ledger.state()
        upgrade = record.epoch(self.paths.epoch).upgrade
        if record.live == self.paths.epoch and (record.handover is not None or upgrade is not None):
            if state.open_plan is not None:
                self._leave(record, state)
                return
            self._live(record, state)
            return
        time.sleep(IDLE_SECONDS)

    def _leave(self, record: TopologyRecord, state: LedgerState) -> None:
        """Close the slice at which the epoch is stuck, so that another can go on; what was sent has to be finished."""
        assert state.open_plan is not None
        self.open_sender()
        if state.open_plan.is_replacement:
            self._replacements.finish(state.open_plan)
            return
        if is_abandonable(self.slice_run, state):
            abandon_slice(self.slice_run, state.open_plan)
            return
        if record.handover is not None and self.handover.is_over(record.handover, "finishing what was sent"):
            return
        finish_slice(self.slice_run, state.open_plan)

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._stop_reason:
            self.watchdog.begin("pausing after an error")
            time.sleep(IDLE_SECONDS)
