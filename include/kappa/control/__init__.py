"""What people and schedulers can do to a topology: start, stop, plan, replay, cut over, roll back, abort, retire.

Free functions over the record of epochs and the ledgers; none needs a JVM. Each is idempotent, and whatever is interrupted
in the middle is finished by calling it again. The work itself is done by drivers, which find what to do on record.
"""

from __future__ import annotations

import dataclasses
import shutil
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from kappa import clock
from kappa.config import Config
from kappa.control import approval
from kappa.control import housekeeping as house
from kappa.control.housekeeping import Found, Leftover
from kappa.control.planning import survey
from kappa.driver.process import DriverStatus, await_end, driver_status, ensure_driver, wanted_drivers
from kappa.errors import IllegalTransitionError, MoveRefusedError, RefusedError, UnknownEpochError, UsageError
from kappa.faults import crash_point
from kappa.kafka.broker import Broker
from kappa.lake import code as code_store
from kappa.lake.chains import check_bindings, check_moves, check_removal
from kappa.lake.epochs import EpochRecord, Epochs, Event, TopologyRecord, record_of
from kappa.lake.history import Entry, entries
from kappa.lake.ledger import Ledger
from kappa.lake.moves import asked, others_of, together_of, withdrawals
from kappa.names import EpochPaths, code_file, plan_file
from kappa.offsets.vector import Offsets, ranges_end
from kappa.replay.certificate import Certificate
from kappa.replay.dry_run import about_to
from kappa.replay.findings import Finding
from kappa.replay.plan import ReplayPlan, build_plan
from kappa.replay.request import ReplayRequest
from kappa.replay.rules.cutover import can_take_over, pending_refusal
from kappa.replay.stages import Stage
from kappa.replay.starts import FromMarker, ToEarliest
from kappa.replay.verdict import DiffReport
from kappa.slices import ownership, turns
from kappa.slices.changelog import read_marker
from kappa.slices.turns import last_live_marker
from kappa.slices.versioned_topics import needed_topics
from kappa.verify.attestation import attested_if_asked
from kappa.verify.certificate import certificate_of
from kappa.verify.measurements import outcome

