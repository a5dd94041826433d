"""The rules of docker-compose.yaml. Containers are not run here: the file is read, and checked by the compose tool."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from support.compose import compose_tool, copied, permitted
from support.environments import ROOT

from kappa.cli import app
from kappa.config import Config, settings
from kappa.spark.jars import java_home
from kappa_airflow.pools import BACKFILLS
from kappa_local.airflow import COMPONENTS, ROLES

FILE = ROOT / "docker-compose.yaml"
TEXT = FILE.read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
PROFILES = {"prometheus": "metrics", "archiver": "archive", "kappa": "tools"}
#: Those that run once and end.
ONCE = {"airflow-init", "lake-init", "topics", "kappa"}
SECRETS = set(re.findall(r"^(\w+)=", (ROOT / "docker" / "env.example").read_text(), re.MULTILINE))


def test_the_composition_has_every_part():
    assert {"kafka", "postgres", "spark-master", "spark-worker-1", "spark-worker-2", "drivers"} <= set(SERVICES)
    assert {f"airflow-{name}" for name in COMPONENTS} <= set(SERVICES)


@pytest.mark.parametrize("name", sorted(set(SERVICES) - ONCE))
def test_a_lasting_service_has_a_health_check(name):
    assert SERVICES[name]["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_an_image_has_a_version(name):
    assert re.search(r":v?\d+\.\d+", SERVICES[name]["image"])


def test_built_images_start_from_a_version_and_the_lock():
    text = (ROOT / "docker" / "Dockerfile").read_text()
    assert len(re.findall(r"^FROM ", text, re.MULTILINE)) == 1
    assert re.search(r"^FROM python:3\.11\.\d+-", text, re.MULTILINE)
    assert "--requirement requirements.txt" in text


def test_every_file_that_the_image_copies_is_in_what_the_builder_gets():
    names = permitted((ROOT / ".dockerignore").read_text())
    copies = copied((ROOT / "docker" / "Dockerfile").read_text())
    assert len(copies) > 5
    assert copies <= names
    assert all((ROOT / name).exists() for name in names)


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_secret_has_no_default(name):
    for variable, value in SERVICES[name]["environment"].items():
        if re.search(r"PASSWORD$|SECRET|_KEY$|SQL_ALCHEMY_CONN", variable):
            assert re.search(r"\$\{\w+:\?", value), variable


def test_every_variable_is_required_and_listed():
    assert set(re.findall(r"\$\{(\w+)", TEXT)) == set(re.findall(r"\$\{(\w+):\?", TEXT)) == SECRETS


def test_the_python_path_is_set_once():
    assert TEXT.count("PYTHONPATH") == 1
    assert "PYTHONPATH" not in (ROOT / "docker" / "Dockerfile").read_text()
    assert SERVICES["drivers"]["environment"]["PYTHONPATH"] == "/opt/kappa/include"


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_port_is_published_on_loopback_only(name):
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


#: Those that open the lake; `topics` and the master of Spark do not.
OF_THE_LAKE = sorted(
    name
    for name, service in SERVICES.items()
    if "KAPPA_LAKE" in service["environment"] and name not in ("topics", "spark-master", "lake-init")
)


@pytest.mark.parametrize("name", OF_THE_LAKE)
def test_a_service_reaches_the_lake_by_the_client_file_that_is_there_when_it_starts(name):
    volume, folder = "lake-login", "/lake-login"
    assert f"{volume}:{folder}:ro" in SERVICES[name]["volumes"]
    config = Config.from_env({"KAPPA_HOME": "/x", **kappa_settings(name)})
    assert config.lake.startswith("s3://")
    assert str(Path(config.lake_client_file).parent) == folder
    assert SERVICES[name]["depends_on"]["lake-init"] == {"condition": "service_completed_successfully"}


def test_the_lake_is_on_no_volume_but_that_of_its_store():
    volumes = yaml.safe_load(TEXT)["volumes"]
    assert "lake" not in volumes and {"drivers", "airflow-scheduler", "spark-worker-1", "archiver"} <= set(OF_THE_LAKE)
    users = [
        name for name, service in SERVICES.items() if any("store:" in volume for volume in service.get("volumes", []))
    ]
    assert users == ["store"]
    writers = [name for name, service in SERVICES.items() if "lake-login:/lake-login" in service.get("volumes", [])]
    assert writers == ["lake-init"]
    assert "/lake-login" in (ROOT / "docker" / "Dockerfile").read_text(), "a volume takes the owner of what it covers"


def test_the_image_has_what_spark_needs_for_a_lake_on_s3():
    """No container needs the network to start."""
    text = (ROOT / "docker" / "Dockerfile").read_text()
    assert f"ensure_s3(Path('{SERVICES['drivers']['environment']['KAPPA_CACHE']}'))" in text


def test_airflow_has_a_user_per_role_like_kappa_up(tmp_path):
    env = SERVICES["airflow-init"]["environment"]
    assert env["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"] == ",".join(f"{role}:{role}" for role in ROLES)
    script = re.search(r"<<'PYTHON'\n(.*)^PYTHON", (ROOT / "docker" / "airflow-init").read_text(), re.M | re.S)
    environ = {f"AIRFLOW_{role.upper()}_PASSWORD": f"of {role}" for role in ROLES}
    assert environ.keys() <= env.keys()
    file = tmp_path / "passwords.json"
    environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"] = str(file)
    subprocess.run([sys.executable, "-c", script[1]], env=environ, check=True)
    assert json.loads(file.read_text()) == {role: f"of {role}" for role in ROLES}


def test_a_live_driver_and_a_replay_fit_the_cores_and_the_memory():
    """A standalone cluster gives an application all its cores: the second one would wait for ever."""
    conf = Config.from_env({"KAPPA_HOME": "/x", **SERVICES["drivers"]["environment"]}).spark_conf
    workers = [service["command"] for name, service in SERVICES.items() if name.startswith("spark-worker")]
    cores = [int(command[command.index("--cores") + 1]) for command in workers]
    memory = [int(command[command.index("--memory") + 1].removesuffix("g")) for command in workers]
    each = int(conf["spark.executor.cores"])
    assert 2 * int(conf["spark.cores.max"]) <= sum(cores)
    for has, gigabytes in zip(cores, memory, strict=True):
        assert has // each * int(conf["spark.executor.memory"].removesuffix("g")) <= gigabytes


def heap(service: str) -> float:
    """Of the driver of a Spark application that a service starts, in GB."""
    conf = Config.from_env({"KAPPA_HOME": "/x", **kappa_settings(service)}).spark_conf
    return float(conf.get("spark.driver.memory", "3g").removesuffix("g"))


def kappa_settings(service: str) -> dict[str, str]:
    return {name: value for name, value in SERVICES[service]["environment"].items() if name.startswith("KAPPA_")}


def gigabytes(service: str) -> float:
    return float(SERVICES[service]["mem_limit"].removesuffix("g"))


def test_simultaneous_processes_fit_the_memory_of_their_container():
    """A driver's heap, half a GB beside it, and its Python: 1.5 GB in a stream, 0.5 GB in a task."""
    assert 2 * (heap("drivers") + 0.5 + 1.5) + 0.5 <= gigabytes("drivers")
    tasks = int(SERVICES["airflow-scheduler"]["environment"]["AIRFLOW__CORE__PARALLELISM"])
    backfills = BACKFILLS.slots
    others = (tasks - backfills) * 0.2 + 1  # and the scheduler itself
    assert backfills * (heap("airflow-scheduler") + 0.5 + 0.5) + others <= gigabytes("airflow-scheduler")
    assert heap("kappa") < gigabytes("kappa") and heap("archiver") < gigabytes("archiver")


