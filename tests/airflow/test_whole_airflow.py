"""DAGs, operators and triggers on a real Airflow; lake, broker and drivers are fakes."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest
from support.airflow_stack import FAKES, AirflowStack, wait_for
from support.epoch_record import FIRST, SECOND, tell
from support.scripts import load

from kappa.errors import Transient
from kappa_airflow.pools import POOLS

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(600)]

#: Seconds that one step may take on a machine that is busy with other tests.
PATIENCE = 120
FORM: dict[str, Any] = {"then": "cut_over", "reason": "new code"}


def fakes(stack: AirflowStack) -> Any:
    """What the fake control has on record."""
    control: Any = load("kappa_fake_control", FAKES / "fake_control.py")
    return control.world(stack.config)


def pids(stack: AirflowStack, topology: str) -> list[int]:
    """Processes of a topology's drivers, in the order of their start."""
    return [pid for name, _, pid, _ in fakes(stack)["starts"] if name == topology]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def watched(stack: AirflowStack, dag_id: str) -> str:
    """Unpause a stream and wait until its first run watches; the run."""
    stack.unpause(dag_id)
    run = str(wait_for(lambda: stack.runs(dag_id), PATIENCE, f"{dag_id} has a run")[0]["dag_run_id"])
    is_deferred(stack, dag_id, run, "watch")
    return run


def is_deferred(stack: AirflowStack, dag_id: str, run: str, task: str, seconds: float = PATIENCE) -> None:
    wait_for(
        lambda: stack.task_state(dag_id, run, task) == "deferred",
        seconds,
        f"{dag_id} {task} is deferred",
        lambda: stack.task_log(dag_id, run, task),
    )


def test_a_stream_is_started_kept_running_and_never_stopped_by_its_dag(stack: AirflowStack) -> None:
    dag_id, topology = "stream__demo.watched", "demo.watched"
    run = watched(stack, dag_id)
    (first,) = pids(stack, topology)
    assert stack.task_store(dag_id, run, "watch")["kappa_driver"]["pid"] == first

    os.kill(first, signal.SIGKILL)
    wait_for(lambda: len(pids(stack, topology)) == 2, PATIENCE, "the driver was started again")
    second = pids(stack, topology)[-1]
    is_deferred(stack, dag_id, run, "watch")

    stack.clear(dag_id, run, "watch")
    wait_for(
        lambda: stack.task_log(dag_id, run, "watch").count("attached to the running driver") >= 1, PATIENCE, "attached"
    )
    is_deferred(stack, dag_id, run, "watch")
    stack.unpause(dag_id, paused=True)
    stack.call("PATCH", f"/dags/{dag_id}/dagRuns/{run}/taskInstances/watch", {"new_state": "failed"})
    assert stack.finish(dag_id, run) == "failed"
    assert is_alive(second)
    assert pids(stack, topology) == [first, second]


def test_a_watch_ends_by_itself_and_the_next_one_attaches(stack: AirflowStack) -> None:
    dag_id = "short_watch"
    run = watched(stack, dag_id)
    assert stack.finish(dag_id, run) == "success"
    wait_for(lambda: len(stack.runs(dag_id)) > 1, PATIENCE, "there is a next run")
    after = str(stack.runs(dag_id)[1]["dag_run_id"])
    is_deferred(stack, dag_id, after, "watch")
    stack.unpause(dag_id, paused=True)
    assert "attached to the running driver" in stack.task_log(dag_id, after, "watch")
    assert len(pids(stack, "demo.short")) == 1


def test_a_replay_goes_through_its_stages_and_each_task_is_safe_to_clear(stack: AirflowStack) -> None:
    topology, dag_id = "demo.replayed", "replay__demo.replayed"
    stream = "stream__demo.replayed"
    watching = watched(stack, stream)
    run = stack.trigger(dag_id, FORM)
    assert stack.finish(dag_id, run) == "success"
    assert fakes(stack)["live"][topology] == 2
    assert "into epoch 2, beside live epoch 1" in stack.task_log(dag_id, run, "plan")
    wait_for(
        lambda: stack.task_store(stream, watching, "watch")["kappa_driver"]["epoch"] == 2, PATIENCE, "the watch follows"
    )
    stack.unpause(stream, paused=True)
    before = fakes(stack)

    stack.clear(dag_id, run, *stack.tasks(dag_id, run))
    assert stack.finish(dag_id, run) == "success"
    after = fakes(stack)
    assert after | {"planner": 0} == before | {"planner": 0}  # the process that asked is another one, nothing else


