"""Random histories: whatever may happen to a stream, in random order, and what must have come out, in plain Python.

A driver that "dies" here ends in its thread at a crash point and leaves everything as a killed process does: no
transaction is aborted, no sender is closed, and its successor finds the slice half done. Processes that are killed for
real are the business of ``support.processes``; they take ten times as long.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka import Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from kappa import control, faults
from kappa.driver.driver import Driver
from kappa.errors import IllegalTransitionError, RefusedError
from kappa.offsets.vector import Offsets
from kappa.replay.plan import ReplayPlan
from kappa.replay.request import Seed
from kappa.replay.stages import STAGES, Stage
from kappa.replay.starts import FromMarker, FromSavepoint, Start, ToEarliest, ToLatest
from support.deaths import DEATHS
from support.epochs import DEADLINE_SECONDS, Lab, Move, Place, content, place

#: What no driver of a history passes: they archive, replace no interval, rebuild nothing, compute no range twice, and
#: no slice of theirs is impossible. And what only those pass that upgrade, have topics of their own, reconcile or move
#: together.
_NEVER = ("archive.", "backfill", "fenced", "superseded", "recomputed", "abandon", "probe", "set_aside")
UPGRADE_POINTS = ("upgrade",)
TOPIC_POINTS = ("reconcile.", "rewind.names", "baseline.topics")
JOINT_POINTS = ("standing", "move.ready")
#: Settings that differ from history to history: whether each slice merges, how soon commits expire, whether slices are
#: large, and how soon the ledger is rolled up.
SETTINGS: Mapping[str, Sequence[Any]] = {
    "merge_seconds": (0.0, 0.0, 0.5, 120.0),
    "keep_minutes": (0.02, 30.0),
    "small_slice": (50_000, 50_000, 0),
    "arrow_rows": (500_000, 500_000, 0),
    "rollup_slices": (1_000, 1_000, 3),
}

#: Of a soak's seeds. ``make soak`` sets it, so that all processes of a run play the same.
DAY = int(os.environ.get("SEED") or f"{datetime.now(UTC):%Y%m%d}")

ACCOUNTS = [f"account-{n}" for n in range(7)]
START_MS = 1_700_000_000_000


class Killed(BaseException):
    """What a driver's thread ends with where a process would be gone."""


class Wish(dict[str, str]):
    """An environment that remembers what was taken from it: where a driver dies, its wish to die goes."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    def pop(self, name: str) -> str:  # type: ignore[override]  # as the crash points call it
        self.taken.append(value := super().pop(name))
        return value


class Reaper:
    """Stands in for ``os`` at the crash points.

    Attributes:
        fallen: every point at which a driver or a command died, oldest first.
    """

    def __init__(self) -> None:
        self.environ = Wish()

    @property
    def fallen(self) -> list[str]:
        return self.environ.taken

    def getpid(self) -> int:
        """No process: :meth:`kill` means the thread that calls it."""
        return 0

    def kill(self, pid: int, number: int) -> None:
        """End the driver or the command that came by."""
        DEATHS.append(self.fallen[-1].partition("@")[0])
        raise Killed


class MortalDriver(Driver):
    """A driver that tidies nothing up when it is killed."""

    def close(self) -> None:
        if not isinstance(sys.exception(), Killed):
            super().close()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What an epoch must hold.

    Attributes:
        start: where it begins to read.
        base: account -> total before that.
        inherited: rows of ``moves`` that it was seeded with.
        moves: the rows that it computes.
    """

    start: Offsets
    base: Mapping[str, int]
    inherited: Mapping[Place, Move]
    moves: Mapping[Place, Move]

    def totals(self, topic: str, until: Offsets | None = None) -> dict[str, int]:
        """Account -> total after every record before ``until``; all without."""
        totals = dict(self.base)
        for at, (account, _, total) in self.moves.items():
            if until is None or at[1] < (until.get(topic, at[0]) or 0):
                totals[account] = total
        return totals


