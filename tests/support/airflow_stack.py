"""A whole Airflow for tests: the components that `kappa up` starts, each of which can be killed, and its REST API."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from kappa.config import Config
from kappa.errors import Transient
from kappa_local import airflow
from kappa_local.kafka import free_port

if TYPE_CHECKING:
    from support.processes import Rig

T = TypeVar("T")

FAKES = Path(__file__).parents[1] / "airflow" / "fakes"
FINAL = ("success", "failed")
#: How long the runs of a backfill may take: each has a Spark of its own.
BACKFILL_SECONDS = 900

#: So that a test sees within seconds what takes Airflow minutes by default.
_QUICK = {
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.2",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "15",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "10",
    "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "1",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "6",
}


class AirflowStack:
    """One Airflow with a home of its own; each component has its own process group.

    Args:
        config: what its tasks get; Airflow's home is below ``config.home``.
        extra: further environment of all components.
        with_fakes: whether ``kappa.control`` is the one of ``fakes/``.
    """

    def __init__(self, config: Config, extra: Mapping[str, str] | None = None, *, with_fakes: bool = False) -> None:
        self.config = config
        self.home = airflow.airflow_home(config)
        self.port = free_port()
        self.python = sys.executable
        self.environment = {**airflow.whole_environment(config, api_port=self.port), **_QUICK, **(extra or {})}
        if with_fakes:
            self.environment["PYTHONPATH"] = f"{FAKES}{os.pathsep}{self.environment['PYTHONPATH']}"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, seconds: float = 240) -> None:
        """Migrate the database, start all components, wait until they answer."""
        self.prepare()
        for component in airflow.COMPONENTS:
            self.start_component(component)
        wait_for(self._is_healthy, seconds, "Airflow answers and all components are healthy")

    def prepare(self) -> None:
        """Make the database, with what `kappa up` has in it."""
        airflow.migrate(self.config, api_port=self.port)

    def start_component(self, name: str) -> None:
        """Start one component, in a process group of its own."""
        log = (self.home / f"{name}.log").open("ab")
        with log:
            self.processes[name] = subprocess.Popen(
                [self.python, *airflow.commands()[name][1:]],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """SIGKILL one component with its children."""
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        """End all components; nothing of them is left."""
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for name in list(self.processes):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.processes[name].wait(timeout=15)
            self.kill(name)

    # The REST API.

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call the API, as the administrator."""
        return airflow.call(self.config, self.port, method, path, body)

    def command(self, *words: str) -> str:
        """Run Airflow's own command line; what it printed.

        Raises:
            AssertionError: its exit code is not 0.
        """
        run = subprocess.run(
            [self.python, "-m", "airflow", *words], env=self.environment, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, f"airflow {' '.join(words)}: {run.stdout[-2000:]} {run.stderr[-2000:]}"
        return run.stdout

    def await_dag(self, dag_id: str, seconds: float = 240) -> None:
        """Wait until Airflow has parsed a DAG."""
        wait_for(
            lambda: dag_id in [dag["dag_id"] for dag in self.call("GET", "/dags?limit=100")["dags"]],
            seconds,
            f"Airflow has {dag_id}",
        )

    def unpause(self, dag_id: str, paused: bool = False) -> None:
        """Unpause a DAG, or pause it."""
        self.call("PATCH", f"/dags/{dag_id}", {"is_paused": paused})

    def trigger(self, dag_id: str, conf: Mapping[str, Any]) -> str:
        """Trigger a run with a filled form; returns its id."""
        body = {"logical_date": None, "conf": dict(conf)}
        return str(self.call("POST", f"/dags/{dag_id}/dagRuns", body)["dag_run_id"])

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """Runs of a DAG, oldest first."""
        return list(self.call("GET", f"/dags/{dag_id}/dagRuns?order_by=id")["dag_runs"])

    def backfilled(self, dag_id: str, count: int, task_id: str = "backfill") -> list[dict[str, Any]]:
        """The runs of a backfill, once all of them ended; each of them well. One that fails ends the wait at once."""

        def states() -> list[str]:
            return [run["state"] for run in self.runs(dag_id)]

        wait_for(
            lambda: states() == ["success"] * count or "failed" in states(),
            BACKFILL_SECONDS,
            f"{count} runs end",
            lambda: str(states()),
        )
        runs = self.runs(dag_id)
        bad = [run for run in runs if run["state"] != "success"]
        assert not bad, self.task_log(dag_id, bad[0]["dag_run_id"], task_id)
        return runs

    def run_state(self, dag_id: str, run_id: str) -> str:
        """State of a run."""
        return str(self.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}")["state"])

    def tasks(self, dag_id: str, run_id: str) -> dict[str, dict[str, Any]]:
        """Task instances of a run by task id."""
        instances = self.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances?limit=100")["task_instances"]
        return {task["task_id"]: task for task in instances}

    def task_state(self, dag_id: str, run_id: str, task_id: str) -> str | None:
        """State of a task instance."""
        state: str | None = self.tasks(dag_id, run_id)[task_id]["state"]
        return state

    def task_log(self, dag_id: str, run_id: str, task_id: str) -> str:
        """Events of a task's log, all its tries, one a line."""
        tries = self.tasks(dag_id, run_id)[task_id]["try_number"]
        lines = []
        for number in range(1, max(tries, 1) + 1):
            path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{number}?full_content=true"
            try:
                lines += [_log_line(entry) for entry in self.call("GET", path)["content"]]
            except Transient as error:
                if error.data.get("status") != 404:  # a task that is being cleared has no tries for a moment
                    raise
        return "\n".join(lines)

    def task_store(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
        """What a task keeps in its state store."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/state-store"
        return {entry["key"]: entry["value"] for entry in self.call("GET", path)["task_state_store"]}

    def clear(self, dag_id: str, run_id: str, *task_ids: str) -> None:
        """Clear task instances of a run, whatever their state."""
        body = {"dry_run": False, "only_failed": False, "dag_run_id": run_id, "task_ids": list(task_ids)}
        self.call("POST", f"/dags/{dag_id}/clearTaskInstances", body)

    def respond(self, dag_id: str, run_id: str, task_id: str, option: str) -> None:
        """Answer what a task asks, as the administrator; not at once, see docs/airflow.md."""
        time.sleep(5)
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/-1/hitlDetails"
        self.call("PATCH", path, {"chosen_options": [option], "params_input": {}})

    def question(self, dag_id: str, run_id: str, task_id: str, seconds: float = 240) -> dict[str, Any]:
        """What a task asks, once it does."""
        wait_for(
            lambda: self.task_state(dag_id, run_id, task_id) == "awaiting_input",
            seconds,
            f"{dag_id} {task_id} asks",
            lambda: self.task_log(dag_id, run_id, task_id),
        )
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/-1/hitlDetails"
        return dict(self.call("GET", path))

    def finish(self, dag_id: str, run_id: str, seconds: float = 240) -> str:
        """Wait for a run to end; returns its state."""
        return wait_for(
            lambda: (state := self.run_state(dag_id, run_id)) in FINAL and state,
            seconds,
            f"{dag_id} {run_id} ends",
            on_failure=lambda: str({name: task["state"] for name, task in self.tasks(dag_id, run_id).items()}),
        )

    def _is_healthy(self) -> bool:
        dead = [name for name, process in self.processes.items() if process.poll() is not None]
        if dead:
            tails = "".join((self.home / f"{name}.log").read_text()[-2000:] for name in dead)
            raise AssertionError(f"{dead} ended: {tails}")
        health = airflow.health(self.port)
        return all(health.get(part) == "healthy" for part in ("scheduler", "dag_processor", "triggerer"))


@contextlib.contextmanager
def running(stack: AirflowStack) -> Iterator[AirflowStack]:
    """The stack, started, and ended whatever happens."""
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()


def live_by_its_dag(stack: AirflowStack, machine: Rig, seconds: float) -> int:
    """Have the stream's DAG bring the first epoch live, and wait until it has read everything; the epoch."""
    stack.unpause(f"stream__{machine.name}")
    first: int = wait_for(lambda: machine.record().live, seconds, "the stream's DAG brings an epoch live")
    machine.started.add(first)
    machine.settle(first)
    return first


def replayed_by_its_dag(stack: AirflowStack, machine: Rig, seconds: float) -> str:
    """Have the replay's DAG bring version 2 live as epoch 2, and wait until it has read everything; the run."""
    replay = f"replay__{machine.name}"
    machine.deploy(2)
    run = stack.trigger(replay, {"then": "cut_over", "reason": "version 2"})
    wait_for(lambda: len(machine.record().epochs) == 2, seconds, "the replay is on record")
    machine.started.add(2)
    assert stack.finish(replay, run, seconds) == "success", stack.task_log(replay, run, "plan")
    assert machine.record().live == 2
    machine.settle(2)
    return run


def wait_for(
    condition: Callable[[], T | Literal[False] | None], seconds: float, what: str, on_failure: Callable[[], str] = str
) -> T:
    """Wait until a condition is true and return what it gave; an AssertionError after the deadline."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"Not within {seconds} s: {what}. {on_failure()}"
        time.sleep(0.2)
    return value


def _log_line(entry: Any) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    errors = [f"{error['exc_type']}: {error['exc_value']}" for error in entry.get("error_detail") or ()]
    return " ".join([entry["event"], *errors])