def test_where_the_form_says_keep_the_candidate_is_built_and_nothing_moves(stack: AirflowStack) -> None:
    topology, dag_id = "demo.kept", "replay__demo.kept"
    watched(stack, "stream__demo.kept")
    stack.unpause("stream__demo.kept", paused=True)
    run = stack.trigger(dag_id, {**FORM, "then": "keep"})
    assert stack.finish(dag_id, run) == "success"
    assert stack.task_state(dag_id, run, "cut_over") == "skipped"
    assert f"DAG cutover__{topology} moves readers later" in stack.task_log(dag_id, run, "cut_over")
    assert fakes(stack)["live"][topology] == 1
    assert fakes(stack)["epochs"][f"{topology}/2"]["stage"] == "VERIFIED"


def test_an_answer_survives_a_killed_scheduler_and_a_rejected_epoch_goes_live_later(stack: AirflowStack) -> None:
    topology, dag_id, later = "demo.asked", "replay__demo.asked", "cutover__demo.asked"
    watched(stack, f"stream__{topology}")
    stack.unpause(f"stream__{topology}", paused=True)
    run = stack.trigger(dag_id, {**FORM, "then": "ask"})
    question = stack.question(dag_id, run, "approve")
    assert (
        question["subject"] == f"Move readers of {topology} from epoch 1 to epoch 2?"
        and "**differs**" in question["body"]
    )
    assert stack.tasks(dag_id, run)["verified"]["state"] == "success"
    assert "1 added, 0 removed, 2 changed" in stack.task_log(dag_id, run, "verified")
    for component in ("triggerer", "scheduler"):
        stack.kill(component)
    stack.respond(dag_id, run, "approve", "Reject")
    for component in ("scheduler", "triggerer"):
        stack.start_component(component)
    assert stack.finish(dag_id, run) == "success"
    assert "rejected" in fakes(stack)["epochs"][f"{topology}/2"] and fakes(stack)["live"][topology] == 1
    assert "Rejected: airflow:admin. Readers stay where they are." in stack.task_log(dag_id, run, "approve")
    assert stack.task_state(dag_id, run, "cut_over") == "skipped"
    assert "The change was rejected (airflow:admin)" in stack.task_log(dag_id, run, "cut_over")

    run = stack.trigger(later, {})
    stack.question(later, run, "approve")
    taken_up = f"Epoch 2 of {topology} was rejected by airflow:admin. It is resumed."
    assert taken_up in stack.task_log(later, run, "approve")
    stack.respond(later, run, "approve", "Approve")
    assert stack.finish(later, run) == "success"
    assert fakes(stack)["live"][topology] == 2

    run = stack.trigger(f"rollback__{topology}", {"reason": "back"})
    question = stack.question(f"rollback__{topology}", run, "confirm")
    assert f"Readers of {topology} go back from epoch 2 to epoch 1." in question["body"]
    stack.respond(f"rollback__{topology}", run, "confirm", "Approve")
    assert stack.finish(f"rollback__{topology}", run) == "success"
    assert fakes(stack)["live"][topology] == 1


def test_a_cleared_question_is_asked_only_if_its_page_shows_what_is_asked(stack: AirflowStack) -> None:
    topology, dag_id = "demo.asked", "rollback__demo.asked"
    control: Any = load("kappa_fake_control", FAKES / "fake_control.py")
    with control.changed(stack.config) as now:
        for epoch, stage in ((1, "RETIRED"), (2, "CUT_OVER")):
            now["epochs"][f"{topology}/{epoch}"] = {**control._epoch(stage), "wanted": False}
        now["live"][topology] = 2
    run = stack.trigger(dag_id, {})
    stack.question(dag_id, run, "confirm")
    stack.respond(dag_id, run, "confirm", "Reject")
    assert stack.finish(dag_id, run) == "success"

    with control.changed(stack.config) as now:
        now["epochs"][f"{topology}/3"] = {**control._epoch("CUT_OVER", "another plan"), "wanted": False}
        now["live"][topology] = 3
    stack.clear(dag_id, run, "choose", "confirm")
    wait_for(lambda: stack.task_state(dag_id, run, "confirm") == "failed", PATIENCE, "the question is refused")
    assert f"Trigger a new run of DAG {dag_id}" in stack.task_log(dag_id, run, "confirm")


