"""What may be asked of a topology, decided on the record alone: no broker, no JVM."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kappa import control
from kappa.config import Config
from kappa.driver.processes.process import DriverStatus
from kappa.errors import MoveRefusedError, UsageError
from kappa.offsets.vector import Offsets
from kappa.record.epochs import Epochs
from kappa.record.events import Event
from kappa.replay.proof.verdict import CheckResult, DiffReport, ThresholdResult
from kappa.replay.stages import Stage

FAILED = DiffReport(
    topology="a.b",
    live_epoch=1,
    live_seq=3,
    candidate_epoch=2,
    candidate_seq=3,
    at=Offsets({"pos": {0: 9}}),
    checks=(CheckResult(name="nobody is lost", ok=False, detail="2 rows contradict it"),),
    thresholds=(ThresholdResult(measure="t.keys_removed", allowed=0, found=4, ok=False),),
)


@pytest.mark.parametrize(("done", "percent"), [(0, 0), (998, 99), (999, 99), (1000, 100)])
def test_bulk_work_is_whole_only_when_nothing_is_left(done: int, percent: int) -> None:
    progress = control.Progress(
        topology="a.b",
        epoch=2,
        stage=Stage.SEEDED,
        done=done,
        total=1000,
        records_per_second=None,
        seconds_left=None,
        verdict=None,
        is_live=False,
        is_caught_up=False,
        is_wanted=True,
        driver=DriverStatus(topology="a.b", epoch=2, state="running"),
    )
    assert f" {percent} %" in progress.message
    assert ("% of the plan's range" in progress.doing) is (done < 1000) and "100 % of" not in progress.doing


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """A live epoch 1 and a candidate 2 whose verification failed."""
    config = Config.from_env(
        {"KAPPA_HOME": str(tmp_path), "KAPPA_LAKE": str(tmp_path / "lake"), "KAPPA_LAUNCHER": "elsewhere"}
    )
    epochs = Epochs(config.lake)
    first = ("planned", "rewound", "seeded", "moved")
    second = ("planned", "rewound", "seeded", "replayed", "caught_up", "verified")
    for epoch, name in [*((1, n) for n in first), *((2, n) for n in second)]:
        detail = {"verdict": FAILED.verdict, "report": FAILED.to_json()} if name == "verified" else {"code": "c"}
        row = Event(topology="a.b", epoch=epoch, event=name, at=datetime.now(UTC), actor="test", detail=detail)
        epochs.change(row.topology, lambda _, row=row: [row])  # type: ignore[misc]
    return config


def test_a_failed_verdict_refuses_the_cutover_and_names_all_that_failed(config: Config) -> None:
    with pytest.raises(MoveRefusedError) as refused:
        control.cut_over(config, "a.b", 2, actor="ada", reason="because")
    assert "check nobody is lost: 2 rows contradict it; threshold t.keys_removed: found 4, allowed 0" in str(
        refused.value
    )
    assert "--accept-verdict" in str(refused.value)
    assert Epochs(config.lake).record("a.b").handover is None


@pytest.mark.parametrize("reason", ["", "  "])
def test_a_failed_verdict_is_accepted_for_a_reason_only(config: Config, reason: str) -> None:
    with pytest.raises(UsageError, match="give --reason"):
        control.cut_over(config, "a.b", 2, actor="ada", reason=reason, accept_verdict=True)
    assert Epochs(config.lake).record("a.b").handover is None


def test_an_accepted_verdict_is_on_record_with_who_and_why(config: Config) -> None:
    control.cut_over(config, "a.b", 2, actor="ada", reason="the four keys were duplicates", accept_verdict=True)
    (handover,) = [e for e in control.chronicle(config, "a.b") if e.event == "handover"]
    assert (handover.actor, handover.reason, handover.verdict) == ("ada", "the four keys were duplicates", "failed")


def test_without_a_failed_verdict_nothing_is_accepted(config: Config) -> None:
    epochs = Epochs(config.lake)
    epochs.add("a.b", 2, "aborted", actor="test")
    for name in ("planned", "rewound", "seeded", "replayed", "caught_up", "verified"):
        detail = {"verdict": "differs"} if name == "verified" else {"code": "c"}
        epochs.add("a.b", 3, name, actor="test", **detail)
    control.cut_over(config, "a.b", 3, actor="ada", reason="", accept_verdict=True)
    handover = Epochs(config.lake).record("a.b").handover
    assert handover is not None and "accepted_verdict" not in handover.detail


def test_the_slower_of_two_cutovers_does_not_start_an_epoch_retired_meanwhile(config: Config) -> None:
    """The second call finds the handover of the first, which is made before it wants the old epoch's driver."""
    epochs = Epochs(config.lake)
    control.cut_over(config, "a.b", 2, actor="ada", reason="accepted", accept_verdict=True)
    pending = epochs.record("a.b").handover
    assert pending is not None
    epochs.add("a.b", 1, "stop", actor="ada")
    slower = control.cut_over.planned(config, "a.b", 2, actor="bob", reason="accepted", accept_verdict=True)
    epochs.add("a.b", 2, "moved", actor="driver", handover=pending.n)
    slower.make()
    retired = epochs.record("a.b").epoch(1)
    assert (retired.stage, retired.is_wanted) == ("RETIRED", False)
    assert control.wanted_drivers(config) == [("a.b", 2)]


@pytest.mark.parametrize(
    "act",
    [
        lambda config, text: control.stop(config, "a.b", actor="ada", reason=text),
        lambda config, text: control.stop(config, "a.b", actor=text, reason="upgrade"),
        lambda config, text: control.abort(config, "a.b", 2, actor="ada", reason=text),
        lambda config, text: control.reject(config, "a.b", 2, actor="ada", reason=text),
        lambda config, text: control.cut_over(config, "a.b", 2, actor="ada", reason=text, accept_verdict=True),
    ],
)
def test_a_text_that_no_file_can_hold_is_refused_and_changes_nothing(
    config: Config, act: Callable[[Config, str], object]
) -> None:
    before = Epochs(config.lake).record("a.b")
    with pytest.raises(UsageError, match=r"^The text 'half \\ud800' has half a character"):
        act(config, "half \ud800")
    assert Epochs(config.lake).record("a.b") == before
