"""The drivers' side of a cutover of several topologies at once: they stop at equal offsets, and one commit moves all.

The group is on record only: a ``handover`` event for each member, appended in one commit, with the list of all. Each
live driver says where it stands (``standing``); once all do, the furthest offsets of them are where all yield. That
vector is a function of the record, so that no crash changes it. Whichever candidate first sees all of them in place
moves all pointers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kappa import clock
from kappa.config import Config
from kappa.errors import MoveRefusedError, first_few
from kappa.faults import crash_point
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets
from kappa.presence import liveness
from kappa.record.chains import check_moves, links
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import Epochs, Now
from kappa.record.events import Event
from kappa.record.ledger import Ledger
from kappa.record.ledger_state import BegunState, begun
from kappa.record.moves import ended_by, is_of, members_of, moved, together_of, waiting, withdrawals
from kappa.record.topology_records import TopologyRecords
from kappa.replay.chains import Key, is_at, is_reached, topics_of
from kappa.replay.rules.chain import move_refusals
from kappa.replay.rules.cutover import yield_at
from kappa.verify.attestation import attested
from kappa.verify.certificate import certificate_of, sent_in_turns


@dataclass(kw_only=True)
class Group:
    """What one driver sees of those that its epoch moves with.

    Attributes:
        epochs: the record, as the driver holds it.
        extras: what else the row of a member's move says of its topics; None while that is not known yet.
    """

    config: Config
    epochs: Epochs
    extras: Callable[[TopologyRecord, Event], Mapping[str, Any] | None] = lambda _, __: {}
    ledgers: dict[str, Ledger] = field(default_factory=dict)

    def meet(
        self, handover: Event, position: Offsets, *, is_stuck: bool = False, reads: Collection[Key] = ()
    ) -> Offsets | None:
        """Where a live epoch yields; None while some live epoch of the group does not stand yet.

        Puts on record that this epoch stands at ``position``: from here on it plans no slice but those up to the
        result. Idempotent, and a crash after it changes nothing: the result is a function of the record.

        Args:
            handover: the handover of this epoch's topology.
            position: where its last commit stands; no slice is planned beyond it.
            is_stuck: whether it can go no further. It yields where it is, and its successor reads what is missing.
            reads: epochs whose versioned topics it reads. It yields after those of them that yield too, where they did:
                it has then read the last that they send. Of the others, it meets with those that read them as well: it
                can come to no place at which they have no commit.
        """
        if not together_of(handover):
            return position
        self._stand(handover, position)
        members = waiting(self.epochs.records(), handover)
        standings = {
            n: Offsets.from_json(r.standing.detail["at"]) for n, r in members.items() if r.standing is not None
        }
        if len(standings) < len(together_of(handover)):
            return None
        if is_stuck:
            return position
        end = yield_at(position, standings.values())
        for name, epoch in reads:
            upstream, state = members.get(name), self._ledger(name, epoch).begun()
            if upstream is None or upstream.handover is None or upstream.live != epoch:
                readers = [n for n, r in members.items() if (name, epoch) in topics_of(r.epoch(r.live_epoch()).bound)]
                met = yield_at(position, (standings[reader] for reader in readers))
                end = end.merge(met.only(state.standing.topics))
            elif state.yielded_for != upstream.handover.n:
                return None
            else:
                end = end.merge(state.standing.only(end.topics))
        return end

    def move(self, handover: Event) -> bool:
        """Move the pointers of all members in one commit, if all are in place.

        Idempotent: of drivers that try at once one moves and the others find it done. A crash leaves all moved or none.

        Returns:
            Whether they are moved, by this driver or another one.

        Raises:
            MoveRefusedError: the handover of a member ended otherwise; the message has actor and time.
        """
        records = self.epochs.records()
        new_epochs, members = members_of(handover), waiting(records, handover)
        if len(members) < len(new_epochs):
            return self._is_moved(records, handover)
        if any(self._missing(record, is_mine=name == handover.topology) for name, record in members.items()):
            return False
        drafts = {
            name: certificate_of(self.config.lake, record, candidate=new_epochs[name], ledgers=self.ledgers)
            for name, record in members.items()
        }
        certificates = {name: attested(certificate, self.config, name) for name, certificate in drafts.items()}
        reasons = move_refusals(links(records), new_epochs)
        if reasons:
            self.withdraw(handover, " ".join(reasons))
            return False
        problems = [f"{n}: {problem}" for n, c in certificates.items() if not c.complete for problem in c.problems]
        if problems:
            self.withdraw(handover, f"a certificate is not complete: {first_few(problems, between='; ')}")
            return False
        states = {name: self._ledger(name, epoch).begun() for name, epoch in new_epochs.items()}
        yielded = {name: self._ledger(name, record.live_epoch()).begun().standing for name, record in members.items()}
        extras = {
            name: {**(self._extras(record) or {}), "yielded": yielded[name].as_dict()}
            for name, record in members.items()
        }
        crash_point("move.ready")

        def decide(now: Now) -> Sequence[Event]:
            pending = waiting(now.records, handover)
            if len(pending) < len(members) or any(
                pending[name].live != record.live for name, record in members.items()
            ):
                self._is_moved(now.records, handover)  # raises unless a member's driver was first
                return []
            check_moves(now.records, new_epochs)
            at = clock.now()
            return [
                moved(record, record.handover, states[name], certificates[name], extras[name], at=at)
                for name, record in sorted(pending.items())
                if record.handover is not None
            ]

        self.epochs.change(handover.topology, decide)
        return True

    def withdraw(self, handover: Event, reason: str) -> None:
        """Withdraw a handover, of all members in one commit; does nothing when it is pending no more."""
        self.epochs.change(
            handover.topology, lambda now: withdrawals(now.records, handover, actor="driver", reason=reason)
        )

    def missing(self, handover: Event) -> str:
        """What the group waits for, for people; empty when all are in place."""
        obstacles = (self._missing(record) for record in waiting(self.epochs.records(), handover).values())
        return "; ".join(filter(None, obstacles))

    def _stand(self, handover: Event, position: Offsets) -> None:
        def decide(now: Now) -> Sequence[Event]:
            record = now.record
            if record.live is None or not is_of(record, handover) or record.standing is not None:
                return []
            detail = {"handover": handover.n, "group": handover.detail["group"], "at": position.as_dict()}
            return [now.event("standing", record.live, actor="driver", detail=detail)]

        if self.epochs.change(handover.topology, decide):
            crash_point("standing")

    def _missing(self, record: TopologyRecord, *, is_mine: bool = False) -> str:
        """What keeps one member from moving; ``is_mine`` where this process is the new epoch's driver."""
        name, handover, live = record.topology, record.handover, record.live_epoch()
        if handover is None or (together_of(handover) and record.standing is None):
            return f"live epoch {live} of {name!r} has not come to a stand"
        epoch, old = handover.epoch, self._ledger(name, live).state()
        if old.yielded_for != handover.n:
            return f"live epoch {live} of {name!r} has not yielded"
        if not is_mine and not liveness.look(self._paths(name, epoch).heartbeat, self.config.stale_seconds).is_alive:
            return f"epoch {epoch} of {name!r} has no driver"
        new = self._ledger(name, epoch).state()
        is_bound = bool(record.epoch(live).bound or record.epoch(epoch).bound)
        is_there = isinstance(new, BegunState) and new.open_plan is None and new.baseline_seq is not None
        if (
            not is_there
            or not is_at(begun(old).standing, begun(new).standing, is_bound=is_bound)
            or not is_reached(sent_in_turns(self.config.lake, record, self.ledgers), begun(new).standing)
        ):
            return f"epoch {epoch} of {name!r} is not where epoch {live} yielded and those before it stopped"
        if self.extras(record, handover) is None:
            return f"epoch {epoch} of {name!r} has not compared its tables yet"
        return ""

    def _extras(self, record: TopologyRecord) -> Mapping[str, Any] | None:
        return self.extras(record, record.handover) if record.handover is not None else None

    def _is_moved(self, records: TopologyRecords, handover: Event) -> bool:
        epochs = members_of(handover)
        members = {name: records.of(name) for name in epochs}
        # All move in one commit: what is on record of one is so of all.
        if any(move.detail.get("handover") == handover.n for move in members[handover.topology].moves):
            return True
        ends = [ended_by(r, handover.n, epochs[name]) for name, r in members.items() if not is_of(r, handover)]
        raise MoveRefusedError(
            f"The cutover of {', '.join(members)} that {handover.actor} asked for at {handover.at:%H:%M:%S} ended "
            f"without a move: {'; '.join(filter(None, ends))}. Nothing was moved. Look at `kappa history`, then ask "
            "again.",
            members=list(members),
        )

    def _ledger(self, topology: str, epoch: int) -> Ledger:
        path = self._paths(topology, epoch).ledger
        return self.ledgers.setdefault(path, Ledger(path))

    def _paths(self, topology: str, epoch: int) -> EpochPaths:
        return EpochPaths(lake=self.config.lake, topology=topology, epoch=epoch)
