import shutil
import subprocess

import pytest
from support.environments import ROOT

SCRIPT = ROOT / "scripts" / "bootstrap"


def test_the_script_is_valid_bash():
    subprocess.run(["bash", "-n", SCRIPT], check=True)


def test_a_missing_python_is_reported(tmp_path):
    for tool in ("bash", "dirname", "cat"):
        (tmp_path / tool).symlink_to(shutil.which(tool))
    run = subprocess.run([SCRIPT], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "Neither Python 3.11 nor 3.12 was found" in run.stderr
    assert "apt-get install python3.11" in run.stderr


def test_a_ready_tree_is_left_alone(tmp_path):
    """The stamp is the hash of lock, project and place; here everything that it stands for exists."""
    stamp = ROOT / ".venv" / ".bootstrapped"
    if stamp.parent.is_symlink():
        pytest.skip("this environment is another tree's: the script would install this tree into it")
    if not stamp.is_file():
        pytest.skip("this environment was not made by scripts/bootstrap")
    before = stamp.stat().st_mtime_ns
    run = subprocess.run([SCRIPT], capture_output=True, text=True, check=True, timeout=30)
    assert run.stderr.splitlines()[-1].startswith("bootstrap: ready")
    assert stamp.stat().st_mtime_ns == before
