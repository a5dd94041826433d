"""Records that a driver leaves out of its slices: those set aside by a decision on record."""

from __future__ import annotations

from collections.abc import Sequence

from kappa.driver.driven_epoch import DrivenEpoch
from kappa.driver.voice import Voice
from kappa.faults import crash_point
from kappa.offsets import set_asides
from kappa.offsets.set_asides import SetAside, SetAsides
from kappa.offsets.vector import OffsetRange
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import Now
from kappa.record.events import Event, records_of
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import BegunState


class Decisions:
    """The records that an epoch sets aside: by its own decisions, by its plan, as the live epoch did where it follows
    that, and by decisions of live epochs before it about what the live epoch has not read.
    """

    def __init__(self, epoch: DrivenEpoch, voice: Voice) -> None:
        self._epoch = epoch
        self._voice = voice
        self._parsed: dict[int, SetAsides] = {}
        #: Own decisions of whose records the epoch has read the last.
        self._past: set[int] = set()

    def within(self, record: TopologyRecord, ranges: Sequence[OffsetRange]) -> SetAsides:
        """Those that lie in the ranges of a slice."""
        epoch, others = self._epoch, self._decided_before(record)
        if record.live is not None and record.live != epoch.paths.epoch:
            live = epoch.live_ledger(record).begun()
            before = set_asides.before(others, dict(record.epoch(record.live).origin.items()))
            read = set_asides.without(set_asides.before(others, dict(live.position.items())), before)
            others = [*set_asides.without(others, read), *live.set_aside]
        others += epoch.plan.set_aside
        records = (*self._decided(record, epoch.paths.epoch), *set_asides.without(others, epoch.plan.brought_in))
        return set_asides.merged(set_asides.within(set_asides.of_topics(records, epoch.plan.topic_ids), ranges))

    def alone(self, record: TopologyRecord, live: int) -> SetAsides:
        """Those that this epoch leaves out, or will, and the live one does not."""
        epoch = self._epoch
        own = (*epoch.ledger.state().set_aside, *self._decided(record, epoch.paths.epoch))
        theirs = (*epoch.live_ledger(record).state().set_aside, *self._decided(record, live))
        return set_asides.without(set_asides.merged(own), theirs)

    def is_unobeyed(self, record: TopologyRecord, plan: LedgerRow) -> bool:
        """Whether a decision of the epoch came after a slice was planned, about records of the slice."""
        own = set_asides.within(self._decided(record, self._epoch.paths.epoch), plan.ranges)
        return bool(set_asides.without(own, plan.set_aside))

    def without_late(self, record: TopologyRecord, state: BegunState) -> TopologyRecord:
        """The record, on which those decisions are withdrawn that came too late: their records were read by then."""
        events = [one for one in record.epoch(self._epoch.paths.epoch).set_asides if one.n not in self._past]
        records = [one for event in events for one in self._of(event)]
        passed = set_asides.before(records, dict(state.position.items()))
        late = set_asides.without(passed, state.set_aside) if passed else ()
        for event in events:
            if own := [one for one in late if one.decision == event.n]:
                self._withdraw(event, f"the epoch has committed {set_asides.described(own)} by then")
        self._past |= {event.n for event in events} - {one.decision for one in set_asides.without(records, passed)}
        return self._epoch.record() if late else record

    def _withdraw(self, event: Event, reason: str) -> None:
        def decide(now: Now) -> Sequence[Event]:
            if event not in now.record.epoch(event.epoch).set_asides:
                return []
            detail = {"set_aside": event.n}
            return [now.event("set_aside_withdrawn", event.epoch, actor="driver", reason=reason, detail=detail)]

        epoch, voice = self._epoch, self._voice
        epoch.ledger.check_claim(epoch.writer)
        epoch.epochs.change(epoch.paths.topology, decide)
        voice.log.warning("set aside too late", decision=event.n, reason=reason)
        crash_point("set_aside.withdrawn")

    def _decided(self, record: TopologyRecord, *epochs: int) -> list[SetAside]:
        """Decisions of some epochs."""
        events = [event for epoch in epochs for event in record.epoch(epoch).set_asides if event.n not in self._past]
        return [one for event in events for one in self._of(event)]

    def _decided_before(self, record: TopologyRecord) -> list[SetAside]:
        """Decisions of live epochs before this one."""
        lived = {move.epoch for move in record.moves}
        return self._decided(record, *sorted(epoch for epoch in lived if epoch < self._epoch.paths.epoch))

    def _of(self, event: Event) -> SetAsides:
        """The records that an event sets aside; parsed once, however often the record is read."""
        if event.n not in self._parsed:
            self._parsed[event.n] = records_of(event)
        return self._parsed[event.n]
