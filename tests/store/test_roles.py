"""A role by the token of a service account: each library gets keys for it, and others before they expire."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties
from support.s3_logins import ROLE, Sessions, certificates, token_service
from support.s3_options import NO_KEYS, in_place_of_aws, lake_on, without_login, write_options
from support.s3_proxy import Proxy, s3_proxy
from support.s3_server import S3Server

from kappa.delta.access import create_table, open_table, write
from kappa.errors import LakeRefusedError, LakeUnreachableError
from kappa.store.options import key_file
from kappa.store.stores import store_of

LIFETIME = timedelta(seconds=2)
TOKEN = "the-token"
ROWS = pa.table({"a": [1]})


@pytest.fixture
def sessions() -> Sessions:
    return Sessions(LIFETIME)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    return file


@pytest.fixture
def proxy(
    s3: S3Server, tmp_path: Path, sessions: Sessions, token: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Proxy]:
    """A store that permits the service's keys only, and a pod's environment."""
    certificate, authority = certificates(tmp_path)
    without_login(monkeypatch)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    with s3_proxy(s3, permits=sessions.permits) as proxy, token_service(sessions, TOKEN, certificate) as service:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", service)
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(token))
        monkeypatch.setenv("AWS_ROLE_ARN", ROLE)
        yield proxy


@pytest.fixture
def lake(proxy: Proxy, tmp_path: Path) -> Iterator[str]:
    with lake_on(proxy.server, tmp_path) as lake:
        write_options(proxy.server, tmp_path / "lake.properties", **NO_KEYS)
        yield lake


def test_objects_are_reached_for_longer_than_keys_are_valid(lake: str, proxy: Proxy, sessions: Sessions) -> None:
    assert key_file(lake) is None
    end = time.monotonic() + 3 * LIFETIME.total_seconds()
    while time.monotonic() < end:
        store_of(lake).put(f"{lake}/file", b"one")
        assert store_of(lake).get(f"{lake}/file") == b"one"
    assert len(sessions.users) > 3 and proxy.refusals == []


@pytest.mark.parametrize("is_aws", [False, True])
def test_an_open_table_is_written_for_longer_than_keys_are_valid(
    lake: str, proxy: Proxy, sessions: Sessions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_aws: bool
) -> None:
    """Of a store without an address, which is AWS, too: there ``deltalake`` would have another way to a login."""
    if is_aws:
        write_options(proxy.server, tmp_path / "lake.properties", **NO_KEYS, aws_endpoint_url="")
        in_place_of_aws(monkeypatch, proxy.server)
    create_table(f"{lake}/t", ROWS.schema)
    table = open_table(f"{lake}/t")
    end = time.monotonic() + 3 * LIFETIME.total_seconds()
    count = 0
    while time.monotonic() < end:
        write(table, ROWS, CommitProperties())
        count += 1
    assert open_table(f"{lake}/t").to_pyarrow_table().num_rows == count
    assert len(sessions.users) > 3 and proxy.refusals == []


def test_a_token_that_the_service_refuses_is_a_refusal(lake: str, token: Path) -> None:
    token.write_text("another")
    for call in (lambda: store_of(lake).get(f"{lake}/file"), lambda: create_table(f"{lake}/t", ROWS.schema)):
        with pytest.raises(LakeRefusedError, match="InvalidIdentityToken"):
            call()


def test_a_token_or_a_service_that_is_away_may_come_back(
    lake: str, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = (lambda: store_of(lake).get(f"{lake}/file"), lambda: create_table(f"{lake}/t", ROWS.schema))
    token.unlink()
    for call in calls:
        with pytest.raises(LakeUnreachableError, match=r"not there: ls -l \$AWS_WEB_IDENTITY_TOKEN_FILE$"):
            call()
    token.write_text(TOKEN)
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "https://127.0.0.1:1")
    with pytest.raises(LakeUnreachableError, match=r"network: kappa doctor$"):
        create_table(f"{lake}/t", ROWS.schema)
