"""A store whose certificate is of a private authority: both of Python's clients trust it, and the system's too."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from support.s3_logins import certificates
from support.s3_options import lake_on, write_options
from support.s3_proxy import Proxy, s3_proxy
from support.s3_server import S3Server

from kappa.delta.access import create_table, is_table, open_table
from kappa.errors import ConfigError, LakeUnreachableError
from kappa.store import authorities
from kappa.store.authorities import certificates as read
from kappa.store.stores import store_of

SCHEMA = pa.schema({"a": pa.int64()})


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test trusts no other one does."""
    for name in ("SSL_CERT_FILE", "AWS_CA_BUNDLE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    yield


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    return certificates(tmp_path)[1]


@pytest.fixture
def private(s3: S3Server, tmp_path: Path, authority: Path) -> Iterator[Proxy]:
    """The server, behind a certificate that the authority signed."""
    with s3_proxy(s3, certificate=authority.with_name("broker.pem")) as proxy:
        yield proxy


def test_a_private_authority_is_trusted_by_both_clients(private: Proxy, authority: Path, tmp_path: Path) -> None:
    with lake_on(private.server, tmp_path) as lake:
        for call in (lambda: store_of(lake).get(f"{lake}/file"), lambda: create_table(f"{lake}/t", SCHEMA)):
            with pytest.raises(LakeUnreachableError):
                call()
        assert private.requests == []
        write_options(private.server, tmp_path / "lake.properties", aws_ca_bundle=str(authority))
        store_of(lake).put(f"{lake}/file", b"one")
        create_table(f"{lake}/t", SCHEMA)
        assert store_of(lake).get(f"{lake}/file") == b"one"
        assert is_table(f"{lake}/t") and open_table(f"{lake}/t").version() == 0


def test_the_variable_stands_for_the_option(
    private: Proxy, authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", str(authority))
    with lake_on(private.server, tmp_path) as lake:
        store_of(lake).put(f"{lake}/file", b"one")
        create_table(f"{lake}/t", SCHEMA)


def test_what_was_trusted_before_is_trusted_still(authority: Path, tmp_path: Path) -> None:
    other = certificates(tmp_path / "other")[1]
    os.environ["SSL_CERT_FILE"] = str(other)
    authorities.trust(str(authority), tmp_path / "cache")
    bundle = Path(os.environ["SSL_CERT_FILE"]).read_text()
    assert other.read_text().strip() in bundle and authority.read_text().strip() in bundle
    authorities.trust(str(authority), tmp_path / "cache")
    assert Path(os.environ["SSL_CERT_FILE"]).read_text() == bundle
    assert len(ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"]).get_ca_certs()) == 2
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_cache_that_is_emptied_is_filled(authority: Path, tmp_path: Path) -> None:
    authorities.trust(str(authority), tmp_path / "cache")
    Path(os.environ["SSL_CERT_FILE"]).unlink()
    authorities.trust(str(authority), tmp_path / "cache")
    assert authority.read_text().strip() in Path(os.environ["SSL_CERT_FILE"]).read_text()


def test_the_systems_authorities_are_trusted_still(authority: Path, tmp_path: Path) -> None:
    system = next((Path(path).read_text() for path in authorities.SYSTEMS if Path(path).is_file()), "").strip()
    authorities.trust(str(authority), tmp_path)
    bundle = Path(os.environ["SSL_CERT_FILE"]).read_text()
    assert system in bundle and authority.read_text().strip() in bundle


def test_an_authority_that_is_replaced_counts(authority: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    for source in (authority, certificates(tmp_path / "other")[1]):
        bundle.unlink(missing_ok=True)
        bundle.write_text(source.read_text())
        authorities.trust(str(bundle), tmp_path / "cache")
        assert source.read_text().strip() in Path(os.environ["SSL_CERT_FILE"]).read_text()


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        ("", 0o644, r"has no certificate in PEM\. Look at it: openssl x509 .*bundle\.pem$"),
        ("-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n", 0o644, r"has no certificate in PEM"),
        ("x", 0o664, r"has mode 0664: other users .* Run: chmod 644 .*bundle\.pem$"),
        (None, 0, r"cannot be read on this host: No such file .*: ls -l .*bundle\.pem$"),
    ],
)
def test_a_bundle_that_is_none_is_refused(tmp_path: Path, text: str | None, mode: int, message: str) -> None:
    bundle = tmp_path / "bundle.pem"
    if text is not None:
        bundle.write_text(text)
        bundle.chmod(mode)
    with pytest.raises(ConfigError, match=message):
        read(str(bundle))
    with pytest.raises(ConfigError, match=message):
        authorities.trust(str(bundle), tmp_path)
    assert "SSL_CERT_FILE" not in os.environ


def test_a_relative_bundle_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^aws_ca_bundle='ca.pem' .*Set it to an absolute path\.$"):
        read("ca.pem")
