"""Settings of a session for a lake on S3, and what is refused of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kappa.config import Config
from kappa.driver.driver import run_epoch
from kappa.errors import ConfigError
from kappa.spark.object_store import FILE_KEYS, KEY_FILE, KEY_PROFILE, LOG_STORE, check, java_options, settings
from kappa.spark.session import check_settings
from kappa.store.options import KeyFile

LAKE = "s3://lakes/orders"
KEYS = {"aws_access_key_id": "AKIA", "aws_secret_access_key": "s3cr3t"}
HADOOP = "spark.hadoop.fs.s3a."
RETRIES = ("attempts.maximum", "retry.limit", "retry.throttle.limit")
COMMITS = {"spark.delta.logStore.s3.impl": LOG_STORE, "spark.delta.logStore.s3a.impl": LOG_STORE}


def s3a(options: dict[str, str], environ: dict[str, str] | None = None, lake: str = LAKE) -> dict[str, str]:
    """What Hadoop's client is told, whatever the options are aside."""
    conf, always = settings(lake, options, environ or {}), {f"{HADOOP}{name}" for name in ("impl", *RETRIES)}
    return {
        name.removeprefix(HADOOP): value
        for name, value in conf.items()
        if name.startswith(HADOOP) and name not in always
    }


def test_a_lake_on_a_disk_has_no_settings() -> None:
    assert settings("/srv/lake", KEYS, {"AWS_REGION": "eu-west-1"}) == {}


@pytest.mark.parametrize("lake", [LAKE, "s3a://lakes/orders"])
def test_both_spellings_have_hadoops_client_and_the_log_store(lake: str) -> None:
    options = settings(lake, KEYS, {})
    assert COMMITS.items() <= options.items()
    for scheme in ("s3", "s3a"):
        assert options[f"spark.hadoop.fs.{scheme}.impl"] == "org.apache.hadoop.fs.s3a.S3AFileSystem"
    check(options)


def test_a_request_is_tried_a_few_times() -> None:
    options = settings(LAKE, KEYS, {})
    assert all(int(options[f"{HADOOP}{name}"]) <= 7 for name in RETRIES)


def test_keys_are_of_the_provider_that_reads_them() -> None:
    simple = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
    temporary = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
    keys = {"access.key": "AKIA", "secret.key": "s3cr3t"}
    assert s3a(KEYS) == {**keys, "aws.credentials.provider": simple}
    assert s3a({**KEYS, "aws_session_token": "t"}) == {
        **keys,
        "session.token": "t",
        "aws.credentials.provider": temporary,
    }


@pytest.mark.parametrize("token", [{}, {"aws_session_token": "t0ken"}])
@pytest.mark.parametrize("profile", ["", "orders"])
def test_of_keys_in_a_file_the_settings_have_the_path_alone(token: dict[str, str], profile: str) -> None:
    file = KeyFile(path="/etc/lake.properties", profile=profile)
    options = settings(LAKE, {**KEYS, **token}, {"AWS_ACCESS_KEY_ID": "other"}, file)
    assert (options[KEY_FILE], options[KEY_PROFILE]) == ("/etc/lake.properties", profile)
    assert options[f"{HADOOP}aws.credentials.provider"] == FILE_KEYS
    assert not {"AKIA", "s3cr3t", "t0ken", "other"} & set(options.values())


def test_without_keys_a_role_is_looked_for_the_pods_before_the_hosts() -> None:
    (providers,) = s3a({}).values()
    assert [re.sub(r".*\.", "", name) for name in providers.split(",")] == [
        "TemporaryAWSCredentialsProvider",
        "SimpleAWSCredentialsProvider",
        "EnvironmentVariableCredentialsProvider",
        "WebIdentityTokenFileCredentialsProvider",
        "IAMInstanceCredentialsProvider",
    ]


def test_a_pod_with_a_token_is_not_looked_for_at_the_host() -> None:
    """Whose words would stand in errors, in place of those of the token's service."""
    (providers,) = s3a({}, {"AWS_WEB_IDENTITY_TOKEN_FILE": "/token"}).values()
    assert providers.endswith(".WebIdentityTokenFileCredentialsProvider")


def test_an_address_of_its_own_is_reached_by_path() -> None:
    options = s3a({**KEYS, "aws_endpoint_url": "http://127.0.0.1:9000", "aws_allow_http": "true"})
    assert options["endpoint"] == "http://127.0.0.1:9000"
    assert options["path.style.access"] == "true"
    assert options["connection.ssl.enabled"] == "false"
    assert options["endpoint.region"] == "us-east-1", "as object_store has it"


