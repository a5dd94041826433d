"""What a verification tells and asks, and what each answer does; control is a fake, Airflow's operator the real one.

Where it is about one topology and about several, a test has both.
"""

from __future__ import annotations

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
    answer,
    change,
    context,
    entries,
    entry,
    handed_over,
    lines,
    names_of,
    run_of,
)

from kappa.config import Config
from kappa_airflow.approvals import Approve
from kappa_airflow.questions import keep_rejection
from kappa_airflow.replays.replay import CutOver
from kappa_airflow.replays.reports import ReportLink, Verify

pytestmark = pytest.mark.usefixtures("no_connection", "questions")


def approve(members: Members = ONE, **how: Any) -> Approve:
    return Approve(task_id="approve", members=members, hours=24, **how)


def ask(run: Any, members: Members = ONE, **how: Any) -> None:
    with pytest.raises(TaskAwaitingInput):
        approve(members, **how).execute(run)


def cut_over(run: Any, members: Members, answer: Any) -> None:
    CutOver(task_id="cut_over", members=members, answer=answer).execute(run)


def terms_of(control: Any, config: Config, members: Members) -> dict[str, Any]:
    """What a question of these epochs shows."""
    return {name: control.approval_terms(config, name, 2).to_dict() for name in names_of(members)}


def test_a_verification_is_logged_and_returned(candidates: Any, logs: Logs) -> None:
    task = Verify(task_id="verified", members=ONE)
    verification = task.execute(context())
    assert (verification["verdict"], verification["live"], verification["epoch"]) == ("differs", 1, 2)
    assert verification["checks"] == {"adds up": True} and verification["offsets"] == {"events": {"0": 1000}}
    assert (
        verification["difference"][0]
        == "table counts: 9 rows live, 10 rows in the candidate; 1 keys added, 0 removed, 2 changed"
    )
    assert verification["report"] == ReportLink().get_link(task, ti_key=None) == "/kappa/topologies/demo.replayed/2"  # type: ignore[arg-type]
    assert "1 added, 0 removed, 2 changed" in lines(logs, "info") and "/kappa/topologies/demo.replayed/2" in lines(
        logs, "info"
    )


def test_the_link_of_a_question_about_several_opens_the_page_of_all() -> None:
    assert ReportLink().get_link(approve(SEVERAL), ti_key=None) == "/kappa/"  # type: ignore[arg-type]


def test_a_failed_verification_fails_its_task_after_its_report_was_logged(
    candidates: Any, config: Config, logs: Logs
) -> None:
    change(candidates, config, 2, verdict="failed")
    with pytest.raises(AirflowFailException, match="failed its checks"):
        Verify(task_id="verified", members=ONE).execute(context())
    assert "1 is not 2" in lines(logs, "warning")


def test_the_question_names_epochs_code_verdict_difference_and_offsets(
    candidates: Any, questions: list[Any], members: Members
) -> None:
    ask(run_of(members), members)
    (question,) = questions
    assert question["subject"] == (
        "Move readers of demo.replayed from epoch 1 to epoch 2?"
        if members == ONE
        else "Move readers of demo.replayed and demo.kept together?"
    )
    assert question["defaults"] == ["Reject"] and question["options"] == ["Approve", "Reject"]
    for name in names_of(members):
        for part in (
            f"Readers of **{name}** are moved from epoch **1** to epoch **2**",
            f"[The whole report](/kappa/topologies/{name}/2)",
        ):
            assert part in question["body"], part
        assert (f"### {name}" in question["body"]) == (members == SEVERAL)
    for part in ("`c0dec0dec0de`", "**differs**", "events[0]=1,000", "2 changed", "1 keys added"):
        assert question["body"].count(part) == len(members), part
    assert "within 24 hours" in question["body"]


