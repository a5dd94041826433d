"""Floors: offsets from which the frontier of a partition may not be lower than before.

A longer grace would move frontiers back, to before windows that operators have already closed. So it takes effect from
the old frontier on: the change of code records the frontier of each partition. Floors have the form of releases and are
also input: ledgers keep them, and every other run of the same offsets copies them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kappa.offsets.releases import as_dict
from kappa.offsets.vector import OffsetRange, Offsets

#: Topic -> partition -> next offset of the partition -> its least frontier from there on, epoch milliseconds.
Floors = Mapping[str, Mapping[int, Mapping[int, int]]]


def least_frontiers(by_partition: Mapping[int, Mapping[int, int]]) -> dict[int, int]:
    """The least frontier of each partition by all floors of a topic, epoch milliseconds."""
    return {partition: max(by_offset.values()) for partition, by_offset in by_partition.items() if by_offset}


def of_longer_grace(
    position: Offsets,
    stream_times: Mapping[str, Mapping[int, int]],
    before: Mapping[str, int],
    after: Mapping[str, int],
    floors: Floors,
) -> dict[str, dict[int, dict[int, int]]]:
    """The floors of a longer grace: the present frontier of each partition.

    Args:
        position: where the last slice with the old grace ends.
        stream_times: topic -> partition -> stream time there, epoch milliseconds.
        before: topic -> its grace up to there, milliseconds.
        after: topic -> its grace from there on.
        floors: those that hold already.
    """
    new: dict[str, dict[int, dict[int, int]]] = {}
    for topic in sorted(before.keys() & after.keys()):
        if after[topic] <= before[topic]:
            continue
        least = least_frontiers(floors.get(topic, {}))
        for partition, reached in stream_times.get(topic, {}).items():
            frontier = reached - before[topic]
            at = position.get(topic, partition) or 0
            new.setdefault(topic, {})[partition] = {at: max(frontier, least.get(partition, frontier))}
    return new


def of_added(ranges: Sequence[OffsetRange], position: Offsets, floors: Floors) -> dict[str, dict[int, dict[int, int]]]:
    """The floors of partitions that were added to a topic: the least floor of the others, by which rows were closed.

    Args:
        ranges: the ranges of a slice.
        position: where the commit before ended, in the partitions that there were.
        floors: those that hold already.
    """
    new: dict[str, dict[int, dict[int, int]]] = {}
    for range_ in ranges:
        if range_.at in position:
            continue
        others, least = position.partitions(range_.topic), least_frontiers(floors.get(range_.topic, {}))
        if not others or not all(partition in least for partition in others):
            continue
        lowest = min(least[partition] for partition in others)
        new.setdefault(range_.topic, {})[range_.partition] = {range_.start: lowest}
    return new


def that_hold(
    floors: Floors, stream_times: Mapping[str, Mapping[int, int]], graces: Mapping[str, int]
) -> dict[str, dict[int, int]]:
    """Topic -> partition -> its least frontier, if stream time and grace alone would give a lower one.

    Args:
        floors: those up to a commit.
        stream_times: of the commit.
        graces: topic -> its grace, milliseconds.
    """
    effective: dict[str, dict[int, int]] = {}
    for topic, by_partition in floors.items():
        for partition, least in least_frontiers(by_partition).items():
            reached = stream_times.get(topic, {}).get(partition)
            if reached is None or topic not in graces or least > reached - graces[topic]:
                effective.setdefault(topic, {})[partition] = least
    return effective


def floors_detail(floors: Floors) -> dict[str, Any]:
    """The entry of floors in a ledger row's detail; empty if there are none."""
    return {"floors": as_dict(floors)} if floors else {}