__all__ = [
    "DriverStatus",
    "Progress",
    "TopologyStatus",
    "abort",
    "approval_terms",
    "await_end",
    "certify",
    "chronicle",
    "clean",
    "cut_over",
    "diff",
    "driver_status",
    "ensure_driver",
    "history",
    "housekeeping",
    "plan",
    "previous",
    "progress",
    "rebuild_request",
    "replay",
    "retire",
    "rollback",
    "start",
    "status",
    "stop",
    "supersede",
    "want",
    "wanted_drivers",
]


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far an epoch is.

    Attributes:
        topology: the topology.
        epoch: the epoch.
        stage: the stage it reached.
        done: offsets processed of the plan's bulk work.
        total: offsets of the plan's bulk work.
        records_per_second: rate of the last slice.
        seconds_left: of the bulk work, at that rate.
        verdict: of the verification, once there is one.
        is_live: whether readers get this epoch.
        is_caught_up: whether it follows the live epoch and can take over.
        is_wanted: whether its driver should be running.
        driver: its driver.
        outcome: what was estimated of its bulk work and what it was, once that is done.
        rejected: who rejected it and when; empty for one that was not.
        is_recalled: whether it was retired and is being brought back.
    """

    topology: str
    epoch: int
    stage: Stage
    done: int
    total: int
    records_per_second: float | None
    seconds_left: float | None
    verdict: str | None
    is_live: bool
    is_caught_up: bool
    is_wanted: bool
    driver: DriverStatus
    outcome: str = ""
    rejected: str = ""
    is_recalled: bool = False

    @property
    def doing(self) -> str:
        """What is being done, how far it is, and the stage that it comes after; one line."""
        now = self.rejected or self.driver.message or self.driver.state
        share = f", {100 * self.done / self.total:.0f} % of the plan's range" if self.done < self.total else ""
        rate = f", {self.records_per_second:,.0f} records/s" if share and self.records_per_second else ""
        left = f", {self.seconds_left:.0f} s left" if self.seconds_left else ""
        return f"epoch {self.epoch}: {now}{share}{rate}{left}; reached {self.stage}"

    @property
    def message(self) -> str:
        """One line for people."""
        rate = f", {self.records_per_second:,.0f} records/s" if self.records_per_second else ""
        share = f" {100 * self.done / self.total:.0f} %" if self.total else ""
        left = f", {self.seconds_left:.0f} s left" if self.seconds_left else ""
        doing = self.rejected or self.driver.message or self.driver.state
        return f"epoch {self.epoch} {self.stage}{share}{rate}{left}: {doing}"


@dataclass(frozen=True, kw_only=True)
class TopologyStatus:
    """A topology and its epochs.

    Attributes:
        topology: its name.
        live: the live epoch.
        epochs: progress of each epoch, oldest first.
        moving_with: topology -> epoch of those that shall go live together with its candidate, while that is pending.
        moved_with: topology -> epoch of those that went live together with its live epoch.
        topics: topic output -> the live epoch's own topic, for those that are versioned.
        reads: epoch -> the own topics of other topologies that it reads, of epochs that have not ended.
    """

    topology: str
    live: int | None
    epochs: tuple[Progress, ...]
    moving_with: Mapping[str, int] = field(default_factory=dict)
    moved_with: Mapping[str, int] = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)
    reads: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


def start(
    config: Config, topology: str, *, epoch: int | None = None, actor: str, reason: str = "start", allow: Collection[str] = ()
) -> int:  # fmt: skip
    """See to it that an epoch's driver runs, by default the live one's; a stuck driver tries again.

    A topology that was never live gets its first epoch, from the beginning of its topics. A rejected epoch that is named is
    taken up again. Otherwise the driver is started
    with the code that the epoch recorded: new code comes by a replay.

    Args:
        config: where everything is.
        topology: the topology.
        epoch: the epoch; None for the live one, or the first.
        actor: who.
        reason: why.
        allow: codes of findings that warn instead of refusing the first epoch.

    Returns:
        The epoch whose driver runs: the live one, one that will be, or the one asked for.

    Raises:
        IllegalTransitionError: the epoch asked for has ended or is retired.
        RefusedError: the first epoch cannot be planned, the broker knows epochs that this lake does not, or the epoch was rebuilt
            in another lake.
        UnknownEpochError: there is no such epoch.
    """
    epochs = Epochs(config.lake)
    record = epochs.record(topology)
    known = [record.live, record.candidate.epoch if record.candidate is not None else None]
    chosen = next((n for n in (epoch, *known) if n is not None), None)
    if chosen is None:
        turns.check_not_lost(config, record, epochs.lake_id())
        request = ReplayRequest(
            topology=topology, start=ToEarliest(), reason=reason, actor=actor, slice_records=config.slice_records,
            allow=frozenset(allow),
        )  # fmt: skip
        return replay(config, plan(config, request), actor=actor, reason=reason)
    found = record.epoch(chosen)
    if found.superseded is not None:
        raise RefusedError(found.superseded.reason, findings=(), epoch=chosen, **found.superseded.detail)
    if found.rejected is not None:
        approval.reopen(config, topology, chosen, actor=actor, reason=reason)
        ensure_driver(config, topology, chosen)
        return chosen
    if chosen not in known and not found.is_kept:
        way = f" kappa rollback {topology} brings it back." if found.stage is Stage.RETIRED else ""
        raise IllegalTransitionError(
            f"Epoch {chosen} of {topology!r} is {found.stage}: it needs no driver.{way}", epoch=chosen
        )
    want(epochs, topology, chosen, actor, reason)
    ensure_driver(config, topology, chosen)
    return chosen


def stop(config: Config, topology: str, *, epoch: int | None = None, actor: str, reason: str) -> int:
    """Tell an epoch's driver, by default the live one's, to stop at the next slice boundary.

    Returns:
        The epoch.
    """
    epochs = Epochs(config.lake)
    record = epochs.record(topology)
    chosen = epoch if epoch is not None else record.live_epoch()
    if record.epoch(chosen).is_wanted:
        epochs.add(topology, chosen, "stop", actor=actor, reason=reason)
    return chosen


def plan(config: Config, request: ReplayRequest, *, step: tuple[Finding, ...] = ()) -> ReplayPlan:
    """What a replay would do, and what speaks against it. Changes nothing.

    Args:
        config: where everything is.
        request: what is asked for.
        step: what :func:`kappa.verify.inspection.inspect_deployed` found, if somebody had it look.

    Raises:
        BrokerUnreachableError: Kafka does not answer.
    """
    with Broker(config.bootstrap_servers) as broker:
        now = clock.now()
        return build_plan(request, survey(config, broker, Epochs(config.lake), request, now=now, step=step), now=now)


def replay(config: Config, plan: ReplayPlan, *, actor: str, reason: str) -> int:
    """Put a plan on record and start the candidate's driver; returns the epoch.

    Idempotent for one plan. A crash before the record leaves a plan file and a code file that nobody refers to.

    Raises:
        RefusedError: the plan is refused, or what it was made from changed since.
    """
    epochs = Epochs(config.lake)
    known = [e for e in epochs.record(plan.topology).epochs.values() if e.planned.detail["plan_id"] == plan.id]
    if known:
        is_over = known[-1].stage.is_ended or known[-1].stage is Stage.RETIRED or known[-1].rejected is not None
        if not is_over:
            ensure_driver(config, plan.topology, known[-1].epoch)
        return known[-1].epoch
    plan.check()
    _check_code(plan, code_store.snapshot(config.topologies, plan.topology)[0])

    def decide(events: list[Event]) -> Sequence[Event]:
        record = epochs.record(plan.topology)
        if record.candidate is not None:
            raise RefusedError(
                f"Epoch {record.candidate.epoch} of {plan.topology!r} is being built already (by {record.candidate.planned.actor}). Cut it over or abort it first.",
                findings=(),
            )
        check_bindings(events, plan.bound, is_first=record.live is None)
        if record.live != plan.live_epoch or plan.epoch in record.epochs:
            raise RefusedError(
                f"The live epoch of {plan.topology!r} is {record.live}, the plan expects {plan.live_epoch}. Plan again.",
                findings=(),
            )
        detail = {
            "plan": plan.to_json(), "plan_id": plan.id, "code": plan.code, "version": plan.topology_version, "start": plan.start.to_json(),
            "origin": plan.origin.to_json(), "live": plan.live_epoch,
        }  # fmt: skip
        return [
            Event(
                topology=plan.topology,
                epoch=plan.epoch,
                event="planned",
                at=clock.now(),
                actor=actor,
                reason=reason,
                detail=detail,
            )
        ]

    decide(epochs.events())  # a refused replay leaves no file
    about_to(f"build epoch {plan.epoch} of {plan.topology}")
    _check_code(plan, code_store.store(config.lake, config.topologies, plan.topology))
    _write(plan_file(config.lake, plan.id), plan.to_json())
    epochs.append(decide)
    ensure_driver(config, plan.topology, plan.epoch)
    return plan.epoch


def _check_code(plan: ReplayPlan, found: str) -> None:
    if found != plan.code:
        raise RefusedError(
            f"The code of {plan.topology!r} changed since the plan was made ({plan.code[:12]} then, {found[:12]} now). "
            f"Plan again: kappa plan {plan.topology}",
            findings=(),
        )


def rebuild_request(config: Config, topology: str, *, actor: str, reason: str) -> ReplayRequest:
    """A request to rebuild a topology's tables from the changelog of the epoch that sent last.

    With a live epoch on record only epochs of this lake count. Without one the lake was lost, or is new: then an epoch of
    another lake is taken over, and :func:`supersede` ends it first.

    Raises:
        UnknownEpochError: no epoch left a marker of a slice that sent.
    """
    epochs = Epochs(config.lake)
    lake = epochs.lake_id() if epochs.record(topology).live is not None else None
    with Broker(config.bootstrap_servers) as broker:
        found = last_live_marker(config, broker, topology, lake=lake)
    if found is None:
        raise UnknownEpochError(
            f"No epoch of {topology!r} left a marker on {config.bootstrap_servers}: there is nothing to rebuild from.",
            topology=topology,
        )
    return ReplayRequest(
        topology=topology,
        start=FromMarker(epoch=found[0]),
        reason=reason,
        actor=actor,
        slice_records=config.slice_records,
    )


def supersede(config: Config, plan: ReplayPlan) -> None:
    """Before a rebuild in a lake that has no live epoch: end the epoch that it is built from, wherever its driver is.

    Idempotent; see :func:`kappa.slices.turns.supersede`. What its driver committed last counts: plan again afterwards.

    Raises:
        RefusedError: the plan is refused.
        ConflictError: a driver of that epoch does not end.
    """
    plan.check()
    assert plan.seed_epoch is not None
    turns.supersede(config, plan.topology, plan.seed_epoch, by=plan.epoch)


def progress(config: Config, topology: str, epoch: int) -> Progress:
    """How far an epoch is; costs about 20 ms.

    Raises:
        UnknownEpochError: there is no such epoch.
    """
    record = Epochs(config.lake).record(topology)
    return _progress(config, record, record.epoch(epoch))


def status(config: Config, topology: str) -> TopologyStatus:
    """A topology's epochs and their drivers."""
    record = Epochs(config.lake).record(topology)
    return TopologyStatus(
        topology=topology,
        live=record.live,
        moving_with=others_of(topology, record.handover),
        moved_with=others_of(topology, record.moves[-1] if record.moves else None),
        epochs=tuple(_progress(config, record, e) for _, e in sorted(record.epochs.items())),
        topics=record.epoch(record.live).topics if record.live is not None else {},
        reads={
            number: tuple(sorted(binding.topic for binding in epoch.bound.values()))
            for number, epoch in sorted(record.epochs.items())
            if epoch.bound and not epoch.stage.is_ended
        },
    )


