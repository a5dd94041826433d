"""Where a query stood, by a query checkpoint and a table on a disk or on S3."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from kappa.config import Config
from kappa.control.adoptions.adoption import by_group
from kappa.control.adoptions.job_positions import JobPosition, check_newest, of_checkpoint
from kappa.control.plans.existing_tables import columns_of, existing_table
from kappa.delta.access import create_table, open_table, storage_options, write
from kappa.delta.damage import entry_of
from kappa.errors import RefusedError, UsageError
from kappa.offsets.vector import Offsets
from kappa.replay.adoption import ExistingTable
from kappa.store.stores import store_of

SCHEMA = pa.schema({"id": pa.string(), "total": pa.int64()})


@pytest.fixture(params=["disk", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A folder on a disk, or in the store of a lake on S3."""
    return str(tmp_path) if request.param == "disk" else str(request.getfixturevalue("s3_lake"))


@pytest.fixture
def job(folder: str) -> Callable[[str, int], None]:
    """Writes a file ``offsets/<batch>`` or ``commits/<batch>`` of the query checkpoint of query q-1."""

    def put(name: str, content: str) -> None:
        store, file = store_of(folder), f"{folder}/checkpoint/{name}"
        store.make_folder(file.rpartition("/")[0])
        store.put(file, content.encode())

    def wrote(kind: str, batch: int) -> None:
        put("metadata", '{"id":"q-1"}')
        end = f'v1\n{{}}\n{{"pos":{{"0":{10 * batch}}}}}'
        put(f"{kind}/{batch}", end if kind == "offsets" else 'v1\n{"nextBatchWatermarkMs":0}')

    return wrote


def write_batch(path: str, batch: int | None, query: str = "q-1") -> None:
    """One row more; the log names the batch of the query, if one is given."""
    create_table(path, SCHEMA)
    transactions = [] if batch is None else [Transaction(query, batch)]
    rows = pa.table({"id": ["a"], "total": pa.array([1], pa.int64())}, schema=SCHEMA)
    write(open_table(path), rows, CommitProperties(app_transactions=transactions))


def test_the_table_decides_about_a_batch_without_a_commit(folder: str, job: Callable[[str, int], None]) -> None:
    table = f"{folder}/table"
    for kind, batch in [("offsets", 1), ("commits", 1), ("offsets", 2)]:
        job(kind, batch)
    write_batch(table, 1)
    at_first = existing_table(folder, "tables/t", table, None)
    assert (at_first.version, at_first.newest, at_first.rows) == (1, 1, 1)
    assert of_checkpoint(f"{folder}/checkpoint/", [at_first]).offsets == Offsets({"pos": {0: 10}})
    write_batch(table, 2)
    newest = existing_table(folder, "tables/t", table, None)
    position = of_checkpoint(f"{folder}/checkpoint", [newest])
    assert position.offsets == Offsets({"pos": {0: 20}})
    assert position.file == f"{folder}/checkpoint/offsets/2"
    older = existing_table(folder, "tables/t", table, 1)
    assert (older.version, older.newest, older.rows) == (1, 2, 1)
    assert of_checkpoint(f"{folder}/checkpoint", [older]).offsets == Offsets({"pos": {0: 10}})
    assert columns_of(older).types == {"id": "string", "total": "long"}


def test_a_table_in_two_versions_does_not_stand_at_one_batch(folder: str, job: Callable[[str, int], None]) -> None:
    table = f"{folder}/table"
    for batch in (1, 2):
        job("offsets", batch)
        job("commits", batch)
        write_batch(table, batch)
    versions = [existing_table(folder, f"tables/{name}", table, version) for name, version in (("t", 1), ("u", 2))]
    for tables in (versions, versions[::-1]):
        with pytest.raises(RefusedError, match=f"different batches of query q-1: {table}@1 batch 1, {table}@2 batch 2"):
            of_checkpoint(f"{folder}/checkpoint", tables)


#: Commits in the order in which they are made: the batch of a query, or what another program calls its commit.
Commits = Sequence[tuple[str, int] | str]


