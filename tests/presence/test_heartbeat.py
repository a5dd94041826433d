"""Heartbeats: which processes are alive, and which claims are not believed."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.programs import WAITS, waiting_program

from kappa.presence import heartbeat
from kappa.presence.heartbeat import Heartbeat
from kappa.store.local import LocalStore


def test_a_process_is_identified_by_its_id_and_its_start() -> None:
    me = heartbeat.process_start(os.getpid())
    assert heartbeat.is_process(os.getpid(), me)
    assert not heartbeat.is_process(os.getpid(), me + 1), "the id may be another process's by now"
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert heartbeat.process_start(child.pid) == 0


def test_a_heartbeat_is_read_back_and_a_removed_epoch_stays_removed(tmp_path: Path) -> None:
    beat = heartbeat.this_process("me", "code")
    path = tmp_path / "heartbeat.json"
    assert heartbeat.read(str(path)) is None
    heartbeat.write(str(path), beat)
    assert heartbeat.read(str(path)) == beat
    beating = heartbeat.Beating(str(path), beat, 0.01, lambda: True)
    beating.say(seq=7, message="working")
    latest = heartbeat.read(str(path))
    assert latest is not None and (latest.seq, latest.message) == (7, "working")
    while tmp_path.exists():  # the beating thread may write once more in between
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            tmp_path.rmdir()
    beating.say(seq=8)
    assert not tmp_path.exists()
    assert beating.is_lost
    tmp_path.mkdir()
    beating.close()


def await_newer(path: Path, than: Heartbeat) -> Heartbeat:
    """The next heartbeat that a thread writes."""
    while True:
        beat = heartbeat.read(str(path))
        if beat is not None and beat.monotonic > than.monotonic:
            return beat


ERRORS = {
    "no room": OSError(errno.ENOSPC, "No space left on device"),
    "a disk that fails": OSError(errno.EIO, "Input/output error"),
    "a folder of another server": OSError(errno.ESTALE, "Stale file handle"),
    "a claim that cannot be read": RuntimeError("the lake does not answer"),
}


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_a_heartbeat_survives_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    path = tmp_path / "heartbeat.json"
    first = heartbeat.this_process("me", "code")
    beating = heartbeat.Beating(str(path), first, 0.01, lambda: True)
    failed = threading.Event()
    write = heartbeat.write

    def once(*arguments: Any) -> None:
        if not failed.is_set():
            failed.set()
            raise error
        write(*arguments)

    monkeypatch.setattr(heartbeat, "write", once)
    beating.say(message="as if nothing was")
    assert failed.is_set() and not beating.is_lost
    assert await_newer(path, await_newer(path, first)).message == "as if nothing was"
    beating.close()
    last = heartbeat.read(str(path))
    assert last is not None and last.state == "stopped" and list(tmp_path.iterdir()) == [path]


class NoExceptionError(BaseException):
    """As a thread of Rust that ends, which ``except Exception`` lets pass."""


def test_the_thread_survives_what_is_not_an_exception(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, thread = tmp_path / "heartbeat.json", threading.current_thread()
    first = heartbeat.this_process("me", "code")
    failed = threading.Event()
    write = heartbeat.write

    def once(*arguments: Any) -> None:
        if threading.current_thread() is not thread and not failed.is_set():
            failed.set()
            raise NoExceptionError("a blank in a header")
        write(*arguments)

    monkeypatch.setattr(heartbeat, "write", once)
    beating = heartbeat.Beating(str(path), first, 0.01, lambda: True)
    assert failed.wait(30)
    await_newer(path, await_newer(path, first))
    beating.close()


@pytest.mark.parametrize("call", ["write_bytes", "replace"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.ESTALE, errno.ENOENT])
def test_a_failed_replacement_leaves_only_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, call: str
) -> None:
    file = tmp_path / "told.json"
    LocalStore().put(str(file), b"old")
    was = getattr(Path, call)

    def refused(path: Path, *arguments: Any) -> None:
        if call == "write_bytes":
            was(path, *arguments)  # some of it is there
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch, pytest.raises(OSError, match=os.strerror(code)):
        patch.setattr(Path, call, refused)
        LocalStore().put(str(file), b"new")
    assert file.read_text() == "old" and list(tmp_path.iterdir()) == [file]


def test_a_heartbeat_overwrites_the_last_one_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "heartbeat.json")
    beat = heartbeat.this_process("me", "code")
    heartbeat.write(path, replace(beat, message="something that takes many words to say"))

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        for message in ("short", "no room on the disk of the lake: it goes on when there is some", "short"):
            heartbeat.write(path, replace(beat, message=message))
            assert heartbeat.read(path) == replace(beat, message=message)
    assert [file.name for file in tmp_path.iterdir()] == ["heartbeat.json"]
    with monkeypatch.context() as patch, pytest.raises(OSError, match="Input/output"):
        patch.setattr(Path, "write_bytes", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "Input/output error")))
        heartbeat.write(path, beat)


def test_a_superseded_driver_does_not_overwrite_its_successor(tmp_path: Path) -> None:
    path = str(tmp_path / "heartbeat.json")
    old = heartbeat.Beating(path, heartbeat.this_process("old", "code"), 0.01, lambda: False)
    heartbeat.write(path, heartbeat.this_process("new", "code"))
    old.say(message="still here")
    beat = heartbeat.read(path)
    assert old.is_lost
    old.close()
    assert beat is not None and beat.writer == "new"


def test_a_heartbeat_in_a_newer_format_belongs_to_a_successor(tmp_path: Path) -> None:
    path = tmp_path / "heartbeat.json"
    old = heartbeat.Beating(str(path), heartbeat.this_process("old", "code"), 60, lambda: False)
    path.write_text('{"format": 2}')
    old.say(message="still here")
    assert old.is_lost and path.read_text() == '{"format": 2}'
    old.close()


def test_a_process_of_an_earlier_boot_is_not_one_of_this_boot() -> None:
    beat = heartbeat.this_process("me", "code")
    assert beat.is_process
    assert not replace(beat, boot="00000000-0000-0000-0000-000000000000").is_process, "pids and ticks begin anew"
    assert replace(beat, boot="").is_process, "earlier code wrote none"


def test_only_a_process_of_a_driver_is_ended_whatever_a_heartbeat_names() -> None:
    driver_words, submitted_words = ["-m", "kappa.driver", "--"], ["/x/jobs/run_epoch.py"]
    with (
        waiting_program("-c", WAITS) as stranger,
        waiting_program("-c", WAITS, *driver_words) as driver,
        waiting_program("-c", WAITS, *submitted_words) as submitted,
    ):
        beats = [
            replace(heartbeat.this_process("w", "c"), pid=p.pid, started=heartbeat.process_start(p.pid))
            for p in (stranger, driver, submitted)
        ]
        assert [beat.is_process for beat in beats] == [True, True, True]
        assert [beat.may_be_ended for beat in beats] == [False, True, True]
        assert not replace(beats[1], started=beats[1].started + 1).may_be_ended
