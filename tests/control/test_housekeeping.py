"""What is left over, by the record alone: names on the broker are given, the lake is a folder."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.programs import WAITS, waiting_program

from kappa import clock, control
from kappa.config import Config
from kappa.control.removals.leftovers import Inventory, Leftover, Present
from kappa.control.removals.orphans import GRACE, find, remove, topics_of
from kappa.driver.processes.launcher import log_file
from kappa.errors import LakeUnreachableError
from kappa.names import EpochPaths, code_file, epochs_history, plan_file, query_checkpoints
from kappa.offsets.vector import Offsets
from kappa.presence import heartbeat
from kappa.record import epochs as record_of_epochs
from kappa.record.epochs import Epochs, epochs_of
from kappa.replay.building import build_plan
from kappa.replay.facts import Facts, LogFacts, MarkerFacts, SourceFacts, TopologyFacts
from kappa.replay.request import ReplayRequest
from kappa.replay.starts import FromMarker
from kappa.slices.topics import ownership
from kappa.store.local import LocalStore

if TYPE_CHECKING:
    from kappa.kafka.broker import Broker

#: What an epoch passes only when another one is live.
PROOF = ("replayed", "caught_up", "verified")
BUILT = ("planned", "rewound", "seeded", *PROOF, "moved")
STAGES = {"live": BUILT, "dropped": BUILT, "candidate": BUILT[:2], "aborted": (*BUILT[:2], "aborted")}
#: Epochs of topology ``a.b``, in the order in which they were; 2 is on no record.
EPOCHS = {1: "live", 3: "aborted", 4: "dropped", 5: "dropped", 6: "live", 7: "candidate"}
CURRENT, GONE = (1, 6, 7), (2, 3, 4, 5)


def history(config: Config, epochs: dict[int, str], topology: str = "a.b") -> None:
    """The record: of several live epochs the last one is, the others are retired; then some are removed for good."""
    record = Epochs(config.lake)
    for number, what in epochs.items():
        for event in STAGES[what]:
            if event in PROOF and record.record(topology).live is None:
                continue
            detail = {"code": f"code{number}", "plan_id": f"plan{number}"} if event == "planned" else {}
            record.add(topology, number, event, actor="test", **detail)
    for number, what in epochs.items():
        if what == "dropped":
            record.add(topology, number, "dropped", actor="test")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with the record of ``a.b``, to be copied."""
    home = tmp_path_factory.mktemp("home")
    history(Config.from_env({"KAPPA_HOME": str(home), "KAPPA_LAKE": str(home / "lake")}), EPOCHS)
    return home / "lake"


@pytest.fixture
def config(tmp_path: Path, lake: Path) -> Config:
    shutil.copytree(lake, tmp_path / "lake")
    return Config.from_env({"KAPPA_HOME": str(tmp_path), "KAPPA_LAKE": str(tmp_path / "lake")})


def present(after: timedelta = timedelta(0)) -> Present:
    """The time after a while."""
    return Present(host=clock.now() + after, lake=clock.now() + after)


def look(
    config: Config,
    *names: str,
    last_sender: int | None = None,
    after: timedelta = timedelta(0),
    maker: str | None = "this",
) -> Inventory:
    epochs = Epochs(config.lake)
    records = {name: epochs.record(name) for name in epochs.topologies()}
    kinds = [("topic" if name.count(".") > 3 else "group", name) for name in names]
    lake = epochs.lake_id() if records else ""
    owner = lake if maker == "this" else maker
    return find(config, kinds, records, lambda _: last_sender, lambda *_: owner, lake, present(after))


def paths(config: Config, number: int, topology: str = "a.b") -> EpochPaths:
    return EpochPaths(lake=config.lake, topology=topology, epoch=number)


def write(path: str | Path, text: str = "0123456789") -> Path:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def names_of(inventory: Inventory) -> set[str]:
    return {Path(item.name).name for item in inventory.leftovers}


OLD = GRACE + timedelta(seconds=60)
YOUNG = GRACE - timedelta(seconds=60)


def test_epoch_folders_of_epochs_that_ended_or_are_on_no_record_are_left_over(config: Config) -> None:
    for number in (*CURRENT, *GONE):
        write(f"{paths(config, number).root}/tables/t/part")
    leftovers = look(config).leftovers
    assert [(item.kind, item.name, item.size_bytes) for item in leftovers] == [
        ("epoch folder", paths(config, number).root, 10) for number in GONE
    ]
    assert [item.reason for item in leftovers] == [
        "epoch 2 of a.b is not on record",
        "epoch 3 of a.b is ABORTED",
        "epoch 4 of a.b is DROPPED",
        "epoch 5 of a.b is DROPPED",
    ]


