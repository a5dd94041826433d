"""Each move and backfill on record is announced once, with what belongs to it, whatever died in between."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.epoch_record import FIRST, SECOND, empty_lake, tell

from kappa import clock, control
from kappa.config import Config
from kappa.errors import LakeUnreachableError
from kappa.offsets.vector import Offsets
from kappa.record import epochs as record_of_epochs
from kappa.record.epochs import Epochs
from kappa.replay.proof.verdict import DiffReport, OutputDiff, TableDiff
from kappa_airflow.announcing import announce
from kappa_airflow.announcing.announce import ANNOUNCED, BOOKMARK, Announce, MovesTrigger, moves
from kappa_airflow.announcing.announcements import Announcement, announcements, last

PLAN = json.dumps({"tables": ["balances"], "appends": ["notes"]})
REPORT = DiffReport(
    topology="demo.a",
    live_epoch=1,
    live_seq=5,
    candidate_epoch=2,
    candidate_seq=7,
    at=Offsets({"events": {0: 9}}),
    tables=(TableDiff(name="balances", rows_live=9, rows_candidate=10, keys_added=1, keys_changed=2),),
    outputs=(OutputDiff(name="notes", rows_live=4, rows_candidate=4),),
)
BACKFILL = {"from": "2026-01-01T00:00:00+00:00", "to": "2026-01-02T00:00:00+00:00"}
DETAILS = {
    "planned": {"plan": PLAN, "plan_id": "p"},
    "verified": {"verdict": "differs", "report": REPORT.to_json()},
    "backfilled": {**BACKFILL, "seq": 8, "offsets": {}, "outputs": {"notes": {"rows": 3, "before": 2, "same": False}}},
}


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    config = empty_lake(tmp_path, monkeypatch)
    monkeypatch.setattr(announce, "config_with_spark", lambda _: config)
    return config


def began(config: Config, topology: str = "demo.a") -> None:
    tell(config, topology, 1, *FIRST, by_event={**DETAILS, "moved": {"from": None, "at": {}, "seq": 4}})


def moved(config: Config, epoch: int, replaces: int) -> None:
    detail = {"from": replaces, "at": {"events": {"0": 9}}, "seq": 7}
    tell(config, "demo.a", epoch, "moved", by_event={"moved": detail})


class Airflow:
    """What Airflow keeps between runs of the task: its events, and a bookmark."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.state: dict[str, Any] = {}

    def run(self, *, dies: bool = False) -> list[Announcement]:
        """Run the task; one that dies leaves its bookmark and no event."""
        added: list[Any] = []
        stored = SimpleNamespace(
            ascending=lambda _: SimpleNamespace(limit=lambda most: list(reversed(self.events))[:most])
        )
        wakes = moves()
        store = SimpleNamespace(get=self.state.get, set=self.state.__setitem__)
        accessor = SimpleNamespace(
            add=lambda asset, extra: added.append(SimpleNamespace(asset=asset.name, extra=extra))
        )
        context: Any = {
            "asset_state_store": {wakes: store},
            "inlet_events": {ANNOUNCED: stored},
            "outlet_events": {ANNOUNCED: accessor},
        }
        Announce(task_id="announce", wakes=wakes).execute(context)
        self.events += [] if dies else added
        return added


def summaries(events: list[Any]) -> list[tuple[str, str, int]]:
    return [(event.asset, event.extra["move"], event.extra["n"]) for event in events]


def test_a_cutover_says_epoch_offsets_and_difference_and_a_way_back_is_a_rollback(lake: Config) -> None:
    began(lake)
    tell(lake, "demo.a", 2, *SECOND, by_event=DETAILS)
    moved(lake, 2, 1)
    tell(lake, "demo.a", 1, "recalled", "caught_up", by_event={})
    moved(lake, 1, 2)
    first, second, back = (
        [a for a in announcements(Epochs(lake.lake).events(), after=0) if a.n == n] for n in (4, 11, 14)
    )
    assert [(a.table, a.extra["move"], a.extra["replaces"]) for a in first] == [
        ("balances", "cutover", None),
        ("notes", "cutover", None),
    ]
    balances, notes = second
    assert balances.extra["difference"] == {
        "live": 1,
        "candidate": 2,
        "verdict": "differs",
        "rows_live": 9,
        "rows_candidate": 10,
        "keys_added": 1,
        "keys_removed": 0,
        "keys_changed": 2,
    }
    assert notes.extra["difference"]["rows_added"] == 0
    assert (balances.extra["epoch"], balances.extra["offsets"]) == (2, {"events": {"0": 9}})
    assert (balances.extra["id"], balances.extra["actor"]) == ("demo.a/11", "test")
    assert [a.extra["move"] for a in back] == ["rollback", "rollback"]
    assert back[0].extra["difference"]["candidate"] == 2
    json.dumps([a.extra for a in announcements(Epochs(lake.lake).events(), after=0)])


