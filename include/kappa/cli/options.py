"""Options that several commands share, and how answers are printed."""

from __future__ import annotations

import json
import os
import pwd
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from kappa.acts import Act
from kappa.config import Config
from kappa.errors import KappaError, UsageError, visible
from kappa.offsets.vector import Offsets


def completed(incomplete: str) -> list[str]:
    """Names of deployed topologies that begin with this text, for the shell, which shows no error."""
    from kappa.topology import registry

    try:
        names = [item.name for item in registry.declared(config().topologies)]
    except KappaError:
        return []
    return [name for name in names if name.startswith(incomplete)]


Topology = Annotated[
    str, typer.Argument(help="Name of the topology, for example retail.loyalty.", autocompletion=completed)
]
Topologies = Annotated[
    list[str],
    typer.Argument(
        help="Name of the topology; several are moved together, in one commit, or not at all.", autocompletion=completed
    ),
]
Epoch = Annotated[int, typer.Argument(help="Number of the epoch; see `kappa status`.")]
Allow = Annotated[
    list[str] | None,
    typer.Option("--allow", help="Let findings with this code warn instead of refusing; may be repeated."),
]
Execute = Annotated[
    bool, typer.Option("--execute", help="Do it. Without this option the command only shows what it would do.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Reason = Annotated[str, typer.Option("--reason", help="Reason, kept in the history.")]
Wait = Annotated[
    bool,
    typer.Option("--wait/--detach", help="Wait and show progress, or return immediately. Ctrl-C ends only the wait."),
]


def config() -> Config:
    """Settings of this process."""
    return Config.from_env()


def config_of(*topologies: str) -> Config:
    """Settings of this process, for a command about topologies.

    Raises:
        UnknownTopologyError: there is none of such a name; the message has the nearest.
    """
    from kappa import control

    settings = config()
    control.check_name(settings, *topologies)
    return settings


def actor() -> str:
    """The user that runs the command, for the history: the system's user of the process, whatever variables say."""
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # a user id without a name, as in containers
        return f"uid {number}"


def say(lines: str | Iterable[str]) -> None:
    """Print lines for people."""
    for line in [lines] if isinstance(lines, str) else lines:
        typer.echo(line)


def write_file(file: Path, text: str, what: str) -> None:
    """Write a command's answer into a file, which it replaces.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"The {what} cannot be written to {file}: {error.strerror}.") from error


def say_json(value: Any) -> None:
    """Print a value as JSON."""
    typer.echo(json.dumps(plain(value), indent=2))


def plain(value: Any) -> Any:
    """A value as JSON knows it."""
    if isinstance(value, Offsets):
        return value.as_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, datetime):
        return value.isoformat()
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


class KappaGroup(typer.core.TyperGroup):
    """Commands that can say how they were called."""

    def main(self, args: Sequence[str] | None = None, *more: Any, **named: Any) -> Any:
        """Keep the words of the call, because parsing consumes them.

        Raises:
            UsageError: one of them is not text: a shell takes any bytes.
        """
        words = tuple(sys.argv[1:] if args is None else args)
        for word in words:
            try:
                word.encode()
            except UnicodeEncodeError as error:
                raise UsageError(f"The word {word!r} is not text in UTF-8. Write it anew: kappa --help") from error
        _call.set(words)
        return super().main(args, *more, **named)


_call: ContextVar[tuple[str, ...]] = ContextVar("kappa_call", default=())


def show(act: Act[Any], *, otherwise: str = "", way: str = "", json: bool = False, **values: Any) -> None:
    """A dry run: print every effect in order, and how to make them.

    Args:
        otherwise: the present state, for an act without effects.
        way: how to make them; empty for the same call with ``--execute``.
        json: whether to print them for programs.
        values: further values for programs.
    """
    if json:
        effects = [{"effect": effect.what, **effect.values} for effect in act.effects]
        say_json({"executed": False, **values, "effects": effects})
    elif not act.effects:
        say(f"Nothing to do: {otherwise}.")
    else:
        say(f"Would {effect.what}." for effect in act.effects)
        again = shlex.join(["kappa", *_call.get()])
        say(f"Nothing was changed. {way or f'To do it: {again} --execute'}")


def table(rows: Sequence[Sequence[Any]], header: Sequence[str]) -> None:
    """Print rows in columns; a value writes no line and no column but its own."""
    cells = [[visible(str(cell)) if cell is not None else "-" for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    for row in cells:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