def test_an_encrypted_address_with_the_bucket_in_its_name_is_that_of_the_store() -> None:
    options = {"aws_endpoint": "https://lakes.store.example:443/s3", "aws_virtual_hosted_style_request": "True"}
    options = s3a({**options, "aws_region": "eu-west-1"})
    assert options["endpoint"] == "https://store.example:443/s3"
    assert options["path.style.access"] == "false"
    assert options["connection.ssl.enabled"] == "true"
    assert options["endpoint.region"] == "eu-west-1"


def test_the_environment_stands_for_what_the_options_lack() -> None:
    environ = {
        "AWS_ACCESS_KEY_ID": "AKIA",
        "AWS_SECRET_ACCESS_KEY": "s3cr3t",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
        "AWS_ALLOW_HTTP": "1",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }
    options = {name.lower(): value for name, value in environ.items()}
    assert s3a({}, environ) == s3a(options) != s3a({})
    assert s3a({"aws_region": "eu-north-1"}, environ)["endpoint.region"] == "eu-north-1"
    assert s3a({"aws_region": ""}, environ)["endpoint.region"] == "eu-west-1"


@pytest.mark.parametrize(
    ("options", "region", "expected"),
    [
        ("", "eu-west-1", "-Daws.region=eu-west-1"),
        ("-Xmx1g", "eu-west-1", "-Xmx1g -Daws.region=eu-west-1"),
        ("-Daws.region=eu-north-1", "eu-west-1", "-Daws.region=eu-north-1"),
        ("-Xmx1g", "", "-Xmx1g"),
    ],
)
def test_the_jvm_knows_the_region(options: str, region: str, expected: str) -> None:
    assert java_options(options, settings(LAKE, {"aws_region": region}, {})) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"aws_access_key_id": "AKIA"}, r"aws_access_key_id, but no aws_secret_access_key.* Set both"),
        ({"aws_secret_access_key": "s3cr3t"}, r"aws_secret_access_key, but no aws_access_key_id.* Set both"),
        ({"aws_endpoint_url": "http://store:9000"}, r"not encrypted.* set aws_allow_http=true"),
        ({"aws_endpoint_url": "store:9000"}, r"'store:9000' is not a URL\. Write aws_endpoint_url as https://"),
    ],
)
def test_options_that_deltalake_refuses_are_refused(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        settings(LAKE, options, {})
    assert "s3cr3t" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
@pytest.mark.parametrize(
    ("other", "name"), [("io.delta.storage.S3SingleDriverLogStore", "S3SingleDriver"), (None, "log store of Delta")]
)
def test_another_log_store_is_refused(scheme: str, other: str | None, name: str) -> None:
    conf: dict[str, str] = {key: value for key, value in COMMITS.items() if not key.endswith(f".{scheme}.impl")}
    if other:
        conf[f"spark.delta.logStore.{scheme}.impl"] = other
    with pytest.raises(ConfigError, match=rf"Spark would commit .*{name}.* remove it from KAPPA_SPARK_CONF"):
        check(conf)


@pytest.mark.parametrize(
    ("name", "value", "is_refused"),
    [
        ("create.performance", "true", True),
        ("create.performance", " TRUE ", True),
        ("create.performance", "false", False),
        ("performance.flags", "mkdir, Create", True),
        ("performance.flags", "*", True),
        ("performance.flags", "delete,mkdir", False),
        ("performance.flags", "", False),
        ("create.conditional.enabled", "false", True),
        ("create.conditional.enabled", "true", False),
        ("bucket.lakes.of.mine.create.performance", "true", True),
        ("bucket.lakes.performance.flags", "create", True),
        ("bucket.lakes.endpoint.region", "create", False),
    ],
)
def test_settings_that_create_without_a_condition_are_refused(name: str, value: str, is_refused: bool) -> None:
    conf = {**COMMITS, f"{HADOOP}{name}": value}
    if is_refused:
        with pytest.raises(ConfigError, match=rf"Spark has {HADOOP}{name}={re.escape(value)}.* Remove it"):
            check(conf)
    else:
        check(conf)


def test_a_driver_is_refused_such_settings_before_its_claim(tmp_path: Path) -> None:
    environ = {"KAPPA_HOME": str(tmp_path), "KAPPA_LAKE": LAKE}
    careless = {**environ, "KAPPA_SPARK_CONF": json.dumps({f"{HADOOP}create.performance": "true"})}
    check_settings(Config.from_env(environ))
    check_settings(Config.from_env({**careless, "KAPPA_LAKE": str(tmp_path / "lake")}))
    with pytest.raises(ConfigError, match=r"create\.performance=true"):
        run_epoch(Config.from_env(careless), "a.b", 1)
