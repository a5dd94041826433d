"""Programs that a test runs beside itself."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path


@contextlib.contextmanager
def program(
    command: Sequence[str | Path], log: Path, environ: Mapping[str, str] | None = None, *, stop_seconds: float = 0.0
) -> Iterator[subprocess.Popen[bytes]]:
    """Within, a program runs.

    Args:
        command: its words.
        log: what it prints is appended there.
        environ: its whole environment; None for that of the test.
        stop_seconds: how long it may take to end by itself before it is killed; 0 kills it at once.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        yield process
    finally:
        if stop_seconds:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(stop_seconds)
        process.kill()
        process.wait()


#: A program of :func:`waiting_program`.
WAITS = "print(flush=True); input()"


@contextlib.contextmanager
def waiting_program(*words: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    """Within, Python runs with these words and waits, and others can read them from its command line.

    The kernel ends the wait of ``Popen`` a moment before it shows the command line. So the program, :data:`WAITS`,
    tells when it runs.
    """
    command = [sys.executable, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"\n"
            yield process
        finally:
            process.kill()


def python_path() -> str:
    """``PYTHONPATH`` of a program that imports what this process can import, and :mod:`support`."""
    return os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, sys.path)])
