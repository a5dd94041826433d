"""The places where a driver may be killed: all of them are named, and it dies nowhere else."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kappa import faults
from kappa.errors import UsageError
from kappa.replay.stages import Stage
from kappa.testing import CrashAfter

ROOT = Path(__file__).resolve().parents[1]

CHILD = """
import sys
from kappa.faults import crash_point
for seq in (1, 2, 3):
    crash_point("plan", seq)
    print("planned", seq, flush=True)
    crash_point("commit", seq)
"""


def child(**environ: str) -> tuple[int, int]:
    """Exit code of a process that passes two points in each of three slices, and the number of slices it planned."""
    env = {**os.environ, **environ}
    result = subprocess.run(
        [sys.executable, "-c", CHILD], env=env, capture_output=True, text=True, check=False, timeout=60
    )
    return result.returncode, len(result.stdout.splitlines())


def test_a_process_started_in_the_context_dies_at_the_point_of_the_slice() -> None:
    with CrashAfter("plan", seq=2):
        assert child() == (-signal.SIGKILL, 1)
    with CrashAfter("commit", seq=2):
        assert child() == (-signal.SIGKILL, 2)


def test_a_process_dies_at_the_first_slice_if_none_is_given() -> None:
    with CrashAfter("commit"):
        assert child() == (-signal.SIGKILL, 1)


def test_a_process_that_dies_at_a_point_leaves_a_mark_and_others_do_not(tmp_path: Path) -> None:
    with CrashAfter("commit", seq=9):
        assert child(KAPPA_HOME=str(tmp_path)) == (0, 3)
    assert faults.marks(tmp_path) == []
    with CrashAfter("commit", seq=2):
        assert child(KAPPA_HOME=str(tmp_path)) == (-signal.SIGKILL, 2)
    (mark,) = faults.marks(tmp_path)
    assert (mark["point"], mark["seq"], mark["how"]) == ("commit", 2, "kill")


def test_a_point_not_passed_or_outside_its_context_kills_nothing() -> None:
    with CrashAfter("commit", seq=4):
        assert child() == (0, 3)
    assert child() == (0, 3)


def test_nested_contexts_and_errors_restore_the_environment() -> None:
    with CrashAfter("plan"):
        with pytest.raises(ZeroDivisionError), CrashAfter("commit", seq=7):
            assert os.environ[faults.VARIABLE] == "commit@7"
            _ = 1 / 0
        assert os.environ[faults.VARIABLE] == "plan"
    assert faults.VARIABLE not in os.environ


def test_an_unknown_point_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"no crash point 'effect.output'. Did you mean 'effects.outputs'\?"):
        CrashAfter("effect.output")
    assert faults.VARIABLE not in os.environ


def test_exactly_the_points_of_the_code_are_named() -> None:
    text = "".join(file.read_text() for file in sorted((ROOT / "include" / "kappa").rglob("*.py")))
    literal = set(re.findall(r'crash_point\("([a-z_.]+)"', text))
    families = set(re.findall(r'crash_point\(f"([a-z_]+)\.\{place', text))
    events = set(re.findall(r'epoch\.event\("(\w+)"', text))  # a driver's stages: the point is called like the event
    assert families == {"effects", "maintain"}
    assert {name.upper() for name in events} <= set(Stage.__members__)
    members = {f"effects.{name}" for name in ("dead_letters", "outputs", "changes")} | {
        f"maintain.{name}" for name in ("dead_letters", "outputs", "changes", "tables")
    }
    assert literal | members | events == set(faults.POINTS)


def test_every_point_is_documented() -> None:
    page = (ROOT / "docs" / "testing.md").read_text()
    assert dict(re.findall(r"^\| `([a-z_.]+)` \| (.+) \|$", page, re.MULTILINE)) == dict(faults.POINTS)
