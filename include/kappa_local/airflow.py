"""Airflow on this machine: its settings as environment variables, its secrets, its components, its API.

Metadata is SQLite in ``<home>/airflow``, the API listens on loopback, and each of Airflow's roles has a user with a
generated password.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import secrets
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from kappa.config import Config, repository
from kappa.errors import ConfigError, Transient
from kappa.spark.jars import java_home
from kappa_airflow.pools import POOLS
from kappa_local.kafka import HOST
from kappa_local.logins import write_private

#: Folder that this package, and the platform beside it, is imported from.
PACKAGES = Path(__file__).resolve().parents[1]
USER = "admin"
#: Roles of Airflow; each has a user of that name.
ROLES = ("viewer", "user", "op", USER)
SPARK_CONNECTION = "spark_default"
COMPONENTS = ("scheduler", "dag-processor", "api-server", "triggerer")


@dataclass(frozen=True, kw_only=True)
class Secrets:
    """The secrets that one installation generated; never a default, never in the repository.

    Attributes:
        password: the administrator's; the passwords of the other users are only in :func:`password_file`.
        is_new: whether this call made them.
    """

    password: str
    fernet_key: str
    jwt_secret: str
    api_secret: str
    is_new: bool


def airflow_home(config: Config) -> Path:
    """The folder with Airflow's metadata, its secrets and the logs of its tasks."""
    return config.home / "airflow"


def password_file(config: Config) -> Path:
    """The file of Airflow's simple auth manager, user name -> password; readable by its owner only."""
    return airflow_home(config) / "passwords.json"


def ensure_secrets(config: Config) -> Secrets:
    """The installation's secrets, generated at the first call. Idempotent; a crash in the middle leaves none."""
    path = airflow_home(config) / "secrets.json"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    is_new = not path.is_file()
    if is_new:
        values = {
            "password": secrets.token_urlsafe(16),
            "fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "jwt_secret": secrets.token_urlsafe(48),
            "api_secret": secrets.token_urlsafe(48),
        }
        write_private(path, json.dumps(values))
    else:
        values = json.loads(path.read_text())
    passwords = json.loads(password_file(config).read_text()) if password_file(config).is_file() else {}
    if not passwords.keys() >= set(ROLES):  # Airflow would make one, and print it to its log
        new_passwords = {role: values["password"] if role == USER else secrets.token_urlsafe(16) for role in ROLES}
        write_private(password_file(config), json.dumps(new_passwords | passwords))
    return Secrets(**values, is_new=is_new)


def airflow_env(config: Config, *, api_port: int) -> dict[str, str]:
    """The variables that Airflow's components, its command line and its tests need; not a whole environment.

    It includes the ``KAPPA_*`` variables, so that a task has the settings with which the stack was started.
    """
    home, own_secrets, url = airflow_home(config), ensure_secrets(config), f"http://{HOST}:{api_port}"
    folder = repository()
    env = {
        **config.to_env(),
        "PYTHONPATH": f"{PACKAGES}{os.pathsep}{Path(__file__).parent / 'airflow_config'}",
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(folder / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "8",
        "AIRFLOW__CORE__FERNET_KEY": own_secrets.fernet_key,
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{role}:{role}" for role in ROLES),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(password_file(config)),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        # SQLite has one writer, and a second one gives up after five seconds by default. See airflow_config/ for the
        # rest of it.
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}?timeout=120",
        "AIRFLOW__DATABASE__LOAD_DEFAULT_CONNECTIONS": "False",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "AIRFLOW__API__HOST": HOST,
        "AIRFLOW__API__PORT": str(api_port),
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API__SECRET_KEY": own_secrets.api_secret,
        "AIRFLOW__API_AUTH__JWT_SECRET": own_secrets.jwt_secret,
        "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "30",
        # A killed task is noticed after a minute, not five: no process here is so far away that its heartbeat is that
        # late.
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
        # A scheduler that is killed takes its tasks with it; the next one looks for them this often, by default five
        # minutes.
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "30",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        # Executor workers rename themselves, by default over their environment, which is how a dead scheduler's are
        # found.
        "SPT_NOENV": "1",
    }
    with contextlib.suppress(ConfigError):  # Airflow itself runs without Java; a task that needs it says so
        env["JAVA_HOME"] = str(java_home())
    return env