def test_a_question_is_on_record_for_its_notice_once_per_asking(
    candidates: Any, config: Config, monkeypatch: pytest.MonkeyPatch, members: Members
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://data.example.com/airflow/")
    run = run_of(members)
    ask(run, members)
    for each in entries(candidates, config, members):
        ((terms, nth, needed, link, *_),) = each["asked"]
        assert (terms["epoch"], terms["verdict"], nth, needed) == (2, "differs", 1, 1)
        assert link == "https://data.example.com/airflow/dags/replay__demo/runs/run-1/tasks/approve/required_actions"
    ask(run, members)
    assert [len(each["asked"]) for each in entries(candidates, config, members)] == [1] * len(members)
    run["ti"].max_tries = 7  # as clearing does
    ask(run, members)
    ask({**run_of(members), "ti": SimpleNamespace(**{**vars(run["ti"]), "run_id": "run-2"})}, members)
    assert [len(each["asked"]) for each in entries(candidates, config, members)] == [3] * len(members)


def test_where_airflow_has_no_address_the_notice_has_no_link(
    candidates: Any, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "")
    ask(run_of(ONE))
    assert entry(candidates, config)["asked"][0][3] == ""


def test_an_approval_is_on_record_with_its_author_and_the_cutover_goes_on(
    candidates: Any, config: Config, members: Members
) -> None:
    run = run_of(members)
    ask(run, members)
    run["task_state_store"].clean()
    outcome = approve(members).execute_complete(run, answer("Approve"))
    assert outcome == {"answer": "approved", "by": "airflow:ann", "shown": terms_of(candidates, config, members)}
    for each in entries(candidates, config, members):
        assert [by for by, _ in each["approvals"]] == ["airflow:ann"]
    with pytest.raises(TaskDeferred):
        cut_over(run, members, outcome)
    assert entry(candidates, config)["handover"] == dict.fromkeys(names_of(members), 2)
    assert handed_over(candidates, config) == {TOPOLOGY: 2, OTHER: 1} | dict.fromkeys(names_of(members), 2)
    assert approve(members).execute(run) == {"answer": "live already"}


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({"id": "7", "name": ""}, ("approved", "airflow:7")),
        ({"id": "", "name": ""}, ("rejected", "no answer within 24 hours")),
        (None, ("rejected", "no answer within 24 hours")),
    ],
)
def test_an_approval_has_an_author(candidates: Any, user: dict[str, str] | None, expected: tuple[str, str]) -> None:
    run = run_of(ONE)
    ask(run)
    outcome = approve().execute_complete(run, {**answer("Approve"), "responded_by_user": user})
    assert (outcome["answer"], outcome["by"]) == expected


def test_an_approval_that_is_on_record_is_not_asked_for_again(
    candidates: Any, config: Config, logs: Logs, questions: list[Any], members: Members
) -> None:
    for name in names_of(members):
        candidates.approve(
            config, candidates.approval_terms(config, name, 2), actor="ann", reason="on the command line"
        )
    outcome = approve(members).execute(run_of(members))
    assert outcome == {"answer": "approved", "by": "ann", "shown": terms_of(candidates, config, members)}
    assert questions == [] and "Approved already, by ann: epoch 2 of demo.replayed" in lines(logs, "info")


@pytest.mark.parametrize("is_retry", [False, True], ids=["at once", "after a lost worker"])
def test_no_answer_rejects_nothing_that_was_approved_or_made_live_elsewhere(
    candidates: Any, config: Config, members: Members, is_retry: bool
) -> None:
    def unanswered(run: Any) -> Any:
        if is_retry:
            keep_rejection(run, "no answer within 24 hours")
            return approve(members).execute(run)
        return approve(members).execute_complete(run, answer("Reject", None))

    run = run_of(members)
    ask(run, members)
    for name in names_of(members):
        candidates.approve(config, candidates.approval_terms(config, name, 2), actor="bob", reason="in a terminal")
    outcome = unanswered(run)
    assert (outcome["answer"], outcome["by"]) == ("approved", "bob")
    with pytest.raises(TaskDeferred):
        cut_over(run, members, outcome)
    handed_over(candidates, config)
    assert unanswered(run) == {"answer": "live already"}
    assert not any("rejected" in each for each in entries(candidates, config, members))


