"""The law of dry runs: what a command shows is what it then does, and to show it changes nothing.

One list is walked twice. Before the second walk, between its effects and after them every file and the broker stay as
they were; each effect changes something, or says on what it depends.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import typer.main
from confluent_kafka import Producer
from deltalake import DeltaTable, write_deltalake
from support.epochs import plain_settings
from support.page_lake import CANDIDATE, TopologyStory, steady
from typer.testing import CliRunner

import kappa
from kappa import clock, control
from kappa.acts import Act
from kappa.archive import writer
from kappa.cli import app, moves
from kappa.config import Config
from kappa.control.backfills import backfill, backfill_plan
from kappa.control.backfills.backfill_plan import Computed
from kappa.control.backfills.proposal import Backfill
from kappa.driver.processes import process
from kappa.kafka.broker import Broker
from kappa.kafka.producer import Sender
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets
from kappa.presence import heartbeat
from kappa.record import code
from kappa.record.epochs import Epochs
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.replay.proof.verdict import DiffReport
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    import click

INCLUDE = Path(kappa.__file__).parents[1]
NAME = f"law{os.getpid()}.walks"
TOPIC = f"{NAME}.read"
TOPOLOGY = f"""
from kappa import Append, Source, Topology

topology = Topology(name="{NAME}", version="1", sources=[Source(topic="{TOPIC}", schema="id STRING")],
    outputs=[Append(name="rows", schema="id STRING")], step=lambda slice: {{"rows": slice["{TOPIC}"]}})
"""
#: What an epoch of it has on record of its output.
SHAPES = {"outputs/rows": {"key": [], "columns": {"id": "STRING"}, "required": []}}
#: A sentence that says on what it depends whether anything is changed.
CONDITION = re.compile(r"\b(if|unless|that no other)\b")


@dataclass(kw_only=True)
class World:
    """A lake and a broker that are looked at around each effect.

    Attributes:
        calls: what was asked of the broker that changes it, and of drivers.
        effects: the effects of the present command.
    """

    config: Config
    folder: Path
    calls: list[str] = field(default_factory=list)
    effects: list[str] = field(default_factory=list)
    _depth: int = 0
    _last: tuple[dict[str, bytes], int] = ({}, 0)

    def state(self) -> tuple[dict[str, bytes], int]:
        """Every byte below the folder, without code that was unpacked or compiled and signs of life; calls so far."""
        unpacked = f"{self.config.home}/code"
        files = {str(file): file for file in self.folder.rglob("*") if file.is_file()}
        contents = {
            name: file.read_bytes()
            for name, file in files.items()
            if not name.startswith(unpacked) and file.parent.name != "__pycache__" and file.name != "heartbeat.json"
        }
        return contents, len(self.calls)

    def made_within(self, make: Callable[[Act[Any]], Any]) -> Callable[[Act[Any]], Any]:
        """The walk that makes effects, with a look around each."""

        def watched(act: Act[Any]) -> Any:
            if self._depth:  # an effect of a list within an effect
                return make(act)
            for effect in act.effects:
                self.stays()
                self._depth += 1
                effect.make()
                self._depth -= 1
                self.effects.append(effect.what)
                before, self._last = self._last, self.state()
                assert before != self._last or CONDITION.search(effect.what), f"{effect.what}: nothing was changed"
            return act.outcome()

        return watched

    def stays(self) -> None:
        """Hold that nothing was changed since the last effect."""
        now, calls = self.state()
        before, calls_before = self._last
        changed = [name for name in before.keys() | now.keys() if before.get(name) != now.get(name)]
        assert (changed, self.calls[calls_before:calls]) == ([], [])

    def run(self, *words: str) -> str:
        """A command's output."""
        answer = CliRunner().invoke(app, list(words), env=self.config.to_env(), catch_exceptions=False)
        assert answer.exit_code == 0, answer.output
        return answer.output

    def walk(self, *words: str) -> None:
        """Run a command without and with ``--execute``."""
        self.effects, self._last = [], self.state()
        shown = re.findall(r"^Would (.+)\.$", self.run(*words), re.MULTILINE)
        self.stays()
        assert shown and not self.effects
        self.run(*words, "--execute")
        self.stays()
        assert self.effects == shown

    def story(self, *, stages: tuple[str, ...] = CANDIDATE, **plan: Any) -> TopologyStory:
        """A live epoch of three slices, and a candidate that was verified."""
        story = TopologyStory(config=self.config, name=NAME, partitions=1, topic=TOPIC, shapes=SHAPES)
        now = clock.now()
        story.begin(1, now, **{"topic_ids": {TOPIC: "id-1"}, **plan})
        story.move(1, None, 0, now)
        story.ledger(1, steady(now, 3))
        if stages:
            story.begin(2, now, live=1, stages=stages, report=REPORT, topic_ids={TOPIC: "id-1"})
            story.ledger(2, steady(now, 3, sends="held"))
        return story

    def deploy(self, text: str = TOPOLOGY) -> None:
        self.config.topologies.mkdir(exist_ok=True)
        (self.config.topologies / "one.py").write_text(text)


