"""What another Spark did to a table is undone, so that Spark and ``deltalake`` read it and write into it as before."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kappa.delta import commits, tables
from kappa.delta.log_state import state_of
from kappa.topology.ddl import columns_of

pytestmark = pytest.mark.spark

#: Commits of another program, by SQL.
ACTS = {
    "a new column": ["ALTER TABLE {t} ADD COLUMN extra INT", "UPDATE {t} SET extra = 1"],
    "a column that may be null": ["ALTER TABLE {t} ALTER COLUMN n DROP NOT NULL"],
    "deletion vectors": ["ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"],
    "a change feed": ["ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"],
    "another name of a column": [
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "ALTER TABLE {t} RENAME COLUMN n TO m",
        "INSERT INTO {t} VALUES (9, 9, 'ü')",
    ],
}


@pytest.mark.parametrize("acts", ACTS.values(), ids=ACTS)
def test_a_table_is_read_and_written_as_before(spark: SparkSession, tmp_path: Path, acts: list[str]) -> None:
    path = str(tmp_path / "table")
    tables.create(path, columns_of("_seq BIGINT NOT NULL, n BIGINT NOT NULL, p STRING", "test"), partition_by=["p"])
    rows = "SELECT {}L AS _seq, n, p FROM VALUES (0L, 'New York'), (1L, 'ü'), (2L, NULL), (3L, 'a/b=c%') AS t(n, p)"
    tables.append_frame(path, spark.sql(rows.format(1)), 1)
    tables.append(path, pa.table(spark.sql(rows.format(2)).toArrow()), 2)
    before, present, since = state_of(path), _rows(spark, path), tables.version(path)
    for act in acts:
        spark.sql(act.format(t=f"delta.`{path}`"))
    undone = commits.undo(path, since, list(commits.commits_after(path, since)))
    after = state_of(path)
    assert before is not None and after is not None and undone == since + len(acts) + 1 == after.version
    assert (after.metadata, after.protocol) == (before.metadata, before.protocol)
    assert after.files.keys() == before.files.keys()
    assert _rows(spark, path) == present
    tables.append_frame(path, spark.sql(rows.format(3)), 3)
    tables.append(path, pa.table(spark.sql(rows.format(4)).toArrow()), 4)
    later = [row.replace("'_seq': 1,", f"'_seq': {seq},") for seq in (3, 4) for row in present if "'_seq': 1," in row]
    assert _rows(spark, path) == sorted([*present, *later])


def _rows(spark: SparkSession, path: str) -> list[str]:
    """Rows as both engines have them."""
    rows = [DeltaTable(path).to_pyarrow_table(), spark.read.format("delta").load(path).toArrow()]
    texts = [sorted(map(str, pa.table(each).select(["_seq", "n", "p"]).to_pylist())) for each in rows]
    assert texts[0] == texts[1]
    return texts[0]
