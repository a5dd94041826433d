"""The settings file of a repository: which one counts, what it may say, and that no child process reads another one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kappa.cli import app
from kappa.config import Config, origins, settings
from kappa.errors import ConfigError, UsageError
from kappa.starters import StarterShape, starter
from kappa_local import doctor

INCLUDE = Path(__file__).resolve().parents[1] / "include"
SECRETS = {"mask_key", "webhook_url"}

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes the file of a repository, in whose subfolder the process works."""
    (tmp_path / "dags" / "more").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "dags" / "more")

    def file(text: str) -> Path:
        (tmp_path / "kappa.toml").write_text(text)
        return tmp_path / "kappa.toml"

    return file


def line(name: str, value: object) -> str:
    """A setting as it is written in the file."""
    if isinstance(value, dict):
        return f"{name} = {{{', '.join(f'{json.dumps(key)} = {json.dumps(item)}' for key, item in value.items())}}}"
    return f"{name} = {json.dumps(value if isinstance(value, int | float | str) else str(value))}"


def test_variables_go_over_the_file_over_the_stack_over_defaults(write: Write, tmp_path: Path) -> None:
    file = write('lake = "/file"\nbootstrap_servers = "file:1"\nslice_records = 7\nhome = "here"')
    (tmp_path / "here").mkdir()
    stack = {"lake": "/stack", "bootstrap_servers": "stack:1", "slice_records": "1", "spark_master": "local[3]"}
    (tmp_path / "here" / "stack.json").write_text(json.dumps(stack))

    config = Config.from_env({"KAPPA_LAKE": "/variable"})

    assert (config.lake, config.bootstrap_servers, config.slice_records) == ("/variable", "file:1", 7)
    assert (config.spark_master, config.metrics, config.home) == ("local[3]", "", tmp_path / "here")
    stack_file = str(tmp_path / "here" / "stack.json")
    assert origins({"KAPPA_LAKE": "/variable"}) == {
        "lake": "the environment",
        **dict.fromkeys(("bootstrap_servers", "slice_records", "home"), str(file)),
        "spark_master": stack_file,
    }


def test_the_nearest_file_above_the_working_directory_counts(write: Write, tmp_path: Path) -> None:
    write("slice_records = 1")
    assert Config.from_env({}).slice_records == 1
    (tmp_path / "dags" / "kappa.toml").write_text("slice_records = 2")
    assert Config.from_env({}).slice_records == 2
    (tmp_path / "dags" / "more" / "kappa.toml").mkdir()  # a folder is not a settings file
    assert Config.from_env({}).slice_records == 2


def test_a_variable_names_another_file_or_none(write: Write, tmp_path: Path) -> None:
    write("slice_records = 1")
    (tmp_path / "dags" / "other.toml").write_text("slice_records = 3")
    assert Config.from_env({"KAPPA_SETTINGS": "../other.toml"}).slice_records == 3
    none = Config.from_env({"KAPPA_SETTINGS": ""})
    assert (none.slice_records, none.home) == (500_000, Path.cwd() / ".kappa")


def test_paths_in_the_file_begin_in_its_folder(write: Write, tmp_path: Path) -> None:
    names = ("webhook_url_file", "kafka_client_file", "lake_client_file")
    write("\n".join(line(name, f"of/{name}") for name in ("lake", "topologies", "home", "cache", *names)))
    config = Config.from_env({})
    assert config.lake == str(tmp_path / "of" / "lake")
    assert (config.topologies, config.home, config.cache) == tuple(
        tmp_path / "of" / name for name in ("topologies", "home", "cache")
    )
    assert [getattr(config, name) for name in names] == [str(tmp_path / "of" / name) for name in names]


def test_addresses_empty_names_and_the_users_own_folder_are_no_paths_of_the_file(write: Write) -> None:
    write('lake = "s3://lakes/orders"\nkafka_client_file = ""\ncache = "~/jars"')
    config = Config.from_env({})
    assert (config.lake, config.kafka_client_file, config.cache) == ("s3://lakes/orders", "", Path.home() / "jars")


