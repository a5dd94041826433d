"""Several topologies in one run: what is planned, asked and moved, and that one refusal keeps all where they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from airflow.providers.standard.operators import hitl
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskAwaitingInput, TaskDeferred
from structlog.testing import capture_logs
from test_approvals import Logs, Pushed, answer, lines
from test_tasks import context

from kappa.config import Config
from kappa.replay.chains import Binding
from kappa.replay.plan import ReplayPlan
from kappa_airflow.approvals import Confirm
from kappa_airflow.joint.joint_approval import ApproveTogether
from kappa_airflow.joint.joint_forms import joint_move_form, joint_replay_form
from kappa_airflow.joint.together import (
    BringBackTogether,
    ChooseMembers,
    CutOverTogether,
    NameTopologies,
    PlanMember,
    StartMember,
)

pytestmark = pytest.mark.usefixtures("no_connection")

A, B = "demo.asked", "demo.kept"
MEMBERS = [{"topology": A, "epoch": 2}, {"topology": B, "epoch": 2}]


def given(**form: Any) -> Any:
    """The context of a joint replay with a filled form."""
    filled = {name: param.value for name, param in joint_replay_form([A, B]).items()}
    return {**context(), "params": {**filled, "topologies": [A, B], "reason": "tariff", **form}}


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What Airflow was told to ask."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **told: found.append(told))
    return found


@pytest.fixture
def said() -> Iterator[Logs]:
    with capture_logs() as logs:
        yield logs


@pytest.fixture
def both(control: Any, config: Config) -> Any:
    """Of two topologies epoch 1 is live and epoch 2 verified."""
    with control.changed(config) as now:
        for name in (A, B):
            now["live"][name] = 1
            now["epochs"][f"{name}/1"] = control._epoch("CUT_OVER")
            now["epochs"][f"{name}/2"] = control._epoch("VERIFIED", f"a plan of {name}")
    return control


def entry(control: Any, config: Config, name: str, epoch: int = 2) -> Any:
    return control._entry(control.world(config), name, epoch)


def approve(**how: Any) -> ApproveTogether:
    return ApproveTogether(task_id="approve", members=MEMBERS, hours=24, **how)


def cut_over(found: Any, **form: Any) -> CutOverTogether:
    task = CutOverTogether(task_id="cut_over", members=MEMBERS, answer=found)
    task.execute(given(**form))
    return task


def test_a_run_names_its_topologies_and_one_alone_has_dags_of_its_own() -> None:
    assert NameTopologies(task_id="name").execute(given()) == [A, B]
    for names in ([], [A], [A, A]):
        with pytest.raises(AirflowFailException, match="name two or more"):
            NameTopologies(task_id="name").execute(given(topologies=names))
    wrong = given()
    wrong["dag_run"].conf = {"topologies": [A, B], "seed": "empty"}
    with pytest.raises(AirflowFailException, match="no field 'seed'"):
        NameTopologies(task_id="name").execute(wrong)


def test_the_plan_of_each_is_that_of_the_form_and_its_start_says_whose_epoch_it_is(control: Any) -> None:
    control.start(control.Config.from_env(), A, actor="ann")
    form = given()
    plan = PlanMember(task_id="plan", topology=A).execute(form)
    found = ReplayPlan.from_json(plan)
    assert (found.topology, found.request.reason, found.request.actor) == (A, "tariff", "airflow:ann")
    assert StartMember(task_id="start", plan=plan).execute(form) == {"topology": A, "epoch": 2}
    with pytest.raises(AirflowSkipException):
        StartMember(task_id="start", plan=plan).execute(given(then="plan"))


def test_a_topology_that_would_read_the_live_epoch_of_another_one_of_them_is_refused(control: Any) -> None:
    control.start(control.Config.from_env(), A, actor="ann")
    plan = PlanMember(task_id="plan", topology=A).execute(given())
    bound = {"events": Binding(topology=B, epoch=1, topic="kept.e0001")}
    plan = replace(ReplayPlan.from_json(plan), bound=bound, id="").to_json()
    with pytest.raises(AirflowFailException, match=rf"{A} reads a topic of {B}.*--upstream {B}=EPOCH"):
        StartMember(task_id="start", plan=plan).execute(given())


def test_one_question_has_the_difference_of_each_and_one_answer_moves_both(
    both: Any, config: Config, asked: list[Any]
) -> None:
    form = given()
    with pytest.raises(TaskAwaitingInput):
        approve().execute(form)
    (question,) = asked
    assert question["subject"] == f"Move readers of {A} and {B} together?"
    for name in (A, B):
        for part in (f"### {name}", f"Readers of **{name}** are moved from epoch **1** to epoch **2**"):
            assert part in question["body"], part
        assert entry(both, config, name)["asked"], "its notice"
    assert question["body"].count("keys added") == 2 and question["body"].count("The whole report") == 2
    found = approve().execute_complete(form, answer("Approve"))
    assert found == {"answer": "approved", "by": "airflow:ann", "replaces": {A: 1, B: 1}}
    assert all(entry(both, config, name)["approvals"][0][0] == "airflow:ann" for name in (A, B))
    cut_over(found)
    assert both.world(config)["live"] == {A: 2, B: 2}
    assert entry(both, config, A)["together"] == {A: 2, B: 2}
    assert approve().execute(form) == {"answer": "live already"}


def test_one_rejection_keeps_all_where_they_are_and_a_cleared_task_takes_all_up_again(
    both: Any, config: Config, said: Logs, asked: list[Any]
) -> None:
    form = given()
    with pytest.raises(TaskAwaitingInput):
        approve().execute(form)
    found = approve().execute_complete(form, answer("Reject"))
    assert all(entry(both, config, name)["rejected"] == "rejected by airflow:ann" for name in (A, B))
    with pytest.raises(AirflowSkipException):
        cut_over(found)
    assert both.world(config)["live"] == {A: 1, B: 1}
    assert approve().execute(form) == found and len(asked) == 1, "a retry asks nothing"
    form["ti"].max_tries = 7  # as clearing does
    with pytest.raises(TaskAwaitingInput):
        approve().execute(form)
    assert not any("rejected" in entry(both, config, name) for name in (A, B)) and len(asked) == 2
    assert f"Epoch 2 of {B} was rejected by airflow:ann. It is taken up again." in lines(said, "info")


def test_what_changed_since_it_was_asked_approves_none_of_them(both: Any, config: Config) -> None:
    form = given()
    with pytest.raises(TaskAwaitingInput):
        approve().execute(form)
    with both.changed(config) as now:
        now["live"][B] = None
    with pytest.raises(AirflowFailException, match=f"{B}: the live epoch was 1 and is None"):
        approve().execute_complete(form, answer("Approve"))
    assert not any("approvals" in entry(both, config, name) for name in (A, B))


def test_an_answer_to_a_question_of_which_nothing_is_kept_approves_none_of_them(both: Any, config: Config) -> None:
    form = given()
    with pytest.raises(TaskAwaitingInput):
        approve().execute(form)
    kept = form["task_state_store"].pop("kappa_terms")
    with pytest.raises(AirflowFailException, match="not known any more what the question showed"):
        approve().execute_complete(form, answer("Approve"))
    form["task_state_store"]["kappa_terms"] = {A: kept[A]}
    with pytest.raises(AirflowFailException, match=f"question was about {A} epoch 2, which is not what would be moved"):
        approve().execute_complete(form, answer("Approve"))
    assert not any("approvals" in entry(both, config, name) for name in (A, B))


def test_both_are_moved_from_the_epochs_that_were_shown_only(both: Any, config: Config) -> None:
    form = given()
    with pytest.raises(TaskAwaitingInput):
        approve().execute(form)
    found = approve().execute_complete(form, answer("Approve"))
    with both.changed(config) as now:
        now["live"][B] = 7
    with pytest.raises(AirflowFailException, match=f"The live epoch of {B} is another"):
        cut_over(found)
    assert both.world(config)["live"] == {A: 1, B: 7}


def test_two_people_are_asked_where_one_of_the_topologies_wants_two(
    both: Any, config: Config, asked: list[Any]
) -> None:
    file = config.topologies / "kept.py"
    file.write_text(file.read_text().replace('version="1",', 'version="1", approvals=2,'))
    form = given(then="cut_over")
    with pytest.raises(TaskAwaitingInput):
        approve().execute(form)
    first = approve().execute_complete(form, answer("Approve"))
    second = approve(nth=2, before=first)
    with pytest.raises(TaskAwaitingInput):
        second.execute(form)
    assert asked[1]["subject"].endswith("together? Approval 2 of 2")
    with pytest.raises(AirflowFailException, match=f"airflow:ann approved {B} already, and 2 people have to"):
        second.execute_complete(form, answer("Approve"))
    assert second.execute_complete(form, answer("Approve", "bob"))["answer"] == "approved"
    again = approve(nth=2, before=first).execute(form)
    assert (again["answer"], again["by"]) == ("approved", "those on record")


def test_where_the_form_does_not_ask_nothing_is_asked(both: Any, asked: list[Any]) -> None:
    for then in ("cut_over", "keep"):
        assert approve().execute(given(then=then)) == {"answer": "not asked"}
    with pytest.raises(AirflowSkipException):
        cut_over({"answer": "not asked"}, then="keep")
    assert asked == []


def test_a_move_that_one_of_them_is_not_ready_for_moves_none(both: Any, config: Config) -> None:
    with both.changed(config) as now:
        now["epochs"][f"{B}/2"]["stage"] = "REPLAYED"
    with pytest.raises(AirflowFailException, match="nothing was changed"):
        cut_over({"answer": "not asked"}, then="cut_over")
    assert both.world(config)["live"] == {A: 1, B: 1}


def test_a_move_is_asked_for_again_until_it_is_made(both: Any, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for: list[Any] = []
    monkeypatch.setattr(both, "cut_over_together", lambda _, members, **how: asked_for.append((members, how["reason"])))
    task = CutOverTogether(task_id="cut_over", members=MEMBERS, answer={"answer": "not asked"})
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(given(then="cut_over"))
    assert (deferred.value.trigger.topology, deferred.value.trigger.stage) == (A, "CUT_OVER")  # type: ignore[attr-defined]
    with pytest.raises(TaskDeferred):
        task.resume(given(then="cut_over"), {"event": "late", "restarts": 0, "message": ""})
    with pytest.raises(TaskDeferred):
        task.resume(given(then="cut_over"), {"event": "dead", "restarts": 0, "message": ""})
    assert asked_for == [({A: 2, B: 2}, "tariff")] * 2


def test_a_cleared_cutover_does_not_undo_a_later_rollback(both: Any, config: Config) -> None:
    with both.changed(config) as now:
        now["epochs"][f"{B}/2"]["stage"] = "RETIRED"
    with pytest.raises(AirflowFailException, match=f"Epoch 2 of {B} was live and is retired since"):
        cut_over({"answer": "not asked"})


def moved(form: Any, *, is_back: bool) -> tuple[list[Any], list[str]]:
    pushed = Pushed()
    found = ChooseMembers(task_id="choose", is_back=is_back).execute({**form, "ti": pushed})
    return found, pushed["lines"]


def moves() -> Any:
    filled = {name: param.value for name, param in joint_move_form([A, B]).items()}
    return {**context(), "params": {**filled, "topologies": [A, B]}}


def test_epochs_that_wait_are_chosen_and_moved_together(both: Any, config: Config) -> None:
    found, told = moved(moves(), is_back=False)
    assert found == MEMBERS and f"Epoch 2 of {B} is PLANNED; live is epoch 1." in told[1], "the fake records no stages"
    with both.changed(config) as now:
        now["epochs"][f"{B}/2"]["stage"] = "ABORTED"
    with pytest.raises(AirflowFailException, match=f"No epoch of {B} waits for a cutover"):
        moved(moves(), is_back=False)


def test_a_way_back_is_asked_for_and_brings_all_back_or_none(both: Any, config: Config) -> None:
    cut_over({"answer": "not asked"}, then="cut_over")
    found, told = moved(moves(), is_back=True)
    back = [{"topology": name, "epoch": 1} for name in (A, B)]
    assert found == back and sum("go back from epoch 2 to epoch 1" in line for line in told) == 2
    no = {"answer": "rejected", "by": "airflow:ann"}
    with pytest.raises(AirflowSkipException):
        BringBackTogether(task_id="bring_back", members=found, answer=no).execute(moves())
    assert not entry(both, config, A, 1).get("recalled")
    confirm = Confirm(
        task_id="confirm", topology="several", epoch=None, hours=1, what="Back?", lines=told, members=found
    )
    with pytest.raises(TaskAwaitingInput):
        confirm.execute(form := moves())
    yes = confirm.execute_complete(form, answer("Approve"))
    with both.changed(config) as now:
        now["epochs"][f"{B}/7"] = both._epoch("CUT_OVER")
        now["live"][B], live = 7, now["live"][B]
    with pytest.raises(AirflowFailException, match="the live epoch was 2 and is 7"):
        confirm.execute_complete(form, answer("Approve"))
    with pytest.raises(AirflowFailException, match="the live epoch was 2 and is 7"):
        BringBackTogether(task_id="bring_back", members=found, answer=yes).execute(moves())
    with both.changed(config) as now:
        now["live"][B] = live
        del now["epochs"][f"{B}/7"]
    assert BringBackTogether(task_id="bring_back", members=found, answer=yes).execute(moves()) == back
    assert entry(both, config, B, 1)["recalled"]
    CutOverTogether(task_id="cut_over", members=back, answer=yes).execute(moves())
    assert both.world(config)["live"] == {A: 1, B: 1}
