"""The one Spark application of an epoch, from its first slice to its last.

The driver keeps no state of its own: before every act it looks at the record of epochs and at the ledger, and does what
comes next. Whatever kills it, the next one looks at the same two places and goes on.
"""

from __future__ import annotations

import os
import signal
import socket
import time
import traceback
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

import structlog

from kappa import changelog, clock, measures, reconciliation, registry, switching, versioned
from kappa.companions import Companions, moved, together_of
from kappa.config import Config
from kappa.errors import (
    ConflictError,
    DriverAlreadyRunningError,
    KappaError,
    LedgerError,
    MoveRefusedError,
    RefusedError,
    StaleWriterError,
    Transient,
    first_line,
)
from kappa.folding import fold_between, unfolded_since
from kappa.inspection import inspected
from kappa.lake import EpochPaths
from kappa.maintenance import is_piled_up, maintain
from kappa.proof import certificate_of
from kappa.recomputation import SECOND_RUN, SecondRun, discard
from kappa.replay.archives import common, without
from kappa.replay.cuts import TimeIndex, next_cut
from kappa.replay.offsets import OffsetRange, Offsets, ranges_end
from kappa.replay.plan import ReplayPlan
from kappa.replay.shapes import tables_only
from kappa.replay.stages import Stage
from kappa.replay.thresholds import limits_of
from kappa.runtime import heartbeat
from kappa.runtime.broker import Broker
from kappa.runtime.epochs import EpochRecord, Epochs, Event, TopologyRecord
from kappa.runtime.faults import crash_point
from kappa.runtime.ledger import Ledger, LedgerRow, LedgerState, Sends
from kappa.runtime.sender import Sender
from kappa.seeding import SeedSource, seed
from kappa.slices import EpochRun, abandon_slice, check_topics, finish_slice, run_slice
from kappa.streaming import LiveQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Pause between two looks at the record while there is nothing to do.
IDLE_SECONDS = 0.2
#: Lag in offsets up to which a candidate counts as caught up, as a share of a slice.
CAUGHT_UP_SHARE = 0.1
#: Lag in offsets up to which a live epoch follows by Structured Streaming instead of bounded slices.
STREAM_BELOW = 50_000
#: What a slice that failed twice is divided by: the next attempt tells a slice that is too large from a record that is bad.
SHRINK = 100

