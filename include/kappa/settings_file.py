"""The settings file of a team's repository, ``kappa.toml``: which one a process reads, and its settings.

It is committed, so that it holds no secret. Only :mod:`kappa.config` reads it.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass
from pathlib import Path
from shlex import quote
from typing import Any

from kappa.errors import ConfigError

NAME = "kappa.toml"
#: Variable that names the file; empty for none.
VARIABLE = "KAPPA_SETTINGS"

_SECRETS = ("mask_key", "webhook_url")
#: Names in a table whose values are secrets.
_SECRET_KEY = re.compile(
    r"password|passphrase|secret|jaas|(?:access|account|api|private).?key|encryption\.key$|credentials?$|(?:^|[._-])token$",
    re.IGNORECASE,
)
#: An assignment within a value, as options of a JVM have them, or a login in an address.
_SECRET_VALUE = re.compile(r"(?:password|passphrase|secret|token)=|://[^/\s]*:[^\s]*@", re.IGNORECASE)
#: The table whose tables are settings of single topics, and a key that TOML takes without quotes.
_BY_TOPIC = "topic_settings"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_KINDS = {"str": "a text", "Path": "a text", "int": "a whole number", "float": "a number"}


@dataclass(frozen=True, kw_only=True)
class SettingsFile:
    """A file that was read.

    Attributes:
        path: the file; relative paths in it begin in its folder.
        values: name of a setting -> its value, with paths that are absolute.
    """

    path: Path
    values: Mapping[str, Any]


def settings_file(
    named: str | None, declared: Sequence[Field[Any]], successors: Mapping[str, str]
) -> SettingsFile | None:
    """The settings file of this process; None where it has none.

    Args:
        named: its path; empty for none, None for the nearest ``kappa.toml`` in the working directory or above it.
        declared: the settings.
        successors: name of an earlier setting -> what takes its place.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or has a setting that is unknown, secret or malformed.
    """
    if named == "":
        return None
    path = path_of(named) if named else _nearest(Path.cwd())
    if path is None:
        return None
    fields = {item.name: item for item in declared}
    values = {}
    for name, value in _parsed(path, is_named=bool(named)).items():
        if name not in fields:
            raise _unknown(path, name, fields, successors)
        _check_secret(path, name, value)
        values[name] = _native(path, fields[name], value)
        _check_table(path, name, values[name], fields)
    return SettingsFile(path=path, values={name: _absolute(path.parent, name, v) for name, v in values.items()})


def _nearest(folder: Path) -> Path | None:
    """The file in a folder or the nearest one above it."""
    # Not `Path.is_file`, which raises where a folder above may not be searched.
    return next((file for place in (folder, *folder.parents) if os.path.isfile(file := place / NAME)), None)  # noqa: PTH113


def _parsed(path: Path, *, is_named: bool) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # some editors begin with a mark
        if _has_long_number(values):
            raise OverflowError
    except OSError as error:
        names = f"{VARIABLE} names {path}, which" if is_named else str(path)
        raise ConfigError(
            f"{names} cannot be read: {error.strerror}. Correct it, or name another file: export {VARIABLE}=<path>",
            path=str(path),
        ) from error
    except UnicodeDecodeError as error:
        raise _not_toml(path, "it is not text in UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(path, str(error)) from error
    except RecursionError as error:
        raise _not_toml(path, "it nests too deep") from error
    except (ValueError, OverflowError) as error:  # Python reads no number of thousands of digits
        raise _not_toml(path, "a whole number has more than 64 bits") from error
    return values


def _not_toml(path: Path, reason: str) -> ConfigError:
    return ConfigError(f"{path} is not TOML: {reason}. Correct it: edit {quote(str(path))}", path=str(path))


def _has_long_number(value: Any) -> bool:
    """Whether there is a whole number that TOML does not have."""
    if isinstance(value, dict | list):
        return any(_has_long_number(item) for item in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, int) and not -(1 << 63) <= value < 1 << 63


def _unknown(path: Path, name: str, fields: Mapping[str, Any], successors: Mapping[str, str]) -> ConfigError:
    if name in successors:
        text = f"{path} has {name}, which is not a setting any more: {successors[name]} Remove the line."
        return ConfigError(text, name=name, path=str(path))
    near = difflib.get_close_matches(name.lower().removeprefix("kappa_"), fields, n=1)
    hint = f"Did you mean {near[0]}?" if near else f"Settings are: {', '.join(fields)}."
    return ConfigError(f"{path} has the unknown setting {name}. {hint}", name=name, path=str(path))


def _check_secret(path: Path, name: str, value: Any) -> None:
    """Refuse a secret; its value is in no message."""
    secret = name if name in _SECRETS else ""
    if name == "schema_registry" and "@" in str(value):
        secret = f"a login in {name}"
    if not secret and isinstance(value, dict) and name != _BY_TOPIC:  # topics have none, whatever their names
        secret = next((f"{name}.{key}" for key, item in _flat(value) if _is_secret(key, item)), "")
    if secret:
        variable = f"KAPPA_{name.upper()}"
        raise ConfigError(
            f"{path} has {secret}: a secret does not belong in a file that is committed. Remove it there, replace the "
            f"secret if it was committed, and set the variable: export {variable}=…",
            name=name,
            path=str(path),
        )


def _is_secret(key: str, value: Any) -> bool:
    return bool(_SECRET_KEY.search(key) or _SECRET_VALUE.search(str(value)))


def _native(path: Path, item: Field[Any], value: Any) -> Any:
    """A value of the setting's own type; nothing is converted but a whole number for a number."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    match item.type:
        case "int" if is_number:
            return value
        case "float" if is_number or isinstance(value, float):
            return float(value)
        case "str" | "Path" if isinstance(value, str):
            return value.strip()
        case kind if kind not in _KINDS and isinstance(value, dict):
            return dict(_flat(value, has_topics=item.name == _BY_TOPIC))
    is_table = str(item.type) not in _KINDS
    line = (
        f"a {type(value).__name__} as {item.name}" if is_table else _line(item.name, value)
    )  # a table may have secrets
    raise ConfigError(
        f"{path} has {line}, but {item.name} is {_KINDS.get(str(item.type), 'a table')}. Write: "
        f"{_line(item.name, _meant(item, value))}",
        name=item.name,
        path=str(path),
    )


