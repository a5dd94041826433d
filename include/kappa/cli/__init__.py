"""The command line: ``kappa --help``.

A command that changes something is a dry run unless ``--execute`` is given. Exit codes: 0 done, 1 refused or verdict
failed, 2 usage, 3 a dependency is unreachable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kappa.cli.commands import app as app
    from kappa.cli.commands import entry as entry
    from kappa.cli.commands import main as main

__all__ = ["app", "entry", "main"]


def __getattr__(name: str) -> Any:
    """The commands, imported on first use, so that a package that adds some can import the options before."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kappa.cli import commands

    return getattr(commands, name)
