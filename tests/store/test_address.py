"""Addresses of lakes: one spelling for each, and what is not one is refused by its name, with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from kappa.cli import app
from kappa.config import Config
from kappa.errors import ConfigError, UsageError
from kappa.store.address import bucket_and_key, is_remote, lake_address, table_address

#: What a key may be made of.
PARTS = st.from_regex(r"[A-Za-z0-9!_.'()-]{1,9}", fullmatch=True).filter(lambda part: part not in (".", ".."))


@pytest.mark.parametrize(
    "text",
    [
        "s3://lakes/orders",
        "s3://lakes/orders/",
        "s3://lakes/orders//",
        "s3a://lakes/orders",
        "s3n://lakes/orders/",
        "S3://lakes/orders",
        "S3A://lakes/orders",
    ],
)
def test_every_spelling_of_a_lake_on_s3_is_one(text: str) -> None:
    assert lake_address(text) == "s3://lakes/orders"
    assert Config.from_env({"KAPPA_LAKE": text}).lake == "s3://lakes/orders"


@pytest.mark.parametrize(
    ("text", "lake"),
    [
        ("/srv/lake", "/srv/lake"),
        ("/srv/lake/", "/srv/lake"),
        ("/srv//lake", "/srv/lake"),
        ("//srv/lake", "/srv/lake"),
        ("/srv/work/../lake", "/srv/lake"),
        ("/srv/./lake/.", "/srv/lake"),
        ("file:///srv/work/../lake", "/srv/lake"),
        (" /srv/lake\n", "/srv/lake"),
        ("file:///srv/lake", "/srv/lake"),
        ("FILE:///srv/lake/", "/srv/lake"),
        ("file:///srv/my%20lake", "/srv/my lake"),
        ("file:///srv/j%C3%BCrgen", "/srv/jürgen"),
    ],
)
def test_every_spelling_of_a_path_is_one(text: str, lake: str) -> None:
    assert lake_address(text) == lake


def test_blanks_around_an_address_on_s3_are_not_a_part_of_it() -> None:
    assert lake_address(" s3://lakes/orders\n") == table_address(" s3a://lakes/orders\n") == "s3://lakes/orders"


def test_a_tilde_is_the_home_of_a_user() -> None:
    home = str(Path.home())
    assert lake_address("~/lake") == table_address("~/lake") == f"{home}/lake"
    assert Config.from_env({"KAPPA_HOME": "~/kappa"}).home == Path(home, "kappa")


@pytest.mark.parametrize(
    "text",
    [
        *("s3:/lakes/orders", "s3:lakes", "file:/srv/lake", "hdfs:/x", "arn:aws:s3:::x", "~nobody-here/lake", " "),
        *("'s3://lakes/orders'", "a s3://lakes/orders", "\ufeffs3://lakes/orders", "/srv/s3://lakes/orders"),
    ],
)
def test_an_address_that_would_be_a_folder_of_the_working_directory_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^The lake .*Set KAPPA_LAKE to an absolute path, or to s3://bucket/prefix"):
        lake_address(text)
    if text != "file:/srv/lake":  # Spark prints the addresses of tables so
        with pytest.raises(UsageError, match=r"Name an absolute path, or s3://bucket/key\.$"):
            table_address(text)
    if text.strip():
        settings = tmp_path / "kappa.toml"
        settings.write_text(f'lake = "{text}"\n')
        with pytest.raises((ConfigError, RuntimeError)):
            Config.from_env({"KAPPA_SETTINGS": str(settings)})


def test_a_way_up_from_a_link_is_refused(tmp_path: Path) -> None:
    """Programs that follow the link are in another folder than those that shorten the text."""
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "away")
    with pytest.raises(ConfigError, match=r"has '\.\.' after a link: programs disagree on the folder"):
        lake_address(f"{tmp_path}/link/../lake")


def test_a_relative_path_is_below_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert lake_address("data/lake") == f"{tmp_path}/data/lake"
    assert lake_address("s3") == f"{tmp_path}/s3"
    assert lake_address("../lake") == table_address("../lake") == f"{tmp_path.parent}/lake"


@pytest.mark.parametrize("prefix", ["a", "team/orders", "A.b_c-d!'(1)", "..a", "a../b", "_kappa"])
def test_a_prefix_may_have_several_parts_and_plain_characters(prefix: str) -> None:
    assert lake_address(f"s3://lakes/{prefix}/") == f"s3://lakes/{prefix}"


@pytest.mark.parametrize("bucket", ["abc", "a" * 63, "my-lake.v2", "1ake"])
def test_a_bucket_may_be_named_as_s3_says(bucket: str) -> None:
    assert lake_address(f"s3://{bucket}/a") == f"s3://{bucket}/a"


@given(st.sampled_from(["s3", "s3a", "S3n"]), st.lists(PARTS, min_size=1, max_size=4))
def test_an_address_is_its_own_only_spelling(scheme: str, parts: list[str]) -> None:
    lake = lake_address(f"{scheme}://lakes/{'/'.join(parts)}/")
    assert lake_address(lake) == lake
    assert bucket_and_key(lake) == ("lakes", "/".join(parts))
    assert is_remote(lake)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("gs://lakes/orders", "Google Cloud Storage"),
        ("abfss://c@account.dfs.core.windows.net/orders", "Azure Data Lake Storage"),
        ("ABFS://c@account.dfs.core.windows.net/orders", "Azure Data Lake Storage"),
        ("az://lakes/orders", "Azure Blob Storage"),
        ("adl://account/orders", "Azure Data Lake Storage"),
        ("hdfs://namenode:8020/lake", "HDFS"),
    ],
)
def test_a_store_that_was_never_tried_is_refused_by_its_name(text: str, name: str) -> None:
    with pytest.raises(ConfigError, match=rf" is on {name}, .*overwrite each other's commits.* Set KAPPA_LAKE to") as e:
        lake_address(text)
    assert e.value.data == {"name": "lake", "value": text}


def test_an_address_that_a_command_takes_is_not_named_as_a_setting(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["lake", "copy", "gs://lakes/orders"], env={"KAPPA_HOME": str(tmp_path)})
    assert str(result.exception).endswith(" Set the address to a local path, or to s3://bucket/prefix.")


@pytest.mark.parametrize(
    "text", ["http://store/lake", "https://store/lake", "ftp://host/lake", "memory://lake", "x://"]
)
def test_another_scheme_is_refused_by_its_name(text: str) -> None:
    scheme = text.partition(":")[0]
    with pytest.raises(ConfigError, match=rf"scheme '{scheme}', .* Set KAPPA_LAKE to a local path, or to s3://"):
        lake_address(text)


@pytest.mark.parametrize("text", ["s3://lakes", "s3://lakes/", "s3a://lakes//"])
def test_a_whole_bucket_is_refused_with_a_prefix_to_take(text: str) -> None:
    with pytest.raises(ConfigError, match=r"is a whole bucket\. .* set KAPPA_LAKE to s3://lakes/lake$"):
        lake_address(text)


@pytest.mark.parametrize(
    "rest",
    [
        *("", "/", "/orders", "ab/orders", f"{'a' * 64}/orders", "Lakes/orders", "-lakes/orders", "my_lakes/orders"),
        *("lakes//orders", "lakes/a//b", "lakes/./a", "lakes/a/..", "lakes/.."),
        *("lakes/my lake", "lakes/jürgen", "lakes/a%20b", "lakes/a=1", "lakes/a*", "lakes/a?versionId=1", "lakes/a#b"),
        *("lakes/a+b", "lakes/a:b", "lakes\n/a", "lakes/a\\b", "lakes/a&b", "lakes/a~", "lakes/@a"),
    ],
)
def test_what_not_every_client_takes_alike_is_refused(rest: str) -> None:
    with pytest.raises(ConfigError, match=r"is not an address on S3: .* Set KAPPA_LAKE to s3://bucket/prefix\.$"):
        lake_address(f"s3://{rest}")


@pytest.mark.parametrize("text", ["/data/a%20b", "file:///data/a%5Bb", "file:///data/a%2520b", "a|b"])
def test_a_path_that_delta_would_misread_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"Delta's libraries .* Move it, or set KAPPA_LAKE to a path without"):
        lake_address(text)


@pytest.mark.parametrize("text", ["file://srv/lake", "file://localhost/srv/lake", "file://"])
def test_a_file_of_another_host_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"names a host: .* Set KAPPA_LAKE to the absolute path"):
        lake_address(text)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3://lakes/orders", True),
        ("s3://lakes/orders/a/_e0001", True),
        ("/srv/lake", False),
        ("/srv/s3:/lake", False),
        ("/srv/a://lake", False),
        ("'s3://lakes/orders'", False),
        ("file:///srv/lake", False),
    ],
)
def test_a_path_on_an_object_store_is_told_from_one_on_a_disk(path: str, expected: bool) -> None:
    assert is_remote(path) is expected


def test_a_path_on_s3_has_a_bucket_and_a_key() -> None:
    assert bucket_and_key("s3://lakes/orders/a.b/_e0001") == ("lakes", "orders/a.b/_e0001")
    assert bucket_and_key("s3://lakes") == ("lakes", "")


@pytest.mark.parametrize(
    "text", ["s3a://KEY:SEC/RET@lakes/orders", "S3://KEY:SECRET@lakes", "gs://me:SECRET@lakes/orders"]
)
def test_a_login_in_an_address_is_refused_and_not_shown(text: str) -> None:
    for parsed, kind in ((lake_address, ConfigError), (table_address, UsageError)):
        with pytest.raises(kind, match="has a login in its address") as refused:
            parsed(text)
        assert "RET" not in f"{refused.value} {vars(refused.value)}"


@pytest.mark.parametrize("text", ["/srv/a%20b/table", "file:///srv/a%2520b", "s3://old/a%2Fb"])
def test_a_table_that_would_be_read_from_another_folder_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="would open another folder"):
        table_address(text)


@pytest.mark.parametrize("path", ["/srv/a b", "/srv/100%", "/srv/50%zz"])
def test_other_paths_of_tables_stay_as_they_are(path: str) -> None:
    assert table_address(path) == path