def cut_over(
    config: Config,
    topology: str,
    epoch: int,
    *,
    actor: str,
    reason: str,
    accept_verdict: bool = False,
    keep_old_running: bool = False,
    is_approval_required: bool = False,
) -> None:
    """Ask the live epoch to hand over to another one, which then moves the pointer by compare-and-set.

    Returns at once; watch :func:`progress` until the epoch is live. Idempotent. When the new epoch does not take over in
    time the old one withdraws the handover and goes on.

    Args:
        config: where everything is.
        topology: the topology.
        epoch: the epoch that shall be live.
        actor: who.
        reason: why.
        accept_verdict: move readers although the verification failed; needs a reason, and is on record with it.
        keep_old_running: whether the old epoch's driver follows the new one afterwards, sending nothing, so that a rollback
            need not catch up first.
        is_approval_required: whether the epoch must have been approved.

    Raises:
        MoveRefusedError: another handover is pending, the verification failed, a live epoch would be left reading one that stops, the
            epoch was rejected or is not approved, or it is not what was approved.
        UsageError: a failed verdict is accepted without a reason.
        IllegalTransitionError: the epoch has not been verified.
    """
    epochs = Epochs(config.lake)

    def decide(events: list[Event]) -> Sequence[Event]:
        record = epochs.record(topology)
        wanted = record.epoch(epoch)
        if record.live == epoch:
            return []
        if record.handover is not None:
            if record.handover.epoch == epoch and not together_of(record.handover):
                return []
            raise MoveRefusedError(pending_refusal(topology, asked(record.handover)))
        detail: dict[str, Any] = {"from": record.live, "keep_old_running": keep_old_running}
        if not can_take_over(wanted.stage, is_recalled=wanted.is_recalled):
            raise IllegalTransitionError(
                f"Epoch {epoch} of {topology!r} is {wanted.stage}: it can take over once it is VERIFIED."
            )
        is_failed = wanted.verified is not None and wanted.verified.detail["verdict"] == "failed"
        if is_failed and not wanted.is_recalled:
            _check_accepted(wanted, topology, reason, accept_verdict)
            detail["accepted_verdict"] = "failed"
        detail |= approval.check(record, epoch, is_required=is_approval_required)
        check_moves(events, {topology: epoch})
        return [
            Event(
                topology=topology,
                epoch=epoch,
                event="handover",
                at=clock.now(),
                actor=actor,
                reason=reason,
                detail=detail,
            )
        ]

    epochs.append(decide)
    record = epochs.record(topology)
    ensure_driver(config, topology, epoch)
    if record.handover is not None and record.live is not None:
        want(epochs, topology, record.live, actor, "handover")
        ensure_driver(config, topology, record.live)