def test_topics_and_groups_likewise(config: Config) -> None:
    names = [
        name
        for n in (*CURRENT, *GONE)
        for name in (f"kappa.a.b.e{n:04d}", f"kappa.a.b.e{n:04d}.markers", f"kappa.a.b.e{n:04d}.t.changelog")
    ]
    inventory = look(config, *names)
    gone = {name for name in names if any(f"e{n:04d}" in name for n in GONE)}
    assert {item.name for item in inventory.leftovers} == gone
    assert inventory.lookalikes == ()


@pytest.mark.parametrize(
    "name", ["pos", "kappa", "kappa.a.b", "kappa.a.b.notes", "kappa.e0003", "xkappa.a.b.e0003", "kappa.a.b.e3"]
)
def test_names_that_are_none_of_an_epoch_are_nobodys_business(config: Config, name: str) -> None:
    assert look(config, name) == Inventory(leftovers=(), lookalikes=())


def test_of_a_topology_without_a_record_everything_stays_and_the_way_out_is_named(config: Config) -> None:
    write(f"{paths(config, 1, 'lost').root}/ledger/x")
    inventory = look(config, "kappa.lost.e0001", "kappa.lost.e0001.t.changelog")
    assert inventory.leftovers == ()
    assert {item.kind for item in inventory.lookalikes} == {"epoch folder", "group", "topic"}
    assert all("kappa rebuild lost --from-changelog" in item.reason for item in inventory.lookalikes)


def test_a_lake_without_any_record_has_no_leftovers(tmp_path: Path) -> None:
    config = Config.from_env({"KAPPA_HOME": str(tmp_path)})
    write(plan_file(config.lake, "p")), write(code_file(config.lake, "c")), write(config.home / "code" / "c" / "x")
    assert look(config, "kappa.a.b.e0001.markers", after=OLD).leftovers == ()


@pytest.mark.parametrize("maker", [None, "11111111-2222-3333-4444-555555555555"])
def test_what_another_lake_made_stays_on_the_broker_and_is_named(config: Config, maker: str | None) -> None:
    """Epoch 2 of another lake: on no record, below the newest, without a heartbeat; another one has sent further."""
    names = ["kappa.a.b.e0002", "kappa.a.b.e0002.markers", "kappa.a.b.e0002.t.changelog"]
    inventory = look(config, *names, last_sender=6, maker=maker)
    assert inventory.leftovers == ()
    assert {item.name for item in inventory.lookalikes} == set(names)
    why = "nothing says that this lake made it" if maker is None else f"of another lake (lake {maker} took its names)"
    assert all(why in item.reason for item in inventory.lookalikes)
    aborted = look(config, "kappa.a.b.e0003.markers", maker=maker)
    assert bool(aborted.leftovers) == (maker is None), "a number may be on record in both"


def test_an_unknown_epoch_stays_while_no_epoch_is_live_that_could_stand_for_it(tmp_path: Path) -> None:
    config = Config.from_env({"KAPPA_HOME": str(tmp_path)})
    history(config, {7: "candidate"})  # a rebuild that still reads the changelog of epoch 2
    assert look(config, "kappa.a.b.e0002.t.changelog").leftovers == ()
    Epochs(config.lake).add("a.b", 7, "seeded", actor="test")
    Epochs(config.lake).add("a.b", 7, "moved", actor="test")
    assert [item.name for item in look(config, "kappa.a.b.e0002.t.changelog").leftovers] == [
        "kappa.a.b.e0002.t.changelog"
    ]


def test_an_unknown_epoch_stays_that_has_sent_furthest_or_is_newer_than_the_record(config: Config) -> None:
    inventory = look(config, "kappa.a.b.e0002.markers", "kappa.a.b.e0008.markers", last_sender=2)
    assert inventory.leftovers == ()
    assert ["sent furthest" in item.reason for item in inventory.lookalikes] == [True, False]
    assert "newer than any" in inventory.lookalikes[1].reason


