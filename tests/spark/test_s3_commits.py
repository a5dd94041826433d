"""Spark and deltalake write the same Delta tables on S3: what both were told is committed is there.

A proxy holds the commit of one while the other commits, or loses the answer to it.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import obstore
import pyarrow as pa
import pytest
from conftest_spark import BRIEF
from deltalake import DeltaTable, write_deltalake
from support.s3_proxy import CUT, Proxy, s3_proxy
from support.s3_server import S3Server, create_bucket, objects, s3_server
from support.s3_spark import SparkProcess, StatementError, spark_on

from kappa.store.outages import is_outage

pytestmark = pytest.mark.spark

LOST = [pytest.param(500, id="status 500"), pytest.param(CUT, id="cut")]
_numbers = itertools.count(1)


def values(*numbers: int) -> pa.Table:
    return pa.table({"a": pa.array(numbers, pa.int32())})


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A table that both write."""

    spark: SparkProcess
    server: S3Server
    proxy: Proxy
    name: str

    @property
    def url(self) -> str:
        return f"{self.proxy.server.url}/lake/{self.name}"

    def create(self, **properties: str) -> Stored:
        """Make the table with a row, 0, at version 0."""
        options, configuration = self.proxy.server.options, {f"delta.{key}": value for key, value in properties.items()}
        write_deltalake(self.url, values(0), storage_options=options, configuration=configuration)
        return self

    def entry(self, version: int) -> str:
        """The pattern of an entry of the log."""
        return rf"/{self.name}/_delta_log/{version:020}\.json$"

    def puts(self, version: int) -> int:
        """How often an entry of the log was sent."""
        requests = [request for request in self.proxy.requests if request.kind == "PUT"]
        return sum(bool(re.search(self.entry(version), request.key)) for request in requests)

    def opened(self) -> DeltaTable:
        """The table without the proxy: ``history`` of deltalake lets no thread of this process run while it reads."""
        return DeltaTable(self.url, storage_options=self.server.options)

    def append(self, value: int) -> int:
        """Append a row by deltalake; the table's version afterwards."""
        table = DeltaTable(self.url, storage_options=self.proxy.server.options)
        write_deltalake(table, values(value), mode="append")
        return table.version()

    def insertion(self, value: int, scheme: str = "s3") -> str:
        """The statement by which Spark appends a row."""
        return f"INSERT INTO delta.`{self.url.replace('s3', scheme, 1)}` VALUES ({value})"

    def rows(self) -> list[int]:
        """The rows, of which both read the same."""
        rows: list[int] = sorted(self.opened().to_pyarrow_table()["a"].to_pylist())
        assert sorted(row[0] for row in self.spark.sql(f"SELECT a FROM delta.`{self.url}`")) == rows
        return rows

    def writers(self) -> list[str]:
        """Who made each version, oldest first."""
        commits = sorted(self.opened().history(), key=lambda commit: commit["version"])
        assert [commit["version"] for commit in commits] == list(range(len(commits)))
        return ["spark" if "Spark" in commit.get("engineInfo", "") else "deltalake" for commit in commits]


@pytest.fixture(scope="module")
def reached(
    s3_process: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SparkProcess, S3Server, Proxy]]:
    """Spark, the server, and the proxy by which both engines reach it."""
    server = create_bucket(s3_process, "commits")
    with (
        s3_proxy(server) as proxy,
        spark_on(f"{server.url}/lake", proxy.server.options, tmp_path_factory.mktemp("spark"), BRIEF) as spark,
    ):
        yield spark, server, proxy


@pytest.fixture
def new(reached: tuple[SparkProcess, S3Server, Proxy]) -> Iterator[Stored]:
    """A table that is not there yet."""
    spark, server, proxy = reached
    yield Stored(spark=spark, server=server, proxy=proxy, name=f"t{next(_numbers)}")
    proxy.clear()