def approval_terms(config: Config, topology: str, epoch: int) -> approval.Terms:
    """What an approval of an epoch would be bound to now; see :func:`kappa.control.approval.terms`."""
    return approval.terms(Epochs(config.lake).record(topology), epoch)


approve, reject = approval.approve, approval.reject


def rollback(config: Config, topology: str, *, to: int | None = None, actor: str, reason: str) -> int:
    """Bring a retired epoch back: its driver follows the live one until it can take over; then :func:`cut_over`.

    Returns at once. Idempotent while the epoch is on its way.

    Args:
        config: where everything is.
        topology: the topology.
        to: the epoch; None for the one that was live before.
        actor: who.
        reason: why.

    Returns:
        The epoch that will be live.

    Raises:
        UnknownEpochError: no epoch was live before, or it was retired for good.
        RefusedError: another epoch is being built.
        MoveRefusedError: the topology is being handed over together with others, or one that reads it has to go back as well.
    """
    epochs = Epochs(config.lake)
    chosen: list[int] = []

    def decide(events: list[Event]) -> Sequence[Event]:
        record = epochs.record(topology)
        candidate = record.candidate
        if together_of(record.handover) and record.handover is not None:
            raise MoveRefusedError(pending_refusal(topology, asked(record.handover)))
        if candidate is not None and candidate.is_recalled and to in (None, candidate.epoch):
            chosen.append(candidate.epoch)
            return []
        chosen.append(to if to is not None else previous(record))
        target = record.epoch(chosen[-1])
        if record.live == target.epoch:
            return []
        if candidate is not None:
            raise RefusedError(
                f"Epoch {candidate.epoch} of {topology!r} is being built. Abort it first: kappa abort {topology} {candidate.epoch} --execute",
                findings=(),
            )
        check_moves(events, {topology: target.epoch})
        return [
            Event(
                topology=topology,
                epoch=target.epoch,
                event="recalled",
                at=clock.now(),
                actor=actor,
                reason=reason,
                detail={"live": record.live},
            )
        ]

    epochs.append(decide)
    ensure_driver(config, topology, chosen[-1])
    return chosen[-1]


