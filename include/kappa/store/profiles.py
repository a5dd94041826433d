"""Keys in a profile of AWS's own tools: a section of ``~/.aws/credentials``.

Of the libraries that reach a lake some read profiles, others do not, and none reads one again in time. Here they are
read for all of them, with each call; Spark's processes read the same section (``S3FileCredentials.java``).
"""

from __future__ import annotations

import configparser
import time
from collections.abc import Mapping
from pathlib import Path

from kappa import properties
from kappa.errors import ConfigError

OPTION = "aws_profile"
VARIABLE = "AWS_PROFILE"
FILE_VARIABLE = "AWS_SHARED_CREDENTIALS_FILE"
_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
#: By what a profile has keys elsewhere: a role, a program, a login of people.
_ELSEWHERE = ("role_arn", "credential_process", "sso_session", "sso_account_id", "web_identity_token_file")
#: How long after a change the file may not be whole; so in ``S3FileCredentials.java``.
_WRITING_SECONDS = 10.0
#: Profile and file -> the keys that were read last.
_last: dict[tuple[str, str], dict[str, str]] = {}


def file_of(environ: Mapping[str, str]) -> str:
    """The file with the profiles' keys, as AWS's tools name it."""
    return str(Path(environ.get(FILE_VARIABLE) or "~/.aws/credentials").expanduser())


def keys_of(profile: str, file: str) -> dict[str, str]:
    """The keys that a profile has now; those before it while a tool writes the file.

    Raises:
        ConfigError: the file is missing, malformed, or other users may read it; or the profile has no keys in it.
    """
    try:
        keys = _read(profile, file)
    except ConfigError:
        before = _last.get((profile, file))
        if before is None or not _is_being_written(file):
            raise
        return dict(before)
    _last[profile, file] = keys
    return dict(keys)


def _is_being_written(file: str) -> bool:
    """AWS's tools empty the file and write it, where a client file is replaced in one step."""
    try:
        return time.time() - Path(file).stat().st_mtime < _WRITING_SECONDS
    except OSError:
        return False


def _read(profile: str, file: str) -> dict[str, str]:
    sections = configparser.ConfigParser(
        interpolation=None,
        delimiters=("=",),
        comment_prefixes=("#", ";"),
        inline_comment_prefixes=("#", ";"),
        strict=False,
        default_section="",
    )
    try:
        sections.read_string(properties.secret_text(file, FILE_VARIABLE, "keys"))
    except configparser.Error as error:
        line = getattr(error, "lineno", None) or next(iter(getattr(error, "errors", [])), [None])[0]
        raise ConfigError(
            f"{file} has something in line {line} that is neither [a profile] nor name = value. Correct the line.",
            path=file,
        ) from None  # its text has the line, which may have a secret
    if profile not in sections:
        raise ConfigError(
            f"{file} has no profile [{profile}], which {VARIABLE} names. Correct the name: aws configure list-profiles",
            path=file,
            profile=profile,
        )
    section = sections[profile]
    keys = {name: section[name] for name in _KEYS if section.get(name)}
    if "aws_access_key_id" in keys and "aws_secret_access_key" in keys:
        return keys
    elsewhere = next((name for name in _ELSEWHERE if name in section), None)
    reason = f"has {elsewhere}, and" if elsewhere else "has"
    raise ConfigError(
        f"Profile [{profile}] in {file} {reason} no keys of its own: not each library gets them elsewhere. Write "
        f"keys into it before they expire, for example those of: aws configure export-credentials --profile {profile}",
        path=file,
        profile=profile,
    )