@pytest.fixture
def stored(new: Stored) -> Stored:
    """A table of one row, 0, at version 0."""
    return new.create()


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    """A thread for a client that has to wait."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


def take_turns(stored: Stored) -> None:
    """Each writer appends and merges after the other."""
    stored.spark.sql(stored.insertion(1))
    assert stored.append(2) == 2
    stored.spark.sql(
        f"MERGE INTO delta.`{stored.url}` t USING (SELECT * FROM VALUES (2), (3) AS v (a)) s ON t.a = s.a "
        "WHEN MATCHED THEN UPDATE SET a = 20 WHEN NOT MATCHED THEN INSERT *"
    )
    assert stored.rows() == [0, 1, 3, 20]
    merge = stored.opened().merge(values(3, 4), "t.a = s.a", source_alias="s", target_alias="t")
    merge.when_matched_delete().when_not_matched_insert_all().execute()
    assert stored.rows() == [0, 1, 4, 20]
    assert stored.writers() == ["deltalake", "spark", "deltalake", "spark", "deltalake"]


def test_both_append_to_a_table_and_merge_into_it(stored: Stored) -> None:
    take_turns(stored)


# One is late


def test_a_late_commit_of_spark_is_made_as_the_next_one(stored: Stored) -> None:
    held = stored.proxy.hold(stored.entry(1))
    stored.spark.begin(stored.insertion(1))
    held.await_arrival()
    assert stored.append(2) == 1
    held.release()
    stored.spark.rows()
    assert held.answers == [412]
    assert stored.rows() == [0, 1, 2]
    assert stored.writers() == ["deltalake", "deltalake", "spark"]


def test_the_log_store_of_delta_loses_what_was_committed_in_between(stored: Stored) -> None:
    """What Kappa's is for: once this fails, it can go."""
    held = stored.proxy.hold(stored.entry(1))
    stored.spark.begin(stored.insertion(1, scheme="s3n"))
    held.await_arrival()
    assert stored.append(2) == 1
    held.release()
    stored.spark.rows()
    assert held.answers == [200]
    assert stored.rows() == [0, 1], "both were told that they had committed"
    assert stored.writers() == ["deltalake", "spark"]


def test_a_late_commit_of_deltalake_is_made_as_the_next_one(stored: Stored, thread: ThreadPoolExecutor) -> None:
    held = stored.proxy.hold(stored.entry(1))
    version = thread.submit(stored.append, 2)
    held.await_arrival()
    stored.spark.sql(stored.insertion(1))
    held.release()
    assert version.result(60) == 2
    assert held.answers == [412]
    assert stored.rows() == [0, 1, 2]
    assert stored.writers() == ["deltalake", "spark", "deltalake"]


def test_all_rows_of_both_are_there_when_they_commit_at_once(stored: Stored, thread: ThreadPoolExecutor) -> None:
    of_spark, of_deltalake = range(1, 9), range(11, 19)
    for value in of_spark:
        stored.spark.begin(stored.insertion(value))
    versions = thread.submit(lambda: [stored.append(value) for value in of_deltalake])
    for _ in of_spark:
        stored.spark.rows()
    assert len(versions.result(60)) == len(of_deltalake)
    assert stored.rows() == [0, *of_spark, *of_deltalake]


# An answer is lost


@pytest.mark.parametrize("status", LOST)
def test_a_commit_of_spark_whose_answer_is_lost_is_made_once(stored: Stored, status: int | None) -> None:
    lost = stored.proxy.lose_answer(stored.entry(1), status=status)
    stored.spark.sql(stored.insertion(1))
    assert lost.answers == [200]
    assert stored.puts(1) == 2, "the second one was refused, and the entry has what it would have written"
    assert stored.rows() == [0, 1]
    assert stored.writers() == ["deltalake", "spark"]


@pytest.mark.parametrize("status", LOST)
def test_rows_of_deltalake_are_there_once_though_the_answer_is_lost(stored: Stored, status: int | None) -> None:
    lost = stored.proxy.lose_answer(stored.entry(1), status=status)
    stored.append(1)
    assert lost.answers == [200]
    stored.spark.sql(stored.insertion(2))
    assert stored.rows() == [0, 1, 2]


