"""What a process needs to reach an object store: its address, keys and region, in the names of ``object_store``.

deltalake and obstore are built on that library and take the same names. The file goes over the variables ``AWS_*`` of
the environment, and each client is given both, see :func:`access_to`. Profiles and authorities are not the libraries':
:mod:`kappa.store.profiles`, :mod:`kappa.store.authorities`.

Names: https://docs.rs/object_store/latest/object_store/aws/enum.AmazonS3ConfigKey.html
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from shlex import quote

from kappa import properties
from kappa.errors import ConfigError
from kappa.store import authorities, option_values, profiles
from kappa.store.address import bucket_and_key, is_remote
from kappa.store.retries import Retries

SETTING = "KAPPA_LAKE_CLIENT_FILE"

#: Name of an option -> the variable of the environment that says the same.
NAMES = {
    "aws_access_key_id": "AWS_ACCESS_KEY_ID",
    "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "aws_session_token": "AWS_SESSION_TOKEN",
    "aws_region": "AWS_REGION",
    "aws_endpoint_url": "AWS_ENDPOINT_URL",
    "aws_allow_http": "AWS_ALLOW_HTTP",
    "aws_virtual_hosted_style_request": "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
}
#: The same for those that Kappa reads in the libraries' place.
OWN_NAMES = {profiles.OPTION: profiles.VARIABLE, authorities.OPTION: authorities.VARIABLE}
_FILE_NAMES = [*NAMES, *OWN_NAMES]

#: Name of an option -> its other name.
_ALIASES = {"aws_endpoint_url": "aws_endpoint", "aws_region": "aws_default_region"}
#: The region where nothing says one, as ``object_store`` has it.
REGION = "us-east-1"

#: Variables of ``object_store`` and ``deltalake`` for locks of their own.
_OTHER_LOCKS = ("AWS_S3_LOCKING_PROVIDER", "AWS_S3_ALLOW_UNSAFE_RENAME", "AWS_COPY_IF_NOT_EXISTS")

#: One of ``object_store`` alone, which goes over the client file there: Spark would commit to another store.
OTHER_ADDRESS = "AWS_ENDPOINT_URL_S3"

RETRIES = Retries()
#: Calls for a heartbeat, one after another, in the time after which one that stays as it is counts as dead: a look and
#: a write that get no answer, the pause, and another two that do.
_CALLS_UNTIL_STALE = 4


@dataclass(frozen=True, kw_only=True)
class KeyFile:
    """A file that has the keys of a lake, and new ones when it is replaced.

    Attributes:
        path: the file.
        profile: the section in a file of profiles; empty in a client file.
    """

    path: str
    profile: str = ""


@dataclass(frozen=True, kw_only=True)
class _Lake:
    """What a process has been told of a lake.

    Attributes:
        file: its client file; empty for none.
        retries: how long its calls wait for an answer.
        stale_after: how long a heartbeat in it may stay as it is; None for no bound.
        cache: a folder for caches.
    """

    file: str = ""
    retries: Retries = RETRIES
    stale_after: timedelta | None = None
    cache: Path = Path("~/.cache/kappa")

    def options(self) -> dict[str, str]:
        """Those in its file now, see :func:`read`."""
        return read(self.file) if self.file else {}


#: Address -> lake.
_lakes: dict[str, _Lake] = {}


def declare(
    lake: str, file: str, retries: Retries = RETRIES, *, stale_after: timedelta | None = None, cache: Path = _Lake.cache
) -> None:
    """Say which file has the options of a lake, empty for none, and how long its calls wait for an answer.

    Args:
        lake: its address.
        file: the file.
        retries: how long calls wait.
        stale_after: how long a heartbeat may stay as it is; calls for heartbeats take a part of that.
        cache: a folder for caches.
    """
    if is_remote(lake):
        _lakes[lake] = _Lake(file=file, retries=retries, stale_after=stale_after, cache=cache)


def options_of(path: str) -> dict[str, str]:
    """The options of the libraries for a path in a lake; none for a local one, and where the environment has them all.

    The file and a profile are read with each call: a new one counts from the next request on. Clients that are made
    afterwards trust the authorities that the options name.

    Raises:
        ConfigError: a file is missing, has an unknown name, or other users may read it; or the environment and the
            file together are such as :func:`check_access` refuses.
    """
    if not is_remote(path):
        return {}
    _check_environment(os.environ)
    lake = _declared(path)
    options = lake.options()
    keys = _key_file(options, lake)
    if keys is not None and keys.profile:
        options |= profiles.keys_of(keys.profile, keys.path, _setting(profiles.OPTION, options))
    check_access(access_of(options, os.environ))
    if bundle := _bundle(options):
        authorities.trust(bundle, lake.cache.expanduser(), _setting(authorities.OPTION, options))
    return {name: value for name, value in options.items() if name in NAMES}


def key_file(path: str) -> KeyFile | None:
    """The file that has the keys for a path in a lake; None where they are elsewhere.

    Raises:
        ConfigError: the client file is missing, has an unknown name, or other users may read it; or it has a profile
            beside keys.
    """
    lake = _declared(path)
    return _key_file(lake.options(), lake) if is_remote(path) else None


def _key_file(options: Mapping[str, str], lake: _Lake) -> KeyFile | None:
    """The client file goes over the environment, and keys in variables go over a profile in one."""
    rivals = [name for name in profiles.KEYS if name in options]
    variables = {name: NAMES[name] for name in profiles.KEYS if os.environ.get(NAMES[name])}
    if profile := options.get(profiles.OPTION, ""):
        if rivals or variables:
            step = f"unset {' '.join(variables.values())}" if variables else f"edit {quote(lake.file)}"
            raise ConfigError(
                f"{lake.file} has {profiles.OPTION}={profile}, and beside it "
                f"{', '.join([*rivals, *variables.values()])} would be another login. Keep one of them: {step}",
                profile=profile,
            )
    elif rivals:
        # What the file lacks of a login is the environment's, and then the whole is in no file.
        return None if variables.keys() - set(rivals) else KeyFile(path=lake.file)
    elif not variables:
        profile = os.environ.get(profiles.VARIABLE, "")
    return KeyFile(path=profiles.file_of(os.environ), profile=profile) if profile else None


def bundle_of(path: str) -> str:
    """The file with the authorities of a lake's store; empty where the system's own suffice."""
    lake = _declared(path)
    return _bundle(lake.options()) if is_remote(path) else ""


def _bundle(options: Mapping[str, str]) -> str:
    return options.get(authorities.OPTION) or os.environ.get(authorities.VARIABLE, "")


def _setting(option: str, options: Mapping[str, str]) -> str:
    """Where one of :data:`OWN_NAMES` is from, for messages."""
    return option if option in options else OWN_NAMES[option]


def retries_of(path: str) -> Retries:
    """How long calls wait for the store of a path in a lake."""
    return _declared(path).retries


def beat_retries_of(path: str) -> Retries:
    """How long calls for a heartbeat wait: a driver whose next one is late by one request is not dead."""
    lake = _declared(path)
    return lake.retries if lake.stale_after is None else lake.retries.within(lake.stale_after / _CALLS_UNTIL_STALE)


def read(file: str) -> dict[str, str]:
    """The options in a file; an empty one counts as absent.

    Raises:
        ConfigError: the file is missing, has an unknown name, or other users may read it.
    """
    if not file.startswith("/"):
        raise ConfigError(
            f"{SETTING}={file!r} is not a path that each process reads alike. Set it to an absolute path.", path=file
        )
    return option_values.stripped(properties.read_secret(file, SETTING, "the lake's secrets", _FILE_NAMES))


def check(options: Mapping[str, str], where: str) -> None:
    """Hold that options may be written to a client file.

    Args:
        options: the options.
        where: where they are from, for messages.

    Raises:
        ConfigError: a name is unknown, a half of a key is missing, or a value is one that not every client takes.
    """
    properties.check_names(options, _FILE_NAMES, where)
    check_access(access_of(options, os.environ))


def access_of(options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The options and those of the environment, also under their other names, each by its name in :data:`NAMES`.

    Without the blanks around them; an empty one counts as absent.
    """
    access = {}
    for name, variable in NAMES.items():
        alias = _ALIASES.get(name, name)
        values = (options.get(name), options.get(alias), environ.get(variable), environ.get(alias.upper()))
        if value := next(filter(None, (option_values.clean(value or "") for value in values)), None):
            access[name] = value
    return access


