"""The move of a lake to another address, and the way back.

Its record of epochs says at which address the lake is. The source is closed by one commit there, when no driver runs;
the target has no record until all else is there. So there is never more than one lake.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kappa.acts import Act, Effect, act
from kappa.archive.overview import NOBODY
from kappa.archive.reader import archived_topics
from kappa.config import Config
from kappa.control.lakes import inventory
from kappa.control.lakes.transfer import Progress, Transfer
from kappa.errors import ConflictError, KappaError, RefusedError, UsageError
from kappa.faults import crash_point
from kappa.names import ArchivePaths, EpochPaths
from kappa.presence import liveness
from kappa.record.epochs import Epochs, Now, moved
from kappa.record.events import Event
from kappa.record.ledger import Ledger
from kappa.store import options
from kappa.store.address import lake_address
from kappa.store.stores import store_of

#: How often it is looked whether a driver that has lost its ledger has ended.
_LOOK_SECONDS = 1.0
#: How often the copy is compared with the lake before they count as different.
_ROUNDS = 3


@dataclass(frozen=True, kw_only=True)
class Relocation:
    """A lake at its new address.

    Attributes:
        lake: the address.
        topologies: those with a live epoch.
        archives: archived topics.
    """

    lake: str
    topologies: tuple[str, ...]
    archives: tuple[str, ...]


@act
def copy(
    config: Config, address: str, *, actor: str, reason: str = "", progress: Progress = lambda _: None
) -> Act[Relocation]:
    """Move a lake to another address: copy it, and close it where it was.

    Idempotent. A crash leaves the lake open here, or closed, with a target that is not a lake yet: call it again with
    the same address. Two calls at once for one target do not notice each other.

    Args:
        address: of the target: a path or ``s3://bucket/prefix``, empty, or that of a copy that was begun.

    Raises:
        UsageError: the address is one of this lake.
        RefusedError: the target holds something else, the lake has no record, or a driver or an archiver runs.
        LakeMovedError: the lake is at a third address.
    """
    target = _target(config.lake, address)
    options.declare(target, config.lake_client_file)
    move = _Move(config, target, actor=actor, reason=reason, progress=progress)
    return Act(effects=tuple(move.effects()), outcome=move.outcome)


@act
def reopen(config: Config, *, actor: str, reason: str = "") -> Act[None]:
    """Let a lake go on at this address after it was closed; idempotent.

    A crash leaves both closed: call it again. Where the lake at the other address can be read, it is closed.

    Raises:
        RefusedError: the lake at the other address has gone on since.
    """
    epochs = Epochs(config.lake, is_anywhere=True)
    events, place = epochs.events(), epochs.place()
    if place in ("", config.lake):
        return Act(effects=(), outcome=lambda: None)
    options.declare(place, config.lake_client_file)
    other, others = Epochs(place, is_anywhere=True), _events(place)
    later = others[len(events) :]
    is_closed = bool(later) and all(one.event == "relocated" and one.detail["to"] == config.lake for one in later)
    if others[: len(events)] != events[: len(others)] or (later and not is_closed):
        raise RefusedError(
            f"The lake at {place} has gone on: it has {len(later)} events that {config.lake} does not have. Copy it "
            f"back: KAPPA_LAKE={place} kappa lake copy {config.lake} --execute",
            findings=(),
            lake=place,
        )
    rows = later if is_closed else _relocated(epochs.now(""), place, config.lake, actor, reason)
    closing = Effect(
        what=f"close the lake at {place}",
        values={"lake": place},
        make=lambda: other.change("", lambda now: _unless_there(now, rows)),
    )
    there = "" if others else ", where no record can be read"
    opening = Effect(
        what=f"put on record that the lake is at {config.lake}, and not at {place} any more{there}",
        values={"lake": config.lake},
        make=lambda: epochs.change("", lambda now: _unless_there(now, rows)),
    )
    return Act(effects=(*((closing,) if others == events else ()), opening), outcome=lambda: None)


class _Move:
    """A move, as far as it is known before it begins."""

    def __init__(self, config: Config, target: str, *, actor: str, reason: str, progress: Progress) -> None:
        self._config = config
        self._source = config.lake
        self._target = target
        self._actor = actor
        self._reason = reason
        self._progress = progress
        self._epochs = Epochs(config.lake, is_anywhere=True)
        self._transfer = Transfer(config.lake, target, progress)
        self._mark = f"{target}/{inventory.MARK}"
        if not self._epochs.topologies():
            raise RefusedError(
                f"{config.lake} has no topology on record: there is no lake that could be copied. Look which lake "
                "this is: kappa doctor",
                findings=(),
                lake=config.lake,
            )
        self._words = json.dumps({"lake": self._epochs.lake_id(), "from": config.lake}).encode()

    def effects(self) -> Iterator[Effect]:
        """What is to be done yet."""
        place = self._epochs.place()
        if place not in ("", self._source, self._target):
            raise moved(self._source, place)
        if place == self._target and self._is_complete():
            if store_of(self._mark).head(self._mark) is not None:
                yield Effect(what=f"remove {self._mark}", make=self._unmark)
            return
        self._check_target()
        there = inventory.sizes(self._target)
        bulk = {name: size for name, size in self._files().items() if there.get(name) != size}
        count, total = len(bulk), sum(bulk.values())
        if bulk:
            yield Effect(
                what=f"copy {count:,} files of {total:,} bytes to {self._target}, which drivers may go on beside",
                values={"lake": self._target, "files": count, "bytes": total},
                make=self._bulk,
            )
        if place != self._target:
            topologies = ", ".join(self._epochs.topologies())
            yield Effect(
                what=f"close this lake, if none of its drivers and archivers runs: put on record of {topologies} that "
                f"it is at {self._target}",
                values={"lake": self._source},
                make=self._close,
            )
        yield Effect(
            what="take the ledgers from the drivers and archivers that had them last, unless they are taken, and wait "
            "until none of those runs",
            values={"lake": self._source},
            make=self._take_ledgers,
        )
        yield Effect(
            what=f"copy the logs of Delta tables to {self._target} and what came since, compare all files, and remove "
            "there what is not here, if anything is left to do",
            values={"lake": self._target},
            make=self._rest,
        )
        yield Effect(
            what=f"copy the record of epochs: the lake is at {self._target} then",
            values={"lake": self._target},
            make=self._record,
        )

    def outcome(self) -> Relocation:
        """The lake that comes of it."""
        topologies = (name for name in self._epochs.topologies() if self._epochs.record(name).live is not None)
        return Relocation(lake=self._target, topologies=tuple(topologies), archives=archived_topics(self._source))

    # Looks

    def _files(self) -> dict[str, int]:
        """Files that stay as they are, while drivers go on."""
        names = inventory.sizes(self._source).items()
        return {name: size for name, size in names if inventory.is_copied(name) and not inventory.is_entry(name)}

    def _is_complete(self) -> bool:
        """Whether the record of the target is there: all of it, with what came there since."""
        try:
            events = self._epochs.events()
            return Epochs(self._target, is_anywhere=True).events()[: len(events)] == events
        except (KappaError, OSError):
            here, there = (inventory.of_record(inventory.sizes(lake)) for lake in (self._source, self._target))
            if set(here) <= set(there):
                raise
            return False  # its log has no beginning yet

    def _check_target(self) -> None:
        mark = store_of(self._mark).get(self._mark)
        if mark == self._words:
            return
        if mark is not None:
            raise self._occupied("is filled by a copy of another lake, or from another address", lake=mark.decode())
        other = Epochs(self._target, is_anywhere=True)
        if other.exists():
            if other.lake_id() != self._epochs.lake_id():
                raise self._occupied(f"holds another lake, {other.lake_id()[:8]}", lake=other.lake_id())
            events, place = other.events(), other.place()
            if place in ("", self._target):
                raise self._occupied("holds a copy of this lake that is open, and whose drivers may run")
            if events != self._epochs.events()[: len(events)]:
                raise self._occupied("holds a copy of this lake with events that this one does not have")
        elif next(store_of(self._target).files(self._target), None) is not None:
            raise self._occupied("is not empty, and not a lake")

    def _occupied(self, what: str, **values: str) -> RefusedError:
        return RefusedError(
            f"{self._target} {what}: nothing was copied. Empty it, or name another place: kappa lake copy <address>",
            findings=(),
            **{"target": self._target, **values},
        )

    def _working(self) -> list[str]:
        """The command by which each driver and each archiver that runs is stopped."""
        stale = self._config.stale_seconds
        commands = [
            f"kappa stop {paths.topology} --epoch {paths.epoch} --execute"
            for paths in self._epoch_paths()
            if liveness.settled(paths.heartbeat, stale).is_alive
        ]
        archives = [ArchivePaths(lake=self._source, topic=topic) for topic in archived_topics(self._source)]
        return commands + [
            f"kappa archive stop {paths.topic} --execute"
            for paths in archives
            if liveness.settled(paths.heartbeat, stale).is_alive
        ]

    def _epoch_paths(self) -> list[EpochPaths]:
        """The epochs that may have a driver."""
        return [
            EpochPaths(lake=self._source, topology=name, epoch=epoch.epoch)
            for name in self._epochs.topologies()
            for epoch in self._epochs.record(name).epochs.values()
            if not epoch.stage.is_ended
        ]

    # Effects

    def _bulk(self) -> None:
        self._take_target()
        here, there = self._files(), inventory.sizes(self._target)
        self._transfer.copy("copying", {name: size for name, size in here.items() if there.get(name) != size})
        crash_point("lake.bulk")

    def _take_target(self) -> None:
        """Say in the target whose copy it is, before anything of it is there."""
        self._check_target()
        store_of(self._mark).make_folder(self._mark.rpartition("/")[0])
        if not store_of(self._mark).create(self._mark, self._words):
            raise ConflictError(f"Another lake was first to fill {self._target}: kappa lake copy <address>")

    def _close(self) -> None:
        if commands := self._working():
            raise RefusedError(
                f"Drivers or archivers run in {self._source}. What never changes is in {self._target} by now; the rest "
                f"is copied when they have ended. Stop them: {'; '.join(commands)}; then again: kappa lake copy "
                f"{self._target} --execute",
                findings=(),
                commands=commands,
            )
        rows = _relocated(self._epochs.now(""), self._source, self._target, self._actor, self._reason)
        self._epochs.change("", lambda now: _unless_there(now, rows))
        crash_point("lake.closed")

    def _take_ledgers(self) -> None:
        for paths in self._epoch_paths():
            Ledger(paths.ledger).take(f"the copy to {self._target}")
        for topic in archived_topics(self._source):
            Ledger(ArchivePaths(lake=self._source, topic=topic).ledger).take(NOBODY)
        while self._working():  # each of them ends at its next look, or is frozen, and gets no row
            time.sleep(_LOOK_SECONDS)
        crash_point("lake.ledgers")

    def _rest(self) -> None:
        self._take_target()
        there = inventory.sizes(self._target)
        if self._is_complete():  # after the listing: none of its files is of a driver that runs there
            return
        all_here = {name: size for name, size in inventory.sizes(self._source).items() if inventory.is_copied(name)}
        extras = there.keys() - all_here.keys() - {inventory.MARK}
        self._transfer.remove(reversed(inventory.of_record(extras)))  # the oldest first: what is left does not open
        self._transfer.remove(name for name in extras if not inventory.is_of_record(name))
        here = {name: size for name, size in all_here.items() if not inventory.is_of_record(name)}
        for _ in range(_ROUNDS):
            different = self._transfer.differing("comparing", here, there)
            if not different:
                crash_point("lake.files")
                return
            for what, is_entry in (("copying", False), ("copying logs", True)):
                self._transfer.copy(
                    what, {name: size for name, size in different.items() if inventory.is_entry(name) == is_entry}
                )
            here, there = different, inventory.sizes(self._target)
        raise ConflictError(
            f"{len(here)} files of {self._source} change while they are copied, such as {min(here)}: another program "
            f"writes there. End it, then again: kappa lake copy {self._target} --execute",
            files=sorted(here)[:10],
        )

    def _record(self) -> None:
        if not self._is_complete():
            here, there = (inventory.sizes(lake) for lake in (self._source, self._target))
            names = inventory.of_record(here)
            different = self._transfer.differing("comparing", {name: here[name] for name in names}, there)
            self._transfer.copy_in_turn("copying the record", different)  # the last one makes it a lake
            if not self._is_complete():
                raise ConflictError(
                    f"The record of {self._target} is not that of {self._source}: another program writes there. End "
                    f"it, then again: kappa lake copy {self._target} --execute"
                )
        crash_point("lake.record")
        self._unmark()

    def _unmark(self) -> None:
        store_of(self._mark).delete(self._mark)


def _target(source: str, address: str) -> str:
    target = lake_address(address)
    if target == source or target.startswith(f"{source}/") or source.startswith(f"{target}/"):
        raise UsageError(
            f"{target} is the lake {source}, or one of them is in the other. Name another place: kappa lake copy "
            "<address>",
            target=target,
        )
    return target


def _events(lake: str) -> list[Event]:
    """The events of a lake that may be gone, or only half there; none where they cannot be read."""
    try:
        return Epochs(lake, is_anywhere=True).events()
    except (KappaError, OSError):
        return []


def _relocated(now: Now, source: str, target: str, actor: str, reason: str) -> list[Event]:
    """One event for each topology: the same wherever it is appended."""
    detail: Mapping[str, str] = {"from": source, "to": target}
    return [
        now.event("relocated", max(now.of(name).epochs), actor=actor, reason=reason, detail=detail, topology=name)
        for name in now.records.topologies
    ]


def _unless_there(now: Now, rows: Sequence[Event]) -> Sequence[Event]:
    """The rows, unless the last event says the same already."""
    last = next((event for event in reversed(now.records.events()) if event.event == "relocated"), None)
    return [] if last is not None and last.detail == rows[0].detail else rows