REPORT = DiffReport(
    topology=NAME, live_epoch=1, live_seq=3, candidate_epoch=2, candidate_seq=3, at=Offsets({TOPIC: {0: 300}})
)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world without a broker, whose drivers are a heartbeat of this process."""
    settings = {
        "KAPPA_HOME": tmp_path / "home",
        "KAPPA_LAKE": tmp_path / "lake",
        "KAPPA_TOPOLOGIES": tmp_path / "topologies",
    }
    environment = {name: str(value) for name, value in settings.items()}
    world = World(config=Config.from_env({**environment, "KAPPA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}), folder=tmp_path)
    monkeypatch.setattr(Act, "make", world.made_within(Act.make))

    def path(config: Config, topology: str, epoch: int) -> Path:
        return Path(EpochPaths(lake=config.lake, topology=topology, epoch=epoch).heartbeat)

    def launch(config: Config, topology: str, epoch: int, code: str, last_claim: int, **_: str) -> int:
        file = path(config, topology, epoch)
        file.parent.mkdir(parents=True, exist_ok=True)
        heartbeat.write(str(file), heartbeat.this_process("d", code))
        world.calls.append(f"launch {epoch}")
        return os.getpid()

    def end(config: Config, topology: str, epoch: int) -> None:
        beat = heartbeat.read(str(path(config, topology, epoch)))
        if beat is not None:
            heartbeat.write(str(path(config, topology, epoch)), replace(beat, state="stopped"))
            world.calls.append(f"end {epoch}")

    def watch(config: Config, topology: str, epoch: int, **_: Any) -> None:
        epochs = Epochs(config.lake)
        if epochs.record(topology).epoch(epoch).stage is Stage.RETIRED:  # recalled, it catches up
            epochs.add(topology, epoch, "caught_up", actor="driver")

    monkeypatch.setattr(process, "launch", launch)
    monkeypatch.setattr(process, "await_end", end)
    monkeypatch.setattr(moves, "watch", watch)
    return world


def counted(call: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    """A method that writes its calls down."""

    def counting(self: Any, *arguments: Any, **named: Any) -> Any:
        calls.append(f"{call.__name__}{arguments}")
        return call(self, *arguments, **named)

    return counting


@pytest.fixture
def brokered(world: World, kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The same with a broker, whose changes are counted."""
    world.config = replace(world.config, bootstrap_servers=kafka.bootstrap_servers)
    for kind, names in (
        (Broker, ("create", "delete_topics", "set_group_offsets", "delete_group")),
        (Sender, ("init", "send")),
    ):
        for name in names:
            monkeypatch.setattr(kind, name, counted(getattr(kind, name), world.calls))
    kafka.create_topic(TOPIC, 1)
    yield world
    kafka.delete_topics(name for name in kafka.topics() if NAME in name)


def start(world: World) -> None:
    world.story().tell(1, "stop", clock.now())
    world.walk("start", NAME, "--detach")


def test_a_driver_that_ends_before_it_is_wanted_again_is_started(world: World) -> None:
    story = world.story()
    story.tell(1, "stop", clock.now())
    story.beat(1)
    act = control.start.planned(world.config, NAME, actor="ann", reason="")
    assert [effect.what for effect in act.effects if "start the driver" in effect.what] == []
    story.beat(1, state="stopped")
    for effect in act.effects:
        effect.make()
    assert world.calls == ["launch 1"]


