"""The facts that pages show of a lake, gathered once for all concurrent readers.

Nothing here waits for the broker: a thread of their own asks for lags, and a page shows those that are known.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from kappa.driver.processes.process import DriverStatus, status_or_problem
from kappa.errors import UNREADABLE, LedgerError
from kappa.kafka.broker import Broker
from kappa.names import SERVED, EpochPaths
from kappa.offsets.vector import ranges_end
from kappa.record.epoch_record import EpochRecord, TopologyRecord
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import LedgerState
from kappa.replay.proof.certificate import Certificate
from kappa.serving.dead_letter_reasons import Reason, reasons_of
from kappa.store.address import is_remote
from kappa.verify.certificate import certificate_of
from kappa_web.lake import BROKER_SECONDS, Lake
from kappa_web.pages.lags import CHART, STEPS, Lags

#: How long a page of all topologies waits for ledgers, and how old a certificate may be after further slices.
_READ_SECONDS, _PROOF_SECONDS = 0.1, 10.0
#: Ledgers that are read concurrently: most of the time goes to files, outside Python.
_READERS = 4


@dataclass(frozen=True, kw_only=True)
class BoardFacts:
    """The present facts about one epoch.

    Attributes:
        epoch: its record.
        driver: its driver.
        state: its ledger; empty before the seed and after its files are removed.
        done: offsets processed of the plan's bulk work.
        total: offsets of the plan's bulk work.
        problem: why its ledger cannot be read: it is damaged, or of newer code; empty if it can.
    """

    epoch: EpochRecord
    driver: DriverStatus
    state: LedgerState
    done: int
    total: int
    problem: str = ""

    @property
    def committed(self) -> LedgerRow | None:
        """The last commit."""
        return self.state.committed

    @property
    def rate(self) -> float | None:
        """Records per second in the last slices; None if no driver runs."""
        return self.driver.records_per_second if self.driver.is_running else None

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the bulk work ends, at that rate."""
        return (self.total - self.done) / self.rate if self.rate and self.done < self.total else None


