"""The address of a lake: a path of this host's file system, or a URL of an object store."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote

from kappa.errors import ConfigError, UsageError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
_REMOTE = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*://")
#: A login between scheme and bucket; a secret may have slashes.
_LOGIN = re.compile(r"(?<=://)[^/]*:.*@", re.DOTALL)
#: A scheme whose slashes are missing: as a path it would be a folder of the working directory.
_HALF_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(?!//)")
#: Other spellings of the same store, as Hadoop has them.
_S3 = ("s3", "s3a", "s3n")
#: Stores that deltalake and Spark reach, and on which no test of Kappa ran.
_UNTRIED = {
    "gs": "Google Cloud Storage",
    "abfs": "Azure Data Lake Storage",
    "abfss": "Azure Data Lake Storage",
    "az": "Azure Blob Storage",
    "adl": "Azure Data Lake Storage",
    "hdfs": "HDFS",
}
#: What deltalake takes for a part of a URL, or for another path, instead of a part of a name.
_NO_PATH = re.compile(r"[\[\]^|\\*{}\x00-\x1f\x7f]|%[0-9A-Fa-f]{2}")
_ENCODED = re.compile("%[0-9A-Fa-f]{2}")
#: https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
#: Characters of keys that every client sends and signs alike (AWS: "Object key naming guidelines").
_PREFIX = re.compile(r"[A-Za-z0-9!_.'()-]+(?:/[A-Za-z0-9!_.'()-]+)*")


#: How Spark and Hadoop print a folder of this host: "file:/srv/orders".
_LOCAL = re.compile(r"^file:(?=/(?!/))", re.IGNORECASE)


def is_remote(path: str) -> bool:
    """Whether a path in the lake is on an object store."""
    return _REMOTE.match(path) is not None


def one_spelling(path: str) -> str:
    """An address as all processes compare it: of a path the absolute one, without ``..`` and double slashes.

    Examples:
        >>> one_spelling("/srv/work/../new/"), one_spelling("s3://lakes/orders")
        ('/srv/new', 's3://lakes/orders')
    """
    if is_remote(path):
        return path
    absolute = os.path.normpath(Path(path).expanduser().absolute())
    return f"/{absolute.lstrip('/')}"  # POSIX lets two slashes at the beginning mean something else


def lake_address(text: str, *, setting: str = "KAPPA_LAKE") -> str:
    """The one spelling of a lake's address: an absolute path, or ``s3://bucket/prefix``.

    Args:
        text: the address as it is written.
        setting: what the address is the value of, for messages.

    Raises:
        ConfigError: it is not an address of a lake.

    Examples:
        >>> lake_address("s3a://lakes/orders/")
        's3://lakes/orders'
        >>> lake_address("file:///srv/lake")
        '/srv/lake'
    """
    text = text.strip()
    if _LOGIN.search(text):
        raise ConfigError(
            f"The lake {_LOGIN.sub('', text)} has a login in its address, which would be in messages and on record. "
            f"Put the keys into the file of KAPPA_LAKE_CLIENT_FILE, and remove them from {setting}.",
            name="lake",
        )
    match = _SCHEME.fullmatch(text)
    if match is None:
        wrong = _no_path(text)
        if wrong:
            raise ConfigError(
                f"The lake {text!r} {wrong}. Set {setting} to an absolute path, or to s3://bucket/prefix.",
                name="lake",
                value=text,
            )
        return _local(one_spelling(text), setting)
    scheme, rest = match[1].lower(), match[2]
    if scheme == "file" and not rest.startswith("/"):
        raise ConfigError(
            f"The lake {text} names a host: after file:// a path begins with a slash of its own. Set {setting} to the "
            "absolute path, or to s3://bucket/prefix.",
            name="lake",
            value=text,
        )
    if scheme == "file":
        return _local(one_spelling(unquote(rest)), setting)
    if scheme in _S3:
        return _s3(text, rest, setting)
    if scheme in _UNTRIED:
        raise ConfigError(
            f"The lake {text} is on {_UNTRIED[scheme]}, on which Kappa was never run: two writers could overwrite "
            f"each other's commits there. Set {setting} to a local path, or to s3://bucket/prefix.",
            name="lake",
            value=text,
        )
    raise ConfigError(
        f"The lake {text} has the scheme {scheme!r}, which is not one that Kappa knows. Set {setting} to a local "
        "path, or to s3://bucket/prefix.",
        name="lake",
        value=text,
    )


def table_address(text: str) -> str:
    """The one spelling of the address of anybody's table or folder: an absolute path, or ``s3://bucket/key``.

    Raises:
        UsageError: it is on a store that Kappa does not read, or Delta's libraries would open another folder.

    Examples:
        >>> table_address("s3a://lakes/orders/")
        's3://lakes/orders'
        >>> table_address("file:/srv/orders")
        '/srv/orders'
    """
    text = _LOCAL.sub("file://", text.strip())
    if _LOGIN.search(text):
        raise UsageError(
            f"{_LOGIN.sub('', text)} has a login in its address, which would be in messages and on record. Put the "
            "keys into the file of KAPPA_LAKE_CLIENT_FILE, and name the table without them."
        )
    match = _SCHEME.fullmatch(text)
    scheme, rest = (match[1].lower(), match[2]) if match is not None else ("", text)
    if scheme == "file" and rest.startswith("/"):
        return _readable(one_spelling(unquote(rest)))
    if scheme in _S3:
        return _readable(f"s3://{rest.rstrip('/')}")
    if not scheme:
        wrong = _no_path(text)
        if wrong:
            raise UsageError(f"{text!r} {wrong}. Name an absolute path, or s3://bucket/key.", address=text)
        return _readable(one_spelling(text))
    raise UsageError(
        f"{text} is neither a path nor on S3, and Kappa reads from no other store. Copy it to a folder, or to "
        "s3://bucket/key, and name that."
    )


def _no_path(text: str) -> str:
    """Why a text without a scheme is not a path; empty where it is one."""
    if not text:
        return "is empty"
    if half := _HALF_SCHEME.match(text):
        return f"begins with {half[0]!r}, but not with {half[0]}//, and would be a folder of the working directory"
    if "://" in text:
        return "has '://' within, and does not begin as a URL does, as where quotes around it became part of it"
    folder = Path(text).parts[0] if text.startswith("~") else ""
    if folder and os.path.expanduser(folder) == folder:  # noqa: PTH111, which raises for a user who is not there
        return f"begins with {folder!r}, which is not the home of a user of this host"
    if ".." in Path(text).parts and os.path.realpath(text) != os.path.realpath(one_spelling(text)):
        return "has '..' after a link: programs disagree on the folder that it names"
    return ""


def _readable(address: str) -> str:
    wrong = _ENCODED.search(address)
    if wrong:
        raise UsageError(
            f"{address} has {wrong[0]!r} in its path, which Delta's libraries take for one character: they would open "
            "another folder. Rename this one, and name it again.",
            address=address,
        )
    return address


def bucket_and_key(url: str) -> tuple[str, str]:
    """The bucket of an address on S3, and the key within it; empty for the bucket itself."""
    bucket, _, key = url.partition("://")[2].partition("/")
    return bucket, key


def _s3(text: str, rest: str, setting: str) -> str:
    bucket, _, prefix = rest.rstrip("/").partition("/")
    is_plain = _PREFIX.fullmatch(prefix) and not {".", ".."} & set(prefix.split("/"))
    if not _BUCKET.fullmatch(bucket) or (prefix and not is_plain):
        raise ConfigError(
            f"The lake {text!r} is not an address on S3: a bucket of 3 to 63 lower-case letters, digits, dots and "
            f"hyphens, and a prefix of letters, digits and any of ! - _ . ' ( ). Set {setting} to s3://bucket/prefix.",
            name="lake",
            value=text,
        )
    if not prefix:
        raise ConfigError(
            f"The lake {text!r} is a whole bucket. Give the lake a prefix of its own, so that other data and another "
            f"lake fit beside it: set {setting} to s3://{bucket}/lake",
            name="lake",
            value=text,
        )
    return f"s3://{bucket}/{prefix}"


def _local(path: str, setting: str) -> str:
    wrong = _NO_PATH.search(path)
    if wrong:
        raise ConfigError(
            f"The lake {path!r} has {wrong[0]!r} in its path, which Delta's libraries do not take for a part of a "
            f"name. Move it, or set {setting} to a path without any of [ ] {{ }} * ^ | \\, control characters, and "
            "% before two hexadecimal digits.",
            name="lake",
            value=path,
        )
    return path