def whole_environment(config: Config, *, api_port: int) -> dict[str, str]:
    """This process's environment with :func:`airflow_env` over it, and without settings of another Airflow."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "KAPPA_"))}
    inherited["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{inherited.get('PATH', os.defpath)}"
    return inherited | airflow_env(config, api_port=api_port)


def commands() -> dict[str, list[str]]:
    """The command line of each component, by its name."""
    # The API server reads the logs from the tasks' folder, so no other port has to serve them.
    options = {"scheduler": ["--skip-serve-logs"], "triggerer": ["--skip-serve-logs"]}
    return {name: [*_AIRFLOW, name, *options.get(name, [])] for name in COMPONENTS}


_AIRFLOW = (sys.executable, "-P", "-m", "airflow")


def run(config: Config, words: Sequence[str], *, api_port: int) -> int:
    """Airflow's own command line on the embedded stack; its exit code.

    Raises:
        ConfigError: the stack was never started with Airflow.
    """
    if not (airflow_home(config) / "airflow.db").is_file():
        raise ConfigError(f"{airflow_home(config)} has no Airflow yet. Start it: kappa up")
    return subprocess.run([*_AIRFLOW, *words], env=whole_environment(config, api_port=api_port), check=False).returncode


def migrate(config: Config, *, api_port: int) -> None:
    """Bring the metadata database to this Airflow's schema, create the Spark connection once, and the pools.

    Idempotent, and quick if it was done before. A changed or deleted connection stays that way, and so does the size of
    a pool.

    Raises:
        ConfigError: Airflow refused; the message has its output.
    """
    stamp = airflow_home(config) / "migrated"
    current = " ".join([version("apache-airflow"), *(pool.name for pool in POOLS)])
    previous = stamp.read_text() if stamp.is_file() else ""
    if previous == current and (airflow_home(config) / "airflow.db").is_file():
        return
    env = whole_environment(config, api_port=api_port)
    _run(["db", "migrate"], env)
    if not previous:
        stored = subprocess.run(
            [*_AIRFLOW, "connections", "get", SPARK_CONNECTION], env=env, capture_output=True, check=False
        )
        if stored.returncode:
            _run(
                ["connections", "add", SPARK_CONNECTION, "--conn-type", "spark", "--conn-host", config.spark_master],
                env,
            )
    _run(["-m", "kappa_airflow.pools"], env, program=(sys.executable, "-P"))
    stamp.write_text(current)


def _run(arguments: list[str], env: dict[str, str], program: Sequence[str] = _AIRFLOW) -> None:
    run = subprocess.run([*program, *arguments], env=env, capture_output=True, text=True, check=False)
    if run.returncode:
        output = "\n".join((run.stdout + run.stderr).splitlines()[-15:])
        what = " ".join(["airflow", *arguments] if program is _AIRFLOW else [*program, *arguments])
        raise ConfigError(f"`{what}` ended with code {run.returncode}:\n{output}")


def health(api_port: int, timeout_seconds: float = 3.0) -> dict[str, str]:
    """The state of each component as the API server reports it (``healthy``, ``unhealthy``); empty: no answer."""
    try:
        with urllib.request.urlopen(
            f"http://{HOST}:{api_port}/api/v2/monitor/health", timeout=timeout_seconds
        ) as answer:
            parts: dict[str, dict[str, Any] | None] = json.load(answer)
    except (OSError, ValueError):
        return {}
    return {name: str((part or {}).get("status")) for name, part in parts.items()}


def call(config: Config, api_port: int, method: str, path: str, body: object = None) -> Any:
    """Call Airflow's public API as the administrator; the parsed answer.

    Args:
        config: settings of the installation.
        api_port: port of its API.
        method: ``GET``, ``POST``, ``PATCH`` …
        path: path below ``/api/v2``, for example ``/dags/replay__retail.loyalty/dagRuns``.
        body: sent as JSON.

    Raises:
        Transient: no answer, or an unsuccessful one; ``data`` has ``status`` (None without an answer).
    """
    login = {"username": USER, "password": json.loads(password_file(config).read_text())[USER]}
    token = _request(api_port, "POST", "/auth/token", login)["access_token"]
    return _request(api_port, method, f"/api/v2{path}", body, token)


def _request(api_port: int, method: str, path: str, body: object = None, token: str | None = None) -> Any:
    request = urllib.request.Request(f"http://{HOST}:{api_port}{path}", method=method)
    request.add_header("Content-Type", "application/json")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    payload = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(request, payload, timeout=30) as answer:  # noqa: S310  as above
            text = answer.read()
    except urllib.error.HTTPError as error:
        reply = error.read().decode(errors="replace")[:500]
        raise Transient(f"Airflow answered {method} {path} with {error.code}: {reply}", status=error.code) from error
    except OSError as error:
        raise Transient(
            f"Airflow does not answer on {HOST}:{api_port}: {error}. Run `kappa up`.", status=None
        ) from error
    return json.loads(text) if text else None
