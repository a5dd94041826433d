"""Approval of a verified epoch: what it is bound to, and what a rejection means.

An approval is bound to what was shown when it was given: the epoch, its code, the report of its verification, and the
live epoch that it replaces. A cutover is refused when any of these is another one by then. A rejected epoch keeps its
tables for ``KAPPA_REJECTED_HOURS``, has no driver and is not a candidate: the next replay does not wait for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from kappa.acts import Act, act
from kappa.config import Config
from kappa.control import approvers
from kappa.control.removals.leftovers import Leftover
from kappa.errors import IllegalTransitionError, MoveRefusedError, RefusedError
from kappa.record import code as code_store
from kappa.record.chains import links
from kappa.record.epoch_record import EpochRecord, TopologyRecord
from kappa.record.epochs import Now, epochs_of
from kappa.record.events import Event
from kappa.record.topology_records import TopologyRecords
from kappa.replay import stored
from kappa.replay.rules.chain import removal_refusals
from kappa.replay.stages import Stage
from kappa.topology.registry import declared

#: Kind of leftover of an epoch that was rejected so long ago that its tables may go.
REJECTED = "rejected epoch"


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What an approval is bound to.

    Attributes:
        epoch: the epoch that becomes live.
        live: the live epoch that it replaces.
        code: content hash of the code that runs it.
        report: hash of the report of its verification.
        verdict: what that report says.
    """

    topology: str
    epoch: int
    live: int | None
    code: str
    report: str
    verdict: str

    def changes(self, now: Terms) -> list[str]:
        """The terms that differ by now, in words; empty when an approval of these terms holds."""
        pairs = [
            ("live epoch", self.live, now.live),
            ("code", self.code[:12], now.code[:12]),
            ("report", f"{self.report} ({self.verdict})", f"{now.report} ({now.verdict})"),
        ]
        return [f"the {what} was {before} and is {after}" for what, before, after in pairs if before != after]

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Terms:
        """Read what :meth:`to_dict` wrote."""
        return stored.read(cls, values)


def terms(record: TopologyRecord, epoch: int) -> Terms:
    """What an approval of a verified epoch would be bound to now.

    Raises:
        IllegalTransitionError: the epoch is not verified, or cannot go live any more.
        UnknownEpochError: there is no such epoch.
    """
    target = record.epoch(epoch)
    if target.stage not in (Stage.VERIFIED, Stage.APPROVED) or target.verified is None:
        raise IllegalTransitionError(
            f"Epoch {epoch} of {record.topology!r} is {target.stage}: only a VERIFIED one can be approved "
            f"or rejected. See kappa status {record.topology}",
            epoch=epoch,
        )
    report = str(target.verified.detail.get("report", ""))
    return Terms(
        topology=record.topology,
        epoch=epoch,
        live=record.live,
        code=target.code,
        report=hashlib.sha256(report.encode()).hexdigest()[:16],
        verdict=target.verified.detail["verdict"],
    )


def required(config: Config, record: TopologyRecord, epoch: int) -> int:
    """How many people have to approve an epoch: the most that its code, the live one's or the deployed file asks for.

    A folder is what a variable of the caller says; the code of both epochs is on record, whoever asks. All code of the
    live epoch counts, since one person can upgrade it. An epoch that comes back was live before and needs none.
    """
    if record.epoch(epoch).is_recalled:
        return 0
    deployed = [item.approvals for item in declared(config.topologies) if item.name == record.topology]
    codes = {record.epoch(epoch).code, *(record.epoch(record.live).codes if record.live is not None else ())}
    return max([*deployed, *(code_store.approvals(config.lake, code, record.topology) for code in codes)])


def valid_approvals(config: Config, record: TopologyRecord, epoch: int) -> list[Event]:
    """Approvals of an epoch that count under its present terms, one per person, oldest first."""
    return of_terms(config, record, terms(record, epoch)) if record.epoch(epoch).approvals else []


def of_terms(config: Config, record: TopologyRecord, shown: Terms) -> list[Event]:
    """Approvals of exactly these terms that count, one per person, oldest first."""
    matches = [event for event in record.epoch(shown.epoch).approvals if event.detail == shown.to_dict()]
    return approvers.people(matches, airflow_only=bool(approvers.elsewhere(config, record)))