@dataclass(kw_only=True)
class World(Lab):
    """A lab in which things happen at random, and a log of its own of what was written.

    Attributes:
        random: decides everything.
        reaper: kills drivers.
        written: every committed record, by place.
        factors: epoch -> what its code counts an amount.
        upgrades: epoch -> where it went over to other code, and what that counts; oldest first.
        archived: where the archive of the topic begins and up to where it has every record; None where there is none.
        script: what was done, to be printed when the proof fails.
        compacted: whether changelogs are to be compacted.
        checkpoint: where the broker notes how far its cleaner has come; None where the broker is another's.
    """

    random: random.Random = field(default_factory=random.Random)
    reaper: Reaper = field(default_factory=Reaper)
    written: dict[Place, bytes] = field(default_factory=dict)
    factors: dict[int, int] = field(default_factory=dict)
    upgrades: dict[int, list[tuple[Offsets, int]]] = field(default_factory=dict)
    archived: tuple[Offsets, Offsets] | None = None
    script: list[str] = field(default_factory=list)
    dead: list[Any] = field(default_factory=list)
    deaths: int = 0
    clock_ms: int = START_MS
    pending: tuple[Producer, list[Message]] | None = None
    driver_type: type[Driver] = MortalDriver
    compacted: bool = False
    checkpoint: Path | None = None

    def prepare(self) -> None:
        """Make what a history has from its beginning, once its settings are chosen."""

    # Drivers

    def tend(self) -> None:
        """Start every driver that should run and does not, as whoever watches the epochs does."""
        for epoch, (_, thread, errors) in list(self.running.items()):
            if thread.is_alive():
                continue
            unmeant = [one for one in errors if not isinstance(one, Killed) and not self.is_too_late(epoch, one)]
            assert not unmeant, f"driver of epoch {epoch} raised {unmeant!r}"
            self.deaths += any(isinstance(one, Killed) for one in errors)
            self.dead.append(self.running.pop(epoch))  # kept: what a dead process held is not tidied up either
        for name, epoch in control.wanted_drivers(self.config):
            if name == self.name and epoch not in self.running:
                self.run(epoch)

    def is_too_late(self, epoch: int, error: BaseException) -> bool:
        """Whether a driver ended because its epoch was given up before it was there, as it has to."""
        is_ended = self.record().epoch(epoch).stage.is_ended
        return is_ended and isinstance(error, IllegalTransitionError) and "came up too late" in str(error)

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for a condition while drivers come and go; one that is stuck fails."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:
            self.tend()
            if value := condition():
                return value
            stuck = [event for event in self.record().events if event.event == "stuck"]
            assert not stuck, stuck
            time.sleep(0.05)
        raise AssertionError(f"{what} did not happen within {DEADLINE_SECONDS} s")

    def command(self, run: Callable[[], Any]) -> Any:
        """What a command gives that is called again when it is killed on its way."""
        while True:
            try:
                return run()
            except Killed:
                self.deaths += 1
                self.say(f"the command is killed after {self.reaper.fallen[-1]}, and called again")

    def record_replay(self, plan: ReplayPlan) -> int:
        """Put a plan on record, by a command that may die on its way."""
        return int(self.command(lambda: super(World, self).record_replay(plan)))

    # What may happen

    def points(self) -> Sequence[str]:
        """Where something of this world may die, in order."""
        elsewhere = (*_NEVER, *UPGRADE_POINTS, *TOPIC_POINTS, *JOINT_POINTS)
        return [point for point in sorted(faults.POINTS) if not point.startswith(elsewhere)]

    def acts(self) -> Sequence[tuple[Callable[[], None], int]]:
        """What may happen, with its weight."""
        return [
            (self.write, 4),
            (self.write_transaction, 3),
            (self.arm, 7),
            (self.replay, 3),
            (self.cut_over, 3),
            (self.roll_back, 2),
            (self.abort, 1),
            (self.delete_records, 1),
            (self.compact, 1),
            (self.restart, 1),
            (self.pause, 2),
        ]

    def act(self) -> None:
        """Let one thing happen."""
        acts = self.acts()
        [(act, _)] = self.random.choices(acts, [weight for _, weight in acts])
        act()

    def say(self, what: str) -> None:
        """Put it in the script."""
        self.script.append(what)

    def values(self) -> list[bytes]:
        """Values of up to thirty records, some broken."""
        count = self.random.randint(1, 30)
        return [
            b"{" if self.random.random() < 0.1 else orjson.dumps({"id": self.random.choice(ACCOUNTS), "amount": n + 1})
            for n in range(count)
        ]

    def send(self, producer: Producer, values: Sequence[bytes]) -> list[Message]:
        """Produce, an account always to one partition, some records out of order; what was delivered."""
        delivered: list[Message] = []
        for value in values:
            self.clock_ms += self.random.randint(0, 2_000)
            late = self.random.choice([0, 0, 0, 5_000, 86_400_000])
            partition = sum(value.split(b'"')[3]) % 2 if value != b"{" else self.random.randrange(2)
            producer.produce(
                self.topic,
                value,
                None,
                partition,
                timestamp=self.clock_ms - late,
                on_delivery=lambda _, m: delivered.append(m),
            )
        assert producer.flush(30) == 0
        assert all(message.error() is None for message in delivered)
        return delivered

    def keep(self, messages: Sequence[Message]) -> None:
        """Enter committed records into the log."""
        for message in messages:
            self.written[place(message)] = content(message)

    def write(self) -> None:
        """Records of a plain producer."""
        values = self.values()
        self.say(f"write {len(values)}")
        self.keep(self.send(Producer({"bootstrap.servers": self.config.bootstrap_servers}), values))

    def write_transaction(self) -> None:
        """Records in a transaction: committed, aborted, or left open until the next one."""
        self.end_transaction()
        values, ending = self.values(), self.random.choice(["commit", "abort", "leave open"])
        self.say(f"transaction of {len(values)}: {ending}")
        name = f"{self.topic}-{len(self.script)}"
        # Left open for as long as the history takes: Kafka gives it up after a minute otherwise.
        settings = {"transactional.id": name, "transaction.timeout.ms": 900_000}
        producer = Producer({"bootstrap.servers": self.config.bootstrap_servers, **settings})
        producer.init_transactions(30)
        producer.begin_transaction()
        self.pending = producer, self.send(producer, values)
        if ending != "leave open":
            self.end_transaction(commits=ending == "commit")

    def end_transaction(self, *, commits: bool = True) -> None:
        """Commit or abort what is open."""
        if self.pending is None:
            return
        (producer, messages), self.pending = self.pending, None
        if commits:
            producer.commit_transaction(30)
            self.keep(messages)
        else:
            producer.abort_transaction(30)

    def arm(self) -> None:
        """The next driver or command that comes by a crash point dies there."""
        point = self.random.choice(self.points())
        self.say(f"kill after {point}")
        self.reaper.environ[faults.VARIABLE] = point

    def replay(self) -> None:
        """Plan a replay of new code from anywhere, if nothing is being built."""
        record = self.record()
        if record.candidate is not None:
            return
        start, request = self.start_of_replay(record.live)
        factor = self.random.randint(1, 9)
        version = 1 + len(self.script)
        self.deploy(version, factor)
        request |= {"slice_records": self.random.choice([20, 50, 500_000])}
        lost = self.is_lost_before(start, record.live)
        if isinstance(start, FromMarker):
            self.stop_live()
        try:
            epoch = self.plan_replay(start, **request)
        except RefusedError as error:
            self.say(f"replay {start} refused: {error}")
            has_sent = any(row.sends == "live" for row in self.ledger(record.live).state().commits)
            # Between the choice of a savepoint and the plan, a look after files may have let go of it.
            expired = isinstance(start, FromSavepoint) and not self.ledger(record.live).state().is_readable(
                start.seq or 0
            )
            is_right = lost or expired or (isinstance(start, FromMarker) and not has_sent)
            assert is_right, error
            assert self.record().candidate is None
        else:
            self.say(f"replay {start} of factor {factor}: epoch {epoch}")
            self.factors[epoch] = factor
            self.wait(
                lambda: not isinstance(start, FromMarker) or self.record().epoch(epoch).stage in STAGES[2:],
                "the changelog is folded",
            )
        if isinstance(start, FromMarker):
            control.start(self.config, self.name, actor="test", reason="test")

    def is_lost_before(self, start: Start, live: int) -> bool:
        """Whether records that a replay from there would read are deleted, and no archive has them.

        Retention takes nothing that an archive lacks once there is one.
        """
        low = self.archived[0] if self.archived is not None else self.kafka.low_watermarks([self.topic])
        if isinstance(start, ToEarliest):
            return any(offset for _, offset in low.items())
        if not isinstance(start, FromSavepoint):
            return False
        (row,) = [row for row in self.ledger(live).state().commits if row.seq == start.seq]
        return not row.standing.dominates(low)

    def stop_live(self) -> None:
        """Stop the live driver for good, as whoever folds its changelog must."""
        control.stop(self.config, self.name, actor="test", reason="test")
        self.wait(lambda: self.record().live not in self.running, "the live driver stops")

    def start_of_replay(self, live: int) -> tuple[Start, dict[str, Any]]:
        """A start and what goes with it."""
        kind = self.random.choice(
            ["earliest", "earliest", "earliest", "partial", "latest", "savepoint", "savepoint", "marker"]
        )
        if kind == "savepoint":
            return FromSavepoint(seq=self.random.choice(self.ledger(live).state().readable).seq), {}
        if kind == "marker":
            return FromMarker(), {}
        if kind == "latest":
            return ToLatest(), {"allow": frozenset({"partial-history"})}
        return ToEarliest(), {"allow": frozenset({"partial-history"})} if kind == "partial" else {}

    def cut_over(self, *, is_wanted: bool = True) -> None:
        """Wait until the candidate may take over and let it; it may be left behind and then is not live."""
        candidate = self.record().candidate
        if candidate is None:
            return
        epoch = candidate.epoch
        self.wait(lambda: control.progress(self.config, self.name, epoch).is_caught_up, f"epoch {epoch} may take over")
        keeps = self.random.random() < 0.3
        self.say(f"cut over to {epoch}{', the old one kept running' if keeps else ''}")
        control.cut_over(self.config, self.name, epoch, actor="test", reason="test", keep_old_running=keeps)

        def is_decided() -> bool:
            record = self.record()
            return record.handover is None and (record.live != epoch or not self.ledger(epoch).state().is_yielded)

        self.wait(is_decided, f"the handover to epoch {epoch} ends")
        self.say(f"epoch {self.record().live} is live")

    def roll_back(self) -> None:
        """Bring an epoch back that was live, if there is one."""
        record = self.record()
        retired = [e.epoch for e in record.epochs.values() if e.stage is Stage.RETIRED and e.epoch != record.live]
        if record.candidate is not None or not retired:
            return
        epoch = self.random.choice(retired)
        self.say(f"roll back to {epoch}")
        control.rollback(self.config, self.name, to=epoch, actor="test", reason="test")
        self.cut_over()

    def abort(self) -> None:
        """Give the candidate up."""
        candidate = self.record().candidate
        if candidate is None:
            return
        self.say(f"abort {candidate.epoch}")
        self.command(lambda: control.abort(self.config, self.name, candidate.epoch, actor="test", reason="test"))

    def delete_records(self) -> None:
        """Retention takes what is read and, once there is an archive, archived; epochs that could not come back are
        retired for good.
        """
        if any(each.record().candidate is not None for each in self.topologies()):
            return
        read = [each.ledger(each.record().live).begun().position for each in self.topologies()]
        read += [] if self.archived is None else [self.archived[1]]
        low = self.kafka.low_watermarks([self.topic])
        before = []
        for (topic, partition), first in low.items():
            most = min(offsets.get(topic, partition) or 0 for offsets in read)
            before.append(TopicPartition(topic, partition, self.random.randint(first, max(first, most))))
        self.say(f"delete records before {[(part.partition, part.offset) for part in before]}")
        for each in self.topologies():
            for epoch in each.record().epochs.values():
                if epoch.stage is Stage.RETIRED:
                    each.retire(epoch.epoch)
        admin = AdminClient({"bootstrap.servers": self.config.bootstrap_servers})
        for future in admin.delete_records(before).values():
            future.result(30)

    def topologies(self) -> Sequence[World]:
        """What reads the topic: this one, and others of the same lake."""
        return [self]

    def retire(self, epoch: int) -> None:
        """Remove an epoch for good."""
        self.command(lambda: control.retire(self.config, self.name, epoch, actor="test", reason="retention"))

    def compact(self) -> None:
        """The changelogs are compacted as soon as something is added to them; :meth:`finish` waits until they were."""
        self.say("compact the changelogs")
        self.compacted = True
        configure(self.config.bootstrap_servers, ResourceType.BROKER, "1", {"log.cleaner.backoff.ms": "200"})
        prefix = f"kappa.{self.name}."
        settings = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "100"}
        for topic in self.kafka.topics(prefix):
            if topic.endswith(".changelog"):
                configure(self.config.bootstrap_servers, ResourceType.TOPIC, topic, settings)

    def restart(self) -> None:
        """The live driver is stopped in order, and started again."""
        live = self.record().live
        self.say(f"stop and start {live}")
        if live in self.running and self.running[live][1].is_alive():
            self.stop(live)

    def pause(self) -> None:
        """Let the drivers work for a moment."""
        until = time.monotonic() + self.random.random() * 2
        self.wait(lambda: time.monotonic() > until, "time passes")

    # What must have come out

    def outcome(self, epoch: int) -> Outcome:
        """What an epoch must hold, by its plan's start and seed, its code's factor and the log of what was written."""
        plan = self.plan(epoch)
        base, inherited = dict[str, int](), dict[Place, Move]()
        if plan.seed is not Seed.EMPTY:
            assert plan.seed_epoch is not None
            parent = self.outcome(plan.seed_epoch)
            base = parent.totals(self.topic, plan.start)
            if plan.seed is Seed.FROM_SAVEPOINT:
                rows = {**parent.inherited, **parent.moves}
                inherited = {at: row for at, row in rows.items() if at[1] < (plan.start.get(self.topic, at[0]) or 0)}
        totals, moves = dict(base), dict[Place, Move]()
        for at, value in sorted(self.written.items()):
            if value == b"{" or at[1] < (plan.start.get(self.topic, at[0]) or 0):
                continue
            row = orjson.loads(value)
            amount = row["amount"] * self.factor(epoch, at)
            totals[row["id"]] = totals.get(row["id"], 0) + amount
            moves[at] = (row["id"], amount, totals[row["id"]])
        return Outcome(start=plan.start, base=base, inherited=inherited, moves=moves)

    def factor(self, epoch: int, at: Place) -> int:
        """What an epoch counts the amount of a record."""
        current = self.factors[epoch]
        for boundary, factor in self.upgrades.get(epoch, ()):
            current = factor if at[1] >= (boundary.get(self.topic, at[0]) or 0) else current
        return current

    def is_compacted(self) -> bool:
        """Whether the broker's cleaner has been through a part of the live epoch's changelog."""
        assert self.checkpoint is not None
        name = self.paths(self.record().live).changelog("balances")
        lines = [line.split() for line in self.checkpoint.read_text().splitlines()] if self.checkpoint.exists() else []
        return any(line[0] == name and int(line[2]) > 0 for line in lines if len(line) == 3)

    def finish(self) -> None:
        """No more deaths; all that is open is ended and read. A history without a death or a cutover gets both."""
        self.say("finish")
        self.end_transaction()
        if not self.reaper.fallen:
            self.reaper.environ[faults.VARIABLE] = self.random.choice(
                ["plan", "effects", "send.open", "send", "commit"]
            )
            self.say(f"kill after {self.reaper.environ[faults.VARIABLE]}, since nothing died yet")
            self.write()
            self.wait(lambda: self.reaper.fallen, "a driver dies")
        self.reaper.environ.clear()
        if len(self.record().moves) == 1 and self.record().candidate is None:
            self.deploy(1 + len(self.script), 5)
            epoch = self.plan_replay(ToLatest(), allow=frozenset({"partial-history"}))
            self.factors[epoch] = 5
        candidate = self.record().candidate
        for _ in range(3):  # under load a handover may take longer than it may, and is withdrawn
            self.cut_over()
            if candidate is None or self.record().live == candidate.epoch:
                break
        assert candidate is None or self.record().live == candidate.epoch, "no handover succeeds"
        self.write()
        self.settle(self.record().live)
        if self.compacted and self.checkpoint is not None:
            self.await_compaction()

    def await_compaction(self) -> None:
        """Add to the changelog until the cleaner has been through what was there before."""
        self.compact()  # also those that are new since
        for _ in range(60):
            if self.is_compacted():
                return
            self.write()
            self.settle(self.record().live)
            self.pause()
        raise AssertionError("the changelog was not compacted")

    def prove(self) -> None:
        """Hold everything that is served, sent and on record against what must have come out."""
        live = self.record().live
        outcome = self.outcome(live)
        moves = {**outcome.inherited, **outcome.moves}
        self.hold(totals=outcome.totals(self.topic), moves=moves, sent=self.expected_sent())
        letters = self.dead_letters(live)
        assert set(letters) >= {
            at
            for at, value in self.written.items()
            if value == b"{" and at[1] >= (outcome.start.get(self.topic, at[0]) or 0)
        }
        assert len(set(letters)) == len(letters)

    def expected_sent(self) -> list[Move]:
        """Of each record what the epoch said that was live at its offset."""
        cuts = [(move.epoch, Offsets.from_json(move.detail["at"])) for move in self.record().moves]
        outcomes = {epoch: self.outcome(epoch).moves for epoch, _ in cuts}
        sent = []
        for at, value in self.written.items():
            if value != b"{":
                sender = [epoch for epoch, cut in cuts if (cut.get(self.topic, at[0]) or 0) <= at[1]][-1]
                sent.append(outcomes[sender][at])
        return sent