def test_the_health_check_of_the_broker_has_a_small_heap():
    words = SERVICES["kafka"]["healthcheck"]["test"]
    assert "KAFKA_HEAP_OPTS=-Xmx128m" in words[: words.index("--bootstrap-server")]


def test_notices_have_the_address_of_airflow():
    published = {port.split(":")[1] for port in SERVICES["airflow-api-server"]["ports"]}
    for name in ("airflow-scheduler", "airflow-triggerer"):
        assert SERVICES[name]["environment"]["AIRFLOW__API__BASE_URL"].rpartition(":")[2] in published


@pytest.fixture
def spark_of_root() -> Iterator[Path]:
    """Spark in a folder that its user may not write to, as an image has it whose packages root installed."""
    import pyspark

    place = Path(tempfile.mkdtemp(prefix="kappa-compose-"))
    for entry in Path(pyspark.__file__).parent.iterdir():
        (place / entry.name).symlink_to(entry)
    place.chmod(0o555)
    yield place
    place.chmod(0o755)
    shutil.rmtree(place)


def test_a_worker_starts_as_a_user_who_cannot_write_to_the_folder_of_spark(spark_of_root):
    worker = SERVICES["spark-worker-1"]
    place = Path(worker["environment"].get("SPARK_WORKER_DIR", spark_of_root / "work"))
    was_there = place.exists()
    command = [word if not word.startswith("spark://") else "spark://127.0.0.1:1" for word in worker["command"]]
    command[0] = str(spark_of_root / "bin" / command[0])
    if os.geteuid() == 0:  # without the right to pass over the modes of files root is a user like others
        command = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", *command]
    environ = {**os.environ, **worker["environment"], "SPARK_HOME": str(spark_of_root), "JAVA_HOME": str(java_home())}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            lines = []
            for line in process.stdout:
                lines.append(line)
                if "Connecting to master" in line:
                    break
            assert "Connecting to master" in lines[-1], "".join(lines)
            assert process.poll() is None and place.is_dir()
        finally:
            process.kill()
    if not was_there:
        shutil.rmtree(place)


@pytest.mark.parametrize("name", ["spark-worker-1", "spark-worker-2"])
def test_a_worker_removes_the_files_of_ended_applications(name):
    assert "-Dspark.worker.cleanup.enabled=true" in SERVICES[name]["environment"]["SPARK_WORKER_OPTS"]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_the_memory_of_a_service_is_limited(name):
    limit = int(SERVICES[name]["mem_limit"].removesuffix("g"))
    command = [str(word) for word in SERVICES[name].get("command", [])]
    if "--memory" in command:
        assert limit > int(command[command.index("--memory") + 1].removesuffix("g"))