@act
def approve(config: Config, agreed: Terms, *, actor: str, reason: str) -> Act[None]:
    """Put the approval of an epoch on record; its stage is ``APPROVED`` then. Idempotent.

    Where the topology asks for two people, each of them calls it. A person counts once. Where the lake or the drivers
    are not this host's own, only a login of Airflow counts: :mod:`kappa.control.approvers`.

    Args:
        agreed: what was shown when the approval was given.
        actor: the person or program that gave it.
        reason: why.

    Raises:
        MoveRefusedError: something else would go live than what was shown, the epoch was rejected, its verification
            failed, or the approval would not count.
        IllegalTransitionError: the epoch is not verified.
    """
    epochs = epochs_of(config.lake)

    def decide(now: Now) -> Sequence[Event]:
        record = now.record
        target = record.epoch(agreed.epoch)
        if record.live == agreed.epoch:
            return []
        _refuse_rejected(agreed.topology, target)
        present = terms(record, agreed.epoch)
        _refuse_changed("was shown", agreed, present)
        if present.verdict == "failed":
            raise MoveRefusedError(
                f"Epoch {agreed.epoch} of {agreed.topology!r} failed its verification: that is accepted on the command "
                f"line only. See kappa diff {agreed.topology} {agreed.epoch}"
            )
        _refuse_uncounted(config, record, agreed.epoch, actor)
        approvals = valid_approvals(config, record, agreed.epoch)
        has_approved = any(approvers.is_same(actor, event.actor) for event in approvals)
        if has_approved or len(approvals) >= max(1, required(config, record, agreed.epoch)):
            return []
        return [now.event("approved", agreed.epoch, actor=actor, reason=reason, detail=agreed.to_dict())]

    return Act(effects=epochs.effects(epochs.now(agreed.topology), decide)[0], outcome=lambda: None)


def ask(
    config: Config,
    shown: Terms,
    *,
    actor: str,
    asking: str,
    nth: int = 1,
    needed: int = 1,
    hours: float,
    link: str = "",
) -> None:
    """Put on record that an answer is waited for; the driver of the epoch sends a notice of it. Idempotent.

    For one question there is one row, however often a process that asks is started again.

    Args:
        shown: what the question shows.
        actor: the run that asks.
        asking: what is the same in each try of a question, and in no other question.
        nth: for which of several people it waits.
        needed: how many have to approve.
        hours: time for the answer.
        link: where it is given.
    """

    def decide(now: Now) -> Sequence[Event]:
        question = {"terms": shown.to_dict(), "nth": nth, "needed": needed, "asking": asking}
        questions = [event for event in now.record.events if event.epoch == shown.epoch and event.event == "asked"]
        if any(question.items() <= event.detail.items() for event in questions):
            return []
        detail = {
            **question,
            "link": link,
            "until": (now.at + timedelta(hours=hours)).isoformat(),
            "airflow_only": bool(approvers.elsewhere(config, now.record)),
        }
        return [now.event("asked", shown.epoch, actor=actor, detail=detail)]

    epochs_of(config.lake).change(shown.topology, decide)


@act
def reject(config: Config, topology: str, epoch: int, *, actor: str, reason: str) -> Act[None]:
    """Put on record that an epoch is not to go live: its driver stops, its tables stay for a while. Idempotent.

    Raises:
        IllegalTransitionError: the epoch is not verified, or it is live.
        MoveRefusedError: it is being made live.
    """
    epochs = epochs_of(config.lake)

    def decide(now: Now) -> Sequence[Event]:
        record = now.record
        target = record.epoch(epoch)
        if target.rejected is not None:
            return []
        terms(record, epoch)
        if record.handover is not None and record.handover.epoch == epoch:
            raise MoveRefusedError(
                f"Epoch {epoch} of {topology!r} is being made live since {record.handover.at:%H:%M:%S}: it is too late "
                f"to reject it. kappa rollback {topology} --execute brings the other one back."
            )
        return [now.event("rejected", epoch, actor=actor, reason=reason, detail={"hours": config.rejected_hours})]

    return Act(effects=epochs.effects(epochs.now(topology), decide)[0], outcome=lambda: None)