def test_several_topologies_are_replayed_asked_about_once_and_moved_and_brought_back_together(
    stack: AirflowStack,
) -> None:
    names = ["demo.joint_a", "demo.joint_b"]
    for name in names:
        watched(stack, f"stream__{name}")
        stack.unpause(f"stream__{name}", paused=True)
    refused = {"topologies": names, "start": "to_datetime", "time": "2031-01-01T00:00:00Z"}
    run = stack.trigger("joint_replay", refused)
    assert stack.finish("joint_replay", run) == "failed"
    assert not [key for key in fakes(stack)["epochs"] if key.startswith("demo.joint_") and key.endswith("/2")]

    run = stack.trigger("joint_replay", {"topologies": names, "reason": "tariff"})
    question = stack.question("joint_replay", run, "approve")
    assert question["subject"] == "Move readers of demo.joint_a and demo.joint_b together?"
    for name in names:
        assert f"Readers of **{name}** are moved from epoch **1** to epoch **2**" in question["body"]
        assert fakes(stack)["epochs"][f"{name}/2"]["asked"][0][3].endswith("/tasks/approve/required_actions")
    instances = stack.call("GET", f"/dags/joint_replay/dagRuns/{run}/taskInstances?limit=100")["task_instances"]
    pairs = [(one["task_id"], one["rendered_map_index"]) for one in instances if one["map_index"] >= 0]
    tasks = ("plan", "start", "rewound", "seeded", "replayed", "caught_up", "verified")
    assert sorted(pairs) == sorted((task, name) for task in tasks for name in names)
    stack.kill("scheduler")
    stack.respond("joint_replay", run, "approve", "Approve")
    stack.start_component("scheduler")
    assert stack.finish("joint_replay", run) == "success"
    assert {fakes(stack)["live"][name] for name in names} == {2}
    assert fakes(stack)["epochs"]["demo.joint_a/2"]["together"] == dict.fromkeys(names, 2)

    run = stack.trigger("joint_rollback", {"topologies": names, "reason": "the tariff was wrong"})
    question = stack.question("joint_rollback", run, "confirm")
    assert all(f"Readers of {name} go back from epoch 2 to epoch 1." in question["body"] for name in names)
    stack.respond("joint_rollback", run, "confirm", "Approve")
    assert stack.finish("joint_rollback", run) == "success"
    assert {fakes(stack)["live"][name] for name in names} == {1}


def test_a_key_that_the_form_does_not_have_fails_the_run_before_anything_is_planned(stack: AirflowStack) -> None:
    run = stack.trigger("replay__demo.refused", {**FORM, "cut_over": True})
    assert stack.finish("replay__demo.refused", run) == "failed"
    assert "no field 'cut_over'" in stack.task_log("replay__demo.refused", run, "plan")


def test_housekeeping_runs_and_a_stream_takes_no_run_by_hand(stack: AirflowStack) -> None:
    pools = {pool["name"]: pool for pool in stack.call("GET", "/pools")["pools"]}
    assert all(pools[pool.name]["include_deferred"] and pools[pool.name]["slots"] == pool.slots for pool in POOLS)
    run = stack.trigger("housekeeping", {"remove": False})
    assert stack.finish("housekeeping", run) == "success"
    assert "stays: topic kappa.other.e0001.markers" in stack.task_log("housekeeping", run, "remove")
    with pytest.raises(Transient, match="manual"):
        stack.trigger("stream__demo.refused", {})


def announced(stack: AirflowStack) -> list[tuple[str, str]]:
    """Which move each asset event of the balances is about, oldest first."""
    try:
        events = stack.call("GET", "/assets/events?limit=100&name_pattern=demo.announced")["asset_events"]
    except Transient as error:
        if error.data.get("status") != 500:
            raise
        return []  # Airflow cannot show an event whose run is queued and has no start yet
    return [
        (event["extra"]["id"], event["extra"]["table"])
        for event in events
        if event["extra"].get("topology") == "demo.announced"
    ]


