"""Settings of the login file for clients in Python and Spark, and refused ones."""

from __future__ import annotations

import pickle
import re
import subprocess
from pathlib import Path

import confluent_kafka
import pytest

from kappa.config import Config, Servers
from kappa.errors import ConfigError
from kappa.kafka.broker import Broker
from kappa.kafka.client_file import for_librdkafka, for_spark, java_options, login, tool_options
from kappa.properties import written
from kappa.spark.jars import java_home
from kappa_local import logins

INCLUDE = Path(__file__).parents[2] / "include"
SCRAM = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": 'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="p";',
}


def servers(folder: Path, mode: int = 0o600, **settings: str | None) -> Servers:
    """A file with these settings over those of SCRAM; None leaves one out. ``_`` stands for ``.``."""
    named = SCRAM | {name.replace("_", "."): value for name, value in settings.items()}
    path = folder / "client.properties"
    path.write_text(written({name: value for name, value in named.items() if value is not None}))
    path.chmod(mode)
    return Servers("kafka:9093", str(path))


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an authority and a broker's certificate."""
    folder = tmp_path_factory.mktemp("certificates")
    logins.make(folder)
    return folder / "logins"


def test_scram_settings_have_other_names_in_python(tmp_path: Path) -> None:
    settings = for_librdkafka(servers(tmp_path))
    assert settings == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "a",
        "sasl.password": "p",
    }


def test_quotes_in_a_password_are_kept(tmp_path: Path) -> None:
    jaas = login("PlainLoginModule", {"username": "a", "password": 'p"\\;= '})
    settings = for_librdkafka(servers(tmp_path, sasl_mechanism="PLAIN", sasl_jaas_config=jaas))
    assert settings["sasl.password"] == 'p"\\;= '


def test_settings_of_oauthbearer_are_passed_on(tmp_path: Path) -> None:
    options = {"clientId": "me", "clientSecret": "s", "scope": "kafka", "extension_cluster": "c"}
    settings = for_librdkafka(
        servers(
            tmp_path,
            sasl_mechanism="OAUTHBEARER",
            sasl_jaas_config=login("OAuthBearerLoginModule", options),
            sasl_oauthbearer_token_endpoint_url="https://idp/token",
        )
    )
    assert {name.removeprefix("sasl.oauthbearer."): value for name, value in settings.items()} == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "method": "oidc",
        "client.id": "me",
        "client.secret": "s",
        "scope": "kafka",
        "extensions": "cluster=c",
        "token.endpoint.url": "https://idp/token",
    }
    confluent_kafka.Producer(settings).flush(0)


def test_spark_logs_in_with_tokens_by_references_and_the_class_that_fetches_them(tmp_path: Path) -> None:
    own = {
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_jaas_config": None,
        "sasl_oauthbearer_token_endpoint_url": "https://idp/token",
    }
    credentials = "sasl_oauthbearer_client_credentials_client"
    addresses = servers(tmp_path, **own, **{f"{credentials}_id": "me", f"{credentials}_secret": "it's"})
    options = for_spark(addresses)
    file = addresses.client_file
    assert options["kafka.sasl.login.callback.handler.class"].endswith(".OAuthBearerLoginCallbackHandler")
    assert options["kafka.sasl.jaas.config"] == login(
        "OAuthBearerLoginModule",
        {
            "clientId": f"${{file:{file}:sasl.oauthbearer.client.credentials.client.id}}",
            "clientSecret": f"${{file:{file}:sasl.oauthbearer.client.credentials.client.secret}}",
        },
    )
    assert "it's" not in str(options)
    allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=https://idp/token"
    assert java_options(addresses, "-Xss4m") == f"-Xss4m {allowed}"
    assert java_options(addresses, f"{allowed},https://other") == f"{allowed},https://other"
    assert java_options(str(addresses), "") == java_options(Servers("kafka:9093", f"{file}.gone"), "") == ""
    with pytest.raises(ConfigError, match="has a quote or a backslash"):
        for_spark(servers(tmp_path, **own, **{f"{credentials}_id": "me", f"{credentials}_secret": 'a"b'}))