@pytest.mark.parametrize("name", ["lake", "topologies", "home", "cache", "webhook_url_file", "kafka_client_file"])
def test_a_path_in_the_home_of_a_user_who_has_none_is_refused(write: Write, name: str) -> None:
    write(line(name, "~nobody-here/kappa"))
    with pytest.raises(ConfigError, match=r"^~nobody-here/kappa begins in the home of a user who has none\. Set HOME"):
        Config.from_env({})
    with pytest.raises(ConfigError, match="begins in the home of a user who has none"):
        Config.from_env({"KAPPA_SETTINGS": "~nobody-here/kappa.toml"})


def test_defaults_are_beside_the_file_or_below_the_working_directory(write: Write, tmp_path: Path) -> None:
    write("")
    config = Config.from_env({})
    assert (config.home, config.lake) == (tmp_path / ".kappa", str(tmp_path / ".kappa" / "lake"))
    assert config.topologies == tmp_path / "include" / "topologies"
    (tmp_path / "kappa.toml").unlink()
    assert Config.from_env({}).topologies == Path.cwd() / "include" / "topologies"


def test_each_setting_but_a_secret_stands_in_the_file_in_its_own_type(write: Write, tmp_path: Path) -> None:
    config = Config.from_env({"KAPPA_SPARK_CONF": '{"a.b": "c"}', "KAPPA_METRICS": "0", "KAPPA_HOME": str(tmp_path)})
    names = {item.name for item in settings()} - SECRETS
    write("\n".join(line(name, getattr(config, name)) for name in sorted(names)))
    assert Config.from_env({}) == config
    assert set(origins({})) == names


def test_names_with_dots_need_no_quotes_in_a_table(write: Write) -> None:
    write('[spark_conf]\nspark.driver.memory = "6g"\n"spark.ui.enabled" = true\nspark.sql.shuffle.partitions = 4')
    assert Config.from_env({}).spark_conf == {
        "spark.driver.memory": "6g",
        "spark.ui.enabled": "true",
        "spark.sql.shuffle.partitions": "4",
    }


def test_a_topic_or_a_pattern_in_quotes_has_settings_of_its_own(write: Write) -> None:
    write(
        '[topic_settings]\nretention.ms = ""\n"max.message.bytes" = 1048588\n'
        '"kappa.*.changelog" = {segment.ms = 5, partitions = 6}\n'
        '"secret?" = {segment.ms = 7}\n'
        '[topic_settings."loyalty.e0001"]\nretention.ms = "9"\n"cleanup.policy" = "compact"'
    )
    config = Config.from_env({})
    assert config.topic_settings == {
        "retention.ms": "",
        "max.message.bytes": "1048588",
        "kappa.*.changelog": {"segment.ms": "5", "partitions": "6"},
        "secret?": {"segment.ms": "7"},
        "loyalty.e0001": {"retention.ms": "9", "cleanup.policy": "compact"},
    }
    assert Config.from_env(config.to_env()).topic_settings == config.topic_settings


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ('slice_records = "100_000"', "slice_records = 100000"),
        ('slice_records = "many"', "slice_records = 500000"),
        ("slice_records = 1.5", "slice_records = 500000"),
        ("slice_records = true", "slice_records = 500000"),
        ('trigger_seconds = "2"', "trigger_seconds = 2.0"),
        ("metrics = 9464", 'metrics = "9464"'),
        ('bootstrap_servers = ["a:1", "b:2"]', 'bootstrap_servers = "a:1,b:2"'),
        ("topologies = 1", 'topologies = "1"'),
        ('spark_conf = \'{"spark.ssl.keyPassword": "s3cret"}\'', 'spark_conf = {"name" = "value"}'),
        ("[topic_settings]\na = [1, 2]", 'topic_settings = {"a" = "1,2"}'),
        ('[topic_settings]\n"a.*" = {b = [1, 2]}', 'topic_settings."a.*" = {"b" = "1,2"}'),
    ],
)
def test_a_value_of_another_type_is_refused_with_the_line_to_write(write: Write, text: str, instead: str) -> None:
    file = write(text)
    with pytest.raises(ConfigError, match=rf"^{file} has ") as error:
        Config.from_env({})
    assert str(error.value).endswith(f" Write: {instead}") and "s3cret" not in str(error.value)
    write(instead)
    Config.from_env({})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('lak = "x"', "has the unknown setting lak. Did you mean lake?"),
        ('KAPPA_LAKE = "x"', "has the unknown setting KAPPA_LAKE. Did you mean lake?"),
        ("[kafka]\n", "has the unknown setting kafka. "),
        ("attempts = 7", "has attempts, which is not a setting any more: a slice is always tried 3 times."),
        ('[spark_conf]\na = "b"\nlake = "x"', "has lake in the table spark_conf"),
        ("lake", "is not TOML: Expected '=' after a key in a key/value pair (at end of document)."),
        ('metrics = "host"', "metrics='host' is neither a port nor address:port."),
        (
            "[topic_settings]\npartitions = 0",
            'topic_settings={"partitions": 0} has 0 for partitions, which is a number',
        ),
        ('approvals_from = "anyone"', "approvals_from='anyone' is neither airflow nor empty."),
    ],
)
def test_a_mistake_names_the_file_and_the_key(write: Write, text: str, reason: str) -> None:
    file = write(text)
    with pytest.raises(ConfigError, match=rf"^{file}:? {re.escape(reason)}"):
        Config.from_env({})


