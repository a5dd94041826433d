"""Commands on a lake with a damaged table: a sentence that names the file, and the other topologies as ever."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from support.commands import Ran, run
from support.damages import drain, halve, lose
from support.epoch_record import empty_plan
from support.slices import TOPOLOGY, Epoch

from kappa.config import Config
from kappa.delta.log_entries import entry_of
from kappa.names import EpochPaths, epochs_log
from kappa.offsets.vector import Offsets
from kappa.record.epochs import Epochs
from kappa.record.events import EventKind
from kappa.verify.recount import recount
from kappa_web.lake import Lake
from kappa_web.pages.board import Board

NAMES = ("shop.one", "shop.two")


@dataclass(frozen=True, kw_only=True)
class Site:
    """A lake with two live topologies of two slices each."""

    home: Path

    @property
    def config(self) -> Config:
        return Config.from_env({"KAPPA_HOME": str(self.home), "KAPPA_LAKE": f"{self.home}/lake"})

    def paths(self, name: str) -> EpochPaths:
        return EpochPaths(lake=self.config.lake, topology=name, epoch=1)

    def run(self, *words: str, servers: str = "127.0.0.1:1") -> Ran:
        """The real command line."""
        return run(*words, **{**self.config.to_env(), "KAPPA_BOOTSTRAP_SERVERS": servers})


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("site")
    site = Site(home=home)
    epochs = Epochs(site.config.lake)
    for name in NAMES:
        start = Offsets({"pos": {0: 0}})
        plan = empty_plan(name, 1, start)
        detail = {"plan": plan.to_json(), "plan_id": plan.id, "code": "c", "version": "1", "start": start.to_json()}
        epochs.add(name, 1, "planned", actor="test", **detail)
        for kind in ("rewound", "seeded"):
            epochs.add(name, 1, kind, actor="test")
        epochs.add(name, 1, "moved", actor="test", **{"from": None, "at": {}, "seq": 0, "handover": None})
        epoch = Epoch(site.config.lake, replace(TOPOLOGY, name=name))
        epoch.slice({("a", 0): 3})
        epoch.slice({("b", 1): 5})
    return home


@pytest.fixture
def site(sound: Path, tmp_path: Path) -> Site:
    shutil.copytree(sound, tmp_path / "home")
    return Site(home=tmp_path / "home")


def gap(table: str) -> str:
    return lose(entry_of(table, 1))


def torn(table: str) -> str:
    place = Path(entry_of(table, 1))
    place.write_bytes(place.read_bytes()[:40])
    return f"{place.name} is torn"


def empty(table: str) -> str:
    return drain(max(Path(table, "_delta_log").glob("*.json")))


def file(table: str) -> str:
    return lose(max(Path(table).glob("*.parquet"), key=lambda one: one.stat().st_mtime_ns))


def torn_file(table: str) -> str:
    return halve(max(Path(table).glob("*.parquet"), key=lambda one: one.stat().st_mtime_ns))


@pytest.mark.parametrize("damage", [gap, torn, empty, file, torn_file])
def test_status_says_which_epoch_is_damaged_and_shows_the_others(site: Site, damage: Callable[[str], str]) -> None:
    why = damage(site.paths("shop.one").ledger)
    status = site.run("status")
    assert status.code == 1 and "Traceback" not in status.errors
    rows = [line.split()[:3] for line in status.output.splitlines()]
    assert all([name, "1", "live"] in rows for name in NAMES)
    (problem,) = [line for line in status.output.splitlines() if line.startswith("PROBLEM: ")]
    assert problem.startswith("PROBLEM: shop.one epoch 1: The Delta table ") and why in problem
    assert problem.endswith("kappa rebuild <topology> --from-changelog --execute")
    answer = site.run("status", "--json")
    problems = [epoch["problem"] for one in json.loads(answer.output) for epoch in one["epochs"]]
    assert answer.code == 1 and why in problems[0] and problems[1] == ""
    assert site.run("status", "shop.two").code == 0


def none(plan: str) -> dict[str, str]:
    return {}


def changed(plan: str) -> dict[str, str]:
    return {"plan": plan.replace('"epoch":1', '"epoch":2').replace('"epoch": 1', '"epoch": 2')}


def newer(plan: str) -> dict[str, str]:
    return {"plan": json.dumps({**json.loads(plan), "format": 9})}


@pytest.mark.parametrize(
    ("plan_of", "why"),
    [(none, "holds no plan"), (changed, "was changed after it was made"), (newer, "newer code wrote it")],
)
@pytest.mark.parametrize("stages", [(), ("rewound", "seeded", "replayed")])
def test_status_says_which_epoch_has_no_plan_and_shows_the_others(
    site: Site, plan_of: Callable[[str], dict[str, str]], why: str, stages: tuple[EventKind, ...]
) -> None:
    plan = empty_plan("shop.three", 1, Offsets({"pos": {0: 0}})).to_json()
    epochs = Epochs(site.config.lake)
    epochs.add("shop.three", 1, "planned", actor="test", plan_id="p", code="c", version="1", **plan_of(plan))
    for stage in stages:
        measured = {"offsets": 1, "records": 1, "seconds": 1.0, "bytes": 1, "disk_bytes": 1}
        epochs.add("shop.three", 1, stage, actor="test", measured=measured)
    status = site.run("status")
    assert status.code == 1 and "Traceback" not in status.errors
    rows = [line.split()[:2] for line in status.output.splitlines()]
    assert all([name, "1"] in rows for name in (*NAMES, "shop.three"))
    (problem,) = [line for line in status.output.splitlines() if line.startswith("PROBLEM: ")]
    assert problem.startswith("PROBLEM: shop.three epoch 1: ") and why in problem
    board = Board(Lake(site.config))
    if plan_of is not none:
        assert why in board.facts(board.lake.records()["shop.three"], 1).problem


#: Each damage of each place as one command meets it, and the other commands with one of them: all read by one function.
MEETINGS = [
    *((damage, "ledger", ("query", "shop.one", "sums")) for damage in (gap, torn, empty, file, torn_file)),
    *((damage, "changes/sums", ("query", "shop.one", "sums")) for damage in (gap, torn, empty, file, torn_file)),
    *((damage, "record", ("status",)) for damage in (gap, torn, empty, file, torn_file)),
    (gap, "ledger", ("certify", "shop.one")),
    (torn_file, "ledger", ("path", "shop.one", "sums")),
    (torn, "record", ("query", "shop.one", "sums")),
    (empty, "record", ("history", "shop.one")),
    (file, "record", ("diff", "shop.one")),
    (torn_file, "record", ("stop", "shop.one")),
    (gap, "record", ("start", "shop.one")),
    (torn, "record", ("replay", "shop.one")),
]


@pytest.mark.parametrize(("damage", "place", "words"), MEETINGS)
def test_a_command_that_needs_a_damaged_table_ends_with_a_sentence(
    site: Site, damage: Callable[[str], str], place: str, words: tuple[str, ...]
) -> None:
    table = epochs_log(site.config.lake) if place == "record" else site.paths("shop.one").place(place)
    why = damage(table)
    ended = site.run(*words)
    assert ended.code == 1, ended.errors
    assert f"DamagedTableError: The Delta table {table} is damaged: " in ended.errors and why in ended.errors
    assert "Traceback" not in ended.errors and "--execute" in ended.errors.splitlines()[-1]


@pytest.mark.parametrize(
    ("place", "damage"),
    [(place, damage) for place in ("ledger", "changes/sums") for damage in (gap, torn, empty, file, torn_file)],
)
def test_a_recount_names_the_damage_of_each_place(site: Site, place: str, damage: Callable[[str], str]) -> None:
    name = damage(site.paths("shop.one").place(place)).split()[0]
    problems = recount(site.paths("shop.one")).problems
    assert any(problem.startswith(place) and name in problem for problem in problems), problems
    assert recount(site.paths("shop.two")).problems == ()


@pytest.mark.broker
@pytest.mark.parametrize("damage", [gap, torn, empty, file, torn_file])
@pytest.mark.parametrize("place", ["ledger", "changes/sums"])
def test_a_deep_certificate_ends_with_a_verdict_that_names_the_damage(
    site: Site, broker: Any, place: str, damage: Callable[[str], str]
) -> None:
    name = damage(site.paths("shop.one").place(place)).split()[0]
    ended = site.run("certify", "shop.one", "--deep", servers=broker.bootstrap_servers)
    assert ended.code == 1 and "Traceback" not in ended.errors, ended.errors
    problems = [line for line in ended.output.splitlines() if line.startswith(f"PROBLEM: {place}")]
    assert any(name in problem for problem in problems), ended.output


@pytest.mark.parametrize("damage", [gap, torn, empty, file, torn_file])
def test_pages_say_which_epoch_is_damaged_and_show_the_others(site: Site, damage: Callable[[str], str]) -> None:
    why = damage(site.paths("shop.one").ledger)
    board = Board(Lake(site.config))
    records = board.lake.records()
    one, two = (board.facts(records[name], 1) for name in NAMES)
    assert why in one.problem and one.driver.state == "unconfirmed"
    assert two.problem == "" and two.committed is not None and two.committed.seq == 2