def abort(config: Config, topology: str, epoch: int, *, actor: str, reason: str) -> None:
    """Give a candidate up and remove what it left: files, topics, group, and its plan and code if nobody else has them.

    If it waits to go live together with others, their handovers are withdrawn in the same commit: all move or none.
    Idempotent; after a crash call it again. An epoch that was live before is not removed: it is retired again.

    Raises:
        IllegalTransitionError: the epoch is live.
        RefusedError: an epoch of another topology reads its own topics.
    """
    epochs = Epochs(config.lake)

    def decide(events: list[Event]) -> Sequence[Event]:
        record = record_of(topology, events)
        target = record.epoch(epoch)
        if record.live == epoch:
            raise IllegalTransitionError(
                f"Epoch {epoch} of {topology!r} is live: it cannot be aborted. Roll back to another first."
            )
        if target.stage.is_ended:
            return []
        if target.moved is None:
            check_removal(events, topology, epoch)
        event = "released" if target.moved is not None else "aborted"
        mine = Event(topology=topology, epoch=epoch, event=event, at=clock.now(), actor=actor, reason=reason)
        handover = record.handover
        if handover is None or handover.epoch != epoch or not together_of(handover):
            return [mine]
        why = f"epoch {epoch} of {topology!r} was {event}"
        others = withdrawals(events, handover, actor=actor, reason=why)
        return [*(other for other in others if other.topology != topology), mine]

    epochs.append(decide)
    await_end(config, topology, epoch)
    if epochs.record(topology).epoch(epoch).stage is Stage.ABORTED:
        _remove(config, epochs, topology, epoch)


def retire(config: Config, topology: str, epoch: int, *, actor: str, reason: str) -> None:
    """Remove a retired epoch for good: there is no rollback to it any more. Never a live one. Idempotent.

    Raises:
        IllegalTransitionError: the epoch is live or being built.
        RefusedError: an epoch of another topology reads its own topics.
    """
    epochs = Epochs(config.lake)

    def decide(events: list[Event]) -> Sequence[Event]:
        target = epochs.record(topology).epoch(epoch)
        if target.stage is Stage.DROPPED:
            return []
        if target.stage is not Stage.RETIRED or target.is_recalled:
            raise IllegalTransitionError(
                f"Epoch {epoch} of {topology!r} is {target.stage}; only a RETIRED one can be removed."
            )
        check_removal(events, topology, epoch)
        return [Event(topology=topology, epoch=epoch, event="dropped", at=clock.now(), actor=actor, reason=reason)]

    epochs.append(decide)
    await_end(config, topology, epoch)
    _remove(config, epochs, topology, epoch)


