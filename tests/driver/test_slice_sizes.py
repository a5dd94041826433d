"""Slices are bounded in bytes by a look at records of the span to be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from kappa import clock
from kappa.driver.slice_sizes import SliceSizes
from kappa.driver.upstreams import Cut
from kappa.errors import ConfigError
from kappa.offsets.vector import Offsets
from kappa.record.ledger_rows import LedgerRow

MEGABYTE = 1 << 20
START = Offsets({"pos": {0: 0, 1: 0}})


class Log:
    """Records of two partitions of the same length, whose sizes follow from their offset."""

    def __init__(self, size: Callable[[int], int], *, largest: int = MEGABYTE, first: int = 0) -> None:
        self._size, self._largest, self._first = size, largest, first
        self.looks = 0

    def topic_configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        return {topic: {"max.message.bytes": str(self._largest)} for topic in topics}

    def sample(self, starts: Iterable[Offsets], end: Offsets, most: int) -> list[dict[Any, Any]]:
        self.looks += 1
        return [
            {
                at: [self._message(n) for n in range(offset, min(offset + most, end[at]))]
                for at, offset in start.items()
                if offset >= self._first
            }
            for start in starts
        ]

    def _message(self, offset: int) -> Any:
        value = b"x" * self._size(offset)
        return SimpleNamespace(key=lambda: b"", value=lambda: value, headers=lambda: [])


def cut(most: int) -> Cut:
    """A slice that takes as many records of each partition."""
    return Cut(end=Offsets({"pos": {0: most // 2, 1: most - most // 2}}))


def cut_of(log: Any, most: int, *, limit: int = 10 * MEGABYTE, last: Iterable[LedgerRow] = ()) -> int:
    slice_cut = SliceSizes(log, limit).bounded(cut, most, START, list(last))
    return START.count_to(slice_cut.end)


def commit(records: int, bytes_read: int | None) -> LedgerRow:
    detail = {} if bytes_read is None else {"bytes_read": bytes_read}
    return LedgerRow(kind="commit", seq=1, writer="w", at=clock.now(), rows_read=records, detail=detail)


def test_records_of_a_megabyte_make_small_slices_and_small_ones_large_slices() -> None:
    assert cut_of(Log(lambda _: MEGABYTE), 50_000) == 10
    assert cut_of(Log(lambda _: 100), 50_000) == 50_000


class LogWithHeaders(Log):
    """The same, with headers instead of values."""

    def __init__(self, headers: Callable[[], Any]) -> None:
        super().__init__(lambda _: 0)
        self._headers = headers

    def _message(self, offset: int) -> Any:
        return SimpleNamespace(**{**vars(super()._message(offset)), "headers": self._headers})


def test_headers_of_one_name_count_each() -> None:
    assert cut_of(LogWithHeaders(lambda: [("n", b"x" * MEGABYTE), ("n", b""), ("m", None)]), 50_000) == 10


def test_a_header_whose_name_the_client_does_not_decode_stops_no_slice() -> None:
    def undecoded() -> Any:
        raise SystemError("returned a result with an exception set")

    assert cut_of(LogWithHeaders(undecoded), 50_000) == 50_000


def test_a_slice_is_cut_by_the_records_that_it_has_and_not_by_later_ones() -> None:
    """The first thousand of each partition are small: a look at the whole says less than one at what is left of it."""
    records = cut_of(Log(lambda offset: 1000 if offset < 1000 else MEGABYTE), 50_000)
    assert 10 <= records <= 2100


def test_what_cannot_be_too_large_is_not_looked_at() -> None:
    log = Log(lambda _: MEGABYTE)
    assert cut_of(log, 10) == 10
    assert log.looks == 0
    cut_of(log, 11)
    assert log.looks > 0


@pytest.mark.parametrize(
    ("last", "looks"),
    [([commit(100, 10_000)], False), ([commit(100, 100_000_000)], True), ([commit(100, None)], True), ([], True)],
)
def test_slices_like_small_ones_before_are_not_looked_at(last: list[LedgerRow], looks: bool) -> None:
    log = Log(lambda _: 100)
    assert cut_of(log, 80, last=last) == 80
    assert (log.looks > 0) is looks
    assert cut_of(log, 81, last=last) == 81
    assert log.looks > 0


def test_a_record_larger_than_a_slice_is_a_slice_of_its_own() -> None:
    assert cut_of(Log(lambda _: 5 * MEGABYTE, largest=8 * MEGABYTE), 50_000, limit=MEGABYTE) == 1


def test_records_that_are_gone_from_the_log_are_not_looked_at() -> None:
    assert cut_of(Log(lambda _: MEGABYTE, first=10**9), 50_000) == 50_000


def test_a_cut_that_cannot_be_smaller_stays() -> None:
    log = Log(lambda _: MEGABYTE)
    slice_cut = SliceSizes(log, MEGABYTE).bounded(lambda _: cut(100), 50_000, START, [])  # type: ignore[arg-type]
    assert START.count_to(slice_cut.end) == 100
    assert SliceSizes(log, MEGABYTE).bounded(lambda _: None, 50_000, START, []) is None  # type: ignore[arg-type]


def test_a_user_who_may_not_read_settings_gets_slices_that_are_looked_at() -> None:
    class Closed(Log):
        def topic_configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
            raise ConfigError("not allowed")

    assert cut_of(Closed(lambda _: MEGABYTE), 50_000) == 10
