"""The options that say where to begin, declared once for every command that takes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from kappa.errors import UsageError
from kappa.offsets.notation import offsets_from_csv
from kappa.replay.starts import Start, ToCurrent, ToEarliest, ToLatest, ToOffset, start_from_text

#: Parameter -> its type and option, in the order of ``--help``.
_OPTIONS: dict[str, Any] = {
    "to_earliest": Annotated[
        bool, typer.Option("--to-earliest", help="Start at the earliest offset that can be read.")
    ],
    "to_latest": Annotated[bool, typer.Option("--to-latest", help="Start at the end of the log.")],
    "to_current": Annotated[
        bool, typer.Option("--to-current", help="Keep the group's offsets: check them, and stop them from expiring.")
    ],
    "to_datetime": Annotated[
        str | None,
        typer.Option(
            "--to-datetime", help="Start at the first record at or after this time, for example 2026-03-01T00:00:00Z."
        ),
    ],
    "by_duration": Annotated[
        str | None,
        typer.Option("--by-duration", help="Like --to-datetime, at now minus a duration, for example P7D or PT6H."),
    ],
    "shift_by": Annotated[
        str | None,
        typer.Option(
            "--shift-by", help="Shift by N offsets from the current position, in every partition; -1000 goes back."
        ),
    ],
    "to_offset": Annotated[
        list[str] | None,
        typer.Option(
            "--to-offset",
            help="Start at these offsets: pos:0=1200, or pos=1200 for all other partitions; may be repeated.",
        ),
    ],
    "from_file": Annotated[
        Path | None,
        typer.Option(
            "--from-file", help="Read offsets from a CSV of TOPIC,PARTITION,OFFSET, as Kafka's tools write it."
        ),
    ],
    "from_savepoint": Annotated[
        str | None,
        typer.Option(
            "--from-savepoint", help="Start at a commit of the live epoch: its slice number, a time, or its name."
        ),
    ],
}
_FLAGS = {"to_earliest", "to_latest", "to_current"}
#: Kinds that cannot be the start of a replay, and kinds that cannot be the position of a group.
_OF_GROUPS, _OF_REPLAYS = {"to_current"}, {"from_savepoint"}

Command = Callable[..., None]


def replay_start(command: Command) -> Command:
    """Give a command the options of a replay's start in place of its parameter ``start``; by default the beginning."""
    return _expanded(command, _OF_GROUPS, default=ToEarliest())


def group_start(command: Command) -> Command:
    """Give a command the options of a consumer group's new position in place of its parameter ``start``."""
    return _expanded(command, _OF_REPLAYS, default=None)


def _expanded(command: Command, without: set[str], *, default: Start | None) -> Command:
    options = {name: annotation for name, annotation in _OPTIONS.items() if name not in without}

    @wraps(command)
    def expanded(**arguments: Any) -> None:
        values = {name: arguments.pop(name) for name in options}
        command(start=chosen_start(values) or default, **arguments)

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if parameter.name != "start":
            parameters.append(parameter)
            continue
        parameters += [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=False if name in _FLAGS else None, annotation=annotation
            )
            for name, annotation in options.items()
        ]
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what the library reads
    return expanded


def chosen_start(values: Mapping[str, Any]) -> Start | ToCurrent | None:
    """The start that the options give; None if they give none.

    Raises:
        UsageError: several are given, or one is malformed.
    """
    kinds = [name for name, value in values.items() if value is not None and value is not False and value != []]
    if len(kinds) > 1:
        names = " and ".join(f"--{name.replace('_', '-')}" for name in kinds)
        raise UsageError(f"{names} exclude each other: give one start.")
    if not kinds:
        return None
    [kind] = kinds
    return _STARTS[kind](values[kind]) if kind in _STARTS else start_from_text(kind, values[kind])


def from_file(path: Path) -> ToOffset:
    """A start at the offsets that a file has.

    Raises:
        UsageError: it cannot be read, or a line is malformed.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The file {path} cannot be read: {error}.", file=str(path)) from error
    return ToOffset(offsets=offsets_from_csv(text, str(path)), file=str(path))


#: Parameters whose value is not a single text.
_STARTS: dict[str, Callable[[Any], Start | ToCurrent]] = {
    "to_earliest": lambda _: ToEarliest(),
    "to_latest": lambda _: ToLatest(),
    "to_current": lambda _: ToCurrent(),
    "to_offset": ToOffset.from_texts,
    "from_file": from_file,
}
