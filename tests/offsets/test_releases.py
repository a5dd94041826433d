"""Releases of idle partitions: made by a live stream, and the same for every other run of the same offsets."""

from __future__ import annotations

import json
import random

import numpy as np
from support.growth import calls

from kappa.offsets import floors, releases
from kappa.offsets.releases import Releases
from kappa.offsets.vector import OffsetRange, Offsets, ranges_end
from kappa.wire.running_times import StreamTime

TOPICS = {"left": 1_000, "right": None}
START = Offsets.from_json({"left": {"0": 0, "1": 0}, "right": {"0": 0}})


def spans(*read: tuple[str, int, int, int]) -> list[OffsetRange]:
    return [OffsetRange(topic=topic, partition=p, start=start, end=end) for topic, p, start, end in read]


def released(ranges: list[OffsetRange], times: dict[str, dict[int, int]], **ends: int) -> Releases:
    """Releases of a live slice; partitions of ``left`` end at ``p0`` and ``p1``, by default at the slice's end."""
    end = ranges_end(ranges)
    stable = Offsets.of((at, ends.get(f"p{at[1]}", offset)) for at, offset in end.items())
    return releases.of_live_slice(ranges, end, TOPICS, times, lambda: stable)


def test_a_partition_too_far_behind_gets_the_least_time_of_the_others() -> None:
    ranges = spans(("left", 0, 5, 9), ("left", 1, 3, 3), ("right", 0, 2, 2))
    times = {"left": {0: 9_000, 1: 2_000}, "right": {0: 7_500}}

    assert released(ranges, times) == {"left": {1: {3: 7_500}}}
    assert released(ranges, times, p1=4) == {}, "a record is there that no slice has read"
    assert released(spans(("left", 0, 5, 9), ("left", 1, 3, 4), ("right", 0, 2, 2)), times) == {}, "the slice has one"


def test_a_partition_less_far_behind_holds_the_others_back() -> None:
    ranges = spans(("left", 0, 5, 9), ("left", 1, 3, 3))
    assert released(ranges, {"left": {0: 3_000, 1: 2_000}}) == {}
    assert released(ranges, {"left": {0: 3_001, 1: 2_000}}) == {"left": {1: {3: 3_001}}}


def test_a_partition_without_records_is_idle_once_another_has_a_time() -> None:
    ranges = spans(("left", 0, 0, 9), ("left", 1, 0, 0))
    assert released(ranges, {}) == {}
    assert released(ranges, {"left": {0: 5}}) == {"left": {1: {0: 5}}}


def test_nothing_is_released_while_an_active_partition_has_no_time() -> None:
    ranges = spans(("left", 0, 5, 9), ("left", 1, 3, 3), ("right", 0, 0, 1))
    assert released(ranges, {"left": {0: 9_000, 1: 2_000}}) == {}


def test_an_added_partition_starts_at_the_time_of_the_others() -> None:
    ranges = spans(("left", 0, 5, 9), ("left", 1, 3, 3), ("left", 2, 0, 4), ("other", 0, 0, 1))
    position = Offsets.from_json({"left": {"0": 5, "1": 3}})
    times = {"left": {0: 9_000, 1: 2_000}}
    assert releases.of_added(ranges, position, TOPICS, times) == {"left": {2: {0: 2_000}}}
    assert releases.of_added(ranges, position, TOPICS, {"left": {0: 9_000}}) == {}, "nothing is closed yet"
    assert releases.of_added(ranges, Offsets(), TOPICS, times) == {}


def test_partitions_that_were_there_are_not_compared_with_one_another() -> None:
    def slice_of(partitions: int) -> None:
        ranges = spans(*(("left", partition, 5, 9) for partition in range(partitions)), ("left", partitions, 0, 1))
        times, position = dict.fromkeys(range(partitions), 2_000), ranges_end(ranges[:-1])
        own_floors = {"left": {partition: {5: 1_000} for partition in times}}
        assert releases.of_added(ranges, position, TOPICS, {"left": times}) == {"left": {partitions: {0: 2_000}}}
        assert floors.of_added(ranges, position, own_floors) == {"left": {partitions: {0: 1_000}}}

    assert calls(lambda: slice_of(200)) < 6 * calls(lambda: slice_of(50))


def test_releases_that_stream_time_has_passed_change_no_later_slice() -> None:
    draw = random.Random(5)
    for _ in range(200):
        offsets, times = sorted(draw.sample(range(20), 6)), sorted(draw.choices(range(10), k=6))
        own = dict(zip(offsets, times, strict=True))
        passed = draw.choice([None, *range(11)])
        reached = {} if passed is None else {1: passed}
        holding = releases.that_may_hold([{"left": {1: own}}], {"left": reached}).get("left", {})
        assert len(holding.get(1, {})) <= len(own)
        partitions, records = np.ones(20, dtype=np.int64), np.arange(20)
        moves = np.array(draw.choices([True, False], k=20))
        follow = [
            StreamTime(reached, some).follow(partitions, records, records * 400, moves) for some in ({1: own}, holding)
        ]
        assert all((one == other).all() for one, other in zip(*follow, strict=True))
        assert releases.times_after(reached, {1: own}) == releases.times_after(reached, holding)


