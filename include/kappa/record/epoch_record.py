"""The record of topologies and of their epochs, out of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from kappa.errors import LedgerError, UnknownEpochError, UnknownTopologyError
from kappa.offsets.set_asides import SetAsides
from kappa.offsets.vector import Offsets
from kappa.record.events import STAGE_OF, Event
from kappa.replay.chains import Binding
from kappa.replay.findings import Finding
from kappa.replay.plan import ReplayPlan
from kappa.replay.proof.determinism import Determinism
from kappa.replay.request import Seed
from kappa.replay.stages import Stage


@dataclass(frozen=True, kw_only=True)
class EpochRecord:
    """The record of one epoch.

    Attributes:
        stage: the stage it reached.
        planned: the event that created it.
        is_wanted: whether its driver should be running.
        is_recalled: whether it was retired and is being brought back.
        seeded: the event of its seed.
        replayed: the event that ended its bulk work.
        verified: the event of its last verification.
        approvals: the events that approved it, oldest first; none once it was rejected.
        rejected: the event that rejected it, unless it was taken up again.
        moved: the event that made it live most recently.
        own_topics: the event that took the names of its versioned topics, if it has any.
        upgrade: a requested upgrade, neither complete nor withdrawn.
        upgraded: complete upgrades, oldest first.
        backfills: requested backfills, neither complete nor withdrawn, oldest first.
        backfilled: backfills that were done, oldest first.
        superseded: the event by which its driver ended because it was rebuilt in another lake.
        set_asides: decisions to set records aside that were not withdrawn, oldest first.
    """

    epoch: int
    stage: Stage
    planned: Event
    is_wanted: bool = True
    is_recalled: bool = False
    seeded: Event | None = None
    replayed: Event | None = None
    verified: Event | None = None
    approvals: tuple[Event, ...] = ()
    rejected: Event | None = None
    moved: Event | None = None
    own_topics: Event | None = None
    upgrade: Event | None = None
    upgraded: tuple[Event, ...] = ()
    backfills: tuple[Event, ...] = ()
    backfilled: tuple[Event, ...] = ()
    superseded: Event | None = None
    set_asides: tuple[Event, ...] = ()

    @property
    def approved(self) -> Event | None:
        """The first approval of the latest approved detail; None without one."""
        alike = [event for event in self.approvals if event.detail == self.approvals[-1].detail]
        return alike[0] if alike else None

    @property
    def code(self) -> str:
        """Content hash of the code that runs the epoch: that of its last upgrade, or of its plan."""
        return str((self.upgraded[-1] if self.upgraded else self.planned).detail["code"])

    @property
    def codes(self) -> frozenset[str]:
        """Content hashes of all code that ran the epoch or is to run it."""
        events = (self.planned, *self.upgraded, *([self.upgrade] if self.upgrade else []))
        return frozenset(str(event.detail["code"]) for event in events)

    @property
    def version(self) -> str:
        """Its author's word for the code that runs the epoch."""
        return str((self.upgraded[-1] if self.upgraded else self.planned).detail["version"])

    @property
    def step_findings(self) -> tuple[Finding, ...]:
        """Findings of its driver about the plans of its step; none before it is seeded."""
        findings = self.seeded.detail.get("findings", ()) if self.seeded is not None else ()
        return tuple(map(Finding.from_dict, findings))

    @property
    def determinism(self) -> Determinism | None:
        """The outcome of a second run over its range, if the plan has one."""
        values = self.replayed.detail.get("determinism") if self.replayed is not None else None
        return None if values is None else Determinism.from_dict(values)

    @property
    def topics(self) -> Mapping[str, str]:
        """Topic output -> the epoch's versioned topic, for those that it made for itself."""
        return self.own_topics.detail["topics"] if self.own_topics is not None else {}

    def topic(self, name: str) -> str | None:
        """The topic to which the epoch sends a topic output when it is live; None when it has none of that name."""
        return self.topics.get(name, name if name in self.sends_to else None)

    @property
    def sends_to(self) -> tuple[str, ...]:
        """Names of its topic outputs."""
        if self.rolled_up:
            return tuple(self.planned.detail.get("sends_to", ()))
        return self._plan.topics if self._plan is not None else ()

    @property
    def seed(self) -> Seed:
        """What its tables began with."""
        return Seed(self.planned.detail["seed"]) if "seed" in self.planned.detail else self.plan.seed

    @property
    def seed_epoch(self) -> int | None:
        """The epoch whose tables or changelog it begins with, if any."""
        return self._plan.seed_epoch if self._plan is not None else None

    @property
    def reconciled(self) -> Mapping[str, str]:
        """Topic -> the table that it is brought to when the epoch goes live."""
        return self._plan.reconciled if self._plan is not None else {}

    @property
    def brought_in(self) -> SetAsides:
        """Records that an earlier epoch had set aside, and that this one computed."""
        return self._plan.brought_in if self._plan is not None else ()

    @property
    def bound(self) -> Mapping[str, Binding]:
        """Source -> the versioned topic of another topology's epoch that it reads for it."""
        return self._plan.bound if self._plan is not None else {}

    @property
    def origin(self) -> Offsets:
        """Where of the root topics the history in its tables and versioned topics begins."""
        plan = self._plan
        return Offsets() if plan is None else plan.roots.get("origin", plan.origin)

    @property
    def root_start(self) -> Offsets | None:
        """Where it began to read in root topics; None when it reads no versioned topics."""
        return self._plan.roots.get("start") if self._plan is not None else None

    @property
    def plan(self) -> ReplayPlan:
        """The plan; parsed once, however often the record is read.

        Raises:
            LedgerError: the event that created the epoch holds no plan, or not any more.
            NewerFormatError: newer code wrote it in a format that this code does not read.
        """
        if self._plan is None:
            raise LedgerError(
                f"The record of epoch {self.epoch} of {self.planned.topology!r} holds no plan.", epoch=self.epoch
            )
        return self._plan

    @cached_property
    def _plan(self) -> ReplayPlan | None:
        if self.rolled_up:  # "nothing" would be an answer, and a wrong one
            topology = self.planned.topology
            raise LedgerError(
                f"Epoch {self.epoch} of {topology!r} ended long ago: its plan is only in the history now. Show it: "
                f"kappa history {topology} --epoch {self.epoch} --json",
                epoch=self.epoch,
            )
        text = self.planned.detail.get("plan")
        return None if text is None else _parsed(text)

    @property
    def rolled_up(self) -> str:
        """The file of its events, of an epoch that ended long ago; of those a few stay on record, without documents."""
        return str(self.planned.detail.get("rolled_up", ""))

    @property
    def is_kept(self) -> bool:
        """Whether it is retired and its driver follows the live epoch all the same."""
        return self.stage is Stage.RETIRED and self.is_wanted and not self.is_recalled

    @property
    def is_building(self) -> bool:
        """Whether it was planned and has neither gone live, nor ended, nor been rejected."""
        return self.stage in _BUILDING and self.rejected is None