def test_a_backfill_is_announced_for_the_outputs_whose_rows_it_replaced(lake: Config) -> None:
    began(lake)
    tell(lake, "demo.a", 1, "backfilled", by_event={"backfilled": {**DETAILS["backfilled"], "backfill": 5}})
    (one,) = announcements(Epochs(lake.lake).events(), after=4)
    assert (one.table, one.extra["move"], one.extra["from"]) == ("notes", "backfill", BACKFILL["from"])
    assert one.extra["difference"] == {"rows": 3, "before": 2, "same": False}


def test_the_first_run_announces_what_is_live_and_later_ones_what_is_new(lake: Config) -> None:
    began(lake)
    tell(lake, "demo.a", 2, *SECOND, by_event=DETAILS)
    moved(lake, 2, 1)
    airflow = Airflow()
    first = [("kappa/demo.a/balances", "cutover", 11), ("kappa/demo.a/notes", "cutover", 11)]
    assert summaries(airflow.run()) == first
    assert airflow.run() == []
    began(lake, "demo.b")
    assert summaries(airflow.run()) == [("kappa/demo.b/balances", "cutover", 15), ("kappa/demo.b/notes", "cutover", 15)]


def test_a_task_that_dies_before_it_is_a_success_loses_and_repeats_nothing(lake: Config) -> None:
    airflow = Airflow()
    assert airflow.run() == [] and airflow.state[BOOKMARK]["n"] == 0
    began(lake)
    began(lake, "demo.b")
    lost = airflow.run(dies=True)
    assert summaries(airflow.run()) == summaries(lost) and len(lost) == 4
    assert airflow.run() == [] and airflow.state[BOOKMARK]["n"] == 8


def test_events_that_airflow_removed_are_not_announced_again(lake: Config) -> None:
    airflow = Airflow()
    began(lake)
    airflow.run()
    airflow.run()
    airflow.events.clear()
    assert airflow.run() == []


def announced(config: Config, topologies: int) -> Airflow:
    """An Airflow that announced what is live of some topologies."""
    airflow = Airflow()
    for number in range(topologies):
        began(config, f"demo.{chr(ord('a') + number)}")
    airflow.run()
    airflow.run()  # with a bookmark of its own
    assert len(airflow.events) == 2 * topologies
    return airflow


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_a_lake_that_was_built_anew_announces_what_is_live_in_it(lake: Config, is_cleaned: bool) -> None:
    airflow = announced(lake, 3)
    if is_cleaned:
        airflow.events.clear()
    shutil.rmtree(lake.lake)
    began(lake, "demo.b")
    with capture_logs() as logs:
        assert [event.asset for event in airflow.run()] == ["kappa/demo.b/balances", "kappa/demo.b/notes"]
    assert "the lake is new, or was restored from a copy" in str(logs)
    assert airflow.run() == []


def test_a_lake_that_was_put_back_announces_from_where_its_copy_ends(lake: Config, tmp_path: Path) -> None:
    airflow = announced(lake, 1)
    shutil.copytree(lake.lake, tmp_path / "copy")
    for name in ("demo.b", "demo.c"):
        began(lake, name)
    assert len(airflow.run()) == 4
    shutil.rmtree(lake.lake)
    shutil.move(tmp_path / "copy", lake.lake)
    began(lake, "demo.d")  # at the place that demo.b had
    assert [event.asset for event in airflow.run()] == ["kappa/demo.d/balances", "kappa/demo.d/notes"]
    assert airflow.run() == []


