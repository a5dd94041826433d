"""The records of the slice after this one, read and parsed while this one is sent, merged and committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from kappa.errors import first_line
from kappa.offsets.vector import OffsetRange
from kappa.slices import tallies
from kappa.spark.event_time import latest
from kappa.spark.kafka_source import read_log
from kappa.spark.parsing import parse_in_arrow
from kappa.spark.parsing.batches import LEFT
from kappa.topology import Source

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """Records of one source in Spark's memory, as Arrow read them, and what was counted of them.

    Attributes:
        frame: the rows of :func:`~kappa.spark.parsing.parse_in_arrow`, kept until they are unpersisted.
        tally: ``_partition``, ``rows``, ``dead``, ``newest``, ``read``, ``bytes``, ``left`` and ``event_ms``; a row a
            partition, and one of those that tasks added.
    """

    frame: DataFrame
    tally: pa.Table


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is read of one source.

    Attributes:
        source: how its values are read.
        ranges: offsets of its topic; at least one.
        before: partition -> running maximum of timestamps before them, epoch milliseconds.
    """

    source: Source
    ranges: tuple[OffsetRange, ...]
    before: Mapping[int, int]


def parse_large(records: DataFrame, wanted: Wanted, now_ms: int) -> Parsed | None:
    """Parse records where they are, keep the rows and count them; None where Arrow reads nothing of the source.

    Args:
        now_ms: the time of the slice, for a source on the wall clock.
    """
    from pyspark.sql import functions as F

    source = wanted.source
    frame = parse_in_arrow(records, source, wanted.before)
    if frame is None:
        return None
    frame.persist()
    is_left = F.count_if(F.col("_state") == LEFT).alias("left")
    reached = latest(source, f"_read IS NULL AND _dead IS NULL AND _state <> {LEFT}", now_ms)
    try:
        tally = frame.groupBy("_partition").agg(*tallies.tally(), *tallies.read_tally(), is_left, reached).toArrow()
    except BaseException:
        frame.unpersist()
        raise
    return Parsed(frame=frame, tally=tally)


class ReadAhead:
    """Reads in a thread of its own what the next slice is likely to want. Losing it costs time only.

    Args:
        wanted: none may be of a source on the wall clock, whose time is that of the slice.
    """

    def __init__(self, session: SparkSession, bootstrap_servers: str, wanted: Sequence[Wanted]) -> None:
        from pyspark import inheritable_thread_target

        self._session = session
        self._bootstrap_servers = bootstrap_servers
        self._thread = ThreadPoolExecutor(1, "reading-ahead")
        read = inheritable_thread_target(session)(self._read)
        self._begun: list[tuple[Wanted, Future[Parsed | None]]] = [
            (one, self._thread.submit(read, one)) for one in wanted
        ]

    def take(self, wanted: Wanted) -> Parsed | None:
        """What was read of exactly that; None where it was not, or failed: then it is read as if this were not there.

        The caller unpersists what it takes.
        """
        for index, (one, future) in enumerate(self._begun):
            if one == wanted:
                del self._begun[index]
                return self._result(future)
        return None

    def close(self) -> None:
        """Let go of what was not taken."""
        for _, future in self._begun:
            if not future.cancel() and (parsed := self._result(future)) is not None:
                parsed.frame.unpersist()
        self._begun = []
        self._thread.shutdown()

    def _read(self, wanted: Wanted) -> Parsed | None:
        topic, headers = wanted.ranges[0].topic, wanted.source.headers
        records = read_log(self._session, self._bootstrap_servers, topic, wanted.ranges, headers=headers)
        return parse_large(records, wanted, now_ms=0)

    @staticmethod
    def _result(future: Future[Parsed | None]) -> Parsed | None:
        try:
            return future.result()
        except Exception as error:  # the slice reads it again, and says then what is wrong
            log.warning("not read ahead", error=f"{type(error).__name__}: {first_line(error)}")
            return None
