"""A stream on S3 whose keys are in a file: they are nowhere else, while drivers run and afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import obstore
import pytest
from support.airflow_stack import AirflowStack, live_by_its_dag, replayed_by_its_dag, running
from support.processes import QUICK_JVM, Rig, rig, rows
from support.s3_options import write_options
from support.s3_server import S3Server, objects

from kappa.kafka.broker import Broker
from kappa.spark.object_store import FILE_KEYS, KEY_FILE
from kappa_local.logins import write_private

if TYPE_CHECKING:
    from conftest import TopicFactory

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

KEY, CANARY = "canary-of-the-key", "canary-of-the-secret"
AIRFLOW_SECONDS = 300
#: Written by Spark itself, with nothing that it would hide by the name.
SHOWN = {"enabled": "true", "compress": "false"}


@dataclass(frozen=True, kw_only=True)
class Login:
    """A client file, and the file that has its keys: itself, or one of profiles."""

    client: Path
    keys: Path


@pytest.fixture(params=["client file", "profile"])
def login(request: pytest.FixtureRequest, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Login:
    """Keys that are looked for; the server takes any."""
    client = tmp_path / "lake.properties"
    if request.param == "client file":
        write_options(replace(s3, access_key=KEY, secret_key=CANARY), client)
        return Login(client=client, keys=client)
    profiles = tmp_path / "credentials"
    write_private(profiles, f"[orders]\naws_access_key_id = {KEY}\naws_secret_access_key = {CANARY}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(profiles))
    write_options(replace(s3, access_key="", secret_key=""), client, aws_profile="orders")
    return Login(client=client, keys=profiles)


@pytest.fixture
def machine(tmp_path: Path, kafka: Broker, topic: TopicFactory, s3: S3Server, login: Login) -> Iterator[Rig]:
    """Drivers that log in by the file, and whose Spark writes all of its settings into its events."""
    (tmp_path / "events").mkdir()
    shown = {f"spark.eventLog.{name}": value for name, value in SHOWN.items()} | {
        "spark.eventLog.dir": str(tmp_path / "events"),
        "spark.redaction.regex": "no-such-name",
        "spark.sql.redaction.options.regex": "no-such-name",
    }
    places = {"lake": f"{s3.url}/lake", "lake_client_file": str(login.client)}
    with rig(tmp_path, kafka, topic(partitions=2), slice_records=20, small_slice=0, arrow_rows=0, **places) as machine:
        machine.config = replace(machine.config, spark_conf={**QUICK_JVM, **shown})
        yield machine


def processes() -> dict[str, bytes]:
    """Command line and environment of each process of this host that may be read."""
    texts = {}
    for folder in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                texts[f"{folder}/{name}"] = (folder / name).read_bytes()
            except OSError:  # it has ended, or is another user's
                continue
    return texts


def stored(s3: S3Server, folder: Path, keys: Path) -> dict[str, bytes]:
    """Each object of the lake, and each file of a folder but the one that has the keys."""
    store = objects(s3)
    lake = {
        meta["path"]: bytes(obstore.get(store, meta["path"]).bytes()) for chunk in obstore.list(store) for meta in chunk
    }
    return lake | {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path != keys}


def check_canary(places: Mapping[str, bytes], login: Login) -> None:
    """Hold that no place has a secret, and that its own file is its owner's alone."""
    for secret in (KEY.encode(), CANARY.encode()):
        assert [name for name, text in places.items() if secret in text] == []
        assert secret in login.keys.read_bytes()
    assert login.keys.stat().st_mode & 0o777 == 0o600


def test_keys_in_a_file_are_nowhere_else(machine: Rig, s3: S3Server, login: Login, tmp_path: Path) -> None:
    machine.produce(rows(60))
    epoch = machine.start_live()
    machine.settle(epoch)
    running_processes = processes()
    assert any(machine.name.encode() in text for name, text in running_processes.items() if name.endswith("cmdline"))
    assert any(str(login.client).encode() in text for name, text in running_processes.items() if "environ" in name)
    machine.close()

    places = stored(s3, tmp_path, login.keys)
    assert any(name.endswith("/heartbeat.json") for name in places) and any(name.endswith(".log") for name in places)
    events = b"".join(text for name, text in places.items() if name.startswith(str(tmp_path / "events")))
    assert FILE_KEYS.encode() in events and f'"{KEY_FILE}":"{login.keys}"'.encode() in events
    check_canary(running_processes | places, login)


@pytest.mark.airflow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("login", ["client file"], indirect=True)
def test_keys_in_a_file_are_not_in_airflow(machine: Rig, s3: S3Server, login: Login, tmp_path: Path) -> None:
    """Its database has XComs, states, templates and what users filled in; the answers of its API show them."""
    machine.produce(rows(60))
    replay = f"replay__{machine.name}"
    with running(AirflowStack(machine.config)) as stack:
        stack.await_dag(replay)
        live_by_its_dag(stack, machine, AIRFLOW_SECONDS)
        run = replayed_by_its_dag(stack, machine, AIRFLOW_SECONDS)
        tasks = stack.tasks(replay, run)
        xcoms = stack.call("GET", f"/dags/{replay}/dagRuns/{run}/taskInstances/~/xcomEntries?limit=100")
        shown = {"rendered fields": repr(tasks).encode(), "XComs": repr(xcoms).encode()}
        assert xcoms["total_entries"] and any(task["rendered_fields"] for task in tasks.values())
        places = processes() | shown
    machine.close()
    places |= stored(s3, tmp_path, login.keys)
    assert {"airflow.db", "scheduler.log"} <= {Path(name).name for name in places}
    check_canary(places, login)
