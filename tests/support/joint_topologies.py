"""Several topologies in one lake, cut over together, and a reader that would notice if some moved alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kappa import faults, serving
from kappa.config import Config
from kappa.control import cutover
from kappa.driver.driver import Driver
from kappa.offsets.vector import Offsets
from kappa.replay.stages import Stage
from support.epochs import DEADLINE_SECONDS, TOPOLOGY, Lab
from support.histories import Killed, MortalDriver


@dataclass(kw_only=True)
class Member(Lab):
    """One topology of several in a lake: a file and an output topic of its own, over a source that others may read too.

    Attributes:
        outputs: what its file has instead of that topic.
    """

    driver_type: type[Driver] = MortalDriver
    meant: tuple[type[BaseException], ...] = (Killed,)
    outputs: str = ""

    def deploy(self, version: int, factor: int | str | None = None) -> None:
        """Change its file, as a user does."""
        write(self, version, factor, self.outputs)

    def sent_values(self) -> Iterator[bytes]:
        """Values of its own output topic."""
        return self.values_of(output_topic(self))


def output_topic(member: Lab) -> str:
    """The topic that a member sends to."""
    return f"{member.name}.moves"


def write(member: Lab, version: int, factor: int | str | None, outputs: str = "") -> None:
    """Its file; topologies of one lake must not share an output topic."""
    text = TOPOLOGY.format(version=version, factor=factor or version, topic=member.topic, name=member.name)
    own = f'Topic(name="{output_topic(member)}", of="moves", key="id")'
    text = text.replace(f'Topic(name="{member.topic}.moves", of="moves", key="id")', outputs or own)
    file = member.config.topologies / f"{member.name.replace('.', '_')}.py"
    file.write_text(text)


def verified(members: Sequence[Lab]) -> dict[str, int]:
    """All live, and beside each a candidate of version 2 that is verified; topology -> candidate."""
    for member in members:
        member.start()
    for member in members:
        member.await_live(1)
        member.settle(1)
    return replayed(members)


def replayed(members: Sequence[Lab], version: int = 2) -> dict[str, int]:
    """A candidate of a version beside each live epoch, verified; topology -> candidate."""
    candidates = {}
    for member in members:
        member.deploy(version)
        candidates[member.name] = member.plan_replay()
        member.run(candidates[member.name])
    for member in members:
        member.await_stage(candidates[member.name], Stage.VERIFIED)
    return candidates


def cut_over(members: Sequence[Lab], candidates: Mapping[str, int], **how: Any) -> None:
    """Ask for the cutover."""
    cutover.cut_over_together(members[0].config, candidates, actor="ada", reason="together", **how)


def await_all_live(members: Sequence[Lab], candidates: Mapping[str, int]) -> None:
    """Wait until all are live and send."""
    for member in members:
        member.await_live(candidates[member.name])


def resumed_at(member: Lab, epoch: int) -> Offsets:
    """Where an epoch began to send."""
    rows = [row for row in member.ledger(epoch).rows() if row.kind == "resume"]
    return Offsets.from_json(rows[0].detail["at"])


def moved(member: Lab) -> Any:
    """The last move of a member's pointer."""
    return member.record().moves[-1]


@dataclass
class Reader:
    """Resolves all members again and again, each time by one read of the record."""

    config: Config
    names: Sequence[str]
    seen: list[tuple[int, ...]] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    @contextmanager
    def reading(self) -> Iterator[Reader]:
        """Read from a thread until the end of the block."""
        done = threading.Event()

        def read() -> None:
            try:
                while not done.is_set():
                    snapshots = serving.snapshots(self.config, self.names)
                    epochs = tuple(snapshots[name].epoch for name in self.names)
                    if not self.seen or self.seen[-1] != epochs:
                        self.seen.append(epochs)
            except BaseException as error:
                self.errors.append(error)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            done.set()
            thread.join(DEADLINE_SECONDS)
        assert not thread.is_alive() and self.errors == []


class Reaper:
    """Stands in for ``os`` at the crash points: ends the thread of one driver at one point, once."""

    def __init__(self) -> None:
        self.points: dict[str, str] = {}
        self.environ = self

    def arm(self, member: Lab, epoch: int, point: str) -> None:
        """Let the driver of an epoch die at a point."""
        self.points[f"driver-{member.name}-{epoch}"] = point

    def get(self, name: str, default: str | None = None) -> str | None:
        """What the calling driver is to die of; it has no other variable."""
        return self.points.get(threading.current_thread().name, default) if name == faults.VARIABLE else default

    def pop(self, _: str) -> None:
        """It dies once."""
        del self.points[threading.current_thread().name]

    def getpid(self) -> int:
        """No process: :meth:`kill` means the thread that calls it."""
        return 0

    def kill(self, pid: int, number: int) -> None:
        """End the driver that came by."""
        raise Killed


def await_death(member: Lab, epoch: int) -> None:
    """Wait until an epoch's driver was killed at the point that it was armed for."""
    _, thread, errors = member.running.pop(epoch)
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive() and [type(error) for error in errors] == [Killed]
