"""Keys in a profile of AWS's own tools: a section of ``~/.aws/credentials``.

Of the libraries that reach a lake some read profiles, others do not, and none reads one again in time. Here they are
read for all of them, with each call; Spark's processes read the same section (``S3FileCredentials.java``).
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Mapping
from pathlib import Path

from kappa import properties
from kappa.errors import ConfigError

OPTION = "aws_profile"
VARIABLE = "AWS_PROFILE"
FILE_VARIABLE = "AWS_SHARED_CREDENTIALS_FILE"
#: The options of a login.
KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_TOKEN = KEYS[2]
#: By what a profile has keys elsewhere: a role, a program, a login of people.
_ELSEWHERE = ("role_arn", "credential_process", "sso_session", "sso_account_id", "web_identity_token_file")
#: What a profile may be called: a section with another name is not there for Java.
_NAME = re.compile(r"[-A-Za-z0-9_/.%@:+]*")
_HEADER = re.compile(r"\[([^]#;]*)\][ \t]*(?:[#;].*)?")
_COMMENT = re.compile(r"[ \t][#;].*")
_BLANKS = "".join(map(chr, range(33)))  # as Java trims
#: How long after a change the file may not be whole; so in ``S3FileCredentials.java``.
_WRITING_SECONDS = 10.0
#: How often and with which pauses a process without keys looks again meanwhile; so there, too.
_LOOKS = 10
_PAUSE_SECONDS = 0.05
#: Profile and file -> the keys that were read last.
_last: dict[tuple[str, str], dict[str, str]] = {}


def file_of(environ: Mapping[str, str]) -> str:
    """The file with the profiles' keys, as AWS's tools name it."""
    return str(Path(environ.get(FILE_VARIABLE) or "~/.aws/credentials").expanduser())


def keys_of(profile: str, file: str, setting: str = VARIABLE) -> dict[str, str]:
    """The keys that a profile has now; those before it while a tool writes the file.

    Args:
        profile: the section.
        file: the file.
        setting: what names the profile, for messages.

    Raises:
        ConfigError: the file is missing, malformed, or other users may read it; or the profile has no keys in it.
    """
    before = _last.get((profile, file))
    if before is None:
        keys = _last[profile, file] = _first_keys(profile, file, setting)
        return dict(keys)
    try:
        keys = _read(profile, file, setting)
    except ConfigError:
        if not _is_being_written(file):
            raise
        return dict(before)
    # A tool writes the token last: keys without one may be a half of the next login.
    if _TOKEN in before and _TOKEN not in keys and _is_being_written(file):
        return dict(before)
    _last[profile, file] = keys
    return dict(keys)


def _first_keys(profile: str, file: str, setting: str) -> dict[str, str]:
    """Wait while a tool writes the file, which takes it a moment: a new process has no keys before."""
    for _ in range(_LOOKS):
        with contextlib.suppress(ConfigError):
            return _read(profile, file, setting)
        if not _is_being_written(file):
            break
        time.sleep(_PAUSE_SECONDS)
    return _read(profile, file, setting)


def _is_being_written(file: str) -> bool:
    """AWS's tools empty the file and write it, where a client file is replaced in one step."""
    try:
        return time.time() - Path(file).stat().st_mtime < _WRITING_SECONDS
    except OSError:
        return False


def _read(profile: str, file: str, setting: str) -> dict[str, str]:
    export = f"aws configure export-credentials --profile {profile}"
    if not _NAME.fullmatch(profile):
        raise ConfigError(
            f"{setting}={profile!r} has other characters than letters, digits and _-/.%@:+, and Spark finds no such "
            f"profile. Rename it in {file}.",
            profile=profile,
        )
    if not os.environ.get(FILE_VARIABLE) and not Path(file).exists():
        raise ConfigError(
            f"{setting}={profile} has no keys on this host: {file} is not there, and ~/.aws/config is not read. Write "
            f"keys into it before they expire, for example those of: {export}",
            path=file,
            profile=profile,
        )
    where = FILE_VARIABLE if os.environ.get(FILE_VARIABLE) else f"{setting}={profile}"
    section = _section(profile, properties.secret_text(file, where, "keys"), file)
    if section is None:
        raise ConfigError(
            f"{file} has no profile [{profile}], which {setting} names, and ~/.aws/config is not read. Correct the "
            f"name, or write keys into the file before they expire, for example those of: {export}",
            path=file,
            profile=profile,
        )
    keys = {name: section[name] for name in KEYS if section.get(name)}
    if "aws_access_key_id" in keys and "aws_secret_access_key" in keys:
        return keys
    elsewhere = next((name for name in _ELSEWHERE if name in section), None)
    reason = f"has {elsewhere}, and" if elsewhere else "has"
    raise ConfigError(
        f"Profile [{profile}] in {file} {reason} no keys of its own: not each library gets them elsewhere. Write "
        f"keys into it before they expire, for example those of: {export}",
        path=file,
        profile=profile,
    )


def _section(profile: str, text: str, file: str) -> dict[str, str] | None:
    """What a profile has; None for no such profile. No line is taken that Java would read otherwise, or not at all."""
    own: dict[str, str] | None = None
    section: str | None = None
    last: tuple[str, str] | None = None  # the property before
    for number, line in enumerate(re.split(r"\r\n|\n|\r", text), 1):
        if not line.strip(_BLANKS) or line[0] in "#;":
            continue
        is_own = section == profile
        if line[0] == "[" and (header := _HEADER.fullmatch(line)):
            section, last = header[1].strip(_BLANKS), None
            own = {} if own is None and section == profile else own
        elif section is not None and not _NAME.fullmatch(section):
            continue  # Java passes over the whole of it
        elif line[0] in " \t" and last is not None and _may_continue(line, *last, is_own=is_own):
            continue
        elif line[0] not in " \t[" and section is not None and (entry := _property(line, is_own=is_own)):
            last = entry
            if own is not None and is_own:
                own[entry[0]] = entry[1]
        else:
            raise ConfigError(
                f"{file} has something in line {number} that is neither [a profile] nor name = value, with the name "
                "in lower case and no blank before it. Correct the line.",
                path=file,
            )  # without the line, which may have a secret
    return own


def _may_continue(line: str, name: str, value: str, *, is_own: bool) -> bool:
    """Whether an indented line belongs to the property before: nested in an empty one, or more of its value."""
    if is_own and (value or name in KEYS):
        return False
    return bool(value) or "=" in line


def _property(line: str, *, is_own: bool) -> tuple[str, str] | None:
    name, sign, value = line.partition("=")
    name = name.strip(_BLANKS)
    is_fit = sign and name and not (is_own and name != name.lower())
    return (name, _COMMENT.sub("", value).strip(_BLANKS)) if is_fit else None