def test_no_answer_rejects_nothing_that_another_run_asks_about(
    candidates: Any, config: Config, logs: Logs, members: Members
) -> None:
    first, second = run_of(members), run_of(members)
    second["ti"].run_id = "run-2"
    ask(first, members)
    ask(second, members)
    outcome = approve(members).execute_complete(first, answer("Reject", None))
    assert outcome == {"answer": "rejected", "by": "no answer within 24 hours"}
    assert "Another run asks about the same until" in lines(logs, "warning")
    with pytest.raises(AirflowSkipException):
        cut_over(first, members, outcome)
    assert approve(members).execute_complete(second, answer("Approve"))["answer"] == "approved"
    assert not any("rejected" in each for each in entries(candidates, config, members))


@pytest.mark.parametrize("user", ["ann", None])
def test_the_last_question_that_nobody_answers_rejects_and_so_does_an_answer(
    candidates: Any, config: Config, members: Members, user: str | None
) -> None:
    first, second = run_of(members), run_of(members)
    second["ti"].run_id = "run-2"
    for run in (first, second):
        ask(run, members)
    with candidates.changed(config) as now:
        for name in names_of(members) if user is None else ():
            now["epochs"][f"{name}/2"]["asked"][0][-1] = "2026-01-01T00:00:00+00:00"
    approve(members).execute_complete(second, answer("Reject", user))
    assert all("rejected" in each for each in entries(candidates, config, members))


def test_an_answer_rejects_what_somebody_else_approved(candidates: Any, config: Config, members: Members) -> None:
    run = run_of(members)
    ask(run, members)
    for name in names_of(members):
        candidates.approve(config, candidates.approval_terms(config, name, 2), actor="bob", reason="in a terminal")
    assert approve(members).execute_complete(run, answer("Reject"))["answer"] == "rejected"
    assert all("rejected" in each for each in entries(candidates, config, members))


def test_an_approval_of_one_of_several_does_not_answer_for_the_other(candidates: Any, config: Config) -> None:
    candidates.approve(config, candidates.approval_terms(config, TOPOLOGY, 2), actor="ann", reason="")
    ask(run_of(SEVERAL), SEVERAL)


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ({"report": "r2"}, r"the report was r1 \(differs\) and is r2"),
        ({"live": {TOPOLOGY: 1, OTHER: 1}}, "the live epoch was 1 and is None"),
    ],
)
def test_an_approval_of_what_has_changed_since_fails(
    candidates: Any, config: Config, members: Members, after: dict[str, Any], words: str
) -> None:
    last = names_of(members)[-1]
    run = run_of(members)
    ask(run, members)
    with candidates.changed(config) as now:
        now.update(after)
        if "live" in after:
            now["live"] = {**now["live"], last: None}
    with pytest.raises(AirflowFailException, match=f"{last}: {words}"):
        approve(members).execute_complete(run, answer("Approve"))
    assert not any("approvals" in each for each in entries(candidates, config, members))


def test_an_answer_to_a_question_of_which_nothing_is_kept_approves_nothing(
    candidates: Any, config: Config, members: Members
) -> None:
    run = run_of(members)
    ask(run, members)
    run["task_state_store"].clear()
    with pytest.raises(AirflowFailException, match=r"The terms of the question are lost.*Clear this task"):
        approve(members).execute_complete(run, answer("Approve"))
    assert not any("approvals" in each for each in entries(candidates, config, members))
    outcome = approve(members).execute_complete(run, answer("Reject"))
    assert outcome["answer"] == "rejected", "that changes no reader"


def test_an_answer_to_a_question_about_something_else_approves_nothing(candidates: Any, config: Config) -> None:
    run = run_of(SEVERAL)
    ask(run, SEVERAL)
    terms = run["task_state_store"]["kappa_terms"]
    run["task_state_store"]["kappa_terms"] = {TOPOLOGY: terms[TOPOLOGY]}
    with pytest.raises(AirflowFailException, match=f"about epoch 2 of {TOPOLOGY}, but other epochs would be moved"):
        approve(SEVERAL).execute_complete(run, answer("Approve"))
    assert not any("approvals" in each for each in entries(candidates, config, SEVERAL))


def test_readers_are_moved_from_the_epoch_that_was_shown_only(
    candidates: Any, config: Config, members: Members
) -> None:
    run, last = run_of(members), names_of(members)[-1]
    ask(run, members)
    outcome = approve(members).execute_complete(run, answer("Approve"))
    with candidates.changed(config) as now:
        now["epochs"][f"{last}/7"] = candidates._epoch("CUT_OVER")
        now["live"][last] = 7
    with pytest.raises(AirflowFailException, match=f"The live epoch of {last} is 7, 1 was expected"):
        cut_over(run, members, outcome)
    assert not any("handover" in each for each in entries(candidates, config, members))


