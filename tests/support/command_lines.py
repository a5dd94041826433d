"""The ``kappa`` commands in a text, and the objection of the command line to each of them."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterator

import typer
import typer.core
import typer.main

from kappa.cli import app

_SEPARATORS = {";", "|", "||", "&&", "&", "until", "do", "while", "if", "then", "!"}


def command_lines(text: str) -> Iterator[list[str]]:
    """The ``kappa`` commands of a shell text, as words without redirections."""
    for line in text.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word in _SEPARATORS:
                if "kappa" in words:
                    command = words[words.index("kappa") + 1 :]
                    yield command[: command.index(">")] if ">" in command else command
                words = []
            else:
                words.append(word)


def complaint(words: list[str], *, is_whole: bool) -> str | None:
    """The objection of the command line to a command; one in a sentence may leave arguments out."""
    group = command_group()
    command = group.get_command(typer.Context(group), words[0])
    if command is None:
        options = {"--help", *(option for item in group.params for option in item.opts)}
        return None if words[0] in options and len(words) == 1 else f"kappa {words[0]}: no such command"
    try:
        context = typer.Context(command, info_name=words[0], **command.context_settings)
        command.parse_args(context, words[1:])
    except Exception as error:  # typer has a copy of click inside, whose errors it does not export
        if is_whole or type(error).__name__ != "MissingParameter":
            return f"kappa {shlex.join(words)}: {error!r} {error}"
    return None


@functools.cache
def command_group() -> typer.core.TyperGroup:
    """All commands."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return group
