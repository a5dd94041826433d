"""Rebuild and housekeeping: what their tasks ask, do once, and say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskAwaitingInput
from structlog.testing import capture_logs
from support.airflow_runs import TOPOLOGY, Store, change, context, opened, started

from kappa.config import Config
from kappa.replay.plan import ReplayPlan
from kappa_airflow.forms import housekeeping_form, rebuild_form
from kappa_airflow.housekeeping import RemoveLeftovers
from kappa_airflow.replays.rebuild import ConfirmTakeover, PlanRebuild, StartRebuild

pytestmark = pytest.mark.usefixtures("no_connection")

FORM = opened(rebuild_form())


def new_run(**form: Any) -> Any:
    dag_run = SimpleNamespace(triggering_user_name="ann", conf=form)
    return {**context(), "params": {**FORM, **form}, "dag": SimpleNamespace(params=FORM), "dag_run": dag_run}


def planned(run: Any) -> str:
    return PlanRebuild(task_id="plan", topology=TOPOLOGY).execute(run)


def start(run: Any, plan: str, answer: str = "approved") -> int:
    decision = {"answer": answer, "by": "airflow:ann", "shown": {"plan": ReplayPlan.from_json(plan).id}}
    return int(StartRebuild(task_id="start", plan=plan, answer=decision).execute(run)["epoch"])


@pytest.fixture
def lost(control: Any, config: Config) -> Any:
    """An epoch sent last, and the lake knows nothing of it."""
    with control.changed(config) as now:
        now["markers"] = [TOPOLOGY]
    return control


def test_without_a_marker_there_is_nothing_to_rebuild_from(control: Any) -> None:
    with pytest.raises(AirflowFailException, match="left a marker"):
        planned(new_run())


def test_beside_a_live_epoch_a_rebuild_is_a_candidate_and_nothing_is_asked_or_ended(lost: Any, config: Config) -> None:
    started(context())
    change(lost, config, 1, stage="CUT_OVER")
    with lost.changed(config) as now:
        now["live"][TOPOLOGY] = 1
    plan = planned(run := new_run())
    decision = ConfirmTakeover(task_id="confirm", plan=plan, hours=1).execute(run)
    assert decision["answer"] == "approved"
    assert start({**run, "task_state_store": Store()}, plan) == 2
    assert "superseded" not in lost.world(config)


def test_where_the_lake_was_lost_it_asks_and_a_rejection_changes_nothing(
    lost: Any, config: Config, questions: list[Any]
) -> None:
    plan = planned(run := new_run())
    with pytest.raises(TaskAwaitingInput):
        ConfirmTakeover(task_id="confirm", plan=plan, hours=1).execute(run)
    (question,) = questions
    assert question["subject"] == f"Take {TOPOLOGY} over in this lake?" and "ends permanently" in question["body"]
    with capture_logs() as logs, pytest.raises(AirflowSkipException):
        start(run, plan, "rejected")
    assert "The change was rejected (airflow:ann): nothing was changed." in str(logs)
    assert lost.world(config)["epochs"] == {} and "superseded" not in lost.world(config)


def test_where_the_form_says_plan_no_takeover_is_asked_about(lost: Any, config: Config, questions: list[Any]) -> None:
    plan = planned(run := new_run(then="plan"))
    with capture_logs() as logs, pytest.raises(AirflowSkipException):
        ConfirmTakeover(task_id="confirm", plan=plan, hours=1).execute(run)
    assert "asks for the plan only" in str(logs)
    assert questions == [] and lost.world(config)["epochs"] == {}


def test_the_other_epoch_is_ended_before_the_last_plan_which_a_further_try_keeps(lost: Any, config: Config) -> None:
    plan = planned(new_run())
    run = new_run()
    assert start(run, plan) == 1
    last_plan = ReplayPlan.from_json(run["task_state_store"]["kappa_plan"])
    (superseded,) = lost.world(config)["superseded"]
    assert superseded == [TOPOLOGY, last_plan.seed_epoch, 1]
    run["task_state_store"].clean()
    assert start(run, plan) == 1
    assert len(lost.world(config)["superseded"]) == 1 and list(lost.world(config)["epochs"]) == [f"{TOPOLOGY}/1"]


def test_an_epoch_is_ended_for_the_plan_and_the_lake_that_were_shown_only(lost: Any, config: Config) -> None:
    plan = planned(new_run())
    yes = {"answer": "approved", "by": "airflow:ann"}
    for other in (None, yes, {**yes, "shown": {"plan": "another"}}):
        with pytest.raises(AirflowFailException, match="not the one that was confirmed"):
            StartRebuild(task_id="start", plan=plan, answer=other).execute(new_run())
    started(context())
    change(lost, config, 1, stage="CUT_OVER")
    with lost.changed(config) as now:
        now["live"][TOPOLOGY] = 1
    with pytest.raises(AirflowFailException, match=r"epoch 1 is live in this lake\. Nothing was ended"):
        start(new_run(), plan)
    assert "superseded" not in lost.world(config)


@pytest.mark.parametrize(("remove", "left"), [(True, []), (False, ["a.log", "b.log"])])
def test_housekeeping_says_what_it_found_and_removes_it_unless_it_only_looks(
    control: Any, config: Config, monkeypatch: pytest.MonkeyPatch, remove: bool, left: list[str]
) -> None:
    from kappa_airflow import housekeeping

    monkeypatch.setattr(housekeeping, "config_with_spark", lambda _: config)
    with control.changed(config) as now:
        now["left"] = ["a.log", "b.log"]
    run = new_run()
    form = opened(housekeeping_form())
    run["dag"].params = form
    with capture_logs() as logs:
        counts = RemoveLeftovers(task_id="remove").execute({**run, "params": {**form, "remove": remove}})
    assert control.world(config)["left"] == left
    removed = 2 if remove else 0
    assert counts == {"found": 2, "removed": removed, "bytes": removed * 2_000_000}
    assert "kappa.other.e0001.markers" in str(logs) and "no record knows it" in str(logs)
