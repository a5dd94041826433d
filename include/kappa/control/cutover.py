"""Moving readers to epochs, and back: of one topology, or of several in one commit.

A cutover of one topology is that of a group of one. The drivers' side is :mod:`kappa.driver.handovers.joint_handover`.
Free functions over the record of epochs; none needs a JVM. Each is idempotent, and whatever is interrupted in the
middle is finished by calling it again.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from kappa.acts import Act, act
from kappa.config import Config
from kappa.control import approval
from kappa.control.drivers import check_not_ahead, wish
from kappa.control.environments import decision, move_command
from kappa.control.plans.mask_keys import check_key
from kappa.control.plans.premise import Premise
from kappa.driver.processes.process import with_driver
from kappa.errors import CodeError, KappaError, MoveRefusedError, RefusedError, UnknownEpochError, UsageError
from kappa.record import code as code_store
from kappa.record.chains import links
from kappa.record.epoch_record import EpochRecord, TopologyRecord
from kappa.record.epochs import Epochs, Now, epochs_of
from kappa.record.events import Event
from kappa.record.moves import cutover_request, ended_by, members_of
from kappa.replay.proof.verdict import DiffReport
from kappa.replay.rules.chain import move_refusals
from kappa.replay.rules.cutover import Member, is_asked, is_done, pending_refusal, refusals
from kappa.replay.stages import Stage


@act
def cut_over(
    config: Config,
    topology: str,
    epoch: int,
    *,
    actor: str,
    reason: str,
    replaces: int | None = None,
    accept_verdict: bool = False,
    keep_old_running: bool = False,
    is_approval_required: bool = False,
    override: str = "",
    in_this_environment: bool = False,
) -> Act[None]:
    """Ask the live epoch to hand over to another one, which then moves the pointer by compare-and-set.

    :func:`cut_over_together` of one topology, with its arguments and errors.

    Args:
        epoch: the epoch that is to go live.
        replaces: the live epoch that is expected; None for whichever it is.
        accept_verdict: whether readers move although the verification failed; needs a reason.
        keep_old_running: whether the old epoch's driver follows the new one afterwards, sending nothing.
        is_approval_required: whether the epoch must have been approved, also where its topology does not ask for it.
        override: why it goes live without approvals that are missing.
        in_this_environment: whether it may run in that of this process where its own is not on this host.
    """
    return cut_over_together.planned(
        config,
        {topology: epoch},
        actor=actor,
        reason=reason,
        replaces=None if replaces is None else {topology: replaces},
        accept_verdict=[topology] if accept_verdict else [],
        keep_old_running=keep_old_running,
        is_approval_required=is_approval_required,
        override=override,
        in_this_environment=in_this_environment,
    )


@act
def cut_over_together(
    config: Config,
    members: Mapping[str, int],
    *,
    actor: str,
    reason: str,
    replaces: Mapping[str, int] | None = None,
    accept_verdict: Collection[str] = (),
    keep_old_running: bool = False,
    is_approval_required: bool = False,
    override: str = "",
    in_this_environment: bool = False,
) -> Act[None]:
    """Ask the live epochs of topologies to hand over: all pointers move in one commit, or none.

    Returns at once; call :func:`is_live` until it says so. Idempotent. A crash after the commit leaves the handover
    asked for and some driver not started: call it again. When one of the epochs does not take over in time the drivers
    withdraw the handover of all, and all old epochs go on.

    Args:
        members: topology -> the epoch of it that is to go live.
        replaces: topology -> the live epoch that is expected there; those not named may be any.
        accept_verdict: topologies whose failed verdict is accepted; needs a reason, and is on record with it.
        keep_old_running: whether the old epochs' drivers follow the new ones afterwards, sending nothing, so that a
            rollback need not catch up first.
        is_approval_required: whether each epoch must have been approved, also of topologies that do not ask for it.
        override: why they go live without approvals that are missing; on record with it.
        in_this_environment: whether epochs without a running driver may run in the environment of this process where
            their own is not on this host; on record with it.

    Raises:
        MoveRefusedError: one of them may not move; all reasons of all members are named, and nothing was changed.
        UnknownEpochError: a topology has no such epoch.
        UsageError: a verdict is accepted of a topology that is not a member, or a failed one without a reason.
    """
    unknown = sorted(set(accept_verdict) - set(members))
    if unknown:
        raise UsageError(f"--accept-verdict names {', '.join(unknown)}: only what is moved can be named.")
    epochs = epochs_of(config.lake)

    def decide(now: Now) -> Sequence[Event]:
        group = [
            _member(
                config,
                now.of(name),
                epoch,
                replaces=(replaces or {}).get(name),
                is_accepted=name in accept_verdict,
                is_alone=len(members) == 1,
            )
            for name, epoch in sorted(members.items())
        ]
        if is_done(group) or is_asked(group):
            return []
        if any(member.has_failed and member.is_accepted for member in group) and not reason.strip():
            raise UsageError("A failed verdict is accepted for a reason, which stays on record: give --reason.")
        _refuse(members, (*refusals(group), *move_refusals(links(now.records), members)))
        shared = {"group": uuid.uuid4().hex[:12], "together": dict(sorted(members.items()))} if len(members) > 1 else {}
        return [_handover(now, member, shared) for member in group]

    def _needed(record: TopologyRecord, epoch: int) -> int:
        return max(approval.required(config, record, epoch), 1 if is_approval_required else 0)

    def _handover(now: Now, member: Member, shared: Mapping[str, object]) -> Event:
        record = now.of(member.topology)
        detail = {
            "from": member.live,
            "keep_old_running": keep_old_running,
            **shared,
            **approval.check(config, record, member.epoch, needed=_needed(record, member.epoch), override=override),
            **({"accepted_verdict": "failed"} if member.has_failed else {}),
            **decision(
                config,
                now.of(member.topology),
                member.epoch,
                in_this_environment=in_this_environment,
                command=move_command(
                    "cutover",
                    members,
                    "--epoch",
                    reason=reason,
                    override=override,
                    flags=(
                        *(f"--accept-verdict {name}" for name in sorted(accept_verdict)),
                        *(["--keep-old-running"] if keep_old_running else []),
                    ),
                ),
            ),
        }
        return now.event("handover", member.epoch, topology=member.topology, actor=actor, reason=reason, detail=detail)

    effects, now = epochs.effects(epochs.now(min(members)), decide)
    for name, epoch in sorted(members.items()):
        record = now.of(name)
        if record.handover is not None and record.live is not None:
            for number in (record.live, epoch):  # somebody may have stopped one of them
                wishes, now = wish(epochs, now, name, number, actor, "handover")
                effects += wishes
            due = partial(_yielding, epochs, name, record.live)
            effects = with_driver(effects, config, name, record.live, due=due)
        effects = with_driver(effects, config, name, epoch)
    return Act(effects=effects, outcome=lambda: None)


def _yielding(epochs: Epochs, topology: str, live: int) -> int | None:
    """A live epoch while it still is to hand over."""
    record = epochs.record(topology)
    return live if record.handover is not None and record.live == live else None


@act
def rollback(
    config: Config,
    topology: str,
    *,
    to: int | None = None,
    actor: str,
    reason: str,
    premise: Premise | None = None,
    in_this_environment: bool = False,
) -> Act[int]:
    """Bring a retired epoch back: its driver follows the live one until it can take over; then :func:`cut_over`.

    :func:`recall_together` of one topology, with its errors.

    Args:
        to: the epoch; None for the one that was live before.
        premise: what the person who decided was shown; None where nobody was asked.
        in_this_environment: whether it may run in that of this process where its own is not on this host.

    Returns:
        The epoch that will be live.
    """
    premises = None if premise is None else {topology: premise}
    together = recall_together.planned(
        config, {topology: to}, actor=actor, reason=reason, premises=premises, in_this_environment=in_this_environment
    )
    return Act(effects=together.effects, outcome=lambda: together.outcome()[topology])


@act
def recall_together(
    config: Config,
    members: Mapping[str, int | None],
    *,
    actor: str,
    reason: str,
    premises: Mapping[str, Premise] | None = None,
    in_this_environment: bool = False,
) -> Act[dict[str, int]]:
    """Bring back epochs of topologies, in one commit; then :func:`cut_over_together`.

    Returns at once. Idempotent while they are on their way.

    An epoch that is being built and reads one of the other topologies goes along.

    Args:
        members: topology -> the epoch that is to come back; None for the one that was live before.
        premises: topology -> what the person who decided was shown; one on its way, or live, is left at that.
        in_this_environment: whether they may run in the environment of this process where their own is not on this
            host; on record with it.

    Returns:
        Topology -> the epoch of it that will be live.

    Raises:
        UnknownEpochError: a topology that comes back alone has no such epoch.
        RefusedError: another epoch of a topology that comes back alone is being built.
        MoveRefusedError: one of them cannot go back, as one that stands ahead of a stuck live epoch; all reasons are
            named, and nothing was changed.
    """
    epochs = epochs_of(config.lake)
    targets: dict[str, int] = {}

    def decide(now: Now) -> Sequence[Event]:
        reasons: list[str] = []
        events = []
        for name, to in sorted(members.items()):
            try:
                targets[name], is_new = _recalled(now, name, to, members)
                if is_new and premises is not None:
                    premises[name].check(now.of(name))
                if not is_new:
                    continue
                check_not_ahead(config, now.of(name), targets[name])
                check_key(config, name, targets[name])
                environment = decision(
                    config,
                    now.of(name),
                    targets[name],
                    in_this_environment=in_this_environment,
                    command=move_command("rollback", {**members, name: targets[name]}, "--to", reason=reason),
                )
            except KappaError as error:
                if len(members) == 1:
                    raise
                reasons.append(str(error))
                continue
            detail = {"live": now.of(name).live, **environment}
            events.append(
                now.event("recalled", targets[name], topology=name, actor=actor, reason=reason, detail=detail)
            )
        _refuse(members, tuple(reasons) or (move_refusals(links(now.records), targets) if events else ()))
        return events

    effects, _ = epochs.effects(epochs.now(min(members)), decide)
    for name, epoch in sorted(targets.items()):
        effects = with_driver(effects, config, name, epoch, due=partial(targets.get, name))
    return Act(effects=effects, outcome=lambda: targets)


def _recalled(now: Now, topology: str, to: int | None, together: Collection[str]) -> tuple[int, bool]:
    """The epoch of a topology that comes back, or goes along, and whether that is to be put on record."""
    record = now.of(topology)
    candidate, handover = record.candidate, record.handover
    is_theirs = handover is None or set(members_of(handover)) == set(together)
    # One that is built on what comes back goes along: the epoch before it may be gone, or may have read something else.
    is_on_its_way = record.goes_along({name: now.of(name).live for name in together})
    if is_theirs and candidate is not None and is_on_its_way and to in (None, candidate.epoch):
        return candidate.epoch, False
    if handover is not None:
        raise MoveRefusedError(pending_refusal(record.topology, cutover_request(handover)))
    if to is not None and record.live == to:
        return to, False
    if candidate is not None:
        raise RefusedError(
            f"Epoch {candidate.epoch} of {record.topology!r} is being built (by {candidate.planned.actor}). "
            f"Abort it first: kappa abort {record.topology} {candidate.epoch} --execute",
            findings=(),
        )
    return record.epoch(to if to is not None else previous(record)).epoch, True


def approval_terms(config: Config, topology: str, epoch: int) -> approval.Terms:
    """What an approval of an epoch would be bound to now; see :func:`kappa.control.approval.terms`."""
    return approval.terms(epochs_of(config.lake).record(topology), epoch)


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


def is_live(config: Config, members: Mapping[str, int]) -> bool:
    """Whether all are live, one or several; False while their handover is pending.

    Raises:
        MoveRefusedError: the handover ended without a move: with actor, time and reason.
    """
    epochs = epochs_of(config.lake)
    now = epochs.records()
    records = {name: now.of(name) for name in sorted(members)}
    if all(record.live == members[name] for name, record in records.items()):
        return True
    for name, record in records.items():
        asked_for = [e for e in record.events if e.event == "handover" and e.epoch == members[name]]
        end = ended_by(record, asked_for[-1].n, members[name]) if asked_for else ""
        if end:
            what = "is not moved" if len(members) == 1 else "are not moved together"
            raise MoveRefusedError(
                f"{' and '.join(sorted(members))} {what}: {end}. What is live goes on; ask again when it is mended."
            )
    return False


def _member(
    config: Config, record: TopologyRecord, epoch: int, *, replaces: int | None, is_accepted: bool, is_alone: bool
) -> Member:
    target = record.epoch(epoch)
    verified = target.verified
    move = record.last_move
    verdict = verified.detail["verdict"] if verified is not None else None
    report = verified.detail.get("report") if verified is not None and verdict == "failed" else None
    running = [target] + ([record.epoch(record.live)] if record.live is not None else [])
    unable = () if is_alone else (_unable(config, record.topology, one) for one in running)
    return Member(
        topology=record.topology,
        epoch=epoch,
        stage=target.stage,
        is_recalled=target.is_recalled,
        live=record.live,
        replaces=replaces,
        last_move=f"{move.actor} moved it at {move.at:%H:%M:%S}" if move is not None else "",
        pending=cutover_request(record.handover) if record.handover is not None else None,
        verdict=verdict,
        failures="; ".join(DiffReport.from_json(report).failures) if report else "",
        is_accepted=is_accepted,
        unable=tuple(filter(None, unable)),
    )


def _unable(config: Config, topology: str, epoch: EpochRecord) -> str:
    """Why the code that an epoch recorded cannot run; empty where it can."""
    try:
        code_store.check(config.lake, epoch.code)
    except CodeError as error:
        return f"Epoch {epoch.epoch} of {topology!r} cannot run: {error}"
    return ""


def _refuse(topologies: Collection[str], reasons: Sequence[str]) -> None:
    if reasons:
        together = " together" if len(topologies) > 1 else ""
        raise MoveRefusedError(
            f"{' and '.join(sorted(topologies))} cannot be moved{together}, nothing was changed: {' '.join(reasons)}",
            reasons=list(reasons),
        )
