"""Moving readers to an epoch, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kappa import clock
from kappa.config import Config
from kappa.control import approval
from kappa.control.drivers import want
from kappa.driver.process import ensure_driver
from kappa.errors import IllegalTransitionError, MoveRefusedError, RefusedError, UnknownEpochError, UsageError
from kappa.lake.chains import check_moves
from kappa.lake.epoch_record import EpochRecord, TopologyRecord
from kappa.lake.epochs import Epochs
from kappa.lake.events import Event
from kappa.lake.moves import asked, together_of
from kappa.replay.rules.cutover import can_take_over, pending_refusal
from kappa.replay.stages import Stage
from kappa.replay.verdict import DiffReport


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