def test_a_hanging_stream_makes_its_host_unhealthy():
    assert SERVICES["drivers"]["healthcheck"]["test"] == ["CMD", "kappa", "drivers", "--check"]


def test_topics_are_created_before_drivers_start_and_keep_everything():
    assert SERVICES["drivers"]["depends_on"]["topics"] == {"condition": "service_completed_successfully"}
    assert SERVICES["kafka"]["environment"]["KAFKA_LOG_RETENTION_MS"] == -1


def test_logs_of_drivers_outlive_their_container():
    home = SERVICES["drivers"]["environment"]["KAPPA_HOME"]
    assert f"drivers-home:{home}" in SERVICES["drivers"]["volumes"]
    assert home in (ROOT / "docker" / "Dockerfile").read_text(), "a volume takes the owner of what it covers"


COMMANDS = {
    name: [*service.get("entrypoint", []), *service["command"]][1:]
    for name, service in SERVICES.items()
    if [*service.get("entrypoint", []), *service.get("command", [])][:1] == ["kappa"]
}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_command_line_accepts_the_arguments_of_a_service(name):
    assert set(COMMANDS) == {"archiver", "drivers", "kappa", "topics"}
    words, command = list(COMMANDS[name]), typer.main.get_command(app)
    context = command.make_context("kappa", [], resilient_parsing=True)
    while hasattr(command, "resolve_command") and words != ["--help"]:
        _, command, words = command.resolve_command(context, words)
    if words != ["--help"]:
        command.make_context(name, words)


def test_drivers_have_a_host_of_their_own():
    assert "airflow" not in SERVICES["drivers"]["command"]
    assert not any(name.startswith("AIRFLOW") for name in SERVICES["drivers"]["environment"])


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_kappa_knows_each_of_its_settings(name):
    names = {f"KAPPA_{item.name.upper()}" for item in settings()}
    assert {key for key in SERVICES[name]["environment"] if key.startswith("KAPPA_")} <= names


@pytest.fixture(scope="module")
def compose() -> list[str]:
    """The command that shows the file as the compose tool reads it."""
    return [compose_tool(), "--file", str(FILE), "config"]


def environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in SECRETS} | more


def test_the_compose_tool_accepts_the_file(compose):
    environ = environment(**dict.fromkeys(SECRETS, "given"), COMPOSE_PROFILES=",".join(PROFILES.values()))
    run = subprocess.run(compose, env=environ, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert set(yaml.safe_load(run.stdout)["services"]) == set(SERVICES)


def test_prometheus_starts_on_request_and_reads_the_targets_of_the_drivers_host():
    prometheus, drivers = SERVICES["prometheus"], SERVICES["drivers"]
    assert {name: service["profiles"] for name, service in SERVICES.items() if "profiles" in service} == {
        name: [profile] for name, profile in PROFILES.items()
    }
    config = yaml.safe_load((ROOT / "docker" / "prometheus" / "prometheus.yaml").read_text())
    (job,) = config["scrape_configs"]
    assert job["job_name"] == "kappa" and job["file_sd_configs"][0]["files"] == [drivers["command"][-1]]
    assert "targets:/targets" in drivers["volumes"] and "targets:/targets:ro" in prometheus["volumes"]
    for mounted in [volume.split(":") for volume in prometheus["volumes"] if volume.startswith("./")]:
        assert (ROOT / mounted[0]).is_file()
    assert config["rule_files"] == ["/etc/prometheus/alerts.yaml"]


@pytest.mark.parametrize("missing", sorted(SECRETS))
def test_the_compose_tool_refuses_to_start_without_a_secret(compose, missing):
    secrets = dict.fromkeys(SECRETS - {missing}, "given")
    run = subprocess.run(compose, env=environment(**secrets), capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert missing in run.stderr


def test_every_service_that_uses_kafka_gets_the_login_of_secured_brokers(compose):
    secured = ROOT / "docker" / "secured.yaml"
    environ = environment(
        **dict.fromkeys(SECRETS, "given"),
        KAFKA_BOOTSTRAP_SERVERS="kafka.example:9093",
        KAFKA_LOGIN_FOLDER="/login",
        COMPOSE_PROFILES=",".join(PROFILES.values()),
    )
    words = [*compose[:3], "--file", str(secured), "config"]
    run = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    for name, service in yaml.safe_load(run.stdout)["services"].items():
        if not any(key.startswith("KAPPA_") for key in service["environment"]) or name in ("lake-init", "spark-master"):
            continue
        assert service["environment"]["KAPPA_KAFKA_CLIENT_FILE"] == "/etc/kappa/client.properties", name
        assert service["environment"]["KAPPA_BOOTSTRAP_SERVERS"] == "kafka.example:9093", name
        assert any("/etc/kappa" in str(volume) for volume in service["volumes"]), name
