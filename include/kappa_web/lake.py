"""The lake as requests see it: the record and the ledgers, read incrementally and shared by all requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from pathlib import Path

from kappa import clock, serving
from kappa.config import Config
from kappa.errors import KappaError, LakeUnreachableError, LedgerError, UnknownEpochError, UnknownTopologyError
from kappa.kafka.broker import Broker
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import epochs_of
from kappa.record.events import Event
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import LedgerState, begun
from kappa.record.topology_records import TopologyRecords
from kappa.store.address import is_remote
from kappa.topology.shapes import Shape

#: How long an answer of the broker may be used.
_ENDS_SECONDS = 1.0
#: How long a question to the broker may take.
BROKER_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class View:
    """An epoch as of one of its slices.

    Attributes:
        committed_at: when the slice was committed, UTC, by its driver's clock.
        is_live: whether the epoch is live.
        shapes: ``tables/<name>`` or ``outputs/<name>`` -> its key and columns.
        masked: the same -> columns whose values need a right of their own, in this epoch or in the live one.
    """

    snapshot: serving.Snapshot
    committed_at: datetime
    is_live: bool
    shapes: Mapping[str, Shape]
    masked: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Staleness:
    """How far an answer is behind the log.

    Attributes:
        offsets: offsets between the position and the end of the log; None if that is not known: the broker does not
            answer, or its answer ends before the position.
        seconds: 0 if there are none; otherwise the time since the slice was committed, by this host's clock. None if
            that is negative: by this clock the slice is not committed yet.
    """

    offsets: int | None
    seconds: float | None


class Lake:
    """One lake and its broker, for many concurrent requests.

    Args:
        config: where they are.

    Attributes:
        lasting_ledgers: paths of the ledgers of epochs that had not ended at the last look at the record.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.lasting_ledgers: frozenset[str] = frozenset()
        self.epochs = epochs_of(config.lake)
        self._ledgers: dict[str, Ledger] = {}
        self._last = 0
        self._lock = threading.Lock()
        self._ends = _Ends(lambda: Broker(config.bootstrap_servers, timeout_seconds=BROKER_SECONDS))

    def records(self) -> dict[str, TopologyRecord]:
        """Topology -> its record; rebuilt only for topologies with new events.

        Raises:
            LakeUnreachableError: the lake is not where it should be.
        """
        self._check()
        records = self.epochs.records()
        if records.last != self._last:
            self._last = records.last
            self._close_ended(records)
        return {record.topology: record for record in records}

    def record(self, topology: str) -> TopologyRecord:
        """The record of a topology.

        Raises:
            UnknownTopologyError: it has none.
            LakeUnreachableError: the lake is not where it should be.
        """
        record = self.records().get(topology)
        if record is None:
            raise UnknownTopologyError(
                f"No epoch of topology {topology!r} is on record. Start it: kappa start {topology} --execute",
                name=topology,
            )
        return record

    def history(self, records: Sequence[TopologyRecord], most: int, *, before: int | None = None) -> list[Event]:
        """Events, oldest first: at least the newest ones before a number and one more, where there are as many.

        Those of epochs that ended long ago are read from files where one of them is among these.

        Args:
            records: of the topologies whose events may be shown.
            most: how many.
            before: the number.
        """
        events = sorted((event for record in records for event in record.events), key=attrgetter("n"))
        newest = [event.n for event in events if before is None or event.n < before]
        floor = self.epochs.rolled_up_to
        if floor and (len(newest) <= most or newest[-most - 1] <= floor):
            names = {record.topology for record in records}
            only = records[0].topology if len(records) == 1 else None
            return [event for event in self.epochs.history(only) if event.topology in names]
        return events

    def ledger(self, topology: str, epoch: int) -> tuple[EpochPaths, LedgerState]:
        """The present state of an epoch's ledger; empty if it has none."""
        paths = EpochPaths(lake=self.config.lake, topology=topology, epoch=epoch)
        return paths, self.opened(paths).state()

    def opened(self, paths: EpochPaths) -> Ledger:
        """The ledger of an epoch, kept open until the epoch ends so that only its new rows are read."""
        with self._lock:
            if paths.ledger not in self._ledgers:
                self._ledgers[paths.ledger] = Ledger(paths.ledger)
            return self._ledgers[paths.ledger]

    def _close_ended(self, records: TopologyRecords) -> None:
        """Close the ledgers of epochs that have ended: each has its commits in memory."""
        self.lasting_ledgers = frozenset(
            EpochPaths(lake=self.config.lake, topology=record.topology, epoch=epoch).ledger
            for record in records
            for epoch in record.readable_epochs
        )
        with self._lock:
            self._ledgers = {path: ledger for path, ledger in self._ledgers.items() if path in self.lasting_ledgers}

    def view(
        self, topology: str, *, epoch: int | None = None, seq: int | None = None, at: datetime | None = None
    ) -> View:
        """An epoch as of a slice.

        Args:
            topology: a topology on record.
            epoch: None for the live one.
            seq: the slice; None for the last one.
            at: instead of ``seq``, a time: the last slice committed by then.

        Raises:
            UnknownTopologyError: nothing of the topology is on record.
            UnknownEpochError: no such epoch or slice, or its files were cleaned up.
            LedgerError: nothing is live, or committed, at the moment.
        """
        record = self.record(topology)
        if epoch is None and record.live is None:
            raise LedgerError(f"No epoch of {topology!r} is live now. See: kappa status {topology}")
        number = record.readable_epoch(epoch)
        paths, state = self.ledger(topology, number)
        if state.committed is None:
            raise LedgerError(f"Epoch {number} of {topology!r} has committed nothing yet.", epoch=number)
        if seq is None:
            seq = state.committed.seq if at is None else _seq_at(state, paths, at)
        row, shapes = serving.commit_of(paths, state, seq), state.shapes
        return View(
            snapshot=serving.snapshot_of(paths, row, shapes),
            committed_at=row.at,
            is_live=number == record.live,
            shapes=shapes,
            masked=self._masked(record, state),
        )

    def _masked(self, record: TopologyRecord, state: LedgerState) -> dict[str, tuple[str, ...]]:
        """Columns that an epoch masks, and those that the live one does: its code says what is not for everyone now."""
        columns = dict(state.masked)
        if record.live is not None:
            for place, names in begun(self.ledger(record.topology, record.live)[1]).masked.items():
                columns[place] = tuple(dict.fromkeys((*columns.get(place, ()), *names)))
        return columns

    def staleness(self, view: View) -> Staleness:
        """How far a view is behind the log; the broker's answer may be a second old."""
        position = view.snapshot.position
        ends = self._ends.of(position)
        offsets = None if ends is None else behind(position, ends)
        if offsets == 0:
            return Staleness(offsets=0, seconds=0.0)
        age = clock.age_seconds(view.committed_at)
        return Staleness(offsets=offsets, seconds=round(age, 3) if age is not None else None)

    def _check(self) -> None:
        """Refuse a lake that is not there: readers could not tell one that is not mounted from one without epochs."""
        if not is_remote(self.config.lake) and not Path(self.config.lake).is_dir():
            raise LakeUnreachableError(
                f"The lake {self.config.lake} is not there. Mount it, or set KAPPA_LAKE.", path=self.config.lake
            )


