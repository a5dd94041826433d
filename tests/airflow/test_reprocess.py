"""Scheduled reprocessing: what a run does with the epochs that it finds, and what it says of each verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from structlog.testing import capture_logs
from support.airflow_runs import TOPOLOGY, change, context, started
from support.epoch_record import FIRST, SECOND, empty_lake, empty_plan, tell
from test_dags import parsed

from kappa import control
from kappa.config import Config
from kappa.errors import BrokerUnreachableError, TopologyError
from kappa.offsets.vector import Offsets
from kappa.record.epochs import Epochs
from kappa.replay.plan import ReplayPlan
from kappa.replay.starts import FromSavepoint, ToEarliest
from kappa.topology.registry import declared
from kappa.topology.times.schedule import Schedule
from kappa_airflow import tasks
from kappa_airflow.replays import reprocess
from kappa_airflow.replays.reprocess import AUTHOR, Conclude, PlanReprocess, StartReprocess, being_moved

pytestmark = pytest.mark.usefixtures("no_connection")

VERIFICATION = {
    "epoch": 2,
    "live": 1,
    "verdict": "same",
    "difference": ["table counts: 1 keys added"],
    "report": "/kappa/topologies/demo.replayed/2",
}


@pytest.fixture
def live(control: Any, config: Config) -> Any:
    """Epoch 1 is live."""
    started(context())
    change(control, config, 1, stage="CUT_OVER")
    with control.changed(config) as now:
        now["live"][TOPOLOGY] = 1
    return control


def planned(run: Any, **arguments: Any) -> str:
    return PlanReprocess(task_id="plan", topology=TOPOLOGY, **arguments).execute(run)


def build(run: Any) -> int:
    return int(StartReprocess(task_id="start", plan=planned(run)).execute(run)["epoch"])


def test_a_run_builds_a_candidate_in_the_name_of_the_schedule_once(live: Any, config: Config) -> None:
    run = context()
    assert build(run) == build(run) == 2
    assert live.world(config)["epochs"][f"{TOPOLOGY}/2"]["actor"] == AUTHOR
    assert "scheduled reprocessing, run run-1, airflow:ann" in ReplayPlan.from_json(planned(run)).request.reason


def test_the_next_run_replaces_what_the_run_before_left(live: Any, config: Config) -> None:
    assert build(context()) == 2
    with capture_logs() as logs:
        assert build({**context(), "run_id": "run-2"}) == 3
    assert live.world(config)["epochs"][f"{TOPOLOGY}/2"]["stage"] == "ABORTED"
    assert "Epoch 2 of the previous run is removed" in str(logs)


def test_a_candidate_that_a_person_made_is_left_alone_and_the_log_says_so(live: Any, config: Config) -> None:
    assert started(context()) == 2
    before = live.world(config)
    with capture_logs() as logs, pytest.raises(AirflowSkipException):
        planned(context())
    assert live.world(config) == before
    assert "Epoch 2 of demo.replayed is being built already, by airflow:ann: it is left alone" in str(logs)


@pytest.mark.parametrize("filled", [{"then": "plan"}, {"then": "nonsense"}, {"savepoint": "x"}])
def test_a_run_with_a_field_is_refused_before_anything_is_removed(
    live: Any, config: Config, filled: dict[str, str]
) -> None:
    build(context())
    before, run = live.world(config), context(**filled)
    run["dag"].params = {}
    with pytest.raises(AirflowFailException, match=f"no field '{next(iter(filled))}'"):
        planned(run)
    assert live.world(config) == before


@pytest.mark.parametrize("error", [TopologyError("no such module"), BrokerUnreachableError("Kafka does not answer")])
def test_a_run_that_cannot_plan_keeps_what_the_run_before_left(
    live: Any, config: Config, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    build(context())
    before = live.world(config)

    def plan(_: Config, request: Any) -> Any:
        raise error

    with monkeypatch.context() as patch, pytest.raises((AirflowFailException, BrokerUnreachableError)):
        patch.setattr(live, "plan", plan)
        planned(context())
    assert live.world(config) == before
    with pytest.raises(AirflowFailException, match="savepoint") as refused:
        planned(context(), savepoint="gone")
    assert "being built" not in str(refused.value), "the candidate is in nobody's way"
    assert live.world(config) == before


MOVES: dict[str, tuple[tuple[str, ...], str]] = {
    "it is approved": (("approved",), "was approved by test"),
    "an approval is asked for": (("asked",), "waits for an approval until 9999-12-31T00:00 UTC"),
    "it was taken up again": (("rejected", "reopened"), "was resumed by test"),
    "readers are moved to it": (("handover",), "is being made live, as test asked"),
}


@pytest.fixture
def real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A lake where epoch 1 is live and the schedule made epoch 2, which was verified."""
    config = empty_lake(tmp_path, monkeypatch)
    monkeypatch.setattr(tasks, "config_with_spark", lambda _: config)
    epochs = Epochs(config.lake)
    for number, names in ((1, FIRST), (2, SECOND)):
        tell(config, TOPOLOGY, number, names[0], by_event={}, plan_id="p", actor="test" if number == 1 else AUTHOR)
        tell(config, TOPOLOGY, number, *names[1:], by_event={"verified": {"verdict": "differs", "report": "{}"}})
    assert epochs.record(TOPOLOGY).candidate_epoch() == 2
    return config


