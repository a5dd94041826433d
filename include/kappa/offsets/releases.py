"""Releases: offsets from which a partition counts as further than its own records show.

A partition without new records then no longer holds the frontier back, and an added partition does not reopen a closed
window. A live slice makes them, since only a live stream knows that nothing arrived. From then on they are input: a
slice's plan has them, roll-ups and seeds keep them, and every other run of the same offsets copies them. From the
release's offset on, the stream time of the partition is at least that of the release, also for late records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kappa.offsets.vector import OffsetRange, Offsets, TopicPartition, ranges_end

#: Topic -> partition -> next offset of the partition -> its least stream time from there on, epoch milliseconds.
Releases = Mapping[str, Mapping[int, Mapping[int, int]]]


def merged(several: Iterable[Releases]) -> Releases:
    """All of them; if two have the same offset, the greater time counts."""
    return _of(one for releases in several for one in _each(releases))


def that_may_hold(several: Iterable[Releases], stream_times: Mapping[str, Mapping[int, int]]) -> Releases:
    """Those whose time a partition's stream time has not passed: the others change nothing in later slices.

    Args:
        several: the releases.
        stream_times: topic -> partition -> stream time, epoch milliseconds.
    """
    return _of(
        (at, offset, ms)
        for releases in several
        for at, offset, ms in _each(releases)
        if ms >= stream_times.get(at[0], {}).get(at[1], ms)
    )


def up_to(releases: Releases, end: Offsets, *, at_end: bool) -> Releases:
    """Releases before an end; with ``at_end`` also those at the end, which affect the next record."""
    return _of(
        (at, offset, ms)
        for at, offset, ms in _each(releases)
        if offset < _next(end, at) or (at_end and offset == _next(end, at))
    )


def unknown(releases: Releases, others: Releases) -> Releases:
    """Releases that are not among the others, or have a lesser time there."""
    times = {(at, offset): ms for at, offset, ms in _each(others)}
    return _of((at, offset, ms) for at, offset, ms in _each(releases) if ms > times.get((at, offset), ms - 1))


def of_live_slice(
    ranges: Sequence[OffsetRange],
    position: Offsets,
    idle_after: Mapping[str, int | None],
    stream_times: Mapping[str, Mapping[int, int]],
    stable: Callable[[], Offsets],
) -> Releases:
    """The releases of a live slice: of its idle partitions, and of those that were added to a topic.

    Args:
        ranges: the ranges of the slice.
        position: where the commit before ended, in the partitions that there were.
        idle_after: topic with event time -> by how much a partition's may be behind, milliseconds; None for a topic
            without idle partitions.
        stream_times: topic -> partition -> stream time after the commit before, epoch milliseconds.
        stable: looks up the last stable offset of each partition; called only if one may be idle.
    """
    late = behind(ranges, idle_after, stream_times)
    ends = stable() if late else Offsets()
    idle = {at: offset for at, offset in late.items() if ends.get(*at) == offset}
    added = of_added(ranges, position, idle_after, stream_times)
    return merged([of_idle(ranges, idle, idle_after, stream_times), added])


def behind(
    ranges: Sequence[OffsetRange], idle_after: Mapping[str, int | None], stream_times: Mapping[str, Mapping[int, int]]
) -> dict[TopicPartition, int]:
    """Partitions without records in a slice whose event time is too far behind, with their next offset.

    A partition that never had a record always counts as too far behind.

    Args:
        ranges: the ranges of the slice.
        idle_after: topic with event time -> by how much a partition's may be behind, milliseconds; None for a topic
            without idle partitions.
        stream_times: topic -> partition -> stream time after the commit before, epoch milliseconds.
    """
    greatest = max((ms for parts in stream_times.values() for ms in parts.values()), default=None)
    late: dict[TopicPartition, int] = {}
    for range_ in ranges:
        most = idle_after.get(range_.topic)
        if range_.count or most is None or greatest is None:
            continue
        own = stream_times.get(range_.topic, {}).get(range_.partition)
        if own is None or greatest - own > most:
            late[range_.at] = range_.end
    return late


def of_idle(
    ranges: Sequence[OffsetRange],
    idle: Mapping[TopicPartition, int],
    idle_after: Mapping[str, int | None],
    stream_times: Mapping[str, Mapping[int, int]],
) -> Releases:
    """The releases of a live slice: each idle partition gets the least stream time of the others.

    Args:
        ranges: the ranges of the slice.
        idle: partitions of :func:`behind` that are at their stable end, looked up after the ranges were chosen.
        idle_after: as there.
        stream_times: as there.
    """
    awake = [
        stream_times.get(range_.topic, {}).get(range_.partition)
        for range_ in ranges
        if range_.topic in idle_after and range_.at not in idle
    ]
    times = [ms for ms in awake if ms is not None]
    if not times or len(times) < len(awake):
        return {}
    least = min(times)
    return _of(
        (at, offset, least) for at, offset in idle.items() if stream_times.get(at[0], {}).get(at[1], least - 1) < least
    )


def of_added(
    ranges: Sequence[OffsetRange],
    position: Offsets,
    idle_after: Mapping[str, int | None],
    stream_times: Mapping[str, Mapping[int, int]],
) -> Releases:
    """The releases of partitions that were added to a topic: times that the others have passed count as passed for them
    too.

    Otherwise a record in a new partition would reopen closed windows.

    Args:
        ranges: the ranges of the slice.
        position: where the commit before ended, in the partitions that there were.
        idle_after: as for :func:`behind`; topics that it does not name have no event time.
        stream_times: as there.
    """
    items = []
    for range_ in ranges:
        if range_.topic not in idle_after or range_.at in position:
            continue
        reached = [stream_times.get(range_.topic, {}).get(other) for other in position.partitions(range_.topic)]
        times = [ms for ms in reached if ms is not None]
        if times and len(times) == len(reached):
            items.append((range_.at, range_.start, min(times)))
    return _of(items)


def copied(several: Iterable[tuple[Offsets, Releases]], earlier: Releases, ranges: Sequence[OffsetRange]) -> Releases:
    """The releases that a slice copies from another epoch.

    All releases before its end are copied. Of releases at its end, only those that the other epoch had already made at
    that position are copied, so that both have the same at equal offsets.

    Args:
        several: where the other epoch stood after each of its slices, with the releases of that slice.
        earlier: releases that earlier slices copied.
        ranges: the ranges of the slice.
    """
    end = ranges_end(ranges)
    parts = [
        up_to(releases, end, at_end=end.beside(standing).dominates(standing.beside(end)))
        for standing, releases in several
    ]
    return unknown(merged(parts), earlier)


def as_of(several: Iterable[Releases], end: Offsets, stream_times: Mapping[str, Mapping[int, int]]) -> Releases:
    """The releases that the stream times of a commit include, out of all that its epoch has made, even later.

    Args:
        several: the releases.
        end: end of the commit's slice.
        stream_times: stream times of the commit.
    """
    items = []
    for at, offset, ms in _each(up_to(merged(several), end, at_end=True)):
        reached = ms if offset < _next(end, at) else stream_times.get(at[0], {}).get(at[1])
        if reached is not None:
            items.append((at, offset, min(ms, reached)))
    return _of(items)


def times_after(stream_times: Mapping[int, int], by_partition: Mapping[int, Mapping[int, int]]) -> dict[int, int]:
    """Stream times of a topic's partitions after all of these releases."""
    times = dict(stream_times)
    for partition, by_offset in by_partition.items():
        for ms in by_offset.values():
            times[partition] = max(ms, times.get(partition, ms))
    return times