def _meant(item: Field[Any], value: Any) -> Any:
    """What to write instead: the value in the setting's type where it has one, otherwise an example."""
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    with suppress(ValueError):
        match item.type:
            case "int":
                return int(text)
            case "float":
                return float(text)
            case "str" | "Path":
                return "…" if isinstance(value, dict) else text
    return {"name": "value"} if item.default is MISSING else item.default


def _line(name: str, value: Any) -> str:
    """A setting as it is written in the file."""
    if isinstance(value, dict):
        pairs = ", ".join(f"{json.dumps(key)} = {json.dumps(item, default=str)}" for key, item in value.items())
        return f"{name} = {{{pairs}}}"
    is_plain = isinstance(value, str | int | float | list)
    return f"{name} = {json.dumps(value, default=str, ensure_ascii=False) if is_plain else value}"


def _flat(table: Mapping[str, Any], prefix: str = "", *, has_topics: bool = False) -> Iterator[tuple[str, Any]]:
    """A table without tables in it: TOML takes the dots of ``spark.driver.memory`` for such.

    Where a table has those of topics, one under a key that needs quotes stays: it is a topic's name, or a pattern.
    """
    for key, value in table.items():
        if not isinstance(value, dict):
            yield f"{prefix}{key}", value
        elif has_topics and not _BARE.fullmatch(key):
            yield key, dict(_flat(value))
        else:
            yield from _flat(value, f"{prefix}{key}.")


def _check_table(path: Path, name: str, value: Any, fields: Mapping[str, Any]) -> None:
    for key, item in value.items() if isinstance(value, dict) else ():
        if key in fields:
            raise ConfigError(
                f"{path} has {key} in the table {name}: what follows the line [{name}] belongs to it. Move {key} "
                "before that line.",
                name=key,
                path=str(path),
            )
        if isinstance(item, dict):
            _check_table(path, f"{name}.{json.dumps(key)}", item, fields)
        elif not isinstance(item, str | int | float):
            raise ConfigError(
                f"{path} has {name}.{key}, which is neither a text nor a number. Write: "
                f"{_line(name, {key: ','.join(map(str, item)) if isinstance(item, list) else str(item)})}",
                name=name,
                path=str(path),
            )


def _absolute(folder: Path, name: str, value: Any) -> Any:
    """A path in the file begins in its folder, whatever the working directory of the process."""
    is_path = name in ("lake", "topologies", "home", "cache") or name.endswith("file")
    if not is_path or not value or "://" in value:
        return value
    if name == "lake" and _SCHEME.match(value):  # refused by its own words
        return value
    return str(path_of(value, folder))


def path_of(text: str, folder: Path = Path()) -> Path:
    """A path in a setting: variables of a service's file or of a container are not expanded by a shell.

    Args:
        text: the path.
        folder: where a relative one begins.

    Raises:
        ConfigError: it is a URL; or it begins with ``~``, and that user has no home.
    """
    scheme, is_url, _ = text.partition("://")
    if is_url:
        raise ConfigError(
            f"{scheme}://... is a URL where a path of this host belongs. Write it from the root: /srv/..."
        )
    try:
        return (folder / Path(text).expanduser()).absolute()
    except RuntimeError as error:
        raise ConfigError(
            f"{text} begins in the home of a user who has none. Set HOME, or write the path from the root, also that "
            "of KAPPA_CACHE."
        ) from error
