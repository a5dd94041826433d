"""The life of an epoch that is not live: the stages of a replay, and the wait beside the live epoch."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from kappa.driver import consumer_group
from kappa.driver.attempts import SHRINK, Attempts
from kappa.driver.driven_epoch import DrivenEpoch
from kappa.driver.handovers.handover import Handover
from kappa.driver.lazy_engines import LazyEngines
from kappa.driver.merges import Merges
from kappa.driver.slicing import Slices
from kappa.driver.voice import Voice
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
from kappa.verify.second_run import SecondRun

#: Lag in offsets up to which a candidate counts as caught up, as a share of a slice.
CAUGHT_UP_SHARE = 0.1


class Replay:
    """What the driver of a candidate, or of a retired epoch that is kept running, does next.

    Args:
        handover: the epoch's part in handovers.
    """

    def __init__(
        self,
        epoch: DrivenEpoch,
        engines: LazyEngines,
        voice: Voice,
        merges: Merges,
        attempts: Attempts,
        slices: Slices,
        handover: Handover,
    ) -> None:
        self._epoch = epoch
        self._engines = engines
        self._voice = voice
        self._merges = merges
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
        epoch, engines, voice = self._epoch, self._engines, self._voice
        voice.say("rewinding")
        ownership.claim(engines.broker, epoch.paths, epoch.epochs.lake_id())
        if not versioned_topics.put_names_on_record(epoch.epochs, engines.broker, epoch.topology, epoch.paths):
            return
        consumer_group.set_offsets(epoch, engines.broker, epoch.plan.start)
        crash_point("rewind.group")
        changelog.create_topics(engines.broker, epoch.topology, epoch.paths, epoch.partitions(engines.broker))
        versioned_topics.create_topics(engines.broker, epoch.topology, epoch.paths, epoch.partitions(engines.broker))
        crash_point("rewind.topics")
        epoch.event("rewound", group=epoch.paths.name)

    def _seed(self) -> None:
        epoch, engines, voice = self._epoch, self._engines, self._voice
        voice.say(f"seeding {epoch.plan.seed}")
        source = SeedSource.of_plan(epoch.plan, is_first=epoch.plan.request.adoption is not None)
        start, is_done = time.monotonic(), bool(epoch.ledger.state().commits)
        seed(engines.slice_run, source, epoch.plan.start)
        folded = (
            {} if is_done else measurements.folded(engines.broker, epoch.paths, epoch.plan, time.monotonic() - start)
        )
        crash_point("seeded")
        voice.exporter.stands_at(epoch.ledger.state().committed)
        # Here, where there is a JVM anyway, and before hours of replay: a plan is made without one.
        findings = inspected(engines.session, epoch.topology)
        for finding in findings:
            voice.log.warning("finding", code=finding.code, message=finding.message)
        epoch.event("seeded", findings=[finding.as_dict() for finding in findings], **folded)

    def _replay(self, record: TopologyRecord) -> None:
        """Bounded slices from the start to the frozen end; the first epoch of a topology goes live instead."""
        epoch, voice, merges = self._epoch, self._voice, self._merges
        state = epoch.ledger.begun()
        if state.seq == 0:
            consumer_group.check(epoch, self._engines.broker)
        if epoch.topology.versioned_topics and state.baseline_seq is None:
            # Now, not before the cutover: what a slice sends is one transaction with its changelog and marker.
            self._baseline()
            return
        if record.live is None:
            self._handover.go_live_first(record, state)
            return
        if state.position == epoch.plan.end:
            self._replayed(record, state)
            return
        self._throttle(record)
        if not self._may_read_on(record):
            voice.say(f"waiting: live epoch {record.live}, which says where partitions are idle, has not read so far")
            merges.idle()
            return
        self._slices.bulk(state)

    def _may_read_on(self, record: TopologyRecord) -> bool:
        """Whether the live epoch has read what a replay is to read next: where partitions are idle, it says when."""
        epoch = self._epoch
        if not epoch.topology.has_idle_partitions or record.live is None:
            return True
        theirs = epoch.live_ledger(record).begun().standing
        end = epoch.plan.end
        return theirs.beside(end).dominates(end.beside(theirs))

    def _replayed(self, record: TopologyRecord, state: LedgerState) -> None:
        """The range is computed; where the plan says so it is computed a second time first, slice by slice."""
        epoch, engines, voice = self._epoch, self._engines, self._voice
        detail: dict[str, Any] = {"seq": state.seq, "throttled_seconds": round(self._throttled, 3)}
        if epoch.plan.request.determinism:
            voice.say("computing the range again")
            self._throttle(record)
            determinism = self._second_run.advance(
                engines.time_index(), most=self._second_size, check=partial(epoch.check_low, engines.broker)
            )
            self._attempts.committed()
            if determinism is None:
                return
            detail["determinism"] = determinism.as_dict()
            voice.log.info("computed twice", is_same=determinism.is_same, failures=list(determinism.failures))
        epoch.event("replayed", **detail, **measurements.replayed(epoch.paths, epoch.plan, state))
        if epoch.plan.request.determinism:
            crash_point("recomputed.record")
            self._second_run.close()

    @cached_property
    def _second_run(self) -> SecondRun:
        """The range of the plan, computed again."""
        return SecondRun(self._engines.slice_run, self._epoch.plan)

    @property
    def _second_size(self) -> int:
        """Most offsets of a slice of the second run: fewer after one of them failed twice."""
        most = self._epoch.plan.request.slice_records
        return most if self._attempts.failures < 2 else max(1, most // SHRINK)

    def _throttle(self, record: TopologyRecord) -> None:
        """Leave the machine to a live stream that is far behind, but never for longer than the last two slices took.

        A live epoch whose driver does not run gets nothing from it.
        """
        epoch, engines, voice = self._epoch, self._engines, self._voice
        live = epoch.live_paths(record)
        deadline = time.monotonic() + 2 * self._slices.seconds
        start = time.monotonic()
        while time.monotonic() < deadline and not voice.stop_reason:
            sign = liveness.look(live.heartbeat, epoch.config.stale_seconds)
            position = epoch.live_ledger(record).begun().position
            end = (
                engines.broker.stable_offsets(position.topics)
                if epoch.is_chained(record)
                else epoch.stable(engines.broker, position)
            )
            lag = position.count_to(position.merge(end))
            if lag <= epoch.config.throttle_lag or not sign.may_live:
                break
            voice.say(f"pausing: the live stream is {lag:,} offsets behind")
            time.sleep(min(1.0, 2 * self._slices.seconds))
        self._throttled += time.monotonic() - start

    def _follow(self, record: TopologyRecord, epoch: EpochRecord) -> None:
        """Slices that end on commits of the live epoch, held, until the lag is small."""
        voice = self._voice
        if epoch.is_recalled:
            self._handover.get_ready(record)  # before it says that it can take over
        has_moved = self._slices.follow(record, "catching up")
        if not has_moved and not self._epoch.plan.bound:
            if self._is_level(record):
                self._epoch.event("caught_up", seq=self._epoch.ledger.state().seq)
                return
            # It read a topic alone before an epoch went live that reads it too: it has not sent what lies ahead.
            voice.say(f"ahead of live epoch {record.live}: waiting until that has read so far")
            self._merges.idle()
            return
        lag = self._epoch.lag_to_live(self._engines.broker, record)
        is_near = lag <= self._epoch.plan.request.slice_records * CAUGHT_UP_SHARE
        # It may be between two commits of the live epoch, where nothing can be compared.
        if is_near and self._is_level(record) and self._epoch.has_read_what_was_sent(record):
            self._epoch.event("caught_up", seq=self._epoch.ledger.state().seq, lag=lag)
        elif not has_moved:
            voice.say("waiting for the epochs that it reads to come to where the live epoch stands")
            time.sleep(self._epoch.config.idle_seconds)

    def _is_level(self, record: TopologyRecord) -> bool:
        """Whether the epoch stands where a commit of the live epoch stands."""
        standing = self._epoch.ledger.begun().standing
        commits = reversed(self._epoch.live_ledger(record).state().commits)
        return any(is_at(row.standing, standing, is_bound=self._epoch.is_chained(record)) for row in commits)

    def _keep_up(self, record: TopologyRecord) -> None:
        """Retired and kept running: follow the live epoch, held, so that a rollback finds it where it has to be."""
        if not self._slices.follow(record, "following, retired"):
            self._voice.say("following, retired")
            self._merges.idle()

    def _verify(self, record: TopologyRecord, epoch: EpochRecord) -> None:
        from kappa.verify.diff import verify

        engines, voice = self._engines, self._voice
        state = self._epoch.ledger.begun()
        live, theirs = self._epoch.live_paths(record), self._epoch.live_ledger(record).state()
        commits = [
            theirs.resolved(row)
            for row in theirs.commits
            if is_at(row.standing, state.standing, is_bound=self._epoch.is_chained(record))
        ]
        if not commits:
            raise LedgerError(
                f"No commit of live epoch {record.live} ends at {state.standing.to_json()}: nothing to compare with."
            )
        self._handover.get_ready(record)
        voice.say("verifying")
        limits = {**limits_of(self._epoch.topology.thresholds), **limits_of(self._epoch.plan.request.thresholds)}
        own_side = (self._epoch.paths, state.committed)
        shapes = tables_only(self._epoch.live_ledger(record).state().shapes)
        keys = {place.removeprefix("tables/"): shape.typed_key for place, shape in shapes.items()}
        by_origin = topics_of(self._epoch.plan.bound) == topics_of(record.epoch(live.epoch).bound)
        comparison = verify(
            engines.session,
            self._epoch.topology,
            (live, commits[-1]),
            own_side,
            limits=limits,
            keys=keys,
            by_origin=by_origin,
            unjudged=self._unjudged(theirs),
            since=later(ranges_end(theirs.commits[0].ranges), ranges_end(state.commits[0].ranges)),
        )
        alone = self._slices.decisions.alone(record, live.epoch)
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
        self._epoch.event("verified", verdict=report.verdict, report=report.to_json(), live_epoch=record.live)

    def _aside_notes(self, live: int, alone: SetAsides) -> Iterable[str]:
        """What a reader of the comparison must know of records that were set aside."""
        plan, epoch = self._epoch.plan, self._epoch.paths.epoch
        if alone:
            whys = "; ".join(sorted({one.reason for one in alone}))
            yield f"Epoch {epoch} alone sets aside {set_asides.described(alone)} ({whys}): its rows lack them."
        if plan.brought_in:
            yield f"Epoch {epoch} brings in {set_asides.described(plan.brought_in)}, which epoch {live} set aside."

    def _unjudged(self, live: LedgerState) -> frozenset[str]:
        """Tables and outputs whose rows depend on cuts that this epoch does not share with the live one."""
        epoch = self._epoch
        if epoch.plan.request.cuts == "live":
            return frozenset()
        return epoch.topology.depending_on_cuts(by_arrival=is_cut_by_arrival(live))

    def _wait_for_handover(self, record: TopologyRecord) -> None:
        """Follow the live epoch, held, with the changelog kept up, until it hands over."""
        epoch, voice, merges = self._epoch, self._voice, self._merges
        state = epoch.ledger.state()
        if state.baseline_seq is None:
            self._baseline()
            return
        self._handover.get_ready(record)
        if record.handover is None:
            self._handover.prepare(record)
        if self._slices.follow(record, "following"):
            return
        handover = record.handover
        if handover is not None and handover.epoch == epoch.paths.epoch:
            self._handover.take_over(record, handover)
            return
        voice.say("following, held")
        merges.idle()

    def _baseline(self) -> None:
        self._voice.say("writing the baseline")
        self._engines.open_sender()
        changelog.write_baseline(self._engines.slice_run)
