import base64
import json
import stat
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from kappa.cli import app
from kappa.config import Config
from kappa.errors import ConfigError
from kappa_local import airflow


@pytest.fixture
def config(tmp_path) -> Config:
    return Config.from_env({"KAPPA_HOME": str(tmp_path / "home"), "KAPPA_SLICE_RECORDS": "7"})


def test_secrets_are_created_once_and_readable_by_their_owner_only(config):
    first, second = airflow.ensure_secrets(config), airflow.ensure_secrets(config)
    assert (first.is_new, second.is_new) == (True, False)
    assert first.password == second.password
    files = list(airflow.airflow_home(config).iterdir())
    assert {path.name for path in files} == {"secrets.json", "passwords.json"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_two_homes_share_no_secret(config, tmp_path):
    other = Config.from_env({"KAPPA_HOME": str(tmp_path / "other")})
    own, theirs = airflow.ensure_secrets(config), airflow.ensure_secrets(other)
    for name in ("password", "fernet_key", "jwt_secret", "api_secret"):
        assert getattr(own, name) != getattr(theirs, name)
    assert len(base64.urlsafe_b64decode(own.fernet_key)) == 32


def test_the_password_file_suits_the_simple_auth_manager(config):
    secrets = airflow.ensure_secrets(config)
    passwords = json.loads(airflow.password_file(config).read_text())
    assert passwords["admin"] == secrets.password
    assert set(passwords) == {"viewer", "user", "op", "admin"} and len(set(passwords.values())) == 4


def test_each_role_of_airflow_has_a_user_and_a_password_that_stays(config):
    users = airflow.airflow_env(config, api_port=1)["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS"].split(",")
    assert users == ["viewer:viewer", "user:user", "op:op", "admin:admin"]
    passwords = json.loads(airflow.password_file(config).read_text())
    airflow.password_file(config).write_text(json.dumps({"admin": passwords["admin"], "ann": "hers"}))
    airflow.ensure_secrets(config)  # of an installation that had one user
    after = json.loads(airflow.password_file(config).read_text())
    assert (after["admin"], after["ann"]) == (passwords["admin"], "hers")
    assert after.keys() == passwords.keys() | {"ann"} and all(after.values())


def test_the_environment_binds_to_loopback_and_keeps_everything_in_the_home(config):
    env = airflow.airflow_env(config, api_port=28080)
    assert env["AIRFLOW__API__HOST"] == "127.0.0.1"
    assert env["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == "http://127.0.0.1:28080/execution/"
    assert env["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] == f"sqlite:///{config.home}/airflow/airflow.db?timeout=120"
    assert env["AIRFLOW_HOME"].startswith(str(config.home))
    assert env["AIRFLOW__CORE__LOAD_EXAMPLES"] == "False"


def test_a_task_sees_the_settings_of_whoever_started_the_stack(config):
    assert Config.from_env(airflow.airflow_env(config, api_port=1)) == config


def test_settings_of_another_airflow_do_not_leak_in(config, monkeypatch):
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", "spark://elsewhere")
    env = airflow.whole_environment(config, api_port=1)
    assert env["AIRFLOW__CORE__EXECUTOR"] == "LocalExecutor"
    assert "AIRFLOW_CONN_SPARK_DEFAULT" not in env


def test_nothing_is_healthy_without_a_listener():
    assert airflow.health(1) == {}


def test_airflows_own_command_line_needs_a_started_stack(config):
    with pytest.raises(ConfigError, match=r"has no Airflow yet\. Start it: kappa up"):
        airflow.run(config, ["version"], api_port=28080)


def test_airflows_command_line_gets_arguments_and_settings_and_returns_its_exit_code(config, monkeypatch):
    airflow.ensure_secrets(config)
    (airflow.airflow_home(config) / "airflow.db").touch()
    script = (
        "import os, sys; sys.exit(7 if sys.argv[1:] == ['dags', 'list', '--help'] and os.environ['AIRFLOW_HOME'] else "
        "1)"
    )
    run = subprocess.run

    def short(command, **how):
        assert command[:4] == [sys.executable, "-P", "-m", "airflow"]
        return run([sys.executable, "-c", script, *command[4:]], **how)

    monkeypatch.setattr(airflow.subprocess, "run", short)
    for name, value in config.to_env().items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(app, ["airflow", "dags", "list", "--help"])
    assert result.exit_code == 7


def test_a_savepoint_waits_for_another_writer_instead_of_failing(config, tmp_path):
    env = airflow.airflow_env(config, api_port=8080)
    probe = """
import sys, threading
import airflow_local_settings
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

engines = [create_engine(f"sqlite:///{sys.argv[1]}?timeout=60") for _ in range(2)]
with engines[0].begin() as connection:
    connection.execute(text("PRAGMA journal_mode=WAL"))
    connection.execute(text("CREATE TABLE t (x)"))
is_over = threading.Event()

def write():
    while not is_over.is_set():
        with engines[1].begin() as connection:
            connection.execute(text("INSERT INTO t VALUES (1)"))

thread = threading.Thread(target=write)
thread.start()
try:
    for _ in range(20):
        with Session(engines[0]) as session:
            with session.begin_nested():
                before = session.scalar(text("SELECT count(*) FROM t"))
                is_over.wait(0.005)
                session.execute(text("INSERT INTO t VALUES (2)"))
            session.commit()
finally:
    is_over.set()
    thread.join()
print("all written")
"""
    run = subprocess.run(
        [sys.executable, "-c", probe, str(tmp_path / "t.db")],
        env={"PYTHONPATH": env["PYTHONPATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.strip() == "all written", run.stderr[-2000:]
