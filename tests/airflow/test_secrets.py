"""The login to Kafka of an Airflow connection is in the file that it is written to, and nowhere else."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred
from support.airflow_runs import TOPOLOGY, context

from kappa.config import Config
from kappa_airflow.replays.replay import AwaitStage, PlanReplay, StartReplay
from kappa_airflow.stream import WatchStream

SECRET = "sEcr3t-0f-kafka"


def deferral(act: Any, context: Any) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as deferred:
        act(context)
    return deferred.value


@pytest.mark.usefixtures("control")
def test_no_xcom_trigger_state_log_template_or_file_of_a_replay_has_it(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    extra = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
    connection = {"conn_type": "generic", "host": "b", "port": 1, "login": "kappa", "password": SECRET, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_KAPPA_KAFKA", json.dumps(connection))
    run = context()
    plan = PlanReplay(task_id="plan", topology=TOPOLOGY)
    planned = plan.execute(run)
    start = StartReplay(task_id="start", plan=planned)
    member = start.execute(run)
    stage = AwaitStage(task_id="wait", members=member, stage="VERIFIED")
    watch = WatchStream(task_id="watch", topology=TOPOLOGY)
    deferred = [deferral(task.execute, run) for task in (stage, watch)]

    tasks = (plan, start, stage, watch)
    templates = [getattr(task, field, None) for task in tasks for field in task.template_fields]
    places = [planned, member, run["task_state_store"], templates, config.to_env()]
    places += [(each.trigger.serialize(), each.kwargs) for each in deferred]
    places += [caplog.text, capfd.readouterr()]
    assert SECRET not in repr(places)

    file = config.home / "kafka-client.properties"
    folder = Path(config.lake).parent
    assert [path for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()] == [file]
