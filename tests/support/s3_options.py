"""A lake on an S3 server of the tests, reached as every process of Kappa reaches one: by a file with options."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from kappa import properties
from kappa.config import Config
from kappa.store import options
from kappa.store.retries import Retries
from support.s3_server import S3Server

#: Of tests in which nothing answers: each request is sent once.
HASTE = Retries(retries=0)
#: Written over the options of a server, in place of its keys.
NO_KEYS = {"aws_access_key_id": "", "aws_secret_access_key": ""}


@contextlib.contextmanager
def lake_on(server: S3Server, folder: Path, *, retries: Retries = HASTE) -> Iterator[str]:
    """Within, the address of an empty lake whose options file is in a folder of this host.

    Args:
        server: the server, or a proxy's; its bucket is the lake's alone.
        folder: where the file is.
        retries: how long a call waits for an answer.
    """
    lake = f"{server.url}/lake"
    options.declare(lake, str(write_options(server, folder / "lake.properties")), retries)
    try:
        yield lake
    finally:
        options.declare(lake, "")


def config_on(server: S3Server, home: Path, **settings: str) -> Config:
    """The configuration of a user whose lake is on a server.

    Args:
        server: the server, or a proxy's.
        home: ``KAPPA_HOME``, where the options file is too.
        settings: other variables.
    """
    file = write_options(server, home / "lake.properties")
    lake = {"KAPPA_LAKE": f"{server.url}/lake", "KAPPA_LAKE_CLIENT_FILE": str(file)}
    return Config.from_env({"KAPPA_HOME": str(home), **lake, **settings})


def write_options(server: S3Server, file: Path, mode: int = 0o600, **others: str) -> Path:
    """Write a server's options, and others over them, into a file that counts from the next request on."""
    temporary = file.with_suffix(".new")
    temporary.write_text(properties.written(server.options | others))
    temporary.chmod(mode)
    return temporary.replace(file)


def without_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take keys, and the name of a profile, out of the environment."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)


def in_place_of_aws(monkeypatch: pytest.MonkeyPatch, server: S3Server) -> None:
    """Let Python's clients reach a server where options have no address: by a variable that users may not set."""
    monkeypatch.setenv(options.OTHER_ADDRESS, server.endpoint)
    monkeypatch.setattr(options, "OTHER_ADDRESS", "")
