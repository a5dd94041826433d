"""The embedded stack as a whole: its start in the background, its supervision, and its end.

``<home>/stack.json`` has the settings that other commands read (see :class:`kappa.config.Config`), and
``<home>/processes.json`` the processes and their ports.
"""

from __future__ import annotations

import dataclasses
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kappa.config import Config, repository
from kappa.errors import ConfigError, Transient
from kappa.kafka.client_file import SETTING
from kappa.spark.jars import ensure_kafka, ensure_spark
from kappa_local import airflow, kafka, logins, supervision
from kappa_local.processes import Identity, end, identify, is_alive
from kappa_local.state import Running, broker_dir, is_up, logs, mark, processes_file, running, write_json, write_running
from kappa_local.supervision import answers

__all__ = ["Stack", "down", "is_up", "running", "up"]

DEFAULT_API_PORT = 8080
# References to processes that outlive this one on purpose, so that Python does not report them as forgotten.
_LAUNCHED: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A stack that answers.

    Attributes:
        bootstrap_servers: for Kafka clients.
        url: Airflow's page; None without Airflow.
        user: the account for its login.
        password: only at the first start, which generates it; afterwards it is in ``password_file``.
        password_file: file of the password, readable by its owner.
        api_port: port of Airflow's API.
        logs: folder with one log for each process.
        was_running: whether it ran before this call.
    """

    bootstrap_servers: str
    url: str | None = None
    user: str | None = None
    password: str | None = None
    password_file: Path | None = None
    api_port: int | None = None
    logs: Path
    was_running: bool = False


def up(
    config: Config,
    *,
    with_airflow: bool = True,
    is_secure: bool = False,
    foreground: bool = False,
    kafka_port: int | None = None,
    api_port: int | None = None,
    heap: str = "512m",
    timeout_seconds: float = 240.0,
    say: Callable[[str], None] = lambda line: None,
    on_ready: Callable[[Stack], None] = lambda stack: None,
) -> Stack:
    """Start the broker and Airflow and return when both answer, or, with ``foreground``, when they have ended.

    Idempotent: a running stack is returned as it is. Processes of a killed stack are ended first. A crash in the middle
    leaves processes that the next :func:`up` or :func:`down` ends.

    Args:
        config: its ``home`` gets all files; its ``bootstrap_servers`` have the broker's port.
        with_airflow: False starts the broker only.
        is_secure: whether the broker requires a login and grants rights; a broker with logins keeps them at later
            starts.
        foreground: supervise in this process, until SIGINT or SIGTERM.
        kafka_port: by default the port of ``bootstrap_servers``.
        api_port: by default the port of the last start, or 8080.
        heap: the broker's largest heap.
        timeout_seconds: longest wait for the first answers.
        say: called with each line of progress.
        on_ready: called once, when the whole stack answers.

    Raises:
        ConfigError: no Java, jars cannot be fetched, a port is in use, or the settings name a broker elsewhere.
        Transient: a component did not start; all others have been ended again.
    """
    with _locked(config.home):
        before = running(config)
        if before.supervisor and is_alive(before.supervisor):
            if with_airflow and not before.with_airflow:
                raise ConfigError("The stack runs without Airflow. Run `kappa down` first, then `kappa up`.")
            _check_same_ports(before, kafka_port, api_port)
            _check_same_logins(config, is_secure)
            config = _config_of(config, before.bootstrap_servers or config.bootstrap_servers)
            stack = dataclasses.replace(_stack(config, before.with_airflow, before.api_port), was_running=True)
            _wait(config, stack, timeout_seconds, before.supervisor)
            on_ready(stack)
            return stack
        if ended := _end_recorded(config, before):
            say(f"Ended {len(ended)} processes of a stack that was killed.")
        config = dataclasses.replace(config, bootstrap_servers=f"{kafka.HOST}:{kafka_port or _broker_port(config)}")
        _check_client_file(config)
        api_port = api_port or before.api_port or DEFAULT_API_PORT
        _check_ports(config, api_port if with_airflow else None)
        port = int(config.bootstrap_servers.rpartition(":")[2])
        logs(config).mkdir(parents=True, exist_ok=True)
        say("Looking for Java and the jars; the first start downloads them.")
        ensure_kafka(config.cache)
        ensure_spark(config.cache)
        kafka.prepare(broker_dir(config), port=port, cache=config.cache, is_secure=is_secure)
        config = _config_of(config, config.bootstrap_servers)
        password = _prepare(config, api_port if with_airflow else None, say)
        stack = dataclasses.replace(_stack(config, with_airflow, api_port), password=password)
        if foreground:
            loop = supervision.Supervision(config, with_airflow=with_airflow, api_port=api_port, heap=heap)
        else:
            process = _launch(config, with_airflow=with_airflow, api_port=api_port, heap=heap)
            try:
                _wait(config, stack, timeout_seconds, process)
                _grant(config)
            except BaseException:
                end([process], environment=mark(config), timeout_seconds=30.0)
                _end_recorded(config, running(config))
                raise
            on_ready(stack)
            return stack

    def ready() -> None:
        _grant(config)
        on_ready(stack)

    loop.run(on_ready=ready)  # the lock is free, so that `kappa down` can end it from elsewhere
    return stack


def down(config: Config, *, timeout_seconds: float = 45.0) -> list[int]:
    """End all processes that :func:`up` started, and return their ids. May be called twice.

    Drivers have sessions of their own and are not part of the stack: stop them first.
    """
    with _locked(config.home):
        before, ended = running(config), []
        # A foreground supervisor may share its session with a shell, so only it gets a signal, and it ends its
        # children.
        if before.supervisor and is_alive(before.supervisor):
            ended.append(before.supervisor.pid)
            os.kill(before.supervisor.pid, signal.SIGTERM)
            deadline = time.monotonic() + timeout_seconds
            while is_alive(before.supervisor) and time.monotonic() < deadline:
                time.sleep(0.05)
            if is_alive(before.supervisor):
                os.kill(before.supervisor.pid, signal.SIGKILL)
        ended += [identity.pid for identity in before.children.values() if identity.pid not in ended]
        still = _end_recorded(config, running(config))
        return sorted({*ended, *still}) if before.supervisor or still else []


def _prepare(config: Config, api_port: int | None, say: Callable[[str], None]) -> str | None:
    """Prepare the stack's file and Airflow once; return the password if it was generated now."""
    _write_stack(config)
    if api_port is None:
        return None
    secrets = airflow.ensure_secrets(config)
    say("Preparing Airflow's database, which takes longer at the first start.")
    airflow.migrate(config, api_port=api_port)
    return secrets.password if secrets.is_new else None


