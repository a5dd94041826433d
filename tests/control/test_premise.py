"""An answer moves or removes what was shown and nothing else: decided on the record, at the moment of the change."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from support import epoch_record
from support.epoch_record import FIRST, SECOND, empty_lake

from kappa import control
from kappa.config import Config
from kappa.control.approval import reject, reopen
from kappa.control.plans.premise import Premise
from kappa.driver.processes import process
from kappa.errors import MoveRefusedError
from kappa.offsets.vector import Offsets
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import Epochs
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from kappa.kafka.broker import Broker

DETAILS = {"verified": {"verdict": "differs", "report": "{}"}, "moved": {"from": None}}


def tell(config: Config, epoch: int, *names: str, topology: str = "a.b") -> None:
    epoch_record.tell(config, topology, epoch, *names, by_event=DETAILS, plan_id=f"plan {epoch}")


def record(config: Config, topology: str = "a.b") -> TopologyRecord:
    return Epochs(config.lake).record(topology)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """Epoch 2 replaced epoch 1, and epoch 3 is being built."""
    lake_config = empty_lake(tmp_path, monkeypatch)
    tell(lake_config, 1, *FIRST)
    tell(lake_config, 2, *SECOND, "moved")
    return lake_config


def back(config: Config, premise: Premise) -> int:
    return control.rollback(config, "a.b", to=premise.epoch, actor="ann", reason="", premise=premise)


def test_a_way_back_is_made_as_it_was_shown_and_asked_for_again_changes_nothing(config: Config) -> None:
    premise = Premise.of(record(config), 1)
    assert back(config, premise) == 1 and record(config).epoch(1).is_recalled
    before = record(config).events
    assert back(config, premise) == 1 and record(config).events == before


@pytest.mark.parametrize("there_and_back", [False, True])
def test_a_way_back_from_another_epoch_than_was_shown_is_refused(config: Config, there_and_back: bool) -> None:
    premise = Premise.of(record(config), 1)
    tell(config, 3, *SECOND, "moved")
    if there_and_back:
        tell(config, 2, "recalled", "caught_up", "moved")
    before = record(config).events
    message = "readers were moved from epoch 2 and back to it" if there_and_back else "the live epoch was 2 and is 3"
    with pytest.raises(MoveRefusedError, match=message):
        back(config, premise)
    assert record(config).events == before


CHANGES: dict[str, tuple[Callable[[Config], Any], str]] = {
    "it got further": (lambda c: tell(c, 3, "replayed"), "epoch 3 was SEEDED and is REPLAYED"),
    "another one went live": (lambda c: tell(c, 1, "recalled", "caught_up", "moved"), "the live epoch was 2 and is 1"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_an_epoch_that_got_further_than_was_shown_is_not_aborted(config: Config, change: str) -> None:
    tell(config, 3, *SECOND[:3])
    premise = Premise.of(record(config), 3)
    act, message = CHANGES[change]
    act(config)
    with pytest.raises(MoveRefusedError, match=message):
        control.abort(config, "a.b", 3, actor="ann", reason="", premise=premise)
    assert not record(config).epoch(3).stage.is_ended


def test_an_epoch_that_was_approved_or_is_handed_over_since_is_not_aborted(config: Config) -> None:
    tell(config, 3, *SECOND)
    for act, message in (
        (
            lambda: control.approve(config, control.approval_terms(config, "a.b", 3), actor="airflow:ann", reason=""),
            "approv",
        ),
        (lambda: tell(config, 3, "handover"), "handover to epoch 3 was asked for"),
    ):
        premise = Premise.of(record(config), 3)
        act()
        with pytest.raises(MoveRefusedError, match=message):
            control.abort(config, "a.b", 3, actor="ann", reason="", premise=premise)


def test_an_abort_that_ended_a_way_back_is_done_and_not_done_again(config: Config) -> None:
    tell(config, 1, "recalled")
    premise = Premise.of(record(config), 1)
    for _ in range(2):
        control.abort(config, "a.b", 1, actor="ann", reason="", premise=premise)
    assert [event.event for event in record(config).events[-2:]] == ["recalled", "released"]


def test_progress_says_whose_way_back_was_ended(config: Config) -> None:
    plan = epoch_record.empty_plan("a.c", 1, Offsets())
    planned = {"plan": plan.to_json(), "plan_id": plan.id, "code": epoch_record.CODE}
    epoch_record.tell(config, "a.c", 1, *FIRST, by_event={**DETAILS, "planned": planned})
    tell(config, 2, *SECOND, "moved", topology="a.c")
    ways: tuple[tuple[str, ...], ...] = ((), ("recalled",), ("released",), ("recalled", "caught_up", "moved"))
    for names in ways:
        tell(config, 1, *names, topology="a.c")
        assert control.progress(config, "a.c", 1).is_released is (names == ("released",))


def test_what_a_question_rests_on_outlives_the_process(config: Config) -> None:
    premise = Premise.of(record(config), 1)
    assert Premise.from_dict(premise.to_dict()) == premise


@pytest.mark.broker
def test_a_rejected_epoch_that_is_taken_up_again_while_others_are_removed_stays(
    config: Config, kafka: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"rejected{os.getpid()}.{letter}" for letter in "ab"]
    for name in names:
        tell(config, 1, *FIRST, topology=name)
        tell(config, 2, *SECOND, topology=name)
        reject(config, name, 2, actor="bob", reason="")
    config = replace(config, bootstrap_servers=kafka.bootstrap_servers, rejected_hours=1e-9)
    leftovers = [item for item in control.housekeeping(config).leftovers if item.kind == "rejected epoch"]
    assert [item.name for item in leftovers] == [f"{name} 2" for name in names]
    end = process.await_end

    def slow_end(*which: Any) -> None:
        end(*which)
        reopen(config, names[1], 2, actor="ann", reason="it was right")

    monkeypatch.setattr(process, "await_end", slow_end)
    assert control.clean(config, leftovers) == (leftovers[0],)
    assert [record(config, name).epoch(2).stage for name in names] == [Stage.ABORTED, Stage.VERIFIED]
    assert record(config, names[1]).candidate is not None