def test_each_move_is_one_asset_event_whoever_made_it_and_after_the_triggerer_died(stack: AirflowStack) -> None:
    def runs(dag_id: str) -> list[str]:
        return [run["state"] for run in stack.runs(dag_id)]

    def has(*moves: str) -> None:
        pairs = [(move, table) for move in moves for table in ("balances", "notes")]
        wait_for(
            lambda: sorted(announced(stack)) == sorted(pairs),
            PATIENCE,
            f"{moves} are announced",
            lambda: str(announced(stack)),
        )

    def make(epoch: int, *names: str, **move: Any) -> None:
        """What `kappa cutover` in a terminal leaves on record."""
        plan = json.dumps({"tables": ["balances"], "appends": ["notes"]})
        details = {
            "planned": {"plan": plan},
            "verified": {"verdict": "same"},
            "moved": {"at": {"events": {"0": 9}}, **move},
        }
        tell(stack.config, "demo.announced", epoch, *names, by_event=details)

    stack.await_dag("downstream")
    wait_for(lambda: "success" in runs("announcements"), PATIENCE, "the watcher woke its DAG once")
    make(1, *FIRST)
    has("demo.announced/4")
    stack.kill("triggerer")
    make(2, *SECOND, "moved", **{"from": 1})
    stack.start_component("triggerer")
    has("demo.announced/4", "demo.announced/11")
    stack.kill("triggerer")
    stack.start_component("triggerer")
    (first, *_), before = stack.runs("announcements"), len(runs("announcements"))
    stack.clear("announcements", first["dag_run_id"], "announce")
    wait_for(lambda: len(runs("announcements")) > before, PATIENCE, "the watcher that began anew woke its DAG")
    wait_for(lambda: set(runs("announcements")) == {"success"}, PATIENCE, "every run ended well")
    has("demo.announced/4", "demo.announced/11")

    def mentions() -> list[int]:
        log = "".join(stack.task_log("downstream", run["dag_run_id"], "log_moves") for run in stack.runs("downstream"))
        return [log.count(f"told demo.announced/{n} cutover at {{'events': {{'0': 9}}}}") for n in (4, 11)]

    wait_for(
        lambda: mentions() == [1, 1], PATIENCE, "the DAG downstream was told once of each move", lambda: str(mentions())
    )


def test_a_refused_plan_fails_at_once_with_the_findings_in_the_log(stack: AirflowStack) -> None:
    dag_id = "replay__demo.refused"
    run = stack.trigger(dag_id, {**FORM, "start": "to_datetime", "time": "2031-01-01T00:00:00Z"})
    assert stack.finish(dag_id, run) == "failed"
    tasks = stack.tasks(dag_id, run)
    assert (tasks["plan"]["state"], tasks["plan"]["try_number"]) == ("failed", 1)
    assert tasks["start"]["state"] == "upstream_failed"
    assert "2031-01-01" in stack.task_log(dag_id, run, "plan")
    assert not [key for key in fakes(stack)["epochs"] if key.startswith("demo.refused/")]


@pytest.mark.parametrize("form", [{"start": "from_file"}, {"then": "perhaps"}, {"allow": ["all"]}, {"shift": "back"}])
def test_the_form_allows_only_what_there_is(stack: AirflowStack, form: dict[str, Any]) -> None:
    with pytest.raises(Transient) as refused:
        stack.trigger("replay__demo.refused", {**FORM, **form})
    assert refused.value.data["status"] in (400, 422)


def test_a_killed_task_and_a_killed_driver_do_not_need_a_human(stack: AirflowStack) -> None:
    topology, dag_id = "demo.killed", "replay__demo.killed"
    run = stack.trigger(dag_id, FORM)
    wait_for(
        lambda: any(key.startswith(topology) for key in fakes(stack)["epochs"]), PATIENCE, "the replay is on record"
    )
    os.kill(fakes(stack)["planner"], signal.SIGKILL)
    wait_for(lambda: pids(stack, topology), PATIENCE, "a driver")
    os.kill(pids(stack, topology)[0], signal.SIGKILL)
    assert stack.finish(dag_id, run) == "success"
    assert stack.tasks(dag_id, run)["start"]["try_number"] == 2
    assert [key for key in fakes(stack)["epochs"] if key.startswith(topology)] == [f"{topology}/1"]
    assert len(pids(stack, topology)) == 2


def test_a_killed_triggerer_that_is_started_again_goes_on_waiting(stack: AirflowStack) -> None:
    topology, dag_id = "demo.resumed", "replay__demo.resumed"
    run = stack.trigger(dag_id, FORM)
    wait_for(lambda: pids(stack, topology), PATIENCE, "a driver")
    (driver,) = pids(stack, topology)
    os.kill(driver, signal.SIGSTOP)
    wait_for(
        lambda: "deferred" in [task["state"] for task in stack.tasks(dag_id, run).values()],
        PATIENCE,
        "a stage is waited for",
    )
    stack.kill("triggerer")
    os.kill(driver, signal.SIGCONT)
    stack.start_component("triggerer")
    assert stack.finish(dag_id, run) == "success"
    assert pids(stack, topology) == [driver]
