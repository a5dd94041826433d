"""A driver's part in a handover: the live epoch yields, its successor moves the pointer and begins to send.

Each step is a row in a ledger or in the record of epochs, and a function of those rows: whatever dies in between, the
next driver of that epoch finds the place where it has to go on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from kappa import clock
from kappa.driver.driven_epoch import DrivenEpoch
from kappa.driver.handovers import reconciliation
from kappa.driver.handovers.expiry import Expiry
from kappa.driver.handovers.joint_handover import Group
from kappa.driver.lazy_engines import LazyEngines
from kappa.driver.merges import Merges
from kappa.driver.processes import process
from kappa.driver.publications import Publications
from kappa.driver.voice import Voice
from kappa.errors import MoveRefusedError, RefusedError, first_few
from kappa.faults import crash_point
from kappa.kafka import topic_settings
from kappa.kafka.producer import LONGEST_TRANSACTION
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets
from kappa.record.chains import check_moves
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import Now
from kappa.record.events import Event
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import BegunState, LedgerState
from kappa.record.moves import members_of, moved, together_of
from kappa.replay.chains import is_at
from kappa.slices.topics import changelog, turns, versioned_topics
from kappa.slices.topics.registered_topics import register
from kappa.verify.attestation import attested
from kappa.verify.certificate import certificate_of, ledgers_of

#: Time between two looks of a candidate that waits at the ledgers which its certificate will be made from.
PREPARE_SECONDS = 5.0
#: Least time between two comparisons of its tables with those of the live epoch.
COMPARE_SECONDS = 60.0


class Handover:
    """Both sides of a handover, for one epoch.

    Args:
        read_on: makes one live slice towards some offsets.
    """

    _waits_for = (0, "")
    _waits_since = 0.0
    _asked_for_live = 0.0
    _prepared = -PREPARE_SECONDS
    _compared = -math.inf

    def __init__(
        self,
        epoch: DrivenEpoch,
        engines: LazyEngines,
        voice: Voice,
        merges: Merges,
        publications: Publications,
        read_on: Callable[[BegunState, Offsets], None],
    ) -> None:
        self._epoch = epoch
        self._engines = engines
        self._voice = voice
        self._merges = merges
        self._publications = publications
        self._read_on = read_on
        self._expiry = Expiry(
            config=epoch.config,
            epochs=epoch.epochs,
            actor="driver",
            state_of=lambda topology, epoch: process.driver_status(self._epoch.config, topology, epoch).state,
        )
        self._group = Group(config=epoch.config, epochs=epoch.epochs, extras=self._extras)

    def take_over(self, record: TopologyRecord, handover: Event) -> None:
        """Move the pointer once the live driver has yielded and this epoch stands where it stopped."""
        epoch, engines, voice = self._epoch, self._engines, self._voice
        live = record.live_epoch()
        register(engines.slice_run, epoch.topology.topics)  # a registry may refuse: before the live epoch yields
        live_state = epoch.live_ledger(record).begun()
        if live_state.yielded_for != handover.n:
            voice.say("waiting for the live epoch to yield")
            if self._expiry.look(record):
                return
            self._ensure_live_driver(live)
            time.sleep(self._epoch.config.idle_seconds / 4)
            return
        state = epoch.ledger.begun()
        if not is_at(live_state.standing, state.standing, is_bound=epoch.is_chained(record)):
            return
        self._move(record, handover)

    def _ensure_live_driver(self, live: int) -> None:
        """Start the live epoch's driver again if it died: it must finish what it planned, and yield."""
        epoch = self._epoch
        if time.monotonic() - self._asked_for_live < epoch.config.beat_seconds:
            return
        self._asked_for_live = time.monotonic()
        process.ensure_driver(epoch.config, epoch.topology.name, live)

    def get_ready(self, record: TopologyRecord) -> None:
        """Compare tables for the topics that reconcile, before a handover is asked for or its base is too old."""
        epoch, engines, voice = self._epoch, self._engines, self._voice
        if not epoch.topology.reconciled_topics or record.handover is not None or record.live is None:
            return
        # Changes stay for this long; the next comparison goes on from this one.
        if time.monotonic() - self._compared < max(COMPARE_SECONDS, 60 * epoch.config.keep_minutes / 2):
            return
        voice.say("comparing tables for the topics that reconcile")
        live = epoch.live_ledger(record).state()
        reconciliation.get_ready(engines.slice_run, reconciliation.predecessor(epoch.paths.lake, record, live))
        self._compared = time.monotonic()

    def prepare(self, record: TopologyRecord) -> None:
        """Read what a move's certificate is made from, now and then: between yield and move only the rest is read."""
        if time.monotonic() - self._prepared < PREPARE_SECONDS:
            return
        self._prepared = time.monotonic()
        opened = self._group.ledgers
        for ledger in ledgers_of(self._epoch.config.lake, record, self._epoch.paths.epoch, opened).values():
            ledger.state()
        self._publications.prepare()

    def _move(self, record: TopologyRecord, handover: Event) -> None:
        """Move the pointer, or those of all that go live together, once all are in place."""
        self._compare(record, handover.n)
        try:
            is_moved = self._group.move(handover)
        except MoveRefusedError as error:
            self._voice.log.warning("not moved", error=str(error))
            return
        if is_moved:
            self._voice.log.info("moved", epochs=members_of(handover))
            crash_point("moved")
        else:
            obstacle = self._group.missing(handover)  # none where the handover was withdrawn just now
            self._voice.say(f"waiting: {obstacle}" if obstacle else "following, held")
            time.sleep(self._epoch.config.idle_seconds / 4)

    def go_live_first(self, record: TopologyRecord, state: BegunState) -> None:
        """Set the pointer of a topology that has none: its first epoch goes live by itself.

        Raises:
            MoveRefusedError: the topology has a live epoch, or is being handed over.
            RefusedError: the certificate is not complete.
            SchemaRefusedError: the schema registry does not take the schema of a topic output.
        """
        epoch, engines, voice = self._epoch, self._engines, self._voice
        register(engines.slice_run, epoch.topology.topics)
        certificate = attested(
            certificate_of(epoch.config.lake, record, candidate=epoch.paths.epoch, ledgers=self._group.ledgers),
            epoch.config,
            record.topology,
        )
        if not certificate.complete:
            problems = first_few(certificate.problems, between="; ")
            raise RefusedError(f"The certificate of epoch {epoch.paths.epoch} is not complete: {problems}", findings=())
        reconciled = self._compare(record, 0)
        extras = self._topic_extras(versioned_topics.boundaries(engines.broker, record, epoch.paths.epoch), reconciled)

        def decide(now: Now) -> Sequence[Event]:
            live, pending = now.record.live, now.record.handover
            if live is not None or pending is not None:
                raise MoveRefusedError(
                    f"The pointer of {now.topology!r} is at epoch {live}, expected was none; handover "
                    f"{pending.n if pending else None}, expected none."
                )
            check_moves(now.records, {now.topology: epoch.paths.epoch})
            handover = now.event("handover", epoch.paths.epoch, actor="driver", reason=epoch.plan.request.reason)
            return [moved(now.record, handover, state, certificate, extras, at=now.at)]

        epoch.epochs.change(record.topology, decide)
        voice.log.info("moved", from_epoch=None, at=state.standing.to_json())
        crash_point("moved")

    def _extras(self, record: TopologyRecord, handover: Event) -> dict[str, Any] | None:
        """What the row of a member's move says of its topics; None while its driver has not compared its tables."""
        paths = EpochPaths(lake=self._epoch.paths.lake, topology=record.topology, epoch=handover.epoch)
        reconciled = reconciliation.written(paths, record.epoch(handover.epoch).reconciled, handover.n)
        if reconciled is None:
            return None
        return self._topic_extras(versioned_topics.boundaries(self._engines.broker, record, handover.epoch), reconciled)

    @staticmethod
    def _topic_extras(topics: dict[str, Any], reconciled: dict[str, dict[str, int]]) -> dict[str, Any]:
        return {name: value for name, value in (("topics", topics), ("reconciled", reconciled)) if value}

    def _compare(self, record: TopologyRecord, handover: int) -> dict[str, dict[str, int]]:
        """Write what the topics of tables get at this move, before it: afterwards the old epoch may go."""
        epoch, engines, voice = self._epoch, self._engines, self._voice
        topic_counts = reconciliation.written(epoch.paths, (t.name for t in epoch.topology.reconciled_topics), handover)
        if topic_counts is not None:
            return topic_counts
        voice.say("comparing tables for the topics that reconcile")
        live = epoch.live_ledger(record).state() if record.live is not None else LedgerState()
        before = reconciliation.predecessor(epoch.paths.lake, record, live)
        # The job that was adopted has sent what its table holds, or left the topic to this epoch from now on. That
        # ends with the first move: at a rollback the topic holds what the later epoch has sent.
        is_first = record.live is None and epoch.plan.request.adoption is not None
        return reconciliation.write_differences(engines.slice_run, before, handover, is_sent=is_first)

    def may_yield(self, record: TopologyRecord, handover: Event, state: LedgerState, *, is_stuck: bool) -> bool:
        """Not before it has sent what its topics have to get, or the next epoch would build on what they do not hold.

        One that cannot send it is stuck and may: the next epoch sees that it never resumed. What has yielded stays so.
        """
        is_due = reconciliation.is_due(self._epoch.topology, record, state)
        return not is_due or is_stuck or state.yielded_for == handover.n

    def yield_to(self, handover: Event, state: BegunState, *, is_stuck: bool) -> None:
        """Stop sending at the last commit, or where its group meets; then wait for the successor, not for ever."""
        epoch, voice = self._epoch, self._voice
        if state.yielded_for != handover.n:
            epoch.ledger.check_claim(epoch.writer)
            end = self._group.meet(handover, state.standing, is_stuck=is_stuck, reads=epoch.upstreams.keys)
            if end is None:
                self._await_successor(handover, "standing until all of its group do")
                return
            if end != state.standing:
                self._reach(end, state)
                return
            epoch.ledger.append(
                LedgerRow(
                    kind="yield",
                    seq=state.seq,
                    writer=epoch.writer,
                    at=clock.now(),
                    code=epoch.code,
                    detail={"handover": handover.n, "at": state.standing.as_dict()},
                )
            )
            voice.log.info("yielded", at=state.standing.to_json(), to_epoch=handover.epoch)
            crash_point("yield")
            return
        self._await_successor(handover, f"yielded to epoch {handover.epoch}")

    def _reach(self, end: Offsets, state: BegunState) -> None:
        """The last slices up to where all that hand over together yield."""
        if state.is_yielded:  # for a handover that was withdrawn, or it has only just gone live
            self.resume(self._epoch.record(), state)
            return
        self._engines.open_sender()
        self._read_on(state, end)

    def _await_successor(self, handover: Event, what: str) -> None:
        self._voice.say(what)
        self.is_over(handover, what)
        self._merges.idle()

    def is_over(self, handover: Event, what: str) -> bool:
        """Whether one and the same thing is waited for since longer than a handover may take; it is withdrawn then."""
        if self._waits_for != (handover.n, what):
            self._waits_for, self._waits_since = (handover.n, what), time.monotonic()
        # Not since the request: the last slice before the yield may have taken longer than a handover may.
        if time.monotonic() - self._waits_since <= self._epoch.config.handover_seconds:
            return False
        self._withdraw(handover)
        return True

    def refuse(self, handover: Event, reason: str) -> None:
        """Withdraw a handover of an epoch that may not even yield."""
        self._group.withdraw(handover, reason)

    def _withdraw(self, handover: Event) -> None:
        patience, late = f"{self._epoch.config.handover_seconds:.0f} s", f"epoch {handover.epoch} did not take over"
        if together_of(handover):
            reason = f"after {patience} {self._group.missing(handover) or late}"
        else:
            reason = f"{late} within {patience}"
        self._group.withdraw(handover, reason)

    def resume(self, record: TopologyRecord, state: BegunState) -> None:
        """Begin to send, or begin again, from the last commit; what topics of tables have to get comes first.

        The broker knows it before the ledger: should the lake be lost then, the epoch that went live is the one to
            rebuild.
        """
        epoch, engines, voice = self._epoch, self._engines, self._voice
        voice.say("going live")
        engines.open_sender()
        turn = turns.next_turn(engines.broker, epoch.paths, epoch.epochs.lake_id())
        outputs = topic_settings.outputs_of(epoch.topology, epoch.partitions(engines.broker))
        topic_settings.create_missing(engines.broker, outputs)
        if state.baseline_seq is None:
            changelog.write_baseline(engines.slice_run)
        detail: dict[str, Any] = {"at": state.standing.as_dict(), "handover": record.last_handover}
        if reconciliation.is_due(epoch.topology, record, state):
            detail["reconciled"] = self._reconcile(record, turn)
        engines.open_sender()
        turns.begin(engines.slice_run, epoch.ledger.begun(), turn)
        epoch.ledger.append(
            LedgerRow(kind="resume", seq=state.seq, writer=epoch.writer, at=clock.now(), code=epoch.code, detail=detail)
        )
        voice.log.info("resumed", at=state.standing.to_json(), reconciled=detail.get("reconciled"))
        crash_point("resume")
        if epoch.topology.reconciled_topics:
            reconciliation.forget(epoch.paths)

    def _reconcile(self, record: TopologyRecord, turn: int) -> dict[str, Any]:
        """Send what differs; how many records of each topic."""
        engines, voice, move = self._engines, self._voice, record.last_move
        assert move is not None, "the epoch went live"
        topic_counts: dict[str, Any] = dict(move.detail.get("reconciled", {}))
        if any(count for counts in topic_counts.values() for count in counts.values()):
            voice.say("reconciling topics")
            engines.spend_sender()
            engines.open_sender(LONGEST_TRANSACTION)
            engines.slice_run.sent.turn = turn
            reconciliation.send(engines.slice_run, record.last_handover)
            engines.spend_sender()  # slices get their shorter time again
        return topic_counts