def left_alone(config: Config, reason: str) -> None:
    """Neither the next run nor the end of this one removes a candidate, and what is said of it is why."""
    before = Epochs(config.lake).events()
    with capture_logs() as logs, pytest.raises(AirflowSkipException):
        planned(context())
    assert reason in str(logs) and "left alone" in str(logs)
    with capture_logs() as logs:
        assert conclude() == "same"
    assert reason in str(logs) and "It stays." in str(logs)
    assert Epochs(config.lake).events() == before


@pytest.mark.parametrize("move", MOVES)
def test_a_candidate_of_the_schedule_that_a_person_is_moving_is_left_alone(real: Config, move: str) -> None:
    events, reason = MOVES[move]
    tell(real, TOPOLOGY, 2, *events, by_event={"asked": {"until": "9999-12-31T00:00:00+00:00"}})
    left_alone(real, reason)


def test_a_rollback_to_an_epoch_of_the_schedule_is_left_alone(real: Config) -> None:
    tell(real, TOPOLOGY, 2, "moved", by_event={"moved": {"from": 1}})
    tell(real, TOPOLOGY, 3, *SECOND, "moved", by_event={"moved": {"from": 2}})
    tell(real, TOPOLOGY, 2, "recalled", by_event={})
    left_alone(real, "is being brought back, as test asked")


@pytest.mark.parametrize("back", [False, True], ids=["live", "live before"])
def test_an_epoch_of_the_schedule_that_was_made_live_is_not_touched_by_a_late_end_of_its_run(
    real: Config, back: bool
) -> None:
    tell(real, TOPOLOGY, 2, "moved", by_event={"moved": {"from": 1}})
    if back:
        detail = {"from": 2, "keep_old_running": True}
        tell(real, TOPOLOGY, 1, "recalled", "caught_up", "moved", by_event={"moved": detail})
        assert Epochs(real.lake).record(TOPOLOGY).epoch(2).is_kept
    before = Epochs(real.lake).events()
    with capture_logs() as logs:
        assert conclude() == "same"
    assert "was made live by test" in str(logs) and "It stays." in str(logs)
    assert Epochs(real.lake).events() == before


