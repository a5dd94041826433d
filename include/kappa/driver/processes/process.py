"""The process of an epoch's driver: whether it runs, and starting it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from kappa.acts import Effect
from kappa.config import Config
from kappa.driver.processes import launches
from kappa.driver.processes.launcher import launch, log_file
from kappa.errors import UNREADABLE, KappaError, LakeUnreachableError
from kappa.names import EpochPaths
from kappa.presence import heartbeat, liveness
from kappa.record.epochs import epochs_of
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow

#: How long a launched driver may take to its first heartbeat before it counts as not started.
LAUNCH_SECONDS = 20.0
#: How often it is looked whether a driver's process has come up, or is gone: nothing tells when one that is not a child
#: ends.
POLL_SECONDS = 0.1
#: How often the ledger is read while a driver does what it was asked for: nothing tells when a row is written.
ANSWER_SECONDS = 0.2
#: How often it is looked whether a driver that is waited for has died.
REVIVE_SECONDS = 5.0
#: Of a driver that only another host may start, before its first heartbeat.
WAITING = "waiting for a host that starts it: kappa drivers"
#: From which time on a status says how long a driver has been at what it is at.
LINE_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class DriverStatus:
    """The driver of an epoch, from its heartbeat.

    Attributes:
        state: ``running``; ``slow`` or ``stuck``: it does not get on; ``stopped``, ``dead`` or ``never`` (started);
            ``unconfirmed``: it is of another host and its heartbeat was not seen to change yet; ``unreadable``: newer
            code wrote its heartbeat, and ``message`` says so.
        pid: its process on ``host``.
        host: where it runs.
        heartbeat_at: last heartbeat, UTC.
        seq: last committed slice; None before the first.
        role: ``live`` or ``candidate``.
        message: what it is doing.
        records_per_second: rate of its last slice.
        metrics: ``host:port`` where it answers Prometheus; None where it does not.
        owner: the team or person whom the code that it runs names; empty where it names none.
        environment: id of the environment in which it runs or ran; empty for one of earlier code.
        instead_of: id of the epoch's own environment, where it runs in another one.
    """

    topology: str
    epoch: int
    state: str
    pid: int | None = None
    host: str | None = None
    heartbeat_at: datetime | None = None
    seq: int | None = None
    role: str | None = None
    message: str = ""
    records_per_second: float | None = None
    metrics: str | None = None
    owner: str = ""
    environment: str = ""
    instead_of: str = ""

    @property
    def is_running(self) -> bool:
        """Whether it is there, also when it is stuck and waits."""
        return self.state in ("running", "slow", "stuck")


def with_driver(
    effects: tuple[Effect, ...],
    config: Config,
    topology: str,
    epoch: int,
    *,
    due: Callable[[], int | None] | None = None,
) -> tuple[Effect, ...]:
    """Effects, and after them the start of an epoch's driver; it is none of its own where the driver runs by now.

    Where it runs, the last of the effects looks again once it is made. A driver that ends looks at the record after its
    last heartbeat: either it finds there what these effects put on record, or the look finds that it is gone.

    Args:
        effects: those before it, which put on record that the driver is wanted; none where it is on record already.
        due: asked when it is made: the epoch whose driver is to run, None for none; this epoch's by default.
    """

    def start() -> None:
        number = epoch if due is None else due()
        if number is not None:
            ensure_driver(config, topology, number)

    if config.launcher == "elsewhere":
        return effects
    if not settled_status(config, topology, epoch).is_running:
        what = f"start the driver of epoch {epoch} of {topology}"
        return (*effects, Effect(what=what, values={"topology": topology, "epoch": epoch}, make=start))
    if not effects:
        return ()
    *before, last = effects

    def make() -> None:
        last.make()
        start()

    return (*before, replace(last, make=make))


def ensure_driver(config: Config, topology: str, epoch: int) -> DriverStatus:
    """Start an epoch's driver unless one has a fresh heartbeat; return when it beats.

    Idempotent; when two do it at once, one of the two drivers finds the claim taken and ends without having done
    anything. With ``config.launcher`` ``elsewhere`` nothing is started here: a ``kappa drivers`` on another host does.

    Raises:
        UnknownEpochError: there is no such epoch.
        KappaError: the driver ended before its first heartbeat; the message names its log.
    """
    status = settled_status(config, topology, epoch)
    if status.is_running or config.launcher == "elsewhere":
        return status
    claim = last_claim(config, topology, epoch)
    status = settled_status(config, topology, epoch)  # again: the claim may be that of a driver that runs by now
    if status.is_running:
        return status
    record = epochs_of(config.lake).record(topology)
    environment = launches.own_environment(record, epoch, claim)
    # A driver left the mark of the code that it ran; an epoch that never ran has its plan's.
    code, number = record.epoch(epoch).code, 0 if claim is None else claim.n
    pid = launch(config, topology, epoch, code, number, environment=environment)
    born = heartbeat.process_start(pid)
    deadline = time.monotonic() + LAUNCH_SECONDS
    while time.monotonic() < deadline:
        news = _news(config, topology, epoch)
        if news is not None and news.is_running:
            return news
        if not heartbeat.is_process(pid, born):
            return _after_end(config, topology, epoch)
        time.sleep(POLL_SECONDS)
    return driver_status(config, topology, epoch)


def _after_end(config: Config, topology: str, epoch: int) -> DriverStatus:
    """The status of an epoch whose launched driver has ended: another one, which was first, may be about to beat."""
    claim = last_claim(config, topology, epoch)
    status = settled_status(config, topology, epoch, claimant="" if claim is None else claim.writer)
    if status.is_running or status.state == "stopped":
        return status
    raise KappaError(
        f"The driver of epoch {epoch} of {topology!r} ended at once; see {log_file(config, topology, epoch)}.",
        topology=topology,
        epoch=epoch,
    )


def last_claim(config: Config, topology: str, epoch: int) -> LedgerRow | None:
    """The last claim in an epoch's ledger."""
    return Ledger(EpochPaths(lake=config.lake, topology=topology, epoch=epoch).ledger).state().claim


