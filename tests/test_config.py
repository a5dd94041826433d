"""Settings: from the environment, then the stack's file, then defaults; unknown ones are errors."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from kappa.config import Config, settings
from kappa.errors import ConfigError


def test_from_env_reads_back_the_result_of_to_env(tmp_path: Path) -> None:
    config = Config.from_env(
        {"KAPPA_HOME": str(tmp_path), "KAPPA_SLICE_RECORDS": "7", "KAPPA_SPARK_CONF": '{"a": "b"}'}
    )
    assert (config.slice_records, config.spark_conf) == (7, {"a": "b"})
    assert Config.from_env(config.to_env()) == config


def test_the_login_of_an_embedded_broker_is_for_that_broker_alone(tmp_path: Path) -> None:
    written = {"bootstrap_servers": "127.0.0.1:1", "kafka_client_file": "/logins/kappa.properties"}
    (tmp_path / "stack.json").write_text(json.dumps(written))
    here = {"KAPPA_HOME": str(tmp_path)}
    assert Config.from_env(here).kafka_client_file == "/logins/kappa.properties"
    elsewhere = Config.from_env({**here, "KAPPA_BOOTSTRAP_SERVERS": "prod:9092"})
    assert elsewhere.kafka_client_file == ""
    assert Config.from_env(elsewhere.to_env()) == elsewhere


@pytest.mark.parametrize("text", ["~/kappa", " ~/kappa\r"])
def test_a_home_below_that_of_a_user_has_the_lake_too(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    config = Config.from_env({"KAPPA_HOME": text, "KAPPA_TOPOLOGIES": f" {tmp_path}/topologies "})
    assert (config.home, config.lake) == (tmp_path / "kappa", f"{tmp_path}/kappa/lake")
    assert config.topologies == tmp_path / "topologies"


def test_what_kappa_up_wrote_and_lost_is_named(tmp_path: Path) -> None:
    (tmp_path / "stack.json").touch()
    with pytest.raises(ConfigError, match=r"stack\.json cannot be read: it is not a JSON object.* kappa up"):
        Config.from_env({"KAPPA_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    "text", ["{'spark.ssl.keyPassword': 'hunter2'}", '["hunter2"]', '{"a": {"b": "hunter2"}}', '{"a": null}']
)
def test_a_table_that_is_none_is_refused_without_its_values(text: str) -> None:
    with pytest.raises(ConfigError, match="KAPPA_SPARK_CONF is not a table in JSON") as refused:
        Config.from_env({"KAPPA_SPARK_CONF": text})
    assert "hunter2" not in f"{refused.value} {vars(refused.value)}"


def test_an_unknown_setting_names_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match="Did you mean KAPPA_LAKE"):
        Config.from_env({"KAPPA_LAK": "x"})


@pytest.mark.parametrize(
    ("name", "successor"),
    [
        ("KAPPA_METRICS_PORT", "KAPPA_METRICS takes"),
        ("KAPPA_HEARTBEAT_SECONDS", "a seventh of KAPPA_STALE_SECONDS"),
        ("KAPPA_ATTEMPTS", "always tried 3 times"),
    ],
)
def test_an_earlier_setting_names_its_replacement(name: str, successor: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is not a setting any more: .*{successor}"):
        Config.from_env({name: "1"})


def test_internal_figures_reach_the_processes_of_a_configuration() -> None:
    config = replace(Config.from_env({}), attempts=7, slow_minutes=0.1)
    assert config.to_env()["KAPPA_INTERNALS"] == '{"attempts": 7, "slow_minutes": 0.1}'
    assert Config.from_env(config.to_env()) == config


def test_heartbeats_and_slow_lines_come_well_before_dead_and_stuck() -> None:
    config = Config.from_env({"KAPPA_STALE_SECONDS": "7", "KAPPA_STUCK_MINUTES": "4"})
    assert (config.beat_seconds, config.slow_seconds) == (1.0, 60.0)
    assert replace(config, heartbeat_seconds=0.5).beat_seconds == 0.5


@pytest.mark.parametrize(
    ("setting", "endpoint"),
    [("", None), ("0", ("127.0.0.1", 0)), ("0.0.0.0:9464", ("0.0.0.0", 9464)), ("[::1]:1", ("::1", 1))],
)
def test_a_metrics_endpoint_is_a_port_or_an_address_with_a_port(setting: str, endpoint: object) -> None:
    assert Config.from_env({"KAPPA_METRICS": setting}).metrics_endpoint == endpoint


@pytest.mark.parametrize(
    ("name", "value"),
    [("KAPPA_METRICS", "host"), ("KAPPA_SLICE_RECORDS", "many"), ("KAPPA_SPARK_CONF", "{"), ("KAPPA_SPARK_CONF", "[]")],
)
def test_a_malformed_value_is_named(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Config.from_env({name: value})


DURATIONS = [item.name for item in settings() if item.name.endswith(("_seconds", "_minutes", "_hours"))]


@pytest.mark.parametrize("name", DURATIONS)
@pytest.mark.parametrize("value", ["-1", "-0.001", "nan", "inf", "-inf", "1e12"])
def test_what_is_not_a_duration_is_refused(name: str, value: str, tmp_path: Path) -> None:
    file = tmp_path / "kappa.toml"
    file.write_text(f"{name} = {value}")
    for variables, place in (
        ({f"KAPPA_{name.upper()}": value}, f"KAPPA_{name.upper()}"),
        ({"KAPPA_SETTINGS": str(file)}, f"{file}: {name}"),
    ):
        with pytest.raises(ConfigError, match=f"{place}=.* is not a duration: .* Set it to such a number"):
            Config.from_env(variables)


@pytest.mark.parametrize("name", DURATIONS)
def test_the_longest_and_the_shortest_duration_are_durations(name: str) -> None:
    most = {"seconds": 31_536_000_000, "minutes": 525_600_000, "hours": 8_760_000}
    unit = name.rpartition("_")[2]
    for value in (1.0 if name in ("stale_seconds", "handover_seconds") else 0.0, most[unit]):
        config = Config.from_env({f"KAPPA_{name.upper()}": str(value)})
        assert datetime.now(UTC) - timedelta(**{unit: getattr(config, name)}) <= datetime.now(UTC)
    with pytest.raises(ConfigError):
        Config.from_env({f"KAPPA_{name.upper()}": str(most[unit] + 1)})


def test_the_stack_file_is_read_and_the_environment_wins(tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text(json.dumps({"bootstrap_servers": "stack:1", "lake": "/stack"}))
    config = Config.from_env({"KAPPA_HOME": str(tmp_path), "KAPPA_LAKE": "/mine"})
    assert (config.bootstrap_servers, config.lake) == ("stack:1", "/mine")


def test_a_relative_lake_is_below_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = Config.from_env({"KAPPA_LAKE": "data/lake"})
    assert config.lake == str(tmp_path / "data" / "lake")
    monkeypatch.chdir("/")  # where a driver works
    assert Config.from_env(config.to_env()).lake == config.lake
    assert Config.from_env({"KAPPA_LAKE": "s3://bucket/lake"}).lake == "s3://bucket/lake"


@pytest.mark.parametrize("name", ["a[b", "a]b", "a^b", "a|b", "a\\b", "a*b", "a{b}", "a%20b", "a\nb"])
def test_a_lake_path_that_delta_would_misread_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="Move it, or set KAPPA_LAKE"):
        Config.from_env({"KAPPA_LAKE": f"/data/{name}/lake"})


@pytest.mark.parametrize("name", ["my lake", "jürgen", "a#b", "100%", "a?b", "名前"])
def test_a_lake_may_have_blanks_and_letters_of_every_language_in_its_path(name: str) -> None:
    assert Config.from_env({"KAPPA_LAKE": f"/data/{name}/lake"}).lake == f"/data/{name}/lake"


def test_settings_of_new_topics_are_for_all_or_for_a_pattern_and_survive_the_environment() -> None:
    text = '{"retention.ms": 604800000, "preallocate": true, "kappa.*.changelog": {"partitions": 6, "segment.ms": ""}}'
    config = Config.from_env({"KAPPA_TOPIC_SETTINGS": text})
    assert config.topic_settings == {
        "retention.ms": "604800000",
        "preallocate": "true",
        "kappa.*.changelog": {"partitions": "6", "segment.ms": ""},
    }
    assert Config.from_env(config.to_env()) == config


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "is not JSON"),
        ("[]", "is not an object of JSON"),
        ('{"retention.ms": null}', "has null for retention.ms, which is neither a text nor a number"),
        ('{"kappa.*": {"segment.ms": {}}}', "has {} for segment.ms"),
        ('{"kappa.*": {"partitions": 0}}', "has 0 for partitions, which is a number from 1 on"),
        ('{"replication.factor": "all"}', "has all for replication.factor"),
        ('{"retention.ms": "7d"}', "has 7d for retention.ms, which is a whole number of milliseconds"),
        ('{"kappa.*": {"max.message.bytes": 1e9}}', "has 1000000000.0 for max.message.bytes, which is a whole number"),
    ],
)
def test_wrong_settings_of_new_topics_are_refused_with_an_example(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match="Write settings of all topics") as refused:
        Config.from_env({"KAPPA_TOPIC_SETTINGS": text})
    assert f"KAPPA_TOPIC_SETTINGS={text} {why}" in str(refused.value)


# Empty variables


@pytest.mark.parametrize(
    "name", ["LAKE", "HOME", "CACHE", "TOPOLOGIES", "BOOTSTRAP_SERVERS", "SPARK_CONF", "SLICE_RECORDS"]
)
def test_a_variable_that_is_empty_counts_as_not_set(name: str) -> None:
    assert Config.from_env({f"KAPPA_{name}": ""}) == Config.from_env({})


def test_an_empty_variable_does_not_go_over_the_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "kappa.toml"
    file.write_text('lake = "s3://lakes/orders"\nkafka_client_file = "logins/kafka.properties"\n')
    empty = {"KAPPA_LAKE": "", "KAPPA_KAFKA_CLIENT_FILE": "", "KAPPA_SETTINGS": str(file)}
    config = Config.from_env(empty)
    assert (config.lake, config.kafka_client_file) == ("s3://lakes/orders", str(tmp_path / "logins/kafka.properties"))


@pytest.mark.parametrize("text", ["", " ", "\\t\\r\\n"])
@pytest.mark.parametrize("name", ["lake", "home", "cache", "topologies", "bootstrap_servers", "launcher"])
def test_an_empty_value_of_the_file_is_refused_where_it_cannot_be_meant(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "kappa.toml").write_text(f'{name} = "{text}"\n')
    with pytest.raises(ConfigError, match=f"{name} is empty. Give it a value, or remove it"):
        Config.from_env({"KAPPA_SETTINGS": str(tmp_path / "kappa.toml")})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("LAUNCHER", "Elsewhere", "is neither here nor elsewhere"),
        ("SLICE_RECORDS", "0", "is not a number from 1 to 9223372036854775807"),
        ("SLICE_RECORDS", "1" * 400, "is not a number from 1 to"),
        ("SLICE_BYTES", "-1", "is not a number from 1"),
        ("THROTTLE_LAG", "-1", "is not a number from 0"),
        ("STALE_SECONDS", "0", "is not a number from 1"),
        ("HANDOVER_SECONDS", "0.5", "is not a number from 1"),
        ("WEBHOOK_URL_FILE", "hook", "is not a path that each process reads alike"),
        ("METRICS", "99999", "is neither a port nor address:port"),
        *(
            (
                "SCHEMA_REGISTRY",
                text,
                r"KAPPA_SCHEMA_REGISTRY is not a URL, or several separated by commas: each begins",
            )
            for text in ("registry:8081", "http://", "http://a:8081,", "http://a:8081,b:8081", "htp://a:8081", "x@y")
        ),
    ],
)
def test_a_value_without_a_meaning_is_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Config.from_env({f"KAPPA_{name}": value})


def test_addresses_of_brokers_may_have_blanks_between_them() -> None:
    assert Config.from_env({"KAPPA_BOOTSTRAP_SERVERS": "k-1:9092, k-2:9092"}).bootstrap_servers == "k-1:9092,k-2:9092"


#: A value of each setting that is a text.
TEXTS = {
    **{name: f"/srv/{name}" for name in ("lake", "topologies", "home", "cache", "environments", "webhook_url_file")},
    **{name: f"/logins/{name}" for name in ("kafka_client_file", "lake_client_file")},
    **{"bootstrap_servers": "kafka:9092", "spark_master": "local[2]", "schema_registry": "http://registry:8081"},
    **{"metrics": "9464", "launcher": "elsewhere", "approvals_from": "airflow", "image": "orders:7"},
    **{"mask_key": "a key of letters", "webhook_url": "https://hooks/1"},
}


def test_each_text_is_tried() -> None:
    assert TEXTS.keys() == {item.name for item in settings() if item.type in ("str", "Path")}


@pytest.mark.parametrize("name", sorted(TEXTS.keys() - {"mask_key"}))
def test_blanks_and_line_ends_around_a_value_are_not_a_part_of_it(name: str, tmp_path: Path) -> None:
    variable, file = f"KAPPA_{name.upper()}", tmp_path / "kappa.toml"
    plain = Config.from_env({variable: TEXTS[name]})
    assert Config.from_env({variable: f" {TEXTS[name]}\r\n"}) == plain
    if name != "webhook_url":  # a secret, which the file may not have
        file.write_text(f'{name} = "\\t{TEXTS[name]} "\n')
        config = Config.from_env({"KAPPA_SETTINGS": str(file)})
        assert getattr(config, name) == getattr(plain, name)
        assert Config.from_env(config.to_env()) == config


@pytest.mark.parametrize("quote", ["'", '"'])
@pytest.mark.parametrize("name", [*sorted(TEXTS.keys() - {"mask_key"}), "spark_conf", "slice_records"])
def test_a_value_in_quotes_that_nobody_took_off_is_refused(name: str, quote: str) -> None:
    value = f"{quote}{TEXTS.get(name, '7')}{quote}\r"
    with pytest.raises(
        ConfigError, match=rf"^KAPPA_{name.upper()} is in quotes, .* Write it without them\.$"
    ) as refused:
        Config.from_env({f"KAPPA_{name.upper()}": value})
    assert TEXTS.get(name, "7") not in f"{refused.value} {vars(refused.value)}"


def test_a_key_is_all_its_characters() -> None:
    for key in (" sixteen letters and blanks ", "'sixteen letters in quotes'"):
        assert Config.from_env({"KAPPA_MASK_KEY": key}).mask_key == key


@pytest.mark.parametrize("name", ["HOME", "CACHE", "TOPOLOGIES", "SETTINGS"])
@pytest.mark.parametrize("url", ["s3://lakes/kappa", "file:///srv/kappa", "https://me:secret@host/kappa"])
def test_a_url_is_not_a_folder_of_the_working_directory(name: str, url: str) -> None:
    with pytest.raises(
        ConfigError, match=r"is a URL where a path of this host belongs\. Write it from the root"
    ) as refused:
        Config.from_env({f"KAPPA_{name}": url})
    assert "secret" not in str(refused.value)
