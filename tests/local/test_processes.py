import dataclasses
import os
import subprocess
import sys
import time

import pytest

from kappa_local.processes import Identity, end, identify, is_alive

MARK = ("KAPPA_HOME", "/tests/processes")
SLEEPS = "import time; time.sleep(60)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(60)"
)
PARENT = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {SLEEPS!r}])
detached = subprocess.Popen([sys.executable, "-c", {SLEEPS!r}], start_new_session=True)
print(child.pid, detached.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def start():
    started = []

    def one(code: str, *, marked: bool = True) -> subprocess.Popen:
        environment = os.environ | dict([MARK] if marked else [])
        process = subprocess.Popen(
            [sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        started.append(process)
        return process

    yield one
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def identity_of(process: subprocess.Popen) -> Identity:
    identity = identify(process.pid)
    assert identity
    return identity


def test_a_process_is_alive_until_it_is_ended(start):
    process = start(SLEEPS)
    identity = identity_of(process)
    assert is_alive(identity)
    assert end([identity], environment=MARK) == [process.pid]
    assert not is_alive(identity)


def test_ending_twice_is_safe(start):
    identity = identity_of(start(SLEEPS))
    end([identity], environment=MARK)
    assert end([identity], environment=MARK) == []


def test_a_reused_process_id_gets_no_signal(start):
    process = start(SLEEPS, marked=False)
    before = dataclasses.replace(identity_of(process), started="long ago")
    assert end([before], environment=MARK) == []
    assert is_alive(identity_of(process))


def test_a_process_that_ignores_the_polite_signal_is_killed(start):
    process = start(STUBBORN)
    process.stdout.readline()
    assert end([identity_of(process)], environment=MARK, timeout_seconds=0.2) == [process.pid]
    assert process.wait(5) == -9


@pytest.mark.parametrize("killed_first", [False, True])
def test_children_end_with_their_leader_and_detached_ones_stay(start, killed_first):
    process = start(PARENT)
    child, detached = (int(pid) for pid in process.stdout.readline().split())
    identity, spared = identity_of(process), identify(detached)
    try:
        if killed_first:
            process.kill()
            process.wait()
        assert child in end([identity], environment=MARK)
        assert identify(child) is None
        assert spared and is_alive(spared)
    finally:
        os.kill(detached, 9)


def test_an_ended_process_has_no_identity():
    process = subprocess.Popen([sys.executable, "-c", ""])
    deadline = time.monotonic() + 10
    while identify(process.pid) and time.monotonic() < deadline:  # a zombie counts as none
        time.sleep(0.01)
    assert identify(process.pid) is None
    process.wait()
    assert identify(process.pid) is None
