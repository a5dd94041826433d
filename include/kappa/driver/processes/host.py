"""A host for drivers: starts those that are wanted and missing, and ends them when it ends."""

from __future__ import annotations

import math
import signal
import threading
import time
from pathlib import Path

import structlog

from kappa.config import Config
from kappa.driver.processes import process
from kappa.driver.processes.targets import write_targets
from kappa.environments import launchers
from kappa.environments.launchers import Launcher
from kappa.errors import UNREADABLE, KappaError, LakeUnreachableError
from kappa.names import EpochPaths
from kappa.presence import heartbeat
from kappa.presence.liveness import claim_name
from kappa.record.epochs import epochs_of

#: Time between two looks, and the longest pause before a driver that keeps dying is started again.
LOOK_SECONDS = 2.0
LONGEST_PAUSE_SECONDS = 120.0
#: Time between two looks at what is installed on this host, which are written into the lake.
ANNOUNCE_SECONDS = 30.0

#: A state that is not an adjective, in words.
_STATES = {"never": "not started yet", "unreadable": "not readable"}

log = structlog.get_logger("kappa.driver.processes.host")


def host(config: Config, stopping: threading.Event, targets: Path | None = None) -> None:
    """Keep every wanted driver running until told to stop; then end the drivers of this host at a slice boundary.

    A driver that dies is started again with growing pauses. A crash of this process leaves its drivers running: the
    next one finds them by their heartbeats.

    Args:
        targets: a file that tells Prometheus where drivers answer; None for none.
    """
    failures: dict[tuple[str, int], int] = {}
    not_before: dict[tuple[str, int], float] = {}
    unreadable: set[tuple[str, int]] = set()
    here: Launcher | None = None
    announced, writer = -math.inf, claim_name()
    while not stopping.wait(LOOK_SECONDS):
        try:
            statuses = {one: process.status_or_problem(config, *one) for one in process.wanted_drivers(config)}
        except (OSError, KappaError) as error:
            log.warning("waiting", error=str(error))
            continue
        if time.monotonic() > announced + ANNOUNCE_SECONDS:
            announced, here = time.monotonic(), _announce(config, writer) or here
        for one, status in statuses.items():
            if status.state == "unconfirmed":  # the next look tells
                continue
            if status.state == "unreadable":
                if one not in unreadable:
                    log.error("not looked after", topology=one[0], epoch=one[1], error=status.message)
                unreadable.add(one)
                continue
            unreadable.discard(one)
            if status.is_running:
                if time.monotonic() > not_before.get(one, 0.0) + LONGEST_PAUSE_SECONDS:
                    failures.pop(one, None)
                continue
            if time.monotonic() < not_before.get(one, 0.0):
                continue
            failures[one] = failures.get(one, 0) + 1
            not_before[one] = time.monotonic() + min(LONGEST_PAUSE_SECONDS, 2.0 ** failures[one])
            try:
                log.info("starting", topology=one[0], epoch=one[1], start=failures[one])
                process.ensure_driver(config, *one)
            except (OSError, KappaError) as error:  # such as a full disk of this host: the other drivers go on
                log.error("did not start", topology=one[0], epoch=one[1], error=str(error))
        if targets is not None:
            _tell(config, targets)
    end_local(config)
    if here is not None:
        try:
            launchers.withdraw(config, here)
        except (OSError, KappaError) as error:
            log.error("environments not withdrawn", error=str(error))


def _announce(config: Config, writer: str) -> Launcher | None:
    """Say in the lake which environments this host has, each time anew: the file has its age; None where it cannot."""
    try:
        if not epochs_of(config.lake).exists():  # nothing makes a folder of what is not a lake yet
            return None
        here = launchers.this_host(config, writer)
        launchers.write(config, here)
    except (OSError, KappaError) as error:  # the drivers are what this process is for
        log.error("environments not written", error=str(error))
        return None
    return here


def check(config: Config) -> list[str]:
    """A line for each wanted driver that does not run, or has long been at one line of the protocol.

    One of another host whose heartbeat was not seen to change yet is left out: a single look cannot tell.
    """
    statuses = [process.status_or_problem(config, *one) for one in process.wanted_drivers(config)]
    return [
        f"The driver of epoch {status.epoch} of {status.topology!r} is {_STATES.get(status.state, status.state)}"
        f"{': ' + status.message if status.message else ''}. Look at it: kappa status {status.topology}"
        for status in statuses
        if status.state not in ("running", "slow", "unconfirmed")
    ]


def _tell(config: Config, targets: Path) -> None:
    try:
        write_targets(config, targets)
    except (OSError, KappaError) as error:  # the drivers are what this process is for
        log.error("targets not written", file=str(targets), error=str(error))


def end_local(config: Config, *, timeout_seconds: float = 60.0) -> int:
    """Ask every driver on this host to stop at its slice boundary and wait; one that does not is killed.

    Nothing is put on record: the drivers are still wanted, and the next watcher starts them again.

    Returns:
        How many there were.
    """
    beats = []
    for name, epoch in process.wanted_drivers(config):
        try:
            beat = heartbeat.read(EpochPaths(lake=config.lake, topology=name, epoch=epoch).heartbeat)
        except (LakeUnreachableError, *UNREADABLE) as error:
            log.error("not ended", topology=name, epoch=epoch, error=str(error))
            continue
        if beat and beat.may_be_ended:
            process.send_signal(beat.pid, signal.SIGTERM)
            beats.append(beat)
    deadline = time.monotonic() + timeout_seconds
    pending = list(beats)
    while pending and time.monotonic() < deadline:
        time.sleep(process.POLL_SECONDS)
        pending = [beat for beat in pending if beat.is_process]
    for beat in [beat for beat in pending if beat.may_be_ended]:
        process.send_signal(beat.pid, signal.SIGKILL)
    return len(beats)
