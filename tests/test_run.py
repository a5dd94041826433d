"""A run of tests ends whatever happens, and says what was left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest_parts import LEFT
from conftest_run import DISK_GIB
from support import brokers

HERE = Path(__file__).parent
HANGS = """
import time
from pathlib import Path

def test_hangs():
    Path("begun").touch()
    time.sleep(600)

def test_comes_after():
    pass
"""
WORKER_DIES = """
import os, pytest, time

@pytest.mark.xdist_group("one")
def test_first():
    pass

@pytest.mark.xdist_group("two")
def test_dies():
    time.sleep(1)
    os._exit(139)

@pytest.mark.spark  # each is a group of its own
@pytest.mark.parametrize("n", range(20))
def test_comes_after(n):
    time.sleep(0.2)
"""
BROKER_DIES = """
from pathlib import Path
from types import SimpleNamespace
import time
from support import brokers

def test_needs_the_broker():
    gone = SimpleNamespace(
        is_running=lambda: False,
        bootstrap_servers="127.0.0.1:1",
        data_dir=Path("."),
        process=SimpleNamespace(poll=lambda: 137),
    )
    Path("broker.log").write_text("no space left on device")
    brokers.WATCHED.append(gone)
    time.sleep(600)

def test_comes_after():
    time.sleep(600)
"""
SHARED = """
import os, pytest, time

@pytest.fixture(scope="module")
def dear():
    with open("made", "a") as made:
        made.write(f"{os.getpid()}\\n")

@pytest.mark.spark
@pytest.mark.parametrize("n", range(9))
def test_shares(dear, n):
    time.sleep(0.1)
"""
PARTS = """
from pathlib import Path
import pytest, time

@pytest.mark.spark  # each is a group of its own
@pytest.mark.parametrize("name", ["one", "two@2", "three"])
def test_of_a_part(name):
    with Path("begun").open("a") as begun:
        begun.write(f"{name}\\n")
    if name == "three" and not Path("goes-on").exists():
        time.sleep(600)
"""


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts pytest on a file of its own, as a run of all tests is started."""
    started = []

    def begin(text: str, *options: str) -> subprocess.Popen[str]:
        (tmp_path / "test_it.py").write_text(text)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "conftest_run",
            "-p",
            "conftest_parts",
            "-p",
            "no:cacheprovider",
            "-q",
            *options,
            "test_it.py",
        ]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])}
        env = {name: value for name, value in env.items() if not name.startswith("PYTEST_XDIST")}
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def test_an_ended_run_says_what_hangs_where_and_which_tests_are_left(
    run: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    process = run(HANGS, "-n", "1", "--dist", "loadgroup")
    deadline = time.monotonic() + 120
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < deadline and process.poll() is None, process.communicate(timeout=10)[0]
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 3
    assert "2 of 2 tests are left" in output
    assert "test_it.py::test_hangs" in output.partition("running for")[2]
    assert "test_it.py::test_comes_after" in output.partition("not begun")[2]
    assert 'test_it.py", line 7 in test_hangs' in output, "the stack of the worker"


def test_a_dead_broker_ends_the_run_at_once_with_its_log(run: Callable[..., subprocess.Popen[str]]) -> None:
    output, _ = (process := run(BROKER_DIES, "-n", "1", "--dist", "loadgroup")).communicate(timeout=120)
    assert process.returncode == 2
    assert "ended with code 137: the run ends." in output and "no space left on device" in output
    assert "passed" not in output


def test_a_disk_that_is_too_full_is_told_before_the_first_test(
    run: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    full = "import shutil\n\nshutil.disk_usage = lambda path: shutil._ntuple_diskusage(8 << 30, 7 << 30, 1 << 30)\n"
    (tmp_path / "conftest.py").write_text(full)
    output, _ = (process := run(WORKER_DIES, "-n", "1")).communicate(timeout=120)
    assert process.returncode == pytest.ExitCode.USAGE_ERROR, output
    assert f"has 1 GiB free, and the tests need {DISK_GIB}." in output and "rm -r" in output
    assert "passed" not in output


def test_a_dead_worker_ends_the_run_and_its_test_is_named(run: Callable[..., subprocess.Popen[str]]) -> None:
    makefile = (HERE.parent / "Makefile").read_text()
    options = next(line for line in makefile.splitlines() if line.startswith("TOGETHER")).partition(":=")[2].split()
    output, _ = (process := run(WORKER_DIES, *options)).communicate(timeout=120)
    assert process.returncode == 1, output
    assert "crashed while running" in output and "test_it.py::test_dies" in output


def test_what_tests_of_a_module_share_is_made_once(run: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    output, _ = (process := run(SHARED, "-n", "2", "--dist", "loadgroup")).communicate(timeout=120)
    assert process.returncode == 0 and "9 passed" in output, output
    assert len((tmp_path / "made").read_text().splitlines()) == 1


@pytest.mark.parametrize("processes", [("-n", "2", "--dist", "loadgroup"), ("-n", "0")], ids=["two", "one"])
def test_a_run_in_parts_continues_with_what_has_not_passed(
    run: Callable[..., subprocess.Popen[str]], tmp_path: Path, processes: tuple[str, ...]
) -> None:
    begun, passed = tmp_path / "begun", tmp_path / "build/test-results/passed"
    output, _ = (process := run(PARTS, "--part-minutes", "0", *processes)).communicate(timeout=120)
    assert process.returncode == LEFT and "0 tests passed" in output and "3 are left: run" in output
    assert not begun.exists()

    process = run(PARTS, "--part-minutes", "60", *processes)
    deadline = time.monotonic() + 120
    while not [file for file in passed.glob("*.txt") if len(file.read_text().splitlines()) == 2]:
        assert time.monotonic() < deadline and process.poll() is None, process.communicate(timeout=10)[0]
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()

    (tmp_path / "goes-on").touch()
    before = begun.read_text().split()
    output, _ = (process := run(PARTS, "--part-minutes", "60", *processes)).communicate(timeout=120)
    assert process.returncode == 0, output
    assert "1 tests passed in this part, and 2 before it. 0 are left." in output
    assert begun.read_text().split() == [*before, "three"]

    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("another state of the tree")
    output, _ = (process := run(PARTS, "--part-minutes", "60", *processes)).communicate(timeout=120)
    assert process.returncode == 0 and "3 tests passed in this part, and 0 before it." in output


@pytest.mark.parametrize(("looks", "is_lost"), [((False, False), True), ((False, True), False), ((True,), False)])
def test_a_broker_restarted_between_two_looks_is_not_lost(looks: tuple[bool, ...], is_lost: bool) -> None:
    alive = iter(looks)
    broker: Any = SimpleNamespace(is_running=lambda: next(alive))
    brokers.WATCHED.append(broker)
    try:
        assert brokers.is_lost(broker) == is_lost
    finally:
        brokers.WATCHED.remove(broker)
