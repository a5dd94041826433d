"""Cutting bounded work by time: where the next slice ends.

Records are totally ordered by (running maximum of the timestamp in their partition, topic, partition, offset). In each
partition, every record before the first offset whose timestamp reaches T is below T in that order, and none after it
is. Cutting all partitions at one T therefore gives a prefix of the order, for any timestamps. So slices of any size see
the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from kappa.errors import DataLossError
from kappa.offsets.vector import Offsets, TopicPartition

#: Time in milliseconds, and offsets from which to search -> for each partition the first offset from there on that a
#: reader under ``read_committed`` sees and whose timestamp is not before the time; the partition's end if there is
#: none.
TimeIndex = Callable[[int, Offsets], Offsets]

_FIRST_STEP_MS = 60_000
_END_OF_TIME_MS = 2**63
#: Share of a whole slice that a guess aims at, so that callers with a slack of a tenth accept it immediately.
_NEARLY = 0.95
_SOME_TIME_MS = 2**40  # November 2004: a first guess costs a few look-ups when it is wrong


def next_cut(
    index: TimeIndex,
    position: Offsets,
    end: Offsets,
    *,
    max_records: int,
    reached_ms: Mapping[TopicPartition, int] | None = None,
    near_ms: int | None = None,
    slack: int = 0,
) -> Offsets:
    """The end of the slice that starts at ``position``.

    It is the furthest cut at a whole millisecond that spans at most ``max_records`` offsets. If the records of one
    millisecond exceed that, the cut is among them, by (topic, partition, offset).

    Args:
        index: looks times up; called about twenty times, far fewer with ``slack`` and ``near_ms``.
        position: where the slice starts.
        end: where bounded work ends; it names every partition.
        max_records: most offsets that the slice may span.
        reached_ms: running maximum of the timestamp before ``position``, from the ledger. A partition that is not named
            has none. It is needed if retention or the start of the replay hides an earlier maximum.
        near_ms: a guess at the time of the cut; a bad one costs look-ups and changes nothing.
        slack: stop the search as soon as a cut falls short of ``max_records`` by at most this many offsets.

    Returns:
        A prefix of the order of the records from ``position`` to ``end``; after ``position`` unless that is the end.

    Raises:
        DataLossError: ``end`` is before ``position``.
        ValueError: ``max_records`` is not positive.
    """
    if max_records < 1:
        raise ValueError(f"A slice of {max_records} offsets would never end.")
    reached = reached_ms or {}

    @cache
    def cut(time_ms: int) -> Offsets:
        return _cut_at(time_ms, index, position, end, reached)

    def fits(time_ms: int) -> bool:
        return position.count_to(cut(time_ms)) <= max_records

    if position.count_to(end) <= max_records:
        return end
    if not fits(0):  # records older than 1970 or without a timestamp
        return _inside(position, cut(0), max_records)
    shortfall = min(slack, max_records - 1)  # never accept an empty slice

    def is_enough(time_ms: int) -> bool:
        return 0 <= max_records - position.count_to(cut(time_ms)) <= shortfall

    guess = _first_guess(near_ms, reached)
    if is_enough(guess):
        return cut(guess)
    low, high = _bracket(fits, guess)
    halve = False
    while high - low > 1 and not is_enough(low):
        time_ms = (low + high) // 2 if halve else _interpolated(low, high, position, cut, max_records)
        width = high - low
        low, high = (time_ms, high) if fits(time_ms) else (low, time_ms)
        # Interpolation is quick if records are spread evenly, and slow if they are not.
        halve = not halve and (high - low) * 2 > width
    if position.count_to(cut(low)) == 0:
        return _inside(position, cut(high), max_records)
    return cut(low)


def likely_ms(reached: Sequence[Mapping[TopicPartition, int]], span: int, max_records: int) -> int | None:
    """A little before the time at which the next slice will end, if records are as dense as in the last one.

    Args:
        reached: running maxima of the timestamp before and after the last slice; fewer while there is none.
        span: offsets that it spanned.
        max_records: most offsets that the next slice may span.

    Returns:
        Epoch milliseconds; None without a basis for a guess.
    """
    if len(reached) < 2 or span <= 0:
        return None
    before, now = map(_median_ms, reached)
    return None if before is None or now is None else now + round((now - before) * _NEARLY * max_records / span)


@dataclass(frozen=True, kw_only=True)
class Spread:
    """The distribution of records in time between two places, from the records at both: enough to guess where a first
    slice ends.

    Attributes:
        start: the first place.
        end: the second place.
        first_ms: time of the records at the start, epoch milliseconds.
        last_ms: time of the last records before the end.
    """

    start: Offsets
    end: Offsets
    first_ms: int
    last_ms: int

    def likely_ms(self, position: Offsets, max_records: int) -> int | None:
        """A little before the time at which a slice from ``position`` on will end; None if that is another log."""
        try:
            before, total = self.start.count_to(position), self.start.count_to(self.end)
        except DataLossError:
            return None
        share = (before + max_records * _NEARLY) / total if total else 1.0
        return self.first_ms + round((self.last_ms - self.first_ms) * min(share, 1.0))


def _cut_at(
    time_ms: int, index: TimeIndex, position: Offsets, end: Offsets, reached: Mapping[TopicPartition, int]
) -> Offsets:
    """All records whose running maximum is below ``time_ms``."""
    if time_ms >= _END_OF_TIME_MS:
        return end
    if all(reached.get(at, -1) >= time_ms for at, _ in end.items()):
        return Offsets.of((at, position.get(*at) or 0) for at, _ in end.items())
    # A record with a time in the future may lie before the start of a replay: it does not belong to this order, but
    # Kafka would answer with it.
    waiting = Offsets.of((at, position.get(*at) or 0) for at, _ in end.items() if reached.get(at, -1) < time_ms)
    offsets = index(time_ms, waiting)

    def one(at: TopicPartition, last: int) -> int:
        start = position.get(*at) or 0
        if reached.get(at, -1) >= time_ms:
            return start
        return min(max(offsets.get(*at) or 0, start), last)

    return Offsets.of((at, one(at, last)) for at, last in end.items())


def _inside(position: Offsets, upper: Offsets, max_records: int) -> Offsets:
    """The first ``max_records`` offsets up to ``upper``, one partition after the other."""
    rest = max_records
    offsets = dict(upper.items())
    for range_ in position.span_to(upper):
        share = min(rest, range_.count)
        offsets[range_.at] = range_.start + share
        rest -= share
    return Offsets.of(offsets.items())


def _first_guess(near_ms: int | None, reached: Mapping[TopicPartition, int]) -> int:
    if near_ms is not None:
        return max(near_ms, 1)
    median = _median_ms(reached)
    return _SOME_TIME_MS if median is None else median + 1


def _median_ms(reached: Mapping[TopicPartition, int]) -> int | None:
    """The median: one partition with a timestamp of the year 2099 must not mislead the search."""
    times = sorted(time_ms for time_ms in reached.values() if time_ms > 0)
    return times[len(times) // 2] if times else None


def _bracket(fits: Callable[[int], bool], guess: int) -> tuple[int, int]:
    """Two times, by growing steps from the guess: the earlier one fits, the later one does not."""
    step = _FIRST_STEP_MS
    low = high = min(guess, _END_OF_TIME_MS - 1)
    if fits(low):
        while fits(high):
            low, high, step = high, min(high + step, _END_OF_TIME_MS), step * 4
    else:
        while not fits(low):
            low, high, step = max(low - step, 0), low, step * 4
    return low, high


def _interpolated(low: int, high: int, position: Offsets, cut: Callable[[int], Offsets], max_records: int) -> int:
    below, above = position.count_to(cut(low)), position.count_to(cut(high))
    guess = low + (high - low) * (max_records - below) // (above - below)
    return min(max(guess, low + 1), high - 1)