log = structlog.get_logger("kappa.driver")


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
    """
    driver = Driver(config, topology, epoch, code=code)
    signal.signal(signal.SIGTERM, driver.on_signal)
    signal.signal(signal.SIGINT, driver.on_signal)
    return driver.run()


class Driver:
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
        self.config = config
        self.topology = registry.load(config.topologies, topology)
        self.paths = EpochPaths(lake=config.lake, topology=topology, epoch=epoch)
        self.writer = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.epochs = Epochs(config.lake)
        self.companions = Companions(config=config, epochs=self.epochs, extras=self._extras)
        self.ledger = Ledger(self.paths.ledger)
        self.plan = ReplayPlan.from_json(self._record().epoch(epoch).planned.detail["plan"])
        self.code = code or self._record().epoch(epoch).code
        self._given_session = session
        self._stop_reason: str | None = None
        self._slice_records = self.plan.request.slice_records
        self._failures = 0
        self._failed_at: Offsets | None = None
        self._stuck: Event | None = None
        self._is_overtaken = False
        self._asked_for_live = 0.0
        self.log = log.bind(topology=topology, epoch=epoch, writer=self.writer)

    def on_signal(self, number: int, _: object) -> None:
        """Stop at the next slice boundary."""
        self.stop(f"signal {signal.Signals(number).name}")

    def stop(self, reason: str) -> None:
        """Stop at the next slice boundary."""
        self._stop_reason = reason

    def run(self) -> str:
        """Claim the epoch, then do what comes next until nothing does."""
        self._claim()
        first = heartbeat.this_process(self.writer, self.code)
        self.beat = heartbeat.Beating(self.paths.heartbeat, first, self.config.heartbeat_seconds, self._has_claim)
        self.log.info("claimed", code=self.code)
        if self._record().epoch(self.paths.epoch).stage is not Stage.SEEDED:
            discard(self.paths, SECOND_RUN)  # its result is on record, and whoever wrote it did not come to this
        reason = "failed"
        try:
            reason = self._loop()
            self._fold(is_asked=True)  # who knows only the path sees all of an epoch that stands
        except StaleWriterError as error:
            reason = str(error)
            raise
        finally:
            self.beat.close(message=reason)
            self._close()
            self.log.info("ended", reason=reason)
        if self._is_overtaken:
            self._start_successor()
        return reason

    # What comes next

    def _loop(self) -> str:
        while True:
            try:
                ended = self._next()
                if ended is not None:
                    return ended
            except (KeyboardInterrupt, SystemExit):
                raise
            except Exception as error:  # anything that a step or an engine raises is weighed by _failed
                self._failed(error)

    def _next(self) -> str | None:
        """One act; the reason to end, or None to look again."""
        record = self._record()
        mine = record.epoch(self.paths.epoch)
        ended = self._stop_reason or self._unwanted(mine) or self._overtaken(mine)
        if ended is not None:
            return ended
        state = self.ledger.state()
        if self._stuck is not None:
            self._wait_stuck(record)
            return None
        if state.open_plan is not None:
            self._finish_open(state)
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
        if mine.stage in (Stage.ABORTED, Stage.DROPPED):
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
        self._say("rewinding")
        if not versioned.put_names_on_record(self.epochs, self.broker, self.topology, self.paths):
            return
        self.broker.set_group_offsets(self.paths.name, self.plan.start)
        crash_point("rewind.group")
        changelog.create_topics(self.broker, self.topology, self.paths, self._partitions())
        versioned.create_topics(self.broker, self.topology, self.paths, self._partitions())
        crash_point("rewind.topics")
        self._event("rewound", group=self.paths.name)

    def _seed(self) -> None:
        self._say(f"seeding {self.plan.seed}")
        source = SeedSource(kind=self.plan.seed, epoch=self.plan.seed_epoch, seq=self.plan.seed_seq)
        begun, is_done = time.monotonic(), bool(self.ledger.state().commits)
        seed(self.slice_run, source, self.plan.start)
        folded = {} if is_done else measures.folded(self.broker, self.paths, self.plan, time.monotonic() - begun)
        crash_point("seeded")
        # Here, where there is a JVM anyway, and before hours of replay: a plan is made without one.
        findings = inspected(self.session, self.topology)
        for finding in findings:
            self.log.warning("finding", code=finding.code, message=finding.message)
        self._event("seeded", findings=[finding.as_dict() for finding in findings], **folded)

    def _replay(self, record: TopologyRecord) -> None:
        """Bounded slices from the start to the frozen end; the first epoch of a topology goes live instead."""
        state = self.ledger.state()
        if state.seq == 0:
            self._check_group()
        if self.topology.versioned_topics and state.baseline_seq is None:
            # Now, not before the cutover: what a slice sends is one transaction with its changelog and marker.
            self._baseline()
            return
        if record.live is None:
            self._move(record, None, state)
            return
        if state.position == self.plan.end:
            self._replayed(record, state)
            return
        self._throttle(record)
        self._bounded(state, self.plan.end, sends=self._apart, what="replaying")

    def _replayed(self, record: TopologyRecord, state: LedgerState) -> None:
        """The range is computed; where the plan says so it is computed a second time first, slice by slice."""
        detail: dict[str, Any] = {"seq": state.seq, "throttled_seconds": round(self._throttled, 3)}
        if self.plan.request.determinism:
            self._say("computing the range again")
            self._throttle(record)
            found = self.second_run.advance(self._time_index(), most=self._slice_records, check=self._check_low)
            self._failures = 0
            self._slice_records = min(self.plan.request.slice_records, 2 * self._slice_records)
            if found is None:
                return
            detail["determinism"] = found.as_dict()
            self.log.info("computed twice", is_same=found.is_same, failures=list(found.failures))
        self._event("replayed", **detail, **measures.replayed(self.paths, self.plan, state))
        if self.plan.request.determinism:
            crash_point("recomputed.record")
            self.second_run.close()

    def _throttle(self, record: TopologyRecord) -> None:
        """Leave the machine to the live stream while that is far behind, but never for longer than the last two slices took.

        A live epoch whose driver does not run gets nothing from it.
        """
        live = self._live_paths(record)
        deadline = time.monotonic() + 2 * self._slice_seconds
        begun = time.monotonic()
        while time.monotonic() < deadline and not self._stop_reason:
            beat = heartbeat.read(live.heartbeat)
            position = self._live_ledger(record).state().position
            lag = position.count_to(self._stable(position))
            if (
                lag <= self.config.throttle_lag
                or beat is None
                or not beat.is_fresh(clock.now(), self.config.stale_seconds)
            ):
                break
            self._say(f"pausing: the live stream is {lag:,} offsets behind")
            time.sleep(min(1.0, 2 * self._slice_seconds))
        self._throttled += time.monotonic() - begun

    _slice_seconds = 0.0
    _throttled = 0.0

    def _follow(self, record: TopologyRecord, mine: EpochRecord) -> None:
        """Slices that end on commits of the live epoch, held, until the lag is small."""
        if not self._follow_once(record, "catching up"):
            self._event("caught_up", seq=self.ledger.state().seq)
            return
        lag = self._lag_to_live(record)
        if lag <= self.plan.request.slice_records * CAUGHT_UP_SHARE:
            self._event("caught_up", seq=self.ledger.state().seq, lag=lag)

    def _keep_up(self, record: TopologyRecord) -> None:
        """Retired and kept running: follow the live epoch, held, so that a rollback finds it where it has to be."""
        if not self._follow_once(record, "following, retired"):
            self._say("following, retired")
            time.sleep(IDLE_SECONDS)

    def _verify(self, record: TopologyRecord, epoch: EpochRecord) -> None:
        from kappa.verification import verify

        state = self.ledger.state()
        assert state.committed is not None
        live, theirs = self._live_paths(record), self._live_ledger(record).state()
        commits = [theirs.resolved(row) for row in theirs.commits if _is_at(ranges_end(row.ranges), state.position)]
        if not commits:
            raise LedgerError(
                f"No commit of live epoch {record.live} ends at {state.position.to_json()}: nothing to compare with."
            )
        self._say("verifying")
        limits = {**limits_of(self.topology.thresholds), **limits_of(self.plan.request.thresholds)}
        mine = (self.paths, state.committed)
        shapes = tables_only(self._live_ledger(record).state().shapes)
        keys = {place.removeprefix("tables/"): shape.key for place, shape in shapes.items()}
        found = verify(self.session, self.topology, (live, commits[-1]), mine, limits=limits, keys=keys)
        report = replace(found, findings=epoch.step_findings, determinism=epoch.determinism)
        crash_point("verify")
        self._event("verified", verdict=report.verdict, report=report.to_json(), live_epoch=record.live)

    def _wait_for_handover(self, record: TopologyRecord, mine: EpochRecord) -> None:
        """Follow the live epoch, held, with the changelog kept up, until it hands over."""
        state = self.ledger.state()
        if state.baseline_seq is None:
            self._baseline()
            return
        if self._follow_once(record, "following"):
            return
        handover = record.handover
        if handover is not None and handover.epoch == self.paths.epoch:
            self._take_over(record, handover)
            return
        self._say("following, held")
        time.sleep(IDLE_SECONDS)

    def _baseline(self) -> None:
        self._say("writing the baseline")
        self._open_sender()
        changelog.write_baseline(self.slice_run)

    @property
    def _apart(self) -> Sends:
        """What a slice sends while another epoch is live: nothing, or what goes to this epoch's own topics."""
        return "versioned" if self.topology.versioned_topics else "held"

    def _take_over(self, record: TopologyRecord, handover: Event) -> None:
        """Move the pointer once the live driver has yielded and this epoch stands where it stopped."""
        assert record.live is not None
        live_state = self._live_ledger(record).state()
        if live_state.yielded_for != handover.n:
            self._say("waiting for the live epoch to yield")
            self._ensure_live_driver(record.live)
            time.sleep(IDLE_SECONDS / 4)
            return
        state = self.ledger.state()
        if not _is_at(live_state.position, state.position):
            return
        if together_of(handover):
            self._move_together(record, handover)
        else:
            self._move(record, handover, state)

    def _move_together(self, record: TopologyRecord, handover: Event) -> None:
        """Move the pointers of all that go live together, once all are in place."""
        self._compare(record, handover.n)
        try:
            is_moved = self.companions.move(handover)
        except MoveRefusedError as error:
            self.log.warning("not moved", error=str(error))
            return
        if is_moved:
            self.log.info("moved", together=together_of(handover))
            crash_point("moved")
        else:
            self._say(f"waiting: {self.companions.missing(handover)}")
            time.sleep(IDLE_SECONDS / 4)

    def _move(self, record: TopologyRecord, handover: Event | None, state: LedgerState) -> None:
        """Compare-and-set of the live pointer."""
        certificate = certificate_of(self.config.lake, record, candidate=self.paths.epoch)
        if not certificate.complete:
            raise RefusedError(
                f"The certificate of epoch {self.paths.epoch} is not complete: {'; '.join(certificate.problems)}",
                findings=(),
            )
        expected, wanted = record.live, handover.n if handover else None
        # The first epoch goes live by itself.
        asked = handover or Event(
            topology=self.topology.name,
            epoch=self.paths.epoch,
            event="handover",
            at=clock.now(),
            actor="driver",
            reason=self.plan.request.reason,
        )
        reconciled = self._compare(record, wanted or 0)
        extras = self._said_of_topics(versioned.boundaries(self.broker, record, self.paths.epoch), reconciled)

        def decide(_: list[Event]) -> Sequence[Event]:
            now = self._record()
            pending = now.handover.n if now.handover else None
            if now.live != expected or pending != wanted:
                raise MoveRefusedError(
                    f"The pointer of {self.topology.name!r} is at epoch {now.live}, expected was {expected}; handover {pending}, expected {wanted}."
                )
            return [moved(now, asked, state, certificate, extras, at=clock.now())]

        self.epochs.append(decide)
        self.log.info("moved", from_epoch=expected, at=state.position.to_json())
        crash_point("moved")

    def _extras(self, record: TopologyRecord, handover: Event) -> dict[str, Any] | None:
        """What the row of a companion's move says of its topics; None while its driver has not compared its tables."""
        paths = EpochPaths(lake=self.paths.lake, topology=record.topology, epoch=handover.epoch)
        reconciled = reconciliation.written(paths, record.epoch(handover.epoch).reconciled, handover.n)
        if reconciled is None:
            return None
        return self._said_of_topics(versioned.boundaries(self.broker, record, handover.epoch), reconciled)

    @staticmethod
    def _said_of_topics(topics: dict[str, Any], reconciled: dict[str, dict[str, int]]) -> dict[str, Any]:
        return {name: found for name, found in (("topics", topics), ("reconciled", reconciled)) if found}

    def _compare(self, record: TopologyRecord, handover: int) -> dict[str, dict[str, int]]:
        """Write what the topics of tables get at this move, before it: afterwards the old epoch may go."""
        found = reconciliation.written(self.paths, (t.name for t in self.topology.reconciled_topics), handover)
        if found is not None:
            return found
        self._say("comparing tables for the topics that reconcile")
        live = self._live_ledger(record).state() if record.live is not None else LedgerState()
        before = reconciliation.predecessor(self.paths.lake, record, live)
        return reconciliation.write_differences(self.slice_run, before, handover)

    # The live epoch

    def _live(self, record: TopologyRecord, state: LedgerState) -> None:
        handover, upgrade = record.handover, record.epoch(self.paths.epoch).upgrade
        if upgrade is not None:
            self._say(f"going over to code {upgrade.detail['code'][:12]}")
            switching.switch(self.config, self.epochs, self.paths, self.ledger, self.writer, upgrade)
        elif handover is not None and self._may_yield(record, handover, state):
            self._yield(handover, state)
        elif state.is_yielded:
            crash_point("going_live")
            self._resume(record, state)
        else:
            self._serve(state)

    def _may_yield(self, record: TopologyRecord, handover: Event, state: LedgerState) -> bool:
        """Not before it has sent what its topics have to get, or the next epoch would build on what they do not hold.

        One that cannot send it is stuck and may: the next epoch sees that it never resumed. What has yielded stays so.
        """
        is_due = reconciliation.is_due(self.topology, record, state)
        return not is_due or self._stuck is not None or state.yielded_for == handover.n

    def _yield(self, handover: Event, state: LedgerState) -> None:
        """Stop sending at the last commit, or where its companions do; then wait for the successor, not for ever."""
        if state.yielded_for != handover.n:
            self.ledger.check_claim(self.writer)
            end = self.companions.meet(handover, state.position, is_stuck=self._stuck is not None)
            if end is None:
                self._await_successor(handover, "standing until its companions do")
                return
            if end != state.position:
                self._reach(end, state)
                return
            self.ledger.append(
                LedgerRow(
                    kind="yield",
                    seq=state.seq,
                    writer=self.writer,
                    at=clock.now(),
                    code=self.code,
                    detail={"handover": handover.n, "at": state.position.as_dict()},
                )
            )
            self.log.info("yielded", at=state.position.to_json(), to_epoch=handover.epoch)
            crash_point("yield")
            return
        self._await_successor(handover, f"yielded to epoch {handover.epoch}")

    def _reach(self, end: Offsets, state: LedgerState) -> None:
        """The last slices up to where all that hand over together yield."""
        if state.is_yielded:  # for a handover that was withdrawn, or it has only just gone live
            self._resume(self._record(), state)
            return
        self._open_sender()
        self._bounded(state, end, sends="live", what="going on to where its companions stand")

    def _await_successor(self, handover: Event, what: str) -> None:
        self._say(what)
        if self._waits_for != (handover.n, what):
            self._waits_for, self._waits_since = (handover.n, what), time.monotonic()
        # Not since the request: the last slice before the yield may have taken longer than a handover may.
        if time.monotonic() - self._waits_since > self.config.handover_seconds:
            self._withdraw(handover)
        time.sleep(IDLE_SECONDS)

    _waits_for = (0, "")
    _waits_since = 0.0

    def _withdraw(self, handover: Event) -> None:
        patience, who = f"{self.config.handover_seconds:.0f} s", f"epoch {handover.epoch} did not take over"
        if together_of(handover):
            reason = f"after {patience} {self.companions.missing(handover) or who}"
        else:
            reason = f"{who} within {patience}"
        self.companions.withdraw(handover, reason)

    def _resume(self, record: TopologyRecord, state: LedgerState) -> None:
        """Begin to send, or begin again, from the last commit; what topics of tables have to get comes first."""
        self._say("going live")
        self._open_sender()
        for topic in self.topology.topics:
            if not topic.is_versioned and topic.name not in self.broker.topics(topic.name):
                settings = {"cleanup.policy": "compact"} if topic.on_replay == "reconcile" else {}
                self.broker.create_topic(topic.name, partitions=self._partitions(), config=settings)
        if state.baseline_seq is None:
            changelog.write_baseline(self.slice_run)
        detail: dict[str, Any] = {"at": state.position.as_dict(), "handover": record.last_handover}
        if reconciliation.is_due(self.topology, record, state):
            detail["reconciled"] = self._reconcile(record)
        self.ledger.append(
            LedgerRow(
                kind="resume", seq=state.seq, writer=self.writer, at=clock.now(), code=self.code, detail=detail
            )
        )  # fmt: skip
        self.log.info("resumed", at=state.position.to_json(), reconciled=detail.get("reconciled"))
        crash_point("resume")
        if self.topology.reconciled_topics:
            reconciliation.forget(self.paths)

    def _reconcile(self, record: TopologyRecord) -> dict[str, Any]:
        """Send what differs; how many records of each topic."""
        found: dict[str, Any] = dict(record.moves[-1].detail.get("reconciled", {}))
        if any(count for counts in found.values() for count in counts.values()):
            self._say("reconciling topics")
            self._spend_sender()
            self._open_sender(reconciliation.TRANSACTION_TIMEOUT)
            reconciliation.send(self.slice_run, record.last_handover)
            self._spend_sender()  # slices get their shorter time again
        return found

    def _serve(self, state: LedgerState) -> None:
        """Follow the log: bounded slices while the lag is large, Structured Streaming then."""
        self._open_sender()
        end = self._stable(state.position)
        is_archived = bool(common(state.position.span_to(end), self.plan.archived))  # a stream reads the log only
        if state.position.count_to(end) > STREAM_BELOW or is_archived or not self._has_served:
            if not self._has_served and self.topology.reconciled_topics:
                reconciliation.forget(self.paths)  # of one that died between its resume row and this
            self._has_served = True
            if state.position != end:
                self._bounded(state, end, sends="live", what="catching up with the log")
            return
        self._say("live")
        query = LiveQuery(
            self.session, self.config.bootstrap_servers, state.position.naming(end),
            checkpoint=self.paths.query_checkpoint(uuid.uuid4().hex[:8]), trigger_seconds=self.config.trigger_seconds,
            max_records=self._slice_records, headers=any(source.headers for source in self.topology.sources), position=lambda: self.ledger.state().position, on_batch=self._on_batch,
        )  # fmt: skip
        try:
            while query.is_active() and self._may_go_on():
                time.sleep(IDLE_SECONDS / 2)
                if self._is_fold_due():
                    query.between(self._fold)
        finally:
            query.close()

    _has_served = False

    def _may_go_on(self) -> bool:
        if self._stop_reason or self.beat.is_lost:
            return False
        record = self._record()
        mine = record.epoch(self.paths.epoch)
        is_asked = record.handover is not None or mine.upgrade is not None
        return record.live == self.paths.epoch and not is_asked and mine.is_wanted

    def _on_batch(self, ranges: Sequence[OffsetRange], raw: DataFrame) -> None:
        self._slice(ranges, sends="live", what="live", raw=raw)

    # Slices

    def _bounded(self, state: LedgerState, end: Offsets, *, sends: Sends, what: str) -> None:
        """One slice towards ``end``, cut by time."""
        reached = state.committed.reached_ms if state.committed else {}
        cut = next_cut(
            self._time_index(), state.position, end, max_records=self._slice_records, reached_ms=reached, slack=self._slice_records // 10
        )  # fmt: skip
        self._slice(state.position.span_to(cut), sends=sends, what=what)

    def _follow_once(self, record: TopologyRecord, what: str) -> bool:
        """One held slice that ends on a commit of the live epoch; False when there is none to follow."""
        if record.live is None:
            return False
        position = self.ledger.state().position
        ahead: list[Offsets] = []
        for row in reversed(self._live_ledger(record).state().commits):
            end = ranges_end(row.ranges).beside(position)
            here = position.beside(end)
            if end == here or not end.dominates(here):
                break
            ahead.insert(0, end)
        if not ahead:
            return False
        # Topics that the live epoch does not read have no commit to follow: they are read as far as they go.
        own = set(position.topics) - set(ahead[0].topics)
        rest = position.merge(self._stable(position).only(own)) if own else position
        fitting = [end for end in ahead if position.count_to(rest.merge(end)) <= self._slice_records]
        self._slice(position.span_to(rest.merge(fitting[-1] if fitting else ahead[0])), sends=self._apart, what=what)
        return True

    def _slice(self, ranges: Sequence[OffsetRange], *, sends: Sends, what: str, raw: DataFrame | None = None) -> None:
        self._check_low(ranges)
        logged = self.ledger.state().baseline_seq is not None
        if logged:
            self._open_sender()
        started = time.monotonic()
        row = run_slice(self.slice_run, ranges, sends=sends, logged=logged, raw=raw)
        self._slice_seconds = time.monotonic() - started
        self._committed(row, what, self._slice_seconds)

    def _finish_open(self, state: LedgerState) -> None:
        """Redo a slice that was planned and not committed, with its own ranges."""
        plan = state.open_plan
        assert plan is not None
        self._say(f"finishing slice {plan.seq}")
        if plan.logged or plan.sends == "live":
            self._open_sender()
        if self._failures and self._slice_records < sum(r.count for r in plan.ranges) and state.open_effects is None:
            abandon_slice(self.slice_run, plan)
            return
        started = time.monotonic()
        row = finish_slice(self.slice_run, plan)
        self._committed(row, "finishing", time.monotonic() - started)

    def _committed(self, row: LedgerRow, what: str, seconds: float) -> None:
        self._failures = 0
        self._slice_records = min(self.plan.request.slice_records, 2 * self._slice_records)
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
            self.broker.set_group_offsets(self.paths.name, ranges_end(row.ranges))
        self._maintain()

    def _maintain(self) -> None:
        """Look after the Delta files, when it is time."""
        state = self.ledger.state()
        last = state.maintained or state.commits[0]
        # A clock that was set back must not put it off until it has caught up with itself.
        is_early = abs((clock.now() - last.at).total_seconds()) < 60 * self.config.maintain_minutes
        if is_early and not is_piled_up(state):
            return
        record = self._record()
        candidate = record.candidate
        named = record.named_seqs(self.paths.epoch)
        is_compared = False
        if record.live == self.paths.epoch and candidate is not None:
            plan = ReplayPlan.from_json(candidate.planned.detail["plan"])
            if plan.seed_epoch == self.paths.epoch and plan.seed_seq is not None:
                named.add(plan.seed_seq)
            # It compares itself with the commit at which it stands, however old that is by then.
            is_compared = candidate.stage in (Stage.REPLAYED, Stage.CAUGHT_UP) and not candidate.is_recalled
        self._say("looking after files")
        try:
            row = maintain(self.slice_run, self.config, clock.now(), named, keeps_all=is_compared)
        except StaleWriterError:
            raise
        except Exception as error:  # files that stay longer stop no stream; it is tried again when it is time
            self.log.error("not maintained", error=f"{type(error).__name__}: {_said(error)}", seq=state.seq)
            return
        self.log.info("maintained", seq=row.seq, readable_from=row.detail["readable_from"])

    def _is_fold_due(self) -> bool:
        """Whether changes wait for longer than they may, by the last commit; one that was looked at is left alone for a while."""
        committed = self.ledger.state().committed
        seq, looked = self._fold_looked
        if committed is None or (
            committed.seq == seq and time.monotonic() - looked < max(1.0, self.config.fold_seconds)
        ):
            return False
        age = timedelta(seconds=self.config.fold_seconds)
        return any(clock.now() - at >= age for at in unfolded_since(committed))

    _fold_looked = (-1, 0.0)

    def _fold(self, *, is_asked: bool = False) -> None:
        """Bring changes into the tables without a slice: those that waited long enough, or where it is asked for all."""
        state = self.ledger.state() if "slice_run" in self.__dict__ else None
        if state is None or not state.commits or self._is_gone() or self._is_spark_dead():
            return
        self._fold_looked = (state.commits[-1].seq, time.monotonic())
        try:
            if fold_between(self.slice_run, is_asked=is_asked):
                self.log.info("folded", seq=state.commits[-1].seq)
        except StaleWriterError:
            raise
        except Exception as error:  # every commit reads as before; the next slice, or the next driver, does it
            self.log.error("not folded", error=f"{type(error).__name__}: {_said(error)}", seq=state.seq)

    def _is_gone(self) -> bool:
        return self._record().epoch(self.paths.epoch).stage in (Stage.ABORTED, Stage.DROPPED)

    # Failures

    def _failed(self, error: Exception) -> None:
        """Weigh an error: stop, try again, try a smaller slice, or wait for a decision."""
        if isinstance(error, StaleWriterError):
            self.ledger.check_claim(self.writer)  # raises unless only the producer was fenced
        if isinstance(error, LedgerError) and not self.ledger.exists():
            raise error
        if self._is_spark_dead():
            raise error  # a new process gets a new JVM; whoever watches the epoch starts it
        self._spend_sender()
        if isinstance(error, ConflictError):
            return
        if isinstance(error, Transient) or not self._is_kafka_there():
            self.log.warning("waiting", error=str(error))
            self._say(f"waiting: {error}")
            self._pause(min(30.0, 1.0 + self._failures))
            self._failures += isinstance(error, KappaError)
            return
        state = self.ledger.state()
        # By position, not by number: an abandoned slice is planned again under the next one.
        at = state.position if state.commits else Offsets()
        self._failures = self._failures + 1 if at == self._failed_at else 1
        self._failed_at = at
        what = f"{type(error).__name__}: {_said(error)}"
        trace = "".join(traceback.format_tb(error.__traceback__))
        self.log.error("failed", error=what, attempt=self._failures, seq=state.seq, trace=trace)
        if self._failures >= self.config.attempts:
            detail = {"error": what, "seq": state.seq}
            self._stuck = self.epochs.add(
                self.topology.name, self.paths.epoch, "stuck", actor="driver", reason=_said(error), **detail
            )
            self.beat.say(state="stuck", message=f"stuck at slice {state.seq}: {_said(error)}")
            return
        if self._failures > 1:
            self._slice_records = max(1, self._slice_records // SHRINK)
        self._pause(float(self._failures))

    def _wait_stuck(self, record: TopologyRecord) -> None:
        """Wait for a decision: a start tries again; a handover ends the epoch at its last commit, an upgrade goes on from there."""
        assert self._stuck is not None
        if any(e.event == "start" and e.n > self._stuck.n for e in record.events if e.epoch == self.paths.epoch):
            self._stuck, self._failures, self._slice_records = None, 0, self.plan.request.slice_records
            self.beat.say(state="running", message="trying again")
            return
        state = self.ledger.state()
        upgrade = record.epoch(self.paths.epoch).upgrade
        if record.live == self.paths.epoch and (record.handover is not None or upgrade is not None):
            if state.open_plan is not None:
                self._open_sender()
                if self.slice_run.marker_seq >= state.open_plan.seq:
                    finish_slice(self.slice_run, state.open_plan)
                else:
                    abandon_slice(self.slice_run, state.open_plan)
                return
            self._live(record, state)
            return
        time.sleep(IDLE_SECONDS)

    def _spend_sender(self) -> None:
        run = self.__dict__.get("slice_run")
        if run is not None and run.sender is not None:
            run.sender.close()
            run.sender = None

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self._stop_reason:
            time.sleep(IDLE_SECONDS)

    def _is_spark_dead(self) -> bool:
        from kappa.runtime.session import is_alive

        return "session" in self.__dict__ and not is_alive(self.session)

    def _is_kafka_there(self) -> bool:
        try:
            self.broker.topic_ids(self.topology.source_topics)
        except Transient:
            return False
        except KappaError:
            return True
        return True

    # What the driver holds

    def _record(self) -> TopologyRecord:
        return self.epochs.record(self.paths.topology)

    @cached_property
    def session(self) -> Any:
        """Spark, started when it is first needed."""
        if self._given_session is not None:
            return self._given_session
        from kappa.runtime.session import build_session

        self._say("starting Spark")
        return build_session(self.config, f"kappa {self.topology.name} e{self.paths.epoch:04d}")

    @cached_property
    def broker(self) -> Broker:
        """Kafka's administration."""
        return Broker(self.config.bootstrap_servers)

    @cached_property
    def slice_run(self) -> EpochRun:
        """The epoch as the slice protocol needs it."""
        return EpochRun(
            topology=self.topology, paths=self.paths, writer=self.writer, code=self.code, ledger=self.ledger, session=self.session,
            broker=self.broker, bootstrap_servers=self.config.bootstrap_servers, topic_ids=dict(self.plan.topic_ids), archived=self.plan.archived, arrow_rows=self.config.arrow_rows,
            fold_seconds=self.config.fold_seconds,
        )  # fmt: skip

    @cached_property
    def second_run(self) -> SecondRun:
        """The range of the plan, computed again."""
        return SecondRun(self.slice_run, self.plan)

    def _open_sender(self, timeout: timedelta | None = None) -> None:
        """Fence whoever sent for this epoch before, then read what was sent: in this order."""
        run = self.slice_run
        if run.sender is not None:
            return
        self.ledger.check_claim(self.writer)
        limit = {} if timeout is None else {"transaction_timeout": timeout}
        sender = Sender(self.config.bootstrap_servers, self.paths.name, self.paths.name, **limit)
        sender.init()
        marker = changelog.read_marker(self.broker, self.paths)
        run.marker_seq = marker.seq if marker else -1
        run.marker_handover = marker.reconciled if marker else None
        run.sender = sender

    def _close(self) -> None:
        self._spend_sender()
        if "session" in self.__dict__ and self._given_session is None and not self._is_spark_dead():
            self.session.stop()
        if "broker" in self.__dict__:
            self.broker.close()

    def _claim(self) -> None:
        self.ledger.create()
        state = self.ledger.state()
        other = heartbeat.read(self.paths.heartbeat)
        if other is not None and other.is_fresh(clock.now(), self.config.stale_seconds):
            raise DriverAlreadyRunningError(
                f"Epoch {self.paths.epoch} of {self.topology.name!r} has a driver: {other.writer}, last heard of at {other.at:%H:%M:%S}.",
                writer=other.writer,
            )
        try:
            self.ledger.claim(self.writer, self.code, state)
        except ConflictError as error:
            raise DriverAlreadyRunningError(
                f"Another driver claimed epoch {self.paths.epoch} of {self.topology.name!r} at the same moment."
            ) from error
        crash_point("claim")

    def _has_claim(self) -> bool:
        return Ledger(self.paths.ledger).has_claim(self.writer)

    def _live_paths(self, record: TopologyRecord) -> EpochPaths:
        assert record.live is not None
        return EpochPaths(lake=self.paths.lake, topology=self.paths.topology, epoch=record.live)

    def _live_ledger(self, record: TopologyRecord) -> Ledger:
        path = self._live_paths(record).ledger
        if self._followed is None or self._followed.path != path:
            self._followed = Ledger(path)
        return self._followed

    _followed: Ledger | None = None

    def _lag_to_live(self, record: TopologyRecord) -> int:
        if record.live is None:
            return 0
        position, live = self.ledger.state().position, self._live_ledger(record).state().position
        return position.beside(live).count_to(live.beside(position))

    def _start_successor(self) -> None:
        """Start the driver of the code that runs the epoch now; whoever watches the epoch does it where this fails."""
        from kappa import control

        try:
            control.ensure_driver(self.config, self.topology.name, self.paths.epoch)
        except KappaError as error:
            self.log.error("successor not started", error=str(error))

    def _ensure_live_driver(self, epoch: int) -> None:
        """Start the live epoch's driver again if it died: it must finish what it planned, and yield."""
        if time.monotonic() - self._asked_for_live < self.config.heartbeat_seconds:
            return
        self._asked_for_live = time.monotonic()
        from kappa import control

        control.ensure_driver(self.config, self.topology.name, epoch)

    def _check_group(self) -> None:
        """The rewound group and the plan must agree before the first slice."""
        found = self.broker.group_position(self.paths.name, self.plan.start)
        if found != self.plan.start:
            raise RefusedError(
                f"Group {self.paths.name!r} is at {found.to_json()}, the plan starts at {self.plan.start.to_json()}: somebody moved it. "
                "Abort this replay and plan again.",
                findings=(), group=found.to_json(), plan=self.plan.start.to_json(),
            )  # fmt: skip

    def _check_low(self, ranges: Sequence[OffsetRange]) -> None:
        check_topics(self.broker, self.plan.topic_ids)
        low = self.broker.low_watermarks(sorted(self.plan.topic_ids))
        for item in without(ranges, common(ranges, self.plan.archived)):
            first = low.get(item.topic, item.partition) or 0
            if item.start < first and not item.is_empty:
                from kappa.errors import DataLossError

                raise DataLossError(
                    f"{item.topic}[{item.partition}] starts at offset {first}, the slice at {item.start}: retention removed {first - item.start} offsets.",
                    topic=item.topic, partition=item.partition, low=first, start=item.start,
                )  # fmt: skip

    def _stable(self, position: Offsets) -> Offsets:
        found = self.broker.stable_offsets(sorted(self.plan.topic_ids))
        return position.merge(found)

    def _time_index(self) -> TimeIndex:
        topics = sorted(self.plan.topic_ids)
        archives = [self.slice_run.archive(topic) for topic in sorted({item.topic for item in self.plan.archived})]

        def first_records(timestamp_ms: int) -> Offsets:
            found = self.broker.offsets_for_time(topics, timestamp_ms)
            # An archive knows records that are gone from the log, and agrees with it on all others.
            return Offsets.of(
                [*found.items(), *(item for a in archives for item in a.offsets_for_time(timestamp_ms).items())]
            )

        return first_records

    def _partitions(self) -> int:
        return max(self.broker.partitions(topic) for topic in self.topology.source_topics)

    def _event(self, event: str, **detail: Any) -> None:
        """Record a stage, once."""

        def decide(_: list[Event]) -> Sequence[Event]:
            mine = self._record().epoch(self.paths.epoch)
            if mine.stage in (Stage.ABORTED, Stage.DROPPED):
                return []
            return [
                Event(
                    topology=self.topology.name,
                    epoch=self.paths.epoch,
                    event=event,
                    at=clock.now(),
                    actor="driver",
                    detail=detail,
                )
            ]

        self.ledger.check_claim(self.writer)
        self.epochs.append(decide)
        self.log.info(event, **{k: v for k, v in detail.items() if k != "report"})
        crash_point(event)

    def _say(self, message: str) -> None:
        if message != self._said:
            self._said = message
            self.beat.say(message=message)
            self.log.info("now", doing=message)

    _said = ""


def _is_at(live: Offsets, position: Offsets) -> bool:
    """Whether both epochs have read the same of the topics that both read."""
    return live.beside(position) == position.beside(live)


def _said(error: BaseException) -> str:
    return first_line(error) or type(error).__name__
