"""Cutover and rollback of several topologies at once: what people ask for. The drivers' side is :mod:`kappa.driver.joint_handover`.

Free functions over the record of epochs; none needs a JVM. Each is idempotent, and whatever is interrupted in the middle
is finished by calling it again.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence

from kappa import clock, control
from kappa.config import Config
from kappa.control import approval
from kappa.errors import CodeError, KappaError, MoveRefusedError, UsageError
from kappa.lake import code as code_store
from kappa.lake.chains import links
from kappa.lake.epoch_record import EpochRecord, TopologyRecord, record_of
from kappa.lake.epochs import Epochs
from kappa.lake.events import Event
from kappa.lake.moves import asked, ended_by
from kappa.replay.rules.chain import move_refusals
from kappa.replay.rules.cutover import Member, is_asked, is_done, pending_refusal, refusals
from kappa.replay.verdict import DiffReport


def cut_over(
    config: Config, members: Mapping[str, int], *, actor: str, reason: str, replaces: Mapping[str, int] | None = None,
    accept_verdict: Collection[str] = (), keep_old_running: bool = False,
) -> None:  # fmt: skip
    """Ask the live epochs of several topologies to hand over together: all pointers move in one commit, or none.

    Returns at once; call :func:`is_live` until it says so. Idempotent. A crash after the commit leaves the handover asked
    for and some driver not started: call it again. When one of them does not take over in time the drivers withdraw the
    handover of all, and all old epochs go on.

    Args:
        config: where everything is.
        members: topology -> the epoch of it that shall be live.
        actor: who.
        reason: why.
        replaces: topology -> the live epoch that is expected there; those not named may be any.
        accept_verdict: topologies whose failed verdict is accepted; needs a reason, and is on record with it.
        keep_old_running: whether the old epochs' drivers follow the new ones afterwards, sending nothing.

    Raises:
        MoveRefusedError: one of them may not move; all reasons of all members are named, and nothing was changed.
        UnknownEpochError: a topology has no such epoch.
        UsageError: a verdict is accepted of a topology that is not a member.
    """
    unknown = sorted(set(accept_verdict) - set(members))
    if unknown:
        raise UsageError(f"--accept-verdict names {', '.join(unknown)}: only what is moved can be named.")
    epochs = Epochs(config.lake)

    def decide(events: list[Event]) -> Sequence[Event]:
        records = {name: record_of(name, events) for name in sorted(members)}
        found = [
            _member(
                config, record, members[name], replaces=(replaces or {}).get(name), is_accepted=name in accept_verdict
            )
            for name, record in records.items()
        ]
        if is_done(found) or is_asked(found):
            return []
        _refuse(list(records), (*refusals(found, reason=reason), *move_refusals(links(events), members)))
        approvals = {name: approval.check(records[name], members[name]) for name in records}
        shared = {"group": uuid.uuid4().hex[:12], "together": {name: members[name] for name in records}}
        at = clock.now()
        return [
            Event(
                topology=member.topology, epoch=member.epoch, event="handover", at=at, actor=actor, reason=reason,
                detail={
                    "from": member.live, "keep_old_running": keep_old_running, **shared,
                    **approvals[member.topology], **({"accepted_verdict": "failed"} if member.verdict == "failed" and not member.is_recalled else {}),
                },
            )
            for member in found
        ]  # fmt: skip

    epochs.append(decide)
    for name, epoch in sorted(members.items()):
        record = epochs.record(name)
        if record.handover is not None and record.live is not None:
            control.want(epochs, name, record.live, actor, "handover")
            control.ensure_driver(config, name, record.live)
        control.ensure_driver(config, name, epoch)


def recall(config: Config, topologies: Collection[str], *, actor: str, reason: str) -> dict[str, int]:
    """Bring back the epochs that were live before, of several topologies, in one commit; then :func:`cut_over`.

    Returns at once. Idempotent while they are on their way.

    Returns:
        Topology -> the epoch of it that will be live.

    Raises:
        MoveRefusedError: one of them cannot go back; all reasons are named, and nothing was changed.
    """
    epochs = Epochs(config.lake)
    chosen: dict[str, int] = {}

    def decide(events: list[Event]) -> Sequence[Event]:
        reasons = []
        rows = []
        for name in sorted(topologies):
            record = record_of(name, events)
            candidate = record.candidate
            if record.handover is not None:
                reasons.append(pending_refusal(name, asked(record.handover)))
            elif candidate is not None and candidate.is_recalled:
                chosen[name] = candidate.epoch
            elif candidate is not None:
                reasons.append(
                    f"Epoch {candidate.epoch} of {name!r} is being built (by {candidate.planned.actor}). "
                    f"Abort it first: kappa abort {name} {candidate.epoch} --execute"
                )
            else:
                try:
                    chosen[name] = control.previous(record)
                except KappaError as error:
                    reasons.append(str(error))
                    continue
                rows.append(
                    Event(
                        topology=name, epoch=chosen[name], event="recalled", at=clock.now(), actor=actor,
                        reason=reason, detail={"live": record.live},
                    )
                )  # fmt: skip
        if not reasons:
            reasons = move_refusals(links(events), chosen)
        _refuse(sorted(topologies), tuple(reasons))
        return rows

    epochs.append(decide)
    for name, epoch in sorted(chosen.items()):
        control.ensure_driver(config, name, epoch)
    return chosen


def is_live(config: Config, members: Mapping[str, int]) -> bool:
    """Whether all are live, one or several; False while their handover is pending.

    Raises:
        MoveRefusedError: the handover ended without a move: who ended it, when and why.
    """
    epochs = Epochs(config.lake)
    events = epochs.events()
    records = {name: record_of(name, events) for name in sorted(members)}
    if all(record.live == members[name] for name, record in records.items()):
        return True
    for name, record in records.items():
        asked_for = [e for e in record.events if e.event == "handover" and e.epoch == members[name]]
        end = ended_by(record, asked_for[-1].n) if asked_for else ""
        if end:
            what = "is not moved" if len(members) == 1 else "are not moved together"
            raise MoveRefusedError(
                f"{' and '.join(sorted(members))} {what}: {end}. What is live goes on; ask again when it is mended."
            )
    return False


def _member(
    config: Config, record: TopologyRecord, epoch: int, *, replaces: int | None, is_accepted: bool
) -> Member:  # fmt: skip
    wanted = record.epoch(epoch)
    verified = wanted.verified
    move = record.moves[-1] if record.moves else None
    report = verified.detail.get("report") if verified is not None else None
    running = [wanted] + ([record.epoch(record.live)] if record.live is not None else [])
    return Member(
        topology=record.topology, epoch=epoch, stage=wanted.stage, is_recalled=wanted.is_recalled, live=record.live,
        replaces=replaces, last_move=f"{move.actor} moved it at {move.at:%H:%M:%S}" if move is not None else "",
        pending=asked(record.handover) if record.handover is not None else None,
        verdict=verified.detail["verdict"] if verified is not None else None,
        failures="; ".join(DiffReport.from_json(report).failures) if report else "", is_accepted=is_accepted,
        unable=tuple(filter(None, (_unable(config, record.topology, one) for one in running))),
    )  # fmt: skip


def _unable(config: Config, topology: str, epoch: EpochRecord) -> str:
    """Why the code that an epoch recorded cannot run; empty where it can."""
    try:
        code_store.check(config.lake, epoch.code)
    except CodeError as error:
        return f"Epoch {epoch.epoch} of {topology!r} cannot run: {error}"
    return ""


def _refuse(topologies: Sequence[str], reasons: Sequence[str]) -> None:
    if reasons:
        raise MoveRefusedError(
            f"{' and '.join(topologies)} cannot be moved together, nothing was changed: {' '.join(reasons)}",
            reasons=list(reasons),
        )
