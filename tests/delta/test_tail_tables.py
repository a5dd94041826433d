"""Tables on S3 that a slice appends to."""

from __future__ import annotations

import pyarrow as pa

from kappa.delta import tables
from kappa.delta.access import create_table, open_table


def test_a_slice_without_rows_and_columns_is_a_commit(s3_lake: str) -> None:
    path = f"{s3_lake}/t"
    create_table(path, pa.schema({"a": pa.int64(), "_seq": pa.int64()}))
    assert tables.append(path, pa.table({}), 1, "plan")
    assert not tables.append(path, pa.table({"a": [1], "_seq": [1]}), 1, "plan"), "the slice had written none"
    assert tables.append(path, pa.table({"a": [2], "_seq": [2]}), 2, "plan")
    assert open_table(path).to_pyarrow_table().to_pylist() == [{"a": 2, "_seq": 2}]
