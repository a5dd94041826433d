"""Commands on a disk that refuses: a sentence that names the file, and no traceback."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from support.commands import run

from kappa.record.epochs import Epochs

#: Without the right to pass over the modes of files root is a user like others.
AS_USER = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
@pytest.mark.parametrize("command", ["status", "history a.b", "drivers --check", "lake open", "lake copy /nonexistent"])
def test_a_lake_that_this_user_may_not_read_is_named(tmp_path: Path, command: str) -> None:
    log = tmp_path / "lake/_kappa/epochs/_delta_log"
    log.mkdir(parents=True)
    (tmp_path / "lake").chmod(0)
    ran = run(*command.split(), before=AS_USER, KAPPA_LAKE=f"{tmp_path}/lake", KAPPA_HOME=str(tmp_path))
    (tmp_path / "lake").chmod(0o755)
    assert ran.errors.startswith(f"LakeRefusedError: {log}"), ran.errors
    assert ran.errors.strip().endswith("Permission denied. Let this user read and write there; then look: kappa doctor")
    assert ran.code == 1


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A lake with an epoch on record."""
    detail = {"plan_id": "p", "code": "c", "version": "1", "start": "{}", "origin": "{}", "live": None}
    Epochs(f"{tmp_path}/lake").add("a.b", 1, "planned", actor="ann", **detail)
    return tmp_path / "lake"


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv")
def test_a_lake_that_this_user_may_only_read_is_named(lake: Path) -> None:
    log = lake / "_kappa/epochs"
    log.chmod(0o555)
    ran = run("stop", "a.b", "--epoch", "1", "--execute", before=AS_USER, KAPPA_LAKE=str(lake), KAPPA_HOME=str(lake))
    log.chmod(0o755)
    remedy = "Permission denied. Let this user read and write there; then look: kappa doctor"
    assert ran.errors.strip().endswith(f"LakeRefusedError: {log}: {remedy}")
    assert ran.code == 1


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a compiler")
@pytest.mark.parametrize("command", ["stop a.b --epoch 1 --execute", "lake copy {}/other --execute"])
def test_a_disk_without_hard_links_is_named(lake: Path, command: str) -> None:
    library = lake.parent / "links.so"
    answer = "{ errno = EPERM; return -1; }"
    source = f"#include <errno.h>\nint link() {answer}\nint linkat() {answer}\n"
    compiler = ["cc", "-x", "c", "-shared", "-fPIC", "-o", str(library), "-"]
    subprocess.run(compiler, input=source, text=True, check=True)
    places = {"KAPPA_LAKE": str(lake), "KAPPA_HOME": str(lake), "LD_PRELOAD": str(library)}
    ran = run(*command.format(lake.parent).split(), **places)
    assert "Let this user read and write there, on a file system that has hard links; then look: kappa" in ran.errors
    assert "Traceback" not in ran.errors
    assert ran.code == 1