def test_certificates_of_pem_go_to_python_by_their_path(tmp_path: Path, certificates: Path) -> None:
    authority, keys = str(certificates / "ca.pem"), str(certificates / "broker.pem")
    settings = for_librdkafka(
        servers(
            tmp_path,
            security_protocol="SSL",
            sasl_mechanism=None,
            sasl_jaas_config=None,
            ssl_truststore_type="PEM",
            ssl_truststore_location=authority,
            ssl_keystore_type="PEM",
            ssl_keystore_location=keys,
            ssl_endpoint_identification_algorithm="",
        )
    )
    assert settings == {
        "security.protocol": "SSL",
        "ssl.ca.location": authority,
        "ssl.certificate.location": keys,
        "ssl.key.location": keys,
        "ssl.endpoint.identification.algorithm": "none",
    }
    confluent_kafka.Producer(settings).flush(0)


@pytest.mark.parametrize("end", ["\n", " ", "\\\n  "], ids=["lines", "blanks", "lines that go on"])
def test_certificates_in_the_file_itself_may_have_any_ends_of_lines(
    tmp_path: Path, certificates: Path, end: str
) -> None:
    addresses = servers(tmp_path, security_protocol="SSL", sasl_mechanism=None, sasl_jaas_config=None)
    authority = (certificates / "ca.pem").read_text().strip()
    text = authority.replace("\n", " \\\n") if end.startswith("\\") else written({"": authority.replace("\n", end)})[1:]
    with Path(addresses.client_file).open("a") as file:
        file.write(f"ssl.truststore.type=PEM\nssl.truststore.certificates={text}\n")
    settings = for_librdkafka(addresses)
    assert settings["ssl.ca.pem"].split() == authority.split()
    confluent_kafka.Producer(settings).flush(0)


def test_a_file_that_a_client_does_not_take_is_told_as_such(tmp_path: Path) -> None:
    pem = {"ssl_truststore_type": "PEM", "ssl_truststore_certificates": "none"}
    addresses = servers(tmp_path, security_protocol="SSL", sasl_mechanism=None, sasl_jaas_config=None, **pem)
    with pytest.raises(ConfigError, match=rf"does not take a setting of {addresses.client_file}"):
        Broker(addresses).topics()


def store(folder: Path, certificates: Path, kind: str) -> Path:
    """A truststore as Java's own tool makes it."""
    path = folder / f"trust.{kind.lower()}"
    options = ["-noprompt", "-alias", "ca", "-storetype", kind, "-storepass", "changeit"]
    command = [str(java_home() / "bin" / "keytool"), "-importcert", "-file", str(certificates / "ca.pem")]
    subprocess.run([*command, "-keystore", str(path), *options], check=True, capture_output=True)
    return path


def test_a_truststore_of_keytool_is_unpacked_for_python(tmp_path: Path, certificates: Path) -> None:
    options = {
        "ssl_truststore_type": "PKCS12",
        "ssl_truststore_location": str(store(tmp_path, certificates, "PKCS12")),
        "ssl_truststore_password": "changeit",
    }
    settings = for_librdkafka(servers(tmp_path, **options))
    assert settings["ssl.ca.pem"].split() == (certificates / "ca.pem").read_text().split()
    confluent_kafka.Producer(settings).flush(0)
    with pytest.raises(ConfigError, match=r"ssl\.truststore\.password is wrong"):
        for_librdkafka(servers(tmp_path, **options | {"ssl_truststore_password": "other"}))


def test_a_jks_store_is_refused_with_the_command_that_converts_it(tmp_path: Path, certificates: Path) -> None:
    addresses = servers(tmp_path, ssl_truststore_location=str(store(tmp_path, certificates, "JKS")))
    with pytest.raises(ConfigError, match=r"keytool -importkeystore .*trust\.jks .*trust\.p12 -deststoretype PKCS12"):
        for_librdkafka(addresses)


def test_spark_gets_no_value_of_the_file(tmp_path: Path) -> None:
    addresses = servers(tmp_path)
    options = for_spark(addresses)
    assert options["kafka.sasl.jaas.config"] == f"${{file:{addresses.client_file}:sasl.jaas.config}}"
    assert {name.removeprefix("kafka.") for name in options} == {
        *SCRAM,
        "config.providers",
        "config.providers.file.class",
    }
    assert 'password="p"' not in str(options)


