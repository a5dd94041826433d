"""What a process needs to reach a lake on S3: a file that only it may read, and the environment beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from support.s3_options import lake_on, write_options
from support.s3_proxy import Proxy
from support.s3_server import S3Server, s3_server

from kappa.config import Config
from kappa.delta.access import create_table, is_table, open_table, storage_options
from kappa.errors import ConfigError, LakeRefusedError
from kappa.store import options
from kappa.store.options import SETTING
from kappa.store.retries import Retries
from kappa.store.stores import store_of

SERVER = S3Server(endpoint="https://s3.example", bucket="b", access_key="me", secret_key="s3cr3t", pid=0, folder=None)


# The file


def test_a_file_has_the_names_of_the_clients(tmp_path: Path) -> None:
    file = write_options(SERVER, tmp_path / "o", aws_session_token="t=\\ö", aws_virtual_hosted_style_request="false")
    assert options.read(str(file)) == {
        **SERVER.options,
        "aws_session_token": "t=\\ö",
        "aws_virtual_hosted_style_request": "false",
    }


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o620, 0o601])
def test_a_file_that_others_can_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    file = write_options(SERVER, tmp_path / "o", mode)
    with pytest.raises(ConfigError, match=rf"has mode {mode:04o}: .*the lake's secrets\. Run: chmod 600 {file}$") as e:
        options.read(str(file))
    assert SERVER.secret_key not in str(e.value)


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o640])
def test_a_file_that_only_owner_and_group_can_read_is_accepted(tmp_path: Path, mode: int) -> None:
    assert options.read(str(write_options(SERVER, tmp_path / "o", mode))) == SERVER.options


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("aws_acess_key_id", r"Did you mean aws_access_key_id\?"),
        ("AWS_REGION", r"Did you mean aws_region\?"),
        ("region", r"Did you mean aws_region\?"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(tmp_path: Path, name: str, hint: str) -> None:
    file = write_options(SERVER, tmp_path / "o", **{name: "hidden"})
    with pytest.raises(ConfigError, match=rf"^{file} has the unknown setting {name}\. {hint} Correct it") as error:
        options.read(str(file))
    assert "hidden" not in str(error.value)


def test_a_line_that_resembles_no_setting_is_not_in_the_message(tmp_path: Path) -> None:
    """It may be a secret that was put on the line after its name."""
    file = write_options(SERVER, tmp_path / "o")
    file.write_text("aws_region=us-east-1\n\naws_secret_access_key\ns3cr3t/of=me\n")
    with pytest.raises(ConfigError, match=rf"^{file} has something in line 4 .* Known are: .*aws_ca_bundle\.") as error:
        options.read(str(file))
    assert "s3cr3t" not in str((error.value, error.value.data))


def test_an_empty_option_counts_as_absent(tmp_path: Path) -> None:
    file = write_options(SERVER, tmp_path / "o", aws_session_token="", aws_region="")
    assert options.read(str(file)) == {name: value for name, value in SERVER.options.items() if name != "aws_region"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"aws_secret_access_key": ""}, r"have aws_access_key_id, but no aws_secret_access_key: .* Set both"),
        ({"aws_access_key_id": ""}, r"have aws_secret_access_key, but no aws_access_key_id: .* Set both"),
        ({"aws_endpoint_url": "http://h", "aws_allow_http": "no"}, r"http://h is not encrypted, .*aws_allow_http=true"),
        ({"aws_endpoint_url": "store:9000"}, r"'store:9000' is not a URL\. Write aws_endpoint_url as https://host"),
    ],
)
def test_options_that_no_client_takes_are_refused_before_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, str], message: str
) -> None:
    for variable in options.NAMES.values():
        monkeypatch.delenv(variable, raising=False)
    with lake_on(SERVER, tmp_path) as lake:
        write_options(SERVER, tmp_path / "lake.properties", **change)
        for call in (lambda: store_of(lake).get(f"{lake}/file"), lambda: is_table(lake), lambda: open_table(lake)):
            with pytest.raises(ConfigError, match=message) as error:
                call()
            assert SERVER.secret_key not in str(error.value)


#: Name -> a value that ends a client's thread, or that each client takes for something else; the words about it.
WRONG_VALUES = [
    ("aws_endpoint_url", "https://h:99999", "is not a URL"),
    ("aws_endpoint_url", "https://h:abc", "is not a URL"),
    ("aws_endpoint_url", "https://h:0", "is not a URL"),
    ("aws_endpoint_url", "https://[h", "is not a URL"),
    ("aws_endpoint_url", "https://:9", "is not a URL"),
    ("aws_endpoint_url", "https://h|x", "is not a URL"),
    ("aws_endpoint_url", "https://h h", "aws_endpoint_url has a blank at position 10"),
    ("aws_endpoint_url", "https://user:s3cr3t@h", "has a login, which belongs to no store's address"),
    ("aws_endpoint_url", "user:s3cr3t@h", "has a login"),
    ("aws_endpoint_url", "https://h/?key=s3cr3t", "has a query"),
    ("aws_endpoint_url", "https://h#s3cr3t", "has a fragment"),
    ("aws_region", "us-east-1 # home", r"aws_region has a blank at position 10\. .* a comment has a line of its own"),
    ("aws_region", "us/east?1", "is not the name of a region"),
    ("aws_access_key_id", '"me"', r"is in quotes, which would be a part of it\. Remove them\."),
    ("aws_session_token", "s3cr3t\ns3cr3t", "aws_session_token has a blank at position 7"),
    ("aws_secret_access_key", "s3cr3t\xfc", "aws_secret_access_key has a character that is not ASCII at position 7"),
    ("aws_virtual_hosted_style_request", "maybe", "is 'maybe', which is neither on nor off"),
    ("aws_allow_http", "maybe", "is 'maybe', which is neither on nor off"),
]


@pytest.mark.parametrize("is_variable", [False, True], ids=["file", "variable"])
@pytest.mark.parametrize(("name", "value", "words"), WRONG_VALUES)
def test_a_value_that_not_every_client_takes_is_refused_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str, *, is_variable: bool
) -> None:
    for variable in (*options.NAMES.values(), "AWS_DEFAULT_REGION", "AWS_ENDPOINT"):
        monkeypatch.delenv(variable, raising=False)
    with lake_on(SERVER, tmp_path) as lake:
        write_options(SERVER, tmp_path / "lake.properties", **{name: "" if is_variable else value})
        if is_variable:
            monkeypatch.setenv(options.NAMES[name], value)
        for call in (lambda: store_of(lake).get(f"{lake}/file"), lambda: open_table(lake)):
            with pytest.raises(ConfigError, match=words) as error:
                call()
            assert SERVER.secret_key not in str((error.value, error.value.data))


@pytest.mark.parametrize("is_variable", [False, True], ids=["file", "variable"])
def test_blanks_and_line_feeds_around_a_value_are_not_a_part_of_it(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_variable: bool
) -> None:
    blank = {name: f" {value} \n" for name, value in s3.options.items()}
    with lake_on(s3, tmp_path) as lake:
        write_options(s3, tmp_path / "lake.properties", **(dict.fromkeys(blank, "") if is_variable else blank))
        for name, value in blank.items():
            monkeypatch.setenv(options.NAMES[name], value if is_variable else "")
        store_of(lake).put(f"{lake}/file", b"one")
        create_table(f"{lake}/t", pa.schema({"a": pa.int64()}))
        assert open_table(f"{lake}/t").version() == 0


def test_an_empty_address_in_the_environment_is_that_of_aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "")
    with lake_on(SERVER, tmp_path) as lake:
        write_options(SERVER, tmp_path / "lake.properties", aws_endpoint_url="")
        assert options.access_to(lake)["aws_endpoint_url"] == "https://s3.us-east-1.amazonaws.com"


def test_an_option_of_the_clients_alone_that_they_do_not_take_is_a_setting(
    s3_lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SKIP_SIGNATURE", "maybe")
    for call in (lambda: store_of(s3_lake).get(f"{s3_lake}/file"), lambda: open_table(s3_lake)):
        with pytest.raises(ConfigError, match=r"^A client of the store does not take its settings: .*maybe.*: env \|"):
            call()


def test_the_environment_may_have_the_other_half_of_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with lake_on(SERVER, tmp_path) as lake:
        write_options(SERVER, tmp_path / "lake.properties", aws_secret_access_key="")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t")
        assert "aws_secret_access_key" not in options.options_of(lake)


def test_a_missing_file_is_named_with_its_setting() -> None:
    with pytest.raises(ConfigError, match=rf"^{SETTING} names /no/file, .*: ls -l /no/file$"):
        options.read("/no/file")


def test_a_relative_path_is_refused() -> None:
    with pytest.raises(ConfigError, match=rf"^{SETTING}='lake.properties' .*Set it to an absolute path"):
        options.read("lake.properties")


# Which file is whose


@pytest.fixture
def lakes(tmp_path: Path) -> tuple[str, ...]:
    """Three lakes, the third in a folder of the first, with regions named like them."""
    lakes = ("s3://bucket/a", "s3://bucket/ab", "s3://bucket/a/nested")
    for lake in lakes:
        region = lake.rpartition("/")[2]
        file = write_options(SERVER, tmp_path / region, aws_region=region)
        options.declare(lake, str(file), Retries(retries=len(region)))
    return lakes


@pytest.mark.parametrize(
    ("path", "region"),
    [
        ("s3://bucket/a", "a"),
        ("s3://bucket/a/topology/_e0001", "a"),
        ("s3://bucket/ab/topology", "ab"),
        ("s3://bucket/a/nested", "nested"),
        ("s3://bucket/a/nested/topology", "nested"),
        ("s3://bucket/a/nested-not", "a"),
        ("s3://bucket/abc", None),
        ("s3://other/a", None),
        ("/bucket/a", None),
    ],
)
@pytest.mark.usefixtures("lakes")
def test_a_path_has_the_options_of_its_own_lake(path: str, region: str | None) -> None:
    assert options.options_of(path).get("aws_region") == region
    assert options.retries_of(path) == (options.RETRIES if region is None else Retries(retries=len(region)))


def test_the_settings_name_the_file_of_their_lake(tmp_path: Path) -> None:
    file = write_options(SERVER, tmp_path / "o")
    Config.from_env({"KAPPA_LAKE": "s3a://bucket/configured/", SETTING: str(file)})
    assert options.options_of("s3://bucket/configured/x") == SERVER.options
    Config.from_env({"KAPPA_LAKE": "s3://bucket/configured"})
    assert options.options_of("s3://bucket/configured/x") == {}


def test_a_lake_on_a_disk_reads_no_file() -> None:
    options.declare("/srv/lake", "/no/file")
    assert options.options_of("/srv/lake/a") == {}


def test_retries_is_the_same_for_both_clients() -> None:
    retries = Retries(retries=3, retry_for=timedelta(seconds=2.5), answer=timedelta(minutes=1))
    assert retries.storage_options() == {
        "max_retries": "3",
        "retry_timeout": "2500ms",
        "timeout": "60000ms",
        "connect_timeout": "5000ms",
    }
    assert retries.retry_config() == {"max_retries": 3, "retry_timeout": timedelta(seconds=2.5)}
    assert retries.client_options() == {"timeout": timedelta(minutes=1), "connect_timeout": timedelta(seconds=5)}


# The environment


def test_the_environment_stands_for_what_the_file_lacks() -> None:
    environ = {"AWS_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "env", "AWS_SESSION_TOKEN": "", "AWS_PROFILE": "p"}
    assert options.access_of({"aws_access_key_id": "file"}, environ) == {
        "aws_region": "eu-west-1",
        "aws_access_key_id": "file",
    }


def test_each_option_has_a_variable_of_its_name() -> None:
    environ = {variable: variable for variable in options.NAMES.values()}
    assert options.access_of({}, environ) == {name: name.upper() for name in options.NAMES}


def set_environment(monkeypatch: pytest.MonkeyPatch, server: S3Server, **others: str) -> None:
    for name, value in {**server.options, **others}.items():
        monkeypatch.setenv(options.NAMES[name], value)


@pytest.mark.parametrize("allow", ["true", "1", "Yes"])
def test_a_lake_is_reached_by_the_environment_alone(s3: S3Server, monkeypatch: pytest.MonkeyPatch, allow: str) -> None:
    set_environment(monkeypatch, s3, aws_allow_http=allow)
    path = f"{s3.url}/lake/file"
    store_of(path).put(path, b"one")
    assert store_of(path).get(path) == b"one"
    create_table(f"{s3.url}/lake/t", pa.schema({"a": pa.int64()}))
    assert is_table(f"{s3.url}/lake/t")


def test_the_file_goes_over_the_environment(s3_lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set_environment(monkeypatch, replace(SERVER, endpoint="http://127.0.0.1:1"))
    path = f"{s3_lake}/file"
    store_of(path).put(path, b"one")
    assert store_of(path).get(path) == b"one"
    create_table(f"{s3_lake}/t", pa.schema({"a": pa.int64()}))
    assert open_table(f"{s3_lake}/t").version() == 0


@pytest.mark.parametrize(
    ("others", "variables", "address"),
    [
        ({}, {}, "https://s3.us-east-1.amazonaws.com"),
        ({"aws_region": "eu-west-1"}, {}, "https://s3.eu-west-1.amazonaws.com"),
        ({"aws_virtual_hosted_style_request": "true"}, {}, "https://b.s3.us-east-1.amazonaws.com"),
        ({}, {"AWS_DEFAULT_REGION": "eu-west-1"}, "https://s3.eu-west-1.amazonaws.com"),
        ({}, {"AWS_DEFAULT_REGION": ""}, "https://s3.us-east-1.amazonaws.com"),
        ({}, {"AWS_ENDPOINT": "https://store.example"}, "https://store.example"),
        ({}, {"AWS_ENDPOINT_URL": "https://store.example\n"}, "https://store.example"),
        ({"aws_endpoint_url": "https://store.example"}, {}, "https://store.example"),
    ],
)
def test_deltalake_has_the_address_of_aws_where_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: dict[str, str], variables: dict[str, str], address: str
) -> None:
    """Without one it would look for a login, and for the region, in other places than obstore."""
    for name in (*options.NAMES.values(), "AWS_DEFAULT_REGION", "AWS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with lake_on(SERVER, tmp_path) as lake:
        write_options(SERVER, tmp_path / "lake.properties", **{"aws_endpoint_url": "", "aws_region": "", **others})
        assert (storage_options(lake) or {}).get("aws_endpoint_url") == address


def test_an_address_for_pythons_clients_alone_is_refused(
    tmp_path: Path, s3: S3Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would go over the file in both, and Spark would be at another store."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", proxy.server.endpoint)
    with lake_on(s3, tmp_path) as lake:
        for call in (lambda: store_of(lake).get(f"{lake}/file"), lambda: is_table(lake), lambda: open_table(lake)):
            with pytest.raises(ConfigError, match=r"^AWS_ENDPOINT_URL_S3 is for .*: unset AWS_ENDPOINT_URL_S3$") as e:
                call()
            assert proxy.server.endpoint not in str((e.value, e.value.data)), "it may have a login"
    assert proxy.requests == []


# A file that changes


def test_a_changed_file_counts_from_the_next_request_on(s3: S3Server, proxy: Proxy, tmp_path: Path) -> None:
    with lake_on(s3, tmp_path) as lake:
        store = store_of(lake)
        store.put(f"{lake}/file", b"one")
        assert proxy.requests == []
        write_options(proxy.server, tmp_path / "lake.properties")
        assert store.get(f"{lake}/file") == b"one"
        assert not is_table(lake)
        assert proxy.counts()["GET"] == 1 and proxy.counts()["LIST"] >= 1


def test_keys_are_rotated_without_a_new_process(tmp_path: Path) -> None:
    """By a server that checks signatures: it is built once, in two minutes."""
    with s3_server(tmp_path / "s3", kind="versitygw") as server, lake_on(server, tmp_path) as lake:
        file, store = tmp_path / "lake.properties", store_of(lake)
        store.put(f"{lake}/file", b"one")
        create_table(f"{lake}/t", pa.schema({"a": pa.int64()}))
        calls: list[Callable[[], object]] = [
            lambda: store.get(f"{lake}/file"),
            lambda: store.put(f"{lake}/file", b"two"),
            lambda: store.create(f"{lake}/other", b"two"),
            lambda: store.folders(lake),
            lambda: open_table(f"{lake}/t"),
            lambda: is_table(f"{lake}/t"),
        ]
        for wrong in (replace(server, secret_key="another"), replace(server, access_key="nobody")):
            write_options(wrong, file)
            for call in calls:
                with pytest.raises(
                    LakeRefusedError, match=rf"^The store refuses {lake}.* Check the keys .*: kappa doc"
                ):
                    call()
        write_options(server, file)
        assert store.get(f"{lake}/file") == b"one"
        assert open_table(f"{lake}/t").version() == 0
        assert store.folders(lake) == ["t"]
        assert store.create(f"{lake}/other", b"three")
