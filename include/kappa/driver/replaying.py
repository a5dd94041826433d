"""The life of an epoch that is not live: the stages of a replay, and the wait beside the live epoch."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kappa.driver import consumer_group
from kappa.driver.attempts import SHRINK, Attempts
from kappa.driver.context import IDLE_SECONDS, Context
from kappa.driver.handovers.handover import Handover
from kappa.driver.slicing import Slices
from kappa.errors import LedgerError
from kappa.faults import crash_point
from kappa.offsets import set_asides
from kappa.offsets.set_asides import SetAsides
from kappa.offsets.vector import ranges_end
from kappa.presence import liveness
from kappa.record.epoch_record import EpochRecord, TopologyRecord
from kappa.record.ledger_state import LedgerState
from kappa.record.rollup import is_cut_by_arrival
from kappa.replay.chains import is_at, topics_of
from kappa.replay.proof.standing import later
from kappa.replay.stages import Stage
from kappa.slices.seeding import SeedSource, seed
from kappa.slices.topics import changelog, ownership, versioned_topics
from kappa.topology.shapes import tables_only
from kappa.topology.thresholds import limits_of
from kappa.verify import measurements
from kappa.verify.certificate import backfill_notes
from kappa.verify.inspection import inspected

#: Lag in offsets up to which a candidate counts as caught up, as a share of a slice.
CAUGHT_UP_SHARE = 0.1


class Replay:
    """What the driver of a candidate, or of a retired epoch that is kept running, does next.

    Args:
        handover: the epoch's part in handovers.
    """

    def __init__(self, context: Context, attempts: Attempts, slices: Slices, handover: Handover) -> None:
        self._context = context
        self._attempts = attempts
        self._slices = slices
        self._handover = handover
        self._throttled = 0.0

    def next(self, record: TopologyRecord, epoch: EpochRecord) -> None:
        """One act, by the epoch's stage."""
        match epoch.stage:
            case Stage.PLANNED:
                self._rewind()
            case Stage.REWOUND:
                self._seed()
            case Stage.SEEDED:
                self._replay(record)
            case Stage.REPLAYED:
                self._follow(record, epoch)
            case Stage.RETIRED if epoch.is_recalled:
                self._follow(record, epoch)
            case Stage.RETIRED:
                self._keep_up(record)
            case Stage.CAUGHT_UP if not epoch.is_recalled:
                self._verify(record, epoch)
            case _:
                self._wait_for_handover(record)

    def _rewind(self) -> None:
        """Create the consumer group at the plan's start: from here on Kafka's own tools show it."""
        context = self._context
        context.say("rewinding")
        ownership.claim(context.broker, context.paths, context.epochs.lake_id())
        if not versioned_topics.put_names_on_record(context.epochs, context.broker, context.topology, context.paths):
            return
        consumer_group.set_offsets(context, context.plan.start)
        crash_point("rewind.group")
        changelog.create_topics(context.broker, context.topology, context.paths, context.partitions())
        versioned_topics.create_topics(context.broker, context.topology, context.paths, context.partitions())
        crash_point("rewind.topics")
        context.event("rewound", group=context.paths.name)

    def _seed(self) -> None:
        context = self._context
        context.say(f"seeding {context.plan.seed}")
        source = SeedSource(kind=context.plan.seed, epoch=context.plan.seed_epoch, seq=context.plan.seed_seq)
        start, is_done = time.monotonic(), bool(context.ledger.state().commits)
        seed(context.slice_run, source, context.plan.start)
        folded = (
            {}
            if is_done
            else measurements.folded(context.broker, context.paths, context.plan, time.monotonic() - start)
        )
        crash_point("seeded")
        context.exporter.stands_at(context.ledger.state().committed)
        # Here, where there is a JVM anyway, and before hours of replay: a plan is made without one.
        findings = inspected(context.session, context.topology)
        for finding in findings:
            context.log.warning("finding", code=finding.code, message=finding.message)
        context.event("seeded", findings=[finding.as_dict() for finding in findings], **folded)

    def _replay(self, record: TopologyRecord) -> None:
        """Bounded slices from the start to the frozen end; the first epoch of a topology goes live instead."""
        context = self._context
        state = context.ledger.begun()
        if state.seq == 0:
            consumer_group.check(context)
        if context.topology.versioned_topics and state.baseline_seq is None:
            # Now, not before the cutover: what a slice sends is one transaction with its changelog and marker.
            self._baseline()
            return
        if record.live is None:
            self._handover.go_live_first(record, state)
            return
        if state.position == context.plan.end:
            self._replayed(record, state)
            return
        self._throttle(record)
        if not self._may_read_on(record):
            context.say(f"waiting: live epoch {record.live}, which says where partitions are idle, has not read so far")
            context.idle()
            return
        self._slices.bulk(state)

    def _may_read_on(self, record: TopologyRecord) -> bool:
        """Whether the live epoch has read what a replay is to read next: where partitions are idle, it says when."""
        context = self._context
        if not context.topology.has_idle_partitions or record.live is None:
            return True
        theirs = context.live_ledger(record).begun().standing
        end = context.plan.end
        return theirs.beside(end).dominates(end.beside(theirs))

    def _replayed(self, record: TopologyRecord, state: LedgerState) -> None:
        """The range is computed; where the plan says so it is computed a second time first, slice by slice."""
        context = self._context
        detail: dict[str, Any] = {"seq": state.seq, "throttled_seconds": round(self._throttled, 3)}
        if context.plan.request.determinism:
            context.say("computing the range again")
            self._throttle(record)
            determinism = context.second_run.advance(
                context.time_index(), most=self._second_size, check=context.check_low
            )
            self._attempts.committed()
            if determinism is None:
                return
            detail["determinism"] = determinism.as_dict()
            context.log.info("computed twice", is_same=determinism.is_same, failures=list(determinism.failures))
        context.event("replayed", **detail, **measurements.replayed(context.paths, context.plan, state))
        if context.plan.request.determinism:
            crash_point("recomputed.record")
            context.second_run.close()

    @property
    def _second_size(self) -> int:
        """Most offsets of a slice of the second run: fewer after one of them failed twice."""
        most = self._context.plan.request.slice_records
        return most if self._attempts.failures < 2 else max(1, most // SHRINK)

    def _throttle(self, record: TopologyRecord) -> None:
        """Leave the machine to a live stream that is far behind, but never for longer than the last two slices took.

        A live epoch whose driver does not run gets nothing from it.
        """
        context = self._context
        live = context.live_paths(record)
        deadline = time.monotonic() + 2 * self._slices.seconds
        start = time.monotonic()
        while time.monotonic() < deadline and not context.stop_reason:
            sign = liveness.look(live.heartbeat, context.config.stale_seconds)
            position = context.live_ledger(record).begun().position
            end = (
                context.broker.stable_offsets(position.topics)
                if context.is_chained(record)
                else context.stable(position)
            )
            lag = position.count_to(position.merge(end))
            if lag <= context.config.throttle_lag or not sign.may_live:
                break
            context.say(f"pausing: the live stream is {lag:,} offsets behind")
            time.sleep(min(1.0, 2 * self._slices.seconds))
        self._throttled += time.monotonic() - start

    def _follow(self, record: TopologyRecord, epoch: EpochRecord) -> None:
        """Slices that end on commits of the live epoch, held, until the lag is small."""
        context = self._context
        if epoch.is_recalled:
            self._handover.get_ready(record)  # before it says that it can take over
        has_moved = self._slices.follow(record, "catching up")
        if not has_moved and not context.plan.bound:
            context.event("caught_up", seq=context.ledger.state().seq)
            return
        lag = context.lag_to_live(record)
        is_near = lag <= context.plan.request.slice_records * CAUGHT_UP_SHARE
        # It may be between two commits of the live epoch, where nothing can be compared.
        if is_near and self._is_level(record):
            context.event("caught_up", seq=context.ledger.state().seq, lag=lag)
        elif not has_moved:
            context.say("waiting for the epochs that it reads to come to where the live epoch stands")
            time.sleep(IDLE_SECONDS)

    def _is_level(self, record: TopologyRecord) -> bool:
        """Whether the epoch stands where a commit of the live epoch stands."""
        standing = self._context.ledger.begun().standing
        commits = reversed(self._context.live_ledger(record).state().commits)
        return any(is_at(row.standing, standing, is_bound=self._context.is_chained(record)) for row in commits)

    def _keep_up(self, record: TopologyRecord) -> None:
        """Retired and kept running: follow the live epoch, held, so that a rollback finds it where it has to be."""
        if not self._slices.follow(record, "following, retired"):
            self._context.say("following, retired")
            self._context.idle()

    def _verify(self, record: TopologyRecord, epoch: EpochRecord) -> None:
        from kappa.verify.diff import verify

        context = self._context
        state = context.ledger.begun()
        live, theirs = context.live_paths(record), context.live_ledger(record).state()
        commits = [
            theirs.resolved(row)
            for row in theirs.commits
            if is_at(row.standing, state.standing, is_bound=context.is_chained(record))
        ]
        if not commits:
            raise LedgerError(
                f"No commit of live epoch {record.live} ends at {state.standing.to_json()}: nothing to compare with."
            )
        self._handover.get_ready(record)
        context.say("verifying")
        limits = {**limits_of(context.topology.thresholds), **limits_of(context.plan.request.thresholds)}
        own_side = (context.paths, state.committed)
        shapes = tables_only(context.live_ledger(record).state().shapes)
        keys = {place.removeprefix("tables/"): shape.key for place, shape in shapes.items()}
        by_origin = topics_of(context.plan.bound) == topics_of(record.epoch(live.epoch).bound)
        comparison = verify(
            context.session,
            context.topology,
            (live, commits[-1]),
            own_side,
            limits=limits,
            keys=keys,
            by_origin=by_origin,
            unjudged=self._unjudged(theirs),
            since=later(ranges_end(theirs.commits[0].ranges), ranges_end(state.commits[0].ranges)),
        )
        alone = set_asides.without(state.set_aside, theirs.set_aside)
        notes = (
            *comparison.notes,
            *backfill_notes(record.epoch(live.epoch), commits[-1].seq),
            *self._aside_notes(live.epoch, alone),
        )
        report = replace(
            comparison,
            findings=epoch.step_findings,
            determinism=epoch.determinism,
            notes=notes,
            set_aside=set_asides.count(alone),
        )
        crash_point("verify")
        context.event("verified", verdict=report.verdict, report=report.to_json(), live_epoch=record.live)

    def _aside_notes(self, live: int, alone: SetAsides) -> Iterable[str]:
        """What a reader of the comparison must know of records that were set aside."""
        plan, epoch = self._context.plan, self._context.paths.epoch
        if alone:
            whys = "; ".join(sorted({one.reason for one in alone}))
            yield f"Epoch {epoch} alone sets aside {set_asides.described(alone)} ({whys}): its rows lack them."
        if plan.brought_in:
            yield f"Epoch {epoch} brings in {set_asides.described(plan.brought_in)}, which epoch {live} set aside."

    def _unjudged(self, live: LedgerState) -> frozenset[str]:
        """Tables and outputs whose rows depend on cuts that this epoch does not share with the live one."""
        context = self._context
        if context.plan.request.cuts == "live":
            return frozenset()
        return context.topology.depending_on_cuts(by_arrival=is_cut_by_arrival(live))

    def _wait_for_handover(self, record: TopologyRecord) -> None:
        """Follow the live epoch, held, with the changelog kept up, until it hands over."""
        context = self._context
        state = context.ledger.state()
        if state.baseline_seq is None:
            self._baseline()
            return
        self._handover.get_ready(record)
        if self._slices.follow(record, "following"):
            return
        handover = record.handover
        if handover is not None and handover.epoch == context.paths.epoch:
            self._handover.take_over(record, handover)
            return
        context.say("following, held")
        self._handover.prepare(record)
        context.idle()

    def _baseline(self) -> None:
        self._context.say("writing the baseline")
        self._context.open_sender()
        changelog.write_baseline(self._context.slice_run)