def as_dict(releases: Releases) -> dict[str, dict[str, dict[str, int]]]:
    """For JSON, whose keys are text."""
    return {
        topic: {
            str(partition): {str(offset): ms for offset, ms in sorted(by_offset.items())}
            for partition, by_offset in sorted(parts.items())
        }
        for topic, parts in sorted(releases.items())
    }


def releases_detail(releases: Releases) -> dict[str, Any]:
    """The entry of releases in a ledger row's detail; empty if there are none."""
    return {"releases": as_dict(releases)} if releases else {}


def from_dict(values: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[str, dict[int, dict[int, int]]]:
    """The inverse of :func:`as_dict`."""
    return {
        topic: {
            int(partition): {int(offset): ms for offset, ms in by_offset.items()}
            for partition, by_offset in parts.items()
        }
        for topic, parts in values.items()
    }


def _next(end: Offsets, at: TopicPartition) -> int:
    return end.get(*at) or 0


def _each(releases: Releases) -> Iterable[tuple[TopicPartition, int, int]]:
    """Partition, offset and time of each."""
    for topic, parts in releases.items():
        for partition, by_offset in parts.items():
            for offset, ms in by_offset.items():
                yield (topic, partition), offset, ms


def _of(items: Iterable[tuple[TopicPartition, int, int]]) -> Releases:
    releases: dict[str, dict[int, dict[int, int]]] = {}
    for (topic, partition), offset, ms in items:
        times = releases.setdefault(topic, {}).setdefault(partition, {})
        times[offset] = max(ms, times.get(offset, ms))
    return releases