def test_an_unknown_epoch_stays_while_a_candidate_is_built_from_it(config: Config) -> None:
    changelog = "kappa.a.b.e0002.t.changelog"
    Epochs(config.lake).add("a.b", 7, "aborted", actor="test")
    offsets = Offsets({"pos": {0: 9}})
    marker = MarkerFacts(epoch=2, seq=9, position=offsets, topic_ids={"pos": "id"}, shapes={})
    facts = Facts(
        topology=TopologyFacts(name="a.b", code="c", sources=(SourceFacts(topic="pos"),), tables=("t",)),
        log=LogFacts(low=offsets, high=offsets, stable=offsets, topic_ids={"pos": "id"}, cleanup={"pos": "delete"}),
        next_epoch=9,
        markers=(marker,),
    )
    request = ReplayRequest(topology="a.b", start=FromMarker(epoch=2), reason="rebuild", actor="test")
    plan = build_plan(request, facts, now=clock.now())
    Epochs(config.lake).add("a.b", 9, "planned", actor="test", code="code9", plan_id=plan.id, plan=plan.to_json())
    assert "epoch 9 is being built from it" in look(config, changelog).lookalikes[0].reason
    Epochs(config.lake).add("a.b", 9, "aborted", actor="test")
    assert names_of(look(config, changelog)) == {changelog}


def test_topics_of_an_epoch_are_its_changelogs_and_markers_and_none_of_a_like_name(config: Config) -> None:
    topics = ["kappa.a.e0001.markers", "kappa.a.e0001.t.changelog", "kappa.a.e0001.e0002.changelog"]
    others = [
        "kappa.a.e0001.e0001.markers",
        "kappa.a.e0001.e0001.t.changelog",
        "kappa.a.e00011.markers",
        "kappa.a.e0001",
        "kappa.axe0001.markers",
        "kappa.a.e0001.notes",
        "kappa.a.e0001.b.c.changelog",
    ]
    assert topics_of(paths(config, 1, "a"), [*others, *topics]) == topics


def test_a_name_that_can_be_read_in_two_ways_goes_only_when_it_may_go_either_way(config: Config) -> None:
    """A table may be called e0003; nothing is known of topology ``a.b.e0001``, epoch 1 of ``a.b`` is known to stay."""
    assert look(config, "kappa.a.b.e0001.e0003.changelog").leftovers == ()
    assert look(config, "kappa.a.b.e0003.e0001.changelog").leftovers == ()
    history(config, {1: "live", 3: "aborted"}, "a.b.e0003")
    assert len(look(config, "kappa.a.b.e0003.e0003.changelog").leftovers) == 1


@pytest.mark.parametrize("number", [2, 3])
def test_what_a_driver_works_on_stays_until_it_has_ended(config: Config, number: int) -> None:
    beat = heartbeat.this_process("w", "code9")
    Path(paths(config, number).root).mkdir(parents=True)
    heartbeat.write(paths(config, number).heartbeat, beat)
    group = f"kappa.a.b.e{number:04d}"
    inventory = look(config, group)
    assert inventory.leftovers == () and {item.kind for item in inventory.lookalikes} == {"epoch folder", "group"}
    heartbeat.write(paths(config, number).heartbeat, replace(beat, state="stopped"))
    assert {item.kind for item in look(config, group).leftovers} == {"epoch folder", "group"}


def test_plans_and_code_that_no_epoch_refers_to_go_after_a_while(config: Config) -> None:
    for name in ("plan1", "plan3", "plan4", "plan6", "plan7", "stranger"):
        write(plan_file(config.lake, name))
    write(plan_file(config.lake, "plan7") + ".17.tmp")
    for name in ("code1", "code3", "code4", "code6", "code7", "stranger"):
        write(code_file(config.lake, name))
        write(config.home / "code" / name / "include" / "x.py")
    assert look(config, after=YOUNG).leftovers == ()
    inventory = look(config, after=OLD)
    assert sorted((item.kind, Path(item.name).name) for item in inventory.leftovers) == [
        *(("code", f"{name}.zip") for name in ("code3", "code4", "stranger")),
        *(("extracted code", name) for name in ("code3", "code4", "stranger")),
        *(("plan", f"{name}.json") for name in ("plan3", "plan4")),
        ("plan", "plan7.json.17.tmp"),
        ("plan", "stranger.json"),
    ]


