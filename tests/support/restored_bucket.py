"""The blocks of docs/restore-a-bucket.md, and the shell of a user who follows them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kappa.config import Config
from support.s3_server import AWS_LOCK, REGION, S3Server, ensure_python

PAGE = Path(__file__).parents[2] / "docs" / "restore-a-bucket.md"


def _blocks() -> Mapping[str, list[str]]:
    """Test that runs them -> blocks of the page, in their order."""
    blocks: dict[str, list[str]] = defaultdict(list)
    for match in re.finditer(r"^```\w+ unrun: (tests/\S+) .*\n((?:.*\n)*?)^```$", PAGE.read_text(), re.MULTILINE):
        blocks[match[1]].append(match[2])
    return blocks


BLOCKS = _blocks()


@dataclass(kw_only=True)
class Shell:
    """A shell with `aws` and `kappa`.

    Attributes:
        folder: where commands run.
        environ: their environment.
    """

    folder: Path
    environ: dict[str, str]

    def run(self, text: str, *, code: int = 0) -> str:
        """Run commands; what they print. They end with a code."""
        return self._run(["bash", "-euo", "pipefail", "-c", text], code)

    def run_python(self, text: str) -> str:
        """Run a program; what it prints."""
        return self._run([sys.executable, "-c", text], 0)

    def _run(self, command: list[str], code: int) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout
        return done.stdout


def shell_on(server: S3Server, folder: Path, **environ: str) -> Shell:
    """A shell whose `aws` reaches a server.

    Args:
        folder: where commands run; they are in its folder `bin`.
        environ: other variables.
    """
    python = ensure_python(Config.from_env({}).cache, AWS_LOCK)
    binaries = folder / "bin"
    binaries.mkdir(exist_ok=True)
    for name, command in {"aws": f"{python} -m awscli", "kappa": f"{sys.executable} -m kappa"}.items():
        (binaries / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (binaries / name).chmod(0o755)
    login = {
        "AWS_ENDPOINT_URL": server.endpoint,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
    }
    path = f"{binaries}{os.pathsep}{os.environ['PATH']}"
    return Shell(folder=folder, environ={**os.environ, **login, "PATH": path, "BUCKET": server.bucket, **environ})


def keep_versions(server: S3Server, folder: Path) -> None:
    """Enable versioning of the bucket.

    Args:
        folder: as in :func:`shell_on`.
    """
    setting = f"--bucket {server.bucket} --versioning-configuration Status=Enabled"
    shell_on(server, folder).run(f"aws s3api put-bucket-versioning {setting}")
