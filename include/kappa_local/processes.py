"""Processes that outlive their starter, with identities that a reused process id cannot match."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

_PROC = Path("/proc")


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The identity of one process.

    Attributes:
        pid: its process id, which is also its session and process group if it was started with a session of its own.
        started: start time from the system; another process with the same id has another value.
    """

    pid: int
    started: str


def identify(pid: int) -> Identity | None:
    """The process that has this id now; None if there is none, or only a zombie."""
    stat = _PROC / str(pid) / "stat"
    if stat.exists():
        with contextlib.suppress(OSError):  # it ended in between
            fields = stat.read_text().rpartition(")")[2].split()
            # Ticks since the machine started are exact, but start again with it.
            boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
            return None if fields[0] in "ZX" else Identity(pid=pid, started=f"{boot}/{fields[19]}")
        return None
    try:
        process = psutil.Process(pid)
        return (
            None if process.status() == psutil.STATUS_ZOMBIE else Identity(pid=pid, started=str(process.create_time()))
        )
    except psutil.Error:
        return None


def is_alive(identity: Identity) -> bool:
    """Whether exactly that process still runs."""
    return identify(identity.pid) == identity


def end(identities: Iterable[Identity], *, environment: tuple[str, str], timeout_seconds: float = 20.0) -> list[int]:
    """End these processes with all their sessions, by force after the timeout; return the ids of the ended processes.

    May be called twice, and is safe after an id has been reused: only an identical process, or a member of its session
    with the given variable in its environment, gets a signal. A process that moved to a session of its own gets none.

    Args:
        identities: leaders of sessions of their own.
        environment: a variable and its value, which every process of these sessions has inherited.
        timeout_seconds: longest wait before force is used.
    """
    leaders = list(identities)
    ended: set[int] = set()
    for number, patience in ((signal.SIGTERM, timeout_seconds), (signal.SIGKILL, 5.0)):
        deadline = time.monotonic() + patience
        recipients: set[int] = set()
        while members := {pid for identity in leaders for pid in _members(identity, environment)}:
            for pid in members - recipients:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            recipients |= members
            ended |= members
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
    return sorted(ended)


def _members(identity: Identity, environment: tuple[str, str]) -> Iterator[int]:
    is_leader_alive = is_alive(identity)
    if is_leader_alive:
        yield identity.pid
    for pid in psutil.pids():
        if pid == identity.pid:
            continue
        with contextlib.suppress(OSError, psutil.Error):
            if os.getsid(pid) == identity.pid and identify(pid) and (is_leader_alive or _has(pid, environment)):
                yield pid


def _has(pid: int, environment: tuple[str, str]) -> bool:
    return bool(psutil.Process(pid).environ().get(environment[0]) == environment[1])