class Board:
    """The facts that pages show of one lake."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.lags = Lags(lambda: Broker(lake.config.bootstrap_servers, timeout_seconds=BROKER_SECONDS))
        self._states: dict[str, tuple[int, LedgerState]] = {}
        self._lock = threading.Lock()
        self._is_reading = False
        self._problem: Exception | None = None
        self._unreadable: dict[str, Exception] = {}
        self._certificates: dict[str, tuple[tuple[int, ...], float, Certificate]] = {}
        self._anatomies: dict[str, tuple[int, list[LedgerRow]]] = {}
        self._reasons: dict[str, tuple[int, tuple[Reason, ...]]] = {}

    def facts(self, record: TopologyRecord, number: int, *, is_read: bool = False) -> BoardFacts:
        """The facts about an epoch now.

        Args:
            record: the record of its topology.
            number: number of the epoch.
            is_read: whether to use its ledger as :meth:`unread` read it last, without checking it again.
        """
        epoch = record.epoch(number)
        try:
            return self._facts(record.topology, epoch, is_read=is_read)
        except UNREADABLE as error:  # it must not hide other topologies
            unknown = DriverStatus(topology=record.topology, epoch=number, state="unconfirmed", message=str(error))
            return BoardFacts(epoch=epoch, driver=unknown, state=LedgerState(), done=0, total=0, problem=str(error))

    def _facts(self, topology: str, epoch: EpochRecord, *, is_read: bool) -> BoardFacts:
        state, paths = LedgerState(), self._paths(topology, epoch.epoch)
        if not epoch.stage.is_ended:
            if is_read and paths.ledger in self._unreadable:
                raise self._unreadable[paths.ledger]
            entry = self._states.get(paths.ledger) if is_read else None
            state = entry[1] if entry is not None else self._state(paths)
        done = total = 0
        if epoch.planned.detail.get("plan") is not None:
            plan = epoch.plan
            position = ranges_end(state.committed.ranges) if state.committed is not None else plan.start
            done, total = plan.start.processed(position, plan.end)
        driver = status_or_problem(self.lake.config, topology, epoch.epoch)
        return BoardFacts(epoch=epoch, driver=driver, state=state, done=max(0, done), total=total)

    def unread(self, epochs: Sequence[tuple[str, int]]) -> int:
        """How many of these ledgers have not been read yet.

        A thread reads them, and those that have grown since. This waits for it, but not for long: later rows then
        appear on the next page.

        Args:
            epochs: topologies and epochs.

        Raises:
            KappaError: one cannot be read.
        """
        self._forget_ended()
        paths = [self._paths(*one) for one in epochs]
        due = [one for one in paths if not self._is_current(one)]
        if not due:
            return 0
        with self._lock:
            is_mine, self._is_reading = not self._is_reading, True
        if is_mine:
            threading.Thread(target=self._read, args=(due,), name="ledgers", daemon=True).start()
        deadline = time.monotonic() + _READ_SECONDS
        while self._is_reading and time.monotonic() < deadline:
            time.sleep(0.005)
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem
        return sum(one.ledger not in self._states for one in paths)

    def _forget_ended(self) -> None:
        """Let go of what is known of epochs that have ended: their slices are most of it."""
        caches: tuple[dict[str, Any], ...] = (self._states, self._unreadable, self._anatomies, self._reasons)
        for by_ledger in caches:
            for path in by_ledger.keys() - self.lake.lasting_ledgers:
                by_ledger.pop(path, None)

    def _is_current(self, paths: EpochPaths) -> bool:
        """Whether a ledger has no commit since it was read."""
        entry, sign = self._states.get(paths.ledger), _changed(paths)
        return entry is not None and sign is not None and entry[0] == sign

    def _read(self, paths: Sequence[EpochPaths]) -> None:
        try:
            with ThreadPoolExecutor(_READERS, "ledger") as readers:
                list(readers.map(self._read_one, paths))
        except Exception as error:  # raised at the next look
            self._problem = error
        finally:
            self._is_reading = False

    def _read_one(self, paths: EpochPaths) -> None:
        try:
            self._state(paths)
            self._unreadable.pop(paths.ledger, None)
        except UNREADABLE as error:
            self._states[paths.ledger], self._unreadable[paths.ledger] = (0, LedgerState()), error  # the page says so

    def published(self, topology: str, live: BoardFacts) -> dict[str, str]:
        """Name of each table and append output -> path of its published table, without a look at it."""
        paths = self._paths(topology, live.epoch.epoch)
        names = [place.partition("/")[2] for place in sorted(live.state.recorded) if place.startswith(SERVED)]
        return {name: paths.published(name) for name in names}

    def _paths(self, topology: str, epoch: int) -> EpochPaths:
        return EpochPaths(lake=self.lake.config.lake, topology=topology, epoch=epoch)

    def _state(self, paths: EpochPaths) -> LedgerState:
        """The state of a ledger; read again only after a commit, which changes the folder of its log."""
        sign = _changed(paths)
        entry = self._states.get(paths.ledger)
        if sign is not None and entry is not None and entry[0] == sign:
            return entry[1]
        try:
            state = self.lake.opened(paths).state()
        except LedgerError:
            state = LedgerState()  # its files were removed between two looks: the epoch is being removed
        self._states[paths.ledger] = (sign or 0, state)
        return state

    def certificate(self, record: TopologyRecord) -> Certificate:
        """The lake's part of a topology's certificate; Kafka is not asked. Made again after a ledger grew, at most
        every ten seconds.

        Raises:
            UnknownTopologyError: the topology has no live epoch.
        """
        record.live_epoch()
        epochs = sorted({move.epoch for move in record.moves} & set(record.readable_epochs))
        paths = [self._paths(record.topology, epoch) for epoch in epochs]
        sign = (len(record.events), *(self._state(one).last for one in paths))
        entry, now = self._certificates.get(record.topology), time.monotonic()
        if entry is None or (entry[0] != sign and (entry[0][0] != sign[0] or now - entry[1] > _PROOF_SECONDS)):
            ledgers = {one.ledger: self.lake.opened(one) for one in paths}
            certificate = certificate_of(self.lake.config.lake, record, ledgers=ledgers, is_brief=True)
            entry = self._certificates[record.topology] = (sign, now, certificate)
        return entry[2]

    def last_rows(self, topology: str, epoch: int, last: int, most: int = 120) -> list[LedgerRow]:
        """The last rows of a ledger, oldest first; read again only after it grew."""
        paths = self._paths(topology, epoch)
        entry = self._anatomies.get(paths.ledger)
        if entry is None or entry[0] != last:
            entry = self._anatomies[paths.ledger] = (last, self.lake.opened(paths).newest(most))
        return entry[1]

    def dead_letters(self, topology: str, epoch: int, committed: LedgerRow | None) -> tuple[Reason, ...]:
        """Why records of an epoch are dead letters; read again only after new ones came."""
        version = -1 if committed is None else committed.delta_versions.get("dead_letters", -1)
        if committed is None or version < 1:  # version 0 is the empty table
            return ()
        paths = self._paths(topology, epoch)
        entry = self._reasons.get(paths.ledger)
        if entry is None or entry[0] != version:
            entry = self._reasons[paths.ledger] = (version, reasons_of(paths, committed))
        return entry[1]


def _changed(paths: EpochPaths) -> int | None:
    """Time of a ledger's last commit, by the folder of its log; None if that is unknown."""
    if is_remote(paths.lake):
        return None
    try:
        return Path(f"{paths.ledger}/_delta_log").stat().st_mtime_ns
    except FileNotFoundError:
        return None


def rates(commits: Iterable[LedgerRow], now: datetime) -> list[float | None]:
    """Records per second for each step of a chart; None before the first commit that is still a row.

    Args:
        commits: newest first.
        now: end of the chart.
    """
    step, begin = CHART / STEPS, now - CHART
    seconds = step.total_seconds()
    values: list[float | None] = [None] * STEPS
    reached = STEPS
    for row in commits:
        index = (row.at - begin) // step
        if index < 0:
            reached = 0
            break
        index = min(index, STEPS - 1)
        reached = min(reached, index)
        values[index] = (values[index] or 0.0) + row.rows_read / seconds
    return [value if value is not None or index < reached else 0.0 for index, value in enumerate(values)]
