"""Interpreters of this host, with the environment of each: that of this process, and those that a setting names."""

from __future__ import annotations

import glob
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kappa.config import Config
from kappa.environments import installed as installed_module
from kappa.environments.environment import PLATFORM, Environment
from kappa.environments.installed import installed

#: How long an interpreter may take to say what is installed for it.
ANSWER_SECONDS = 15.0
#: How long one that did not say it is left alone: it would hold up whoever starts drivers at each look.
FAILURE_SECONDS = 300.0
#: The import path of this process before any topology was imported.
_PATH = tuple(sys.path)
#: Interpreter and import path -> its last answer.
_answers: dict[tuple[str, str], Mapping[str, Any]] = {}
#: The same -> when it failed last, by the monotonic clock.
_failures: dict[tuple[str, str], float] = {}

#: To the error stream: commands print their JSON on the other one.
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Interpreter:
    """A Python interpreter of this host.

    Attributes:
        path: its program, as it is called: a link of a virtual environment leads elsewhere.
        environment: what is installed for it.
        unversioned: names of distributions whose version says nothing of their content.
    """

    path: str
    environment: Environment
    unversioned: tuple[str, ...] = ()


def own(config: Config) -> Interpreter:
    """The interpreter of this process, as a driver would be started with it: without the folder of the command.

    It is asked in a process of its own, since libraries add folders to the import path of this one. Where it does not
    answer, the path counts that this process began with.
    """
    return _interpreter(config, sys.executable, _answer(sys.executable) or installed(_PATH))


def others(config: Config) -> tuple[Interpreter, ...]:
    """The interpreters that the setting names and that run, in its order; those with this process's own are none."""
    answers = ((path, _answer(path)) for path in matches(config.environments) if path != sys.executable)
    return tuple(_interpreter(config, path, answer) for path, answer in answers if answer is not None)


def python_of(config: Config, environment: str) -> str | None:
    """The interpreter of this host with an environment, by its id; None where there is none.

    That of this process counts first.
    """
    if own(config).environment.id == environment:
        return sys.executable
    return next((one.path for one in others(config) if one.environment.id == environment), None)


def matches(patterns: str) -> tuple[str, ...]:
    """Programs that the patterns of a setting name, each once: in the order of the patterns, sorted for each."""
    paths = [path for pattern in patterns.split(",") for path in _programs(pattern.strip())]
    return tuple(dict.fromkeys(paths))


def _programs(pattern: str) -> list[str]:
    # Not `Path.glob`, which raises at some patterns.
    paths = sorted(glob.glob(str(Path(pattern)), recursive=True, include_hidden=True))  # noqa: PTH207
    return [path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)]  # noqa: PTH113


def _interpreter(config: Config, path: str, answer: Mapping[str, Any]) -> Interpreter:
    return Interpreter(
        path=path,
        environment=Environment(python=answer["python"], distributions=answer["distributions"], image=config.image),
        unversioned=tuple(name for name in answer["unversioned"] if name != PLATFORM),
    )


def _answer(path: str) -> Mapping[str, Any] | None:
    """What an interpreter says of itself; asked again once a folder of its path has changed.

    None where it fails: then it is asked again after some minutes.
    """
    key = (path, os.environ.get("PYTHONPATH", ""))
    answer = _answers.get(key)
    if answer is not None and _times(answer["folders"]) == answer["folders"]:
        return answer
    if key in _failures and time.monotonic() < _failures[key] + FAILURE_SECONDS:
        return None
    try:
        run = subprocess.run(
            [path, "-P", str(Path(installed_module.__file__))],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
            cwd="/",
            timeout=ANSWER_SECONDS,
        )
        values: Mapping[str, Any] = json.loads(run.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        if key not in _failures:
            log.warning(
                "Interpreter %s does not say what is installed for it: %s. Look at it: %s -V", path, error, path
            )
        _failures[key] = time.monotonic()
        return None
    _failures.pop(key, None)
    _answers[key] = values
    return values


def _times(folders: Mapping[str, int]) -> dict[str, int]:
    """Folder -> time of its last change, of those that are there."""
    times = {}
    for folder in folders:
        try:
            times[folder] = Path(folder).stat().st_mtime_ns
        except OSError:
            continue
    return times
