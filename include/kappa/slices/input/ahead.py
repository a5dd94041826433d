"""The records of the slice after this one, read and parsed while this one is sent, merged and committed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from kappa.errors import first_line
from kappa.offsets.vector import OffsetRange
from kappa.slices.input.records import Records, where_they_are
from kappa.spark.kafka_source import read_log
from kappa.topology import Source
from kappa.wire.batches import Start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class PlannedRead:
    """What the next slice will read of one source.

    Attributes:
        source: how its values are read, without ids of schemas.
        ranges: offsets of its topic; at least one.
        start: where the source stands before them.
    """

    source: Source
    ranges: tuple[OffsetRange, ...]
    start: Start


class ReadAhead:
    """Reads in a thread of its own what the next slice is likely to want. Losing it costs time only.

    Args:
        reads: none may be of a source on the wall clock, whose time is that of the slice.
    """

    def __init__(self, session: SparkSession, bootstrap_servers: str, reads: Sequence[PlannedRead]) -> None:
        from pyspark import inheritable_thread_target

        self._session = session
        self._bootstrap_servers = bootstrap_servers
        self._thread = ThreadPoolExecutor(1, "reading-ahead")
        read = inheritable_thread_target(session)(self._read)
        self._running: list[tuple[PlannedRead, Future[Records]]] = [
            (one, self._thread.submit(read, one)) for one in reads
        ]

    def take(self, read: PlannedRead) -> Records | None:
        """The records of exactly this read, whatever the time of the slice; None where there was no such read or it
        failed: the slice then reads them itself.

        The caller closes what it takes.
        """
        for index, (one, future) in enumerate(self._running):
            if one == read:
                del self._running[index]
                return self._result(future)
        return None

    def close(self) -> None:
        """Release the reads that nobody took."""
        for _, future in self._running:
            if not future.cancel() and (records := self._result(future)) is not None:
                records.close()
        self._running = []
        self._thread.shutdown()

    def _read(self, read: PlannedRead) -> Records:
        topic, headers = read.ranges[0].topic, read.source.headers
        raw = read_log(self._session, self._bootstrap_servers, topic, read.ranges, headers=headers)
        return where_they_are(raw, read.source, read.start, lambda _: {})

    @staticmethod
    def _result(future: Future[Records]) -> Records | None:
        try:
            return future.result()
        except Exception as error:  # the slice reads it again, and says then what is wrong
            log.warning("not read ahead", error=f"{type(error).__name__}: {first_line(error)}")
            return None
