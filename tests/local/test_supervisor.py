import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from kappa.cli import app
from kappa.config import Config
from kappa.errors import ConfigError, LakeUnreachableError, Transient
from kappa_local import airflow, kafka, supervision, supervisor
from kappa_local.processes import identify, is_alive
from kappa_local.state import Running, running, write_running


@pytest.fixture
def config(tmp_path):
    config = Config.from_env({"KAPPA_HOME": str(tmp_path / "home")})
    yield config
    supervisor.down(config)


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the time is over"
        time.sleep(0.1)


def of_home(config: Config) -> list[str]:
    """Every process, whoever its parent is, that belongs to this home."""
    commands = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("KAPPA_HOME") == str(config.home) and process.status() != psutil.STATUS_ZOMBIE:
                commands.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return commands


def sessions() -> set[int]:
    """The sessions that have a living process: a dead scheduler's workers stay in its own."""
    ids = set()
    for pid in psutil.pids():
        with contextlib.suppress(ProcessLookupError):
            if identify(pid):
                ids.add(os.getsid(pid))
    return ids


def test_pauses_grow_up_to_a_limit():
    assert [supervision.pause_seconds(n) for n in (1, 2, 3, 8, 9, 1000)] == [0.5, 1.0, 2.0, 60.0, 60.0, 60.0]


def test_down_without_up_does_nothing(config):
    assert supervisor.down(config) == []
    assert not supervisor.is_up(config)


@pytest.mark.parametrize("text", ["", "[]", "\0\0", '{"supervisor": {"pid": 1}}', '{"children": ["broker"]}'])
def test_a_file_of_processes_that_was_cut_short_keeps_the_stack_from_nothing(config, text):
    supervisor.processes_file(config).parent.mkdir(parents=True, exist_ok=True)
    supervisor.processes_file(config).write_text(text)
    assert not supervisor.is_up(config)
    assert supervisor.down(config) == []


def test_a_lake_that_cannot_be_read_does_not_keep_the_stack_running(config):
    log = Path(config.lake, "_kappa", "epochs", "_delta_log")
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("{}")
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE, start_new_session=True)
    write_running(config, Running(supervisor=identify(process.pid)))
    result = CliRunner().invoke(app, ["down"], env=config.to_env())
    recorded = running(config).supervisor
    process.communicate()
    assert isinstance(result.exception, LakeUnreachableError)
    assert (process.returncode, recorded) == (-signal.SIGTERM, None)


def test_an_occupied_port_is_named_with_a_remedy_and_nothing_is_started(config):
    with socket.socket() as listener:
        listener.bind((kafka.HOST, kafka.free_port()))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(ConfigError, match=f"Port {port} .*--kafka-port"):
            supervisor.up(config, kafka_port=port)
        with pytest.raises(ConfigError, match=f"Port {port} .*--api-port"):
            supervisor.up(config, kafka_port=kafka.free_port(), api_port=port)
    assert not (config.home / "stack.json").exists()


def test_one_port_cannot_serve_both(config):
    port = kafka.free_port()
    with pytest.raises(ConfigError, match="cannot serve"):
        supervisor.up(config, kafka_port=port, api_port=port)


def test_a_port_that_the_other_commands_would_not_use_is_refused(tmp_path, monkeypatch):
    (tmp_path / "kappa.toml").write_text('bootstrap_servers = "127.0.0.1:9092"\nhome = "home"\n')
    monkeypatch.chdir(tmp_path)
    answer = CliRunner().invoke(app, ["up", "--no-airflow", "--kafka-port", "19092"])
    assert "all other commands would go there" in str(answer.exception) and "kappa.toml" in str(answer.exception)
    assert not (tmp_path / "home").exists()


def test_a_broker_elsewhere_is_not_replaced_by_an_embedded_one(tmp_path):
    config = Config.from_env({"KAPPA_HOME": str(tmp_path), "KAPPA_BOOTSTRAP_SERVERS": "kafka.example.com:9092"})
    with pytest.raises(ConfigError, match=r"kafka\.example\.com"):
        supervisor.up(config)


