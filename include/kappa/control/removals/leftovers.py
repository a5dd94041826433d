"""Leftovers, and the fate of whatever bears the name of an epoch."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from kappa import clock
from kappa.config import Config
from kappa.errors import UNREADABLE
from kappa.names import EpochPaths
from kappa.presence import heartbeat, liveness
from kappa.record.epoch_record import EpochRecord, TopologyRecord
from kappa.store.stores import store_of

EPOCH_NAME = re.compile(r"e(\d{4,})")


@dataclass(frozen=True, kw_only=True, order=True)
class Leftover:
    """Something that is not needed any more, or that looks like it and is kept.

    Attributes:
        kind: ``epoch folder``, ``query checkpoint``, ``recomputation``, ``plan``, ``code``, ``events``,
            ``extracted code``, ``log``, ``topic`` or ``group``.
        name: its path, or its name on the broker.
        reason: why it is left over, or why it stays.
        size_bytes: of its files; None on the broker, which is not asked.
    """

    kind: str
    name: str
    reason: str
    size_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Present:
    """The present: the age of a file is by the clock of where it is.

    Attributes:
        host: by this host's clock, for files below home.
        lake: by the lake's.
    """

    host: datetime
    lake: datetime

    @classmethod
    def of(cls, lake: str) -> Present:
        """The present of this host and of a lake."""
        return cls(host=clock.now(), lake=store_of(lake).now(lake))


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """Leftovers, and lookalikes that stay.

    Attributes:
        leftovers: what may go.
        lookalikes: what no record names and stays all the same, because the record may be what is missing.
    """

    leftovers: tuple[Leftover, ...]
    lookalikes: tuple[Leftover, ...]


@dataclass(frozen=True, kw_only=True)
class Fate:
    """The fate of something that bears an epoch's name.

    Attributes:
        is_over: whether it may go.
        reason: why, or why it stays; empty for an epoch that is needed.
    """

    is_over: bool
    reason: str = ""


class Judge:
    """Decides whether what bears an epoch's name may go.

    Args:
        records: what the record of epochs says, by topology; read after everything that is judged was listed, since an
            epoch is put on record before it has anything.
        last_sender: the epoch whose sending marker on the broker is furthest, for topologies of which something is
            unknown.
        maker: id of the lake that took an epoch's names on the broker; None where none did, or that is not known.
        lake: id of this lake.
    """

    def __init__(
        self,
        config: Config,
        records: Mapping[str, TopologyRecord],
        last_sender: Callable[[str], int | None],
        maker: Callable[[str, int], str | None],
        lake: str,
    ) -> None:
        self._config = config
        self._records = records
        self._last_sender = last_sender
        self._maker = cache(maker)
        self._lake = lake
        self._senders: dict[str, int | None] = {}

    def fate(self, topology: str, number: int) -> Fate:
        """The fate of what an epoch left."""
        record = self._records.get(topology)
        if record is None:
            return Fate(
                is_over=False,
                reason=f"the lake has no record of {topology}: it may be lost, see kappa rebuild {topology} "
                "--from-changelog",
            )
        if number in record.epochs:
            return self._known(record.epochs[number], topology)
        return self._unknown(record, number)

    def fate_on_broker(self, topology: str, number: int) -> Fate:
        """The fate of an epoch's topics and group: other lakes may have theirs on the same broker.

        The claim of its names, or a marker, says which lake an epoch is of. What another lake made stays, whatever this
        one has on record; so does what is on no record here, unless this lake took its names.
        """
        fate = self.fate(topology, number)
        if not fate.is_over:
            return fate
        maker = self._maker(topology, number)
        if maker is not None and maker != self._lake:
            return Fate(
                is_over=False, reason=f"epoch {number} of {topology} is of another lake (lake {maker} took its names)"
            )
        if maker is None and number not in self._records[topology].epochs:
            return Fate(is_over=False, reason=f"{fate.reason}, and nothing says that this lake made it")
        return fate

    def _known(self, epoch: EpochRecord, topology: str) -> Fate:
        if not epoch.stage.is_ended:
            return Fate(is_over=False)
        if is_at_work(self._config, EpochPaths(lake=self._config.lake, topology=topology, epoch=epoch.epoch)):
            return Fate(is_over=False, reason=f"epoch {epoch.epoch} is {epoch.stage}, its driver has not ended yet")
        return Fate(is_over=True, reason=f"epoch {epoch.epoch} of {topology} is {epoch.stage}")

    def _unknown(self, record: TopologyRecord, number: int) -> Fate:
        topology, what = record.topology, f"epoch {number} of {record.topology} is not on record"
        if record.live is None:
            return Fate(is_over=False, reason=f"{what}, and no epoch is live that could stand for it")
        if number > max(record.epochs):
            return Fate(
                is_over=False, reason=f"{what} and newer than any that is: another lake's, or the record is old"
            )
        if record.candidate is not None and number == record.candidate.seed_epoch:
            return Fate(is_over=False, reason=f"{what}, and epoch {record.candidate.epoch} is being built from it")
        if is_at_work(self._config, EpochPaths(lake=self._config.lake, topology=topology, epoch=number)):
            return Fate(is_over=False, reason=f"{what}, and a driver works on it")
        if topology not in self._senders:
            self._senders[topology] = self._last_sender(topology)
        if self._senders[topology] == number:
            return Fate(is_over=False, reason=f"{what}, and it has sent furthest")
        return Fate(is_over=True, reason=what)

    def fate_of_name(self, name: str) -> Fate:
        """The fate of a topic or group called ``kappa.<topology>.e<number>`` or beginning so.

        A name that can be read in two ways goes only when it may go either way.
        """
        parts = name.split(".")
        fates = [
            self.fate_on_broker(".".join(parts[1:at]), int(match[1]))
            for at, part in enumerate(parts)
            if at > 1 and (match := EPOCH_NAME.fullmatch(part))
        ]
        vetoes = [fate for fate in fates if not fate.is_over]
        return vetoes[0] if vetoes or not fates else fates[0]

    def fate_of_topic(self, owners: Iterable[tuple[str, int]]) -> Fate:
        """The fate of a topic that these epochs made for themselves, one after the other."""
        fates = [self.fate_on_broker(*owner) for owner in owners]
        return next((fate for fate in fates if not fate.is_over), fates[0])


def is_at_work(config: Config, paths: EpochPaths) -> bool:
    """Whether an epoch has a driver that has not ended, as far as can be seen from here.

    A heartbeat that newer code wrote, or that cannot be read, tells nothing here: what is the epoch's stays.
    """
    try:
        beat = heartbeat.read(paths.heartbeat)
        if beat is None:
            return False
        if beat.pid != os.getpid() and beat.is_process:
            return True
        return liveness.settled(paths.heartbeat, config.stale_seconds).is_alive
    except UNREADABLE:
        return True