def test_an_approval_of_something_else_is_asked_for_again(candidates: Any, config: Config) -> None:
    candidates.approve(config, candidates.approval_terms(config, TOPOLOGY, 2), actor="ann", reason="")
    with candidates.changed(config) as now:
        now["report"] = "r2"
    ask(run_of(ONE))


def test_two_people_are_asked_one_after_the_other_whatever_the_form_says(
    candidates: Any, config: Config, questions: list[Any], members: Members
) -> None:
    last = names_of(members)[-1]
    file = config.topologies / f"{last.partition('.')[2]}.py"
    file.write_text(file.read_text().replace('version="1",', 'version="1", approvals=2,'))
    run = run_of(members, then="cut_over")
    ask(run, members)
    first = approve(members).execute_complete(run, answer("Approve"))
    second = {"nth": 2, "before": first}
    run["task_instance"] = run_of(members)["task_instance"]  # that of the second task
    ask(run, members, **second)
    assert [question["subject"].partition("?")[2] for question in questions] == [" Approval 1 of 2", " Approval 2 of 2"]
    with pytest.raises(AirflowFailException, match=f"ann has already approved epoch 2 of {last}, which needs 2 people"):
        approve(members, **second).execute_complete(run, answer("Approve"))
    assert approve(members, **second).execute_complete(run, answer("Approve", "bob"))["answer"] == "approved"
    outcome = approve(members, **second).execute(run)
    assert outcome == {
        "answer": "approved",
        "by": "airflow:ann and airflow:bob",
        "shown": terms_of(candidates, config, members),
    }


def test_the_last_task_waits_for_all_people_that_are_needed(
    candidates: Any, config: Config, questions: list[Any], members: Members
) -> None:
    for name in names_of(members):
        file = config.topologies / f"{name.partition('.')[2]}.py"
        file.write_text(file.read_text().replace('version="1",', 'version="1", approvals=2,'))
    run = run_of(members)
    ask(run, members, is_last=True)
    with pytest.raises(AirflowFailException, match=r"which needs 2 people\. Clear this task"):
        approve(members, is_last=True).execute_complete(run, answer("Approve"))
    ask(run, members, is_last=True)
    assert approve(members, is_last=True).execute_complete(run, answer("Approve", "bob"))["answer"] == "approved"


def test_after_a_rejection_the_second_person_is_not_asked(
    candidates: Any, questions: list[Any], members: Members
) -> None:
    no = {"answer": "rejected", "by": "airflow:ann"}
    assert approve(members, nth=2, before=no).execute(run_of(members)) == no
    assert questions == []


@pytest.mark.parametrize(("user", "who"), [("ann", "airflow:ann"), (None, "no answer within 24 hours")])
def test_one_rejection_is_on_record_of_all_and_says_what_stays_and_how_to_go_on(
    candidates: Any, config: Config, logs: Logs, members: Members, user: str | None, who: str
) -> None:
    run = run_of(members)
    ask(run, members)
    outcome = approve(members).execute_complete(run, answer("Reject", user))
    assert outcome == {"answer": "rejected", "by": who}
    assert [each["rejected"] for each in entries(candidates, config, members)] == [f"rejected by {who}"] * len(members)
    assert f"Rejected: {who}. Readers stay where they are." in lines(logs, "warning")
    assert "kept for 72 hours. Clear this task" in lines(logs, "warning")
    with pytest.raises(AirflowSkipException):
        cut_over(run, members, outcome)
    assert f"The change was rejected ({who}): readers stay where they are." in lines(logs, "warning")
    assert not any("handover" in each for each in entries(candidates, config, members))