@act
def reopen(config: Config, topology: str, epoch: int, *, actor: str, reason: str) -> Act[None]:
    """Make a rejected epoch the candidate again: its driver is wanted, and it may be approved. Idempotent.

    If another epoch is live by then, it is compared with that one first.

    Raises:
        RefusedError: another epoch is being built.
        IllegalTransitionError: the epoch was removed.
    """
    epochs = epochs_of(config.lake)

    def decide(now: Now) -> Sequence[Event]:
        record = now.record
        target = record.epoch(epoch)
        if target.rejected is None or record.live == epoch:
            return []
        if target.stage.is_ended:
            raise IllegalTransitionError(
                f"Epoch {epoch} of {topology!r} was rejected and is {target.stage}: its tables are gone. Plan again: "
                f"kappa plan {topology}"
            )
        if record.candidate is not None:
            raise RefusedError(
                f"Epoch {record.candidate.epoch} of {topology!r} is being built: epoch {epoch} cannot be taken up "
                f"again beside it. Abort that one first: kappa abort {topology} {record.candidate.epoch} --execute",
                findings=(),
            )
        return [now.event("reopened", epoch, actor=actor, reason=reason)]

    return Act(effects=epochs.effects(epochs.now(topology), decide)[0], outcome=lambda: None)


def check(config: Config, record: TopologyRecord, epoch: int, *, needed: int = 0, override: str = "") -> dict[str, Any]:
    """The approvals with which an epoch goes live, for the handover's record; empty where it has none.

    Args:
        epoch: the epoch that becomes live.
        needed: how many it must have.
        override: why it goes live without those that are missing; empty to refuse it.

    Raises:
        MoveRefusedError: the epoch was rejected, something changed since it was approved, or a required approval is
            missing.
    """
    target = record.epoch(epoch)
    _refuse_rejected(record.topology, target)
    if target.is_recalled:
        return {}
    if target.approved is not None:
        _refuse_changed("was approved", Terms.from_dict(target.approved.detail), terms(record, epoch))
    approvals = valid_approvals(config, record, epoch)
    by = " and ".join(event.actor for event in approvals)
    approved = {"approved": {"by": by, "at": approvals[-1].at.isoformat()}} if approvals else {}
    if len(approvals) >= needed:
        return approved
    if override.strip():
        return {**approved, "override": {"reason": override.strip(), "needed": needed, "given": len(approvals)}}
    what = f"was approved by {by} only, and {needed} people have to" if approvals else "was not approved"
    why = approvers.elsewhere(config, record)
    way = f"Approve it: kappa approve {record.topology} {epoch} --execute"
    if why:
        way = f"Only logins of Airflow count, since {why}. Approve it there: DAG cutover__{record.topology}"
    raise MoveRefusedError(
        f"Epoch {epoch} of {record.topology!r} {what}: readers stay where they are. {way}. To do without, on record: "
        "--override REASON"
    )


def expired(config: Config, records: TopologyRecords, now: datetime) -> list[Leftover]:
    """Epochs that were rejected longer ago than their tables are kept for, and that no other epoch reads."""
    keep, epochs = timedelta(hours=config.rejected_hours), links(records)
    return [
        Leftover(
            kind=REJECTED,
            name=f"{record.topology} {number}",
            reason=f"{described(epoch.rejected)}, and its tables are kept for {config.rejected_hours:g} hours",
        )
        for record in records
        for number, epoch in sorted(record.recent.items())
        if epoch.rejected is not None and not epoch.stage.is_ended and now - epoch.rejected.at > keep
        if not removal_refusals(epochs, record.topology, number)
    ]


def described(rejected: Event) -> str:
    """A rejection in words."""
    return (
        f"rejected by {rejected.actor} at {rejected.at:%Y-%m-%d %H:%M:%S} "
        f"UTC{f': {rejected.reason}' if rejected.reason else ''}"
    )


def _refuse_rejected(topology: str, epoch: EpochRecord) -> None:
    if epoch.rejected is not None:
        raise MoveRefusedError(
            f"Epoch {epoch.epoch} of {topology!r} was {described(epoch.rejected)}. To take it up again: "
            f"kappa start {topology} --epoch {epoch.epoch} --execute"
        )


def _refuse_uncounted(config: Config, record: TopologyRecord, epoch: int, actor: str) -> None:
    why = approvers.elsewhere(config, record)
    if why and not actor.startswith(approvers.AIRFLOW):
        raise MoveRefusedError(
            f"An approval of epoch {epoch} of {record.topology!r} by {actor}, a user of this host, does not count: "
            f"{why}. Nothing was written. Answer in Airflow: DAG cutover__{record.topology}"
        )


def _refuse_changed(when: str, agreed: Terms, now: Terms) -> None:
    changes = agreed.changes(now)
    if changes:
        raise MoveRefusedError(
            f"Epoch {agreed.epoch} of {agreed.topology!r} is not what {when}: {'; '.join(changes)}. Look at it and "
            f"approve it again: kappa diff {agreed.topology} {agreed.epoch}"
        )
