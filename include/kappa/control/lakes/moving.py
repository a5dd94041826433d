"""The move of a lake to another address.

Its record of epochs says at which address the lake is. The source is closed by one commit there, when no driver runs;
the target has no record until all else is there. So there is never more than one lake.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from kappa.acts import Act, Effect, act
from kappa.archive.reader import archived_topics
from kappa.config import Config
from kappa.control.lakes import inventory
from kappa.control.lakes.marks import Attempt, Marks
from kappa.control.lakes.relocations import is_complete, last_move, record_of_lake, relocated
from kappa.control.lakes.transfer import Progress, Transfer
from kappa.control.lakes.writers import Writers
from kappa.errors import ConflictError, RefusedError, UsageError
from kappa.faults import crash_point
from kappa.record.epochs import Epochs, Now, moved
from kappa.record.events import Event
from kappa.store import options
from kappa.store.address import is_remote, lake_address
from kappa.store.stores import store_of

#: How often the copy is compared with the lake before they count as different.
_ROUNDS = 4


@dataclass(frozen=True, kw_only=True)
class Relocation:
    """A lake at its new address.

    Attributes:
        lake: the address.
        epochs: topology and epoch of each driver that is to run there: those that are live, are being built, or were
            not stopped.
        archives: archived topics.
    """

    lake: str
    epochs: tuple[tuple[str, int], ...]
    archives: tuple[str, ...]


@act
def copy(
    config: Config, address: str, *, actor: str, reason: str = "", progress: Progress = lambda _: None
) -> Act[Relocation]:
    """Move a lake to another address: copy it, and close it where it was.

    Idempotent. A crash leaves the lake open here, or closed, with a target that is not a lake yet: call it again with
    the same address. Of several calls at once for one target, only the last one opens it.

    Args:
        address: of the target: a path or ``s3://bucket/prefix``, empty, or that of a copy that was begun.

    Raises:
        UsageError: the address is one of this lake, or of a file.
        RefusedError: the target holds something else, or cannot have a file; the lake has no record or has links; or a
            driver or an archiver runs.
        DamagedTableError: a ledger cannot be read, and so not be taken.
        LakeMovedError: the lake is at a third address.
        ConflictError: the lake was opened again meanwhile, or another call has begun.
    """
    target = _target(config.lake, address)
    options.declare(target, config.lake_client_file, cache=config.cache)
    move = _Move(config, target, actor=actor, reason=reason, progress=progress)
    return Act(effects=tuple(move.effects()), outcome=move.outcome)


class _Move:
    """A move, as far as it is known before it begins."""

    def __init__(self, config: Config, target: str, *, actor: str, reason: str, progress: Progress) -> None:
        self._source = config.lake
        self._target = target
        self._actor = actor
        self._reason = reason
        self._progress = progress
        self._again = f"kappa lake copy {quote(target)} --execute"
        self._epochs = record_of_lake(config.lake, "copied")
        self._writers = Writers(config.lake, self._epochs, config.stale_seconds)
        self._transfer = Transfer(config.lake, target, progress)
        self._move: Event | None = None
        self._marks = Marks(target, self._epochs.lake_id(), config.lake)

    def effects(self) -> Iterator[Effect]:
        """What is to be done yet."""
        place = self._epochs.place()
        if place not in ("", self._source, self._target):
            raise moved(self._source, place)
        if place == self._target and self._is_complete():
            if self._marks.last().number:
                yield Effect(what=f"remove {self._marks.folder}", make=self._marks.remove)
            return
        self._check_links()
        self._writers.check()
        self._check_target()
        bulk = self._bulk_files()
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
        epochs = tuple(
            (record.topology, epoch.epoch)
            for record in self._epochs.records()
            for epoch in record.recent.values()
            if not epoch.stage.is_ended
            if epoch.epoch == record.live or epoch.is_building or epoch.is_wanted
        )
        return Relocation(lake=self._target, epochs=epochs, archives=archived_topics(self._source))

    # Looks

    def _bulk_files(self) -> dict[str, int]:
        """Files that stay as they are, while drivers go on, and that the target lacks."""
        here, there = self._files(), inventory.sizes(self._target)
        return {name: size for name, size in here.items() if not inventory.is_entry(name) and there.get(name) != size}

    def _files(self) -> dict[str, int]:
        """Name -> size of all files that belong to the copy.

        Raises:
            RefusedError: the target cannot have one of them.
        """
        backfills = inventory.backfill_folders(self._epochs.records())
        sizes = inventory.sizes(self._source)
        files = {name: size for name, size in sizes.items() if inventory.is_copied(name, backfills)}
        if is_remote(self._target) and (odd := inventory.without_key(files, self._target)):
            raise RefusedError(
                f"The file {odd[0]!r} of {self._source}, one of {len(odd):,}, cannot be an object of {self._target}: a "
                "key on S3 is text in UTF-8 without control characters, of 1,024 bytes at most. Kappa makes no such "
                f"file: rename it, or take it out of the lake; then again: {self._again}",
                findings=(),
                files=odd[:10],
            )
        return files

    def _is_complete(self) -> bool:
        return is_complete(self._epochs, self._transfer)

    def _check_links(self) -> None:
        if links := inventory.links(self._source):
            raise RefusedError(
                f"{self._source}/{links[0]} is a link to a folder, or to nothing, one of {len(links):,}: no copy "
                f"follows it. Put the files themselves there; then again: {self._again}",
                findings=(),
                links=links[:10],
            )

    def _check_target(self) -> Attempt:
        """The last attempt to fill the target, where it may be filled by this one."""
        last = self._marks.last()
        if last.number:
            if not self._marks.is_of_lake(last):
                raise self._occupied("is filled by a copy of another lake, or from another address", lake=last.lake)
            if last.is_way_back and self._epochs.place() == self._target:
                raise self._occupied(f"gets no copy, since {self._source} is being opened again")
            return last
        other = Epochs(self._target, is_anywhere=True)
        if other.exists():
            if other.lake_id() != self._epochs.lake_id():
                raise self._occupied(f"holds another lake, {other.lake_id()[:8]}", lake=other.lake_id())
            if other.place() in ("", self._target):
                raise self._occupied("holds a copy of this lake that is open, and whose drivers may run")
            if not self._epochs.continues(other):
                raise self._occupied("holds a copy of this lake with events that this one does not have")
        elif next(store_of(self._target).files(self._target), None) is not None:
            raise self._occupied("is not empty, and not a lake")
        return last

    def _occupied(self, what: str, **values: str) -> RefusedError:
        advice = "Empty it, or name another place: kappa lake copy <address>"
        if self._epochs.place() == self._target:
            here = quote(self._source)
            advice = f"{self._source} is closed. Let it go on there: KAPPA_LAKE={here} kappa lake open --execute"
        return RefusedError(
            f"{self._target} {what}: nothing was copied. {advice}", findings=(), **{"target": self._target, **values}
        )

    def _check_last(self) -> None:
        """The lake has to be closed by the same event since this attempt began, and no other one has begun."""
        is_closed = self._epochs.place() == self._target and last_move(self._epochs.events()) == self._move
        if not is_closed or not self._marks.is_own():
            raise ConflictError(
                f"{self._source} was opened again while it was copied to {self._target}, or another copy has begun "
                f"since: this one ends. To move the lake: {self._again}",
                target=self._target,
            )

    # Effects

    def _bulk(self) -> None:
        self._take_target()
        self._transfer.copy("copying", self._bulk_files())
        crash_point("lake.bulk")

    def _take_target(self) -> None:
        """Say in the target whose copy it is, before anything of it is there."""
        if not self._marks.take(self._check_target()):
            raise ConflictError(
                f"Another copy to {self._target} began at the same moment. When it has ended: {self._again}",
                target=self._target,
            )

    def _close(self) -> None:
        if workers := self._writers.working(self._progress):
            commands = [one.command for one in workers]
            raise RefusedError(
                f"Drivers or archivers run in {self._source}. What never changes is in {self._target} by now; the rest "
                f"is copied when they have ended. Stop them: {'; '.join(commands)}; then again: {self._again}",
                findings=(),
                commands=commands,
            )
        self._take_target()
        rows = relocated(self._epochs.now(""), self._source, self._target, self._actor, self._reason)

        def decide(now: Now) -> list[Event]:
            move = last_move(now.records.events())
            return [] if move is not None and move.detail == rows[0].detail else rows

        self._epochs.change("", decide)
        crash_point("lake.closed")

    def _take_ledgers(self) -> None:
        self._take_target()
        self._move = last_move(self._epochs.events())
        self._check_last()
        self._writers.take(self._target)
        self._writers.await_end(self._progress, self._again)  # also where an earlier call has taken them
        crash_point("lake.ledgers")

    def _rest(self) -> None:
        for _ in range(_ROUNDS):
            self._check_last()
            there = inventory.sizes(self._target)
            if self._is_complete():  # after the listing: none of its files is of a driver that runs there
                return
            if self._writers.take(self._target):  # an archiver looks at the record, and claims after it was closed
                self._writers.await_end(self._progress, self._again)
            here = self._files()
            self._clear(here, there)
            files = {name: size for name, size in here.items() if not inventory.is_of_record(name)}
            different = self._transfer.differing("comparing", files, there)
            if not different and not self._writers.take(self._target):
                crash_point("lake.files")
                return
            for what, is_entry in (("copying", False), ("copying logs", True)):
                self._transfer.copy(
                    what, {name: size for name, size in different.items() if inventory.is_entry(name) == is_entry}
                )
        raise ConflictError(
            f"{len(different)} files of {self._source} change while they are copied, such as "
            f"{min(different, default='a ledger')}: another program writes there. End it, then again: {self._again}",
            files=sorted(different)[:10],
        )

    def _clear(self, here: dict[str, int], there: dict[str, int]) -> None:
        """Remove what is not in the lake, and a record that is not the beginning of this one: with its oldest first."""
        extras = {name for name in there.keys() - here.keys() if not name.startswith(inventory.MARKS)}
        record = inventory.of_record(there)
        common = {name: here[name] for name in record if name in here}
        is_other = not extras.isdisjoint(record) or any(map(inventory.is_opener, record))
        if is_other or self._transfer.differing("comparing the record", common, there):
            self._check_last()
            self._transfer.remove(reversed(record))  # what is left does not open, or says the same
        self._transfer.remove(name for name in extras if not inventory.is_of_record(name))

    def _record(self) -> None:
        if not self._is_complete():
            here, there = (inventory.sizes(lake) for lake in (self._source, self._target))
            names = inventory.of_record(here)
            opener = inventory.opener(names)
            different = self._transfer.differing("comparing", {name: here[name] for name in names}, there)
            at = names.index(opener)
            self._in_turn({name: different[name] for name in names[:at] if name in different})
            self._check_last()
            crash_point("lake.opening")
            is_there = self._transfer.create(opener)  # the way back creates it with another content
            if is_there:
                self._in_turn({name: different[name] for name in names[at + 1 :] if name in different})
            if not is_there or not self._is_complete():
                if is_there:
                    self._transfer.remove([opener])
                raise ConflictError(
                    f"The record of {self._target} is not that of {self._source}: the lake was opened again there, or "
                    f"another program writes at the target. When that has ended: {self._again}",
                    target=self._target,
                )
        crash_point("lake.record")
        self._marks.remove()

    def _in_turn(self, files: dict[str, int]) -> None:
        self._transfer.copy_in_turn("copying the record", files)


def _target(source: str, address: str) -> str:
    """The one spelling of the target's address.

    Raises:
        UsageError: it is the lake, in it or around it, or leads there by a link; or it is a file, or below one.
    """
    target = lake_address(address, setting="the address")
    here, there = (f"{_real(path)}/" for path in (source, target))
    if here.startswith(there) or there.startswith(here):
        raise UsageError(
            f"{target} is the lake {source}, or one of them is in the other. Name another place: kappa lake copy "
            "<address>",
            target=target,
        )
    places = () if is_remote(target) else (Path(target), *Path(target).parents)
    if file := next((place for place in places if place.exists() and not place.is_dir()), None):
        raise UsageError(
            f"{target} cannot be a folder, since {file} is a file. Name another place: kappa lake copy <address>",
            target=target,
        )
    return target


def _real(path: str) -> str:
    """An address without links."""
    return path if is_remote(path) else os.path.realpath(path)
