"""The premise of a question about an epoch: an answer holds for the state that was shown, and for no later one.

An approval has terms of its own (:mod:`kappa.control.approval`): those of a report. This module is for questions that
have no report: whether readers go back, or an epoch is removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kappa.errors import MoveRefusedError
from kappa.record.epoch_record import TopologyRecord
from kappa.replay import stored


@dataclass(frozen=True, kw_only=True)
class Premise:
    """Where an epoch and the live one of its topology stood when a question was made.

    Attributes:
        epoch: the epoch that the question is about.
        live: the live epoch.
        since: place on record of the move that made it live; 0 for none.
        stage: the stage of the epoch.
        is_recalled: whether it is being brought back.
        rejected: place on record of the event that rejected it; 0 for none.
        approvals: how many people approved it.
        has_handover: whether the live epoch was asked to hand over to it.
    """

    topology: str
    epoch: int
    live: int | None
    since: int
    stage: str
    is_recalled: bool
    rejected: int
    approvals: int
    has_handover: bool

    @classmethod
    def of(cls, record: TopologyRecord, epoch: int) -> Premise:
        """What a question about an epoch would rest on now.

        Raises:
            UnknownEpochError: there is no such epoch.
        """
        target, handover = record.epoch(epoch), record.handover
        return cls(
            topology=record.topology,
            epoch=epoch,
            live=record.live,
            since=record.last_move.n if record.last_move is not None else 0,
            stage=target.stage.name,
            is_recalled=target.is_recalled,
            rejected=target.rejected.n if target.rejected is not None else 0,
            approvals=len(target.approvals),
            has_handover=handover is not None and handover.epoch == epoch,
        )

    def changes(self, now: Premise) -> list[str]:
        """The differences by now, in words; empty while an answer counts."""
        if self.live != now.live:
            return [f"the live epoch was {self.live} and is {now.live}"]
        if self.since != now.since:
            return [f"readers were moved from epoch {self.live} and back to it"]
        name = f"epoch {self.epoch}"
        pairs = [
            (self.stage, now.stage, f"{name} was {self.stage} and is {now.stage}"),
            (self.is_recalled, now.is_recalled, f"{name} is {'' if now.is_recalled else 'no longer '}brought back"),
            (self.rejected, now.rejected, f"{name} was {'rejected' if now.rejected else 'taken up again'}"),
            (self.approvals, now.approvals, f"{name} had {self.approvals} approvals and has {now.approvals}"),
            (
                self.has_handover,
                now.has_handover,
                f"the handover to {name} {'was asked for' if now.has_handover else 'is pending no more'}",
            ),
        ]
        return [words for before, after, words in pairs if before != after]

    def check(self, record: TopologyRecord) -> None:
        """Check that an answer still counts.

        Raises:
            MoveRefusedError: something is not as it was shown.
        """
        changes = self.changes(Premise.of(record, self.epoch))
        if changes:
            raise MoveRefusedError(
                f"{self.topology!r} is not what was shown: {'; '.join(changes)}. Nothing was changed. Look at it "
                f"again: kappa status {self.topology}"
            )

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Premise:
        """Read what :meth:`to_dict` wrote."""
        return stored.read(cls, values)