def play(world: World, seed: int, acts: int) -> None:
    """One history, from a first epoch to the proof.

    Raises:
        AssertionError: something is not as it must be; the message is the script.
    """
    world.random.seed(seed)
    field_names = {field.name for field in fields(world.config)}
    # Of the few that every run plays only merges differ; rarer settings belong to the soak.
    names = [name for name in SETTINGS if name in field_names and (seed >= 1000 or name == "merge_seconds")]
    settings = {name: world.random.choice(SETTINGS[name]) for name in names}
    world.config = replace(world.config, **settings)
    world.say(f"settings {settings}")
    try:
        world.prepare()
        world.write()
        world.factors[world.start()] = 1
        world.await_live(1)
        for _ in range(acts):
            world.act()
        world.finish()
        world.prove()
    except Exception as error:
        lines = "\n".join(f"  {number:2}. {line}" for number, line in enumerate(world.script))
        raise AssertionError(f"history {seed} went wrong: {error!r}\n{lines}") from error


def configure(bootstrap_servers: str, kind: ResourceType, name: str, settings: Mapping[str, str]) -> None:
    """Change settings of a topic, or of the embedded broker."""
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()]
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.incremental_alter_configs([ConfigResource(kind, name, incremental_configs=entries)]).values():
        future.result(30)