def test_a_bookmark_of_earlier_code_is_a_number_and_counts(lake: Config) -> None:
    airflow = announced(lake, 2)
    airflow.events, airflow.state = [], {BOOKMARK: 4}
    assert [event.asset for event in airflow.run()] == ["kappa/demo.b/balances", "kappa/demo.b/notes"]
    airflow.state = {BOOKMARK: 500}
    airflow.events.clear()
    assert len(airflow.run()) == 4, "no record that ends before it is the one that it is of"


async def _first(events: AsyncIterator[Any]) -> Any:
    return (await anext(events)).payload


def test_the_watcher_tells_where_the_record_stands_when_it_begins_and_when_that_changes(lake: Config) -> None:
    async def scenario() -> None:
        events = MovesTrigger(poll_seconds=0.01).run()
        assert await _first(events) == {"up_to": 0}
        next_one = asyncio.ensure_future(_first(events))
        # Stages of an epoch change nothing for readers: nothing is told of them.
        await asyncio.to_thread(tell, lake, "demo.a", 1, *FIRST[:3], by_event=DETAILS)
        await asyncio.to_thread(
            tell, lake, "demo.a", 1, "moved", by_event={"moved": {"from": None, "at": {}, "seq": 4}}
        )
        assert await next_one == {"up_to": 4}
        path, arguments = MovesTrigger(poll_seconds=3).serialize()
        assert await _first(MovesTrigger(**arguments).run()) == {"up_to": 4} and path.endswith(".MovesTrigger")

    asyncio.run(scenario())


def test_the_watcher_tells_a_position_again_after_a_day_so_that_its_bookmark_is_kept(
    lake: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = iter(range(1_000))
    airflow = Airflow()
    began(lake)
    monkeypatch.setattr(clock, "now", lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=next(days)))

    async def scenario() -> None:
        events = MovesTrigger(poll_seconds=0.01).run()
        for _ in range(2):
            assert await _first(events) == {"up_to": 4}
            airflow.run()

    asyncio.run(scenario())
    airflow.events.clear()  # as `airflow db clean` does
    tell(lake, "demo.a", 2, *SECOND, by_event=DETAILS)
    moved(lake, 2, 1)
    assert {event.extra["epoch"] for event in airflow.run()} == {2}


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), LakeUnreachableError("gone"), ValueError("cut")])
def test_the_watcher_outlives_what_it_cannot_read(
    lake: Config, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    began(lake)
    events, refusals = Epochs.events, [error, error]

    def read(epochs: Epochs) -> Any:
        if refusals:
            raise refusals.pop()
        return events(epochs)

    monkeypatch.setattr(Epochs, "events", read)
    with capture_logs() as logs:
        assert asyncio.run(_first(MovesTrigger(poll_seconds=0.01).run())) == {"up_to": 4}
    assert not refusals and str(logs).count("Looking again") == 1


def test_nothing_on_record_is_position_zero(lake: Config) -> None:
    assert last(Epochs(lake.lake).events()) == 0


def test_moves_of_epochs_that_were_rolled_up_before_a_run_are_announced_with_their_differences(
    lake: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    hours = iter(range(1_000))
    monkeypatch.setattr(clock, "now", lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=next(hours)))
    monkeypatch.setattr(record_of_epochs, "ROLL_UP_EVENTS", 1)
    airflow = Airflow()
    began(lake)
    assert len(airflow.run()) == 2
    tell(lake, "demo.a", 2, *SECOND, by_event=DETAILS)
    moved(lake, 2, 1)
    for epoch in range(3, 10):
        tell(lake, "demo.a", epoch, *SECOND, by_event=DETAILS)
        moved(lake, epoch, epoch - 1)
        tell(lake, "demo.a", epoch - 1, "dropped", by_event={})
    epochs = Epochs(lake.lake)
    assert epochs.record("demo.a").epoch(2).rolled_up and epochs.rolled_up_to > 11
    news = airflow.run()
    assert [event.extra["epoch"] for event in news] == [epoch for epoch in range(2, 10) for _ in range(2)]
    assert news[0].extra["difference"]["rows_candidate"] == 10
    assert control.diff(lake, "demo.a", 2) == REPORT
    assert airflow.run() == []
