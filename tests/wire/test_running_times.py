"""The running maximum of a partition's timestamps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappa.errors import Terminal
from kappa.wire.running_times import RunningMaximum

Record = tuple[int, int, int]


def followed(maximum: RunningMaximum, *records: Record) -> list[int]:
    """The running maximum at each record (partition, offset, time)."""
    partitions, offsets, times = (np.array(column, dtype=np.int64) for column in zip(*records, strict=True))
    return [int(time) for time in maximum.follow(partitions, offsets, times)]


def test_a_running_maximum_starts_from_the_slice_before() -> None:
    assert followed(RunningMaximum({0: 10}), (0, 0, 9), (0, 1, 11), (0, 2, 10)) == [10, 11, 11]


def test_a_running_maximum_carries_over_from_batch_to_batch() -> None:
    maximum = RunningMaximum({})

    assert followed(maximum, (0, 0, 5)) == [5]
    assert followed(maximum, (0, 7, 3)) == [5]


def test_partitions_do_not_mix() -> None:
    assert followed(RunningMaximum({1: 7}), (0, 0, 5), (1, 0, 1), (0, 1, 2)) == [5, 7, 5]


def test_times_before_1970_count() -> None:
    assert followed(RunningMaximum({}), (0, 0, -5), (0, 1, -9)) == [-5, -5]


@pytest.mark.parametrize("second", [(0, 3, 1), (0, 4, 1)])
def test_offsets_that_do_not_grow_are_refused(second: Record) -> None:
    with pytest.raises(Terminal, match="out of order"):
        followed(RunningMaximum({}), (0, 4, 1), second)
    maximum = RunningMaximum({})
    followed(maximum, (0, 4, 1), (1, 0, 1))
    with pytest.raises(Terminal, match="out of order"):
        followed(maximum, second)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(-5, 5)), min_size=1), st.data())
def test_any_batching_gives_the_same_maxima_as_single_records(
    arrived: list[tuple[int, int]], data: st.DataObject
) -> None:
    records = [(partition, offset, time) for offset, (partition, time) in enumerate(arrived)]
    cut = data.draw(st.integers(0, len(records)))
    expected, largest = [], {1: 2}
    for partition, _, time in records:
        largest[partition] = max(largest.get(partition, time), time)
        expected.append(largest[partition])

    maximum = RunningMaximum({1: 2})

    assert [time for batch in (records[:cut], records[cut:]) if batch for time in followed(maximum, *batch)] == expected
