"""The heartbeat of a driver: a small file in the lake by which other processes find it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from kappa import clock
from kappa.errors import LedgerError, NewerFormatError, first_line
from kappa.presence.full_disk import is_full
from kappa.presence.watchdog import Line, Watchdog
from kappa.replay import stored
from kappa.store.address import is_remote
from kappa.store.options import beat_retries_of
from kappa.store.store import Store
from kappa.store.stores import store_of

#: What this code writes, and the newest that it reads.
FORMAT = 1
#: A live driver's message when it has read what there was.
LIVE = "live"
#: Its lines then.
WAITING, WATCHING = "waiting for what comes next", "watching micro-batches"
#: How often a file that is not a heartbeat is looked at again.
_LOOKS = 5
#: What a field of each type holds.
_KINDS: Mapping[str, Any] = {
    "str": str,
    "int": int,
    "float": int | float,
    "float | None": int | float | None,
    "datetime": datetime,
}


@dataclass(frozen=True, kw_only=True)
class Heartbeat:
    """The state of a driver in its own words.

    Attributes:
        writer: the driver's claim.
        host: where it runs.
        pid: its process.
        started: the process's start, in clock ticks since the host booted: with ``pid`` it names one process for good.
        at: when it was written, UTC.
        seq: last committed slice.
        role: ``candidate``, ``live`` or ``retired``.
        message: its present work, for people.
        state: ``running``, ``slow``, ``stuck`` or ``stopped``.
        records_per_second: rate of the last slices.
        code: content hash of the code that it runs.
        boot: id of the host's boot to which ``started`` belongs; empty where the system has none.
        monotonic: when it was written, by that kernel's monotonic clock, in seconds.
        line: the oldest line of its threads.
        line_seconds: the age of that line, by the driver's own clock.
        metrics: ``host:port`` where it answers Prometheus; empty where it does not.
        pids: inode of the PID namespace in which ``pid`` counts; 0 where the system has none.
        owner: the team or person whom the code that it runs names; empty where it names none.
        environment: id of the environment in which it runs; empty for a process that has none of an epoch.
        instead_of: id of the epoch's own environment, where it runs in another one.
    """

    writer: str
    host: str
    pid: int
    started: int
    at: datetime
    seq: int = -1
    role: str = "candidate"
    message: str = ""
    state: str = "running"
    records_per_second: float | None = None
    code: str = ""
    boot: str = ""
    monotonic: float = 0.0
    line: str = ""
    line_seconds: float = 0.0
    metrics: str = ""
    pids: int = 0
    owner: str = ""
    environment: str = ""
    instead_of: str = ""

    @property
    def is_idle(self) -> bool:
        """Whether a live driver has read what there was, and waits for more: it attested log and sender before that."""
        is_live = self.role == "live" and self.state == "running" and self.message == LIVE
        return is_live and self.line in (WAITING, WATCHING)

    @property
    def is_here(self) -> bool:
        """Whether its process would be seen from this one: the host, its boot and the PID namespace agree.

        What the heartbeat of earlier code lacks is passed over.
        """
        is_boot = self.boot in ("", boot_id())
        return self.host == socket.gethostname() and is_boot and self.pids in (0, pid_namespace())

    @property
    def is_process(self) -> bool:
        """Whether its process runs on this host: the id, its start and the boot that it was counted from all agree."""
        return self.is_here and is_process(self.pid, self.started)

    @property
    def may_be_ended(self) -> bool:
        """Whether its process may be sent a signal: a driver's, on this host, and another than the caller.

        A heartbeat is a file in the lake: the process in it is ended only if its command line is a driver's.
        """
        return self.is_process and is_driver(self.pid)


def read(path: str) -> Heartbeat | None:
    """The heartbeat at a path, or None when there is none; fields as in :mod:`kappa.replay.stored`.

    A file that holds something else counts as none: a driver that runs writes it anew, and another one may be started.

    Raises:
        NewerFormatError: newer code wrote it in a format that this code does not read.
    """
    for _ in range(_LOOKS):  # one that is written in place may be seen half written
        content = _store(path).get(path)
        if content is None:
            return None
        try:
            return _beat(json.loads(content), path)
        except (AttributeError, LedgerError, LookupError, TypeError, ValueError):
            continue
    return None


def _beat(values: Mapping[str, Any], path: str) -> Heartbeat:
    stored.check_format(values.get("format"), FORMAT, what="heartbeat", where=path)
    beat = stored.read(Heartbeat, {**values, "at": datetime.fromisoformat(values["at"])})
    for field in fields(beat):
        if not isinstance(getattr(beat, field.name), _KINDS[str(field.type)]):
            raise TypeError(field.name)
    if beat.at.tzinfo is None:
        raise ValueError("at")
    return beat


def _store(path: str) -> Store:
    """The store of a heartbeat, which is asked again at the next look or beat rather than waited for."""
    return store_of(path, beat_retries_of(path))


def write(path: str, beat: Heartbeat, store: Store | None = None) -> None:
    """Replace the heartbeat in one step. Its folder must exist: an epoch that was removed is not brought back.

    On a full disk it is written over the old one, in its place on the disk: a driver that waits for room is not dead,
    and its message says so.

    Args:
        path: where.
        beat: the heartbeat.
        store: the store, as patient as is wanted; None for one that is asked again at the next beat.

    Raises:
        OSError: it cannot be written; no other file is left.
    """
    values = {"format": FORMAT, **asdict(beat), "at": beat.at.isoformat()}
    text = json.dumps(values).encode()
    try:
        (store or _store(path)).put(path, text)
    except OSError as error:
        if not is_full(error):
            raise
        _overwrite(path, text)


def _overwrite(path: str, text: bytes) -> None:
    """Write over a file in place, padded with blanks to its old size: no reader sees the rest of the old text."""
    file = os.open(path, os.O_WRONLY)
    try:
        old = os.fstat(file).st_size
        os.pwrite(file, text.ljust(old), 0)
        if len(text) < old:
            os.ftruncate(file, len(text))
    finally:
        os.close(file)


def process_start(pid: int) -> int:
    """Start of a process in clock ticks since boot, 0 when it is gone, hidden, or a zombie (proc(5), fields 3, 22)."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, PermissionError, ProcessLookupError):
        return 0
    return 0 if after_name[0] in "ZX" else int(after_name[19])


