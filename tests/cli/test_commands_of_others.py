"""Commands that another package brings by its entry point."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("first", ["kappa_local.commands", "kappa.cli"])
def test_a_package_that_brings_commands_may_be_imported_before_the_command_line(first: str) -> None:
    statement = "print('doctor' in {command.callback.__name__ for command in kappa.cli.app.registered_commands})"
    program = f"import {first}, kappa_local.commands, kappa.cli; {statement}"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert run.stdout == "True\n", run.stderr