@pytest.mark.parametrize("is_on_record", [True, False])
def test_a_retry_after_a_rejection_asks_nothing_and_a_cleared_task_asks_anew(
    candidates: Any, config: Config, questions: list[Any], members: Members, is_on_record: bool
) -> None:
    run, last = run_of(members), names_of(members)[-1]
    ask(run, members)
    approve(members).execute_complete(run, answer("Reject"))
    run["task_state_store"].clean()
    if not is_on_record:  # the worker was lost before it got so far
        with candidates.changed(config) as now:
            del now["epochs"][f"{last}/2"]["rejected"]
    assert approve(members).execute(run) == {"answer": "rejected", "by": "airflow:ann"}
    assert entry(candidates, config, last)["rejected"] == "rejected by airflow:ann"
    assert len(questions) == 1
    run["ti"].max_tries = 7  # as clearing does
    ask(run, members)
    assert not any("rejected" in each for each in entries(candidates, config, members)) and len(questions) == 2


@pytest.mark.parametrize("is_cleared", [True, False], ids=["cleared", "retried"])
def test_a_task_whose_page_shows_an_earlier_question_asks_nothing_and_names_the_dag_that_asks(
    candidates: Any, config: Config, questions: list[Any], members: Members, is_cleared: bool
) -> None:
    run = run_of(members)
    ask(run, members)
    terms = run["task_state_store"]["kappa_terms"]
    if is_cleared:
        approve(members).execute_complete(run, answer("Reject"))
        run["ti"].max_tries = 7
    with candidates.changed(config) as now:
        now["epochs"][f"{TOPOLOGY}/7"] = candidates._epoch("CUT_OVER", "another plan")
        now["live"][TOPOLOGY] = 7
    move = "joint_cutover" if len(members) > 1 else f"cutover__{TOPOLOGY}"
    with pytest.raises(AirflowFailException, match=rf"shows an earlier question.*new run of DAG {move}:"):
        approve(members).execute(run)
    assert run["task_state_store"]["kappa_terms"] == terms and len(questions) == 1
    assert [len(each["asked"]) for each in entries(candidates, config, members)] == [1] * len(members)


def test_a_rejected_epoch_is_taken_up_again_and_asked_about_anew(
    candidates: Any, config: Config, logs: Logs, questions: list[Any], members: Members
) -> None:
    last = names_of(members)[-1]
    with candidates.changed(config) as now:
        now["epochs"][f"{last}/2"]["rejected"] = "rejected by ann"
    ask(run_of(members), members, resumes=True)
    assert "rejected" not in entry(candidates, config, last) and len(questions) == 1
    assert f"Epoch 2 of {last} was rejected by ann. It is resumed." in lines(logs, "info")


@pytest.mark.parametrize("is_asked", [False, True], ids=["before it is asked", "while it is asked"])
def test_a_rejection_by_somebody_else_stands_until_the_task_is_cleared(
    candidates: Any, config: Config, questions: list[Any], members: Members, is_asked: bool
) -> None:
    run, other = run_of(members), run_of(members)
    other["ti"].run_id = "run-2"
    ask(other, members)
    if is_asked:
        ask(run, members)
    for name in names_of(members)[-1:]:
        candidates.reject(config, name, 2, actor="bob", reason="in a terminal")
    assert approve(members).execute(run) == {"answer": "rejected", "by": "bob"}
    assert all("rejected" in each for each in entries(candidates, config, members))
    assert len(questions) == 1 + is_asked
    run["ti"].max_tries = 7  # as clearing does
    ask(run, members)
    assert not any("rejected" in each for each in entries(candidates, config, members))


@pytest.mark.parametrize(
    ("then", "words"), [("cut_over", "move readers without asking"), ("keep", "keep it up to date")]
)
def test_where_the_form_does_not_ask_nothing_is_asked_and_the_log_says_so(
    candidates: Any, logs: Logs, questions: list[Any], members: Members, then: str, words: str
) -> None:
    assert approve(members).execute(run_of(members, then=then)) == {"answer": "not asked"}
    assert questions == [] and words in lines(logs, "info")


def test_of_epochs_that_are_live_nothing_is_asked(
    candidates: Any, config: Config, logs: Logs, questions: list[Any], members: Members
) -> None:
    with candidates.changed(config) as now:
        now["live"] = dict.fromkeys(BOTH, 2)
    assert approve(members).execute(run_of(members)) == {"answer": "live already"}
    assert questions == [] and "live already" in lines(logs, "info")
