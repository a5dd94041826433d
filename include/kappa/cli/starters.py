"""The command that writes a first topology and its test."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from kappa.acts import Act, Effect
from kappa.cli.options import Execute, config, say, show
from kappa.errors import RefusedError, UsageError
from kappa.starters import Starter, StarterShape, starter, stem
from kappa.topology import registry


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(new)


def new(
    name: Annotated[str, typer.Argument(help="Name of the new topology, for example retail.refunds.")],
    shape: Annotated[StarterShape, typer.Option("--shape", help="Shape to begin with.")],
    tests: Annotated[
        Path | None,
        typer.Option(
            "--tests",
            help="Folder of the test. By default tests/topologies beside a folder include/topologies, or tests beside "
            "another one.",
            file_okay=False,
        ),
    ] = None,
    execute: Execute = False,
) -> None:
    """Write a topology and its test as a starting point. Both read the invoices of `kappa generate retail`.

    The topology goes to the folder KAPPA_TOPOLOGIES, which deploys it: schedulers see it, nothing runs. No file is
    overwritten.
    """
    folder = config().topologies
    beside = _tests_beside(folder) if tests is None else tests.absolute()
    file, test = folder / f"{stem(name)}.py", beside / f"test_{stem(name)}.py"
    draft = starter(name, shape, folder=_seen_from(beside, folder))
    shown = [_shown(file), _shown(test)]
    act = _files(name, draft, file, test)
    if not execute:
        show(act)
        return
    act.make()
    say([f"Wrote {shown[0]} and {shown[1]}.", f"Run its test: python -m pytest {shlex.quote(shown[1])}"])


def _files(name: str, draft: Starter, file: Path, test: Path) -> Act[None]:
    """Both files, the one that deploys last. A crash leaves the test alone, which the next call refuses to overwrite.

    Raises:
        RefusedError: a file is there, or another one declares the topology.
        UsageError: a file cannot be written.
    """
    there = [path for path in (file, test) if path.exists()]
    if there:
        raise RefusedError(
            f"No file is overwritten, and {' and '.join(map(_shown, there))} would be. Choose another name, or remove "
            "the old files.",
            files=[str(path) for path in there],
        )
    for other in registry.declared(file.parent):
        if other.name == name:
            raise RefusedError(
                f"{_shown(other.file)} declares topology {name!r} already. Choose another name.", file=str(other.file)
            )
    effects = (
        Effect(what=f"write {_shown(path)}", values={"file": str(path)}, make=partial(_write, path, text))
        for path, text in ((test, draft.test), (file, draft.topology))
    )
    return Act(effects=tuple(effects), outcome=lambda: None)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as out:
            out.write(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.", file=str(path)) from error


def _tests_beside(folder: Path) -> Path:
    """The default folder for tests of the topologies in a folder."""
    if folder.parent.name == "include":
        return folder.parent.parent / "tests" / folder.name
    return folder.parent / "tests"


def _seen_from(folder: Path, other: Path) -> str:
    return Path(os.path.relpath(other.resolve(), folder.resolve())).as_posix()


def _shown(path: Path) -> str:
    """A path as it is typed from here."""
    with suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)