def test_a_rollback_starts_the_driver_of_the_epoch_that_is_recalled(world: World) -> None:
    story = world.story()
    story.move(2, 1, 3, clock.now())
    act = control.recall_together.planned(world.config, {NAME: None}, actor="ann", reason="")
    story.begin(3, clock.now(), live=2, stages=CANDIDATE, report=REPORT, topic_ids={TOPIC: "id-1"})
    story.move(3, 2, 3, clock.now())
    for effect in act.effects:
        effect.make()
    assert act.outcome() == {NAME: 2}
    assert world.calls == ["launch 2"]


def stop(world: World) -> None:
    world.story().beat(1)
    world.walk("stop", NAME)


def cutover(world: World) -> None:
    world.story().tell(1, "stop", clock.now())
    world.walk("cutover", NAME, "--detach")


def approval(world: World) -> None:
    world.story()
    world.walk("approve", NAME)
    world.walk("reject", NAME, "2")
    world.walk("start", NAME, "--epoch", "2", "--detach")


def savepoint(world: World) -> None:
    world.story()
    world.walk("savepoint", "create", NAME, "sale")
    world.walk("savepoint", "drop", NAME, "sale")


def set_aside(world: World) -> None:
    world.deploy()
    with Broker(world.config.bootstrap_servers) as broker:
        ids = broker.topic_ids([TOPIC])
    story = world.story(code=code.store(world.config.lake, world.config.topologies, NAME), topic_ids=ids)
    end = Ledger(story.paths(1).ledger).state().position[TOPIC, 0]
    producer = Producer(plain_settings(world.config.bootstrap_servers))
    for _ in range(end + 3):
        producer.produce(TOPIC, b"")
    assert producer.flush(30) == 0
    world.walk("set-aside", NAME, "--offset", f"{end}-{end + 2}", "--unreadable", "--reason", "the disk")


def upgrade(world: World) -> None:
    world.deploy()
    world.story(stages=(), code=code.store(world.config.lake, world.config.topologies, NAME))
    world.deploy(TOPOLOGY.replace('version="1"', 'version="2"'))
    world.walk("upgrade", NAME, "--slices", "0", "--history-stands", "--reason", "faster", "--detach")


def upgrade_of_all(world: World) -> None:
    world.deploy()
    other = world.folder / "release"
    shutil.copytree(INCLUDE / "kappa", other / "kappa", ignore=shutil.ignore_patterns("__pycache__"))
    (other / "kappa" / "clock.py").write_text("# another release\n")
    stored = code.store(world.config.lake, world.config.topologies, NAME, platform=other)
    world.story(stages=(), code=stored)
    world.walk("upgrade", "--all", "--slices", "0", "--history-stands", "--reason", "faster", "--detach")


def restore(world: World) -> None:
    story = world.story()
    path = story.paths(1).table("rewards")
    write_deltalake(path, pa.table({"id": ["a", "b"]}))
    ledger = Ledger(story.paths(1).ledger)
    last = ledger.state().committed
    assert last is not None
    plan = LedgerRow(kind="plan", seq=last.seq + 1, writer="d", at=clock.now(), ranges=last.ranges)
    for row in (plan, replace(plan, kind="commit", delta_versions={"tables/rewards": 0})):
        ledger.append(row)
    DeltaTable(path).delete("id = 'a'")
    world.walk("restore", NAME, "--reason", "a mistake")


def backfilled(world: World) -> None:
    story = world.story(stages=())
    now = clock.now()
    proposal = Backfill(
        topology=NAME,
        epoch=1,
        code=story.plan(1, None, 0, now).code,
        version="1",
        begin=now,
        end=now,
        outputs=("rows",),
    )

    def compute(*_: Any) -> Computed:
        folder = Path(story.paths(1).recomputed(proposal.folder).root)
        folder.mkdir(parents=True)
        (folder / "rows").write_text("computed")
        return Computed(writer="w", rows={}, compared=())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backfill_plan, "propose", lambda *_: proposal)
        patch.setattr(backfill, "compute", compute)
        world.walk("backfill", NAME, "--from", "2026-03-29T00:00:00Z", "--to", "2026-03-30T00:00:00Z", "--detach")


def new(world: World) -> None:
    world.walk("new", "retail.refunds", "--shape", "running-total", "--tests", str(world.folder / "tests"))