def is_hidden(pid: int) -> bool:
    """Whether a process of another user runs, and the system shows nothing else of it (proc(5), ``hidepid``)."""
    if pid <= 0 or os.access(f"/proc/{pid}/stat", os.R_OK):
        return False
    try:
        os.kill(pid, 0)
    except (OverflowError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True


@cache
def boot_id() -> str:
    """The kernel's id of this boot, empty where it gives none (random(4))."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def pid_namespace() -> int:
    """Inode of this process's PID namespace, 0 where the system has none (pid_namespaces(7))."""
    try:
        return Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return 0


#: What a driver's command line has: of one that was launched, and of one that a person submits by jobs/run_epoch.py.
_ENTRIES = (" -m kappa.driver ", "run_epoch.py")


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def is_process(pid: int, started: int) -> bool:
    """Whether that very process still runs; of a hidden one, whether its id is taken."""
    return started != 0 and (process_start(pid) == started or is_hidden(pid))


def is_driver(pid: int) -> bool:
    """Whether a process of this host is a driver's, and another than the caller."""
    return pid != os.getpid() and any(entry in _command_line(pid) for entry in _ENTRIES)


def is_archiver(pid: int) -> bool:
    """Whether a process of this host is a ``kappa archive``, and another than the caller."""
    return pid != os.getpid() and " archive " in _command_line(pid)


class Beating:
    """Writes a heartbeat every few seconds from a thread, until closed.

    A failure is logged once, and the next heartbeat is tried: a driver whose heartbeats end counts as dead, and another
    one is started beside it.

    Args:
        path: where.
        beat: the first one.
        seconds: pause between two.
        has_claim: called before each; a driver that lost its claim stops beating.
        watchdog: gives the lines of the threads; None where there is nothing to watch.
        alarm: called once when a line becomes slow or stuck.
    """

    def __init__(
        self,
        path: str,
        beat: Heartbeat,
        seconds: float,
        has_claim: Callable[[], bool],
        *,
        watchdog: Watchdog | None = None,
        alarm: Callable[[Line], None] | None = None,
    ) -> None:
        self._watchdog = watchdog
        self._alarm = alarm
        self._level = ""
        self._path = path
        self._beat = beat
        self._seconds = seconds
        self._has_claim = has_claim
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._lost = threading.Event()
        self._trouble = ""
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        write(path, beat, store_of(path))  # a driver that has claimed counts as an attempt: it does not end for one PUT
        self._thread.start()

    @property
    def is_lost(self) -> bool:
        """Whether the epoch was removed, or is another driver's by now."""
        return self._lost.is_set()

    @property
    def state(self) -> str:
        """The present state: ``running``, ``slow``, ``stuck`` or ``stopped``."""
        line = self._watchdog.worst() if self._watchdog is not None else Line()
        state = self._beat.state
        return line.level if line.level and state == "running" else state

    @property
    def seq(self) -> int:
        """The last committed slice in the heartbeat; -1 where there is none."""
        return self._beat.seq

    def say(self, **changes: Any) -> None:
        """Change fields of the heartbeat, and write it at once."""
        with self._lock:
            self._beat = replace(self._beat, **changes)
        self._write()

    def close(self, state: str = "stopped", message: str = "") -> None:
        """Write a last heartbeat and end the thread."""
        self._closed.set()
        self._thread.join()
        self.say(state=state, message=message)

    def _run(self) -> None:
        while not self._closed.wait(self._seconds) and not self._lost.is_set():
            try:
                self._write()
            except BaseException as error:  # whatever it is: nobody else would write the next one
                self._report(f"{type(error).__name__}: {first_line(error)}")

    def _is_own(self) -> bool:
        """Whether no other driver has written since."""
        try:
            current = read(self._path)
        except NewerFormatError:
            return False
        if current is None:  # a disk has no folder for the next one either where the epoch was removed
            return not is_remote(self._path)
        return current.writer == self._beat.writer

    def _write(self) -> None:
        """Write it, if it can be written now."""
        try:
            self._write_once()
        except Exception as error:  # of any kind: without this thread the driver counts as dead
            self._report(f"{type(error).__name__}: {first_line(error)}")
        else:
            self._report("")

    def _report(self, trouble: str) -> None:
        """Log that heartbeats fail, or go on again."""
        if trouble == self._trouble:
            return
        import structlog  # by the driver alone: whoever reads a heartbeat waits for no such import

        log = structlog.get_logger(__name__)
        if trouble:
            log.error("no heartbeat", path=self._path, error=trouble)
        else:
            log.info("heartbeats again", path=self._path)
        self._trouble = trouble

    def _write_once(self) -> None:
        # A driver that was superseded must not overwrite its successor's heartbeat.
        if not self._is_own() and not self._has_claim():
            self._lost.set()
            return
        line = self._watchdog.worst() if self._watchdog is not None else Line()
        is_new = line.level not in ("", self._level)
        self._level = line.level
        if is_new and self._alarm is not None:
            self._alarm(line)
        with self._lock:
            beat = replace(
                self._beat,
                at=clock.now(),
                monotonic=time.monotonic(),
                line=line.name,
                line_seconds=round(line.seconds, 1),
            )
            if line.level and beat.state == "running":
                beat = replace(beat, state=line.level, message=line.message)
            try:
                write(self._path, beat)
            except FileNotFoundError:
                if Path(self._path).parent.is_dir():  # its own new file is gone, for whatever reason
                    raise
                self._lost.set()


@contextlib.contextmanager
def at_work(folder: str, writer: str, code: str, seconds: float) -> Iterator[None]:
    """Within, a folder that may stay as it is for long has a heartbeat: a process works on it.

    Args:
        folder: the root of the paths that :class:`~kappa.names.EpochPaths` gives for it; made where it is not there.
        writer: who works on it.
        code: content hash of the code that runs.
        seconds: pause between two heartbeats.
    """
    store_of(folder).make_folder(folder)
    # Nobody else writes it: where it is gone, so is the folder, and no heartbeat brings it back.
    beating = Beating(f"{folder}/heartbeat.json", this_process(writer, code), seconds, lambda: False)
    try:
        yield
    finally:
        beating.close()


def this_process(writer: str, code: str) -> Heartbeat:
    """A heartbeat of the calling process."""
    pid = os.getpid()
    return Heartbeat(
        writer=writer,
        host=socket.gethostname(),
        pid=pid,
        started=process_start(pid),
        at=clock.now(),
        code=code,
        boot=boot_id(),
        monotonic=time.monotonic(),
        pids=pid_namespace(),
    )
