"""The commands that write a team's repository, and a topology and its test."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

import kappa
from kappa.acts import Act, Effect
from kappa.cli.options import Execute, config, say, show
from kappa.errors import RefusedError, UsageError
from kappa.starters import StarterShape, starter, stem
from kappa.starters.neighbours import CONFIGURED, beside
from kappa.starters.repository import WORKFLOW_FILE, repository
from kappa.topology import registry

#: What file systems without hard links answer to one.
_WITHOUT_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(init)
    app.command()(new)


def init(
    folder: Annotated[Path, typer.Argument(help="Folder of the repository; it need not exist.", file_okay=False)],
    topology: Annotated[str, typer.Option("--topology", help="Name of the first topology.")] = "retail.spending",
    shape: Annotated[StarterShape, typer.Option("--shape", help="Its shape.")] = StarterShape.RUNNING_TOTAL,
    execute: Execute = False,
) -> None:
    """Lay out a team's repository: settings, a first topology with its test, DAGs, containers, the steps of a merge.

    No file is overwritten: those that are there are left as they are, so that a second call writes the files that are
    missing. It is refused where the topology or its test is there with other content.
    """
    root = folder.absolute()
    texts, notes = beside(repository(topology, shape, version=kappa.__version__), _present(root))
    files = {root / path: text for path, text in texts.items()}
    act, others = _files(topology, files), _others(files)
    say(f"{_shown(path)} is there with other content: left as it is." for path in others)
    say(notes)
    if (above := _repository_above(root)) is not None:
        workflow = _shown(root / WORKFLOW_FILE)
        say([f"GitHub reads workflows of {above} only: move {workflow} there, or begin in that folder."])
    if not execute or not act.effects:
        show(act, otherwise=f"every file is in {_shown(root)}")
        return
    act.make()
    page = "" if root / "README.md" in others else " Its README.md says what is where."
    count = len(act.effects)
    say(f"Wrote {count} {'file' if count == 1 else 'files'} into {_shown(root)}.{page}")
    say(f"Run the tests: cd {shlex.quote(_shown(root))} && python -m pytest")


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
    """Write a topology and its test as a starting point. Both read records that `kappa generate` makes.

    The topology goes to the folder of the setting `topologies`, which deploys it: schedulers see it, nothing runs. No
    file is overwritten.
    """
    folder = config().topologies
    beside = _tests_beside(folder) if tests is None else tests.absolute()
    if beside.resolve() == folder.resolve():
        raise UsageError(
            f"{_shown(folder)} is the folder of the topologies: a test in it would declare {name!r} a second time. "
            "Name another folder: --tests <folder>"
        )
    file, test = folder / f"{stem(name)}.py", beside / f"test_{stem(name)}.py"
    draft = starter(name, shape, folder=_seen_from(beside, folder))
    shown = [_shown(file), _shown(test)]
    # The one that deploys comes last.
    act = _files(name, {test: draft.test, file: draft.topology})
    if not execute or not act.effects:
        show(act, otherwise=f"{shown[0]} and {shown[1]} are there")
        return
    act.make()
    say([f"Wrote {shown[0]} and {shown[1]}.", f"Run its test: python -m pytest {shlex.quote(shown[1])}"])


def _files(name: str, files: Mapping[Path, str]) -> Act[None]:
    """The files that are missing, of which the last two are a topology's test and its file. A crash leaves whole files,
    which the next call leaves as they are.

    Raises:
        RefusedError: one of the last two is there with other content, or another file declares the topology.
        UsageError: a file cannot be written.
    """
    *_, test, last = files
    if others := _others({path: files[path] for path in (test, last)}):
        raise RefusedError(
            f"No file is overwritten, and {' and '.join(map(_shown, others))} would be. Choose another name or folder, "
            "or move the old files.",
            files=[str(path) for path in others],
        )
    for other in registry.declarations(last.parent):
        if other.name == name and other.file != last:
            raise RefusedError(
                f"{_shown(other.file)} declares topology {name!r} already. Choose another name.", file=str(other.file)
            )
    effects = (
        Effect(what=f"write {_shown(path)}", values={"file": str(path)}, make=partial(_write, path, text))
        for path, text in files.items()
        if not _is_there(path)
    )
    return Act(effects=tuple(effects), outcome=lambda: None)


def _present(root: Path) -> dict[str, str]:
    """Files of a repository that decide what of it may be written: path below its root -> text."""
    there = (path for path in CONFIGURED if (root / path).is_file())
    return {path: (root / path).read_text(encoding="utf-8", errors="replace") for path in there}


def _repository_above(root: Path) -> Path | None:
    """The repository of git in a folder of which this one would be."""
    nearest = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)
    return None if nearest == root else nearest


def _others(files: Mapping[Path, str]) -> list[Path]:
    """Files that are there with other content."""
    return [path for path, text in files.items() if _is_there(path) and not _has(path, text)]


def _is_there(path: Path) -> bool:
    return path.is_symlink() or path.exists()


def _has(path: Path, text: str) -> bool:
    """Whether a file has a text; Git may have checked it out with other line ends."""
    return path.is_file() and path.read_bytes().replace(b"\r\n", b"\n") == text.encode()


def _write(path: Path, text: str) -> None:
    """Make a file that is not there, whole or not at all."""
    partial_file = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial_file.write_text(text, encoding="utf-8")
        try:
            path.hardlink_to(partial_file)  # unlike a rename, it replaces nothing
        except OSError as error:
            if error.errno not in _WITHOUT_LINKS:
                raise
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        finally:
            partial_file.unlink()
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
    """A path as it is typed from here; this folder by its whole path, since a sentence that ends with a dot has two."""
    with suppress(ValueError):
        return str(path) if path == Path.cwd() else str(path.relative_to(Path.cwd()))
    return str(path)
