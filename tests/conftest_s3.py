"""Fixtures that need an object store: one S3 server for the whole run, a bucket and a proxy for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.s3_proxy import Proxy
    from support.s3_server import S3Server

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def s3_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """moto, which all tests of a process share."""
    from support.s3_server import s3_server

    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3(s3_process: S3Server) -> S3Server:
    """The server, with a bucket that is empty."""
    from support.s3_server import create_bucket

    return create_bucket(s3_process, f"lake-{next(_numbers)}")


@pytest.fixture
def proxy(s3: S3Server) -> Iterator[Proxy]:
    """A proxy in front of it; clients go to `proxy.server`."""
    from support.s3_proxy import s3_proxy

    with s3_proxy(s3) as listening:
        yield listening


@pytest.fixture
def s3_lake(s3: S3Server, tmp_path: Path) -> Iterator[str]:
    """An empty lake on the server."""
    from support.s3_options import lake_on

    with lake_on(s3, tmp_path) as lake:
        yield lake


@pytest.fixture
def proxied_lake(proxy: Proxy, tmp_path: Path) -> Iterator[str]:
    """An empty lake that is reached through the proxy."""
    from support.s3_options import lake_on

    with lake_on(proxy.server, tmp_path) as lake:
        yield lake