@pytest.mark.parametrize("path", ["gs://lakes/a", "ftp://host/a", "s3://lakes", "s3://L/a", "file://host/a", "a|b"])
def test_a_lake_of_the_file_that_is_refused_is_to_be_set_there(write: Write, path: str) -> None:
    file = write(line("lake", path))
    with pytest.raises(ConfigError, match=rf"[Ss]et lake in {file} to ") as error:
        Config.from_env({})
    assert "KAPPA_LAKE" not in str(error.value)


def test_a_mistake_in_the_file_of_a_stack_names_it_and_the_key(write: Write, tmp_path: Path) -> None:
    write('home = "here"')
    (tmp_path / "here").mkdir()
    stack = tmp_path / "here" / "stack.json"
    for name, value, reason in (
        ("slice_records", "many", "slice_records='many' is not a valid int: "),
        ("lak", "x", "lak. Did you mean lake?"),
        ("attempts", "7", "attempts is not a setting any more: "),
    ):
        stack.write_text(json.dumps({name: value}))
        with pytest.raises(ConfigError, match=re.escape(f"{stack}: {reason}")):
            Config.from_env({})


@pytest.mark.parametrize(
    ("text", "variable"),
    [
        ('mask_key = "s3cret"', "KAPPA_MASK_KEY"),
        ('webhook_url = "https://hooks/s3cret"', "KAPPA_WEBHOOK_URL"),
        ('schema_registry = "http://a:1,http://user:s3cret@b:1"', "KAPPA_SCHEMA_REGISTRY"),
        ('[spark_conf]\nspark.ssl.keyPassword = "s3cret"', "KAPPA_SPARK_CONF"),
        ('[mask_key]\nvalue = "s3cret"', "KAPPA_MASK_KEY"),
        ('webhook_url = {url = "https://hooks/s3cret"}', "KAPPA_WEBHOOK_URL"),
        ('schema_registry = {url = "http://s3cret@a:1"}', "KAPPA_SCHEMA_REGISTRY"),
    ],
)
def test_a_secret_in_the_file_is_refused_and_the_variable_named(write: Write, text: str, variable: str) -> None:
    file = write(text)
    with pytest.raises(ConfigError, match=rf"^{file} has .* set the variable: export {variable}=…$") as error:
        Config.from_env({})
    assert "s3cret" not in str(error.value) and "s3cret" not in str(error.value.data)


