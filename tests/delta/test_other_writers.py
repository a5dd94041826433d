"""What other programs leave at the path of a published table: entries in its log, and tables of their own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import polars
import pyarrow
import pytest
from deltalake import DeltaTable, write_deltalake
from support.published_lake import RETENTION, SCHEMA, Lake

from kappa.control.removals import served_tables
from kappa.delta.log_state import state_of
from kappa.delta.published import PublishedTable
from kappa.errors import PublicationError
from kappa.names import EpochPaths
from kappa.serving.published_tables import is_foreign

#: A deletion vector in the log itself, which takes the first row away.
VECTOR = {
    "storageType": "i",
    "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    "sizeInBytes": 40,
    "cardinality": 1,
}


@pytest.mark.parametrize(
    "again",
    [
        {"partitionValues": {"p": "y"}},
        {"stats": json.dumps({"numRecords": 1, "minValues": {"id": "x"}, "maxValues": {"id": "x"}})},
        {"deletionVector": VECTOR},
    ],
    ids=lambda again: str(*again),
)
def test_a_file_that_another_writer_adds_again_is_back_as_the_epoch_has_it(
    tmp_path: Path, again: dict[str, Any]
) -> None:
    lake = Lake(tmp_path)
    lake.create(1, f"{SCHEMA}, p STRING", ("p",))
    lake.append(1, 1, "a", p="x")
    lake.publish(1)
    add = next(action["add"] for action in lake.entry() if "add" in action)
    removed = [{"remove": {"path": add["path"], "dataChange": True}}] if "deletionVector" in again else []
    entry = [{"commitInfo": {"operation": "UPDATE"}}, *removed, {"add": {**add, **again}}]
    Path(lake.path, "_delta_log", f"{1:020}.json").write_text("".join(f"{json.dumps(action)}\n" for action in entry))
    lake.published = PublishedTable(lake.path, RETENTION)
    assert lake.publish(1) == 1
    is_row = (polars.col("id") == "a") & (polars.col("p") == "x")
    assert polars.scan_delta(lake.path).filter(is_row).collect().height == 1
    state = state_of(lake.path)
    assert state is not None and list(state.files.values()) == [add]
    removals = [action["remove"].get("deletionVector") for action in lake.entry() if "remove" in action]
    assert removals == ([VECTOR] if removed else []), "readers tell a file by its vector too"


def test_a_table_of_another_program_is_neither_published_over_nor_removed(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    write_deltalake(lake.path, pyarrow.table({"id": ["x", "y"]}))
    assert is_foreign(lake.path)
    lake.create(1)
    lake.append(1, 1, "a")
    with pytest.raises(PublicationError, match="another program has a Delta table there") as error:
        lake.publish(1)
    assert error.value.data["path"] == lake.path
    served_tables.remove(EpochPaths(lake=str(tmp_path), topology="shop.sales", epoch=1))
    assert lake.ids() == ["x", "y"] and DeltaTable(lake.path).version() == 0
    shutil.rmtree(lake.path)
    lake = Lake(tmp_path)
    lake.create(1)
    lake.append(1, 1, "a")
    assert lake.publish(1) == 1 and not is_foreign(lake.path), "once it is elsewhere"
