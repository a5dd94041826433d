"""Changelogs folded back into tables: the newest row of each key, deleted keys left out.

The keys of a partition are folded in the driver's memory; where they do not fit, or a key is in several partitions
because some were added, Spark folds. The table is written in one commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kappa.delta import tables
from kappa.errors import DataLossError
from kappa.kafka import changelogs
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets
from kappa.slices.run import EpochRun
from kappa.spark.kafka_source import read_log
from kappa.topology import Table
from kappa.wire.decoding import frame_of, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Largest number of keys of a partition that are folded in memory, and bytes of the values of all partitions. A key
#: takes about 300 bytes while its partition is read.
MOST_KEYS, MOST_BYTES = 4_000_000, 1 << 30


def fold_into(run: EpochRun, paths: EpochPaths, table: Table, upto_seq: int) -> None:
    """Replace a table of the run by what a changelog holds. Idempotent; a crash leaves the table as it was, or done.

    Time and memory grow with the changelog, which compaction keeps near the size of the state, not with history.

    Args:
        run: the epoch whose table is written.
        paths: the epoch whose changelog it is.
        table: the table, as the run has it.
        upto_seq: slice of the marker; records of later slices are not vouched for.

    Raises:
        DataLossError: the changelog does not exist, holds records after the marker (its writer was not fenced), or
            values that are not rows of the table.
        NewerFormatError: newer code wrote records in a format that this code does not read.
        BrokerUnreachableError: a transaction in it stays open; it ends by itself after its timeout.
    """
    broker, topic, target = run.engines.broker, paths.changelog(table.name), run.paths.table(table.name)
    if not broker.has_topic(topic):
        raise DataLossError(
            f"Changelog {topic!r} does not exist: table {table.name!r} cannot be rebuilt from it.", topic=topic
        )
    # Not the stable end: the transaction of the last marker may show here later than there.
    end = broker.settled_ends([topic])
    values = changelogs.newest_values(broker, topic, end, upto_seq=upto_seq, most_keys=MOST_KEYS, most_bytes=MOST_BYTES)
    if values is not None:
        tables.overwrite(target, rows_of(values, tables.schema_of(target)), 0)
        return
    _fold_with_spark(run, topic, end, table, upto_seq)


def _fold_with_spark(run: EpochRun, topic: str, end: Offsets, table: Table, upto_seq: int) -> None:
    from pyspark.sql import functions as F

    newest = _newest(run, topic, end, upto_seq).persist()
    try:
        late, newest_format = newest.agg(F.sum("late"), F.max("format")).collect()[0]
        changelogs.check_format(newest_format, topic)
        changelogs.check_late(late or 0, topic, upto_seq)
        rows = frame_of(newest.where("value IS NOT NULL").select("value"), table.columns)
        tables.overwrite_frame(run.paths.table(table.name), rows, 0)
    finally:
        newest.unpersist()


def _newest(run: EpochRun, topic: str, end: Offsets, upto_seq: int) -> DataFrame:
    """Per key: its newest value, the number of its records from later slices, and their newest format.

    In a partition the offset says which value is the newest, and among partitions the slice.
    """
    from pyspark.sql import functions as F

    engines = run.engines
    ranges = engines.broker.low_watermarks([topic]).span_to(end)
    raw = read_log(engines.session, engines.bootstrap_servers, topic, ranges, headers=True)
    seq, form = (F.expr(changelogs.header(name)) for name in (changelogs.SEQ, changelogs.FORMAT_HEADER))
    of_partitions = raw.groupBy("key", "partition").agg(
        F.max_by(F.struct("value", F.coalesce(seq, F.lit(-1)).alias("seq")), "offset").alias("newest"),
        F.count_if(seq > upto_seq).alias("late"),
        F.max(form).alias("format"),
    )
    return of_partitions.groupBy("key").agg(
        F.max_by("newest.value", "newest.seq").alias("value"),
        F.sum("late").alias("late"),
        F.max("format").alias("format"),
    )
