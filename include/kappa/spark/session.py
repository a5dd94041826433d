"""The Spark session of a driver, built from the settings alone."""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kappa.config import Config
from kappa.errors import ConfigError
from kappa.kafka import client_file
from kappa.spark import class_data, object_store, trust_store, unix_sockets
from kappa.spark.gateway import LOCALE, UTF_8, forget_jvm, start_jvm
from kappa.spark.jars import ensure_spark, java_home
from kappa.spark.s3_jars import ensure_s3
from kappa.spark.shipping import shipped
from kappa.store.address import is_remote
from kappa.store.options import bundle_of, key_file, options_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: The folder that ``kappa`` was imported from: Python workers must run the code of this driver and no other (law 11).
_SOURCE_ROOT = Path(__file__).resolve().parents[2]

#: Rows in memory that one task has done with before a second one has begun.
ONE_TASK_ROWS = 10_000

_SECRET = "(?i)secret|password|passphrase|token|credential|jaas|keystore[.]key|(?:access|account|api|mask|private).?key"  # noqa: S105

_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # A bad cast or an overflow in a step stops the slice. Without ANSI it would be a null that goes unnoticed.
    "spark.sql.ansi.enabled": "true",
    # Delta refuses columns that differ only in case, so a step may not tell them apart either. JSON fields stay
    # case-sensitive.
    "spark.sql.caseSensitive": "false",
    # Slices are planned small; re-planning between stages costs more than it saves (docs: "Small slices").
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "2",
    # deltalake's Arrow readers do not read deletion vectors.
    "spark.databricks.delta.properties.defaults.enableDeletionVectors": "false",
    # Rows of one Arrow batch between the JVM and Python: parsing pays a fixed price for each batch.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Every rule visits the rows that a plan itself holds, for each DataFrame that is made of it. Up to 48 MB of them,
    # the default, were a second of planning for each large slice, and a megabyte was a tenth of each small one.
    "spark.sql.execution.arrow.localRelationThreshold": "64k",
    # A streaming query's checkpoint is scratch. By default Spark writes it through Hadoop's FileContext, which starts
    # 32 processes for each micro-batch to ask whether something is a symbolic link.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Slices are kept for a moment only: compressing them costs more than the memory is worth.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # More plans than a slice, a verification and a cutover have together: the generated code of each is compiled once.
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.driver.memory": "3g",
    # Each sort and each join of each task takes a page first, 64 MB by itself with this memory, however few its rows
    # are.
    "spark.buffer.pageSize": "4m",
    # Spark reads every slice by a consumer group of its own: no consumer, and nothing that one fetched ahead, is of use
    # to the next slice. It would keep 64 of them for five minutes, with a megabyte or two each.
    "spark.kafka.consumer.cache.timeout": "5s",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "5s",
    "spark.kafka.consumer.fetchedData.cache.timeout": "5s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "5s",
    # Effects of a slice that are larger are written by Spark instead of from the driver's memory.
    "spark.driver.maxResultSize": "512m",
    "spark.ui.enabled": "false",
    # Also without its UI Spark keeps jobs, stages and the graphs of a thousand plans for it: memory that grows with the
    # number of slices. A session with the UI wants more.
    "spark.sql.ui.retainedExecutions": "20",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.ui.showConsoleProgress": "false",
    # What Spark writes into logs, plans, its page and its events: no value of a setting or option with such a name.
    "spark.redaction.regex": _SECRET,
    "spark.sql.redaction.options.regex": f"{_SECRET}|url",
    "spark.log.level": "ERROR",
}

#: How Spark keeps dates and times in files, as deltalake and other readers of Parquet take them. Its own default for
#: times, INT96, is nanoseconds to them, and a time before 1677 or after 2262 is then another one.
_FORMS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
}

