"""Files that are on no path, as modules of a test: scripts of this repository, and fakes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from support.environments import ROOT


def script_module(name: str) -> ModuleType:
    """A script of this repository, as a module of its name."""
    return load(name, ROOT / "scripts" / f"{name}.py")


def load(name: str, path: Path) -> ModuleType:
    """Import a file as a module of that name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