def make(path: str, commits: Commits) -> ExistingTable:
    """A table with these commits."""
    for commit in commits:
        if isinstance(commit, tuple):
            write_batch(path, commit[1], commit[0])
        elif commit == "WRITE":
            write_batch(path, None)
        elif commit == "DELETE":
            open_table(path).delete("id = 'a'")
        elif commit == "OPTIMIZE":
            open_table(path).optimize.compact()
        elif commit == "VACUUM":
            open_table(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
        elif commit == "SET TBLPROPERTIES":
            open_table(path).alter.set_table_properties({"delta.appendOnly": "false"})
        elif commit == "RESTORE":
            table = open_table(path)
            table.restore(table.version() - 1)
        elif commit == "CHECKPOINT":  # what Delta does about entries that are older than their retention
            table = open_table(path)
            table.create_checkpoint()
            for version in range(table.version()):
                store_of(path).delete(entry_of(path, version))
    return existing_table(path, "tables/t", path, None)


UPKEEP = ("OPTIMIZE", "VACUUM", "SET TBLPROPERTIES", "OPTIMIZE")


@pytest.mark.parametrize(
    ("commits", "others"),
    [
        ([("q-1", 1), ("q-1", 2), *UPKEEP], ""),
        ([("q-0", 7), "WRITE", ("q-1", 1), "DELETE", ("q-1", 2)], ""),
        ([("q-1", 1), "CHECKPOINT", ("q-1", 2), "CHECKPOINT", *UPKEEP], ""),
        ([("q-1", 1), ("q-1", 2), ("q-2", 0), *UPKEEP], "is a WRITE of query q-2, batch 0"),
        ([("q-1", 1), ("q-2", 0), ("q-1", 2)], "version 2 of .* of query q-2, batch 0"),
        ([("q-1", 1), ("q-1", 2), "WRITE"], "version 3 of .* is a WRITE"),
        ([("q-1", 1), ("q-1", 2), "DELETE"], "version 3 of .* is a DELETE"),
        ([("q-1", 1), ("q-1", 2), "RESTORE"], "version 3 of .* is a RESTORE"),
        ([("q-1", 1), ("q-1", 2), "SET TBLPROPERTIES", "CHECKPOINT"], "no longer has the commit of batch 2"),
        ([("q-1", 1), ("q-1", 2), "WRITE", "CHECKPOINT"], "version 3 of .* is a WRITE"),
    ],
)
def test_rows_that_the_query_did_not_write_are_noticed(
    folder: str, job: Callable[[str, int], None], commits: Commits, others: str
) -> None:
    for kind, batch in [("offsets", 1), ("commits", 1), ("offsets", 2), ("commits", 2)]:
        job(kind, batch)
    table = make(f"{folder}/table", commits)
    position = of_checkpoint(f"{folder}/checkpoint", [table, replace(table, place="tables/u")])
    assert position.offsets == Offsets({"pos": {0: 20}})
    assert re.search(others, position.others) if others else not position.others, position.others
    assert ";" not in position.others


@pytest.mark.parametrize(("later", "others"), [(timedelta(0), ""), (timedelta(hours=1), "version 2 of .* is a WRITE")])
def test_rows_after_the_last_batch_are_noticed_by_their_time_where_no_log_names_batches(
    folder: str, job: Callable[[str, int], None], later: timedelta, others: str
) -> None:
    table = f"{folder}/table"
    job("offsets", 0)
    job("commits", 0)
    make(table, ["WRITE", "WRITE", "OPTIMIZE"])
    _set_time(table, 2, datetime.now(UTC) + later)
    position = of_checkpoint(f"{folder}/checkpoint", [existing_table(folder, "tables/t", table, None)])
    assert re.search(others, position.others) if others else not position.others, position.others


def _set_time(table: str, version: int, at: datetime) -> None:
    """Give a commit another time."""
    store, entry = store_of(table), entry_of(table, version)
    actions = [json.loads(line) for line in (store.get(entry) or b"").splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["timestamp"] = int(at.timestamp() * 1000)
    store.put(entry, "\n".join(map(json.dumps, actions)).encode())


def test_the_state_of_a_job_is_noticed(folder: str, job: Callable[[str, int], None]) -> None:
    write_batch(f"{folder}/table", None)
    job("offsets", 0)
    job("commits", 0)
    existing = existing_table(folder, "tables/t", f"{folder}/table", None)
    assert not of_checkpoint(f"{folder}/checkpoint", [existing]).state
    store, file = store_of(folder), f"{folder}/checkpoint/state/0/0/1.delta"
    store.make_folder(file.rpartition("/")[0])
    store.put(file, b"rows")
    assert of_checkpoint(f"{folder}/checkpoint/", [existing]).state == f"{folder}/checkpoint/state"


def test_a_position_is_that_of_the_topics_that_are_read() -> None:
    position = JobPosition(offsets=Offsets({"pos": {0: 3}, "web": {0: 1}}), job="the end of batch 7 of /c")
    assert position.only(["pos"]).offsets == Offsets({"pos": {0: 3}})
    assert position.only(["pos"]).job == "the end of batch 7 of /c (its offsets in web are left out)"
    assert position.only(["pos", "web"]) == position


def test_a_batch_that_nobody_names_is_refused_and_one_with_a_commit_is_not(
    folder: str, job: Callable[[str, int], None]
) -> None:
    table = f"{folder}/table"
    write_batch(table, None)
    job("offsets", 0)
    existing = existing_table(folder, "tables/t", table, None)
    with pytest.raises(RefusedError, match="Start the old job once more"):
        of_checkpoint(f"{folder}/checkpoint", [existing])
    job("commits", 0)
    assert of_checkpoint(f"{folder}/checkpoint", [existing]).offsets == Offsets({"pos": {0: 0}})


def test_what_is_not_there_is_refused_by_name(folder: str) -> None:
    with pytest.raises(UsageError, match=f"There is no Delta table at {folder}/none"):
        existing_table(folder, "tables/t", f"{folder}/none", None)
    write_batch(f"{folder}/table", None)
    with pytest.raises(UsageError, match=f"Version 7 of {folder}/table cannot be read"):
        existing_table(folder, "tables/t", f"{folder}/table", 7)
    with pytest.raises(UsageError, match="is not the query checkpoint of a query that ran: it has no file metadata"):
        of_checkpoint(f"{folder}/table", [])


def test_a_table_on_s3_is_refused_where_the_lake_is_on_a_disk(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"s3://bucket/old is on an object store, and the lake .* is not"):
        existing_table(str(tmp_path), "tables/t", "s3a://bucket/old/", None)


def test_a_group_is_not_paired_with_an_older_version(tmp_path: Path) -> None:
    for _ in range(2):
        write_batch(f"{tmp_path}/table", None)
    newest, older = (existing_table(str(tmp_path), "tables/t", f"{tmp_path}/table", version) for version in (None, 1))
    check_newest("g", [newest])
    with pytest.raises(RefusedError, match=r"not those of .* at version 1 .* version 2 is the newest.*--from-file"):
        by_group("g")(
            Config(lake=str(tmp_path), bootstrap_servers="", topologies=tmp_path, home=tmp_path, cache=tmp_path),
            "a.b",
            [newest, older],
        )


def test_a_version_with_a_file_less_cannot_be_adopted(folder: str) -> None:
    path = f"{folder}/a table"
    rows = pa.table({"id": ["a", "b"], "day": ["x y:z/1%20", "ü"]})
    write_deltalake(path, rows, partition_by=["day"], storage_options=storage_options(path))
    table = existing_table(folder, "tables/t", path, None)
    assert columns_of(table).types == {"id": "string", "day": "string"}
    store = store_of(path)
    data = next(file.path for file in store.files(path) if "_delta_log" not in file.path)
    store.delete(data)
    assert columns_of(table).error == f"1 of its files are gone, such as {data.removeprefix(f'{path}/')}"


def test_columns_that_spark_pads_are_known(folder: str) -> None:
    char, varchar = ({"__CHAR_VARCHAR_TYPE_STRING": kind} for kind in ("char(3)", "varchar(3)"))
    fields = [pa.field("id", pa.string(), metadata=char), pa.field("name", pa.string(), metadata=varchar), "total"]
    schema = pa.schema([field if isinstance(field, pa.Field) else pa.field(field, pa.int64()) for field in fields])
    create_table(f"{folder}/table", schema)
    columns = columns_of(existing_table(folder, "tables/t", f"{folder}/table", None))
    assert columns.padded == {"id"}
    assert columns.types == {"id": "string", "name": "string", "total": "long"}


def test_a_table_made_anew_is_not_the_one_that_was_adopted(folder: str) -> None:
    path = f"{folder}/table"
    write_batch(path, None)
    table = existing_table(folder, "tables/t", path, None)
    assert not columns_of(table).error
    store_of(path).delete_folder(path)
    write_batch(path, None)
    assert columns_of(table).error.startswith("another table is there, made anew: its id is ")
    assert not columns_of(replace(table, table_id="")).error, "as code stored it that knew no id"


def test_rows_that_deletion_vectors_take_away_are_not_counted(tmp_path: Path) -> None:
    path = f"{tmp_path}/table"
    write_deltalake(path, pa.table({"id": ["a", "b"]}))
    assert existing_table(str(tmp_path), "tables/t", path, None).rows == 2
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    protocol = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}}
    Path(entry_of(path, 1)).write_text(json.dumps(protocol))
    assert existing_table(str(tmp_path), "tables/t", path, None).rows is None
