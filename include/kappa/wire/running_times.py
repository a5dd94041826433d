"""Times that run along the records of a partition: the largest timestamp so far, and the stream time.

Both go on from batch to batch, in a task of Spark and in the driver's memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from kappa.errors import Terminal

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: Below the time of any record.
NEVER = np.iinfo(np.int64).min
#: Partition -> offset -> least stream time from there on, epoch milliseconds.
Released = Mapping[int, Mapping[int, int]]


class RunningMaximum:
    """Largest timestamp so far of each partition, in microseconds, kept from batch to batch.

    Spark's Kafka reader gives a task the records of one partition in the order of their offsets, and a partition to one
    task, as long as neither ``minPartitions`` nor ``maxRecordsPerPartition`` is set. The order is checked here.
    """

    def __init__(self, before: Mapping[int, int]) -> None:
        self._largest = dict(before)
        self._last: dict[int, int] = {}

    def follow(self, partitions: Ints, offsets: Ints, times: Ints) -> Ints:
        """The running maximum at each of the next records.

        Raises:
            Terminal: the offsets of a partition do not grow.
        """
        largest = np.empty_like(times)
        for start, end in runs(partitions):
            partition = int(partitions[start])
            run = offsets[start:end]
            if run[0] <= self._last.get(partition, -1) or (np.diff(run) <= 0).any():
                raise Terminal(
                    f"Records of partition {partition} come out of order near offset {int(run[0])}: the running "
                    "maximum of their timestamps would be wrong. Read the topic with one task for each partition.",
                    partition=partition,
                )
            first = max(self._largest.get(partition, int(times[start])), int(times[start]))
            np.maximum.accumulate(times[start:end], out=largest[start:end])
            np.maximum(largest[start:end], first, out=largest[start:end])
            self._largest[partition], self._last[partition] = int(largest[end - 1]), int(run[-1])
        return largest


class StreamTime:
    """Stream time of each partition, in microseconds, kept from batch to batch.

    Good records with a value and releases move it. Null values, dead letters and other records without an event time of
    their own do not.

    Args:
        before: partition -> stream time before the first record, epoch milliseconds.
        released: releases, by partition and offset.
    """

    def __init__(self, before: Mapping[int, int], released: Released) -> None:
        self._reached = {partition: millis * 1000 for partition, millis in before.items()}
        self._released = released

    def follow(self, partitions: Ints, offsets: Ints, own: Ints, moves: Mask) -> tuple[Ints, Mask]:
        """The stream time at each of the next records, and whether a release has set it.

        Args:
            partitions: the records' partitions.
            offsets: the records' offsets.
            own: event time of each record, epoch microseconds; without meaning for records that do not move stream
                time.
            moves: which records move the stream time.

        Returns:
            Epoch microseconds, or the least number while there is no stream time; and whether it comes from a release.
        """
        reached = np.where(moves, own, NEVER)
        is_released = np.zeros(len(own), dtype=np.bool_)
        for start, end in runs(partitions):
            partition = int(partitions[start])
            part = reached[start:end]
            np.maximum.accumulate(part, out=part)
            np.maximum(part, self._reached.get(partition, NEVER), out=part)
            if partition in self._released:
                floor = least_times(self._released[partition], offsets[start:end])
                np.maximum(part, floor, out=part)
                is_released[start:end] = (floor != NEVER) & (floor // 1000 == part // 1000)
            if part[-1] != NEVER:
                self._reached[partition] = int(part[-1])
        return reached, is_released

    def reached(self) -> dict[int, int]:
        """Partition -> stream time after the last record, epoch milliseconds."""
        return {partition: micros // 1000 for partition, micros in self._reached.items()}


def runs(partitions: Ints) -> Iterator[tuple[int, int]]:
    """Begin and end of each run of records of one partition."""
    if not len(partitions):
        return
    starts = np.flatnonzero(np.diff(partitions)) + 1
    yield from zip([0, *starts.tolist()], [*starts.tolist(), len(partitions)], strict=True)


def least_times(by_offset: Mapping[int, int], offsets: Ints) -> Ints:
    """The least time at each of these offsets, microseconds; the least number if none applies yet."""
    at = np.array(sorted(by_offset), dtype=np.int64)
    least = np.array([NEVER, *(by_offset[offset] * 1000 for offset in at)], dtype=np.int64)
    times: Ints = np.maximum.accumulate(least)[np.searchsorted(at, offsets, side="right")]
    return times