def test_files_of_events_that_no_epoch_names_go_after_a_day(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_of_epochs, "ROLL_UP_EVENTS", 1)
    monkeypatch.setattr(record_of_epochs, "EVENTS_STAY", timedelta(days=-1))
    epochs = epochs_of(config.lake)
    epochs.add("x.y", 1, "planned", actor="test", code="c", version="1", plan_id="p")
    epochs.add("x.y", 1, "aborted", actor="test")
    stays = epochs.record("x.y").epoch(1).rolled_up
    write(f"{epochs_history(config.lake)}/stranger.parquet")
    assert stays and look(config, after=timedelta(hours=23)).leftovers == ()
    inventory = look(config, after=timedelta(hours=25))
    assert [Path(item.name).stem for item in inventory.leftovers if item.kind == "events"] == ["stranger"]
    folder = epochs_history(config.lake)
    names = (stays, "stranger")  # the first was named since
    items = [Leftover(kind="events", name=f"{folder}/{name}.parquet", reason="") for name in names]
    assert remove(config, items, present(timedelta(hours=25))) == (items[1],)
    assert [file.stem for file in Path(folder).iterdir()] == [stays]


def test_code_of_a_driver_that_ran_other_code_than_was_planned_stays(config: Config) -> None:
    write(code_file(config.lake, "code8"))
    Path(paths(config, 6).root).mkdir(parents=True)
    heartbeat.write(paths(config, 6).heartbeat, replace(heartbeat.this_process("w", "code8"), state="stopped"))
    assert look(config, after=OLD).leftovers == ()


def test_a_heartbeat_that_newer_code_wrote_keeps_what_is_of_its_epoch_alone(config: Config) -> None:
    for number in (5, 6):
        write(paths(config, number).heartbeat, json.dumps({"format": heartbeat.FORMAT + 1}))
        write(code_file(config.lake, f"code{number}"))
    write(code_file(config.lake, "stranger"))
    write(f"{paths(config, 4).root}/file")
    inventory = look(config, after=OLD)
    assert names_of(inventory) == {"e0004", "stranger.zip"}
    (of_newer,) = inventory.lookalikes
    assert of_newer.name.endswith("e0005") and "its driver has not ended yet" in of_newer.reason


def test_code_that_a_process_runs_from_stays(config: Config) -> None:
    script = write(config.home / "code" / "stranger" / "run.py", WAITS)
    with waiting_program(script):
        assert look(config, after=OLD).leftovers == ()
    assert names_of(look(config, after=OLD)) == {"stranger"}


def test_logs_of_epochs_that_are_gone_go_after_a_while_and_other_logs_stay(config: Config) -> None:
    for number in (*CURRENT, *GONE):
        write(log_file(config, "a.b", number))
    write(config.home / "logs" / "kafka.log"), write(log_file(config, "lost", 1))
    assert look(config, after=YOUNG).leftovers == ()
    assert names_of(look(config, after=OLD)) == {f"a.b.e{number:04d}.log" for number in GONE}


def test_query_checkpoints_of_starts_that_ended_go_and_those_of_a_driver_stay(config: Config) -> None:
    for number in (1, 6):
        write(f"{query_checkpoints(config.home, paths(config, number))}/s/offsets/0")
        Path(paths(config, number).root).mkdir(parents=True)
    heartbeat.write(paths(config, 6).heartbeat, heartbeat.this_process("w", "code6"))
    assert look(config, after=YOUNG).leftovers == ()
    (item,) = look(config, after=OLD).leftovers
    assert (item.kind, item.name) == ("query checkpoint", f"{query_checkpoints(config.home, paths(config, 1))}/s")


def everything(config: Config) -> None:
    for number in (*CURRENT, *GONE):
        write(f"{paths(config, number).root}/ledger_/x"), write(plan_file(config.lake, f"plan{number}"))
        write(code_file(config.lake, f"code{number}")), write(log_file(config, "a.b", number))


def files(config: Config) -> set[str]:
    return {str(file.relative_to(config.home)) for file in config.home.rglob("*") if file.is_file()}


def test_what_was_found_is_removed_nothing_else_and_again_there_is_nothing(config: Config) -> None:
    before = files(config)
    everything(config)
    inventory = look(config, after=OLD)
    now = present(OLD)
    assert set(remove(config, inventory.leftovers, now)) == set(inventory.leftovers)
    left = files(config) - before
    assert len(left) == 4 * len(CURRENT)
    assert all(re.search(rf"(e000|plan|code)[{''.join(map(str, CURRENT))}]", name) for name in left)
    assert look(config, after=OLD).leftovers == ()
    remove(config, inventory.leftovers, now)  # somebody else found the same
    assert files(config) - before == left


