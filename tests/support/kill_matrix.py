"""A replay whose candidate is killed after every effect of every stage, for each kind of start and seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kappa import control
from kappa.offsets.notation import offsets_from_csv
from kappa.offsets.vector import Offsets
from kappa.record import savepoints
from kappa.replay.stages import Stage
from kappa.replay.starts import (
    ByDuration,
    FromMarker,
    FromSavepoint,
    ShiftBy,
    Start,
    ToDatetime,
    ToEarliest,
    ToLatest,
    ToOffset,
)
from support.deaths import ENDLESS
from support.processes import SEED_POINTS, SLICE_POINTS, Rig, rows

#: A candidate that reads history: in its second slice, which is not the first of anything. It sends nothing yet.
BULK_POINTS = tuple(f"{point}@2" for point in SLICE_POINTS if not point.startswith("send"))
#: Between its history and the cutover.
READY_POINTS = ("replayed", "caught_up", "verify", "verified", "baseline.chunk", "baseline.marker")
#: Once it is live.
LIVE_POINTS = ("claim", "resume", *SLICE_POINTS)
#: In a slice that merges, and in the look after files that follows.
FILE_POINTS = ("merge", "maintain", "maintain.dead_letters", "maintain.outputs", "maintain.changes", "maintain.tables")

Case = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of start, with the seed that goes with it.

    Attributes:
        start: what is asked for, once the live epoch has read :data:`RECORDS` records.
        allow: refusals that the request lifts.
        has_bulk: whether there is history between the start and the live epoch's position.
        is_live_stopped: whether the live epoch must not run until the seed is taken.
    """

    start: Callable[[Rig], Start]
    allow: Sequence[str] = field(default=())
    has_bulk: bool = True
    is_live_stopped: bool = False


#: Records before the replay, so many seconds apart and ending now: starts by time are then as an operator gives them,
#: and a minute until the plan on a slow machine makes a few records of difference.
RECORDS, APART = 60, 10
_PARTIAL = ("partial-history",)


def _middle(machine: Rig) -> int:
    """The live epoch's first slice: a commit with history before it and after it."""
    commits = machine.ledger(machine.record().live).state().commits
    return next(row.seq for row in commits if row.seq > 0)


def _savepoint_by_time(machine: Rig) -> Start:
    commits = {row.seq: row for row in machine.ledger(machine.record().live).state().commits}
    return FromSavepoint(at=commits[_middle(machine)].at)


def _named_savepoint(machine: Rig) -> Start:
    savepoints.create(machine.config, machine.name, "trusted", seq=_middle(machine), actor="test")
    return FromSavepoint(name="trusted")


def _file(machine: Rig) -> Start:
    path = Path(machine.config.home, "offsets.csv")
    path.write_text(f"{machine.topic},0,4\n{machine.topic},1,6\n")
    return ToOffset(offsets=offsets_from_csv(path.read_text(), str(path)), file=str(path))


KINDS = {
    "to-earliest": Kind(start=lambda _: ToEarliest()),
    "to-latest": Kind(start=lambda _: ToLatest(), allow=_PARTIAL, has_bulk=False),
    "to-datetime": Kind(start=lambda _: ToDatetime(at=_ago(APART * (RECORDS - 10))), allow=_PARTIAL),
    "by-duration": Kind(start=lambda _: ByDuration(duration=timedelta(seconds=APART * (RECORDS - 10))), allow=_PARTIAL),
    "shift-by": Kind(start=lambda _: ShiftBy(by=-22), allow=_PARTIAL),
    "to-offset": Kind(start=lambda machine: ToOffset(offsets=Offsets({machine.topic: {0: 4, 1: 6}})), allow=_PARTIAL),
    "from-file": Kind(start=_file, allow=_PARTIAL),
    "from-savepoint-seq": Kind(start=lambda machine: FromSavepoint(seq=_middle(machine))),
    "from-savepoint-time": Kind(start=_savepoint_by_time),
    "from-savepoint-name": Kind(start=_named_savepoint),
    "from-changelog": Kind(
        start=lambda machine: FromMarker(epoch=machine.record().live), has_bulk=False, is_live_stopped=True
    ),
}


def _live(machine: Rig) -> int:
    """A first epoch that is live and read :data:`RECORDS` records, the last one of now."""
    begin = datetime.now(UTC) - timedelta(seconds=APART * RECORDS)
    machine.produce(rows(RECORDS), start_ms=int(begin.timestamp() * 1000), step_ms=1000 * APART)
    return machine.start_live()


def _stop(machine: Rig, epoch: int) -> None:
    control.stop(machine.config, machine.name, epoch=epoch, actor="test", reason="test")
    machine.await_end(epoch)


def _now() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


def _ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def points_of(kind: Kind) -> list[str]:
    """Where a candidate of this kind can be killed before it takes over, in order."""
    return [*SEED_POINTS, *(BULK_POINTS if kind.has_bulk else ()), *READY_POINTS, *SLICE_POINTS]


def walk(machine: Rig, name: str, case: Case, points: Sequence[str] | None = None, live: Sequence[str] = ()) -> None:
    """One replay from start to cutover, killed at each point and started again; proven at the end from outside.

    Args:
        machine: a rig, version 1 deployed.
        name: a key of :data:`KINDS`.
        case: is told each kill.
        points: where the candidate dies before the handover, in order; None for all.
        live: where it dies once it is live.
    """
    kind = KINDS[name]
    machine.config = replace(machine.config, attempts=ENDLESS)
    first = _live(machine)
    machine.deploy(2)
    if kind.is_live_stopped:
        _stop(machine, first)
    request: dict[str, Any] = {"slice_records": 20, "allow": frozenset(kind.allow)}
    left = list(points if points is not None else points_of(kind))
    second = machine.plan_replay(left[0], start=kind.start(machine), **request)
    is_stopped = kind.is_live_stopped
    for index, point in enumerate(left):
        machine.await_death(second)
        case(f"{name}:{point}")
        following = left[index + 1] if index + 1 < len(left) else "moved"
        if is_stopped and point == "seeded":
            control.start(machine.config, machine.name, epoch=first, actor="test")
            is_stopped = False
        if not is_stopped:
            machine.produce(rows(4, first=1_000 + 100 * index), start_ms=_now())
            machine.settle(first)
        machine.run(second, following)
    machine.await_stage(second, Stage.VERIFIED)
    control.cut_over(machine.config, machine.name, second, actor="test", reason="test")
    for index, point in enumerate(live):
        machine.await_death(second)
        case(f"{name}:{'moved' if index == 0 else live[index - 1]}, live")
        machine.produce(rows(4, first=9_000 + 100 * index), start_ms=_now())
        machine.run(second, point)
    machine.await_death(second)
    case(f"{name}:{live[-1] if live else 'moved'}, live")
    machine.run(second)
    machine.await_live(second)
    machine.produce(rows(4, first=20_000), start_ms=_now())
    machine.settle(second)
    machine.prove({first: 1, second: 2})
