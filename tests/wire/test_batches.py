"""The count of the records of batches, taken before they are parsed."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from kappa.errors import Terminal
from kappa.wire.batches import counted


def test_records_are_counted_before_they_are_parsed() -> None:
    def losing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, batch.num_rows - 1)

    records = pa.table({"_key": ["k", None, "key"] * 5, "_value": pa.array([b"{}", b"", None] * 5)})
    for _ in range(2):  # a task that runs again tells its count, not the sum of both runs
        *parsed_batches, tally = counted(records.to_batches(max_chunksize=4), losing)
        assert sum(batch.num_rows for batch in parsed_batches) == 15 - 4
        assert tally.to_pylist() == [{"_key": None, "_value": None, "_read": 15, "_bytes": 5 * (1 + 3 + 2)}]


def test_an_empty_task_reports_no_count_and_losing_every_record_fails() -> None:
    assert list(counted([], iter)) == []
    records = pa.table({"_key": ["k"], "_value": pa.array([b"{}"])})
    with pytest.raises(Terminal, match="1 records were read and none came out"):
        list(counted(records.to_batches(), lambda batches: (batch for batch in batches if batch.num_rows > 1)))
