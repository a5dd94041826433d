"""Liveness: judged by one's own monotonic clock, whatever the clocks of hosts say."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from kappa import clock
from kappa.presence import heartbeat, liveness
from kappa.presence.heartbeat import Heartbeat

STALE = 15.0


class Monotonic:
    """A monotonic clock that is advanced."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def mono() -> Monotonic:
    return Monotonic()


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file of this test alone: a process remembers a file by its path, and pytest uses that of a folder again."""
    return str(tmp_path / f"{uuid4().hex}.json")


def own(mono: Monotonic, **values: object) -> Heartbeat:
    return replace(heartbeat.this_process("w", "c"), **{"monotonic": mono(), **values})  # type: ignore[arg-type]


def foreign(beats: int, **values: object) -> Heartbeat:
    """The heartbeat with this number of a driver on another host, by that host's clock."""
    at = clock.now() + timedelta(seconds=beats)
    return replace(
        heartbeat.this_process("w", "c"), host="elsewhere", boot="another", monotonic=float(beats), at=at, **values
    )  # type: ignore[arg-type]


@pytest.mark.parametrize("hours", [-1, 0, 1, 24 * 365])
def test_a_driver_on_this_host_is_alive_whatever_the_wall_clock_says(path: str, mono: Monotonic, hours: int) -> None:
    heartbeat.write(path, own(mono, at=clock.now() + timedelta(hours=hours)))
    mono.now += STALE
    assert liveness.look(path, STALE, clock=mono).state == "alive"
    mono.now += 0.1
    assert liveness.look(path, STALE, clock=mono).state == "dead", "frozen: its process is there, its heartbeat stands"


def test_a_vanished_process_is_dead_at_once_and_one_that_says_so_has_stopped(path: str, mono: Monotonic) -> None:
    assert liveness.look(path, STALE, clock=mono).state == "absent"
    beat = own(mono)
    heartbeat.write(path, replace(beat, started=beat.started + 1))
    assert liveness.look(path, STALE, clock=mono).state == "dead"
    heartbeat.write(path, replace(beat, state="stopped"))
    assert liveness.look(path, STALE, clock=mono).state == "stopped"


def test_another_container_of_this_kernel_is_judged_by_the_kernels_clock(path: str, mono: Monotonic) -> None:
    heartbeat.write(path, own(mono, host="container", pid=1, started=7))
    assert liveness.look(path, STALE, clock=mono).state == "alive", "its process cannot be seen from here"
    mono.now += STALE + 1
    assert liveness.look(path, STALE, clock=mono).state == "dead"


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_dead_driver_on_a_host_with_a_wrong_clock_is_dead_once_watched(
    path: str, mono: Monotonic, hours: int
) -> None:
    beat = foreign(1)
    heartbeat.write(path, replace(beat, at=beat.at + timedelta(hours=hours)))
    assert liveness.look(path, STALE, clock=mono).state == "unconfirmed"
    mono.now += STALE
    assert liveness.look(path, STALE, clock=mono).state == "unconfirmed"
    mono.now += 0.1
    assert liveness.look(path, STALE, clock=mono).state == "dead"


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_driver_on_a_host_with_a_wrong_clock_is_alive_once_seen_to_beat(
    path: str, mono: Monotonic, hours: int
) -> None:
    for number in range(1, 4):
        beat = foreign(number)
        heartbeat.write(path, replace(beat, at=beat.at + timedelta(hours=hours)))
        state = liveness.look(path, STALE, clock=mono).state
        assert state == ("unconfirmed" if number == 1 else "alive")
        mono.now += 2
    back = replace(foreign(4), at=clock.now() - timedelta(days=1))  # its clock is set back
    heartbeat.write(path, back)
    assert liveness.look(path, STALE, clock=mono).state == "alive"


def test_a_change_noticed_too_late_proves_nothing(path: str, mono: Monotonic) -> None:
    heartbeat.write(path, foreign(1))
    liveness.look(path, STALE, clock=mono)
    mono.now += 3600
    heartbeat.write(path, foreign(2))
    assert liveness.look(path, STALE, clock=mono).state == "unconfirmed"


def test_a_look_that_must_be_certain_waits_until_it_is(path: str) -> None:
    heartbeat.write(path, foreign(1))
    assert liveness.settled(path, 0.3).state == "dead"
    beats = iter(range(10, 10_000))

    def now() -> float:
        heartbeat.write(path, foreign(next(beats)))  # it beats between two looks
        return 5.0

    assert liveness.settled(path, STALE, clock=now).state == "alive"


def test_a_heartbeat_of_earlier_code_is_read_and_its_process_is_checked(path: str, mono: Monotonic) -> None:
    old = own(mono, boot="")
    heartbeat.write(path, replace(old, started=old.started + 1))
    assert liveness.look(path, STALE, clock=mono).state == "dead"
    heartbeat.write(path, old)
    assert (old.pid, liveness.look(path, STALE, clock=mono).state) == (os.getpid(), "unconfirmed")