def test_without_a_file_nothing_is_added() -> None:
    assert for_librdkafka("kafka:9092") == for_spark("kafka:9092") == for_spark(Servers("kafka:9092")) == {}


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"sasl_mechanism": "GSSAPI"}, r"sasl\.mechanism=GSSAPI\. Set it to one of SCRAM-SHA-512"),
        ({"security_protocol": None}, r"no security\.protocol\. Set it to one of PLAINTEXT"),
        ({"sasl_mechanisms": "PLAIN"}, r"unknown setting sasl\.mechanisms\. Did you mean sasl\.mechanism\?"),
        ({"sasl_jaas_config": "username=a"}, r"malformed: .*Correct it in"),
        ({"sasl_jaas_config": 'a.B required username="a";'}, "names no password, which SCRAM-SHA-512 needs"),
        ({"sasl_mechanism": "OAUTHBEARER"}, r"no sasl\.oauthbearer\.token\.endpoint\.url.*Add the line"),
        ({"ssl_truststore_location": "/no/ca.pem"}, "names /no/ca.pem, which cannot be read on this host"),
        ({"ssl_truststore_location": __file__, "ssl_truststore_type": "PKCS12"}, r"cannot be read .* not such a file"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, settings: dict[str, str | None], match: str) -> None:
    with pytest.raises(ConfigError, match=match) as refused:
        for_librdkafka(servers(tmp_path, **settings))
    assert '"p"' not in str(refused.value)


def test_certificates_of_another_type_are_refused_with_their_type(tmp_path: Path, certificates: Path) -> None:
    with pytest.raises(ConfigError, match=r"contains PEM, but ssl\.truststore\.type is JKS\. Set .*=PEM there"):
        for_librdkafka(servers(tmp_path, ssl_truststore_location=str(certificates / "ca.pem")))


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o620, 0o601])
def test_a_file_that_others_can_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigError, match=rf"has mode {mode:04o}.* chmod 600 .*client\.properties"):
        for_librdkafka(servers(tmp_path, mode))


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o640])
def test_a_file_that_only_owner_and_group_can_read_is_accepted(tmp_path: Path, mode: int) -> None:
    assert for_librdkafka(servers(tmp_path, mode))


@pytest.mark.parametrize("path", ["client.properties", "/a:b", "/a}"])
def test_a_path_that_another_process_would_resolve_differently_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="Set it to an absolute path"):
        for_librdkafka(Servers("kafka:9093", path))


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"KAPPA_KAFKA_CLIENT_FILE names /no/file, .*: ls -l /no/file"):
        for_spark(Servers("kafka:9093", "/no/file"))


def test_addresses_keep_their_file_in_settings_copies_and_other_processes(tmp_path: Path) -> None:
    config = Config.from_env({"KAPPA_HOME": str(tmp_path), "KAPPA_KAFKA_CLIENT_FILE": "/c"})
    for copied in (config, Config.from_env(config.to_env()), pickle.loads(pickle.dumps(config))):
        assert isinstance(copied.bootstrap_servers, Servers)
        assert (copied.bootstrap_servers, copied.bootstrap_servers.client_file) == ("127.0.0.1:9092", "/c")
    assert tool_options(config.bootstrap_servers) == "--bootstrap-server 127.0.0.1:9092 --command-config /c"


def test_every_client_of_kafka_logs_in() -> None:
    missing = []
    for path in INCLUDE.rglob("*.py"):
        text = path.read_text()
        readers = len(re.findall(r'format\("kafka"\)', text)) - len(re.findall(r"\.options\(\*\*for_spark\(", text))
        arguments = re.findall(r"(?<![\w.])(?:Consumer|Producer|AdminClient)\(\s*(\w+)", text)
        others = [word for word in arguments if word not in ("client_settings", "producer_settings", "settings")]
        if readers or others:
            missing.append(f"{path.relative_to(INCLUDE)}: {readers} readers of Spark, {others}")
    assert missing == []
