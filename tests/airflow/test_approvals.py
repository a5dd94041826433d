"""What a verification tells and asks, and what each answer does; control is a fake, Airflow's operator the real one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow.providers.standard.operators import hitl
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskAwaitingInput, TaskDeferred
from structlog.testing import capture_logs
from test_tasks import TOPOLOGY, change, context, started

from kappa.config import Config
from kappa_airflow.approvals import ApproveCutover, Confirm
from kappa_airflow.moves import Abort, BringBack, ChooseCandidate, ChooseCandidateToAbort, ChoosePrevious
from kappa_airflow.replays.replay import CutOver
from kappa_airflow.replays.reports import ReportLink, Verify

pytestmark = pytest.mark.usefixtures("no_connection")

Logs = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What Airflow was told to ask."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **said: found.append(said))
    return found


@pytest.fixture
def said() -> Iterator[Logs]:
    with capture_logs() as logs:
        yield logs


@pytest.fixture
def verified(control: Any, config: Config) -> Any:
    """Epoch 1 is live and epoch 2 verified."""
    started(context())
    change(control, config, 1, stage="CUT_OVER")
    with control.changed(config) as now:
        now["live"][TOPOLOGY] = 1
        now["epochs"][f"{TOPOLOGY}/2"] = control._epoch("VERIFIED", "another plan")
    return control


def approve(**how: Any) -> ApproveCutover:
    return ApproveCutover(task_id="approve", topology=TOPOLOGY, epoch=2, hours=24, **how)


def ask(given: Any) -> None:
    with pytest.raises(TaskAwaitingInput):
        approve().execute(given)


def answer(option: str, user: str | None = "ann") -> dict[str, Any]:
    return {
        "chosen_options": [option],
        "params_input": {},
        "responded_at": datetime.now(UTC),
        "responded_by_user": None if user is None else {"id": "1", "name": user},
    }


def entry(control: Any, config: Config, epoch: int = 2) -> Any:
    return control._entry(control.world(config), TOPOLOGY, epoch)


def lines(logs: Logs, level: str) -> str:
    return "\n".join(entry["event"] for entry in logs if entry["log_level"] == level)


def test_a_verification_is_logged_and_returned(verified: Any, said: Logs) -> None:
    task = Verify(task_id="verified", topology=TOPOLOGY, epoch=2)
    found = task.execute(context())
    assert (found["verdict"], found["live"], found["epoch"]) == ("differs", 1, 2)
    assert found["checks"] == {"adds up": True} and found["offsets"] == {"events": {"0": 1000}}
    assert (
        found["difference"][0]
        == "table counts: 9 rows live, 10 rows in the candidate; 1 keys added, 0 removed, 2 changed"
    )
    assert found["report"] == ReportLink().get_link(task, ti_key=None) == "/kappa/topologies/demo.replayed/2"  # type: ignore[arg-type]
    assert "1 added, 0 removed, 2 changed" in lines(said, "info") and "/kappa/topologies/demo.replayed/2" in lines(
        said, "info"
    )


def test_a_failed_verification_fails_its_task_after_its_report_was_logged(
    verified: Any, config: Config, said: Logs
) -> None:
    change(verified, config, 2, verdict="failed")
    with pytest.raises(AirflowFailException, match="failed its checks"):
        Verify(task_id="verified", topology=TOPOLOGY, epoch=2).execute(context())
    assert "1 is not 2" in lines(said, "warning")


def test_the_question_names_epochs_code_verdict_difference_and_offsets(verified: Any, asked: list[Any]) -> None:
    ask(context(then="ask"))
    (question,) = asked
    assert question["subject"] == "Move readers of demo.replayed from epoch 1 to epoch 2?"
    assert question["defaults"] == ["Reject"] and question["options"] == ["Approve", "Reject"]
    for part in (
        "epoch **1** to epoch **2**",
        "`c0dec0dec0de`",
        "**differs**",
        "events[0]=1,000",
        "2 changed",
        "(/kappa/topologies/demo.replayed/2)",
        "within 24 hours",
    ):
        assert part in question["body"], part


def test_a_question_is_on_record_for_its_notice_before_it_is_asked_and_once(
    verified: Any, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "http://127.0.0.1:8080")
    given = context(then="ask")

    def killed(**_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(hitl, "upsert_hitl_detail", killed)
        approve().execute(given)
    ((shown, nth, needed, link),) = entry(verified, config)["asked"]
    assert (shown["epoch"], shown["verdict"], nth, needed) == (2, "differs", 1, 1)
    assert link.startswith("http://127.0.0.1:8080/dags/replay__demo/runs/run-1/tasks/approve/required_actions")
    ask(given)
    assert len(entry(verified, config)["asked"]) == 1


def test_where_airflow_has_no_address_the_notice_has_no_link(
    verified: Any, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "")
    ask(context(then="ask"))
    assert entry(verified, config)["asked"][0][3] == ""


def test_an_approval_is_on_record_with_its_author_and_the_cutover_goes_on(
    verified: Any, config: Config, said: Logs
) -> None:
    given = context(then="ask")
    ask(given)
    found = approve().execute_complete(given, answer("Approve"))
    assert found == {"answer": "approved", "by": "airflow:ann", "replaces": {TOPOLOGY: 1}}
    assert [by for by, _ in entry(verified, config)["approvals"]] == ["airflow:ann"]
    with pytest.raises(TaskDeferred):
        CutOver(task_id="cut_over", topology=TOPOLOGY, epoch=2, answer=found).execute(given)
    assert entry(verified, config)["handover"]


def test_an_approval_that_is_on_record_is_not_asked_for_again(
    verified: Any, config: Config, said: Logs, asked: list[Any]
) -> None:
    terms = verified.approval_terms(config, TOPOLOGY, 2)
    verified.approve(config, terms, actor="ann", reason="on the command line")
    found = approve().execute(context(then="ask"))
    assert found == {"answer": "approved", "by": "ann", "replaces": {TOPOLOGY: 1}}
    assert asked == [] and "Epoch 2 was approved already, by ann." in lines(said, "info")


def test_an_approval_of_what_has_changed_since_fails(verified: Any, config: Config) -> None:
    given = context(then="ask")
    ask(given)
    with verified.changed(config) as now:
        now["report"] = "r2"
    with pytest.raises(AirflowFailException, match=r"the report was r1 \(differs\) and is r2"):
        approve().execute_complete(given, answer("Approve"))
    assert "approvals" not in entry(verified, config)


def test_an_answer_to_a_question_of_which_nothing_is_kept_approves_nothing(verified: Any, config: Config) -> None:
    given = context(then="ask")
    ask(given)
    given["task_state_store"].clear()
    with pytest.raises(AirflowFailException, match=r"not known any more what the question showed.*Clear this task"):
        approve().execute_complete(given, answer("Approve"))
    assert "approvals" not in entry(verified, config)
    assert approve().execute_complete(given, answer("Reject"))["answer"] == "rejected", "that changes no reader"


def test_readers_are_moved_from_the_epoch_that_was_shown_only(verified: Any, config: Config) -> None:
    given = context(then="ask")
    ask(given)
    found = approve().execute_complete(given, answer("Approve"))
    with verified.changed(config) as now:
        now["live"][TOPOLOGY] = 7
    with pytest.raises(AirflowFailException, match="The live epoch is 7, 1 was expected"):
        CutOver(task_id="cut_over", topology=TOPOLOGY, epoch=2, answer=found).execute(given)


def test_an_approval_of_something_else_is_asked_for_again(verified: Any, config: Config) -> None:
    verified.approve(config, verified.approval_terms(config, TOPOLOGY, 2), actor="ann", reason="")
    with verified.changed(config) as now:
        now["report"] = "r2"
    ask(context(then="ask"))


def test_two_people_are_asked_one_after_the_other_whatever_the_form_says(
    verified: Any, config: Config, asked: list[Any]
) -> None:
    given = context(then="cut_over")
    two = {"approvals": 2}
    with pytest.raises(TaskAwaitingInput):
        approve(**two).execute(given)
    first = approve(**two).execute_complete(given, answer("Approve"))
    again = {**two, "nth": 2, "before": first}
    with pytest.raises(TaskAwaitingInput):
        approve(**again).execute(given)
    assert [question["subject"][-15:] for question in asked] == ["Approval 1 of 2", "Approval 2 of 2"]
    with pytest.raises(AirflowFailException, match=r"airflow:ann approved epoch 2 .* already, and 2 people have to"):
        approve(**again).execute_complete(given, answer("Approve"))
    assert approve(**again).execute_complete(given, answer("Approve", "bob"))["answer"] == "approved"
    found = approve(**again).execute(given)
    assert found == {"answer": "approved", "by": "airflow:ann and airflow:bob", "replaces": {TOPOLOGY: 1}}


def test_after_a_rejection_the_second_person_is_not_asked(verified: Any, asked: list[Any]) -> None:
    no = {"answer": "rejected", "by": "airflow:ann"}
    assert approve(approvals=2, nth=2, before=no).execute(context(then="ask")) == no
    assert asked == []


@pytest.mark.parametrize(("user", "who"), [("ann", "airflow:ann"), (None, "no answer within 24 hours")])
def test_a_rejection_is_on_record_and_says_what_stays_and_how_to_go_on(
    verified: Any, config: Config, said: Logs, user: str | None, who: str
) -> None:
    given = context(then="ask")
    ask(given)
    found = approve().execute_complete(given, answer("Reject", user))
    assert found == {"answer": "rejected", "by": who}
    assert entry(verified, config)["rejected"] == f"rejected by {who}"
    assert f"Rejected: {who}. Readers stay where they are." in lines(said, "warning")
    assert "kept for 72 hours. Clear this task" in lines(said, "warning")
    with pytest.raises(AirflowSkipException):
        CutOver(task_id="cut_over", topology=TOPOLOGY, epoch=2, answer=found).execute(given)
    assert f"It was rejected ({who}): readers stay where they are." in lines(said, "warning")
    assert "handover" not in entry(verified, config)


@pytest.mark.parametrize("is_on_record", [True, False])
def test_a_retry_after_a_rejection_asks_nothing_and_a_cleared_task_asks_anew(
    verified: Any, config: Config, asked: list[Any], is_on_record: bool
) -> None:
    given = context(then="ask")
    ask(given)
    approve().execute_complete(given, answer("Reject"))
    if not is_on_record:  # the worker was lost before it got so far
        with verified.changed(config) as now:
            del now["epochs"][f"{TOPOLOGY}/2"]["rejected"]
    assert approve().execute(given) == {"answer": "rejected", "by": "airflow:ann"}
    assert entry(verified, config)["rejected"] == "rejected by airflow:ann"
    assert len(asked) == 1
    given["ti"].max_tries = 7  # as clearing does
    ask(given)
    assert "rejected" not in entry(verified, config) and len(asked) == 2


def test_a_rejected_epoch_is_taken_up_again_and_asked_about_anew(
    verified: Any, config: Config, said: Logs, asked: list[Any]
) -> None:
    change(verified, config, 2, rejected="rejected by ann")
    ask(context(then="ask"))
    assert "rejected" not in entry(verified, config) and len(asked) == 1
    assert "Epoch 2 was rejected by ann. It is taken up again." in lines(said, "info")


@pytest.mark.parametrize(
    ("then", "words"), [("cut_over", "move readers without asking"), ("keep", "keep it up to date")]
)
def test_where_the_form_does_not_ask_nothing_is_asked_and_the_log_says_so(
    verified: Any, said: Logs, asked: list[Any], then: str, words: str
) -> None:
    assert approve().execute(context(then=then)) == {"answer": "not asked"}
    assert asked == [] and words in lines(said, "info")


def test_of_an_epoch_that_is_live_nothing_is_asked(verified: Any, config: Config, said: Logs, asked: list[Any]) -> None:
    with verified.changed(config) as now:
        now["live"][TOPOLOGY] = 2
    assert approve().execute(context(then="ask")) == {"answer": "live already"}
    assert asked == [] and "live already" in lines(said, "info")


# Moves by hand


class Pushed(dict[str, Any]):
    def xcom_push(self, key: str, value: Any) -> None:
        self[key] = value


def chosen(kind: Any, **form: Any) -> tuple[int, list[str]]:
    given, pushed = {**context(), "params": {"epoch": None, "reason": None, **form}}, Pushed()
    number = kind(task_id="choose", topology=TOPOLOGY).execute({**given, "ti": pushed})
    return number, pushed["lines"]


def test_a_way_back_says_what_would_change(verified: Any, config: Config) -> None:
    change(verified, config, 1, stage="RETIRED")
    with verified.changed(config) as now:
        now["live"][TOPOLOGY] = 2
        now["epochs"][f"{TOPOLOGY}/3"] = verified._epoch("VERIFIED", "a third plan")
    number, told = chosen(ChoosePrevious)
    assert number == 1
    assert "go back from epoch 2 to epoch 1" in told[0] and "code c0dec0dec0de" in told[0]
    with pytest.raises(AirflowFailException, match="is live: readers have it already"):
        chosen(ChoosePrevious, epoch=2)
    with pytest.raises(AirflowFailException, match=r"Field 'epoch' is 3, .* was not live.* Kept for a way back: 1\."):
        chosen(ChoosePrevious, epoch=3)


def test_the_epoch_that_waits_is_the_candidate_or_the_one_that_was_rejected_last(verified: Any, config: Config) -> None:
    assert chosen(ChooseCandidate)[0] == 2
    change(verified, config, 2, rejected="rejected by ann", wanted=False)
    assert chosen(ChooseCandidate)[0] == 2
    assert "removed for good" in chosen(ChooseCandidateToAbort)[1][1]


def test_without_an_epoch_that_waits_it_is_said_what_builds_one(control: Any) -> None:
    started(context())
    change(control, control.Config.from_env(), 1, stage="CUT_OVER")
    with control.changed(control.Config.from_env()) as now:
        now["live"][TOPOLOGY] = 1
    with pytest.raises(AirflowFailException, match=r"DAG replay__demo\.replayed builds one"):
        chosen(ChooseCandidate)


def test_a_move_is_asked_for_with_its_lines_and_a_rejection_changes_nothing(
    verified: Any, config: Config, said: Logs, asked: list[Any]
) -> None:
    task = Confirm(task_id="confirm", topology=TOPOLOGY, epoch=1, hours=24, what="Go back?", lines=["this", "that"])
    with pytest.raises(TaskAwaitingInput):
        task.execute(context())
    assert (asked[0]["subject"], "- this" in asked[0]["body"], "- that" in asked[0]["body"]) == ("Go back?", True, True)
    found = task.execute_complete(context(), answer("Reject"))
    assert "Rejected: airflow:ann. Nothing was changed." in lines(said, "warning")
    before = verified.world(config)
    for kind in (BringBack, Abort):
        with pytest.raises(AirflowSkipException):
            kind(task_id="do", topology=TOPOLOGY, epoch=2, answer=found).execute(context())
    assert verified.world(config) == before
    assert "It was rejected (airflow:ann): nothing was changed." in lines(said, "warning")


def confirm(epoch: int, **how: Any) -> Confirm:
    return Confirm(task_id="confirm", topology=TOPOLOGY, epoch=epoch, hours=24, what="Sure?", lines=["this"], **how)


def confirmed(epoch: int, given: Any) -> Any:
    """What a question gives that was approved."""
    with pytest.raises(TaskAwaitingInput):
        confirm(epoch).execute(given)
    return confirm(epoch).execute_complete(given, answer("Approve"))


def cut_over_to(control: Any, config: Config, epoch: int) -> None:
    """Another epoch is live by now, by whomever."""
    with control.changed(config) as now:
        now["epochs"][f"{TOPOLOGY}/{epoch}"] = control._epoch("CUT_OVER", f"plan {epoch}")
        now["live"][TOPOLOGY] = epoch


def test_a_confirmed_abort_removes_the_candidate_and_a_live_epoch_is_refused(
    verified: Any, config: Config, said: Logs
) -> None:
    yes = confirmed(2, context())
    assert (yes["answer"], yes["by"], yes["shown"][TOPOLOGY]["live"]) == ("approved", "airflow:ann", 1)
    for _ in range(2):  # the second time nothing is left to do
        Abort(task_id="abort", topology=TOPOLOGY, epoch=2, answer=yes).execute(context())
    assert entry(verified, config)["stage"] == "ABORTED" and "Epoch 2 of demo.replayed is gone." in lines(said, "info")
    yes = confirmed(1, context())
    with pytest.raises(AirflowFailException, match="is live: it cannot be aborted"):
        Abort(task_id="abort", topology=TOPOLOGY, epoch=1, answer=yes).execute(context())


def test_a_confirmed_way_back_brings_the_epoch_back(verified: Any, config: Config) -> None:
    change(verified, config, 2, stage="RETIRED")
    yes = confirmed(2, context())
    for _ in range(2):
        BringBack(task_id="caught_up", topology=TOPOLOGY, epoch=2, answer=yes).execute(context())
    assert entry(verified, config)["stage"] == "VERIFIED"
    cut_over_to(verified, config, 3)
    with pytest.raises(AirflowFailException, match="The live epoch is 3, 1 was expected"):
        CutOver(task_id="cut_over", topology=TOPOLOGY, epoch=2, answer=yes).execute(context(then="cut_over"))


def test_an_answer_to_what_was_shown_yesterday_moves_and_removes_nothing_today(verified: Any, config: Config) -> None:
    change(verified, config, 2, stage="RETIRED")
    given = context()
    with pytest.raises(TaskAwaitingInput):
        confirm(2).execute(given)
    cut_over_to(verified, config, 3)
    with pytest.raises(AirflowFailException, match=r"the live epoch was 1 and is 3\. Nothing was changed\."):
        confirm(2).execute_complete(given, answer("Approve"))
    assert not entry(verified, config).get("recalled")


def test_between_an_answer_and_the_task_that_acts_nothing_may_change_either(verified: Any, config: Config) -> None:
    change(verified, config, 2, stage="RETIRED")
    yes = confirmed(2, context())
    cut_over_to(verified, config, 3)
    before = verified.world(config)
    for kind in (BringBack, Abort):
        with pytest.raises(AirflowFailException, match="the live epoch was 1 and is 3"):
            kind(task_id="do", topology=TOPOLOGY, epoch=2, answer=yes).execute(context())
    assert verified.world(config) == before


def test_an_answer_that_does_not_say_what_was_shown_changes_nothing(verified: Any, config: Config) -> None:
    change(verified, config, 2, stage="RETIRED")
    given = context()
    with pytest.raises(TaskAwaitingInput):
        confirm(2).execute(given)
    given["task_state_store"].clear()
    with pytest.raises(AirflowFailException, match="not known any more what the question showed"):
        confirm(2).execute_complete(given, answer("Approve"))
    before = verified.world(config)
    for kind in (BringBack, Abort):
        with pytest.raises(AirflowFailException, match="does not say what was shown"):
            kind(task_id="do", topology=TOPOLOGY, epoch=2, answer={"answer": "approved", "by": "a"}).execute(context())
    assert verified.world(config) == before


def test_a_question_is_not_asked_once_its_lines_are_untrue(verified: Any, config: Config, asked: list[Any]) -> None:
    change(verified, config, 1, stage="RETIRED")
    cut_over_to(verified, config, 2)
    pushed = Pushed()
    given = {**context(), "params": {"epoch": None, "reason": None}, "ti": pushed}
    ChoosePrevious(task_id="choose", topology=TOPOLOGY).execute(given)
    with pytest.raises(TaskAwaitingInput):
        confirm(1, shown=pushed["shown"]).execute(context())
    cut_over_to(verified, config, 3)
    with pytest.raises(AirflowFailException, match=r"the live epoch was 2 and is 3.*Clear the task before this one"):
        confirm(1, shown=pushed["shown"]).execute(context())
    assert len(asked) == 1