def test_what_stays_where_it_is_does_not_count_as_removed(config: Config) -> None:
    """Folders that somebody moved to a larger disk: nothing follows the links to them."""
    linked = [paths(config, 3).root, paths(config, 4).table("rewards")]
    for number, link in enumerate(linked):
        write(f"{config.home}/disk/{number}/part.parquet")
        Path(link).parent.mkdir(parents=True, exist_ok=True)
        Path(link).symlink_to(f"{config.home}/disk/{number}")
    write(f"{paths(config, 5).root}/ledger/part.parquet")
    leftovers = look(config).leftovers
    assert {item.name for item in leftovers} == {*linked, paths(config, 5).root}
    assert {item.name for item in remove(config, leftovers, present())} == {paths(config, 5).root}
    assert look(config).leftovers == tuple(item for item in leftovers if item.name in linked)


def test_files_of_others_beside_plans_code_and_logs_stay(config: Config) -> None:
    everything(config)
    before = names_of(look(config, after=OLD))
    for path in (
        f"{config.lake}/_kappa/plans/README",
        f"{config.lake}/_kappa/code/old/other.zip",
        f"{config.lake}/_kappa/code/.nfs0001",
        f"{config.home}/logs/old/a.b.e0001.log",
    ):
        write(path)
    assert names_of(look(config, after=OLD)) == before


def test_a_file_that_is_stored_again_at_that_moment_is_not_removed(tmp_path: Path) -> None:
    file = write(tmp_path / "c.zip")
    old = datetime.now(UTC) - 2 * GRACE
    os.utime(file, (old.timestamp(), old.timestamp()))
    os.utime(file)  # somebody stores the same content: it finds it there
    assert not LocalStore().discard(str(file), clock.now() - GRACE)
    assert file.read_text() == "0123456789"
    os.utime(file, (old.timestamp(), old.timestamp()))
    assert LocalStore().discard(str(file), clock.now() - GRACE)
    assert list(tmp_path.iterdir()) == []


def test_storing_and_unpacking_code_that_is_there_says_that_it_is_needed(tmp_path: Path) -> None:
    from kappa.record.code import extract, store

    folder = Path(__file__).resolve().parents[2] / "include" / "topologies"
    code = store(str(tmp_path), folder, "retail.loyalty")
    stored, unpacked = Path(code_file(str(tmp_path), code)), extract(str(tmp_path), code, tmp_path)
    for path, again in (
        (stored, lambda: store(str(tmp_path), folder, "retail.loyalty")),
        (unpacked, lambda: extract(str(tmp_path), code, tmp_path)),
    ):
        os.utime(path, (0, 0))
        again()
        assert path.stat().st_mtime > 0


