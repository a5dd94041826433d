"""The record of a topology and of its epochs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from kappa.errors import LedgerError, UnknownEpochError, UnknownTopologyError, UsageError
from kappa.offsets.set_asides import SetAsides
from kappa.offsets.vector import Offsets
from kappa.record.events import ROLLED_UP, Event
from kappa.replay.chains import Binding
from kappa.replay.findings import Finding
from kappa.replay.plan import ReplayPlan
from kappa.replay.proof.determinism import Determinism
from kappa.replay.request import Seed
from kappa.replay.stages import Stage
from kappa.topology.shapes import SentForm


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
    def backfill_folders(self) -> frozenset[str]:
        """Names of the folders whose rows wait for the driver of the live epoch: nothing would compute them again."""
        return frozenset(str(event.detail["folder"]) for event in self.backfills)

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
    def sent_forms(self) -> Mapping[str, SentForm]:
        """Those topics, with the form of their values; empty where earlier code made the plan."""
        return self._plan.sent_forms if self._plan is not None else {}

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
            topology = self.planned.topology
            raise LedgerError(
                f"The record of epoch {self.epoch} of {topology!r} holds no plan: files of it are lost. Put them back "
                "from a backup, or from older versions in their bucket: docs/restore-a-bucket.md. What is left: kappa "
                f"history {topology} --epoch {self.epoch} --json",
                epoch=self.epoch,
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
        return str(self.planned.detail.get(ROLLED_UP, ""))

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
    try:
        return ReplayPlan.from_json(plan)
    except UsageError as error:
        raise LedgerError(str(error)) from error


@dataclass(frozen=True, kw_only=True)
class WholeRecord:
    """The record of one topology with its epochs that ended long ago.

    Attributes:
        epochs: its epochs by number.
        moves: all moves of the pointer, oldest first.
        events: all its events, oldest first.
    """

    epochs: Mapping[int, EpochRecord]
    moves: tuple[Event, ...]
    events: tuple[Event, ...]


@dataclass(frozen=True, kw_only=True)
class TopologyRecord:
    """The record of one topology.

    Its epochs that ended long ago are most of it, and few ask for them: they are read when somebody does.

    Attributes:
        live: the epoch that readers get.
        recent: its epochs by number, without those that were rolled up.
        recent_events: the events of these, oldest first.
        handover: a handover that was neither finished nor withdrawn.
        standing: where the live epoch stands for it, if it is one of several topologies.
        last_move: the last move of the pointer.
        savepoints: name -> the event that gave a commit that name, oldest first; dropped ones are not among them.
        make_whole: makes the record with all epochs.
    """

    topology: str
    live: int | None
    recent: Mapping[int, EpochRecord]
    recent_events: tuple[Event, ...] = field(repr=False)
    handover: Event | None
    standing: Event | None
    last_move: Event | None
    savepoints: Mapping[str, Event]
    make_whole: Callable[[], WholeRecord] = field(repr=False, compare=False)

    @cached_property
    def _whole(self) -> WholeRecord:
        return self.make_whole()

    @property
    def epochs(self) -> Mapping[int, EpochRecord]:
        """Its epochs by number."""
        return self._whole.epochs

    @property
    def moves(self) -> tuple[Event, ...]:
        """All moves of the pointer, oldest first."""
        return self._whole.moves

    @property
    def events(self) -> tuple[Event, ...]:
        """All its events, oldest first."""
        return self._whole.events

    def epoch(self, number: int) -> EpochRecord:
        """One epoch.

        Raises:
            UnknownEpochError: the topology has no such epoch.
        """
        epoch = self.recent.get(number) or self.epochs.get(number)
        if epoch is None:
            raise UnknownEpochError(
                f"Topology {self.topology!r} has no epoch {number}; it has {sorted(self.epochs)}.",
                topology=self.topology,
                epoch=number,
            )
        return epoch

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

    @property
    def readable_epochs(self) -> list[int]:
        """The numbers of the epochs that were not removed."""
        return sorted(number for number, epoch in self.recent.items() if not epoch.stage.is_ended)

    def readable_epoch(self, number: int | None) -> int:
        """The number of an epoch whose rows can be read.

        Args:
            number: None for the live one.

        Raises:
            UnknownTopologyError: none is live.
            UnknownEpochError: the topology has no such epoch, or it was removed with its files.
        """
        if number is None:
            return self.live_epoch()
        epoch = self.epoch(number)
        if epoch.stage.is_ended:
            raise UnknownEpochError(
                f"Epoch {number} of {self.topology!r} was {epoch.stage.lower()}, and its tables were removed. See the "
                f"others: kappa status {self.topology}",
                topology=self.topology,
                epoch=number,
                savepoints=[],
            )
        return number

    def candidate_epoch(self) -> int:
        """The number of the epoch that is being built or brought back.

        Raises:
            UnknownEpochError: there is none.
        """
        if self.candidate is None:
            epochs = [one for one in self.recent.values() if one.epoch != self.live and not one.stage.is_ended]
            rejections = [one.rejected for one in epochs if one.rejected is not None]
            if rejections:
                last = rejections[-1]
                raise UnknownEpochError(
                    f"No epoch of {self.topology!r} is being built: epoch {last.epoch} was rejected by {last.actor}. "
                    f"Take it up again: kappa start {self.topology} --epoch {last.epoch} --execute",
                    topology=self.topology,
                )
            raise UnknownEpochError(
                f"No epoch of {self.topology!r} is being built. Build one: kappa replay {self.topology} --execute",
                topology=self.topology,
            )
        return self.candidate.epoch

    def environment_of(self, epoch: int) -> str:
        """Id of the environment in which somebody decided to run an epoch; empty where nobody did."""
        decisions = [e.detail for e in self.recent_events if e.epoch == epoch and "in_environment" in e.detail]
        return str(decisions[-1]["in_environment"]) if decisions else ""

    def named_seqs(self, epoch: int) -> set[int]:
        """Slices of an epoch whose commits have a name: their files are kept."""
        return {int(event.detail["seq"]) for event in self.savepoints.values() if event.epoch == epoch}

    @property
    def last_handover(self) -> int:
        """Number of the handover by which the live epoch went live; 0 when there was none to hand over."""
        return (self.last_move.detail.get("handover") or 0) if self.last_move is not None else 0

    @property
    def candidate(self) -> EpochRecord | None:
        """The epoch that is being built or brought back, if any."""
        active = [e for e in self.recent.values() if e.epoch != self.live and (e.is_recalled or e.is_building)]
        return active[-1] if active else None

    def goes_along(self, live: Mapping[str, int | None]) -> bool:
        """Whether the candidate is on its way with others: brought back, or built on an epoch that is not live.

        Args:
            live: topologies that move together -> their live epochs.
        """
        if self.candidate is None:
            return False
        upstream = self.candidate.bound.values()
        return self.candidate.is_recalled or any(
            one.topology in live and one.epoch != live[one.topology] for one in upstream
        )

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
