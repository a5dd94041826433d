"""Keys in a profile of AWS's tools: read by Kappa for each library, and again when they change."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from support.s3_options import NO_KEYS, in_place_of_aws, lake_on, without_login, write_options
from support.s3_proxy import Proxy, s3_proxy
from support.s3_server import S3Server

from kappa.delta.access import create_table, is_table, open_table
from kappa.errors import ConfigError, LakeRefusedError, LakeUnreachableError
from kappa.store import options
from kappa.store.options import KeyFile, key_file
from kappa.store.profiles import file_of, keys_of
from kappa.store.stores import store_of

SCHEMA = pa.schema({"a": pa.int64()})


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of profiles, which is not there yet, and an environment with no other login."""
    file = tmp_path / "credentials"
    without_login(monkeypatch)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    return file


def write(file: Path, text: str, mode: int = 0o600) -> str:
    """Replace the file in one step; its path."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.chmod(mode)
    return str(new.replace(file))


def keys(name: str) -> str:
    return f"aws_access_key_id = {name}\naws_secret_access_key=secret-of-{name}\n"


# The file


def test_a_profile_has_the_keys_of_its_section(profiles: Path) -> None:
    text = (
        f"# mine\n[default]\n{keys('AKIA1')}region = x\n\n[orders]\n{keys('AKIA2')}aws_session_token = a+b==%s # new\n"
    )
    file = write(profiles, text)
    assert keys_of("default", file) == {"aws_access_key_id": "AKIA1", "aws_secret_access_key": "secret-of-AKIA1"}
    assert keys_of("orders", file) == {
        "aws_access_key_id": "AKIA2",
        "aws_secret_access_key": "secret-of-AKIA2",
        "aws_session_token": "a+b==%s",
    }


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        (keys("AKIA"), 0o600, r"^\S+ has something in line 1 that is neither .* Correct the line\.$"),
        (f"[orders]\n{keys('AKIA')}secret\n", 0o600, r"^\S+ has something in line 4 that is neither"),
        (f"[other]\n{keys('AKIA')}", 0o600, r"no profile \[orders\], which AWS_PROFILE names.* --profile orders$"),
        ("[orders]\naws_access_key_id=AKIA\n", 0o600, r"Profile \[orders\] in \S+ has no keys of its own"),
        (
            "[orders]\nrole_arn=a\nsource_profile=b\n",
            0o600,
            r"has role_arn, and no keys .*: aws configure export-credentials --profile orders$",
        ),
        ("[orders]\ncredential_process=/bin/secret\n", 0o600, r"has credential_process, and no keys"),
        (f"[orders]\n{keys('AKIA')}", 0o644, r"has mode 0644: .* contains keys\. Run: chmod 600"),
    ],
)
def test_a_profile_without_keys_is_refused(profiles: Path, text: str, mode: int, message: str) -> None:
    file = write(profiles, text, mode)
    with pytest.raises(ConfigError, match=message) as error:
        keys_of("orders", file)
    assert "secret" not in str(error.value)


OWN = "[orders]\naws_access_key_id=A\naws_secret_access_key=B\n"


@pytest.mark.parametrize(
    "text",
    [
        OWN + "s3 =\n  addressing_style = path\n",
        OWN + "s3 =\n\n\tx = y\n",
        "[my other]\njunk\n  x\n" + OWN,
        "[other]\nA = 1\n  more of it\n" + OWN,
        OWN.replace("[orders]", "[orders] # mine"),
        OWN.replace("[orders]", "[ orders ]; mine"),
        OWN.replace("=A\n", "\t=\tA\t; mine\n\n[other]\nx=\n[orders]\n"),
        OWN.replace("\n", "\r\n"),
        OWN.replace("=A\n", "=A\n# a comment\n \t\n;\n"),
    ],
)
def test_a_file_that_java_reads_is_read_alike(profiles: Path, text: str) -> None:
    """Each was read by the AWS SDK for Java, which reads it for Spark."""
    assert keys_of("orders", write(profiles, text)) == {"aws_access_key_id": "A", "aws_secret_access_key": "B"}


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (2, OWN.replace("aws", "  aws")),
        (3, OWN.replace("aws_secret", "  aws_secret")),
        (2, OWN.replace("aws_access_key_id", "AWS_ACCESS_KEY_ID")),
        (4, OWN.replace("=B", "=\n  B")),
        (4, OWN.replace("=B", "=\n  B=")),
        (4, OWN + "  # a comment\n"),
        (5, OWN + "s3 =\n  x\n"),
        (2, "[other]\n  a=b\n" + OWN),
        (2, "[other]\njunk\n" + OWN),
        (1, "a=b\n" + OWN),
        (1, OWN.replace("[orders]", "[orders] mine")),
        (1, OWN.replace("[orders]", " [orders]")),
        (1, OWN.replace("[orders]", "[orders")),
        (2, OWN.replace("=", ":")),
        (4, OWN + "=c\n"),
    ],
)
def test_a_file_that_java_reads_otherwise_is_refused(profiles: Path, line: int, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"^\S+ has something in line {line} that is neither .* Correct the line\.$"):
        keys_of("orders", write(profiles, text))


@pytest.mark.parametrize("profile", ["my orders", "profile orders", "bestellungen-köln"])
def test_a_name_that_java_passes_over_is_refused(profiles: Path, profile: str) -> None:
    file = write(profiles, OWN.replace("orders", profile))
    with pytest.raises(ConfigError, match=rf"^AWS_PROFILE='{profile}' has other characters .* Rename it in {file}\.$"):
        keys_of(profile, file)


def test_a_file_that_no_variable_names_is_not_said_to_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SHARED_CREDENTIALS_FILE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    message = r"^AWS_PROFILE=orders has no keys on this host: \S+/.aws/credentials is not there, .* --profile orders$"
    with pytest.raises(ConfigError, match=message):
        keys_of("orders", file_of({}))


def test_a_missing_file_is_named_with_its_variable(profiles: Path) -> None:
    with pytest.raises(ConfigError, match=rf"^AWS_SHARED_CREDENTIALS_FILE names {profiles}, .*: ls -l {profiles}$"):
        keys_of("orders", str(profiles))


def test_the_file_is_where_the_tools_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    assert file_of({}) == "/home/ann/.aws/credentials"
    assert file_of({"AWS_SHARED_CREDENTIALS_FILE": "~/other"}) == "/home/ann/other"


# Which login counts


@pytest.fixture
def lake(s3: S3Server, tmp_path: Path, profiles: Path) -> Iterator[str]:
    """A lake whose client file has no keys."""
    write(profiles, f"[orders]\n{keys('AKIA')}")
    with lake_on(s3, tmp_path) as lake:
        write_options(s3, tmp_path / "lake.properties", **NO_KEYS)
        yield lake


def test_the_variable_names_a_profile(lake: str, profiles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert key_file(lake) is None
    monkeypatch.setenv("AWS_PROFILE", "orders")
    assert key_file(lake) == KeyFile(path=str(profiles), profile="orders")
    assert options.options_of(lake)["aws_access_key_id"] == "AKIA"


def test_the_client_file_names_a_profile(lake: str, s3: S3Server, profiles: Path, tmp_path: Path) -> None:
    write_options(s3, tmp_path / "lake.properties", **NO_KEYS, aws_profile="orders")
    assert key_file(lake) == KeyFile(path=str(profiles), profile="orders")
    assert options.options_of(lake)["aws_secret_access_key"] == "secret-of-AKIA"
    assert "aws_profile" not in options.options_of(lake)
    write_options(s3, tmp_path / "lake.properties", **NO_KEYS, aws_profile="other")
    with pytest.raises(ConfigError, match=r"no profile \[other\], which aws_profile names"):
        options.options_of(lake)


def test_keys_in_the_client_file_or_in_variables_go_over_a_profile_in_a_variable(
    lake: str, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "orders")
    file = write_options(s3, tmp_path / "lake.properties")
    assert key_file(lake) == KeyFile(path=str(file))
    assert options.options_of(lake)["aws_access_key_id"] == s3.access_key
    write_options(s3, file, **NO_KEYS)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA3")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert key_file(lake) is None
    assert "aws_access_key_id" not in options.options_of(lake)


@pytest.mark.parametrize("missing", ["aws_access_key_id", "aws_secret_access_key", "aws_session_token"])
def test_a_login_of_which_a_variable_has_a_part_is_in_no_file(
    lake: str, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    write_options(s3, tmp_path / "lake.properties", **{missing: ""})
    monkeypatch.setenv(missing.upper(), "other")
    assert key_file(lake) is None


def test_a_profile_in_the_client_file_beside_other_keys_is_refused(
    lake: str, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_options(s3, tmp_path / "lake.properties", aws_profile="orders")
    for call in (options.options_of, key_file):
        with pytest.raises(ConfigError, match=rf"has aws_profile=orders, and beside it .* of them: edit {file}$"):
            call(lake)
    write_options(s3, file, **NO_KEYS, aws_profile="orders")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "t")
    with pytest.raises(ConfigError, match=r"beside it AWS_SESSION_TOKEN would be .*: unset AWS_SESSION_TOKEN$"):
        options.options_of(lake)


# Keys that change


@pytest.fixture
def permitted() -> set[str]:
    """Access keys that the proxy lets through."""
    return {"AKIA1"}


@pytest.fixture
def checking(s3: S3Server, permitted: set[str]) -> Iterator[Proxy]:
    with s3_proxy(s3, permits=permitted.__contains__) as proxy:
        yield proxy


def test_a_profile_is_read_again_when_it_changes(
    checking: Proxy, permitted: set[str], profiles: Path, tmp_path: Path
) -> None:
    """moto checks no keys; the proxy in front of it does."""
    write(profiles, f"[orders]\n{keys('AKIA1')}")
    with lake_on(checking.server, tmp_path) as lake:
        write_options(checking.server, tmp_path / "lake.properties", **NO_KEYS, aws_profile="orders")
        store_of(lake).put(f"{lake}/file", b"one")
        create_table(f"{lake}/t", SCHEMA)
        permitted.clear()
        permitted.add("AKIA2")
        calls: list[Callable[[], object]] = [
            lambda: store_of(lake).get(f"{lake}/file"),
            lambda: store_of(lake).head(f"{lake}/file"),
            lambda: is_table(f"{lake}/t"),
            lambda: open_table(f"{lake}/t"),
        ]
        for call in calls:
            with pytest.raises(LakeRefusedError, match=r"ExpiredToken|status code: 400"):
                call()
        write(profiles, f"[orders]\n{keys('AKIA2')}")
        for call in calls:
            assert call()


@pytest.mark.parametrize("text", ["", "[orders]\n", "[orders]\naws_access_key_id = AKIA2\n", "[ord"])
def test_while_a_tool_writes_the_file_the_keys_before_count(profiles: Path, text: str) -> None:
    file = write(profiles, f"[orders]\n{keys('AKIA1')}")
    before = keys_of("orders", file)
    profiles.write_text(text)
    assert keys_of("orders", file) == before
    with pytest.raises(ConfigError, match=r"\[other\]|line 1"):
        keys_of("other", file)
    os.utime(file, (0, 0))
    with pytest.raises(ConfigError):
        keys_of("orders", file)
    write(profiles, f"[orders]\n{keys('AKIA2')}")
    assert keys_of("orders", file)["aws_access_key_id"] == "AKIA2"


def test_a_new_process_waits_while_a_tool_writes_the_file(profiles: Path) -> None:
    write(profiles, "[ord")
    writer = threading.Timer(0.2, write, (profiles, OWN))
    writer.start()
    assert keys_of("orders", str(profiles))["aws_access_key_id"] == "A"
    writer.join()


def test_a_login_whose_token_is_not_there_yet_is_not_taken(profiles: Path) -> None:
    token = "aws_session_token=t\n"
    file = write(profiles, OWN + token)
    before = keys_of("orders", file)
    write(profiles, f"[orders]\n{keys('AKIA2')}")
    assert keys_of("orders", file) == before
    write(profiles, f"[orders]\n{keys('AKIA2')}{token}")
    assert keys_of("orders", file)["aws_access_key_id"] == "AKIA2"
    write(profiles, OWN)
    os.utime(file, (0, 0))
    assert keys_of("orders", file) == {"aws_access_key_id": "A", "aws_secret_access_key": "B"}


def test_a_profile_that_nobody_names_is_no_clients_login(
    checking: Proxy, profiles: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At AWS itself, where ``deltalake`` would take it: two clients of one process would be two users."""
    write(profiles, f"[default]\n{keys('AKIA1')}")
    in_place_of_aws(monkeypatch, checking.server)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1")
    with lake_on(checking.server, tmp_path) as lake:
        write_options(checking.server, tmp_path / "lake.properties", **NO_KEYS, aws_endpoint_url="")
        for call in (lambda: store_of(lake).get(f"{lake}/file"), lambda: create_table(f"{lake}/t", SCHEMA)):
            with pytest.raises(LakeUnreachableError, match="this host has no role"):
                call()
    assert checking.requests == []
