"""Python functions of a topology, on their way to Spark's workers.

A worker has the platform's code and the installed packages, but not a topology's files, and a function is pickled by
the name of its module. The functions of a topology's files are therefore pickled by value, with what they refer to.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

#: Code that every worker has: the standard library, installed packages, and the platform.
_INSTALLED = (
    *{sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")},
    str(Path(__file__).resolve().parents[1]),
)
#: Folder -> how many modules were loaded when they were last looked through.
_looked: dict[str, int] = {}


def send_by_value(step: Callable[..., Any]) -> None:
    """Let Spark pickle by value what is defined in the file of a step, and in the loaded modules beside and below it.

    Idempotent and cheap: loaded modules are looked through again only when there are more.
    """
    folder = _folder_of(step)
    if folder is None or _looked.get(folder) == len(sys.modules):
        return
    from pyspark import cloudpickle

    _looked[folder] = len(sys.modules)
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file and _is_within(file, folder) and not _is_installed(file):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _folder_of(step: Callable[..., Any]) -> str | None:
    while isinstance(step, partial):
        step = step.func
    call = step if hasattr(step, "__globals__") else type(step).__call__
    file = getattr(call, "__globals__", {}).get("__file__")
    return None if file is None or _is_installed(file) else str(Path(file).parent)


def _is_installed(file: str) -> bool:
    return any(_is_within(file, folder) for folder in _INSTALLED)


def _is_within(file: str, folder: str) -> bool:
    return file.startswith(f"{folder}/")