def _launch(config: Config, *, with_airflow: bool, api_port: int, heap: str) -> Identity:
    command = [sys.executable, "-P", "-m", supervision.__name__, "--api-port", str(api_port), "--heap", heap]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("KAPPA_")}
    environment |= {**config.to_env(), "PYTHONPATH": str(airflow.PACKAGES)}
    with (logs(config) / "supervisor.log").open("ab") as out:
        process = subprocess.Popen(
            command if with_airflow else [*command, "--no-airflow"],
            env=environment,
            cwd=repository(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _LAUNCHED.append(process)
    return identify(process.pid) or Identity(pid=process.pid, started="")


def _wait(config: Config, stack: Stack, timeout_seconds: float, supervisor: Identity) -> None:
    deadline = time.monotonic() + timeout_seconds
    while not answers(stack.bootstrap_servers, stack.api_port):
        if not is_alive(supervisor) or time.monotonic() > deadline:
            what = "did not answer in time" if is_alive(supervisor) else "ended"
            raise Transient(f"The stack {what}. The last lines of its logs in {stack.logs}:\n{_last_lines(config)}")
        time.sleep(0.25)


def _last_lines(config: Config, lines: int = 6) -> str:
    return "\n".join(
        f"[{path.name}] {line}"
        for path in sorted(logs(config).glob("*.log"))
        for line in path.read_text(errors="replace").splitlines()[-lines:]
    )


def _stack(config: Config, with_airflow: bool, api_port: int | None) -> Stack:
    if not with_airflow:
        return Stack(bootstrap_servers=config.bootstrap_servers, logs=logs(config))
    return Stack(
        bootstrap_servers=config.bootstrap_servers,
        url=f"http://{kafka.HOST}:{api_port}",
        user=airflow.USER,
        password_file=airflow.password_file(config),
        api_port=api_port,
        logs=logs(config),
    )


def _broker_port(config: Config) -> int:
    host, _, port = config.bootstrap_servers.rpartition(":")
    if host not in (kafka.HOST, "localhost") or not port.isdigit():
        raise ConfigError(
            f"KAPPA_BOOTSTRAP_SERVERS={config.bootstrap_servers!r} names a broker that `kappa up` cannot start: its "
            f"broker listens only on {kafka.HOST}. Unset the variable, or remove bootstrap_servers from kappa.toml, or "
            "use that broker without `kappa up`."
        )
    return int(port)


def _check_same_ports(before: Running, kafka_port: int | None, api_port: int | None) -> None:
    """Refuse ports other than those of the running stack, since they would be ignored."""
    broker = int((before.bootstrap_servers or ":0").rpartition(":")[2])
    for option, port, current in (("--kafka-port", kafka_port, broker), ("--api-port", api_port, before.api_port)):
        if port is not None and port != current:
            raise ConfigError(
                f"The stack is already running with {option} {current}, not {port}. To start it on another port: kappa "
                f"down, then kappa up {option} {port}",
                option=option,
                current=current,
                port=port,
            )


def _config_of(config: Config, addresses: str) -> Config:
    """The settings of commands on this stack, with the client file if its broker requires a login."""
    file = kafka.addresses(broker_dir(config), 0).client_file
    return dataclasses.replace(config, bootstrap_servers=str(addresses), kafka_client_file=file)


def _grant(config: Config) -> None:
    if config.kafka_client_file:
        logins.grant_user(str(config.bootstrap_servers), broker_dir(config))


def _check_client_file(config: Config) -> None:
    """Refuse the client file of another broker, since the embedded one makes its own."""
    own = str(logins.client_file_path(broker_dir(config)))
    if config.kafka_client_file not in ("", own):
        raise ConfigError(
            f"{SETTING}={config.kafka_client_file} is the login of another broker; the broker of `kappa up --secure` "
            f"creates {own}. Unset the variable, or remove kafka_client_file from kappa.toml.",
            path=config.kafka_client_file,
        )


def _check_same_logins(config: Config, is_secure: bool) -> None:
    if is_secure and not logins.is_secured(broker_dir(config)):
        raise ConfigError(
            "The stack is already running, and its broker requires no login. Start another one beside it: "
            "KAPPA_HOME=<another folder> kappa up --secure --kafka-port <port> --api-port <port>"
        )


def _check_ports(config: Config, api_port: int | None) -> None:
    ports = {"--kafka-port": (_broker_port(config), "the broker"), "--api-port": (api_port, "Airflow's API")}
    for option, (port, what) in ports.items():
        if port is not None and not kafka.is_port_free(port):
            raise ConfigError(
                f"Port {port} on {kafka.HOST} is in use by another program, and {what} needs it. End that program, or "
                f"choose another port: `kappa up {option} {kafka.free_port()}`.",
                port=port,
                option=option,
            )
    if api_port is not None and api_port == ports["--kafka-port"][0]:
        raise ConfigError(f"Port {api_port} cannot serve both the broker and Airflow's API.", port=api_port)


def _end_recorded(config: Config, recorded: Running) -> list[int]:
    ended = end(recorded.children.values(), environment=mark(config))
    if processes_file(config).is_file():
        write_running(config, dataclasses.replace(recorded, supervisor=None, children={}))
    return ended


def _write_stack(config: Config) -> None:
    """Write the settings that other commands share with this one; the file allows only names of settings."""
    names = ("bootstrap_servers", "kafka_client_file", "lake", "topologies", "spark_master")
    write_json(config.home / "stack.json", {name: str(getattr(config, name)) for name in names})


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Hold the lock that makes two `kappa up` or `kappa down` of one home wait for each other."""
    home.mkdir(parents=True, exist_ok=True)
    with (home / "up.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
