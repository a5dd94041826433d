"""A topology whose drivers are real processes, made to die or freeze where a test wants it; its proof from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import orjson
import psutil
import pytest
from confluent_kafka import Message, Producer

from kappa import control, faults
from kappa.config import Config
from kappa.delta.commits import commits_after
from kappa.driver.processes import process
from kappa.errors import KappaError
from kappa.kafka.broker import Broker
from kappa.offsets.vector import Offsets
from kappa.presence import heartbeat
from kappa.replay.request import Seed
from kappa.replay.stages import Stage
from support.deaths import DEATHS
from support.epochs import DEADLINE_SECONDS, Lab, Move, Place, content, place, plain_settings, read_messages

#: Starts sooner and takes less memory; slow later, and these tests have no later.
QUICK_JVM = {
    "spark.driver.memory": "768m",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}

#: Every line of the slice protocol, and the places within them.
SLICE_POINTS = (
    "plan",
    "effects.dead_letters",
    "effects.outputs",
    "effects.changes",
    "effects",
    "send.open",
    "send",
    "apply",
    "commit",
)
#: What an epoch passes before its first slice.
SEED_POINTS = ("claim", "rewind.group", "rewind.topics", "rewound", "seed.tables", "seed", "seeded")
#: What a candidate passes before it waits for a cutover.
REPLAY_POINTS = (
    *SEED_POINTS,
    *(f"{point}@2" for point in SLICE_POINTS if not point.startswith("send")),
    "replayed",
    "caught_up",
    "verify",
    "verified",
    "baseline.chunk",
    "baseline.marker",
)


AnyRig = TypeVar("AnyRig", bound="Rig")


@dataclass(kw_only=True)
class Rig(Lab):
    """A lab with driver processes instead of threads.

    Attributes:
        started: epochs that have, or had, a driver.
        armed: epoch -> where its driver is to die.
        witnessed: process and point of the deaths that a test has waited for.
    """

    started: set[int] = field(default_factory=set)
    armed: dict[int, str] = field(default_factory=dict)
    witnessed: set[tuple[int, str]] = field(default_factory=set)

    def run(self, epoch: int, crash: str = "") -> None:  # type: ignore[override]  # there is no driver object here
        """Start an epoch's driver, which is to die or freeze at a point."""
        self.started.add(epoch)
        if crash:
            assert self.is_dead(epoch), f"epoch {epoch} has a driver: none is started that could pass {crash}"
        with self._launching(crash):
            control.ensure_driver(self.config, self.name, epoch)
        self._arm(epoch, crash)

    def start(self, crash: str = "") -> int:
        """Plan the first epoch and start its driver."""
        with self._launching(crash):
            control.start(self.config, self.name, actor="test", reason="start")
        return self._newest(crash)

    def plan_replay(self, crash: str = "", **request: Any) -> int:  # type: ignore[override]
        """Plan a replay and start its driver."""
        with self._launching(crash):
            super().plan_replay(**request)
        return self._newest(crash)

    def cut_over(self, epoch: int) -> None:
        """Let a verified epoch go live, and wait until it is."""
        self.await_stage(epoch, Stage.VERIFIED)
        control.cut_over(self.config, self.name, epoch, actor="test", reason="test")
        self.await_live(epoch)

    def live_twice(self) -> int:
        """Start, replay version 2, cut over, roll back and cut over again: the first epoch, live again."""
        first = self.start_live()
        self.deploy(2)
        self.cut_over(self.plan_replay())
        control.rollback(self.config, self.name, to=first, actor="test", reason="test")
        self.wait(lambda: control.progress(self.config, self.name, first).is_caught_up, "the old epoch follows")
        control.cut_over(self.config, self.name, first, actor="test", reason="back")
        self.await_live(first)
        return first

    def rebuild(self, live: int) -> int:
        """Rebuild the live epoch from its changelogs, and cut over.

        What is sent after the marker that a rebuild begins at would be sent twice: the driver ends first.

        Returns:
            The new epoch.
        """
        control.stop(self.config, self.name, actor="test", reason="rebuild")
        self.await_end(live)
        with self._launching(""):
            self.output_of("rebuild", self.name, "--from-changelog", "--execute", "--detach")
        epoch: int = max(self.record().epochs)
        self.await_stage(epoch, Stage.SEEDED)
        with self._launching(""):
            control.start(self.config, self.name, epoch=live, actor="test")
        self.cut_over(epoch)
        return epoch

    @contextlib.contextmanager
    def _launching(self, crash: str) -> Iterator[None]:
        """Start drivers that are to die at a point; a failed launch counts only where the driver died there at once."""
        before = len(self.deaths())
        with crashing(crash), pytest.MonkeyPatch.context() as patched:
            # On a busy machine the first heartbeat is late; without it the next start would make a second driver.
            patched.setattr(process, "LAUNCH_SECONDS", DEADLINE_SECONDS)
            try:
                yield
            except KappaError as error:
                if len(self.deaths()) == before:
                    raise AssertionError(
                        f"no driver died at {crash or 'a point'}: {error}\n{self.last_words()}"
                    ) from error

    def _arm(self, epoch: int, crash: str) -> None:
        self.armed.pop(epoch, None)
        if crash:
            self.armed[epoch] = crash

    def deaths(self, epoch: int | None = None) -> list[dict[str, Any]]:
        """The marks that this topology's drivers left where they died or froze, oldest first."""
        words = ["--topology", self.name, *([] if epoch is None else ["--epoch", str(epoch)])]
        return [mark for mark in faults.marks(self.config.home) if all(word in mark["argv"] for word in words)]

    def fallen(self, epoch: int, point: str) -> dict[str, Any] | None:
        """The mark of a driver that came to a point as it was to, and was not asked for before."""
        place, _, how = point.partition(":")
        name, _, seq = place.partition("@")
        for mark in self.deaths(epoch):
            is_it = (mark["point"], mark["how"]) == (name, how or "kill") and seq in ("", str(mark["seq"]))
            if is_it and (mark["pid"], name) not in self.witnessed:
                return mark
        return None

    def await_death(self, epoch: int, point: str = "") -> int:
        """Wait until an epoch's driver was killed at the point it was started for; any other end is not a death.

        Args:
            epoch: the epoch.
            point: where, if it was not this rig that started the driver.

        Returns:
            Its process id.
        """
        crash_point = point or self.armed.pop(epoch)

        def is_decided() -> bool:
            return self.fallen(epoch, crash_point) is not None or self.is_dead(epoch)

        self.wait(is_decided, f"the driver of epoch {epoch} comes to {crash_point}")
        mark = self.fallen(epoch, crash_point)
        assert mark is not None, (
            f"the driver of epoch {epoch} ended, and not at {crash_point}; marks: {self.deaths(epoch)}\n"
            f"{self.last_words()}"
        )
        self.witnessed.add((mark["pid"], mark["point"]))
        self.wait(lambda: not is_running(mark["pid"]) or mark["how"] == "stop", f"process {mark['pid']} is gone")
        DEATHS.append(f"{mark['point']}:stop" if mark["how"] == "stop" else mark["point"])
        return int(mark["pid"])

    def await_end(self, epoch: int) -> None:
        """Wait until the driver that an epoch had is gone, however it ended."""
        self.armed.pop(epoch, None)
        self.wait(lambda: self.is_dead(epoch), f"the driver of epoch {epoch} ends")

    def last_words(self, lines: int = 15) -> str:
        """The end of each driver's log."""
        return "\n".join(
            f"{file}:\n" + "\n".join(file.read_text(errors="replace").splitlines()[-lines:])
            for file in sorted((self.config.home / "logs").glob(f"{self.name}.e*.log"))
        )

    def is_dead(self, epoch: int) -> bool:
        """Whether the driver that an epoch had last is gone, or there was none."""
        beat = heartbeat.read(self.paths(epoch).heartbeat)
        return beat is None or not heartbeat.is_process(beat.pid, beat.started)

    def status(self, epoch: int) -> control.DriverStatus:
        """What is known of an epoch's driver."""
        return control.driver_status(self.config, self.name, epoch)

    def kill(self, epoch: int) -> None:
        """End an epoch's driver as the kernel would when memory is short."""
        os.kill(self.beat(epoch).pid, signal.SIGKILL)
        self.await_end(epoch)

    def beat(self, epoch: int) -> heartbeat.Heartbeat:
        """The last heartbeat of an epoch."""
        last = heartbeat.read(self.paths(epoch).heartbeat)
        assert last is not None
        return last

    def close(self) -> None:
        """End all drivers."""
        for running in psutil.process_iter(["cmdline"]):
            words = running.info["cmdline"] or []
            if (
                self.name in words and "--epoch" in words
            ):  # also one that froze, never beat, or was started by another driver
                with contextlib.suppress(psutil.NoSuchProcess):
                    running.kill()

    def driver_log(self, epoch: int) -> str:
        """What an epoch's drivers logged."""
        return "".join(file.read_text() for file in (self.config.home / "logs").glob(f"*e{epoch:04d}.log"))

    def _newest(self, crash: str) -> int:
        epoch: int = max(self.record().epochs)
        self.started.add(epoch)
        self._arm(epoch, crash)
        return epoch

    @contextlib.contextmanager
    def feeding(self, pause_seconds: float = 0.02) -> Iterator[None]:
        """Produce steadily, through an outage of the broker too; each record once."""
        stopping = threading.Event()
        thread = threading.Thread(target=self._feed, args=(stopping, pause_seconds), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive()

    def _feed(self, stopping: threading.Event, pause_seconds: float) -> None:
        producer = Producer(
            {
                **plain_settings(self.config.bootstrap_servers),
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
            }
        )
        number = 0
        while not stopping.wait(pause_seconds):
            number += 1
            account = f"account-{number % 7}"
            producer.produce(
                self.topic,
                key=account,
                value=orjson.dumps({"id": account, "amount": number}),
                timestamp=1_700_001_000_000 + number,
            )
            producer.poll(0)
        assert producer.flush(120) == 0

    def prove(self, factors: Mapping[int, int]) -> int:
        """Hold everything that the topology produced against the raw topic, computed in plain Python.

        Args:
            factors: what each epoch's code counts an amount.

        Returns:
            How many records there were.
        """
        record = self.record()
        live = record.live
        raw = list(read_messages(self.config.bootstrap_servers, self.topic))
        moves = {epoch: expected_moves(raw, self._histories(epoch, factors)) for epoch in factors}
        balances = {account: total for account, _, total in moves[live].values()}
        plan = self.plan(live)
        # Append outputs do not come back from a changelog: there the epoch's rows begin at its start.
        rows = {
            at: move
            for at, move in moves[live].items()
            if plan.seed != Seed.FROM_CHANGELOG or not _is_before(at, plan.start)
        }
        self.hold(totals=balances, moves=rows, sent=expected_sent(record.moves, moves))
        own = [place(message) for message in raw if not _is_before(place(message), plan.start)]
        assert self.dead_letters(live) == sorted(at for at in own if at not in moves[live])
        return len(raw)

    def _histories(self, epoch: int, factors: Mapping[int, int]) -> list[tuple[Offsets, int]]:
        """From which offsets on what factor counts in an epoch's tables, oldest first."""
        plan = self.plan(epoch)
        seed = self._histories(plan.seed_epoch, factors) if plan.seed_epoch is not None else []
        return [*seed, (plan.start, factors[epoch])]


def engines(machine: Rig, epoch: int, folder: str) -> set[str]:
    """What wrote the rows of a table, by its commits; the one that created it aside."""
    commits = commits_after(machine.paths(epoch).place(folder), 0)
    return {commit.engine.split("/")[0].split(":")[0] for commit in commits if commit.added}


def is_running(pid: int) -> bool:
    """Whether there is such a process and it is not a zombie."""
    return heartbeat.process_start(pid) != 0


def _is_before(at: Place, vector: Offsets) -> bool:
    return at[1] < {partition: offset for (_, partition), offset in vector.items()}.get(at[0], 0)


def expected_moves(raw: Sequence[Message], histories: Sequence[tuple[Offsets, int]]) -> dict[Place, Move]:
    """Rows of the append output by place. An account's records share a partition: their order is its."""
    totals: dict[str, int] = {}
    moves = {}
    for message in sorted(raw, key=place):
        counted = [factor for start, factor in histories if not _is_before(place(message), start)]
        try:
            row = orjson.loads(content(message))
        except orjson.JSONDecodeError:
            continue
        if not counted:
            continue
        account, amount = row["id"], row["amount"] * counted[-1]
        totals[account] = totals.get(account, 0) + amount
        moves[place(message)] = (account, amount, totals[account])
    return moves


def expected_sent(moves_of_pointer: Sequence[Any], moves: Mapping[int, Mapping[Place, Move]]) -> Iterator[Move]:
    """What the output topic must hold: of each record what the epoch said that was live at its offset."""
    cuts = [(move.epoch, Offsets.from_json(move.detail["at"])) for move in moves_of_pointer]
    for at in moves[cuts[0][0]]:
        sender = [epoch for epoch, cut in cuts if not _is_before(at, cut)][-1]
        yield moves[sender][at]


@contextlib.contextmanager
def crashing(point: str) -> Iterator[None]:
    """Let drivers that are started within die at a point (``point@seq``), or freeze (``point@seq:stop``)."""
    if not point:
        yield
        return
    os.environ["KAPPA_CRASH_AFTER"] = point
    try:
        yield
    finally:
        del os.environ["KAPPA_CRASH_AFTER"]


def rows(count: int, first: int = 0) -> list[tuple[str, int] | bytes]:
    """Moves of seven accounts, every eleventh record broken."""
    return [b"{" if n % 11 == 10 else (f"account-{n % 7}", n + 1) for n in range(first, first + count)]


@contextlib.contextmanager
def rig(base: Path, kafka: Broker, topic: str, *, kind: type[AnyRig] = Rig, **settings: Any) -> Iterator[AnyRig]:  # type: ignore[assignment]
    """A rig, or one of a kind that can do more, version 1 deployed; its drivers are ended afterwards."""
    topologies = base / "topologies"
    topologies.mkdir(parents=True)
    quick = {"trigger_seconds": 0.1, "heartbeat_seconds": 0.5, "delete_after_hours": 0.0}
    spark = {"spark_master": "local[2]", "spark_conf": QUICK_JVM}
    config = Config(
        bootstrap_servers=kafka.bootstrap_servers,
        topologies=topologies,
        home=base / "home",
        cache=Path.home() / ".cache" / "kappa",
        **{"lake": str(base / "lake"), **quick, **spark, **settings},
    )
    new_rig = kind(config=config, kafka=kafka, topic=topic, name=f"rig.{topic.replace('.', '_')}", session=None)  # type: ignore[arg-type]  # Spark is elsewhere
    new_rig.deploy(1)
    try:
        yield new_rig
    finally:
        new_rig.close()
