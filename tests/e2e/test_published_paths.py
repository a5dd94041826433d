"""Published tables under readers that know nothing but a path, while drivers die and epochs move."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from support.path_readers import Query, Rows, by_engine, engines_reading, rows_of, watching
from support.processes import QUICK_JVM, rig
from support.published_sales import Entry, S3Sales, Sales, expected, prove
from support.s3_lake import s3_rig
from support.s3_spark import spark_on

from kappa import control, serving
from kappa.delta.access import open_table
from kappa.delta.damage import entry_of
from kappa.delta.log_entries import actions_of
from kappa.delta.publication import CHECKPOINT_EVERY
from kappa.errors import RefusedError
from kappa.replay.stages import Stage
from kappa.store.stores import store_of

if TYPE_CHECKING:
    from conftest import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1400)]

QUICK = {"publish_seconds": 0.2, "merge_seconds": 0.5, "slice_records": 1_000, "handover_seconds": 600.0}
#: On S3 each look after files is many requests.
UPKEEP = {"disk": {"maintain_minutes": 0.1, "keep_minutes": 0.05}, "S3": {"maintain_minutes": 0.5, "keep_minutes": 0.2}}
ENGINES = ("deltalake", "polars", "spark", "duckdb")
#: What another program may do to a table.
STATEMENTS = (
    "OPTIMIZE {table}",
    "DELETE FROM {table} WHERE counted = 2",
    "ALTER TABLE {table} SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
    "VACUUM {table} RETAIN 0 HOURS",
    "VACUUM {table} LITE RETAIN 0 HOURS",
)


@pytest.fixture(params=["disk", "S3"])
def machine(request: pytest.FixtureRequest, tmp_path: Path, kafka: Broker, topic: TopicFactory) -> Iterator[Sales]:
    """A rig that publishes and looks after files all the time, two days of records in its topic."""
    base, name, settings = tmp_path / "rig", topic(partitions=2), {**QUICK, **UPKEEP[request.param]}
    if request.param == "S3":
        server, proxy = request.getfixturevalue("s3"), request.getfixturevalue("proxy")
        place: AbstractContextManager[Sales] = s3_rig(base, kafka, name, server, proxy, kind=S3Sales, **settings)
    else:
        place = rig(base, kafka, name, kind=Sales, **settings)
    with place as machine:
        machine.day(-2)
        machine.day(-1)
        yield machine


@pytest.fixture
def query(request: pytest.FixtureRequest, machine: Sales, tmp_path: Path) -> Iterator[Query]:
    """Spark, which runs statements; may be used by several threads."""
    lock = threading.Lock()

    def one_by_one(run: Query) -> Query:
        def query(statement: str) -> Sequence[Any]:
            with lock:
                return run(statement)

        return query

    if not isinstance(machine, S3Sales):
        session = request.getfixturevalue("spark")
        yield one_by_one(lambda statement: session.sql(statement).collect())
        return
    config = machine.config
    with spark_on(config.lake, {}, tmp_path / "spark", QUICK_JVM, file=Path(config.lake_client_file)) as process:
        yield one_by_one(process.sql)


def served(machine: Sales, name: str) -> Rows:
    """What a snapshot of the live epoch has of a table or output, in the columns that are declared."""
    rows = serving.snapshot(machine.config, machine.name).rows(name).to_pylist()
    return sorted(tuple(value for column, value in row.items() if not column.startswith("_")) for row in rows)


class Stream:
    """A stream of Spark over a table by path; each start writes into a folder of its own."""

    def __init__(self, session: SparkSession, path: str, checkpoint: Path, **options: str) -> None:
        self._session = session
        self._reader = session.readStream.format("delta").options(**options)
        self._path, self._checkpoint = path, checkpoint
        self._starts = 0
        self.start()
        self.rows()

    def start(self) -> None:
        """Begin, or go on from the checkpoint."""
        self._starts += 1
        self._target = f"{self._checkpoint}_rows_{self._starts}"
        writer = self._reader.load(self._path).writeStream.format("parquet")
        self._query = writer.option("checkpointLocation", str(self._checkpoint)).start(self._target)

    def rows(self) -> Rows:
        """What came since the start, once all is read that is there.

        Raises:
            StreamingQueryException: the stream ended.
        """
        self._query.processAllAvailable()
        return sorted(map(tuple, self._session.read.parquet(f"{self._target}/*.parquet").collect()))

    def stop(self) -> None:
        """End it."""
        self._query.stop()


def pad(path: str, version: int) -> None:
    """Let a log grow, with its checkpoints, as if the same state had been published again and again."""
    newest, store = open_table(path).version(), store_of(path)
    actions = [action for action in actions_of(path, newest) or () if action.keys() & {"commitInfo", "txn"}]
    entry = "".join(f"{json.dumps(action)}\n" for action in actions).encode()
    with ThreadPoolExecutor(8) as writers:
        list(writers.map(lambda number: store.put(entry_of(path, number), entry), range(newest + 1, version + 1)))
    for number in range(newest + 1, version + 1):
        if number % CHECKPOINT_EVERY == 0:
            open_table(path, number).create_checkpoint()


def roll_back(machine: Sales, epoch: int) -> None:
    """Bring an epoch back that was live."""
    control.rollback(machine.config, machine.name, to=epoch, actor="test", reason="back")
    machine.wait(lambda: control.progress(machine.config, machine.name, epoch).is_caught_up, "it caught up")
    control.cut_over(machine.config, machine.name, epoch, actor="test", reason="back")
    machine.await_live(epoch)


def test_readers_by_path_see_one_committed_state_after_another(machine: Sales, tmp_path: Path) -> None:
    paths = {name: machine.published(name) for name in ("moves", "balances")}
    first = machine.start("publish.begin@3")
    with machine.feeding(0.05), watching(tmp_path, *paths.values()) as readings:
        for point in ("publish.commit", ""):
            machine.await_death(first)
            machine.run(first, point)
        machine.await_live(first)
        machine.backfill(-2, -1)
        machine.deploy(2)
        second = machine.plan_replay("publish.begin")
        machine.await_stage(second, Stage.VERIFIED)
        control.cut_over(machine.config, machine.name, second, actor="test", reason="test")
        machine.await_death(second)  # live, and not published yet
        machine.run(second)
        machine.await_live(second)
        roll_back(machine, first)
        roll_back(machine, second)
        machine.await_shown(second, *paths)
    machine.await_published(second, *paths)
    history = machine.history()
    for name, path in paths.items():
        entries = {entry.version: entry for entry in prove(machine, name, [first, second, first, second], step=10)}
        own = [reading for reading in readings if reading.path == path]
        versions = [reading.version for reading in own]
        assert versions == sorted(set(versions))
        assert {entries[version].epoch for version in versions} == {first, second}
        for reading in own:
            entry = entries[reading.version]
            assert entry.offsets is not None
            assert reading.rows == expected(name, entry.epoch, entry.offsets, history), reading.version
        assert rows_of(path) == served(machine, name)


def is_refused(query: Query, statement: str) -> bool:
    """Whether Spark refuses a statement because the table is a published one."""
    try:
        query(statement)
    except Exception as error:
        return "kappaPublished" in str(error)
    return False


def check_in_order(readings: Sequence[Rows], states: Sequence[Rows]) -> None:
    """Hold that each reading is one of the states, and none an earlier one than the reading before."""
    at = 0
    for number, rows in enumerate(readings):
        assert rows in states[at:], f"reading {number} of {len(readings)}"
        at = states.index(rows, at)


def test_engines_read_one_committed_state_after_another_and_other_writers_are_refused(
    machine: Sales, query: Query
) -> None:
    first = machine.start_live()
    machine.await_published(first, "moves")
    path = machine.published("moves")
    before, version = rows_of(path), machine.entries("moves")[-1].version
    with engines_reading(path, query) as readings:
        machine.kill(first)
        for number, point in enumerate(("publish.begin", "publish.commit")):
            machine.day(number)
            machine.run(first, point)
            machine.await_death(first)
        machine.run(first)
        machine.await_published(first, "moves")
        machine.backfill(-2, -1)
        machine.deploy(2)
        second = machine.plan_replay()
        machine.cut_over(second)
        for number in (2, 3):  # of one file there would be nothing to optimize
            machine.day(number)
            machine.await_published(second, "moves")
        after, last = rows_of(path), machine.entries("moves")[-1].version
        query("SET spark.databricks.delta.retentionDurationCheck.enabled = false")
        assert [one for one in STATEMENTS if not is_refused(query, one.format(table=f"delta.`{path}`"))] == []
        assert by_engine(path, last, query) == dict.fromkeys(ENGINES, after)
        assert by_engine(path, version, query) == dict.fromkeys(ENGINES, before)
        roll_back(machine, first)
        machine.day(4)
        machine.await_published(first, "moves")
    history = machine.history()
    states = [expected_state(entry, history) for entry in prove(machine, "moves", [first, second, first])]
    assert len(readings) > 3
    for engine in ENGINES:
        check_in_order([reading[engine] for reading in readings], states)
    assert by_engine(path, query=query) == dict.fromkeys(ENGINES, served(machine, "moves"))
    assert by_engine(path, version, query) == dict.fromkeys(ENGINES, before)


def expected_state(entry: Entry, history: Sequence[tuple[Any, str, int]]) -> Rows:
    """What an entry of ``moves`` must show."""
    assert entry.offsets is not None
    return expected("moves", entry.epoch, entry.offsets, history)


@pytest.mark.parametrize("machine", ["disk"], indirect=True)
def test_queries_and_streams_of_before_a_cutover_go_on_or_say_what_they_need(
    machine: Sales, spark: SparkSession, tmp_path: Path
) -> None:
    first = machine.start_live()
    machine.await_published(first, "moves", "totals")
    path, totals = machine.published("moves"), machine.published("totals")
    before, totals_before = rows_of(path), rows_of(totals)
    opened, running = DeltaTable(path), spark.read.format("delta").load(path).toLocalIterator()
    streams = {
        "skipping": Stream(spark, totals, tmp_path / "skipping", skipChangeCommits="true"),
        "plain": Stream(spark, totals, tmp_path / "plain"),
        "narrow": Stream(spark, path, tmp_path / "narrow", skipChangeCommits="true"),
    }
    machine.deploy(2)
    second = machine.plan_replay()
    machine.cut_over(second)
    machine.await_published(second, "moves", "totals")
    at_cutover = {name: rows_of(machine.published(name)) for name in ("moves", "totals")}
    for number in range(3):
        machine.day(number)
        machine.await_published(second, "moves", "totals")
    appended = Counter(rows_of(totals)) - Counter(at_cutover["totals"])
    assert sorted(tuple(row.values()) for row in opened.to_pyarrow_table().to_pylist()) == before
    assert sorted(map(tuple, running)) == before
    assert Counter(streams["skipping"].rows()) == Counter(totals_before) + appended
    for name, message in (("plain", "skipChangeCommits"), ("narrow", "DELTA_SCHEMA_CHANGED_WITH_VERSION")):
        with pytest.raises(StreamingQueryException, match=message):
            streams[name].rows()
    streams["narrow"].start()
    words = Counter(rows_of(path)) - Counter(at_cutover["moves"])
    assert Counter(streams["narrow"].rows()) == words
    for stream in streams.values():
        stream.stop()


def test_an_epoch_is_removed_after_its_files_have_left_the_published_tables(machine: Sales) -> None:
    names = ("moves", "balances", "notes")
    first = machine.start_live()
    machine.await_published(first, *names)
    path, version = machine.published("moves"), machine.entries("moves")[-1].version
    machine.deploy(2)
    second = machine.plan_replay("publish.begin")
    machine.await_stage(second, Stage.VERIFIED)
    control.cut_over(machine.config, machine.name, second, actor="test", reason="test")
    machine.await_death(second)
    machine.await_end(first)
    assert machine.record().live == second
    before = machine.folders(*names)
    with pytest.raises(RefusedError, match="shows its files still"):
        control.retire(machine.config, machine.name, first, actor="test", reason="too early")
    assert machine.folders(*names) == before
    machine.run(second)
    machine.await_published(second, "moves", "balances")

    third = machine.plan_replay()
    machine.await_stage(third, Stage.VERIFIED)
    assert "_e0003" in machine.folders("moves")["moves"]
    control.abort(machine.config, machine.name, third, actor="test", reason="test")
    assert machine.folders(*names) == before
    prove(machine, "moves", [first, second])

    removal = control.retire.planned(machine.config, machine.name, first, actor="test", reason="test")
    (line,) = [effect.what for effect in removal.effects if effect.what.startswith("remove the folder")]
    assert f"with them the published tables {machine.published('notes')} and the versions of" in line
    assert f"{path} from before" in line
    assert machine.folders(*names) == before
    control.retire(machine.config, machine.name, first, actor="test", reason="test")
    assert machine.folders(*names) == {
        name: [] if name == "notes" else [at for at in folders if at != "_e0001"] for name, folders in before.items()
    }
    with pytest.raises(Exception, match=r"(?i)not found|no such file"):
        rows_of(path, version)
    machine.day(0)
    machine.await_published(second, "moves", "balances")
    assert rows_of(path) == served(machine, "moves")


def test_drivers_killed_while_a_log_is_summed_up_and_cut_leave_it_readable(machine: Sales) -> None:
    first = machine.start_live()
    machine.await_published(first, "moves")
    machine.kill(first)
    path = machine.published("moves")
    for number, (version, point) in enumerate([(1999, "publish.checkpoint"), (2099, "publish.cleanup"), (2199, "")]):
        pad(path, version)
        machine.day(number)
        machine.run(first, point)
        if point:
            machine.await_death(first)
        else:
            machine.await_published(first, "moves")
        entry = machine.newest("moves")
        assert entry is not None and entry.offsets is not None and entry.version > version
        assert rows_of(path) == expected("moves", first, entry.offsets, machine.history())
    machine.wait(lambda: store_of(path).head(entry_of(path, 399)) is None, "the last of the old entries is gone")
    entries = prove(machine, "moves", [first], step=100)
    assert (entries[0].version, entries[-1].version // 100) == (401, 22)
