"""Properties files, as ``java.util.Properties`` has them, and those that hold secrets."""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping
from pathlib import Path

from kappa.errors import ConfigError


def read_secret(path: str, setting: str, content: str) -> dict[str, str]:
    """The settings in a file; the rest as :func:`secret_text`."""
    return parsed(secret_text(path, setting, content))


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
            f"the path: ls -l {path}",
            path=path,
        ) from error
    if mode & 0o027:
        raise ConfigError(
            f"{path} has mode {mode:04o}: other users can read or write it, but it contains {content}. Run: "
            f"chmod 600 {path}",
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
    settings: dict[str, str] = {}
    lines = iter(re.split(r"\r\n|\n|\r", text))
    for first in lines:
        line = first.lstrip(" \t\f")
        if not line or line[0] in "#!":
            continue
        while re.search(r"(?<!\\)(?:\\\\)*\\$", line):
            line = line[:-1] + next(lines, "").lstrip(" \t\f")
        split = re.match(r"((?:\\.|[^\\:=\s])*)[ \t\f]*[:=]?[ \t\f]*(.*)", line, re.DOTALL)
        assert split is not None
        settings[_unescaped(split[1])] = _unescaped(split[2])
    return settings


def written(settings: Mapping[str, str]) -> str:
    """The text of a properties file; :func:`parsed` gives the settings back."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in settings.items())


def _escaped(text: str) -> str:
    escapes = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    shown = "".join(escapes.get(c, c) for c in text)
    return f"\\{shown}" if shown.startswith(" ") else shown


def _unescaped(text: str) -> str:
    meaning = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}

    def character(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else meaning.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9A-Fa-f]{4})|(.))", character, text, flags=re.DOTALL)
