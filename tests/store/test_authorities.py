"""A store whose certificate is of a private authority: both of Python's clients trust it, and the system's too."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import sys
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
from kappa.spark import trust_store
from kappa.store import authorities
from kappa.store.authorities import certificates as read
from kappa.store.options import options_of
from kappa.store.stores import store_of

SCHEMA = pa.schema({"a": pa.int64()})


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test trusts no other one does."""
    for name in ("SSL_CERT_FILE", "AWS_CA_BUNDLE", "SSL_CERT_FILE_OF_KAPPA", "SSL_CERT_FILE_BEFORE_KAPPA"):
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


CHILD = """
import os, sys
from pathlib import Path
from kappa.spark import trust_store
from kappa.store import authorities
authorities.trust(sys.argv[1], Path(sys.argv[2]))
print(Path(os.environ["SSL_CERT_FILE"]).read_text())
"""


def trusted_by_a_child(bundle: Path, cache: Path) -> str:
    """What a process trusts that has this one's environment, as a driver has a command's."""
    command = [sys.executable, "-c", CHILD, str(bundle), str(cache)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("has_own", [False, True])
def test_an_authority_that_is_replaced_is_not_trusted_any_more(authority: Path, tmp_path: Path, has_own: bool) -> None:
    bundle, cache, new = tmp_path / "bundle.pem", tmp_path / "cache", certificates(tmp_path / "new")[1]
    own = certificates(tmp_path / "own")[1].read_text().strip()
    if has_own:
        os.environ["SSL_CERT_FILE"] = str(tmp_path / "own" / "logins" / "ca.pem")
    shutil.copy(authority, bundle)
    authorities.trust(str(bundle), cache)
    assert authority.read_text().strip() in trusted_by_a_child(bundle, cache)
    bundle.unlink()
    shutil.copy(new, bundle)
    shown = [trusted_by_a_child(bundle, cache), authorities.all_of(str(bundle))]
    authorities.trust(str(bundle), cache)
    for text in (*shown, Path(os.environ["SSL_CERT_FILE"]).read_text()):
        assert new.read_text().strip() in text and authority.read_text().strip() not in text
        assert (own in text) == has_own


def test_what_the_user_trusts_outlives_the_cache(authority: Path, tmp_path: Path) -> None:
    own, cache = certificates(tmp_path / "own")[1], tmp_path / "cache"
    os.environ["SSL_CERT_FILE"] = str(own)
    authorities.trust(str(authority), cache)
    shutil.rmtree(cache)
    assert own.read_text().strip() in trusted_by_a_child(authority, cache)
    shutil.rmtree(cache)
    authorities.trust(str(authority), cache)
    assert own.read_text().strip() in Path(os.environ["SSL_CERT_FILE"]).read_text()


def test_another_file_of_the_user_counts_from_then_on(authority: Path, tmp_path: Path) -> None:
    own = certificates(tmp_path / "own")[1]
    authorities.trust(str(authority), tmp_path / "cache")
    os.environ["SSL_CERT_FILE"] = str(own)
    shown = trusted_by_a_child(authority, tmp_path / "cache")
    assert own.read_text().strip() in shown and shown.count("BEGIN") == 2


def test_a_bundle_of_the_users_own_authorities_needs_no_other_file(authority: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    shutil.copy(authority, bundle)
    os.environ["SSL_CERT_FILE"] = str(own := certificates(tmp_path / "own")[1])
    authorities.trust(str(bundle), tmp_path / "cache")
    shutil.copy(own, bundle)
    authorities.trust(str(bundle), tmp_path / "cache")
    assert os.environ["SSL_CERT_FILE"] == str(own)


def test_comments_beside_certificates_are_left_out(authority: Path, tmp_path: Path) -> None:
    pem, own, bundle = authority.read_text().strip(), tmp_path / "own.pem", tmp_path / "bundle.pem"
    own.write_text(f"# Zertifizierungsstelle für Köln\n{certificates(tmp_path / 'own')[1].read_text()}")
    bundle.write_text(f"# CN=Autorité, № 1\n{pem}\n# the end\n", encoding="utf-8")
    os.environ["SSL_CERT_FILE"] = str(own)
    authorities.trust(str(bundle), tmp_path / "cache")
    text = Path(os.environ["SSL_CERT_FILE"]).read_bytes().decode("ascii")
    assert pem in text and "#" not in text and text.count("BEGIN") == 2
    assert len(ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"]).get_ca_certs()) == 2
    assert trust_store.reading("", str(bundle), tmp_path / "cache")


def test_a_cache_that_cannot_be_written_is_named(authority: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(ConfigError, match=rf"^{tmp_path}/cache cannot be written \(.*: export KAPPA_CACHE=\S+$"):
        authorities.trust(str(authority), tmp_path / "cache")
    assert "SSL_CERT_FILE" not in os.environ


def test_a_variable_that_names_no_bundle_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CA_BUNDLE", "/no/file")
    server = S3Server(endpoint="https://h", bucket="b", access_key="k", secret_key="s", pid=0, folder=None)
    with lake_on(server, tmp_path) as lake:
        with pytest.raises(ConfigError, match=r"^AWS_CA_BUNDLE names /no/file, "):
            options_of(lake)
        write_options(server, tmp_path / "lake.properties", aws_ca_bundle="/no/other")
        with pytest.raises(ConfigError, match=r"^aws_ca_bundle names /no/other, "):
            options_of(lake)


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