#: Of more bits than TOML has, with more digits than Python reads, and in hexadecimal, where it reads all.
LONG_NUMBERS = {"decimal": "9" * 400, "unread": "9" * 5000, "hexadecimal": "0x" + "f" * 6000}
LONG_TEXT = "x" * 70_000


@pytest.mark.parametrize("number", LONG_NUMBERS)
def test_a_number_of_more_than_64_bits_is_refused_wherever_it_is(write: Write, number: str) -> None:
    digits = LONG_NUMBERS[number]
    for text in ("slice_records = {}", "trigger_seconds = {}", "lake = [{}]", "no = {}", "[spark_conf]\na.b = {}"):
        file = write(text.format(digits))
        with pytest.raises(ConfigError, match=rf"^{file} is not TOML: a whole number has more than 64 bits\. Correct"):
            Config.from_env({})


def test_a_file_that_nests_too_deep_is_refused(write: Write) -> None:
    for text in ("a = " + "[" * 5000, "[spark_conf]\n" + "a." * 2000 + "b = 1"):
        file = write(text)
        with pytest.raises(ConfigError, match=rf"^{file} is not TOML: it nests too deep\. Correct it: edit "):
            Config.from_env({})


@pytest.mark.parametrize("name", sorted({item.name for item in settings()} - SECRETS))
def test_no_message_repeats_a_long_value(write: Write, name: str) -> None:
    variables = [LONG_TEXT, "9" * 5000, "[" * 5000, '{"a": 1e999}']
    for text in (f'"{LONG_TEXT}"', f'["{LONG_TEXT}"]', f'{{"{LONG_TEXT}" = [1]}}', *map(json.dumps, variables)):
        write(f"{name} = {text}")
        assert len(refusal({})) < 1_100
    for text in variables:
        assert len(refusal({Config.SETTINGS: "", f"KAPPA_{name.upper()}": text})) < 1_100


def refusal(environ: dict[str, str]) -> str:
    """The message of settings that are refused; empty where they are taken."""
    try:
        Config.from_env(environ)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "text", ["3", "[]", "null", "[" * 5000, *(f'{{"trigger_seconds": {value}}}' for value in ("9" * 400, "[1]", "{}"))]
)
def test_a_file_of_a_stack_that_has_no_settings_is_refused(write: Write, tmp_path: Path, text: str) -> None:
    write('home = "here"')
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "stack.json").write_text(text)
    with pytest.raises(ConfigError, match=r"stack\.json(: trigger_seconds| cannot be read: it is not a JSON object)"):
        Config.from_env({})


def test_a_registry_without_a_login_and_a_file_with_a_secret_are_settings(write: Write) -> None:
    write('schema_registry = "http://a:1,http://b:1"\nwebhook_url_file = "/run/secrets/hook"')
    assert Config.from_env({}).schema_registry == "http://a:1,http://b:1"


@pytest.mark.parametrize(("name", "reason"), [("gone.toml", "No such file"), ("dags", "Is a directory")])
def test_a_file_that_a_variable_names_and_cannot_be_read_is_refused(
    write: Write, tmp_path: Path, name: str, reason: str
) -> None:
    write("slice_records = 1")
    path = tmp_path / name
    with pytest.raises(ConfigError, match=rf"^KAPPA_SETTINGS names {path}, which cannot be read: {reason}"):
        Config.from_env({"KAPPA_SETTINGS": str(path)})


def test_a_file_that_begins_with_a_mark_of_its_encoding_is_read(write: Write) -> None:
    write("").write_bytes(b"\xef\xbb\xbfslice_records = 7")
    assert Config.from_env({}).slice_records == 7


def test_a_file_that_is_not_text_is_refused(write: Write) -> None:
    write("").write_bytes(b'lake = "\xff"')
    with pytest.raises(ConfigError, match=r"kappa\.toml is not TOML: it is not text in UTF-8\."):
        Config.from_env({})


