"""Records that an epoch is to leave out, asked for here and obeyed by its driver.

A listing names each record; a decision is one event that holds the listing. See :mod:`kappa.offsets.set_asides`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kappa.acts import Act, act
from kappa.config import Config
from kappa.driver.processes.process import with_driver
from kappa.errors import MoveRefusedError, RefusedError, UsageError
from kappa.faults import crash_point
from kappa.names import EpochPaths
from kappa.offsets import set_asides
from kappa.offsets.set_asides import SetAside
from kappa.record.epoch_record import EpochRecord, TopologyRecord
from kappa.record.epochs import Now, epochs_of
from kappa.record.events import Event, records_of
from kappa.record.ledger import Ledger
from kappa.record.ledger_state import BegunState, LedgerState, begun

#: Most records that one decision sets aside, unless it is given another cap.
LIMIT = 10_000
#: How many records are shown of a listing.
SAMPLES = 3


@dataclass(frozen=True, kw_only=True)
class ListedRecord:
    """One record of a listing, without its key and value.

    Attributes:
        offset: where it lies.
        size: bytes of its value; None for a null value, and where it was not read.
        hash: of the value, as the decision keeps it.
    """

    offset: int
    size: int | None
    hash: str


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Records that would be set aside.

    Attributes:
        epoch: the epoch that would leave them out, and those after it.
        topic: their topic.
        topic_id: Kafka's id of it.
        partition: their partition.
        offsets: offset -> hash of the value.
        mask: fingerprint of the key of these hashes; empty if they have none.
        samples: the first of them.
        failing: the error class by which they were listed; empty where their offsets were named.
        is_capped: whether there may be more that fail so, beyond the cap.
    """

    topology: str
    epoch: int
    topic: str
    topic_id: str
    partition: int
    offsets: dict[int, str]
    samples: tuple[ListedRecord, ...]
    mask: str = ""
    failing: str = ""
    is_capped: bool = False

    def render(self) -> list[str]:
        """Lines of text for people."""
        how = f" that alone fail with {self.failing}" if self.failing else ""
        places = f"{self.topic}[{self.partition}] at {set_asides.shown(self.offsets)}"
        lines = [f"{len(self.offsets):,} records{how} in {places}, for epoch {self.epoch} of {self.topology}:"]
        for sample in self.samples:
            size = "no value" if sample.size is None else f"{sample.size:,} bytes, hash {sample.hash}"
            lines.append(f"  {self.topic}[{self.partition}] at {sample.offset}: {size}")
        if self.is_capped:
            lines.append("There may be more that fail so: the cap of --limit is reached.")
        return lines


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The epoch, and the partition of it that a decision is about.

    Attributes:
        record: what is on record of the topology.
        epoch: the epoch.
        state: its ledger.
        topic: a topic that it reads, by Kafka's name.
        topic_id: Kafka's id of it.
        partition: its partition.
    """

    record: TopologyRecord
    epoch: EpochRecord
    state: LedgerState
    topic: str
    topic_id: str
    partition: int

    @property
    def next_offset(self) -> int:
        """The first offset that the epoch has not committed."""
        return begun(self.state).position.get(self.topic, self.partition) or 0


def subject(config: Config, topology: str, epoch: int | None, topic: str | None, partition: int | None) -> Subject:
    """What a decision is about. Reads only.

    Args:
        epoch: the epoch; None for the live one, or the one that is being built where none is live.
        topic: a topic that it reads; None where it reads one only.
        partition: a partition of it; None where it has one only.

    Raises:
        UsageError: topic or partition has to be named, or is not one of the epoch's.
        RefusedError: the epoch is neither live nor being built, or the topic is a versioned topic of another topology.
    """
    record = epochs_of(config.lake).record(topology)
    number = epoch if epoch is not None else record.live
    number = record.candidate_epoch() if number is None else number
    target = record.epoch(number)
    if number != record.live and (record.candidate is None or record.candidate.epoch != number):
        raise RefusedError(
            f"Epoch {number} of {topology!r} is {target.stage.lower()} and reads nothing of its own. Set them aside in "
            "the live epoch: leave --epoch out.",
            findings=(),
        )
    state = Ledger(EpochPaths(lake=config.lake, topology=topology, epoch=number).ledger).state()
    bound = {binding.topic: binding for binding in target.bound.values()}
    topics = sorted(target.plan.topic_ids)
    if topic is None and len(topics) > 1:
        raise UsageError(f"{topology!r} reads {', '.join(topics)}. Name one: --topic {topics[0]}")
    source = topic if topic is not None else topics[0]
    if source in bound or any(source == name for name in target.bound):
        of = (bound.get(source) or target.bound[source]).topology
        raise RefusedError(
            f"{topology!r} reads {source!r} from {of!r}: a record there has another place in each epoch of {of!r}, and "
            "no decision could name it. Set the record aside that it is made of, where that enters: kappa set-aside "
            f"{of}; or mend the step: kappa upgrade {topology}",
            findings=(),
        )
    if source not in topics:
        raise UsageError(f"Epoch {number} of {topology!r} does not read {source!r}; it reads {', '.join(topics)}.")
    partitions = sorted(state.position.partitions(source)) if isinstance(state, BegunState) else []
    if partition is None and len(partitions) > 1:
        raise UsageError(f"{source!r} has {len(partitions)} partitions. Name one: --partition {partitions[0]}")
    at = partition if partition is not None else (partitions or [0])[0]
    return Subject(
        record=record, epoch=target, state=state, topic=source, topic_id=target.plan.topic_ids[source], partition=at
    )


@act
def set_aside(config: Config, listing: Listing, *, actor: str, reason: str) -> Act[Event]:
    """Put a listing on record as a decision; the epoch's driver plans without these records from then on.

    One event in the record of epochs, by compare-and-set. A crash before it changes nothing; after it the driver obeys.
    A candidate that was compared with the live epoch is compared anew.

    Raises:
        UsageError: no reason is given.
        RefusedError: the epoch has committed one of them meanwhile, or their effects are on record.
        MoveRefusedError: the epoch is neither live nor being built any more, or is being made live.
    """
    topology = listing.topology
    if not reason.strip():
        raise UsageError("A decision says why: --reason '...'. It is kept with each of these records.")
    paths = EpochPaths(lake=config.lake, topology=topology, epoch=listing.epoch)
    records = SetAside(
        decision=0,
        reason="",
        topic=listing.topic,
        topic_id=listing.topic_id,
        partition=listing.partition,
        offsets=listing.offsets,
        mask=listing.mask,
    ).as_dict()
    content = {name: value for name, value in records.items() if name not in ("decision", "reason")}
    detail = {"records": [content], "count": len(listing.offsets), "failing": listing.failing}

    def decide(now: Now) -> Sequence[Event]:
        record = now.record
        candidate = record.candidate.epoch if record.candidate is not None else None
        if listing.epoch not in (record.live, candidate):
            raise MoveRefusedError(
                f"Epoch {listing.epoch} of {topology!r} is neither live nor being built by now. Ask again.",
                live=record.live,
            )
        if record.handover is not None and record.handover.epoch == listing.epoch:
            raise MoveRefusedError(
                f"Epoch {listing.epoch} of {topology!r} is being made live since {record.handover.at:%H:%M:%S}, as it "
                f"was compared. Nothing was changed. Ask again once `kappa history {topology}` shows `moved` or "
                "`withdrawn`.",
                live=record.live,
            )
        about = Subject(
            record=record,
            epoch=record.epoch(listing.epoch),
            state=Ledger(paths.ledger).state(),
            topic=listing.topic,
            topic_id=listing.topic_id,
            partition=listing.partition,
        )
        check_offsets(about, sorted(listing.offsets))
        return [now.event("set_aside", listing.epoch, actor=actor, reason=reason, detail=detail)]

    epochs = epochs_of(config.lake)
    events: list[Event] = []

    def decided_on(appended: list[Event]) -> None:
        events.extend(appended)
        crash_point("set_aside")

    effects, now = epochs.effects(epochs.now(topology), decide, after=decided_on)
    if now.record.epoch(listing.epoch).is_wanted:
        effects = with_driver(effects, config, topology, listing.epoch)
    return Act(effects=effects, outcome=lambda: events[0])


def check_offsets(about: Subject, offsets: Sequence[int], *, is_listed: bool = True) -> None:
    """Raise where it is too late for one of them, or it is set aside already."""
    state, topology, epoch = about.state, about.record.topology, about.epoch.epoch
    where = f"{about.topic}[{about.partition}]"
    if passed := [offset for offset in offsets if offset < about.next_offset]:
        raise RefusedError(
            f"Epoch {epoch} of {topology!r} has committed {where} up to offset {about.next_offset}; it has computed "
            f"{set_asides.shown(passed)}. What is computed is not set aside. To compute it again with new code: kappa "
            f"replay {topology}",
            findings=(),
        )
    spans = (
        [] if state.open_plan is None else [r for r in state.open_plan.ranges if r.at == (about.topic, about.partition)]
    )
    inside = [offset for offset in offsets if any(r.start <= offset < r.end for r in spans)]
    if inside and state.open_effects is not None and not _is_stuck(about):
        raise RefusedError(
            f"Slice {state.seq} of epoch {epoch} of {topology!r} has computed {where} at {set_asides.shown(inside)}: "
            "that is on record, and it will be committed. Nothing was changed.",
            findings=(),
        )
    decisions = set_asides.by_partition(decided(about)).get((about.topic, about.partition), {})
    if is_listed and (again := [offset for offset in offsets if offset in decisions]):
        raise RefusedError(
            f"{where} at {set_asides.shown(again)} is set aside already, by decision {decisions[again[0]].decision}.",
            findings=(),
        )


def _is_stuck(about: Subject) -> bool:
    """Whether the epoch waits at its planned slice for a decision."""
    events = [e for e in about.record.events if e.epoch == about.epoch.epoch and e.event == "stuck"]
    return bool(events) and events[-1].detail.get("seq") == about.state.seq


def decided(about: Subject) -> Iterator[SetAside]:
    """The records that the epoch has set aside, or is to set aside."""
    yield from about.state.set_aside
    for event in about.epoch.set_asides:
        yield from records_of(event)
