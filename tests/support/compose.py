"""Files of images and containers, and Debian's tool that reads compose files."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

import pytest


def copied(dockerfile: str) -> set[str]:
    """What an image copies of the folder that its builder gets."""
    lines = (line for line in dockerfile.splitlines() if line.startswith("COPY"))
    return {word for line in lines for word in line.split()[1:-1] if not word.startswith("--")}


def permitted(dockerignore: str) -> set[str]:
    """What the builder of an image gets."""
    return {line[1:] for line in dockerignore.splitlines() if line.startswith("!")}


def compose_tool() -> str:
    """The program, installed when that is possible; otherwise the test is skipped."""
    if _is_installed():
        return "docker-compose"
    pytest.skip("docker-compose is missing and could not be installed: `apt-get install docker-compose`")


@functools.cache  # where it cannot be installed, every further try takes as long
def _is_installed() -> bool:
    """Look for the program, and try to install it."""
    if not shutil.which("docker-compose") and shutil.which("apt-get") and os.geteuid() == 0:
        install = ["apt-get", "install", "--yes", "--no-install-recommends", "docker-compose"]
        if subprocess.run(install, capture_output=True, check=False, timeout=120).returncode:
            subprocess.run(["apt-get", "update"], capture_output=True, check=False, timeout=120)
            subprocess.run(install, capture_output=True, check=False, timeout=120)
    return bool(shutil.which("docker-compose"))