@lru_cache(maxsize=128)
def _parsed(plan: str) -> ReplayPlan:
    """A record is rebuilt for each look at it, out of the same events."""
    return ReplayPlan.from_json(plan)


@dataclass(frozen=True, kw_only=True)
class TopologyRecord:
    """The record of one topology.

    Attributes:
        live: the epoch that readers get.
        epochs: its epochs by number.
        handover: a handover that was neither finished nor withdrawn.
        standing: where the live epoch stands for it, if it is one of several topologies.
        moves: all moves of the pointer, oldest first.
        savepoints: name -> the event that gave a commit that name, oldest first; dropped ones are not among them.
        events: all its events, oldest first.
    """

    topology: str
    live: int | None = None
    epochs: Mapping[int, EpochRecord] = field(default_factory=dict)
    handover: Event | None = None
    standing: Event | None = None
    moves: tuple[Event, ...] = ()
    savepoints: Mapping[str, Event] = field(default_factory=dict)
    events: tuple[Event, ...] = ()

    def epoch(self, number: int) -> EpochRecord:
        """One epoch.

        Raises:
            UnknownEpochError: the topology has no such epoch.
        """
        if number not in self.epochs:
            raise UnknownEpochError(
                f"Topology {self.topology!r} has no epoch {number}; it has {sorted(self.epochs)}.",
                topology=self.topology,
                epoch=number,
            )
        return self.epochs[number]

    def live_epoch(self) -> int:
        """The number of the live epoch.

        Raises:
            UnknownTopologyError: the topology has none.
        """
        if self.live is None:
            raise UnknownTopologyError(
                f"Topology {self.topology!r} has no live epoch. Start it: kappa start {self.topology} --execute",
                name=self.topology,
            )
        return self.live

    def candidate_epoch(self) -> int:
        """The number of the epoch that is being built or brought back.

        Raises:
            UnknownEpochError: there is none.
        """
        if self.candidate is None:
            raise UnknownEpochError(
                f"No epoch of {self.topology!r} is being built. Build one: kappa replay {self.topology} --execute",
                topology=self.topology,
            )
        return self.candidate.epoch

    def named_seqs(self, epoch: int) -> set[int]:
        """Slices of an epoch whose commits have a name: their files are kept."""
        return {int(event.detail["seq"]) for event in self.savepoints.values() if event.epoch == epoch}

    @property
    def last_handover(self) -> int:
        """Number of the handover by which the live epoch went live; 0 when there was none to hand over."""
        return (self.moves[-1].detail.get("handover") or 0) if self.moves else 0

    @property
    def candidate(self) -> EpochRecord | None:
        """The epoch that is being built or brought back, if any."""
        active = [e for e in self.epochs.values() if e.epoch != self.live and (e.is_recalled or e.is_building)]
        return active[-1] if active else None

    @property
    def default_epoch(self) -> int | None:
        """The number of the epoch that is shown where none is named: the candidate, or the live one."""
        return self.candidate.epoch if self.candidate is not None else self.live