def access_to(path: str) -> dict[str, str]:
    """What the clients of Python are given for a path in a lake on S3, with the address of AWS where it has no other.

    Without one ``deltalake`` would ask AWS's SDK for a login: it has others than obstore, and does not look for the
    region among the options. And obstore takes an empty variable for an address.

    Raises:
        ConfigError: as :func:`options_of`.
    """
    access = access_of(options_of(path), os.environ)
    if "aws_endpoint_url" in access:
        return access
    region = access.get("aws_region", REGION)
    is_virtual = option_values.is_true(access.get("aws_virtual_hosted_style_request", ""))
    bucket = f"{bucket_and_key(path)[0]}." if is_virtual else ""
    return {"aws_endpoint_url": f"https://{bucket}s3.{region}.amazonaws.com", **access}


def check_access(options: Mapping[str, str]) -> None:
    """Hold that options, with what the environment has beside them, are complete.

    Raises:
        ConfigError: a half of a key is missing, or a value is one that not every client takes.
    """
    option_values.check(options)
    halves = ("aws_access_key_id", "aws_secret_access_key")
    missing = [name for name in halves if not options.get(name)]
    if len(missing) == 1:
        here = next(name for name in halves if name not in missing)
        raise ConfigError(
            f"The lake's options have {here}, but no {missing[0]}: one says nothing without the other. Set both, or "
            "neither where the host or the pod has a role.",
            name=missing[0],
        )


def _check_environment(environ: Mapping[str, str]) -> None:
    """Refuse variables by which ``deltalake`` commits on another condition than Spark, or elsewhere."""
    for name in _OTHER_LOCKS:
        if environ.get(name):
            raise ConfigError(
                f"{name}={environ[name]} makes deltalake commit by another lock than Spark, and each could overwrite "
                f"what the other committed. Unset it: unset {name}",
                name=name,
                value=environ[name],
            )
    if environ.get(OTHER_ADDRESS):
        raise ConfigError(
            f"{OTHER_ADDRESS} is for the clients of Python alone: Spark would commit to another store than the one "
            f"that has the ledger. Set AWS_ENDPOINT_URL, or aws_endpoint_url in the file of {SETTING}: unset "
            f"{OTHER_ADDRESS}",
            name=OTHER_ADDRESS,
        )


def _declared(path: str) -> _Lake:
    """The lake of a path: the innermost, where one is in a folder of another."""
    lakes = [lake for lake in list(_lakes) if path == lake or path.startswith(f"{lake}/")]
    return _lakes[max(lakes, key=len)] if lakes else _Lake()