def test_a_commit_of_spark_that_did_not_arrive_is_made_after_one_that_did(stored: Stored) -> None:
    stored.proxy.refuse(stored.entry(1), "PUT", status=503, times=1)
    again = stored.proxy.hold(stored.entry(1), nth=2)
    stored.spark.begin(stored.insertion(1))
    again.await_arrival()
    assert stored.append(2) == 1
    again.release()
    stored.spark.rows()
    assert stored.rows() == [0, 1, 2]
    assert stored.writers() == ["deltalake", "deltalake", "spark"]


def test_a_refusal_that_left_nothing_is_answered_by_the_same_commit(stored: Stored) -> None:
    refused = stored.proxy.refuse(stored.entry(1), "PUT", status=409, times=1)
    stored.spark.sql(stored.insertion(1))
    assert (len(refused.requests), stored.puts(1)) == (1, 2)
    assert stored.rows() == [0, 1]
    assert stored.writers() == ["deltalake", "spark"]


def test_refusals_without_an_end_are_an_error_and_no_commit(stored: Stored) -> None:
    refused = stored.proxy.refuse(stored.entry(1), "PUT", status=403)
    with pytest.raises(StatementError, match="403"):
        stored.spark.sql(stored.insertion(1))
    assert len(refused.requests) == 3
    refused.release()
    stored.spark.sql(stored.insertion(2))
    assert stored.rows() == [0, 2]


def test_what_nobody_can_read_after_a_lost_answer_is_an_error(stored: Stored) -> None:
    stored.proxy.lose_answer(stored.entry(1), status=400)
    unread = stored.proxy.refuse(stored.entry(1), "GET", "HEAD", status=403)
    with pytest.raises(StatementError, match="400"):
        stored.spark.sql(stored.insertion(1))
    assert unread.requests and stored.puts(1) == 1
    stored.proxy.clear()
    assert stored.rows() == [0, 1], "whoever was told of the error has to look"


def test_a_store_that_is_busy_for_good_is_an_error_within_minutes(stored: Stored) -> None:
    begin = time.monotonic()
    busy = stored.proxy.refuse(status=503)
    with pytest.raises(StatementError, match="503") as caught:
        stored.spark.sql(stored.insertion(1))
    assert is_outage(caught.value) and time.monotonic() - begin < 240
    busy.release()
    stored.spark.sql(stored.insertion(2))
    assert stored.rows() == [0, 2]


# The rest of the log


def test_the_pointer_to_the_last_checkpoint_is_replaced(new: Stored) -> None:
    new.create(checkpointInterval="2")
    for value in range(1, 5):
        new.spark.sql(new.insertion(value))
    pointer = obstore.get(objects(new.proxy.server), f"lake/{new.name}/_delta_log/_last_checkpoint")
    assert b'"version":4' in bytes(pointer.bytes())
    assert new.rows() == [0, 1, 2, 3, 4]


def test_a_session_on_s3_is_checked_with_what_hadoop_reads_elsewhere(
    reached: tuple[SparkProcess, S3Server, Proxy],
) -> None:
    spark, _, _ = reached
    spark.check()
    with pytest.raises(StatementError, match=r"Spark has spark\.hadoop\.fs\.s3a\.create\.performance=true"):
        spark.check(**{"fs.s3a.create.performance": "true"})
    spark.check(**{"fs.s3a.create.performance": "false"})


# A server that checks signatures: it is built once, in two minutes.


def test_versitygw_takes_commits_of_both(tmp_path: Path) -> None:
    with (
        s3_server(tmp_path, kind="versitygw") as server,
        s3_proxy(server) as proxy,
        spark_on(f"{server.url}/lake", proxy.server.options, tmp_path / "spark", BRIEF) as spark,
    ):
        take_turns(Stored(spark=spark, server=server, proxy=proxy, name="t").create())
        late = Stored(spark=spark, server=server, proxy=proxy, name="late").create()
        test_a_late_commit_of_spark_is_made_as_the_next_one(late)