@pytest.mark.broker
def test_topics_and_groups_of_epochs_that_ended_are_removed_from_the_broker(
    config: Config, kafka: Broker, topic: Callable[..., str]
) -> None:
    from typer.testing import CliRunner

    from kappa.cli import app

    prefix = f"hk{os.getpid()}"
    history(config, EPOCHS, prefix)
    source, names = topic(), []
    for topology in (prefix, f"{prefix}_lost"):
        for number in EPOCHS:
            at = paths(config, number, topology)
            kafka.create_topic(at.markers, 1)
            kafka.set_group_offsets(at.name, Offsets({source: {0: 0}}))
            names += [at.markers, at.name]

    def there() -> set[str]:
        all_names = (*kafka.topics("kappa."), *kafka.groups("kappa."))
        return {name for name in all_names if name.startswith(f"kappa.{prefix}")}

    environ = {**config.to_env(), "KAPPA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers}
    config = Config.from_env(environ)
    try:
        assert there() == set(names)
        shown = CliRunner().invoke(app, ["housekeeping"], env=environ)
        assert shown.exit_code == 0 and "Nothing was changed" in shown.output and there() == set(names)
        leftovers = control.housekeeping(config).leftovers
        done = json.loads(CliRunner().invoke(app, ["housekeeping", "--execute", "--json"], env=environ).output)
        ended = {name for name in names if any(name.startswith(f"kappa.{prefix}.e{n:04d}") for n in GONE)}
        assert {item["name"] for item in done["removed"]} >= ended
        assert there() == set(names) - ended
        assert any(item["name"].startswith(f"kappa.{prefix}_lost.") for item in done["kept"])
        assert control.clean(config, leftovers) == () and control.housekeeping(config).leftovers == ()
    finally:
        kafka.delete_topics(name for name in names if name.endswith(".markers"))
        for name in kafka.groups(f"kappa.{prefix}"):
            kafka.delete_group(name)


@pytest.mark.broker
def test_an_epoch_whose_files_stay_is_given_up_with_an_error_that_names_them(config: Config, kafka: Broker) -> None:
    config = replace(config, bootstrap_servers=kafka.bootstrap_servers)
    root = Path(paths(config, 7).root)
    write(f"{config.home}/disk/part.parquet")
    root.parent.mkdir(exist_ok=True)
    root.symlink_to(f"{config.home}/disk")
    with pytest.raises(LakeUnreachableError, match=f"Epoch 7 of 'a.b' is ABORTED; files of it stay in {root}"):
        control.abort(config, "a.b", 7, actor="test", reason="wrong")
    root.unlink()
    control.abort(config, "a.b", 7, actor="test", reason="wrong")


@pytest.mark.broker
def test_a_candidate_of_another_lake_stays_though_its_number_was_given_up_here(config: Config, kafka: Broker) -> None:
    topology = f"hk{os.getpid()}b"
    history(config, EPOCHS, topology)
    config = replace(config, bootstrap_servers=kafka.bootstrap_servers)
    at = replace(paths(config, 3, topology), lake="/srv/another")
    try:
        ownership.claim(kafka, at, "another-lake")  # all that a candidate has there before its first marker
        inventory = control.housekeeping(config)
        assert at.markers not in {item.name for item in inventory.leftovers}
        (lookalike,) = [item for item in inventory.lookalikes if item.name == at.markers]
        assert "lake another-lake took its names" in lookalike.reason
        control.clean(config, inventory.leftovers)
        assert at.markers in kafka.topics(at.name)
    finally:
        kafka.delete_topics([at.markers])


def test_a_second_run_that_nobody_came_back_for_goes_and_one_that_is_worked_on_stays(config: Config) -> None:
    left = {number: paths(config, number).recomputed("replay") for number in (6, 7)}
    files = {number: write(f"{run.ledger}/part.parquet") for number, run in left.items()}
    assert [i for i in look(config).leftovers if i.kind == "recomputation"] == []
    process_beat = heartbeat.this_process("me", "c")
    beat = heartbeat.Beating(paths(config, 7).heartbeat, process_beat, 60.0, lambda: True)
    try:
        later = look(config, after=GRACE + timedelta(minutes=1)).leftovers
        assert [i.name for i in later if i.kind == "recomputation"] == [left[6].lake]
    finally:
        beat.close()
    for file in files.values():
        for path in [file, *file.parents][: len(file.parents) - len(Path(config.lake).parents)]:
            os.utime(path, (0, 0))
    old = [i for i in look(config).leftovers if i.kind == "recomputation"]
    assert [i.name for i in old] == [left[6].lake, left[7].lake]
    remove(config, old, present())
    assert not any(Path(run.lake).exists() for run in left.values())
    assert Path(paths(config, 6).root).exists()


def test_the_folder_of_a_backfill_stays_until_its_rows_are_replaced(config: Config) -> None:
    run = paths(config, 6).recomputed("backfill-1")
    write(f"{run.ledger}/part.parquet")
    epochs = Epochs(config.lake)
    backfill = epochs.add("a.b", 6, "backfill", actor="ada", folder="backfill-1")
    after = GRACE + timedelta(minutes=1)
    assert [i for i in look(config, after=after).leftovers if i.kind == "recomputation"] == []
    epochs.add("a.b", 6, "backfill_withdrawn", actor="driver", backfill=backfill.n)
    assert [i.name for i in look(config, after=after).leftovers if i.kind == "recomputation"] == [run.lake]


def test_the_folder_of_a_backfill_at_work_stays_however_long_it_writes_nothing(config: Config) -> None:
    run = paths(config, 6).recomputed("backfill-1")
    Path(f"{run.root}/ledger").mkdir(parents=True)
    after = 3 * GRACE
    with heartbeat.at_work(run.root, "backfill-1-7", "c", 60.0):
        assert [i for i in look(config, after=after).leftovers if i.kind == "recomputation"] == []
    assert [i.name for i in look(config, after=after).leftovers if i.kind == "recomputation"] == [run.lake]