#: Setting of the Python that workers run. PySpark passes it over in a process that it did not start itself.
_PYTHON = "spark.pyspark.python"
#: Setting of the options of a driver's JVM.
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
#: The same of executors, which have JVMs of their own on a cluster only.
EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
#: Up to this many cores the JVM collects in one thread: then its heap follows what is alive in it, slice after slice.
#: G1, which it chooses from two cores on, takes what it may, and gains nothing by its threads on so few cores.
FEW_CORES = 4
#: On a cluster a driver's JVM plans, and its executors compute: of its processor time in the first minutes of a replay
#: two thirds were its compilers' (docs/decisions/the-compiler-of-a-young-driver.md).
ONE_COMPILER = "-XX:TieredStopAtLevel=1"
#: Where Spark has the memory and the cores of the driver's host, its merges take several times as long as those of the
#: driver's process, so they are for tables that are larger by this factor.
_ON_ONE_HOST = 4
#: Megabytes of classes that a driver loads beside those of its class data, and some more.
CLASSES_MB = 256


def build_session(config: Config, app_name: str) -> SparkSession:
    """The Spark session of this process, started when there is none.

    ``config.spark_conf`` overrides the settings made here, but for the form of times in files. Times are UTC, ANSI mode
    is on, column names do not count case, adaptive execution and the UI are off.

    Args:
        config: where Spark runs, and further settings.
        app_name: what Spark shows as the application's name.

    Raises:
        ConfigError: the jars cannot be resolved, there is no Java, or ``config.spark_conf`` has another form of times.
    """
    # Read by pyspark when it starts the JVM and its workers; without them they run whatever is on the path.
    os.environ["PYSPARK_PYTHON"] = config.spark_conf.get(_PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable
    os.environ["JAVA_HOME"] = str(java_home())
    from pyspark.sql import SparkSession

    jars = ensure_spark(config.cache)
    if is_remote(config.lake):
        jars = sorted([*jars, *ensure_s3(config.cache)])
    options = settings(config, jars)
    if is_remote(config.lake):
        options[JAVA_OPTIONS] = object_store.java_options(options.get(JAVA_OPTIONS, ""), options)
    if bundle := bundle_of(config.lake):
        options[JAVA_OPTIONS] = trust_store.reading(options.get(JAVA_OPTIONS, ""), bundle, config.cache)
    for name in (JAVA_OPTIONS, EXECUTOR_OPTIONS):
        if with_tokens := client_file.java_options(config.bootstrap_servers, options.get(name, "")):
            options[name] = with_tokens
    if local_cores(config.spark_master) is not None:  # on a cluster the class path is another
        options[JAVA_OPTIONS] = class_data.reading(options.get(JAVA_OPTIONS, ""), config.cache, jars)
    start_jvm({**options, "spark.master": config.spark_master, "spark.app.name": app_name})
    builder = SparkSession.builder.appName(app_name).master(config.spark_master)
    for key, value in options.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    object_store.check_session(session, config.lake)
    if local_cores(config.spark_master) is None:
        session.sparkContext.addPyFile(str(shipped(_SOURCE_ROOT / "kappa", config.home / "shipped")))
    elif unix_sockets.ENABLED not in config.spark_conf:
        unix_sockets.reach_workers(session)
    return session


def check_settings(config: Config) -> None:
    """Refuse settings with which a session must not commit to the lake, before there is one.

    Raises:
        ConfigError: another form of times, another log store, or a setting that takes the condition of commits away.
    """
    conf = settings(config, ())
    if is_remote(config.lake):
        object_store.check(conf)


@dataclass(kw_only=True)
class LazySession:
    """A Spark session that starts when it is first asked for, and stops at the end of a ``with`` block.

    One whose JVM ended is replaced by a new one when it is asked for again: whoever comes next has no part in that.

    Attributes:
        config: where Spark runs.
        name: what Spark shows as the application's name.
    """

    config: Config
    name: str
    _session: SparkSession | None = field(default=None, init=False)

    def __enter__(self) -> LazySession:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        session, self._session = self._session, None
        if session is not None and is_answering(session):
            session.stop()
        elif session is not None:
            forget_jvm()

    @property
    def session(self) -> SparkSession:
        """The session."""
        if self._session is not None and not is_answering(self._session):
            self._stop()
        if self._session is None:
            self._session = build_session(self.config, self.name)
        return self._session


def driver_name(topology: str, epoch: int) -> str:
    """The name that Spark shows for a driver's application."""
    return f"kappa {topology} e{epoch:04d}"


class StartingSession:
    """A Spark session that starts in a thread of its own, while this process does what needs none.

    Args:
        config: where Spark runs.
        name: what Spark shows as the application's name.
    """

    def __init__(self, config: Config, name: str) -> None:
        self._future: Future[SparkSession] = Future()
        # No daemon: a process that ends before Spark has started would leave the file with its settings.
        threading.Thread(target=self._start, args=(config, name), name="starting-spark").start()

    def _start(self, config: Config, name: str) -> None:
        try:
            self._future.set_result(build_session(config, name))
        except BaseException as error:
            self._future.set_exception(error)

    def session(self) -> SparkSession:
        """The session, once it has started.

        Raises:
            ConfigError: the jars cannot be resolved, or there is no Java.
        """
        return self._future.result()


def is_alive(session: SparkSession) -> bool:
    """Whether the session's JVM still runs; one that was killed does not come back within this process."""
    process = getattr(session.sparkContext._gateway, "proc", None)
    return process is None or process.poll() is None


def is_answering(session: SparkSession) -> bool:
    """Whether the session can compute: its JVM runs, and has neither begun to end after it ran out of memory nor been
    stopped by its cluster.
    """
    try:
        return is_alive(session) and not session.sparkContext._jsc.sc().isStopped()
    except Exception:  # py4j raises several for a JVM that is ending
        return False


def mute(session: SparkSession) -> None:
    """Turn off the logs of Spark, in this process and in the JVM: they repeat the message of each error, and with it
    values of records.
    """
    from pyspark.logger import PySparkLogger

    session.sparkContext.setLogLevel("OFF")
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)


