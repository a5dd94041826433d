from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskDeferred
from support.airflow_runs import BOTH, OTHER, TOPOLOGY, change, context, planned, started

from kappa.config import Config
from kappa.errors import LakeUnreachableError, LedgerError, StuckError
from kappa.replay.chains import Binding
from kappa.replay.plan import ReplayPlan
from kappa_airflow.approvals import Approve
from kappa_airflow.moves import Abort, BringBack
from kappa_airflow.replays.rebuild import ConfirmTakeover, StartRebuild
from kappa_airflow.replays.replay import MOST_RESTARTS, AwaitReady, AwaitStage, CutOver, StartReplay
from kappa_airflow.replays.reports import Verify
from kappa_airflow.replays.reprocess import Conclude
from kappa_airflow.stream import WatchStream
from kappa_airflow.tasks import NameTopologies

pytestmark = pytest.mark.usefixtures("no_connection")


@pytest.fixture
def world(control: Any, config: Config) -> Callable[[], Any]:
    return lambda: control.world(config)


def watch(run: Any, **arguments: Any) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as deferred:
        WatchStream(task_id="watch", topology=TOPOLOGY, **arguments).execute(run)
    return deferred.value


def resume(run: Any, **event: Any) -> TaskDeferred:
    until = watch(run).kwargs
    with pytest.raises(TaskDeferred) as deferred:
        WatchStream(task_id="watch", topology=TOPOLOGY).resume(
            run, {"epoch": 1, "restarts": 0, "message": "", **event}, **(until or {})
        )
    return deferred.value


# WatchStream


def test_a_topology_without_an_epoch_is_started_and_watched(world: Callable[[], Any]) -> None:
    deferred = watch(context())
    assert world()["live"] == {TOPOLOGY: 1}
    assert (deferred.trigger.epoch, deferred.trigger.restarts) == (1, 0)


def test_a_topology_whose_lake_was_lost_is_not_started_anew(
    control: Any, config: Config, world: Callable[[], Any]
) -> None:
    with control.changed(config) as now:
        now["markers"] = [TOPOLOGY]
    with pytest.raises(LedgerError, match="kappa rebuild"):
        WatchStream(task_id="watch", topology=TOPOLOGY).execute(context())
    assert world()["live"] == {}


def test_a_driver_that_runs_is_attached_to(world: Callable[[], Any]) -> None:
    watch(context())
    watch(context())
    assert len(world()["starts"]) == 1


