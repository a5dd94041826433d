"""Rows of Delta tables, read without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake
from support.growth import calls

from kappa.delta import queries


def test_a_file_more_is_counted_once_whatever_is_read_with_it(tmp_path: Path) -> None:
    def read(files: int) -> int:
        path = str(tmp_path / f"of{files}")
        rows = {"_seq": pa.array([1] * files, pa.int64()), "day": [f"d{n}" for n in range(files)]}
        write_deltalake(path, pa.table(rows), partition_by=["day"])
        (whole,) = queries.chunks(path, 0, ["day"], files + 1)
        first, second = queries.chunks(path, 0, ["day"], files - 1)
        assert (whole.num_rows, first.num_rows, second.num_rows) == (files, files - 1, 1)
        return calls(lambda: list(queries.chunks(path, 0, ["day"], files + 1)))

    assert read(400) < 6 * read(100)
