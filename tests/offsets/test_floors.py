"""Floors of frontiers: where a longer grace, and a partition that was added, leave the frontier."""

from __future__ import annotations

from kappa.offsets.floors import least_frontiers, of_added, of_longer_grace, that_hold
from kappa.offsets.vector import OffsetRange, Offsets

POSITION = Offsets.from_json({"pos": {"0": 5, "1": 3, "2": 0}})
TIMES = {"pos": {0: 75_000, 1: 90_000}}


def test_a_longer_grace_records_the_frontier_of_each_partition() -> None:
    floors = of_longer_grace(POSITION, TIMES, {"pos": 10_000}, {"pos": 60_000}, {})
    assert floors == {"pos": {0: {5: 65_000}, 1: {3: 80_000}}}, "a partition without records has closed nothing"


def test_an_equal_or_shorter_grace_records_nothing() -> None:
    for grace in (10_000, 9_999):
        assert of_longer_grace(POSITION, TIMES, {"pos": 10_000}, {"pos": grace}, {}) == {}
    assert of_longer_grace(POSITION, TIMES, {}, {"pos": 60_000}, {}) == {}


def test_a_second_longer_grace_keeps_a_floor_still_in_force() -> None:
    before = {"pos": {0: {4: 65_000}, 1: {3: 20_000}}}
    after = of_longer_grace(POSITION, TIMES, {"pos": 60_000}, {"pos": 90_000}, before)
    assert after == {"pos": {0: {5: 65_000}, 1: {3: 30_000}}}


def test_an_added_partition_has_the_least_floor_of_the_others() -> None:
    position = Offsets.from_json({"pos": {"0": 5, "1": 3}})
    ranges = [OffsetRange(topic="pos", partition=p, start=s, end=9) for p, s in ((0, 5), (1, 3), (2, 0))]
    floors = {"pos": {0: {5: 65_000}, 1: {3: 80_000}}}
    assert of_added(ranges, position, floors) == {"pos": {2: {0: 65_000}}}
    assert of_added(ranges, position, {"pos": {0: {5: 65_000}}}) == {}, "partition 1 is held by none"
    assert of_added(ranges, position, {}) == of_added(ranges[:2], position, floors) == {}


def test_a_floor_ends_once_stream_time_has_passed_it() -> None:
    floors = {"pos": {0: {5: 65_000}, 1: {3: 80_000}}}
    assert least_frontiers(floors["pos"]) == {0: 65_000, 1: 80_000}
    assert that_hold(floors, {"pos": {0: 125_000, 1: 139_999}}, {"pos": 60_000}) == {"pos": {1: 80_000}}