def test_which_driver_is_watched_is_kept_before_it_is_started(
    control: Any, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch(context())
    change(control, config, 1, state="dead")
    run = context()

    def ensure_driver(*_: Any) -> Any:
        assert run["task_state_store"]["kappa_driver"]["epoch"] == 1
        raise LakeUnreachableError("killed here")

    monkeypatch.setattr(control, "ensure_driver", ensure_driver)
    with pytest.raises(LakeUnreachableError):
        WatchStream(task_id="watch", topology=TOPOLOGY).execute(run)


def test_a_driver_that_was_stopped_on_request_is_watched_and_not_started(
    control: Any, config: Config, world: Callable[[], Any]
) -> None:
    watch(context())
    change(control, config, 1, wanted=False, pid=None)
    watch(context())
    assert len(world()["starts"]) == 1


def test_a_dead_driver_is_started_again_and_the_restart_counted(
    control: Any, config: Config, world: Callable[[], Any]
) -> None:
    watch(context())
    change(control, config, 1, pid=None)
    deferred = resume(context(), event="dead", restarts=3)
    assert deferred.trigger.restarts == 4
    assert len(world()["starts"]) == 2


def test_after_a_move_the_new_live_epoch_is_watched(control: Any, config: Config) -> None:
    watch(context())
    with control.changed(config) as now:
        now["live"][TOPOLOGY] = 2
        now["epochs"][f"{TOPOLOGY}/2"] = control._epoch("CUT_OVER")
    deferred = resume(context(), event="moved", live=2, restarts=3)
    assert (deferred.trigger.epoch, deferred.trigger.restarts) == (2, 0)


@pytest.mark.usefixtures("control")
def test_an_interrupted_watch_ends_when_it_would_have_ended() -> None:
    before = watch(context(), watch_for=timedelta(hours=1))
    with pytest.raises(TaskDeferred) as after:
        WatchStream(task_id="watch", topology=TOPOLOGY).resume(
            context(), {"event": "dead", "epoch": 1, "restarts": 0, "message": ""}, **(before.kwargs or {})
        )
    assert after.value.trigger.until == before.trigger.until


@pytest.mark.usefixtures("control")
def test_a_watch_that_is_over_ends_well_and_a_stuck_driver_fails_a_try() -> None:
    task = WatchStream(task_id="watch", topology=TOPOLOGY)
    event = {"epoch": 1, "restarts": 0, "message": "Slice 7 failed three times."}
    task.resume(context(), {**event, "event": "ended"}, until="2026-01-01T00:00:00+00:00")
    with pytest.raises(StuckError, match=r"Slice 7 failed three times.*kappa start"):
        task.resume(context(), {**event, "event": "stuck"}, until="2026-01-01T00:00:00+00:00")


def test_a_watch_is_tried_again_with_growing_pauses_whatever_fails() -> None:
    task = WatchStream(task_id="watch", topology=TOPOLOGY)
    assert task.retries > 0 and task.retry_exponential_backoff > 1
    assert not issubclass(StuckError, AirflowFailException)


# The tasks of a replay


@pytest.mark.usefixtures("control")
def test_a_plan_is_made_once_a_run(world: Callable[[], Any]) -> None:
    run = context()
    first = planned(run)
    started(run)
    run["task_state_store"].clean()
    assert planned(run) == first
    assert ReplayPlan.from_json(first).request.actor == "airflow:ann"
    assert list(world()["epochs"]) == [f"{TOPOLOGY}/1"]


@pytest.mark.usefixtures("control")
def test_a_refused_plan_fails_without_a_retry_and_says_why() -> None:
    run = context(start="to_datetime", time="2031-01-01T00:00:00Z")
    with pytest.raises(AirflowFailException, match="events"):
        planned(run)
    assert not run["task_state_store"]


@pytest.mark.usefixtures("control")
def test_a_wrong_form_fails_without_a_retry() -> None:
    with pytest.raises(AirflowFailException, match="needs 'time'"):
        planned(context(start="to_datetime"))


def test_a_run_names_its_topologies_and_one_alone_has_dags_of_its_own() -> None:
    assert NameTopologies(task_id="name").execute(context(topologies=BOTH)) == BOTH
    for names in ([], [OTHER], [OTHER, OTHER]):
        with pytest.raises(AirflowFailException, match="name two or more"):
            NameTopologies(task_id="name").execute(context(topologies=names))
    with pytest.raises(AirflowFailException, match="no field 'seed'"):
        NameTopologies(task_id="name").execute(context(topologies=BOTH, seed="empty"))


def test_the_plan_of_one_of_several_is_that_of_their_form(control: Any) -> None:
    control.start(control.Config.from_env(), TOPOLOGY, actor="ann")
    run = context(topologies=BOTH, reason="tariff")
    plan = ReplayPlan.from_json(planned(run))
    assert (plan.topology, plan.request.reason, plan.request.actor) == (TOPOLOGY, "tariff", "airflow:ann")
    assert started(run) == 2


def test_a_topology_that_would_read_the_live_epoch_of_another_one_of_them_is_refused(control: Any) -> None:
    control.start(control.Config.from_env(), TOPOLOGY, actor="ann")
    run = context(topologies=BOTH)
    bound = {"events": Binding(topology=OTHER, epoch=1, topic="kept.e0001")}
    plan = replace(ReplayPlan.from_json(planned(run)), bound=bound, id="").to_json()
    with pytest.raises(AirflowFailException, match=rf"{TOPOLOGY} reads a topic of {OTHER}.*--upstream {OTHER}=EPOCH"):
        StartReplay(task_id="start", plan=plan).execute(run)


AFTER: tuple[tuple[Any, dict[str, Any]], ...] = (
    (StartReplay, {"plan": None}),
    (StartRebuild, {"plan": None, "answer": None}),
    (ConfirmTakeover, {"plan": None, "hours": 1}),
    (AwaitStage, {"members": None, "stage": "SEEDED"}),
    (AwaitReady, {"members": None}),
    (Verify, {"members": None}),
    (Approve, {"members": None, "hours": 1}),
    (CutOver, {"members": None}),
    (BringBack, {"members": None, "answer": {"answer": "approved"}}),
    (Abort, {"members": None, "answer": {"answer": "approved"}}),
    (Conclude, {"topology": TOPOLOGY, "verification": None}),
)


@pytest.mark.usefixtures("control")
@pytest.mark.parametrize(("kind", "arguments"), AFTER, ids=[kind.__name__ for kind, _ in AFTER])
def test_after_a_task_that_was_marked_as_a_success_a_task_fails_without_a_retry(
    kind: Any, arguments: dict[str, Any]
) -> None:
    with pytest.raises(AirflowFailException, match=r"marked it as a success, .* Clear that task"):
        kind(task_id="next", **arguments).execute(context())


@pytest.mark.usefixtures("control")
@pytest.mark.parametrize("then", ["ask", "cut_over"])
def test_without_an_epoch_of_one_of_several_topologies_nothing_is_asked_or_moved(
    world: Callable[[], Any], then: str
) -> None:
    members, before = [{"topology": TOPOLOGY, "epoch": 2}], world()
    for kind, arguments in ((Approve, {"hours": 1}), (CutOver, {})):
        with pytest.raises(AirflowFailException, match=rf"no epoch of {OTHER}: .* Readers of all topologies stay"):
            kind(task_id="next", members=members, **arguments).execute(context(topologies=BOTH, then=then))
    assert world() == before


def test_a_lake_that_does_not_answer_is_left_to_the_retries(control: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(*_: Any) -> Any:
        raise LakeUnreachableError("gone")

    monkeypatch.setattr(control, "plan", plan)
    with pytest.raises(LakeUnreachableError):
        planned(context())


def test_starting_a_plan_twice_gives_the_same_epoch(world: Callable[[], Any], control: Any) -> None:
    run = context()
    assert started(run) == started(run) == 1
    assert len(world()["epochs"]) == 1


FIRST = {"topology": TOPOLOGY, "epoch": 1}


def stage_task(stage: str, **arguments: Any) -> AwaitStage:
    return AwaitStage(task_id=stage.lower(), members=FIRST, stage=stage, **arguments)


def test_a_stage_that_is_reached_ends_its_task_at_once(control: Any, config: Config) -> None:
    started(context())
    change(control, config, 1, stage="VERIFIED", pid=None)
    stage_task("SEEDED").execute(context())


def test_a_wait_starts_the_candidates_driver_when_it_has_none(
    control: Any, config: Config, world: Callable[[], Any]
) -> None:
    started(context())
    change(control, config, 1, pid=None)
    with pytest.raises(TaskDeferred):
        stage_task("SEEDED").execute(context())
    assert len(world()["starts"]) == 2


def test_a_driver_that_dies_again_and_again_is_given_up(control: Any) -> None:
    started(context())
    event = {"event": "dead", "epoch": 1, "message": "It is out of memory."}
    with pytest.raises(TaskDeferred):
        stage_task("SEEDED").resume(context(), {**event, "restarts": MOST_RESTARTS - 1})
    with pytest.raises(AirflowFailException, match="out of memory"):
        stage_task("SEEDED").resume(context(), {**event, "restarts": MOST_RESTARTS})


@pytest.mark.parametrize("kind", ["failed", "stuck"])
def test_an_epoch_that_will_not_arrive_fails_its_task_for_good(kind: str) -> None:
    with pytest.raises(AirflowFailException, match="why"):
        stage_task("SEEDED").resume(context(), {"event": kind, "epoch": 1, "restarts": 0, "message": "why"})


def cut_over(run: Any) -> None:
    CutOver(task_id="cut_over", members=FIRST).execute(run)


def test_where_the_form_says_keep_there_is_no_cutover(control: Any, config: Config) -> None:
    started(context())
    change(control, config, 1, stage="VERIFIED")
    with pytest.raises(AirflowSkipException, match=r"DAG cutover__demo\.replayed moves readers later"):
        cut_over(context(then="keep"))
    assert "handover" not in control._entry(control.world(config), TOPOLOGY, 1)


def test_a_first_epoch_is_live_whatever_the_form_says(control: Any, config: Config) -> None:
    started(context())
    change(control, config, 1, stage="CUT_OVER")
    with control.changed(config) as now:
        now["live"][TOPOLOGY] = 1
    cut_over(context(then="keep"))


def test_where_the_form_asks_for_an_approval_there_is_no_cutover_without_one(control: Any, config: Config) -> None:
    started(context())
    change(control, config, 1, stage="VERIFIED")
    with pytest.raises(AirflowFailException, match="was not approved: readers stay"):
        cut_over(context(then="ask"))
    assert "handover" not in control._entry(control.world(config), TOPOLOGY, 1)


@pytest.mark.usefixtures("control")
@pytest.mark.parametrize("filled", [{}, {"topologies": BOTH}], ids=["one", "several"])
def test_where_the_form_says_plan_nothing_is_built(world: Callable[[], Any], filled: dict[str, Any]) -> None:
    with pytest.raises(AirflowSkipException, match="nothing was built"):
        started(context(then="plan", **filled))
    assert world()["epochs"] == {}


def test_a_key_that_the_form_does_not_have_is_refused(control: Any, world: Callable[[], Any]) -> None:
    with pytest.raises(AirflowFailException, match="no field 'cut_over'"):
        planned(context(cut_over=True))


def test_a_cutover_is_asked_for_and_waited_for(control: Any, config: Config) -> None:
    started(context())
    change(control, config, 1, stage="VERIFIED")
    with pytest.raises(TaskDeferred) as deferred:
        cut_over(context())
    assert control._entry(control.world(config), TOPOLOGY, 1)["handover"]
    assert deferred.value.trigger.stage == "CUT_OVER"


def test_a_cutover_that_takes_long_and_may_have_been_withdrawn_is_asked_for_again(control: Any, config: Config) -> None:
    started(context())
    change(control, config, 1, stage="VERIFIED")
    with pytest.raises(TaskDeferred) as deferred:
        CutOver(task_id="cut_over", members=FIRST).resume(
            context(), {"event": "late", "epoch": 1, "restarts": 2, "message": ""}
        )
    assert control._entry(control.world(config), TOPOLOGY, 1)["handover"]
    assert (deferred.value.trigger.restarts, deferred.value.trigger.late_seconds) == (2, CutOver.late_seconds)


def test_a_stage_that_is_reached_while_its_task_resumes_ends_it_well(control: Any, config: Config) -> None:
    started(context())
    change(control, config, 1, stage="CUT_OVER")
    with control.changed(config) as now:
        now["live"][TOPOLOGY] = 1
    for kind in ("dead", "late"):
        event = {"event": kind, "epoch": 1, "restarts": 0, "message": ""}
        CutOver(task_id="cut_over", members=FIRST).resume(context(), event)


def test_a_cutover_that_was_made_ends_at_once(control: Any, config: Config) -> None:
    started(context())
    change(control, config, 1, stage="CUT_OVER")
    with control.changed(config) as now:
        now["live"][TOPOLOGY] = 1
    cut_over(context())


def test_clearing_an_old_cutover_does_not_undo_a_rollback(control: Any, config: Config) -> None:
    started(context())
    change(control, config, 1, stage="RETIRED")
    with pytest.raises(AirflowFailException, match="kappa rollback"):
        cut_over(context())


def test_a_refused_cutover_fails_without_a_retry(control: Any, config: Config) -> None:
    started(context())
    change(control, config, 1, stage="SEEDED")
    with pytest.raises(AirflowFailException, match="SEEDED"):
        cut_over(context())
