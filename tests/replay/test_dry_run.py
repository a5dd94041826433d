"""A dry run ends at the first effect, raises what the call refuses, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from kappa.config import Config
from kappa.delta.append_log import AppendLog
from kappa.driver.processes.launcher import launch
from kappa.kafka.broker import Broker
from kappa.kafka.producer import Sender
from kappa.offsets.vector import Offsets
from kappa.record import code
from kappa.record.epochs import Epochs
from kappa.record.events import Event, intent
from kappa.replay.dry_run import about_to, first_effect

NOWHERE = "127.0.0.1:1"


def test_the_call_ends_at_its_first_effect() -> None:
    done: list[str] = []

    def act() -> None:
        done.append("looked")
        about_to("write a file")
        done.append("wrote")

    assert first_effect(act) == "write a file"
    assert done == ["looked"]
    act()
    assert done == ["looked", "looked", "wrote"]


def test_a_call_without_an_effect_is_none_and_a_refusal_is_raised() -> None:
    assert first_effect(lambda: 1) is None
    with pytest.raises(ValueError, match="refused"):
        first_effect(lambda: int("refused"))
    about_to("write a file")  # a dry run that raised is over


def test_error_handling_on_the_way_does_not_take_it_for_a_failure() -> None:
    def act() -> None:
        try:
            about_to("write a file")
        except Exception:  # as a caller might
            about_to("write another")

    assert first_effect(act) == "write a file"


def _append(tmp: Path) -> None:
    AppendLog(str(tmp / "log"), pa.schema({"n": pa.int64()})).append([{}])


def _record(tmp: Path) -> None:
    row = Event(topology="a.b", epoch=1, event="planned", at=datetime.now(UTC), actor="test", detail={})
    Epochs(str(tmp / "lake")).change(row.topology, lambda _: [row])


EFFECTS: dict[str, Callable[[Path], object]] = {
    "append to a log": _append,
    "create a log": lambda tmp: AppendLog(str(tmp / "log"), pa.schema({"n": pa.int64()})).create(),
    "append to the record of epochs": _record,
    "launch a driver": lambda tmp: launch(Config.from_env({"KAPPA_HOME": str(tmp)}), "a.b", 1, "c"),
    "store code": lambda tmp: code.store(str(tmp / "lake"), Path("include/topologies").resolve(), "retail.loyalty"),
    "create a topic": lambda _: Broker(NOWHERE).create_topic("t", 1),
    "delete topics": lambda _: Broker(NOWHERE).delete_topics(["t"]),
    "set a group": lambda _: Broker(NOWHERE).set_group_offsets("g", Offsets({"t": {0: 1}})),
    "delete a group": lambda _: Broker(NOWHERE).delete_group("g"),
    "fence a writer": lambda _: Sender(NOWHERE, "id", "group").init(),
}


@pytest.mark.parametrize("effect", EFFECTS.values(), ids=EFFECTS)
def test_whatever_changes_something_ends_a_dry_run_before_it_does(
    effect: Callable[[Path], object], tmp_path: Path
) -> None:
    assert first_effect(lambda: effect(tmp_path))
    assert list(tmp_path.rglob("*")) == []


@pytest.mark.parametrize(
    ("event", "detail", "said"),
    [
        ("handover", {"from": 1}, "hand over a.b from epoch 1 to epoch 2"),
        ("aborted", {}, "abort epoch 2 of a.b and remove its files, topics and group"),
        ("recalled", {}, "bring back epoch 2 of a.b and make it live"),
        ("savepoint", {}, "put 'savepoint' of epoch 2 of a.b on record"),
    ],
)
def test_what_an_append_begins_is_said_in_words(event: str, detail: dict[str, int], said: str) -> None:
    row = Event(topology="a.b", epoch=2, event=event, at=datetime.now(UTC), actor="test", detail=detail)
    assert intent(row) == said