class Revival:
    """Starts a driver that died again while something is waited for, looking every few seconds.

    A driver that somebody stopped, or whose epoch was aborted meanwhile, stays ended.

    Args:
        epochs: whose drivers; topology -> epoch.
    """

    def __init__(self, config: Config, epochs: Mapping[str, int]) -> None:
        self._config = config
        self._epochs = epochs
        self._looked = time.monotonic()

    def look(self) -> None:
        """Start the wanted drivers that do not run, if it is time."""
        if time.monotonic() - self._looked > REVIVE_SECONDS:
            self._looked = time.monotonic()
            for topology, epoch in self._epochs.items():
                if epochs_of(self._config.lake).record(topology).epoch(epoch).is_wanted:
                    ensure_driver(self._config, topology, epoch)


def wanted_drivers(config: Config) -> list[tuple[str, int]]:
    """Topologies and epochs whose drivers should be running: live ones, and those being built or brought back."""
    return [
        (record.topology, epoch.epoch)
        for record in epochs_of(config.lake).records()
        for epoch in record.recent.values()
        if epoch.is_wanted and (epoch.epoch == record.live or epoch.is_recalled or epoch.is_building or epoch.is_kept)
    ]


def driver_status(config: Config, topology: str, epoch: int) -> DriverStatus:
    """The driver of an epoch, from its heartbeat: one of another host is ``unconfirmed`` until it changes."""
    path = EpochPaths(lake=config.lake, topology=topology, epoch=epoch).heartbeat
    return _status(topology, epoch, liveness.look(path, config.stale_seconds), config.launcher)


def status_or_problem(config: Config, topology: str, epoch: int) -> DriverStatus:
    """The same for lists, which one heartbeat of newer code must not hide: ``unreadable``, with the reason."""
    try:
        return driver_status(config, topology, epoch)
    except UNREADABLE as error:
        return DriverStatus(topology=topology, epoch=epoch, state="unreadable", message=str(error))