def housekeeping(config: Config) -> Found:
    """What is left over in the lake, on the broker and below home, and what looks so and stays. Changes nothing.

    Raises:
        BrokerUnreachableError: Kafka does not answer.
    """
    with Broker(config.bootstrap_servers) as broker:
        names = [
            *(("topic", name) for name in broker.topics()),
            *(("group", name) for name in broker.groups("kappa.")),
        ]
        epochs = Epochs(config.lake)  # after the names: an epoch is put on record before it has any

        def last_sender(topology: str) -> int | None:
            found = last_live_marker(config, broker, topology)
            return found[0] if found else None

        def maker(topology: str, number: int) -> str | None:
            marker = read_marker(broker, EpochPaths(lake=config.lake, topology=topology, epoch=number))
            return marker.lake or None if marker is not None else None

        records = {name: epochs.record(name) for name in epochs.topologies()}
        lake = epochs.lake_id() if records else ""
        now = clock.now()
        found = house.find(config, names, records, last_sender, maker, lake, now)
        over = approval.expired(config, records.values(), now)
        return dataclasses.replace(found, leftovers=(*over, *found.leftovers))


def clean(config: Config, leftovers: Sequence[Leftover]) -> tuple[Leftover, ...]:
    """Remove leftovers; those that were removed.

    Looks again first, and removes none that is needed by now. Idempotent, and two at once harm nothing; after a crash
    call it again.

    Raises:
        BrokerUnreachableError: Kafka does not answer.
    """
    still = {(item.kind, item.name) for item in housekeeping(config).leftovers}
    chosen = [item for item in leftovers if (item.kind, item.name) in still]
    rejected = [item for item in chosen if item.kind == approval.REJECTED]
    for item in rejected:
        topology, _, epoch = item.name.rpartition(" ")
        abort(config, topology, int(epoch), actor="housekeeping", reason=item.reason)
    others = [item for item in chosen if item.kind != approval.REJECTED]
    return (*rejected, *house.remove(config, others, clock.now()))


def diff(config: Config, topology: str, epoch: int | None = None) -> DiffReport:
    """The report of an epoch's last verification, by default the candidate's or the live one's.

    Raises:
        UnknownEpochError: the epoch has not been verified.
    """
    record = Epochs(config.lake).record(topology)
    chosen = epoch if epoch is not None else (record.candidate.epoch if record.candidate else record.live)
    found = record.epoch(chosen) if chosen is not None else None
    if found is None or found.verified is None:
        raise UnknownEpochError(
            f"Epoch {chosen} of {topology!r} has not been verified: there is no difference to show.", epoch=chosen
        )
    return DiffReport.from_json(found.verified.detail["report"])


def certify(config: Config, topology: str) -> Certificate:
    """Of which offsets the served tables are a view, and that each was sent by exactly one epoch; Kafka is asked too.

    Raises:
        UnknownTopologyError: the topology has no live epoch.
    """
    record = Epochs(config.lake).record(topology)
    record.live_epoch()
    return attested_if_asked(certificate_of(config.lake, record), config, topology)


def history(config: Config, topology: str | None = None) -> list[Event]:
    """Every event on record, oldest first."""
    return [event for event in Epochs(config.lake).events() if topology in (None, event.topology)]


def chronicle(
    config: Config, topology: str | None = None, *, epoch: int | None = None, since: datetime | None = None
) -> tuple[Entry, ...]:
    """Every move and decision on record, oldest first, with plans, offsets, verdicts, reports and certificates.

    Args:
        config: where everything is.
        topology: of this topology; None for all.
        epoch: of epochs of this number.
        since: from this time on.
    """
    return entries(Epochs(config.lake).events(), topology=topology, epoch=epoch, since=since)


def previous(record: TopologyRecord) -> int:
    """The epoch that was live before, or before that one where it was removed.

    Raises:
        UnknownEpochError: there is none.
    """
    for move in reversed(record.moves[:-1]):
        if move.epoch != record.live and record.epoch(move.epoch).stage is Stage.RETIRED:
            return move.epoch
    raise UnknownEpochError(
        f"Topology {record.topology!r} has no retired epoch to go back to.", topology=record.topology
    )


