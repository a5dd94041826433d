"""Random histories with what happens to a stream now and then: upgrades, archives, outages of the broker, a lake that
is put back from a copy, topics of an epoch's own or that are reconciled, and a second topology that moves with it.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from kappa import control, faults, serving
from kappa.control import upgrade
from kappa.offsets.vector import ranges_end
from kappa.replay.stages import Stage
from kappa.replay.starts import Start, ToEarliest, ToLatest
from support import brokers
from support.epochs import DEADLINE_SECONDS, Move, content, key, read_messages
from support.histories import JOINT_POINTS, TOPIC_POINTS, UPGRADE_POINTS, Killed, World

if TYPE_CHECKING:
    from kappa_local.kafka import KafkaProcess

HELD = 'Topic(name="{topic}.moves", of="moves", key="id"),'
#: A topic that each epoch has for itself, and one that a reader folds, beside the one of every lab.
MORE = (
    HELD
    + """
        Topic(name="{topic}.story", of="moves", key="id", on_replay="versioned"),
        Topic(name="{topic}.balances", of="balances", key="id", on_replay="reconcile"),"""
)
_PARTIAL = frozenset({"partial-history"})


@dataclass(kw_only=True)
class Sibling(World):
    """Another topology over the same log, in the same lake, with an output topic of its own.

    Attributes:
        elder: the one beside it; everything that happens is decided and waited for there.
    """

    elder: Eventful

    def deploy(self, version: int, factor: int | str | None = None) -> None:
        own = HELD.format(topic=self.topic).replace(f"{self.topic}.moves", self.output)
        text = self.template.format(version=version, factor=factor or version, topic=self.topic, name=self.name)
        text = text.replace(HELD.format(topic=self.topic), own)
        (self.config.topologies / "sibling.py").write_text(text)

    @property
    def output(self) -> str:
        return f"{self.name}.moves"

    def sent_values(self) -> Iterator[bytes]:
        return self.values_of(self.output)

    def wait(self, condition: Callable[[], Any], what: str) -> Any:
        return self.elder.wait(condition, what)


@dataclass(kw_only=True)
class Eventful(World):
    """A world with everything.

    Attributes:
        process: the broker, which may be killed; None where it is another's.
        outputs: topic outputs of the topology.
        sibling: the topology beside it, if there is one.
        copied: where a copy of the lake is, which epoch was live in it, and its last slice that was sent.
        happened: how often what was done.
    """

    process: KafkaProcess | None = None
    outputs: str = HELD
    sibling: Sibling | None = None
    copied: tuple[Path, int, int] | None = None
    happened: Counter[str] = field(default_factory=Counter)

    # The world

    def prepare(self) -> None:
        """Decide what there is, once the settings are chosen: other topics, a sibling."""
        if self.random.random() < 0.4:
            self.outputs = MORE
            self.note("versioned and reconciled topics")
            self.deploy(1)
        if self.random.random() < 0.3:
            self.sibling = Sibling(
                elder=self,
                config=self.config,
                kafka=self.kafka,
                topic=self.topic,
                name=f"{self.name}_too",
                session=self.session,
                random=self.random,
                reaper=self.reaper,
                script=self.script,
                written=self.written,
            )
            self.note("a sibling")
            self.sibling.deploy(1)

    def note(self, what: str) -> None:
        """Put it in the script, and count it."""
        self.happened[what] += 1
        self.say(what)

    def deploy(self, version: int, factor: int | str | None = None) -> None:
        super().deploy(version, factor)
        file = self.config.topologies / "balances.py"
        text, output = file.read_text(), HELD.format(topic=self.topic)
        assert output in text
        file.write_text(text.replace(output, self.outputs.format(topic=self.topic)))

    def start(self) -> int:
        epoch = super().start()
        if self.sibling is not None:
            self.sibling.factors[self.sibling.start()] = 1
            self.sibling.await_live(1)
        return epoch

    def topologies(self) -> Sequence[World]:
        return [self] if self.sibling is None else [self, self.sibling]

    def tend(self) -> None:
        super().tend()
        if self.sibling is not None:
            World.tend(self.sibling)
            stuck = [event for event in self.sibling.record().events if event.event == "stuck"]
            assert not stuck, stuck

    def close(self) -> None:
        try:
            if self.sibling is not None:
                self.sibling.close()
        finally:
            super().close()

    def points(self) -> Sequence[str]:
        points = [*super().points(), *_starting(UPGRADE_POINTS)]
        points += _starting(TOPIC_POINTS) if self.outputs is MORE else []
        points += _starting(JOINT_POINTS) if self.sibling is not None else []
        return sorted(points)

    def acts(self) -> Sequence[tuple[Callable[[], None], int]]:
        acts = [*super().acts(), (self.upgrade, 2), (self.take_into_archive, 1), (self.back_up, 1), (self.restore, 2)]
        acts += [] if self.process is None else [(self.lose_broker, 1)]
        return [*acts, *([] if self.sibling is None else [(self.move_together, 4)])]

    # What may happen

    def upgrade(self) -> None:
        """The live epoch goes over to other code, if nothing is being built."""
        record = self.record()
        if record.candidate is not None:
            return
        factor, version = self.random.randint(1, 9), 1 + len(self.script)
        self.deploy(version, factor)
        proposal = upgrade.propose(self.config, self.name, slices=0)
        assert not proposal.refusals, proposal.refusals
        upgrade.upgrade(self.config, proposal, history_stands=True, actor="test", reason="test")
        self.wait(lambda: self.record().epoch(record.live).code == proposal.to_code, "the new code runs")
        row = [row for row in self.ledger(record.live).rows() if row.kind == "upgrade"][-1]
        assert row.code == proposal.to_code
        (commit,) = [commit for commit in self.ledger(record.live).state().commits if commit.seq == row.seq]
        self.upgrades.setdefault(record.live, []).append((ranges_end(commit.ranges), factor))
        self.note("upgrade")

    def take_into_archive(self) -> None:
        """The archiver takes every record that is there."""
        begin = self.kafka.low_watermarks([self.topic]) if self.archived is None else self.archived[0]
        end = self.kafka.stable_offsets([self.topic])
        self.archive()
        self.archived = begin, end
        self.note("archive")

    def lose_broker(self) -> None:
        """The broker is killed, and comes back."""
        assert self.process is not None
        with brokers.mortal(self.process):
            self.process.kill()
            time.sleep(1)  # the outage itself
            self.process.restart()
        self.note("broker killed")

    def move_together(self) -> None:
        """Replay both topologies and cut over to both: all move, or none."""
        sibling = self.sibling
        assert sibling is not None
        if self.record().candidate is not None or sibling.record().candidate is not None:
            return
        epochs: dict[str, int] = {}
        for each in self.topologies():
            factor = self.random.randint(1, 9)
            each.deploy(1 + len(self.script), factor)
            start: Start = ToLatest() if self.is_lost_before(ToEarliest(), each.record().live) else ToEarliest()
            epochs[each.name] = each.plan_replay(start, allow=_PARTIAL)
            each.factors[epochs[each.name]] = factor
            self.say(f"replay {start} of {each.name}, factor {factor}: epoch {epochs[each.name]}")
        for each in self.topologies():
            epoch = epochs[each.name]
            self.wait(lambda each=each, epoch=epoch: self._is_ready(each, epoch), f"{each.name} may move")  # type: ignore[misc]
        control.cut_over_together(self.config, epochs, actor="test", reason="test")

        def is_decided() -> bool:
            return all(
                each.record().handover is None
                and (each.record().live != epochs[each.name] or not each.ledger(epochs[each.name]).state().is_yielded)
                for each in self.topologies()
            )

        self.wait(is_decided, "the joint handover ends")
        moved = [each.record().live == epochs[each.name] for each in self.topologies()]
        assert len(set(moved)) == 1, f"of two that move together one did: {moved}"
        self.note("moved together" if all(moved) else "a joint move withdrawn")
        if not all(moved):
            for each in self.topologies():
                self.command(
                    lambda each=each: control.abort(  # type: ignore[misc]
                        self.config, each.name, epochs[each.name], actor="test", reason="withdrawn"
                    )
                )

    def _is_ready(self, each: World, epoch: int) -> bool:
        return each.record().epoch(epoch).stage is Stage.VERIFIED and bool(
            control.progress(self.config, each.name, epoch).is_caught_up
        )

    # A lake from a copy

    def rest(self) -> None:
        """Let no driver run."""
        self.reaper.environ.clear()
        for each in self.topologies():
            for epoch in list(each.running):
                errors = each.stop(epoch)
                assert all(isinstance(error, Killed) for error in errors), errors

    def last_sent(self) -> int:
        """The last slice that the live epoch sent and committed."""
        commits = self.ledger(self.record().live).state().commits
        return max((commit.seq for commit in commits if commit.sends == "live"), default=0)

    def back_up(self) -> None:
        """Copy the lake while no driver runs."""
        self.rest()
        copy = Path(f"{self.config.lake}.copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.config.lake, copy)
        self.copied = copy, self.record().live, self.last_sent()
        self.note("the lake is copied")

    def restore(self) -> None:
        """Put the copy in the lake's place: the live epoch's driver sends nothing and says why; then the lake again."""
        if self.copied is None:
            return
        copy, live, sent = self.copied
        self.rest()
        record = self.record()
        if record.epoch(live).stage is Stage.DROPPED or (record.live, self.last_sent()) == (live, sent):
            return
        values, position = sorted(self.sent_values()), self.kafka.group_offsets(self.paths(live).name)
        lake, aside = Path(self.config.lake), Path(f"{self.config.lake}.kept")
        lake.rename(aside)
        shutil.copytree(copy, lake)
        before = len(self.record().events)
        self.run(live)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (stuck := [event for event in self.record().events[before:] if event.event == "stuck"]):
            assert time.monotonic() < deadline, f"a copy in which epoch {live} has sent {sent} slices is not refused"
            assert self.running[live][1].is_alive(), self.running[live][2]
            time.sleep(0.05)
        reason = stuck[0].reason
        assert "older than the broker" in reason or "has sent up to" in reason, reason
        assert not control.certify(self.config, self.name).complete
        assert self.stop(live) == []
        assert sorted(self.sent_values()) == values
        assert self.kafka.group_offsets(self.paths(live).name) == position
        shutil.rmtree(lake)
        aside.rename(lake)
        self.note("a copied lake is refused")

    # What must have come out

    def finish(self) -> None:
        super().finish()
        if self.sibling is not None:
            if (candidate := self.sibling.record().candidate) is not None:
                control.abort(self.config, self.sibling.name, candidate.epoch, actor="test", reason="the end")
            self.sibling.settle(self.sibling.record().live)

    def prove(self) -> None:
        super().prove()
        if self.sibling is not None:
            self.sibling.prove()
        if self.outputs is MORE:
            self._prove_topics()

    def _prove_topics(self) -> None:
        """Whoever folds the reconciled topic has the served table; the live epoch's own topic tells all that it has."""
        live = self.record().live
        outcome = self.outcome(live)
        assert self._folded(f"{self.topic}.balances") == self.balances()
        moves = list(map(_move, self.values_of(f"{self.topic}.story.e{live:04d}")))
        assert sorted(moves) == sorted([*outcome.inherited.values(), *outcome.moves.values()])
        seen: dict[str, int] = {}
        for account, _, total in moves:
            assert total > seen.get(account, 0), f"{account} goes back to {total}"
            seen[account] = total
        story, epochs = f"{self.topic}.story", self.record().epochs
        if all(epochs[turn.epoch].stage is not Stage.DROPPED for turn in serving.turns(self.config, self.name, story)):
            by_turns = [_move(content(message)) for message in self.messages_by_turns(story)]
            assert sorted(by_turns) == sorted(map(_move, self.sent_values()))

    def _folded(self, topic: str) -> dict[str, int]:
        """What a reader has that keeps the newest value of each key."""
        totals: dict[str, int] = {}
        for message in read_messages(self.config.bootstrap_servers, topic):
            account, value = key(message).decode(), message.value()
            if value is None:
                totals.pop(account, None)
            else:
                totals[account] = orjson.loads(value)["total"]
        return totals


def _move(value: bytes) -> Move:
    row = orjson.loads(value)
    return row["id"], row["counted"], row["total"]


def _starting(prefixes: tuple[str, ...]) -> list[str]:
    return [point for point in faults.POINTS if point.startswith(prefixes)]