def is_part(part: DataFrame, whole: DataFrame) -> bool:
    """Whether a DataFrame's plan occurs within another's: keeping its rows then spares the other the work."""
    target = part._jdf.queryExecution().analyzed()
    waiting = [whole._jdf.queryExecution().analyzed()]
    while waiting:
        plan = waiting.pop()
        if plan.sameResult(target):
            return True
        children = plan.children()
        waiting.extend(children.apply(index) for index in range(children.size()))
    return False


def is_too_large(error: BaseException) -> bool:
    """Whether Spark refused to send a result to the driver because of ``spark.driver.maxResultSize``."""
    return "spark.driver.maxResultSize" in str(error)


def local_session(name: str = "tests") -> SparkSession:
    """Spark on this machine with a driver's settings, by the ``KAPPA_*`` variables and ``kappa.toml``, but for cluster,
    lake and logins. It takes seconds: make one for all tests.

    Args:
        name: shown by Spark's own tools.

    Raises:
        ConfigError: a variable is malformed.

    Examples:
        >>> from kappa.testing import local_session
        >>> spark = local_session("examples")
        >>> spark.range(3).count()
        3
    """
    config = Config.from_env()
    own: dict[str, Any] = {"lake": str(config.home / "lake"), "lake_client_file": "", "kafka_client_file": ""}
    if local_cores(config.spark_master) is None:
        own |= {"spark_master": "local[*]", "spark_conf": {}}
    return build_session(replace(config, **own), name)


def frame_of(session: SparkSession, rows: pa.Table, schema: StructType | None = None) -> DataFrame:
    """A DataFrame of rows in memory; whatever is within their values may be null.

    A few of them are in one task, and so is what is made of several such frames: rows of one task are in every
    partitioning that a step asks for, and Spark moves none of them between two.

    An Arrow table without rows may have no chunks either, and Spark does not take that where a column is nested.

    Args:
        rows: the rows.
        schema: the type of a row; None takes what the Arrow types say.
    """
    import pyarrow as pa

    held = rows.cast(pa.schema([(field.name, _loose(field.type)) for field in rows.schema]))
    held = held if held.num_rows else held.schema.empty_table()
    frame = session.createDataFrame(held, schema=schema) if schema else session.createDataFrame(held)
    return frame.coalesce(1) if rows.num_rows <= ONE_TASK_ROWS else frame


