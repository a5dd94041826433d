"""Commands on a disk that refuses: a sentence that names the file, and no traceback."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from support.commands import run

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