def _news(config: Config, topology: str, epoch: int) -> DriverStatus | None:
    """The same for whoever looks again soon: None where the store did not answer this look."""
    try:
        return driver_status(config, topology, epoch)
    except LakeUnreachableError:
        return None


def settled_status(config: Config, topology: str, epoch: int, claimant: str = "") -> DriverStatus:
    """The driver of an epoch, after as many looks as it takes to know whether one of another host is alive."""
    path = EpochPaths(lake=config.lake, topology=topology, epoch=epoch).heartbeat
    sign = liveness.settled(path, config.stale_seconds, claimant=claimant)
    return _status(topology, epoch, sign, config.launcher)


def _status(topology: str, epoch: int, sign: liveness.Sign, launcher: str = "here") -> DriverStatus:
    beat = sign.beat
    if beat is None:
        message = WAITING if launcher == "elsewhere" else ""
        return DriverStatus(topology=topology, epoch=epoch, state="never", message=message)
    state, message = beat.state if sign.is_alive else sign.state, beat.message
    if sign.state == "unconfirmed":
        message = f"last heard of at {beat.at:%Y-%m-%d %H:%M:%S} UTC by the clock of {beat.host}: {message}"
    if sign.is_alive and message.startswith(("slow: ", "stuck: ")):
        message = f"{message}; its log has the stacks. To end it: kill {beat.pid} on {beat.host}"
    elif sign.is_alive and state == "running" and beat.line_seconds >= LINE_SECONDS:
        place = f" at {beat.line!r}" if beat.line != message else ""
        message = ", ".join(part for part in (message, f"for {beat.line_seconds:.0f} s{place}") if part)
    return DriverStatus(
        topology=topology,
        epoch=epoch,
        state=state,
        pid=beat.pid,
        host=beat.host,
        heartbeat_at=beat.at,
        seq=None if beat.seq < 0 else beat.seq,
        role=beat.role,
        message=message,
        records_per_second=beat.records_per_second,
        metrics=beat.metrics or None,
        owner=beat.owner,
        environment=beat.environment,
        instead_of=beat.instead_of,
    )


def await_end(config: Config, topology: str, epoch: int) -> None:
    """Wait until an epoch's driver has ended; one on this host that does not is ended by its process id."""
    beat = heartbeat.read(EpochPaths(lake=config.lake, topology=topology, epoch=epoch).heartbeat)
    if beat is None:
        return
    deadline = time.monotonic() + 2 * config.stale_seconds
    # A driver within this very process (tests, notebooks) has ended when its heartbeat says so.
    is_here = beat.is_here and beat.pid != os.getpid()
    is_killed = False  # a process that is being ended has no command line any more
    while (
        (news := _news(config, topology, epoch)) is None
        or news.state not in ("stopped", "dead", "never")
        or (is_here and beat.is_process)
    ):
        if time.monotonic() > deadline:
            if not is_here or heartbeat.is_hidden(beat.pid):
                raise KappaError(
                    f"The driver of epoch {epoch} on {beat.host} does not end. End process {beat.pid} there and call "
                    "again.",
                    host=beat.host,
                    pid=beat.pid,
                )
            if beat.may_be_ended:
                send_signal(beat.pid, signal.SIGKILL)
                is_killed = True
            elif beat.is_process and not is_killed:
                raise KappaError(
                    f"Process {beat.pid}, which the heartbeat of epoch {epoch} names, is not a driver and is not "
                    "ended. "
                    f"Look at it: ps -fp {beat.pid}",
                    pid=beat.pid,
                )
        time.sleep(POLL_SECONDS)


def driver_end(config: Config, topology: str, epoch: int) -> Effect:
    """The end of an epoch's driver, as an effect: it was told to stop, and is waited for."""
    return Effect(
        what=f"wait until the driver of epoch {epoch} of {topology} has ended, if it runs; end its process after "
        f"{2 * config.stale_seconds:g} s",
        values={"topology": topology, "epoch": epoch},
        make=lambda: await_end(config, topology, epoch),
    )


def send_signal(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may have ended since it was looked at."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
