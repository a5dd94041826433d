"""Published tables under readers that know nothing but a path, while drivers die and epochs move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from pyspark.errors import StreamingQueryException
from support.path_readers import Rows, by_engine, rows_of, watching
from support.processes import rig
from support.published_sales import Sales, expected, prove

from kappa import control, serving
from kappa.errors import RefusedError
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from conftest import TopicFactory
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker

pytestmark = pytest.mark.e2e

QUICK = {"publish_seconds": 0.2, "merge_seconds": 0.5, "slice_records": 1_000, "handover_seconds": 600.0}
UPKEEP = {"maintain_minutes": 0.1, "keep_minutes": 0.05}
ENGINES = ("deltalake", "polars", "spark", "duckdb")
#: What another program may do to a table.
STATEMENTS = (
    "OPTIMIZE {table}",
    "DELETE FROM {table} WHERE counted = 2",
    "ALTER TABLE {table} SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
    "VACUUM {table} RETAIN 0 HOURS",
    "VACUUM {table} LITE RETAIN 0 HOURS",
)


@pytest.fixture
def machine(tmp_path: Path, kafka: Broker, topic: TopicFactory) -> Iterator[Sales]:
    """A rig that publishes and looks after files all the time, two days of records in its topic."""
    with rig(tmp_path / "rig", kafka, topic(partitions=2), kind=Sales, **QUICK, **UPKEEP) as machine:
        machine.day(-2)
        machine.day(-1)
        yield machine


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


def folders_without(folders: dict[str, list[str]], gone: str, folder: str) -> dict[str, list[str]]:
    """The same without a published table, and without a folder in the others."""
    return {name: [at for at in ats if at != folder] for name, ats in folders.items() if name != gone}


def pad(path: str, version: int) -> None:
    """Let a log grow as if the same state had been published again and again, with a checkpoint now and then."""
    table = DeltaTable(path)
    log, newest = Path(path, "_delta_log"), table.version()
    lines = (log / f"{newest:020}.json").read_text().splitlines(keepends=True)
    entry = "".join(line for line in lines if line.startswith(('{"commitInfo"', '{"txn"')))
    for number in range(newest + 1, version + 1):
        (log / f"{number:020}.json").write_text(entry)
        if number % 100 == 0 and number <= 400:
            DeltaTable(path).create_checkpoint()


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


def test_engines_read_on_and_other_writers_are_refused_over_a_cutover(
    machine: Sales, spark: SparkSession, tmp_path: Path
) -> None:
    first = machine.start_live()
    machine.await_published(first, "moves", "totals")
    path = machine.published("moves")
    before, version = rows_of(path), machine.entries("moves")[-1].version
    assert by_engine(path, session=spark) == dict.fromkeys(ENGINES, before)
    totals = machine.published("totals")
    totals_before = rows_of(totals)
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
    after = rows_of(path)
    assert after == served(machine, "moves")
    assert by_engine(path, session=spark) == dict.fromkeys(ENGINES, after)
    assert by_engine(path, version, spark) == dict.fromkeys(ENGINES, before)
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    for statement in STATEMENTS:
        with pytest.raises(Exception, match="kappaPublished"):
            spark.sql(statement.format(table=f"delta.`{path}`"))
    assert rows_of(path) == after and rows_of(path, version) == before
    roll_back(machine, first)
    machine.day(3)
    machine.await_published(first, "moves")
    assert by_engine(path, session=spark) == dict.fromkeys(ENGINES, served(machine, "moves"))
    assert by_engine(path, version, spark) == dict.fromkeys(ENGINES, before)
    prove(machine, "moves", [first, second, first])


def test_an_epoch_is_removed_after_its_files_have_left_the_published_tables(machine: Sales) -> None:
    names = ("moves", "balances", "notes")

    def folders() -> dict[str, list[str]]:
        return {name: sorted(at.name for at in Path(machine.published(name)).iterdir()) for name in names}

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
    before = folders()
    with pytest.raises(RefusedError, match="shows its files still"):
        control.retire(machine.config, machine.name, first, actor="test", reason="too early")
    assert folders() == before
    machine.run(second)
    machine.await_published(second, "moves", "balances")

    third = machine.plan_replay()
    machine.await_stage(third, Stage.VERIFIED)
    assert "_e0003" in folders()["moves"]
    control.abort(machine.config, machine.name, third, actor="test", reason="test")
    assert folders() == before
    prove(machine, "moves", [first, second])

    removal = control.retire.planned(machine.config, machine.name, first, actor="test", reason="test")
    (line,) = [effect.what for effect in removal.effects if effect.what.startswith("remove the folder")]
    assert f"with them the published tables {machine.published('notes')} and the versions of" in line
    assert f"{path} from before" in line
    assert folders() == before
    control.retire(machine.config, machine.name, first, actor="test", reason="test")
    assert not Path(machine.published("notes")).exists()
    assert folders_without(before, "notes", "_e0001") == {
        name: sorted(at.name for at in Path(machine.published(name)).iterdir()) for name in ("moves", "balances")
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
    entries = prove(machine, "moves", [first], step=100)
    assert (entries[0].version, entries[-1].version // 100) == (401, 22)