_BUILDING = (
    Stage.PLANNED,
    Stage.REWOUND,
    Stage.SEEDED,
    Stage.REPLAYED,
    Stage.CAUGHT_UP,
    Stage.VERIFIED,
    Stage.APPROVED,
)


#: Wishes of people and schedulers about an epoch, as fields of its record.
_WISHES: Mapping[str, Mapping[str, Any]] = {
    "start": {"is_wanted": True},
    "stop": {"is_wanted": False},
    "recalled": {"is_wanted": True, "is_recalled": True},
    "reopened": {"is_wanted": True, "rejected": None},
}


def record_of(topology: str, events: Sequence[Event]) -> TopologyRecord:
    """The record of one topology, out of events."""
    own = [event for event in events if event.topology == topology]
    epochs: dict[int, dict[str, Any]] = {}
    live: int | None = None
    handover: Event | None = None
    moves = []
    savepoints: dict[str, Event] = {}
    for event in own:
        if event.event == "planned":
            epochs[event.epoch] = {"epoch": event.epoch, "planned": event}
        entry = epochs[event.epoch]
        if event.event in STAGE_OF:
            entry["stage"] = STAGE_OF[event.event]
        entry.update(_WISHES.get(event.event, {}))
        match event.event:
            case "own_topics" | "seeded" | "replayed" | "verified":
                entry[event.event] = event
            case "approved":
                entry["approvals"] = (*entry.get("approvals", ()), event)
            case "rejected":
                entry.update(rejected=event, approvals=(), is_wanted=False, stage=Stage.VERIFIED)
            case "released":
                entry.update(is_recalled=False, is_wanted=False, stage=Stage.RETIRED)
                handover = None if handover is not None and handover.epoch == event.epoch else handover
            case "handover":
                handover = event
            case "withdrawn":
                handover = None
            case "upgrade" | "upgrade_withdrawn":
                entry["upgrade"] = event if event.event == "upgrade" else None
            case "upgraded":
                entry.update(upgrade=None, upgraded=(*entry.get("upgraded", ()), event))
            case "backfill" | "backfilled" | "backfill_withdrawn":
                entry.update(_backfills(entry, event))
            case "set_aside" | "set_aside_withdrawn":
                entry["set_asides"] = _set_asides(entry, event)
            case "superseded":
                entry.update(is_wanted=False, superseded=event)
            case "savepoint" | "savepoint_dropped":
                _name(savepoints, event)
            case "aborted" | "dropped":
                entry.update(is_wanted=False, is_recalled=False)
                if handover is not None and handover.epoch == event.epoch:
                    handover = None
            case "moved":
                moves.append(event)
                handover = None
                if live is not None and live != event.epoch:
                    epochs[live].update(
                        stage=Stage.RETIRED, upgrade=None, is_wanted=bool(event.detail.get("keep_old_running"))
                    )
                entry.update(moved=event, is_recalled=False, is_wanted=True)
                live = event.epoch
    return TopologyRecord(
        topology=topology,
        live=live,
        handover=handover,
        standing=_standing(own, handover),
        moves=tuple(moves),
        savepoints=savepoints,
        events=tuple(own),
        epochs={number: EpochRecord(**entry) for number, entry in epochs.items()},
    )


def _backfills(entry: Mapping[str, Any], event: Event) -> dict[str, tuple[Event, ...]]:
    """Pending and finished backfills of an epoch, after an event about one."""
    pending, finished = entry.get("backfills", ()), entry.get("backfilled", ())
    if event.event == "backfill":
        return {"backfills": (*pending, event)}
    rest = tuple(one for one in pending if one.n != event.detail["backfill"])
    return {"backfills": rest, "backfilled": (*finished, event) if event.event == "backfilled" else finished}


def _set_asides(entry: Mapping[str, Any], event: Event) -> tuple[Event, ...]:
    """Decisions of an epoch to set records aside, after an event about one."""
    decided = entry.get("set_asides", ())
    if event.event == "set_aside":
        return (*decided, event)
    return tuple(one for one in decided if one.n != event.detail["set_aside"])


def _name(savepoints: dict[str, Event], event: Event) -> None:
    if event.event == "savepoint":
        savepoints[event.detail["name"]] = event
    else:
        savepoints.pop(event.detail["name"], None)


def _standing(events: Sequence[Event], handover: Event | None) -> Event | None:
    if handover is None or "together" not in handover.detail:
        return None
    standings = (e for e in reversed(events) if e.event == "standing" and e.detail["handover"] == handover.n)
    return next(standings, None)
