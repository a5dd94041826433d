"""The login to Kafka of an Airflow connection is in the file that it is written to, and nowhere else."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred

from kappa.config import Config
from kappa_airflow.forms import replay_form
from kappa_airflow.replays.replay import AwaitStage, PlanReplay, StartReplay
from kappa_airflow.stream import WatchStream

SECRET = "sEcr3t-0f-kafka"
TOPOLOGY = "demo.replayed"


class Store(dict[str, Any]):
    """A task's state store."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


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
    form = {name: param.value for name, param in replay_form(TOPOLOGY, "2", "replayed.py").items()}
    context: Any = {
        "task_state_store": Store(),
        "params": {**form, "then": "cut_over", "reason": "new code"},
        "dag_run": SimpleNamespace(triggering_user_name="ann", conf={}),
        "run_id": "run-1",
        "task_instance": SimpleNamespace(id="ti-1"),
        "ti": SimpleNamespace(max_tries=3),
    }
    plan = PlanReplay(task_id="plan", topology=TOPOLOGY)
    planned = plan.execute(context)
    start = StartReplay(task_id="start", topology=TOPOLOGY, plan=planned)
    epoch = start.execute(context)
    stage = AwaitStage(task_id="wait", topology=TOPOLOGY, epoch=epoch, stage="VERIFIED")
    watch = WatchStream(task_id="watch", topology=TOPOLOGY)
    deferred = [deferral(task.execute, context) for task in (stage, watch)]

    tasks = (plan, start, stage, watch)
    templates = [getattr(task, field, None) for task in tasks for field in task.template_fields]
    shown = [planned, epoch, context["task_state_store"], templates, config.to_env()]
    shown += [(found.trigger.serialize(), found.kwargs) for found in deferred]
    shown += [caplog.text, capfd.readouterr()]
    assert SECRET not in repr(shown)

    file = config.home / "kafka-client.properties"
    folder = Path(config.lake).parent
    assert [path for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()] == [file]
