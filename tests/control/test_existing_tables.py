"""What a plan sees of a table of another job, without a broker or Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from deltalake import write_deltalake

from kappa.control.plans.existing_tables import columns_of, existing_table
from kappa.delta.log_entries import actions_of

FEATURES = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
#: A vector in the log itself, and one in a file of its own.
INLINE = {"storageType": "i", "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000315c8Xg00093", "sizeInBytes": 36}
FILE = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "offset": 1, "sizeInBytes": 36}


@pytest.mark.parametrize(("vector", "error"), [(INLINE, ""), (FILE, "ab/deletion_vector_")])
def test_a_version_whose_deletion_vector_a_vacuum_took_cannot_be_read(
    tmp_path: Path, vector: dict[str, Any], error: str
) -> None:
    path = str(tmp_path / "job")
    write_deltalake(path, pyarrow.table({"id": list("abcde")}))
    add = next(action["add"] for action in actions_of(path, 0) or () if "add" in action)
    actions = [
        {"commitInfo": {"operation": "DELETE"}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **FEATURES}},
        {"remove": {"path": add["path"], "dataChange": True}},
        {"add": {**add, "deletionVector": {**vector, "cardinality": 2}}},
    ]
    entry = "".join(f"{json.dumps(action)}\n" for action in actions)
    Path(path, "_delta_log", f"{1:020}.json").write_text(entry)
    columns = columns_of(existing_table(str(tmp_path), "tables/balances", path, None))
    assert error in columns.error and bool(columns.error) is bool(error)
    assert bool(columns.types) is not bool(error)
