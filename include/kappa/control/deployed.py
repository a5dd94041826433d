"""The topologies that the files of a folder define, found without running the files in this process.

A file may end the process that imports it, or never come to an end. All files are imported by one child process; one
that ends the child, or takes too long, is named, and another child goes on with the files after it.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kappa.errors import CodeError
from kappa.topology import registry
from kappa.topology.registry import Deployed

#: Most seconds that one file may take: what it imports, Spark and pandas for example, takes a few on a busy machine.
IMPORT_SECONDS = 30.0

_INCLUDE = Path(__file__).resolve().parents[2]
_CHILD = "import sys; from kappa.topology import registry; registry.report(int(sys.argv[1]), sys.argv[2:])"


def deployed(folder: Path, *, seconds: float = IMPORT_SECONDS) -> tuple[dict[str, Deployed], dict[Path, CodeError]]:
    """All topologies that import, and why the other files do not.

    A name that two files define is an error of the second. Takes what one start of Python and the imports take, and as
    much again for each file that ends its process, or ``seconds`` more for one that hangs.

    Args:
        folder: the files.
        seconds: most seconds that one file may take.
    """
    good: dict[str, Deployed] = {}
    broken: dict[Path, CodeError] = {}
    for file, outcome in _imported(registry.files(folder), seconds):
        for item in [outcome] if isinstance(outcome, str) else outcome:
            if isinstance(item, str):
                broken[file] = CodeError(item, file=str(file))
            elif item.name in good:
                broken[file] = registry.defined_twice(file, item.name)
            else:
                good[item.name] = item
    return good, broken


def _from_values(values: dict[str, Any]) -> Deployed:
    fields: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    return Deployed(**fields)


def _imported(files: Sequence[Path], seconds: float) -> Iterator[tuple[Path, list[Deployed] | str]]:
    """Each file with what it defines, or why it does not import."""
    rest = list(files)
    while rest:
        count = 0
        for outcome in _child(rest, seconds):
            yield rest[count], outcome
            count += 1
        rest = rest[count:]


def _child(files: Sequence[Path], seconds: float) -> Iterator[list[Deployed] | str]:
    """The outcome per file from one child process, in order; the last is that of the file that ended it."""
    reading, writing = os.pipe()
    path = os.pathsep.join([str(_INCLUDE), *filter(None, [os.environ.get("PYTHONPATH")])])
    child = subprocess.Popen(
        [sys.executable, "-P", "-c", _CHILD, str(writing), *map(str, files)],
        pass_fds=[writing],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(writing)
    count = 0
    try:
        for line in _lines(reading, seconds):
            if "found" in line:
                outcome = line["found"]
                count += 1
                yield outcome if isinstance(outcome, str) else [_from_values(item) for item in outcome]
        if count < len(files):
            yield f"{files[count]} does not import: it ended the process with exit code {child.wait()}."
    except TimeoutError:
        yield (
            f"{files[count]} does not import: it was not done after {seconds:g} seconds. What it begins at module "
            "level does not end."
        )
    finally:
        os.close(reading)
        child.kill()
        child.wait()


def _lines(descriptor: int, seconds: float) -> Iterator[dict[str, Any]]:
    """JSON lines of a pipe, until it is closed.

    Raises:
        TimeoutError: none came for this long.
    """
    pending = b""
    deadline = time.monotonic() + seconds
    while True:
        if not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError
        data = os.read(descriptor, 1 << 16)
        if not data:
            return
        *whole, pending = (pending + data).split(b"\n")
        for line in whole:
            deadline = time.monotonic() + seconds
            yield json.loads(line)