def test_a_candidate_that_somebody_approves_at_that_moment_is_left_alone(
    real: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = reprocess.being_moved

    def late(record: Any, epoch: int) -> str:
        reason = looked(record, epoch)
        tell(real, TOPOLOGY, 2, "approved", by_event={})
        return reason

    monkeypatch.setattr(control, "plan", lambda *_: empty_plan(TOPOLOGY, 3, Offsets({})))
    monkeypatch.setattr(reprocess, "being_moved", late)
    with capture_logs() as logs, pytest.raises(AirflowSkipException):
        planned(context())
    assert "had 0 approvals and has 1" in str(logs)
    assert Epochs(real.lake).record(TOPOLOGY).candidate_epoch() == 2


@pytest.mark.parametrize(
    "events", [("asked",), ("reopened", "rejected")], ids=["whose question is over", "that was rejected"]
)
def test_what_nobody_is_moving_any_more_is_removed(real: Config, events: tuple[str, ...]) -> None:
    tell(real, TOPOLOGY, 2, *events, by_event={"asked": {"until": "2026-01-01T00:00:00+00:00"}})
    assert being_moved(Epochs(real.lake).record(TOPOLOGY), 2) == ""


def test_without_a_live_epoch_there_is_nothing_to_compare_with(control: Any, config: Config) -> None:
    with capture_logs() as logs, pytest.raises(AirflowSkipException):
        planned(context())
    assert "has no live epoch: there is nothing to compare with. DAG stream__demo.replayed starts it." in str(logs)


@pytest.mark.parametrize(
    ("savepoint", "start"), [("", ToEarliest()), ("before-the-sale", FromSavepoint(name="before-the-sale"))]
)
def test_a_scheduled_replay_starts_at_the_beginning_or_at_a_savepoint(
    live: Any, monkeypatch: pytest.MonkeyPatch, savepoint: str, start: object
) -> None:
    starts = []

    def plan(_: Config, request: Any) -> Any:
        starts.append(request.start)
        raise TopologyError("enough")

    monkeypatch.setattr(live, "plan", plan)
    with pytest.raises(AirflowFailException, match="enough"):
        planned(context(), savepoint=savepoint)
    assert starts == [start]


def conclude(**values: Any) -> Any:
    return Conclude(task_id="conclude", topology=TOPOLOGY, verification={**VERIFICATION, **values}).execute(context())


def test_what_is_the_same_is_dropped_and_its_report_kept(live: Any, config: Config) -> None:
    build(context())
    with capture_logs() as logs:
        assert conclude() == conclude() == "same"
    assert live.world(config)["epochs"][f"{TOPOLOGY}/2"]["stage"] == "ABORTED"
    assert "is the same as live epoch" in str(logs) and VERIFICATION["report"] in str(logs)


def test_what_differs_fails_the_run_and_stays(live: Any, config: Config) -> None:
    build(context())
    with (
        capture_logs() as logs,
        pytest.raises(
            AirflowFailException, match=r"differs from live epoch 1: table counts: 1 keys added\. Epoch 2 stays until"
        ),
    ):
        conclude(verdict="differs")
    assert live.world(config)["epochs"][f"{TOPOLOGY}/2"]["stage"] != "ABORTED"
    assert "table counts: 1 keys added" in [entry["event"] for entry in logs if entry["log_level"] == "warning"]


@pytest.mark.parametrize(
    "cron",
    [
        *("", "every day", "61 * * * *", "0 0 3 * * *", "0 0 3 * * * 2027", "7#1", "@never", "0 3 30 2 *"),
        *("r 3 * * *", "R(0-5) 3 * * *", "0,r 3 * * *", "R/5 3 * * *"),  # drawn anew in each process
    ],
)
def test_a_schedule_that_is_none_is_refused(cron: str) -> None:
    with pytest.raises(TopologyError, match="not a cron expression"):
        Schedule(cron=cron)


@pytest.mark.parametrize(
    "cron", ["0 3 * * 7#1", "0 3 * * L5", "0 3 L * *", "@daily", " 0 3  * * mon-fri ", "0 3 1 mar *"]
)
def test_a_schedule_of_five_fields_is_taken_as_airflow_takes_it(cron: str) -> None:
    assert Schedule(cron=cron).cron == cron


@pytest.mark.parametrize("zone", ["Europe/Berln", "", "CEST", "+02:00"])
def test_a_schedule_in_no_zone_is_refused(zone: str) -> None:
    with pytest.raises(TopologyError, match=r"Schedule '@daily': zone .* is not a time zone of the database"):
        Schedule(cron="@daily", zone=zone)


def test_a_schedule_is_read_from_the_file_and_a_wrong_one_takes_no_dag_down(tmp_path: Any) -> None:
    folder = tmp_path / "others"
    folder.mkdir()
    text = "Topology(name='demo.{0}', version='1', reprocess=Schedule(cron='{1}', savepoint='s'))"
    (folder / "good.py").write_text(text.format("good", "0 3 * * *"))
    zoned = "Topology(name='demo.{0}', version='1', reprocess=Schedule(cron='0 3 * * *', zone={1}))"
    for name, zone in (("local", "'Europe/Berlin'"), ("nowhere", "'Europe/Berln'"), ("other", "ZONE")):
        (folder / f"{name}.py").write_text(zoned.format(name, zone))
    (folder / "wrong.py").write_text(text.format("wrong", "never"))
    (folder / "none.py").write_text("Topology(name='demo.none', version='1')")
    assert [item.reprocess for item in declared(folder)] == [
        {"cron": "0 3 * * *", "savepoint": "s"},
        {"cron": "0 3 * * *", "zone": "Europe/Berlin"},
        None,
        {"cron": "0 3 * * *", "zone": "Europe/Berln"},
        {"cron": "0 3 * * *", "zone": ""},
        {"cron": "never", "savepoint": "s"},
    ]
    bag = parsed(tmp_path, KAPPA_TOPOLOGIES=str(folder))
    assert bag["errors"] == {}
    assert [name for name in bag["dags"] if "reprocess" in name] == [  # type: ignore[attr-defined]
        "reprocess__demo.good",
        "reprocess__demo.local",
    ]
    types = bag["facts"]["reprocess__demo.good"]["types"]
    assert {"scheduled", "manual"} < set(types) and "backfill" not in types, "runs of a backfill overlap"