def test_the_greater_of_two_times_at_one_offset_counts() -> None:
    merged = releases.merged([{"left": {1: {3: 50}}}, {"left": {1: {3: 70, 9: 80}}}, {"left": {1: {3: 60}}}])
    assert merged == {"left": {1: {3: 70, 9: 80}}}
    assert releases.unknown(merged, {"left": {1: {3: 70, 9: 79}}}) == {"left": {1: {9: 80}}}
    assert releases.from_dict(json.loads(json.dumps(releases.as_dict(merged)))) == merged


def test_a_savepoint_has_the_releases_up_to_it() -> None:
    later = [{"left": {1: {3: 70, 9: 80, 12: 90}}}, {"left": {1: {9: 95}}}]
    end = Offsets.from_json({"left": {"0": 4, "1": 9}})
    assert releases.as_of(later, end, {"left": {0: 100, 1: 85}}) == {"left": {1: {3: 70, 9: 85}}}
    assert releases.as_of(later, end, {}) == {"left": {1: {3: 70}}}


class Run:
    """Stream times at each record and after each slice, computed from releases with plain dictionaries."""

    def __init__(self, log: dict[tuple[str, int], list[int]]) -> None:
        self.log = log
        self.end = START
        self.times: dict[str, dict[int, int]] = {}
        self.slices: list[tuple[Offsets, Releases]] = []
        self.at_records: dict[tuple[str, int, int], int] = {}
        self.after: dict[str, dict[str, dict[int, int]]] = {}

    def read(self, end: Offsets, slice_releases: Releases) -> None:
        for range_ in self.end.span_to(end):
            times_of_topic = self.times.setdefault(range_.topic, {})
            by_offset = slice_releases.get(range_.topic, {}).get(range_.partition, {})
            for offset in range(range_.start, range_.end + 1):
                times = [ms for at, ms in by_offset.items() if at <= offset]
                times += [times_of_topic[range_.partition]] if range_.partition in times_of_topic else []
                if offset < range_.end:
                    times.append(self.log[range_.at][offset])
                if times:
                    times_of_topic[range_.partition] = max(times)
                if offset < range_.end:
                    self.at_records[range_.topic, range_.partition, offset] = times_of_topic[range_.partition]
        self.end = end
        self.slices.append((end, slice_releases))
        self.after[end.to_json()] = {topic: dict(parts) for topic, parts in self.times.items()}

    def live(self, end: Offsets, there: Offsets) -> None:
        ranges = self.end.span_to(end)
        self.read(end, releases.of_live_slice(ranges, self.end, TOPICS, self.times, lambda: there))

    def copy(self, other: Run, end: Offsets) -> None:
        known_releases = releases.merged(one for _, one in self.slices)
        self.read(end, releases.copied(other.slices, known_releases, self.end.span_to(end)))


def rolled_up(slices: list[tuple[Offsets, Releases]], most: int) -> list[tuple[Offsets, Releases]]:
    """The first ``most`` slices as one."""
    return [(slices[most - 1][0], releases.merged(one for _, one in slices[:most])), *slices[most:]] if most else slices


def test_another_run_of_the_same_offsets_has_the_same_frontiers() -> None:
    assert sum(has_equal_frontiers(seed) for seed in range(120)) > 60, "few histories released anything"


def has_equal_frontiers(seed: int) -> bool:
    """Compares a replay of a random history with its live stream; whether that released anything."""
    chance = random.Random(seed)
    log = {at: sorted(chance.sample(range(20_000), 40)) for at, _ in START.items()}
    for times in log.values():  # some out of order
        for _ in range(10):
            a, b = chance.sample(range(40), 2)
            times[a], times[b] = times[b], times[a]
    live, there = Run(log), START
    while live.end.count_to(Offsets.of((at, 40) for at, _ in START.items())):
        paces = {at: chance.choice([0, 0, 1, 6]) for at, _ in START.items()}
        there = Offsets.of((at, min(40, offset + paces[at])) for at, offset in there.items())
        behind = Offsets.of((at, chance.choice([offset, there[at]])) for at, offset in live.end.items())
        if behind != live.end:
            live.live(behind, there)

    replay = Run(log)
    count = len(live.slices)
    live.slices = rolled_up(live.slices, chance.randrange(count))
    goals = [end for end, _ in live.slices]
    replay_to = chance.randrange(len(goals))
    while replay.end != goals[replay_to]:  # slices of its own, in bulk
        steps = {at: chance.randrange(8) for at, _ in START.items()}
        replay.copy(
            live, Offsets.of((at, min(goals[replay_to][at], offset + steps[at])) for at, offset in replay.end.items())
        )
    for end in goals[replay_to:]:  # it follows
        replay.copy(live, end)
        assert replay.after[end.to_json()] == live.after[end.to_json()], seed
    assert replay.at_records == live.at_records, seed
    return any(one for _, one in live.slices)
