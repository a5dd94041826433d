"""The rules of chains and of the order of emission, simulated in plain Python on random histories and cuts.

A rule holds where no history differs under any cut; the rule that lies at hand is beside it, and does differ: the
histories are hard enough to tell the two apart.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest

from kappa import Source
from kappa.operators import agg, tumbling_window
from kappa.topology.times.event_time import described, frontier_of

HISTORIES, CUTS = 300, 5
#: Windows of the reader are off the grid of those that it reads: one may begin in the middle of another.
GRACE, SIZE, READ_SIZE, WITHIN = 3, 4, 6, 5
#: Behind this time all windows of a history are closed.
END = 200


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record of a simulated log, with the partition or the side of a join that it lies in."""

    of: int
    time: int


def histories() -> Iterator[tuple[random.Random, list[Record]]]:
    """Logs with two partitions whose times go up and down; a last record in each closes everything."""
    for seed in range(HISTORIES):
        chance, log = random.Random(seed), []
        for at in range(40):
            lag = chance.choice([0, 0, 1, 2, 4, 7])
            log.append(Record(of=chance.randrange(2), time=max(0, at - lag)))
        yield chance, [*log, Record(of=0, time=END), Record(of=1, time=END)]


def slices(chance: random.Random, log: Sequence[Record]) -> list[list[Record]]:
    """The log cut by arrival: partitions lag behind each other, and keep their own order."""
    waiting = [[one for one in log if one.of == of] for of in range(2)]
    cut = []
    while any(waiting):
        arrivals = [[own.pop(0) for _ in range(min(len(own), chance.randrange(6)))] for own in waiting]
        cut.append([one for own in arrivals for one in own])
    return cut


class Frontiers:
    """How far the partitions of a simulated source have come."""

    def __init__(self) -> None:
        self._times: dict[int, int] = {}

    def pass_by(self, record: Record) -> int:
        """The frontier of its partition at a record, itself included."""
        self._times[record.of] = max(record.time, self._times.get(record.of, record.time))
        return self._times[record.of] - GRACE

    def of(self, *partitions: int) -> float:
        """The frontier of these partitions."""
        ms = frontier_of(self._times, partitions, GRACE).ms
        return float("-inf") if ms is None else ms


def differing(outcome: Callable[[list[list[Record]]], object]) -> int:
    """The number of histories whose outcome differs between cuts."""
    count = 0
    for chance, log in histories():
        outcomes = [outcome([log]), *(outcome(slices(chance, log)) for _ in range(CUTS))]
        count += any(one != outcomes[0] for one in outcomes)
    return count


def read_windows(cut: list[list[Record]], column: str, behind: float) -> tuple[Counter[int], int]:
    """Rows in each closed window of a reader of windows, and how many rows it refused as late.

    Args:
        cut: slices of the first topology.
        column: the reader's time.
        behind: how far behind its frontier a commit says that its rows are final.
    """
    frontiers, still, final_to = Frontiers(), Counter[int](), float("-inf")
    counts, late = Counter[int](), 0
    for records in cut:
        for record in records:
            end = record.time // SIZE * SIZE + SIZE
            if end > frontiers.pass_by(record):
                still[end] += 1
        for end in sorted(end for end in still if end <= frontiers.of(0, 1)):
            time = {"window_end": end, "window_start": end - SIZE}[column]
            window = time // READ_SIZE * READ_SIZE
            if window + READ_SIZE <= final_to:
                late += 1
            else:
                counts[window] += still[end]
            del still[end]
        final_to = frontiers.of(0, 1) - behind
    return counts, late


def windows_behind(column: str) -> float:
    """How far behind its frontier a window says that a column of its rows may be, in the units of the histories."""
    source = Source(topic="ticks", schema="id STRING", grace=f"{GRACE} seconds")
    counts = {"n": agg.count()}
    declared = tumbling_window(source, key="id", size=f"{SIZE} seconds", aggregates=counts, table="open")
    return declared.final.times[column] / 1000


@pytest.mark.parametrize("column", ["window_start", "window_end"])
def test_a_reader_that_closes_by_final_rows_refuses_none_under_any_cut(column: str) -> None:
    behind = windows_behind(column)

    assert differing(lambda cut: read_windows(cut, column, behind)[0]) == 0
    assert differing(lambda cut: read_windows(cut, column, behind)[1]) == 0
    assert read_windows([next(histories())[1]], column, behind)[1] == 0


def test_a_reader_that_closes_by_commit_frontiers_depends_on_cuts() -> None:
    assert windows_behind("window_start") == SIZE
    assert differing(lambda cut: read_windows(cut, "window_start", 0)) > HISTORIES / 2


def unmatched(cut: list[list[Record]], sides: Sequence[int]) -> list[tuple[int, int]]:
    """Left rows without a partner in the order in which they are emitted: side 0 is the left one.

    Args:
        cut: slices of both topics.
        sides: whose frontiers a row waits for.
    """
    frontiers, offset = Frontiers(), 0
    waiting: list[tuple[int, int]] = []
    emitted: list[tuple[int, int]] = []
    for records in cut:
        for record in records:
            frontier = frontiers.pass_by(record)
            if record.of == 0:
                if record.time >= frontier:
                    waiting.append((record.time + WITHIN, offset))
                offset += 1
        final = sorted(row for row in waiting if row[0] < frontiers.of(*sides))
        emitted += final
        waiting = [row for row in waiting if row not in final]
    return emitted


def test_unmatched_rows_that_wait_for_both_sides_keep_one_order_under_any_cut() -> None:
    assert differing(lambda cut: unmatched(cut, (0, 1))) == 0
    assert all(rows == sorted(rows) and rows for rows in (unmatched([log], (0, 1)) for _, log in histories()))


def test_unmatched_rows_that_wait_only_for_the_other_side_depend_on_cuts() -> None:
    assert differing(lambda cut: unmatched(cut, (1,))) > HISTORIES / 2


@pytest.mark.parametrize(
    ("times", "counts", "released", "expected"),
    [
        ({0: 5_000}, {0: 1}, [], "event time 00:05"),
        ({0: 5_000, 1: 9_000}, {0: 0, 1: 1}, [], "event time 00:05, held by pos[0]; the furthest is at 00:09"),
        ({0: 5_000, 1: 5_000}, {0: 0, 1: 1}, [], "event time 00:05, held by pos[1]; the furthest is at 00:05"),
        ({0: 5_000, 1: 9_000}, {0: 0, 1: 1}, [0], "event time 00:05; the furthest is at 00:09"),
        (
            {0: 5_000, 1: 9_000, 2: 7_000},
            {0: 0, 1: 1, 2: 1},
            [0],
            "event time 00:05, held by pos[2]; the furthest is at 00:09",
        ),
        (
            {0: 5_000},
            {0: 1, 1: 0},
            [],
            "no event time, held by pos[1], which has no record yet; the furthest is at 00:05",
        ),
        ({}, {0: 0}, [], ""),
    ],
)
def test_what_holds_event_time_back_is_a_partition_that_is_waited_for(
    times: dict[int, int], counts: dict[int, int], released: list[int], expected: str
) -> None:
    line = described({"pos": times}, {("pos", number): count for number, count in counts.items()}, {"pos": released})
    assert re.sub(r"1970-01-01T00:(\d\d:\d\d)\.000Z", r"\1", line) == expected
