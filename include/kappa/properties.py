"""Properties files, as ``java.util.Properties`` has them, and those that hold secrets."""

from __future__ import annotations

import difflib
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from shlex import quote

from kappa.errors import ConfigError


def read_secret(path: str, setting: str, content: str, names: Collection[str]) -> dict[str, str]:
    """The settings in a file; the rest as :func:`secret_text`.

    Args:
        names: those that it may have.

    Raises:
        ConfigError: it cannot be read, other users can read it, or it has another name.
    """
    text = secret_text(path, setting, content)
    settings = parsed(text)
    lines = {name: f" in line {number}" for number, name, _ in _entries(text)}
    check_names(settings, names, path, lines)
    return settings


def check_names(
    settings: Mapping[str, str], names: Collection[str], where: str, places: Mapping[str, str] | None = None
) -> None:
    """Hold that settings have names that are known.

    Args:
        settings: the settings.
        names: those that they may have.
        where: the file, for messages.
        places: name -> where in the file it is, for messages.

    Raises:
        ConfigError: one is not. It is in the message only where it resembles a known one: a secret on a line of its
            own is taken for a name, too.
    """
    for name in settings:
        if name in names:
            continue
        near = difflib.get_close_matches(name.lower(), names, n=1)
        if near:
            raise ConfigError(
                f"{where} has the unknown setting {name}. Did you mean {near[0]}? Correct it, or remove the line.",
                key=name,
            )
        place = (places or {}).get(name, "")
        raise ConfigError(
            f"{where} has something{place} that is not a setting. Known are: {', '.join(names)}. Correct it, or remove "
            "the line."
        )


def secret_text(path: str, setting: str, content: str) -> str:
    """The text of a file that only its owner, and a group that it names, may read.

    Args:
        path: the file.
        setting: the variable that names it, for messages.
        content: what it holds, for messages.

    Raises:
        ConfigError: it cannot be read, or other users can read it.
    """
    try:
        mode = stat.S_IMODE(Path(path).stat().st_mode)
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise ConfigError(
            f"{setting} names {path}, which cannot be read on this host: {reason}. Put the file there, or correct "
            f"the path: ls -l {quote(path)}",
            path=path,
        ) from error
    if mode & 0o027:
        raise ConfigError(
            f"{path} has mode {mode:04o}: other users can read or write it, but it contains {content}. Run: "
            f"chmod 600 {quote(path)}",
            path=path,
            mode=mode,
        )
    return text


def parsed(text: str) -> dict[str, str]:
    """Text as ``java.util.Properties`` reads it.

    Examples:
        >>> parsed("a=1\\n# a comment\\nb : two \\\\\\n  lines")
        {'a': '1', 'b': 'two lines'}
    """
    return {name: value for _, name, value in _entries(text)}


def _entries(text: str) -> Iterator[tuple[int, str, str]]:
    """Number of its first line, name and value of each setting."""
    lines = iter(enumerate(re.split(r"\r\n|\n|\r", text), 1))
    for number, first in lines:
        line = first.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while re.search(r"(?<!\\)(?:\\\\)*\\$", line):
            line = line[:-1] + next(lines, (0, ""))[1].lstrip(" \t\f")
        split = re.match(r"((?:\\.|[^\\:=\s])*)[ \t\f]*[:=]?[ \t\f]*(.*)", line, re.DOTALL)
        assert split is not None
        yield number, _unescaped(split[1]), _unescaped(split[2])


def written(settings: Mapping[str, str]) -> str:
    """The text of a properties file; :func:`parsed` gives the settings back."""
    return "".join(f"{key}={escaped(value)}\n" for key, value in settings.items())


def escaped(text: str) -> str:
    r"""A value as it is written there, in ASCII: Java reads some of these files as ISO-8859-1, and others as UTF-8.

    Examples:
        >>> escaped("/home/müller")
        '/home/m\\u00fcller'
    """
    escapes = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    shown = "".join(escapes.get(c, c) if c.isascii() else _units(c) for c in text)
    return f"\\{shown}" if shown.startswith(" ") else shown


def _units(character: str) -> str:
    """A character by its units of UTF-16, as Java has it."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[n : n + 2].hex()}" for n in range(0, len(units), 2))


def _unescaped(text: str) -> str:
    meaning = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}

    def character(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else meaning.get(match[2], match[2])

    units = re.sub(r"\\(?:u([0-9A-Fa-f]{4})|(.))", character, text, flags=re.DOTALL)
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