def behind(position: Offsets, ends: Offsets) -> int | None:
    """Offsets from a position to the ends of its topics, also of partitions that were added since.

    None if the position is beyond one of the ends: they are older than it, or belong to another log.
    """
    apart = [end - (position.get(*at) or 0) for at, end in ends.only(position.topics).items()]
    return None if any(count < 0 for count in apart) else sum(apart)


def _seq_at(state: LedgerState, paths: EpochPaths, at: datetime) -> int:
    """The last slice that was committed by a time.

    Raises:
        UnknownEpochError: none was; or the next slice is no longer on record, so it may have been another one.
    """
    commits = state.commits
    place = next((n for n in reversed(range(len(commits))) if commits[n].at <= at), None)
    if place is None:
        raise UnknownEpochError(
            f"Epoch {paths.epoch} of {paths.topology!r} has no slice committed by {at.isoformat()}; its first is of "
            f"{commits[0].at.isoformat()}.",
            epoch=paths.epoch,
        )
    last = commits[place]
    if place + 1 < len(commits) and commits[place + 1].seq != last.seq + 1:
        raise _gone(paths, state, at, last)
    return last.seq


def _gone(paths: EpochPaths, state: LedgerState, at: datetime, near: LedgerRow) -> UnknownEpochError:
    return UnknownEpochError(
        f"The files of the slice that epoch {paths.epoch} of {paths.topology!r} had at {at.isoformat()} were cleaned "
        f"up. The nearest earlier one that is kept is slice {near.seq} of {near.at.isoformat()}; ask for it by seq.",
        epoch=paths.epoch,
        seq=near.seq,
        savepoints=sorted(state.savepoints),
    )


class _Ends:
    """Ends of topics, requested by one thread at a time for the same topics, and kept for a second."""

    def __init__(self, connect: Callable[[], Broker]) -> None:
        self._connect = connect
        self._broker: Broker | None = None
        self._answers: dict[frozenset[str], _LastAnswer] = {}
        self._lock = threading.Lock()

    def of(self, position: Offsets) -> Offsets | None:
        """Last stable offsets of the topics of a position; None where the broker does not answer.

        A recent answer that is not behind the position is returned; otherwise the broker is asked. If another thread is
        asking the same, this one waits for its answer as long as the broker may take.
        """
        topics = frozenset(position.topics)
        with self._lock:
            answer = self._answers.setdefault(topics, _LastAnswer())
        if answer.is_good(position):
            return answer.ends
        if not answer.lock.acquire(timeout=BROKER_SECONDS):
            return None
        try:
            if not answer.is_good(position):  # by the answer that the other thread got
                answer.ends = self._answer(topics)
                answer.at = time.monotonic()
            return answer.ends
        finally:
            answer.lock.release()

    def _answer(self, topics: frozenset[str]) -> Offsets | None:
        try:
            with self._lock:
                self._broker = self._broker or self._connect()
            return self._broker.stable_offsets(topics)
        except KappaError:  # it does not answer, or a topic is gone
            return None


@dataclass
class _LastAnswer:
    """What the broker last answered for some topics."""

    ends: Offsets | None = None
    at: float = float("-inf")
    lock: threading.Lock = field(default_factory=threading.Lock)

    def is_good(self, position: Offsets) -> bool:
        """Whether the answer is valid for a position: recent, and not behind it."""
        is_young = time.monotonic() - self.at < _ENDS_SECONDS
        return is_young and (self.ends is None or behind(position, self.ends) is not None)
