"""Records from a seed: pure, and equal for equal indexes, whatever was generated before."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from kappa.errors import UsageError

Ints = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]

#: Parts of a Kafka record: (key, value, timestamp in ms since 1970). Some have no key; a null value deletes a key.
Generated = tuple[bytes | None, bytes | None, int]
#: Key and value from a scenario; a mapping becomes JSON.
Made = tuple[bytes | None, Mapping[str, Any] | bytes | None]

DEFAULT_START = datetime(2025, 1, 1, tzinfo=UTC)

_BLOCK = 4096
_TAIL_OF_UNIT = 32
_UNIT = 1 << _TAIL_OF_UNIT
_DAY_MS = 86_400_000


@dataclass(frozen=True, kw_only=True)
class Course(ABC):
    """An endless, seeded sequence of records: their number, their times, and how many are bad.

    Attributes:
        seed: another seed gives other records.
        bad_share: share of values that no reader of the schema accepts.
        out_of_order: share whose time is shifted back by up to ``lateness``; one in fifty of them is rogue: years away.
        lateness: the longest ordinary shift.
        rogue_future: whether half of the rogue times lie in the future instead of the past.
        start_time: time of record 0.
        time_step: time between one record and the next.
    """

    seed: int = 1
    bad_share: float = 0.0
    out_of_order: float = 0.0
    lateness: timedelta = timedelta(minutes=10)
    rogue_future: bool = False
    start_time: datetime = DEFAULT_START
    time_step: timedelta = timedelta(milliseconds=100)

    def __post_init__(self) -> None:
        for name in ("bad_share", "out_of_order"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"{name}={getattr(self, name)} is not a share. Give a number from 0 to 1.", name=name)
        if self.start_time.tzinfo is None or self.start_time.timestamp() < 0:
            raise UsageError(
                f"start_time={self.start_time} needs a time zone and a year from 1970 on.", name="start_time"
            )
        if self.time_step < timedelta(0) or self.lateness < timedelta(milliseconds=1):
            raise UsageError("time_step must not be negative and lateness must be 1 ms or more.", name="time_step")

    def records(self, start: int, stop: int) -> Iterator[Generated]:
        """Records ``start`` to ``stop - 1``; equal indexes give equal bytes."""
        for block in range(start, stop, _BLOCK):
            yield from self._block(np.arange(block, min(stop, block + _BLOCK), dtype=np.int64))

    def bad(self, start: int, stop: int) -> int:
        """Number of those records that are intentionally bad."""
        return int(np.count_nonzero(self._is_bad(np.arange(start, stop, dtype=np.int64))))

    @abstractmethod
    def _block(self, index: Ints) -> Iterator[Generated]:
        """The records of these indexes."""

    def _bits(self, index: Ints, field: int) -> Bits:
        salt = ((self.seed << 8) + field) * 0xD1342543DE82EF95 % (1 << 64)
        return mixed(index.astype(np.uint64) ^ np.full(1, salt, dtype=np.uint64))

    def _is_bad(self, index: Ints) -> npt.NDArray[np.bool_]:
        return _unit(self._bits(index, 1)) < int(self.bad_share * _UNIT)

    def _times(self, index: Ints) -> Ints:
        """Times in ms; no shift leads to a time before 1970."""
        step_us = self.time_step // timedelta(microseconds=1)
        times: Ints = (self.start_time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
            milliseconds=1
        ) + index * step_us // 1000
        if not self.out_of_order:
            return times
        bits, shape = self._bits(index, 2), self._bits(index, 3)
        is_late = _unit(bits) < int(self.out_of_order * _UNIT)
        is_rogue = part(shape, 0, 50) == 0
        shift = 1 + part(shape, 8, self.lateness // timedelta(milliseconds=1))
        far = _DAY_MS * (365 + part(shape, 8, 3000))
        if self.rogue_future:
            far = np.where(part(bits, 0, 2) == 0, far, -far)
        return np.maximum(0, times - np.where(is_late, np.where(is_rogue, far, shift), 0))


@dataclass(frozen=True, kw_only=True)
class Block:
    """The indexes of some records, and the random draws for them.

    Attributes:
        index: their indexes.
        times: their times in ms since 1970.
        bits: field, and the indexes to draw for -> well mixed bits.
    """

    index: Ints
    times: list[int]
    bits: Callable[[Ints, int], Bits]

    def draw(self, field: int, size: int, of: Ints | None = None) -> Ints:
        """A number from 0 to ``size - 1`` for each record.

        Args:
            field: number of the draw, 1 to 200; equal fields of equal indexes are equal.
            size: number of possible results.
            of: draw for these indexes instead of the records' own.
        """
        return part(self.bits(self.index if of is None else of, 50 + field), 16, size)


@dataclass(frozen=True, kw_only=True)
class Stream(Course):
    """The records of a scenario.

    Attributes:
        make: key and value of each record of a block, in the order of their indexes.
        is_text: whether values are text; every UTF-8 text is good.
    """

    make: Callable[[Block], Iterable[Made]]
    is_text: bool = False

    def _block(self, index: Ints) -> Iterator[Generated]:
        times = self._times(index).tolist()
        spoiled = np.where(self._is_bad(index), 1 + part(self._bits(index, 4), 0, 3), 0).tolist()
        pairs = self.make(Block(index=index, times=times, bits=self._bits))
        for (key, value), time, kind in zip(pairs, times, spoiled, strict=True):
            text = orjson.dumps(value) if isinstance(value, Mapping) else value
            yield key, _spoiled(text or b"{}", 3 if self.is_text else kind) if kind else text, time


def _spoiled(value: bytes, kind: int) -> bytes:
    if kind == 1:
        return value[: len(value) // 2]
    return b"" if kind == 2 else b"\xff" + value


def mixed(bits: Bits) -> Bits:
    """splitmix64: well mixed 64 bits of each number. Source: Steele, Lea, Flood, OOPSLA 2014."""
    bits = (bits + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def part(bits: Bits, shift: int, size: int) -> Ints:
    """A draw of 0 to ``size - 1`` from the bits above ``shift``."""
    return ((bits >> np.uint64(shift)) % np.uint64(size)).astype(np.int64)


def _unit(bits: Bits) -> Ints:
    return (bits >> np.uint64(64 - _TAIL_OF_UNIT)).astype(np.int64)
