"""Tables on S3 that a slice appends to."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
from deltalake import CommitProperties, Transaction

from kappa.delta import queries, tables
from kappa.delta.access import CHECKPOINT_INTERVAL, create_table, open_table, write
from kappa.store.stores import store_of


def test_a_slice_without_rows_and_columns_is_a_commit(s3_lake: str) -> None:
    path = f"{s3_lake}/t"
    create_table(path, pa.schema({"a": pa.int64(), "_seq": pa.int64()}))
    assert tables.append(path, pa.table({}), 1, "plan")
    assert not tables.append(path, pa.table({"a": [1], "_seq": [1]}), 1, "plan"), "the slice had written none"
    assert tables.append(path, pa.table({"a": [2], "_seq": [2]}), 2, "plan")
    assert open_table(path).to_pyarrow_table().to_pylist() == [{"a": 2, "_seq": 2}]


def test_every_day_and_every_letter_goes_into_a_table(s3_lake: str) -> None:
    path = f"{s3_lake}/t"
    days = pa.array([2_932_896, 2_932_897, -719_163], pa.int32()).cast(pa.date32())
    create_table(path, pa.schema({"day": pa.date32(), "text": pa.string(), "_seq": pa.int64()}))
    write(
        open_table(path),
        pa.table({"day": days[:1], "text": ["a\u2028b\u0085c"], "_seq": pa.array([1], pa.int64())}),
        CommitProperties(app_transactions=[Transaction(tables.APP, 1)]),
    )
    rows = pa.table({"day": days, "text": ["x\u2029", "y", "z" * 40], "_seq": pa.array([2] * 3, pa.int64())})
    assert tables.append(path, rows, 2, "plan")
    assert tables.version_after(path, 0) == 2
    assert open_table(path).to_pyarrow_table().num_rows == 4
    statistics = open_table(path).get_add_actions(flatten=True)
    assert sorted(statistics["max.day"].to_pylist(), key=str) == [date(9999, 12, 31), None]


def test_nan_is_greater_than_all_numbers_whatever_a_file_says_of_them(s3_lake: str) -> None:
    path = f"{s3_lake}/t"
    create_table(path, pa.schema({"v": pa.float64(), "_seq": pa.int64()}))
    assert tables.append(path, pa.table({"v": [float("nan"), 1.0], "_seq": [1, 1]}), 1, "plan")
    assert queries.query(path, None, where="v > 5").num_rows == 1


def test_log_entries_of_an_epochs_table_stay_when_it_is_summed_up(s3_lake: str) -> None:
    path = f"{s3_lake}/t"
    create_table(
        path,
        pa.schema({"_seq": pa.int64()}),
        configuration={"delta.logRetentionDuration": "interval 0 hours", "delta.enableExpiredLogCleanup": "false"},
    )
    for seq in range(1, CHECKPOINT_INTERVAL + 1):
        assert tables.append(path, pa.table({"_seq": [seq]}), seq, "plan")
    assert open_table(path, version=1).version() == 1
    names = {file.name for file in store_of(path).files(f"{path}/_delta_log")}
    assert f"{CHECKPOINT_INTERVAL - 1:020}.checkpoint.parquet" in names
