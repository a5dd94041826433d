"""Whether the process behind a heartbeat is alive, judged by this process's own monotonic clock.

Clocks of two hosts are never compared, and a wall clock that is set back or forward changes nothing. Under the kernel
that a heartbeat was written under, its age is exact: both sides read one monotonic clock. Of any other heartbeat only
an observed change proves life: the first look at it proves nothing yet.
"""

from __future__ import annotations

import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kappa.errors import LakeUnreachableError
from kappa.presence import heartbeat
from kappa.presence.heartbeat import Heartbeat

#: ``unconfirmed``: the heartbeat is of another host and was not seen to change yet.
State = Literal["absent", "alive", "dead", "stopped", "unconfirmed"]

#: What :func:`claim_name` gives.
_DRIVER = re.compile(r"(?P<host>[^:]+):(?P<pid>\d+):[0-9a-f]{8}")
#: Pause between two looks until there is a judgement.
LOOK_SECONDS = 0.1


def claim_name() -> str:
    """A new name by which this process claims an epoch or an archive: host, process and a mark."""
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


@dataclass(frozen=True, kw_only=True)
class Sign:
    """A heartbeat, and a judgement of the process that wrote it.

    Attributes:
        beat: the heartbeat; None where there is none.
        state: the judgement.
    """

    beat: Heartbeat | None
    state: State

    @property
    def is_alive(self) -> bool:
        """Whether the process is known to live."""
        return self.state == "alive"

    @property
    def may_live(self) -> bool:
        """Whether the process is not known to have ended."""
        return self.state in ("alive", "unconfirmed")


@dataclass(frozen=True, kw_only=True)
class _Sight:
    beat: Heartbeat
    since: float
    looked: float
    has_changed: bool


_sights: dict[str, _Sight] = {}
_lock = threading.Lock()


def look(path: str, stale_seconds: float, *, clock: Callable[[], float] = time.monotonic) -> Sign:
    """Look at a heartbeat once; for one of another host, call it until the heartbeat is seen to change.

    Args:
        path: where it is.
        stale_seconds: how long a heartbeat may stay as it is.
        clock: monotonic seconds.
    """
    beat = heartbeat.read(path)
    if beat is None:
        return Sign(beat=None, state="absent")
    if beat.state == "stopped":
        return Sign(beat=beat, state="stopped")
    is_boot = beat.boot != "" and beat.boot == heartbeat.boot_id()
    if beat.is_here and not heartbeat.is_process(beat.pid, beat.started):
        return Sign(beat=beat, state="dead")
    age = clock() - beat.monotonic
    if is_boot and age >= 0:  # a container may have a monotonic clock of its own
        return Sign(beat=beat, state="alive" if age <= stale_seconds else "dead")
    return Sign(beat=beat, state=_watched(path, beat, stale_seconds, clock()))


def settled(
    path: str, stale_seconds: float, *, claimant: str = "", clock: Callable[[], float] = time.monotonic
) -> Sign:
    """The same, after as many looks as it takes to know: at most ``stale_seconds``.

    Args:
        path: where the heartbeat is.
        stale_seconds: how long it may stay as it is.
        claimant: who claimed last: a driver that has not come to its first heartbeat is given that time for it.
        clock: monotonic seconds.

    Raises:
        LakeUnreachableError: the store answered none of the looks in that time.
    """
    started = clock()
    while True:
        try:
            sign = look(path, stale_seconds, clock=clock)
        except LakeUnreachableError:  # a look waits for a part of that time only
            if clock() - started > stale_seconds:
                raise
        else:
            is_awaited = clock() - started <= stale_seconds and _is_to_come(claimant, sign.beat)
            if sign.state != "unconfirmed" and not is_awaited:
                return sign
        time.sleep(LOOK_SECONDS)


def _is_to_come(claimant: str, beat: Heartbeat | None) -> bool:
    """Whether whoever claimed last has not beaten, and may do so: of another host, or a process that runs here."""
    match = _DRIVER.fullmatch(claimant)
    if match is None or (beat is not None and beat.writer == claimant):
        return False
    pid = int(match["pid"])
    looks = (heartbeat.is_driver, heartbeat.is_archiver, heartbeat.is_hidden)
    return match["host"] != socket.gethostname() or any(is_one(pid) for is_one in looks)


def _watched(path: str, beat: Heartbeat, stale_seconds: float, now: float) -> State:
    with _lock:
        before = _sights.get(path)
        if before is None or before.beat != beat:
            # After a long while without a look a change proves that it lived at some time since, not that it lives now.
            has_changed = before is not None and now - before.looked <= stale_seconds
            sight = _Sight(beat=beat, since=now, looked=now, has_changed=has_changed)
        else:
            sight = _Sight(beat=beat, since=before.since, looked=now, has_changed=before.has_changed)
        _sights[path] = sight
    if now - sight.since > stale_seconds:
        return "dead"
    return "alive" if sight.has_changed else "unconfirmed"
