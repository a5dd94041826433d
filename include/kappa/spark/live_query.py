"""Following the log live: Structured Streaming hands over micro-batches, each becomes one slice."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kappa import clock
from kappa.errors import LedgerError
from kappa.kafka.client_file import for_spark
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.spark.kafka_source import CONSUMER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Takes the ranges of a micro-batch and its records.
OnBatch = Callable[[Sequence[OffsetRange], "DataFrame"], None]
#: From this many seconds on a clock counts as set back.
_SET_BACK_SECONDS = 1.0


class LiveQuery:
    """One start of the stream, from the ledger's position.

    Spark's query checkpoint is scratch: every start makes a new one.

    Args:
        start: offsets to begin with, every partition named: the ledger's, and 0 for those that appeared since.
        checkpoint: folder for the query checkpoint; other starts beside it are removed.
        trigger_seconds: least time between the starts of two micro-batches.
        max_records: most offsets of one micro-batch.
        headers: whether records come with their headers.
        position: asked for the ledger's position before each micro-batch.
        on_batch: called with each micro-batch, in order, never two at once.
    """

    def __init__(
        self,
        session: SparkSession,
        bootstrap_servers: str,
        start: Offsets,
        *,
        checkpoint: str,
        trigger_seconds: float,
        max_records: int,
        headers: bool,
        position: Callable[[], Offsets],
        on_batch: OnBatch,
    ) -> None:
        self._position = position
        self._on_batch = on_batch
        self._checkpoint = Path(checkpoint)
        self._busy = threading.Lock()
        self._closing = False
        self.error: BaseException | None = None
        self._reached = start
        self._ahead = _ahead_seconds()
        shutil.rmtree(self._checkpoint.parent, ignore_errors=True)
        self._query: StreamingQuery = (
            session.readStream.format("kafka")
            .option("kafka.bootstrap.servers", bootstrap_servers)
            .options(**CONSUMER)
            .option("subscribe", ",".join(start.topics))
            .option("startingOffsets", start.to_json())
            .option("maxOffsetsPerTrigger", max_records)
            .option("failOnDataLoss", "true")
            .option("includeHeaders", str(headers).lower())
            .options(**for_spark(bootstrap_servers))
            .load()
            .writeStream.foreachBatch(self._batch)
            .option("checkpointLocation", checkpoint)
            .trigger(processingTime=f"{int(trigger_seconds * 1000)} milliseconds")
            .start()
        )

    def is_active(self) -> bool:
        """Whether micro-batches still come: none do after the clock was set back, for as long as that was.

        Spark waits by the wall clock for the time of the next one.
        """
        ahead, before = _ahead_seconds(), self._ahead
        self._ahead = max(ahead, before)
        is_set_back = ahead < before - _SET_BACK_SECONDS
        return self.error is None and not is_set_back and bool(self._query.isActive)

    def between(self, act: Callable[[], object], *, is_waiting: bool = False) -> None:
        """Do something between two slices; nothing when one is being worked on, unless its end is waited for.

        Who does not wait gets no turn while slices follow each other without a pause.
        """
        if not self._busy.acquire(blocking=is_waiting):
            return
        try:
            if not self._closing and self.error is None:
                act()
        finally:
            self._busy.release()

    def close(self) -> None:
        """End the query after the slice that is being worked on, if any.

        Raises:
            BaseException: whatever ``on_batch`` raised, or what Spark says went wrong.
        """
        with self._busy:
            self._closing = True
        self._query.stop()
        if self.error is not None:
            raise self.error
        failure = self._query.exception()
        if failure is not None:
            raise failure

    def _batch(self, records: DataFrame, batch_id: int) -> None:
        with self._busy:
            if self._closing or self.error is not None:
                return
            try:
                position = self._position()
                end = position.merge(self._end_of(batch_id))
                ranges = position.span_to(end)
                if self._reached.span_to(end) != ranges:
                    raise LedgerError(
                        f"Spark hands over records from {self._reached.to_json()} on, the ledger stands at "
                        f"{position.to_json()}: the stream starts again from there.",
                        spark=self._reached.to_json(),
                        ledger=position.to_json(),
                    )
                if any(not range_.is_empty for range_ in ranges):
                    self._on_batch(ranges, records)
                self._reached = end
            except BaseException as error:
                # Raised by close(). Spark would wait for ever for a callback that ends with anything but an Exception.
                self.error = error

    def _end_of(self, batch_id: int) -> Offsets:
        """End offsets of a micro-batch: last line of its offset file, which Spark writes before the batch runs."""
        lines = (self._checkpoint / "offsets" / str(batch_id)).read_text().splitlines()
        return Offsets.from_json(json.loads(lines[-1]))


def _ahead_seconds() -> float:
    """By how much the wall clock is ahead of the monotonic one."""
    return clock.now().timestamp() - time.monotonic()
