"""The drivers and archivers of a lake that is to be closed."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from kappa.archive.overview import NOBODY
from kappa.archive.reader import archived_topics
from kappa.control.lakes.transfer import Freight, Progress
from kappa.errors import RefusedError
from kappa.names import ArchivePaths, EpochPaths
from kappa.presence import liveness
from kappa.presence.heartbeat import Heartbeat
from kappa.record.epochs import Epochs
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow

#: How often it is looked whether a driver that has lost its ledger has ended.
_LOOK_SECONDS = 1.0
#: For how many times the age of a stale heartbeat it may go on: it looks at its ledger many times in that.
_PATIENCE = 5
#: Heartbeats that are looked at together.
_LOOKS = 64


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A driver or an archiver that runs.

    Attributes:
        who: what it is, for people.
        command: the command that stops it while the lake is open.
        beat: its heartbeat.
    """

    who: str
    command: str
    beat: Heartbeat


class Writers:
    """The drivers and archivers of a lake.

    Args:
        lake: its address.
        epochs: its record.
        stale_seconds: age at which a heartbeat is stale.
    """

    def __init__(self, lake: str, epochs: Epochs, stale_seconds: float) -> None:
        self._lake = lake
        self._epochs = epochs
        self._stale_seconds = stale_seconds

    def working(self, progress: Progress) -> list[Worker]:
        """Those that run. All are looked at together: one that died takes as long as its heartbeat may stay as it is.

        Args:
            progress: is told of the look.
        """
        places = [
            (
                paths.heartbeat,
                f"the driver of epoch {paths.epoch} of {paths.topology}",
                f"kappa stop {paths.topology} --epoch {paths.epoch} --execute",
            )
            for paths in self._epoch_paths()
        ] + [
            (paths.heartbeat, f"the archiver of {paths.topic}", f"kappa archive stop {paths.topic} --execute")
            for paths in self._archive_paths()
        ]
        progress(Freight(what="looking which drivers and archivers run", all_files=len(places), all_bytes=0))
        with ThreadPoolExecutor(_LOOKS) as pool:
            signs = list(pool.map(lambda place: liveness.settled(place[0], self._stale_seconds), places))
        return [
            Worker(who=who, command=command, beat=sign.beat)
            for sign, (_, who, command) in zip(signs, places, strict=True)
            if sign.is_alive and sign.beat is not None
        ]

    def check(self) -> None:
        """Read each ledger that is to be taken.

        Raises:
            DamagedTableError: files of one are missing or torn.
        """
        for ledger in self._ledgers():
            Ledger(ledger).state()

    def take(self, target: str) -> bool:
        """Take all ledgers from whoever has them, for a move to an address; idempotent.

        Returns:
            Whether one of them had to be taken.
        """
        drivers = [Ledger(paths.ledger).take(f"the copy to {target}") for paths in self._epoch_paths()]
        archivers = [Ledger(paths.ledger).take(NOBODY) for paths in self._archive_paths()]
        return any((*drivers, *archivers))

    def await_end(self, progress: Progress, again: str) -> None:
        """Wait until none runs, after their ledgers were taken: each ends at its next look, or gets no row.

        Args:
            progress: is told for whom this waits.
            again: the command that waits again.

        Raises:
            RefusedError: some go on all the same.
        """
        began, most = time.monotonic(), _PATIENCE * self._stale_seconds
        while workers := self.working(progress):
            places = [f"{one.who}, process {one.beat.pid} on {one.beat.host}" for one in workers]
            progress(Freight(what=f"waiting for {'; '.join(places)}", all_files=len(workers), all_bytes=0))
            if time.monotonic() - began > most:
                kills = "; ".join(f"on {one.beat.host}: kill -9 {one.beat.pid}" for one in workers)
                raise RefusedError(
                    f"{'; '.join(places)}: still running {most:.0f} s after its ledger was taken, so that it writes "
                    f"no row. {self._lake} is closed, and kappa stop is refused there. End it {kills}; then again: "
                    f"{again}",
                    findings=(),
                    pids=[one.beat.pid for one in workers],
                )
            time.sleep(_LOOK_SECONDS)

    def has_gone_on(self, before: str) -> bool:
        """Whether drivers or archivers have written since this lake was copied from another address.

        Not all that they do is on record of the epochs: a driver that is only started again writes no event, and an
        archiver never does. Each of them begins with a claim.
        """
        return any(
            row.kind != "claim" or not (row.is_taken or row.writer == NOBODY)
            for ledger in self._ledgers()
            for row in _rows_after(ledger, ledger.replace(self._lake, before, 1))
        )

    def _ledgers(self) -> list[str]:
        return [paths.ledger for paths in self._epoch_paths()] + [paths.ledger for paths in self._archive_paths()]

    def _epoch_paths(self) -> list[EpochPaths]:
        """The epochs that may have a driver."""
        return [
            EpochPaths(lake=self._lake, topology=record.topology, epoch=epoch.epoch)
            for record in self._epochs.records()
            for epoch in record.recent.values()
            if not epoch.stage.is_ended
        ]

    def _archive_paths(self) -> list[ArchivePaths]:
        return [ArchivePaths(lake=self._lake, topic=topic) for topic in archived_topics(self._lake)]


def _rows_after(path: str, before: str) -> list[LedgerRow]:
    """The rows of a ledger that the same ledger at another place does not have."""
    last, own = (Ledger(one).state().last for one in (before, path))
    return Ledger(path).newest(own - last) if own > last else []
