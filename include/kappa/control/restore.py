"""The way back after another program wrote into an epoch's Delta tables: its commits are undone, on record."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kappa.acts import Act, Effect, act
from kappa.config import Config
from kappa.delta.commits import Commit
from kappa.driver.processes.process import settled_status
from kappa.errors import RefusedError, UnknownTopologyError, first_few
from kappa.names import EpochPaths
from kappa.record import foreign_writes
from kappa.record.epochs import Now, epochs_of
from kappa.record.events import Event
from kappa.record.ledger import Ledger


@dataclass(frozen=True, kw_only=True)
class Restoration:
    """What is undone, or was.

    Attributes:
        commits: foreign commits by place.
        versions: the Delta version that undid them, by place; for a dry run those of an earlier call that died.
    """

    epoch: int
    commits: Mapping[str, tuple[Commit, ...]]
    versions: Mapping[str, int]


@act
def restore(config: Config, topology: str, *, epoch: int | None = None, actor: str, reason: str) -> Act[Restoration]:
    """Undo every commit in an epoch's Delta tables that Kappa did not make. Idempotent.

    The epoch is claimed for it: a driver that was frozen finds that out and stops. A crash leaves some tables done, or
    all of them without the event: the next call puts that on record.

    Args:
        epoch: the epoch; None for the live one.

    Raises:
        UnknownTopologyError: the topology has no live epoch.
        RefusedError: the epoch's driver is running.
        LedgerError: a commit cannot be undone.
    """
    epochs = epochs_of(config.lake)
    record = epochs.record(topology)
    number = epoch if epoch is not None else record.live
    if number is None:
        raise UnknownTopologyError(f"Topology {topology!r} has no live epoch. Name one with --epoch.", name=topology)
    record.epoch(number)
    paths = EpochPaths(lake=config.lake, topology=topology, epoch=number)
    ledger = Ledger(paths.ledger)
    state = ledger.state()
    foreign_commits = foreign_writes.foreign_commits(paths, state)
    commits = {place: tuple(these) for place, these in foreign_commits.items()}
    if foreign_commits and settled_status(config, topology, number).is_running:
        raise RefusedError(
            f"The driver of epoch {number} of {topology!r} is running: its next commit may build on what is undone. "
            f"Stop it first: kappa stop {topology} --epoch {number} --execute",
            findings=(),
            epoch=number,
        )
    earlier = _not_on_record(number, foreign_writes.restorations(paths, state), record.recent_events)
    versions = {place: these[-1].version for place, these in earlier.items()}

    def outcome() -> Restoration:
        return Restoration(epoch=number, commits=commits, versions=versions)

    if not foreign_commits and not earlier:
        return Act(effects=(), outcome=outcome)
    writer = f"{socket.gethostname()}:{os.getpid()}:restore-{uuid.uuid4().hex[:8]}"
    undone = {
        place: sorted(
            {
                *(version for commit in earlier.get(place, ()) for version in commit.undone),
                *(commit.version for commit in commits.get(place, ())),
            }
        )
        for place in sorted({*earlier, *commits})
    }

    def claim() -> None:
        ledger.claim(writer, state.claim.code if state.claim is not None else "", state, is_taken=True)

    def undo() -> None:
        ledger.check_claim(writer)
        versions.update(foreign_writes.undo(paths, state))

    def decide(now: Now) -> Sequence[Event]:
        if not foreign_commits and not _not_on_record(number, earlier, now.record.recent_events):
            return []
        return [now.event("restored", number, actor=actor, reason=reason, detail={"undone": undone, "made": versions})]

    listed = "; ".join(f"{place} {first_few(one.version for one in these)}" for place, these in commits.items())
    of_epoch = {"topology": topology, "epoch": number}
    on_record = epochs.effects(epochs.now(topology), decide)[0]
    if not foreign_commits:  # an earlier call died, or lost an answer, before its event
        return Act(effects=on_record, outcome=outcome)
    effects = (
        Effect(
            what=f"claim epoch {number} of {topology}, so that no driver goes on in it", values=of_epoch, make=claim
        ),
        Effect(
            what=f"undo commits of other programs by one new commit for each table: {listed}",
            values={**of_epoch, "commits": undone},
            make=undo,
        ),
        *on_record,
    )
    return Act(effects=effects, outcome=outcome)


def _not_on_record(
    epoch: int, restorations: Mapping[str, Sequence[Commit]], events: Sequence[Event]
) -> dict[str, list[Commit]]:
    """Of the commits that undid others those that no event of the epoch names, by place."""
    on_record = {
        (place, version)
        for event in events
        if event.event == "restored" and event.epoch == epoch
        for place, version in event.detail["made"].items()
    }
    rest = {
        place: [commit for commit in commits if (place, commit.version) not in on_record]
        for place, commits in restorations.items()
    }
    return {place: commits for place, commits in rest.items() if commits}
