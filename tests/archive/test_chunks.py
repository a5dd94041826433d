"""The chunks of an archive that a slice reads: found by partition and offset, however long the archive is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from support.growth import calls

from kappa.archive.reader import Archive
from kappa.errors import DataLossError
from kappa.offsets.coverage import common, is_within
from kappa.offsets.vector import OffsetRange
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import LedgerState

AT = datetime(2026, 1, 2, tzinfo=UTC)


def span(partition: int, start: int, end: int) -> OffsetRange:
    return OffsetRange(topic="pos", partition=partition, start=start, end=end)


def ranges(partitions: int, start: int, end: int) -> list[OffsetRange]:
    return [span(partition, start, end) for partition in range(partitions)]


@pytest.fixture
def archive(tmp_path: Path) -> Callable[..., Archive]:
    """An archive of so many partitions and slices, each of ten offsets of each partition."""

    def make(partitions: int, slices: int) -> Archive:
        archive = Archive(f"{tmp_path}/{partitions}x{slices}", "pos")
        archive.ledger.create()
        archive.ledger.claim("w", "", LedgerState())
        for seq in range(slices + 1):
            read = tuple(ranges(partitions, max(0, 10 * (seq - 1)), 10 * seq))
            parts = {str(partition): {"rows": 10, "max_ms": seq} for partition in range(partitions)}
            detail = {"topic_id": "id"} if seq == 0 else {"parts": parts}
            archive.ledger.append(LedgerRow(kind="commit", seq=seq, writer="w", at=AT, ranges=read, detail=detail))
        return archive

    return make


def test_a_range_is_of_the_chunks_that_hold_a_part_of_it(archive: Callable[..., Archive]) -> None:
    one = archive(2, 3)
    parts = [span(0, 9, 21), span(1, 10, 20)]
    assert sorted((c.range.partition, c.seq) for c in one.overlapping(parts)) == [(0, 1), (0, 2), (0, 3), (1, 2)]
    assert one.overlapping([span(0, 5, 5), span(1, 30, 31), span(7, 0, 1)]) == []
    one.check(ranges(2, 0, 30), "id")
    with pytest.raises(
        DataLossError, match=r"must give pos\[0\] 0\.\.9, .*, pos\[2\] 0\.\.9 and 997 more of the topic"
    ):
        one.check(ranges(1_000, 0, 9), "id")
    for beyond, topic_id in ((ranges(2, 0, 31), "id"), (ranges(3, 0, 30), "id"), (ranges(2, 0, 30), "other")):
        with pytest.raises(DataLossError, match=r"and it has pos\[0\] 0\.\.30, pos\[1\] 0\.\.30 of the topic with id"):
            one.check(beyond, topic_id)


def test_a_slice_looks_at_its_own_part_of_a_long_archive(archive: Callable[..., Archive]) -> None:
    def slice_of(one: Archive, partitions: int) -> int:
        read = ranges(partitions, 10, 20)

        def look() -> None:
            one.check(read, "id")
            one.check_rows({(partition, 2): 10 for partition in range(partitions)}, read)

        return calls(look)

    few = slice_of(archive(8, 10), 8)
    assert slice_of(archive(8, 40), 8) < 2 * few
    assert slice_of(archive(32, 10), 32) < 6 * few


def test_ranges_of_other_partitions_are_not_compared() -> None:
    def compare(partitions: int) -> None:
        own = ranges(partitions, 0, 10)
        assert common(own, own) == tuple(own) and is_within(own, own)

    assert calls(lambda: compare(400)) < 6 * calls(lambda: compare(100))
