"""A whole Airflow over a broker that asks for a login, which it has from a connection: no secret comes out of it."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from support.airflow_stack import AirflowStack, live_by_its_dag, replayed_by_its_dag, running
from support.brokers import watched
from support.processes import rig
from support.secured import produce, rights, user

from kappa.config import Servers
from kappa.kafka.broker import Broker
from kappa.kafka.client_file import for_librdkafka, read
from kappa_airflow.connections import KAFKA_CONNECTION
from kappa_local import kafka

pytestmark = [pytest.mark.e2e, pytest.mark.airflow, pytest.mark.timeout(1200)]

PATIENCE = 300
SOURCE = "shop.secured"


def test_a_replay_with_the_login_of_a_connection_leaves_its_secret_in_one_file(tmp_path: Path) -> None:
    with watched(kafka.KafkaProcess.start(tmp_path / "broker", is_secure=True)) as broker:
        (tmp_path / "user").mkdir()
        with Broker(broker.bootstrap_servers) as admin:
            admin.create_topic(SOURCE, 2, {"retention.ms": "-1"})
        servers = user(broker, tmp_path / "user", rights(), source=SOURCE, output=f"{SOURCE}.moves")
        (tmp_path / "work").mkdir()
        with (
            Broker(servers) as client,
            rig(tmp_path / "work", client, SOURCE, slice_records=20, kafka_client_file=servers.client_file) as machine,
        ):
            produce(machine, broker, 50)
            # Airflow knows nothing of the login but its connection.
            with running(AirflowStack(replace(machine.config, kafka_client_file=""))) as stack:
                secret = connect(stack, servers)
                replay = f"replay__{machine.name}"
                stack.await_dag(replay)
                live_by_its_dag(stack, machine, PATIENCE)
                run = replayed_by_its_dag(stack, machine, PATIENCE)
                listed = [
                    word for process in psutil.process_iter(["cmdline"]) for word in process.info["cmdline"] or []
                ]
                xcoms = stack.call("GET", f"/dags/{replay}/dagRuns/{run}/taskInstances/~/xcomEntries?limit=100")
                rendered = [stack.tasks(replay, run)[task]["rendered_fields"] for task in ("plan", "start")]
                shown = stack.call("GET", f"/connections/{KAFKA_CONNECTION}")
            assert any(machine.name in word for word in listed), "drivers run, and are seen"
            assert xcoms["total_entries"] and any(rendered)
            for place in (listed, xcoms, rendered, shown):
                assert secret not in str(place)
            # Logs, lake, ledger, heartbeats, and Airflow's database with its XComs, states and templates.
            files = [path for path in (tmp_path / "work").rglob("*") if path.is_file()]
            assert {"airflow.db", "heartbeat.json", "scheduler.log"} <= {path.name for path in files}
            holding = [path for path in files if secret.encode() in path.read_bytes()]
            assert [path.name for path in holding] == ["kafka-client.properties"]
            assert stat.S_IMODE(holding[0].stat().st_mode) == 0o600


def connect(stack: AirflowStack, servers: Servers) -> str:
    """Give Airflow the login as a connection; its secret."""
    own = for_librdkafka(servers)
    extra = {key: value for key, value in read(servers.client_file).items() if key != "sasl.jaas.config"}
    host, _, port = servers.partition(":")
    stack.call(
        "POST",
        "/connections",
        {
            "connection_id": KAFKA_CONNECTION,
            "conn_type": "generic",
            "host": host,
            "port": int(port),
            "login": own["sasl.username"],
            "password": own["sasl.password"],
            "extra": json.dumps(extra),
        },
    )
    return own["sasl.password"]