def _loose(kind: pa.DataType) -> pa.DataType:
    """The type without NOT NULL: a null STRUCT has a null in each of its fields, and a cast takes that for theirs."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _loose(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _loose(kind.item_type))
    return pa.list_(_loose(kind.value_type)) if pa.types.is_list(kind) else kind


def broadcast_bytes(session: SparkSession) -> int:
    """Largest size of what Spark sends to every task of a join by itself; negative where it sends nothing."""
    size: int = session._jsparkSession.sessionState().conf().autoBroadcastJoinThreshold()
    return size


def settings(config: Config, jars: Sequence[Path]) -> dict[str, str]:
    """Spark settings of a driver: Kappa's, then those that ``config.spark_conf`` overrides.

    Raises:
        ConfigError: it has another form of times.
    """
    for name, value in _FORMS.items():
        if (own := config.spark_conf.get(name, value)).upper() != value:
            raise ConfigError(
                f"KAPPA_SPARK_CONF sets {name} to {own}: other readers of the tables than Spark would find other times "
                "in them. Remove it from KAPPA_SPARK_CONF.",
                name=name,
                value=own,
            )
    cores = local_cores(config.spark_master)
    paths = [str(jar) for jar in sorted(jars)]
    options = {**_SETTINGS, **_FORMS, "spark.sql.warehouse.dir": str(config.home / "spark-warehouse")}
    if cores is None:  # their hosts have other folders: they get this code and the jars from the driver
        options["spark.jars"] = ",".join(paths)
        options[JAVA_OPTIONS] = ONE_COMPILER
        options[f"spark.executorEnv.{LOCALE}"] = UTF_8  # whatever the service that starts them has
    else:
        options["spark.executorEnv.PYTHONPATH"] = str(_SOURCE_ROOT)
        # On this host the jars are read where they are; spark.jars would copy them at each start.
        options["spark.driver.extraClassPath"] = os.pathsep.join(paths)
        options["spark.sql.shuffle.partitions"] = str(2 * cores)
        options["spark.driver.host"] = options["spark.driver.bindAddress"] = "127.0.0.1"
        if cores <= FEW_CORES:
            memory = config.spark_conf.get("spark.driver.memory", options["spark.driver.memory"])
            options[JAVA_OPTIONS] = serial_collector(memory)
    store = object_store.settings(config.lake, options_of(config.lake), os.environ, key_file(config.lake))
    return {**options, **store, **config.spark_conf}


def serial_collector(memory: str) -> str:
    """Options of a JVM with so much memory, ``3g`` for example, whose heap follows what is alive in it.

    A sixth is for new objects from the start. The JVM would begin with less and move them on too early: what a slice
    needs for a moment is then collected with what is old, while everything stands still. A third is for old objects
    from the start, and room for the classes of a driver: each time either has grown, all of the heap is collected.
    Beside what is alive among the old objects the JVM then comes down, in four such looks, to two thirds of that free
    at most, where it would keep more than twice of it by itself, and to a twelfth of the memory.
    """
    options = f"-XX:+UseSerialGC -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40 -XX:MetaspaceSize={CLASSES_MB}m"
    match = re.fullmatch(r"(\d+)([mg])b?", memory.strip().lower())
    if match is None:
        return options
    megabytes = int(match[1]) * (1024 if match[2] == "g" else 1)
    return f"{options} -Xmn{megabytes // 6}m -Xms{megabytes // 4}m -XX:InitialHeapSize={megabytes // 2}m"


def merge_bytes(config: Config) -> int:
    """Size of a table's files, in bytes, from which Spark merges it, and the driver's process does not."""
    return config.merge_bytes * (1 if local_cores(config.spark_master) is None else _ON_ONE_HOST)


def local_cores(master: str) -> int | None:
    """Cores of a ``local`` master; None when Spark runs on a cluster."""
    match = re.fullmatch(r"local(?:\[(\*|\d{1,9})(?:,\s*\d{1,9})?\])?", master)
    if match is None:
        return None
    if match[1] == "*":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return int(match[1] or 1)
