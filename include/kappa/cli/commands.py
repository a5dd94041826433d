"""All commands of the command line, with those that other packages bring by their entry points."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from io import TextIOWrapper
from typing import Annotated, NoReturn

import typer

import kappa
from kappa.cli import (
    adoptions,
    approvals,
    archives,
    backfills,
    hosts,
    lakes,
    moves,
    offsets,
    replays,
    restores,
    savepoints,
    set_asides,
    starters,
    topics,
    upgrades,
)
from kappa.cli.options import KappaGroup
from kappa.cli.views import dead_letters, explanations, profiles, published, reads, sql
from kappa.errors import ConfigError, KappaError, LakeRefusedError, LakeUnreachableError, UsageError
from kappa.presence.full_disk import NO_SPACE
from kappa.process_end import Output, end_process

#: Package that is imported -> the extra of Kappa's that brings it, where an extra does.
_EXTRAS = {
    "airflow": "airflow",
    **dict.fromkeys(("fastapi", "jinja2", "pydantic", "starlette", "uvicorn"), "web"),
    **dict.fromkeys(
        ("authlib", "cryptography", "delta", "fastavro", "pandas", "prometheus_client", "pyspark"), "driver"
    ),
}

#: What a disk says -> the error of Kappa's, and what to do.
_OF_A_DISK: dict[int, tuple[type[KappaError] | None, str]] = {
    **dict.fromkeys((errno.EACCES, errno.EROFS), (LakeRefusedError, "Let this user read and write there")),
    **dict.fromkeys(
        (errno.EPERM, errno.ENOTSUP, errno.ENOSYS),
        (LakeRefusedError, "Let this user read and write there, on a file system that has hard links"),
    ),
    **dict.fromkeys(NO_SPACE, (LakeUnreachableError, "Make room on its disk")),
    **dict.fromkeys((errno.EIO, errno.ESTALE), (LakeUnreachableError, "Look at its disk, and whether it is mounted")),
}

app = typer.Typer(
    name="kappa",
    cls=KappaGroup,
    help="Change the code of a running stream, recompute its history beside it, prove it, swap it over, and back.",
    epilog="A command that changes something is a dry run unless --execute is given. Exit codes: 0 done, 1 refused, 2 "
    "usage, 3 unreachable.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for command in entry_points(group="kappa.commands"):
    command.load()(app)
for module in (
    hosts,
    reads,
    published,
    profiles,
    sql,
    explanations,
    replays,
    adoptions,
    backfills,
    dead_letters,
    moves,
    approvals,
    upgrades,
    restores,
    savepoints,
    set_asides,
    archives,
    lakes,
    topics,
    offsets,
    starters,
):
    module.register(app)


def _version(asks: bool) -> None:
    if asks:
        typer.echo(f"kappa {kappa.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Show the version.")
    ] = False,
) -> None:
    """Options of the command line itself.

    Raises:
        UsageError: paths of a command begin in a folder that is gone.
    """
    try:
        os.getcwd()  # noqa: PTH109, which is the same
    except FileNotFoundError as error:
        raise UsageError("The working directory was removed. Go to a folder that is there: cd") from error


def _run() -> None:
    """Run a command.

    Raises:
        ConfigError: it needs a package that an extra of this installation would bring.
        LakeRefusedError: a disk refuses a file.
        LakeUnreachableError: a disk has no room, or does not answer.
    """
    try:
        app()
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        raise ConfigError(
            f"This command needs the package {package}, which is not installed here. Install it: pip install "
            f"'kappa-replay[{_EXTRAS[package]}]=={kappa.__version__}'",
            package=package,
        ) from error
    except OSError as error:
        kind, remedy = _OF_A_DISK.get(error.errno or 0, (None, ""))
        if kind is None or (kind is LakeRefusedError and error.filename is None):  # of a signal
            raise
        place = str(error.filename or "A file of the lake or of KAPPA_HOME")
        raise kind(f"{place}: {error.strerror}. {remedy}; then look: kappa doctor", path=place) from error


def main() -> None:
    """Run a command; an error becomes one message on standard error and an exit code."""
    try:
        _run()
    except KappaError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        if "--json" in sys.argv:
            print(json.dumps({"error": type(error).__name__, "message": str(error), "data": error.data}, default=str))
        sys.exit(error.exit_code)


def entry() -> NoReturn:
    """Run a command, and end the process."""
    # A descriptor of a closed stream would be given to a pipe, and taken away in a child for the child's own stream.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout = Output(sys.stdout, is_error=False)
    if isinstance(sys.stderr, TextIOWrapper):
        sys.stderr = Output(sys.stderr, is_error=True)
    end_process(_code_of(main) or _code_of(lambda: print(end="", flush=True)))


def _code_of(act: Callable[[], None]) -> int:
    """The exit code with which an act ends."""
    try:
        act()
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


__all__ = ["app", "entry", "main"]
