"""Runs of DAGs without an Airflow: contexts, forms and answers that tasks get, and what the fake control has."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from airflow.sdk.execution_time.context import NEVER_EXPIRE

from kappa.topology.registry import Declared
from kappa_airflow.forms import replay_form
from kappa_airflow.replays.replay import PlanReplay, StartReplay

Logs = list[dict[str, Any]]
Members = list[dict[str, Any]]

#: The topology of most tests, and one that is replayed and moved together with it.
TOPOLOGY, OTHER = "demo.replayed", "demo.kept"
BOTH = [TOPOLOGY, OTHER]
#: Members of a run of one topology, and of one of several: the epochs that wait.
ONE: Members = [{"topology": TOPOLOGY, "epoch": 2}]
SEVERAL: Members = [{"topology": name, "epoch": 2} for name in BOTH]


class Store(dict[str, Any]):
    """A task's state store: it outlives the task's tries and its clearing."""

    def __init__(self) -> None:
        super().__init__()
        self._lasting: set[str] = set()

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        self[key] = value
        self._lasting = self._lasting - {key} | ({key} if retention is NEVER_EXPIRE else set())

    def clean(self) -> None:
        """Remove what Airflow removes after a month."""
        for key in set(self) - self._lasting:
            del self[key]


class Pushed(dict[str, Any]):
    """A task instance that keeps what is pushed."""

    def xcom_push(self, key: str, value: Any) -> None:
        self[key] = value


def declared(*names: str) -> list[Declared]:
    """Topologies of a DAG."""
    return [Declared(name=name, version="2", file=Path("replayed.py")) for name in names]


def opened(fields: dict[str, Any]) -> dict[str, Any]:
    """A form as it opens."""
    return {name: param.value for name, param in fields.items()}


FORM = opened(replay_form(declared(TOPOLOGY))) | {"then": "cut_over", "reason": "new code"}
FORM_OF_SEVERAL = opened(replay_form(declared(*BOTH))) | {"reason": "new code"}


def context(**filled: Any) -> Any:
    """What a task gets of a run that was triggered with a filled form; one of several where it names topologies."""
    fields = FORM_OF_SEVERAL if "topologies" in filled else FORM
    return {
        "task_state_store": Store(),
        "params": {**fields, **filled},  # as Airflow does it: whatever a run was triggered with is among them
        "dag": SimpleNamespace(params=fields),
        "dag_run": SimpleNamespace(triggering_user_name="ann", conf=filled),
        "run_id": "run-1",
        "task_instance": SimpleNamespace(id=uuid4()),
        "ti": SimpleNamespace(max_tries=3, dag_id="replay__demo", run_id="run-1", task_id="approve", map_index=-1),
    }


def names_of(members: Members) -> list[str]:
    """Topologies of members."""
    return [member["topology"] for member in members]


def run_of(members: Members, **filled: Any) -> Any:
    """The context of a run that asks before readers of these members are moved, unless its form says otherwise."""
    topologies = {"topologies": names_of(members)} if len(members) > 1 else {}
    return context(**{**topologies, "then": "ask", **filled})


def planned(run: Any) -> str:
    """The plan of a run."""
    return PlanReplay(task_id="plan", topology=TOPOLOGY).execute(run)


def started(run: Any) -> int:
    """The epoch that a run builds."""
    member = StartReplay(task_id="start", plan=planned(run)).execute(run)
    assert member["topology"] == TOPOLOGY
    return int(member["epoch"])


def change(control: Any, config: Any, epoch: int, **values: Any) -> None:
    """Change what the fake has of an epoch."""
    with control.changed(config) as now:
        now["epochs"][f"{TOPOLOGY}/{epoch}"].update(values)


def entry(control: Any, config: Any, name: str = TOPOLOGY, epoch: int = 2) -> Any:
    """What the fake has of an epoch."""
    return control._entry(control.world(config), name, epoch)


def entries(control: Any, config: Any, members: Members) -> list[Any]:
    """What the fake has of each member."""
    return [entry(control, config, member["topology"], member["epoch"]) for member in members]


def handed_over(control: Any, config: Any) -> dict[str, int]:
    """What is live once drivers did what they were asked for."""
    with control.changed(config) as now:
        for each in list(now["epochs"].values()):
            if "handover" in each:
                control.hand_over(now, each["handover"])
    return dict(control.world(config)["live"])


def answer(option: str, user: str | None = "ann") -> dict[str, Any]:
    """What Airflow hands to a task whose question was answered."""
    return {
        "chosen_options": [option],
        "params_input": {},
        "responded_at": datetime.now(UTC),
        "responded_by_user": None if user is None else {"id": "1", "name": user},
    }


def lines(logs: Logs, level: str) -> str:
    """What was logged at a level."""
    return "\n".join(each["event"] for each in logs if each["log_level"] == level)