def _check_accepted(epoch: EpochRecord, topology: str, reason: str, is_accepted: bool) -> None:
    assert epoch.verified is not None
    if not is_accepted:
        report = epoch.verified.detail.get("report")
        failures = "; ".join(DiffReport.from_json(report).failures) if report else ""
        raise MoveRefusedError(
            f"The verification of epoch {epoch.epoch} of {topology!r} failed{f': {failures}' if failures else ''}. See it: kappa diff {topology} "
            f"{epoch.epoch}. To move readers all the same: kappa cutover {topology} --accept-verdict {topology} --reason '...' --execute",
            failures=failures,
        )  # fmt: skip
    if not reason.strip():
        raise UsageError("A failed verdict is accepted for a reason, which stays on record: give --reason.")


def want(epochs: Epochs, topology: str, epoch: int, actor: str, reason: str) -> None:
    """Put on record that an epoch's driver shall run; idempotent. A ``start`` also lets a stuck one try again.

    One that was retired since it was looked at is left alone: it would follow on without having been asked to.
    """

    def decide(events: list[Event]) -> Sequence[Event]:
        record = record_of(topology, events)
        target = record.epoch(epoch)
        if target.stage is Stage.RETIRED and not target.is_recalled and not target.is_wanted:
            return []
        is_stuck = any(e.event == "stuck" for e in record.events if e.epoch == epoch)
        if target.is_wanted and (reason == "handover" or not is_stuck):
            return []
        return [Event(topology=topology, epoch=epoch, event="start", at=clock.now(), actor=actor, reason=reason)]

    epochs.append(decide)


def _progress(config: Config, record: TopologyRecord, epoch: EpochRecord) -> Progress:
    driver = driver_status(config, record.topology, epoch.epoch)
    plan_ = ReplayPlan.from_json(epoch.planned.detail["plan"])
    total = plan_.start.count_to(plan_.end)
    row = Ledger(EpochPaths(lake=config.lake, topology=record.topology, epoch=epoch.epoch).ledger).last_commit()
    done = min(total, _read(plan_.start, ranges_end(row.ranges))) if row else 0
    rate = driver.records_per_second if driver.is_running else None
    return Progress(
        topology=record.topology, epoch=epoch.epoch, stage=epoch.stage, done=done, total=total, records_per_second=rate,
        seconds_left=(total - done) / rate if rate and done < total else None,
        verdict=epoch.verified.detail["verdict"] if epoch.verified else None, is_live=record.live == epoch.epoch,
        is_caught_up=can_take_over(epoch.stage, is_recalled=epoch.is_recalled), is_wanted=epoch.is_wanted, driver=driver, outcome=outcome(epoch),
        rejected=approval.described(epoch.rejected) if epoch.rejected is not None and not epoch.stage.is_ended else "",
        is_recalled=epoch.is_recalled,
    )  # fmt: skip


def _read(start: Offsets, position: Offsets) -> int:
    return sum(offset - (start.get(*at) or 0) for at, offset in position.items())


def _remove(config: Config, epochs: Epochs, topology: str, epoch: int) -> None:
    """Remove what an epoch left on the broker and in the lake."""
    about_to(f"remove what is left of epoch {epoch} of {topology}")
    crash_point("removal.record")
    paths = EpochPaths(lake=config.lake, topology=topology, epoch=epoch)
    gone = epochs.record(topology).epoch(epoch)
    needed = needed_topics(map(epochs.record, epochs.topologies()))  # a name may be another epoch's by now
    with Broker(config.bootstrap_servers) as broker:
        if ownership.is_ours(broker, paths, epochs.lake_id()):
            house.remove_from_broker(broker, paths, set(gone.topics.values()) - needed)
    crash_point("removal.broker")
    shutil.rmtree(paths.root, ignore_errors=True)
    crash_point("removal.folder")
    Path(plan_file(config.lake, gone.planned.detail["plan_id"])).unlink(missing_ok=True)
    for code in gone.codes - house.used_codes(config, map(epochs.record, epochs.topologies())):
        Path(code_file(config.lake, code)).unlink(missing_ok=True)


def _write(path: str, text: str) -> None:
    about_to(f"write {path}")
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.{uuid.uuid4().hex}.tmp")
    temporary.write_text(text)
    temporary.replace(target)