def init(world: World) -> None:
    world.walk("init", str(world.folder / "repository"))


def archive_stop(world: World) -> None:
    ledger = Ledger(writer.Archive(world.config.lake, TOPIC).paths.ledger)
    ledger.create()
    ledger.claim("somebody", "", ledger.state())
    world.walk("archive", "stop", TOPIC)


def lake(world: World) -> None:
    world.story()
    world.walk("lake", "copy", str(world.folder / "moved"))
    world.walk("lake", "open")


def first_start(world: World) -> None:
    world.deploy()
    world.walk("start", NAME, "--detach")


def replayed(world: World) -> None:
    world.deploy()
    world.walk("replay", NAME, "--detach")


def adopted(world: World) -> None:
    world.deploy()
    path, offsets = world.folder / "old", world.folder / "offsets.csv"
    write_deltalake(str(path), pa.table({"id": ["a", "b"]}))
    offsets.write_text(f"{TOPIC},0,0")
    world.walk("adopt", NAME, "--output", f"rows={path}", "--from-file", str(offsets), "--detach")


def rolled_back(world: World) -> None:
    story, now = world.story(), clock.now()
    story.move(2, 1, 300, now)
    world.walk("rollback", NAME)


def removal(world: World) -> None:
    story = world.story()
    world.walk("abort", NAME, "2")
    story.begin(3, clock.now(), live=1, stages=CANDIDATE, report=REPORT)
    story.move(3, 1, 300, clock.now())
    world.walk("retire", NAME, "1")


def housekeeping(world: World) -> None:
    story = world.story()
    story.tell(2, "aborted", clock.now())
    Path(story.paths(2).root, "left").write_text("over")
    world.walk("housekeeping")


def topics(world: World) -> None:
    world.walk("topics", "create", f"{NAME}.a", f"{NAME}.b", "--partitions", "1")


def offsets(world: World) -> None:
    world.walk("offsets", "--group", f"{NAME}.readers", "--topic", f"{TOPIC}:0", "--to-earliest")


def archive_start(world: World) -> None:
    world.deploy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "run", lambda *_, **__: world.calls.append("archived"))
        world.walk("archive", "start", TOPIC)


ALONE: Mapping[str, Callable[[World], None]] = {
    "start": start,
    "stop": stop,
    "cutover": cutover,
    "approve, reject": approval,
    "savepoint create, savepoint drop": savepoint,
    "upgrade": upgrade,
    "upgrade --all": upgrade_of_all,
    "restore": restore,
    "backfill": backfilled,
    "init": init,
    "new": new,
    "archive stop": archive_stop,
    "lake copy, lake open": lake,
}
WITH_A_BROKER: Mapping[str, Callable[[World], None]] = {
    "start": first_start,
    "replay": replayed,
    "adopt": adopted,
    "rollback": rolled_back,
    "abort, retire": removal,
    "housekeeping": housekeeping,
    "set-aside": set_aside,
    "topics create": topics,
    "offsets": offsets,
    "archive start": archive_start,
}


@pytest.mark.parametrize("walks", ALONE.values(), ids=ALONE)
def test_a_command_does_what_it_showed_and_showing_changes_nothing(
    walks: Callable[[World], None], world: World
) -> None:
    walks(world)


@pytest.mark.broker
@pytest.mark.parametrize("walks", WITH_A_BROKER.values(), ids=WITH_A_BROKER)
def test_a_command_does_on_the_broker_what_it_showed(walks: Callable[[World], None], brokered: World) -> None:
    walks(brokered)


def commands(group: click.Group, prefix: str = "") -> Iterator[str]:
    """Commands that are dry runs unless they are told to execute."""
    for name, one in group.commands.items():
        if hasattr(one, "commands"):
            yield from commands(one, f"{prefix}{name} ")
        elif any(option.name == "execute" for option in one.params):
            yield prefix + name


def test_each_command_that_changes_something_is_walked() -> None:
    walked = {name.removesuffix(" --all") for names in (*ALONE, *WITH_A_BROKER) for name in names.split(", ")}
    walked.add("rebuild")  # it needs what an epoch has sent: tests/product/test_lost_lake.py
    assert walked == set(commands(typer.main.get_command(app)))  # type: ignore[arg-type]