@pytest.mark.broker
def test_other_commands_find_the_broker_and_it_ends_without_a_trace(config):
    stack = supervisor.up(config, with_airflow=False, kafka_port=kafka.free_port())
    assert kafka.is_answering(stack.bootstrap_servers)
    assert Config.from_env({"KAPPA_HOME": str(config.home)}).bootstrap_servers == stack.bootstrap_servers

    assert supervisor.up(Config.from_env({"KAPPA_HOME": str(config.home)}), with_airflow=False).was_running
    with pytest.raises(ConfigError, match="without Airflow"):
        supervisor.up(config)
    with pytest.raises(ConfigError, match=r"with --kafka-port .* kappa down"):
        supervisor.up(config, with_airflow=False, kafka_port=kafka.free_port())

    assert len(supervisor.down(config)) == 2  # the supervisor and the broker
    assert supervisor.down(config) == []
    assert of_home(config) == []


@pytest.mark.broker
def test_a_killed_broker_is_restarted_and_a_killed_supervisor_leaves_nothing(config):
    stack = supervisor.up(config, with_airflow=False, kafka_port=kafka.free_port())
    first = running(config).children["broker"]
    os.kill(first.pid, signal.SIGKILL)
    wait_for(lambda: running(config).children["broker"] != first and kafka.is_answering(stack.bootstrap_servers))

    second = running(config).children["broker"]
    os.kill(running(config).supervisor.pid, signal.SIGKILL)
    wait_for(lambda: not supervisor.is_up(config))
    assert is_alive(second)
    config = Config.from_env({"KAPPA_HOME": str(config.home)})
    assert supervisor.up(config, with_airflow=False).bootstrap_servers == stack.bootstrap_servers
    assert not is_alive(second)

    os.kill(running(config).supervisor.pid, signal.SIGKILL)
    wait_for(lambda: not supervisor.is_up(config))
    supervisor.down(config)
    assert of_home(config) == []


@pytest.mark.broker
def test_a_broker_that_never_answers_is_abandoned_and_everything_ends(config):
    with pytest.raises(Transient, match="broker"):
        supervisor.up(config, with_airflow=False, kafka_port=kafka.free_port(), heap="1k", timeout_seconds=5)
    assert of_home(config) == []


@pytest.mark.broker
def test_a_foreground_stack_ends_with_its_terminal(config):
    code = (
        "from kappa.config import Config; from kappa_local import supervisor\n"
        "supervisor.up(Config.from_env(), with_airflow=False, foreground=True,"
        f" kafka_port={kafka.free_port()}, on_ready=lambda stack: print('ready', flush=True))"
    )
    env = os.environ | {"KAPPA_HOME": str(config.home), "PYTHONPATH": str(airflow.PACKAGES)}
    with subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True) as process:
        watchdog = threading.Timer(60, process.kill)
        watchdog.start()
        while process.stdout.readline() not in ("ready\n", ""):
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        watchdog.cancel()
    assert of_home(config) == []


@pytest.mark.airflow
def test_the_whole_stack_starts_heals_and_ends_without_a_trace(config):
    ports = {"kafka_port": kafka.free_port(), "api_port": kafka.free_port()}
    stack = supervisor.up(config, **ports)
    port = stack.api_port
    assert stack.url == f"http://127.0.0.1:{port}"
    assert stack.password
    assert supervisor.up(config, **ports).password is None

    connections = airflow.call(config, port, "GET", "/connections")["connections"]
    assert [(item["connection_id"], item["host"]) for item in connections] == [("spark_default", config.spark_master)]
    assert airflow.call(config, port, "GET", "/importErrors")["import_errors"] == []

    def is_healthy() -> bool:
        states = airflow.health(port)
        return len(states) == 4 and set(states.values()) == {"healthy"}

    wait_for(is_healthy)
    before = running(config).children
    assert set(before) == {"broker", *airflow.COMPONENTS}
    for name in airflow.COMPONENTS:
        os.kill(before[name].pid, signal.SIGKILL)
    wait_for(lambda: all(running(config).children[name] != before[name] for name in airflow.COMPONENTS))
    assert sessions() & {old.pid for old in before.values()} == {before["broker"].pid}
    wait_for(is_healthy)

    logs = "".join(path.read_text() for path in (config.home / "logs").iterdir())
    assert stack.password not in logs
    assert supervisor.down(config)
    assert of_home(config) == []
    assert json.loads((config.home / "processes.json").read_text())["children"] == {}

    # The ports of last time, and the password too: for this Airflow need not boot once more.
    password = stack.password_file.read_text()
    again = supervisor.up(Config.from_env({"KAPPA_HOME": str(config.home)}), with_airflow=False)
    assert (running(config).api_port, again.bootstrap_servers) == (port, stack.bootstrap_servers)
    assert stack.password_file.read_text() == password
