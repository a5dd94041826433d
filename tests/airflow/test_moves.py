"""Moves of one topology and of several: what is chosen, asked and changed, and what an old answer does not change."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskAwaitingInput, TaskDeferred
from support.airflow_runs import (
    BOTH,
    ONE,
    OTHER,
    SEVERAL,
    TOPOLOGY,
    Logs,
    Members,
    Pushed,
    answer,
    change,
    context,
    declared,
    entries,
    entry,
    handed_over,
    lines,
    names_of,
    opened,
    run_of,
)
from support.epoch_record import empty_plan

from kappa.config import Config
from kappa.offsets.vector import Offsets
from kappa.replay.chains import Binding
from kappa_airflow.forms import move_form
from kappa_airflow.moves import Abort, BringBack, ChooseCandidate, ChooseCandidateToAbort, ChoosePrevious
from kappa_airflow.questions import Confirm
from kappa_airflow.replays.replay import AwaitReady, CutOver

pytestmark = pytest.mark.usefixtures("no_connection", "questions")

LIVE_BEFORE: Members = [{"topology": TOPOLOGY, "epoch": 1}]


def move(names: list[str], **filled: Any) -> Any:
    """The context of a run with the form of a move."""
    topologies = {"topologies": names} if len(names) > 1 else {}
    form = opened(move_form(declared(*names), "the one before"))
    return {**context(), "params": {**form, **topologies, **filled}, "dag": SimpleNamespace(params=form)}


def choose(kind: Any, names: list[str] | None = None, **filled: Any) -> tuple[Members, Pushed]:
    names, pushed = names or [TOPOLOGY], Pushed()
    task = kind(task_id="choose", topologies=declared(*names))
    return task.execute({**move(names, **filled), "ti": pushed}), pushed


def confirm(members: Members, **how: Any) -> Confirm:
    return Confirm(task_id="confirm", members=members, hours=24, **{"what": "Sure?", "lines": ["this", "that"], **how})


def confirmed(members: Members) -> Any:
    """What a question gives that was approved."""
    run = context()
    with pytest.raises(TaskAwaitingInput):
        confirm(members).execute(run)
    run["task_state_store"].clean()
    return confirm(members).execute_complete(run, answer("Approve"))


def cut_over(members: Members, outcome: Any, *, is_approval_required: bool = True, **filled: Any) -> None:
    task = CutOver(task_id="cut_over", members=members, answer=outcome, is_approval_required=is_approval_required)
    task.execute(run_of(members, **filled))


def live_is(control: Any, config: Config, epoch: int, name: str = TOPOLOGY) -> None:
    """Another epoch is live by now, by whomever."""
    with control.changed(config) as now:
        now["epochs"][f"{name}/{epoch}"] = control._epoch("CUT_OVER", f"plan {epoch}")
        now["live"][name] = epoch


# The choice


def test_a_way_back_says_what_would_change(candidates: Any, config: Config) -> None:
    change(candidates, config, 1, stage="RETIRED")
    with candidates.changed(config) as now:
        now["live"][TOPOLOGY] = 2
        now["epochs"][f"{TOPOLOGY}/3"] = candidates._epoch("VERIFIED", "a third plan")
    choice, pushed = choose(ChoosePrevious)
    assert choice == LIVE_BEFORE
    assert "go back from epoch 2 to epoch 1" in pushed["lines"][0] and "code c0dec0dec0de" in pushed["lines"][0]
    with pytest.raises(AirflowFailException, match="is live: readers already get it"):
        choose(ChoosePrevious, epoch=2)
    with pytest.raises(AirflowFailException, match=r"Field 'epoch' is 3, .* was not live.* Kept for a rollback: 1\."):
        choose(ChoosePrevious, epoch=3)


def test_a_candidate_that_reads_what_comes_back_goes_along(candidates: Any, config: Config) -> None:
    upstream, reader = names = [TOPOLOGY, OTHER]
    of_previous = {"story": Binding(topology=upstream, epoch=1, topic="story.e0001")}
    plan = empty_plan(reader, 3, Offsets({"story.e0001": {0: 0}}), bound=of_previous)
    with candidates.changed(config) as now:
        for name in names:
            now["live"][name] = 2
            now["epochs"][f"{name}/1"]["stage"] = "RETIRED"
        now["epochs"][f"{reader}/3"] = {**candidates._epoch("CAUGHT_UP", plan.id), "document": plan.to_json()}
    choice, pushed = choose(ChoosePrevious, names)
    assert choice == [{"topology": upstream, "epoch": 1}, {"topology": reader, "epoch": 3}]
    assert [line for line in pushed["lines"] if f"{reader} go forward from epoch 2 to epoch 3" in line]
    assert choose(ChoosePrevious, [reader])[0] == [{"topology": reader, "epoch": 1}], "alone it does not"

    with pytest.raises(TaskDeferred) as waits:
        AwaitReady(task_id="caught_up", members=choice[1]).execute(context())
    assert waits.value.trigger.stage == "VERIFIED", "it was never live"
    change(candidates, config, 1, stage="RETIRED", recalled=True)
    with pytest.raises(TaskDeferred) as waits:
        AwaitReady(task_id="caught_up", members=choice[0]).execute(context())
    assert waits.value.trigger.stage == "CAUGHT_UP"

    change(candidates, config, 1, stage="VERIFIED")  # as the fake has one that has caught up
    with candidates.changed(config) as now:
        now["epochs"][f"{reader}/3"]["stage"] = "VERIFIED"
    yes = confirmed(choice)
    with pytest.raises(AirflowFailException, match="was not approved"):
        cut_over(choice, yes)
    with pytest.raises(TaskDeferred):
        cut_over(choice, yes, is_approval_required=False)
    assert handed_over(candidates, config) == {upstream: 1, reader: 3}


def test_a_way_back_into_another_environment_is_refused_until_the_form_takes_it(
    candidates: Any, config: Config
) -> None:
    with candidates.changed(config) as now:
        now["live"][TOPOLOGY] = 2
    change(candidates, config, 1, stage="RETIRED", missing="pricing was 1.0, and is 2.0 now.")
    with pytest.raises(AirflowFailException, match=r"pricing was 1\.0, .*a new run with field 'in_this_environment'"):
        choose(ChoosePrevious)
    assert choose(ChoosePrevious, in_this_environment=True)[0] == LIVE_BEFORE

    outcome = confirmed(LIVE_BEFORE)
    back = BringBack(task_id="bring_back", members=LIVE_BEFORE, answer=outcome)
    with pytest.raises(AirflowFailException, match="pricing was"):
        back.execute(move([TOPOLOGY]))
    assert back.execute(move([TOPOLOGY], in_this_environment=True)) == LIVE_BEFORE
    with pytest.raises(TaskDeferred):
        cut_over(LIVE_BEFORE, outcome, in_this_environment=True)


def test_the_epoch_that_waits_is_the_candidate_or_the_one_that_was_rejected_last(
    candidates: Any, config: Config, members: Members
) -> None:
    names = names_of(members)
    choice, pushed = choose(ChooseCandidate, names)
    assert choice == members
    for name, line in zip(names, pushed["lines"], strict=True):
        assert f"Epoch 2 of {name} is PLANNED; live is epoch 1." in line, "the fake records no stages"
    with candidates.changed(config) as now:
        now["epochs"][f"{names[-1]}/2"].update(rejected="rejected by ann", wanted=False)
    assert choose(ChooseCandidate, names)[0] == members
    change(candidates, config, 2, rejected="rejected by ann", wanted=False)
    assert "removed permanently" in choose(ChooseCandidateToAbort)[1]["lines"][1]


def test_neither_a_live_nor_a_retired_epoch_is_offered_for_removal(candidates: Any, config: Config) -> None:
    with pytest.raises(AirflowFailException, match=rf"is live: it is not removed\. DAG rollback__{TOPOLOGY}"):
        choose(ChooseCandidateToAbort, epoch=1)
    live_is(candidates, config, 3)
    change(candidates, config, 1, stage="RETIRED")
    with pytest.raises(AirflowFailException, match=f"was live and is retired.*kappa retire {TOPOLOGY} 1 --execute"):
        choose(ChooseCandidateToAbort, epoch=1)


def test_without_an_epoch_that_waits_it_is_said_what_builds_one(
    candidates: Any, config: Config, members: Members
) -> None:
    *_, last = names = names_of(members)
    with candidates.changed(config) as now:
        now["epochs"][f"{last}/2"]["stage"] = "ABORTED"
    with pytest.raises(AirflowFailException, match=f"No epoch of {last} waits .* DAG replay__{last} builds one"):
        choose(ChooseCandidate, names)


def test_a_form_of_several_that_names_one_is_refused(candidates: Any) -> None:
    with pytest.raises(AirflowFailException, match="name two or more"):
        choose(ChooseCandidate, BOTH, topologies=[OTHER])


def test_a_key_that_the_form_of_a_move_does_not_have_is_refused(candidates: Any, members: Members) -> None:
    run = move(names_of(members))
    run["dag_run"].conf = {"seed": "empty"}
    with pytest.raises(AirflowFailException, match="no field 'seed'"):
        ChooseCandidate(task_id="choose", topologies=declared(*names_of(members))).execute(run)


# The question


def test_a_move_is_asked_for_with_its_lines_and_a_rejection_changes_nothing(
    candidates: Any, config: Config, logs: Logs, questions: list[Any], members: Members
) -> None:
    with pytest.raises(TaskAwaitingInput):
        confirm(members, what="Go back?").execute(context())
    question = questions[0]
    assert (question["subject"], "- this" in question["body"], "- that" in question["body"]) == ("Go back?", True, True)
    outcome = confirm(members).execute_complete(context(), answer("Reject"))
    assert "Rejected: airflow:ann. Nothing was changed." in lines(logs, "warning")
    before = candidates.world(config)
    for kind in (BringBack, Abort):
        with pytest.raises(AirflowSkipException):
            kind(task_id="do", members=members, answer=outcome).execute(context())
    assert candidates.world(config) == before
    assert "The change was rejected (airflow:ann): nothing was changed." in lines(logs, "warning")


def test_a_question_is_not_asked_once_its_lines_are_untrue(
    candidates: Any, config: Config, questions: list[Any]
) -> None:
    change(candidates, config, 1, stage="RETIRED")
    live_is(candidates, config, 2)
    _, pushed = choose(ChoosePrevious)
    with pytest.raises(TaskAwaitingInput):
        confirm(LIVE_BEFORE, shown=pushed["shown"]).execute(context())
    live_is(candidates, config, 3)
    with pytest.raises(AirflowFailException, match=r"the live epoch was 2 and is 3.*Trigger a new run"):
        confirm(LIVE_BEFORE, shown=pushed["shown"]).execute(context())
    assert len(questions) == 1


@pytest.mark.parametrize("kind", [ChoosePrevious, ChooseCandidateToAbort])
def test_a_cleared_question_whose_page_shows_an_earlier_one_is_not_asked(
    candidates: Any, config: Config, questions: list[Any], kind: Any
) -> None:
    def question() -> Confirm:
        choice, pushed = choose(kind)
        return confirm(choice, lines=pushed["lines"], shown=pushed["shown"])

    run = context()
    change(candidates, config, 1, stage="RETIRED")
    live_is(candidates, config, 3)
    for _ in range(2):  # as long as it is the same question, a cleared task asks it again
        with pytest.raises(TaskAwaitingInput):
            question().execute(run)
    terms = run["task_state_store"]["kappa_terms"]
    live_is(candidates, config, 4)
    with pytest.raises(AirflowFailException, match=r"shows an earlier question.*new run of DAG replay__demo:"):
        question().execute(run)
    assert run["task_state_store"]["kappa_terms"] == terms and len(questions) == 2


def test_an_answer_to_what_was_shown_yesterday_moves_and_removes_nothing_today(
    candidates: Any, config: Config, members: Members
) -> None:
    run, last = context(), names_of(members)[-1]
    with pytest.raises(TaskAwaitingInput):
        confirm(members).execute(run)
    live_is(candidates, config, 3, last)
    with pytest.raises(AirflowFailException, match=r"the live epoch was 1 and is 3\. Nothing was changed\."):
        confirm(members).execute_complete(run, answer("Approve"))
    assert not any(each.get("recalled") for each in entries(candidates, config, members))


def test_between_an_answer_and_the_task_that_acts_nothing_may_change_either(
    candidates: Any, config: Config, members: Members
) -> None:
    yes = confirmed(members)
    live_is(candidates, config, 3, names_of(members)[-1])
    before = candidates.world(config)
    for kind, those in ((BringBack, members), (Abort, members[-1:])):
        with pytest.raises(AirflowFailException, match="the live epoch was 1 and is 3"):
            kind(task_id="do", members=those, answer=yes).execute(context())
    assert candidates.world(config) == before


def test_an_answer_that_does_not_say_what_was_shown_changes_nothing(
    candidates: Any, config: Config, members: Members
) -> None:
    run = context()
    with pytest.raises(TaskAwaitingInput):
        confirm(members).execute(run)
    run["task_state_store"].clear()
    with pytest.raises(AirflowFailException, match="The terms of the question are lost"):
        confirm(members).execute_complete(run, answer("Approve"))
    before = candidates.world(config)
    for kind, outcome in product((BringBack, Abort), ({"answer": "approved", "by": "a"}, None)):  # None: marked as done
        with pytest.raises(AirflowFailException, match="does not have the terms that were shown"):
            kind(task_id="do", members=members, answer=outcome).execute(context())
    assert candidates.world(config) == before


# The change


def test_a_confirmed_abort_removes_the_candidate_and_a_live_epoch_is_refused(
    candidates: Any, config: Config, logs: Logs
) -> None:
    yes = confirmed(ONE)
    assert (yes["answer"], yes["by"], yes["shown"][TOPOLOGY]["live"]) == ("approved", "airflow:ann", 1)
    for _ in range(2):  # the second time nothing is left to do
        assert Abort(task_id="abort", members=ONE, answer=yes).execute(context()) == ONE
    assert entry(candidates, config)["stage"] == "ABORTED" and "Epoch 2 of demo.replayed is gone." in lines(
        logs, "info"
    )
    yes = confirmed(LIVE_BEFORE)
    with pytest.raises(AirflowFailException, match="is live: it cannot be aborted"):
        Abort(task_id="abort", members=LIVE_BEFORE, answer=yes).execute(context())


def test_a_confirmed_way_back_brings_all_back_or_none(candidates: Any, config: Config, members: Members) -> None:
    *_, last = names = names_of(members)
    with pytest.raises(TaskDeferred):
        cut_over(members, {"answer": "not asked"}, then="cut_over")
    handed_over(candidates, config)
    outcome, pushed = choose(ChoosePrevious, names)
    assert outcome == [{"topology": name, "epoch": 1} for name in names]
    assert sum("go back from epoch 2 to epoch 1" in line for line in pushed["lines"]) == len(members)
    run, ask = move(names), confirm(outcome, lines=pushed["lines"], shown=pushed["shown"])
    with pytest.raises(TaskAwaitingInput):
        ask.execute(run)
    yes = ask.execute_complete(run, answer("Approve"))
    back = BringBack(task_id="bring_back", members=outcome, answer=yes)
    before = candidates.world(config)
    live_is(candidates, config, 7, last)
    with pytest.raises(AirflowFailException, match="the live epoch was 2 and is 7"):
        ask.execute_complete(run, answer("Approve"))
    with pytest.raises(AirflowFailException, match="the live epoch was 2 and is 7"):
        back.execute(run)
    assert not any(each.get("recalled") for each in entries(candidates, config, outcome))
    with candidates.changed(config) as now:
        now.update(before)
    for _ in range(2):  # the second time they are on their way
        assert back.execute(run) == outcome
    assert all(each["recalled"] for each in entries(candidates, config, outcome))
    with pytest.raises(TaskDeferred):
        cut_over(outcome, yes)
    assert handed_over(candidates, config) == {TOPOLOGY: 1, OTHER: 1}


def test_a_way_back_from_an_epoch_that_was_not_shown_is_refused(
    candidates: Any, config: Config, members: Members
) -> None:
    last = names_of(members)[-1]
    yes = confirmed(members)
    BringBack(task_id="bring_back", members=members, answer=yes).execute(context())
    live_is(candidates, config, 3, last)
    with pytest.raises(AirflowFailException, match=f"The live epoch of {last} is 3, 1 was expected"):
        cut_over(members, yes, then="cut_over")


# Of several topologies


def test_where_the_form_says_keep_all_stay(candidates: Any, config: Config, logs: Logs) -> None:
    with pytest.raises(AirflowSkipException):
        cut_over(SEVERAL, {"answer": "not asked"}, then="keep")
    assert "DAG joint_cutover moves readers later" in lines(logs, "warning")
    assert not any("handover" in each for each in entries(candidates, config, SEVERAL))


def test_a_move_that_one_of_them_is_not_ready_for_moves_none(candidates: Any, config: Config) -> None:
    with candidates.changed(config) as now:
        now["epochs"][f"{OTHER}/2"]["stage"] = "REPLAYED"
    with pytest.raises(AirflowFailException, match="nothing was changed"):
        cut_over(SEVERAL, {"answer": "not asked"}, then="cut_over")
    assert handed_over(candidates, config) == {TOPOLOGY: 1, OTHER: 1}


def test_a_move_is_asked_for_again_until_it_is_made(
    candidates: Any, monkeypatch: pytest.MonkeyPatch, members: Members
) -> None:
    moves: list[Any] = []
    monkeypatch.setattr(
        candidates, "cut_over_together", lambda _, members, **how: moves.append((members, how["reason"]))
    )
    task = CutOver(task_id="cut_over", members=members, answer={"answer": "not asked"})
    run = run_of(members, then="cut_over", reason="tariff")
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(run)
    first = min(names_of(members))
    assert (deferred.value.trigger.topology, deferred.value.trigger.stage) == (first, "CUT_OVER")  # type: ignore[attr-defined]
    for kind in ("late", "dead"):
        with pytest.raises(TaskDeferred):
            task.resume(run, {"event": kind, "restarts": 0, "message": ""})
    assert moves == [(dict.fromkeys(names_of(members), 2), "tariff")] * 2


def test_a_cleared_cutover_does_not_undo_a_later_rollback_of_one_of_them(candidates: Any, config: Config) -> None:
    with candidates.changed(config) as now:
        now["epochs"][f"{OTHER}/2"]["stage"] = "RETIRED"
    with pytest.raises(AirflowFailException, match=f"Epoch 2 of {OTHER} was live and has been retired since"):
        cut_over(SEVERAL, {"answer": "not asked"})