def test_an_id_of_another_pid_namespace_says_nothing(path: str, mono: Monotonic) -> None:
    beat = own(mono, pids=heartbeat.pid_namespace() + 1)
    heartbeat.write(path, replace(beat, started=beat.started + 1))
    assert liveness.look(path, STALE, clock=mono).state == "alive", "the id is another process's here"
    assert not beat.is_process and not beat.may_be_ended
    mono.now += STALE + 1
    assert liveness.look(path, STALE, clock=mono).state == "dead"


def test_a_heartbeat_without_a_pid_namespace_is_judged_as_before(path: str, mono: Monotonic) -> None:
    beat = own(mono, pids=0)
    assert beat.is_process
    heartbeat.write(path, replace(beat, started=beat.started + 1))
    assert liveness.look(path, STALE, clock=mono).state == "dead"


#: A process that beats until its input ends.
BEATS = """
import sys
from kappa.presence import heartbeat
beating = heartbeat.Beating(sys.argv[1], heartbeat.this_process("w", "c"), 0.05, lambda: True)
print("beats", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_a_driver_in_another_pid_namespace_of_this_host_is_alive(path: str) -> None:
    command = ["unshare", "-pf", "--mount-proc", sys.executable, "-c", BEATS, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "beats\n"
        sign = liveness.look(path, STALE)
        assert sign.beat is not None and sign.beat.host == socket.gethostname()
        assert (sign.state, sign.beat.is_process, sign.beat.pid) == ("alive", False, 1)
        process.stdin.close()


#: Looks at the heartbeat of a process that this user may not see, then at that of one that is gone.
LOOKS = """
import sys
from dataclasses import replace
from kappa.presence import heartbeat, liveness
path, pid = sys.argv[1], int(sys.argv[2])
for number in (pid, 2**22 + 1):
    beat = replace(heartbeat.this_process("w", "c"), pid=number, started=7)
    heartbeat.write(path, beat)
    print(liveness.look(path, 15.0).state, beat.may_be_ended)
"""


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
@pytest.mark.parametrize("hidepid", [1, 2])
def test_a_driver_of_another_user_that_the_system_hides_is_alive(path: str, hidepid: int) -> None:
    script = (
        f"mount -t proc -o hidepid={hidepid} proc /proc; setpriv --reuid=65534 --clear-groups sleep 60 & "
        'exec setpriv --regid=65534 --clear-groups --bounding-set=-sys_ptrace,-kill "$0" -c "$1" "$2" $!'
    )
    command = ["unshare", "-mpf", "sh", "-euc", script, sys.executable, LOOKS, path]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines() == ["alive False", "dead False"]


CLAIMANT = "elsewhere:1:0123abcd"


def test_a_driver_of_another_host_that_claimed_is_waited_for_until_it_beats(path: str) -> None:
    heartbeat.write(path, foreign(1, state="stopped"))
    ticks, beats = iter(range(1000)), iter(range(2, 1000))

    def now() -> float:
        beat = heartbeat.read(path)
        if next(ticks) == 4 or (beat is not None and beat.writer == CLAIMANT):  # its first one comes, and more of them
            heartbeat.write(path, foreign(next(beats), writer=CLAIMANT))
        return 0.0

    sign = liveness.settled(path, STALE, claimant=CLAIMANT, clock=now)
    assert sign.beat is not None and (sign.beat.writer, sign.state) == (CLAIMANT, "alive")


@pytest.mark.parametrize("state", ["absent", "stopped"])
def test_a_driver_that_claimed_and_never_beats_is_given_up(path: str, mono: Monotonic, state: str) -> None:
    if state == "stopped":
        heartbeat.write(path, foreign(1, state="stopped"))

    def now() -> float:
        mono.now += 1.0
        return mono()

    before = mono.now
    assert liveness.settled(path, STALE, claimant=CLAIMANT, clock=now).state == state
    assert mono.now - before > STALE


def test_an_archiver_of_this_host_that_claimed_is_waited_for(path: str, mono: Monotonic) -> None:
    words = [sys.executable, "-c", "print(flush=True); input()", "archive", "start"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        claimant = f"{socket.gethostname()}:{process.pid}:0123abcd"
        ticks = iter(range(1000))

        def now() -> float:
            mono.now += 1.0
            if next(ticks) == 3:
                heartbeat.write(path, foreign(1, writer=claimant))
            return mono()

        sign = liveness.settled(path, STALE * 10, claimant=claimant, clock=now)
        process.kill()
    assert sign.beat is not None and sign.beat.writer == claimant


@pytest.mark.parametrize(
    "claimant", ["", "a removal", f"{socket.gethostname()}:{2**22 + 1}:0123abcd", f"{socket.gethostname()}:1:0123abcd"]
)
def test_nobody_waits_for_what_is_not_a_driver_or_has_ended(path: str, mono: Monotonic, claimant: str) -> None:
    assert liveness.settled(path, STALE, claimant=claimant, clock=mono).state == "absent"
