"""A stream whose broker asks for a login: all that a topology goes through, by a user with the documented rights."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from support.brokers import watched
from support.processes import Rig
from support.secured import Right, config_of, produce, rights, secured_rig, user

from kappa import control
from kappa.properties import parsed as properties
from kappa_local import doctor, kafka, logins

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

_numbers = itertools.count(1)
LOGGED = {"enabled": "true", "compress": "false"}
#: Of who only plans, as docs/your-own-repository.md names them.
READER = tuple(
    Right(kind=kind, name=name, is_prefix=name == "kappa.", operation=operation)
    for kind, name, operation in (
        ("Topic", "<source>", "Read"),
        ("Topic", "<source>", "DescribeConfigs"),
        ("Topic", "<output>", "DescribeConfigs"),
        ("Topic", "kappa.", "Describe"),
        ("Group", "kappa.", "Describe"),
    )
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.KafkaProcess]:
    """A broker with TLS, users and rights."""
    with watched(kafka.KafkaProcess.start(tmp_path_factory.mktemp("secured"), is_secure=True)) as process:
        yield process


@pytest.fixture
def machine(tmp_path: Path, broker: kafka.KafkaProcess) -> Iterator[Rig]:
    """Drivers in processes of their own, that log in as a user with exactly the rights of the table."""
    events = tmp_path / "events"
    events.mkdir()
    with secured_rig(tmp_path, broker, f"shop.{next(_numbers)}", rights()) as machine:
        shown = {f"spark.eventLog.{name}": value for name, value in LOGGED.items()} | {
            "spark.eventLog.dir": str(events)
        }
        machine.config = replace(machine.config, spark_conf={**machine.config.spark_conf, **shown})
        yield machine


def test_a_stream_run_with_the_documented_rights_leaves_no_secret_anywhere(
    machine: Rig, broker: kafka.KafkaProcess, tmp_path: Path
) -> None:
    produce(machine, broker, 60)
    first = machine.live_twice()
    assert machine.balances()
    assert machine.balances() == machine.folded(first)

    # Drivers run: what they show now is what any user of the host may see.
    commands = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    assert any(machine.name in words for words in commands)
    listed = " ".join(word for words in commands for word in words)
    file = Path(machine.config.kafka_client_file)
    secret = properties(file.read_text())["sasl.jaas.config"].partition('password="')[2].partition('"')[0]
    assert len(secret) > 8 and secret not in listed
    machine.close()
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path != file]
    kinds = {"heartbeat.json", *(path.name for path in (tmp_path / "events").rglob("*") if path.is_file())}
    assert len(kinds) > 1 and {path.name for path in files} >= kinds
    assert any(path.suffix == ".log" for path in files)
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
    admin = logins.client_file_path(broker.data_dir, logins.ADMIN)
    assert secret not in admin.read_text()


def test_a_stream_is_rebuilt_by_a_user_with_the_documented_rights(machine: Rig, broker: kafka.KafkaProcess) -> None:
    produce(machine, broker, 40)
    first = machine.start_live()
    second = machine.rebuild(first)
    assert machine.balances()
    assert machine.balances() == machine.folded(second) == machine.balances(first)


def test_a_replay_is_planned_by_a_user_who_may_only_read_and_nothing_is_written(
    machine: Rig, broker: kafka.KafkaProcess, tmp_path: Path
) -> None:
    produce(machine, broker, 40)
    first = machine.start_live()
    control.stop(machine.config, machine.name, actor="test", reason="so that nobody else writes")
    machine.await_end(first)
    machine.deploy(2)
    words = ("plan", machine.name, "--allow", "topics-missing", "--json")
    plan = json.loads(machine.output_of(*words))
    reader = user(broker, tmp_path, READER, source=machine.topic, output=f"{machine.topic}.moves")
    own, machine.config = machine.config, replace(machine.config, kafka_client_file=reader.client_file)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    same = json.loads(machine.output_of(*words))
    machine.output_of("topologies")
    machine.output_of("explain", machine.name)

    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    machine.config = own
    # What drivers will make, the reader may not.
    missing = [finding for finding in same["findings"] if finding["code"] == "topics-missing"]
    assert [finding["severity"] for finding in missing] == ["warn"]
    same["findings"] = [finding for finding in same["findings"] if finding not in missing]
    assert same | {name: plan[name] for name in ("id", "created_at")} == plan


def test_the_doctor_checks_each_part_with_the_login(broker: kafka.KafkaProcess, tmp_path: Path) -> None:
    proofs = doctor.checks(config_of(broker.bootstrap_servers, home=tmp_path / "home"))
    assert [proof for proof in proofs if not proof.ok and proof.name != "disk"] == []
    assert {"login", "kafka", "times", "spark"} <= {proof.name for proof in proofs}