def test_a_child_process_has_the_settings_of_its_parent_below_any_file(write: Write, tmp_path: Path) -> None:
    parent = Config.from_env({"KAPPA_HOME": str(tmp_path / "home")})
    others = {"slice_records": 1, "metrics": "0", "launcher": "elsewhere", "home": "x", "spark_conf": {"a": "b"}}
    for text in ("\n".join(line(name, value) for name, value in others.items()), "no TOML"):
        file = write(text)
        assert Config.from_env(parent.to_env()) == parent
        environ = {**os.environ, "KAPPA_SETTINGS": str(file), **parent.to_env(), "PYTHONPATH": str(INCLUDE)}
        program = "from kappa.config import Config; print(Config.from_env().to_env())"
        child = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
        assert child.stdout == f"{parent.to_env()}\n"


def test_a_command_in_any_folder_of_a_repository_has_its_topologies(write: Write, tmp_path: Path) -> None:
    write('topologies = "streams"')
    (tmp_path / "streams").mkdir()
    (tmp_path / "streams" / "orders.py").write_text(starter("team.orders", StarterShape.STATELESS, folder="").topology)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("KAPPA_")}
    command = [sys.executable, "-m", "kappa", "topologies", "--json"]
    run = subprocess.run(
        command, env={**environ, "PYTHONPATH": str(INCLUDE)}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert "team.orders" in run.stdout


def test_a_command_outside_of_a_repository_names_the_folder_and_the_way_in(tmp_path: Path, write: Write) -> None:
    result = CliRunner().invoke(app, ["topologies"])
    assert isinstance(result.exception, UsageError)
    assert str(result.exception) == (
        f"There is no folder {Path.cwd()}/include/topologies, in which topologies would be. Work in a repository, or "
        "name its settings file: export KAPPA_SETTINGS=<path>/kappa.toml"
    )


def test_doctor_begins_with_the_settings_and_their_origins(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write('lake = "/lakes/orders"\nslice_records = 500_000\n[spark_conf]\nspark.driver.memory = "6g"')
    monkeypatch.setattr(doctor, "proofs", lambda config: iter(()))
    environ = {"KAPPA_MASK_KEY": "s3cret-of-the-team", "KAPPA_BOOTSTRAP_SERVERS": "kafka:9092"}
    shown = CliRunner().invoke(app, ["doctor"], env=environ)
    assert shown.exit_code == 0, shown.output
    lines = [text.removeprefix("ok       settings: ").strip() for text in shown.output.splitlines()]
    assert lines == [
        f"lake = /lakes/orders, from {file}",
        "bootstrap_servers = kafka:9092, from the environment",
        f"topologies = {file.parent}/include/topologies, from the default",
        f"home = {file.parent}/.kappa, from the default",
        f"cache = {Path.home()}/.cache/kappa, from the default",
        f"spark_conf = spark.driver.memory, from {file}",
        "mask_key = (a secret), from the environment",
    ]
    (proof,) = json.loads(CliRunner().invoke(app, ["doctor", "--json"], env=environ).output)
    assert proof[:2] == ["settings", True] and proof[2].splitlines() == lines


@pytest.mark.parametrize(
    "line",
    [
        '"spark.driver.extraJavaOptions" = "-Djavax.net.ssl.trustStorePassword=changeit"',
        '"spark.executorEnv.API_TOKEN" = "abc"',
        '"spark.hadoop.fs.s3a.server-side-encryption.key" = "abc"',
        '"spark.hadoop.fs.s3a.encryption.key" = "abc"',
        '"spark.hadoop.fs.azure.account.key.store" = "abc"',
        '"spark.executorEnv.API_KEY" = "abc"',
        '"spark.registry.credentials" = "abc"',
        '"spark.executorEnv.HTTPS_PROXY" = "http://me:abc@proxy:8080"',
    ],
)
def test_a_secret_of_spark_is_refused_and_not_shown(write: Write, line: str) -> None:
    write(f"[spark_conf]\n{line}")
    with pytest.raises(ConfigError, match="a secret does not belong in a file that is committed") as error:
        Config.from_env({})
    assert "changeit" not in str(error.value) and "abc" not in str(error.value)
