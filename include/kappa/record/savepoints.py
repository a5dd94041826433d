"""Savepoints with a name: a commit of the live epoch that requests can refer to later."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from kappa import clock
from kappa.acts import Act, act
from kappa.config import Config
from kappa.errors import SavepointError, UnknownTopologyError
from kappa.names import EpochPaths
from kappa.offsets.notation import savepoint_name
from kappa.offsets.vector import Offsets, ranges_end
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import Now, epochs_of
from kappa.record.events import Event
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow


@dataclass(frozen=True, kw_only=True)
class Savepoint:
    """A commit with a name.

    Attributes:
        name: its name, unique in the topology.
        epoch: the epoch that was live.
        seq: the commit in that epoch's ledger.
        offsets: next offset of every partition after it.
        delta_versions: table path within the epoch -> Delta version.
        at: when it got its name, UTC.
        actor: the person or program that gave it.
        stage: the present stage of the epoch; only a savepoint of the live one can be replayed from.
    """

    topology: str
    name: str
    epoch: int
    seq: int
    offsets: Offsets
    delta_versions: Mapping[str, int]
    at: datetime
    actor: str
    reason: str
    stage: str


@act
def create(
    config: Config, topology: str, name: str, *, seq: int | None = None, actor: str, reason: str = ""
) -> Act[Savepoint]:
    """Give a commit of the live epoch a name: commit ``seq``, by default the last one.

    One row in the record of epochs. Idempotent for the same commit.

    Raises:
        UsageError: a savepoint cannot be called that.
        UnknownTopologyError: the topology has no live epoch.
        SavepointError: the name is taken, or the live epoch has no such commit, or gave up its files meanwhile.
    """
    epochs = epochs_of(config.lake)

    def decide(now: Now) -> Sequence[Event]:
        event = _event(config, now.record, name, seq, actor=actor, reason=reason)
        return [] if event is None else [event]

    def check(events: list[Event]) -> None:
        for event in events:
            _check_files(config, event)

    effects, after = epochs.effects(epochs.now(topology), decide, after=check)

    def outcome() -> Savepoint:
        record = epochs.record(topology)
        return _one(record if name in record.savepoints else after.record, name)

    return Act(effects=effects, outcome=outcome)


@act
def drop(config: Config, topology: str, name: str, *, actor: str, reason: str = "") -> Act[Savepoint]:
    """Remove a savepoint's name; its files go when their time has come. Returns the savepoint.

    Raises:
        SavepointError: the topology has no savepoint of that name.
    """
    epochs = epochs_of(config.lake)
    dropped: list[Savepoint] = []

    def decide(now: Now) -> Sequence[Event]:
        savepoint = _one(now.record, name)
        dropped.append(savepoint)
        detail = {"name": name, "seq": savepoint.seq}
        return [now.event("savepoint_dropped", savepoint.epoch, actor=actor, reason=reason, detail=detail)]

    return Act(effects=epochs.effects(epochs.now(topology), decide)[0], outcome=lambda: dropped[-1])


def every(config: Config, topology: str | None = None) -> list[Savepoint]:
    """Savepoints of a topology, by default of all, oldest first."""
    epochs = epochs_of(config.lake)
    names = epochs.topologies() if topology is None else [topology]
    records = [epochs.record(name) for name in names]
    return [_savepoint(record, event) for record in records for event in record.savepoints.values()]


def _event(
    config: Config, record: TopologyRecord, name: str, seq: int | None, *, actor: str, reason: str
) -> Event | None:
    """The event that makes the savepoint; None if the savepoint exists."""
    savepoint_name(name)
    if record.live is None:
        raise UnknownTopologyError(
            f"Topology {record.topology!r} has no live epoch, so no commit that could get a name. Start it: "
            f"kappa start {record.topology} --execute",
            name=record.topology,
        )
    namesake = record.savepoints.get(name)
    if namesake is not None and namesake.epoch == record.live and seq in (None, namesake.detail["seq"]):
        row = _commit(config, record, seq)
        if row.seq == namesake.detail["seq"]:
            return None
    if namesake is not None:
        raise SavepointError(
            f"Topology {record.topology!r} has a savepoint {name!r} already: seq {namesake.detail['seq']} of epoch "
            f"{namesake.epoch}, named {namesake.at:%Y-%m-%d %H:%M:%S} by {namesake.actor}. Choose another name, or "
            "`kappa savepoint drop` it.",
            name=name,
            epoch=namesake.epoch,
            seq=namesake.detail["seq"],
        )
    row = _commit(config, record, seq)
    return Event(
        topology=record.topology,
        epoch=record.live,
        event="savepoint",
        at=clock.now(),
        actor=actor,
        reason=reason,
        detail={
            "name": name,
            "seq": row.seq,
            "offsets": ranges_end(row.ranges).as_dict(),
            "delta_versions": dict(row.delta_versions),
            "finished_at": row.at.isoformat(),
        },
    )


def _check_files(config: Config, event: Event) -> None:
    """Take a name back whose files were given up before it was on record: a driver looks for names after it says so."""
    topology, epoch, name, seq = event.topology, event.epoch, event.detail["name"], event.detail["seq"]
    if Ledger(EpochPaths(lake=config.lake, topology=topology, epoch=epoch).ledger).state().is_readable(seq):
        return
    reason = "the files of the commit were given up meanwhile"
    epochs_of(config.lake).add(
        topology, epoch, "savepoint_dropped", actor=event.actor, reason=reason, name=name, seq=seq
    )
    raise SavepointError(
        f"The files of commit {seq} of epoch {epoch} of {topology!r} were given up while it got the name {name!r}. The "
        f"name is taken back. Name the last commit: kappa savepoint create {topology} {name} --execute",
        epoch=epoch,
        seq=seq,
        name=name,
    )


def _commit(config: Config, record: TopologyRecord, seq: int | None) -> LedgerRow:
    ledger = Ledger(EpochPaths(lake=config.lake, topology=record.topology, epoch=record.live_epoch()).ledger)
    if seq is None:
        row = ledger.last_commit()
        if row is None:
            raise SavepointError(
                f"Epoch {record.live} of {record.topology!r} has no commit yet. Try again in a moment."
            )
        return row
    state = ledger.state()
    commits = state.readable
    commit = next((row for row in commits if row.seq == seq), None)
    if commit is None:
        readable = f"{len(commits)}, from {commits[0].seq} to {commits[-1].seq}" if commits else "none"
        raise SavepointError(
            f"Live epoch {record.live} of {record.topology!r} has no commit {seq} whose files are kept; it has "
            f"{readable}.",
            epoch=record.live,
            seq=seq,
        )
    return commit


def _one(record: TopologyRecord, name: str) -> Savepoint:
    if name not in record.savepoints:
        near = difflib.get_close_matches(name, record.savepoints, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise SavepointError(
            f"Topology {record.topology!r} has no savepoint {name!r}; it has {sorted(record.savepoints)}.{hint}",
            name=name,
            known=sorted(record.savepoints),
        )
    return _savepoint(record, record.savepoints[name])


def _savepoint(record: TopologyRecord, event: Event) -> Savepoint:
    return Savepoint(
        topology=record.topology,
        name=event.detail["name"],
        epoch=event.epoch,
        seq=event.detail["seq"],
        offsets=Offsets.from_json(event.detail["offsets"]),
        delta_versions=event.detail["delta_versions"],
        at=event.at,
        actor=event.actor,
        reason=event.reason,
        stage="live" if event.epoch == record.live else str(record.epoch(event.epoch).stage),
    )
