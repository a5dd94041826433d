"""Takes every record of a topic into its archive, by the discipline of the slice protocol.

A slice of an archive is planned, written and committed: the plan row freezes its ranges, the write carries its number
as an application transaction, the commit row says how many records there were. A crash between any two is repaired by
starting again; of two archivers at once one finds its claim taken, stops, and nothing that it did differs from what the
other does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kappa import clock
from kappa.acts import Act, Effect
from kappa.archive.overview import NOBODY, checked_id, lost_records, position_of, schemas_of
from kappa.archive.reader import Archive
from kappa.archive.rows import COLUMNS, PARTITION, archived_rows
from kappa.config import Config
from kappa.delta import tables
from kappa.errors import (
    ConflictError,
    DataLossError,
    DriverAlreadyRunningError,
    LedgerError,
    StaleWriterError,
    Transient,
    first_few,
    first_line,
)
from kappa.faults import crash_point
from kappa.kafka.broker import Broker
from kappa.lazy import Lazy
from kappa.offsets.coverage import bounded
from kappa.offsets.vector import OffsetRange, Offsets, ranges_start, ranges_to_json
from kappa.presence import heartbeat, liveness
from kappa.record.epochs import epochs_of
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import LedgerState
from kappa.spark.kafka_source import read_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Most records of one file: a range of one partition is then read by several tasks.
FILE_RECORDS = 50_000
#: Pause between two looks at the log while following.
IDLE_SECONDS = 0.5
#: No reader needs an older version of an archive: Delta may clean up its log as it does by itself.
_CONFIGURATION = {
    "delta.dataSkippingStatsColumns": "seq,offset",
    "delta.logRetentionDuration": "interval 30 days",
    "delta.enableExpiredLogCleanup": "true",
}


class Archiver:
    """The one writer of an archive; use it as a context manager, or close it.

    Args:
        session: Spark; None starts one when it is first needed and stops it at the end.
        skip_lost: go on at the log's beginning when retention removed records that were not archived. The gap stays on
            record.
    """

    def __init__(
        self, config: Config, topic: str, *, session: SparkSession | None = None, skip_lost: bool = False
    ) -> None:
        self.archive = Archive(config.lake, topic)
        self.writer = liveness.claim_name()
        self._config = config
        self._topic = topic
        self._given_session = session
        self._session = Lazy(self._start)
        self._skip_lost = skip_lost
        self._broker = Broker(config.bootstrap_servers)
        self._beat: heartbeat.Beating | None = None
        self._trouble = ""

    def __enter__(self) -> Archiver:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def opening(self) -> Act[None]:
        """The claim of the archive; the first one begins it at the low watermarks.

        Raises:
            DriverAlreadyRunningError: another archiver with a fresh heartbeat has it; nothing was changed.
            DataLossError: the topic was recreated, or records were lost; nothing was changed.
        """
        self._check()
        is_first = not self.archive.ledger.state().commits
        first = f", and begin it at the low watermarks in {self.archive.paths.root}" if is_first else ""
        claim = Effect(
            what=f"claim the archive of {self._topic}{first}", values={"topic": self._topic}, make=self._claim
        )
        return Act(effects=(claim,), outcome=lambda: None)

    def open(self) -> None:
        """Make :meth:`opening`, with its errors."""
        self.opening().make()

    def _check(self) -> None:
        self._check_topic()
        claim = self.archive.ledger.state().claim
        claimant = "" if claim is None else claim.writer
        sign = liveness.settled(self.archive.paths.heartbeat, self._config.stale_seconds, claimant=claimant)
        other = sign.beat
        if other is not None and sign.is_alive:
            raise DriverAlreadyRunningError(
                f"Topic {self._topic!r} has an archiver: {other.writer}, last heard of at {other.at:%H:%M:%S}. "
                f"To end it: kappa archive stop {self._topic} --execute",
                writer=other.writer,
            )
        self._check_lost(self.archive.ledger.state())

    def _claim(self) -> None:
        epochs = epochs_of(self._config.lake)
        epochs.records()  # refuses where the lake has moved: what is archived there nobody reads
        self._check()
        ledger, paths = self.archive.ledger, self.archive.paths
        ledger.create()
        try:
            ledger.claim(self.writer, "", ledger.state())
        except ConflictError as error:
            raise DriverAlreadyRunningError(
                f"Another archiver claimed topic {self._topic!r} at the same moment."
            ) from error
        crash_point("archive.claim")
        epochs.records()  # a copy that closed the lake since, and took the archive, was before this claim
        first = heartbeat.this_process(self.writer, "")
        self._beat = heartbeat.Beating(paths.heartbeat, first, self._config.beat_seconds, self._has_claim)
        if not ledger.state().commits:
            self._begin()

    def advance(self) -> int:
        """Archive one slice; how many offsets it spanned, 0 when the archive reaches the stable end.

        Idempotent: a slice that was planned and not committed is finished first, with its own ranges.

        Raises:
            StaleWriterError: another archiver claimed the archive, or it was stopped; this one has changed nothing
                since.
            DataLossError: the topic was recreated, or retention removed records that were not archived.
        """
        self.archive.ledger.check_claim(self.writer)
        self._check_topic()
        state = self.archive.ledger.state()
        plan = state.open_plan or self._plan(state)
        self._trouble = ""
        if plan is None:
            self._say("up to date")
            return 0
        started = time.monotonic()
        self._say(f"archiving slice {plan.seq}")
        row = self._finish(plan)
        if row is None:
            return self.advance()
        seconds = time.monotonic() - started
        self._say("archived", seq=row.seq, records_per_second=row.rows_read / seconds if seconds else None)
        return sum(item.count for item in row.ranges)

    def lag(self) -> int:
        """Offsets that are not archived yet."""
        end = self._broker.stable_offsets([self._topic])
        return position_of(self.archive.ledger.state(), end).count_to(end)

    def is_due(self) -> bool:
        """Whether the lag would fill a slice.

        Raises:
            StaleWriterError: another archiver claimed the archive, or it was stopped.
        """
        self.archive.ledger.check_claim(self.writer)
        return self.lag() >= self._config.slice_records

    def fail(self, error: Exception) -> None:
        """Say in the heartbeat why the topic is not archived; the next slice, or the next look, takes it back."""
        self._trouble = first_line(error) or type(error).__name__
        self._say(self._trouble, state="stuck")

    def close(self) -> None:
        """End the heartbeat, Spark if it was started here, and the connection. Safe twice."""
        if self._beat is not None:
            self._beat.close(message=self._trouble)
            self._beat = None
        if self._session.made is not None and self._given_session is None:
            self._session.made.stop()
        self._broker.close()

    @property
    def session(self) -> SparkSession:
        """Spark, started when it is first needed."""
        return self._session.get()

    def _start(self) -> SparkSession:
        if self._given_session is not None:
            return self._given_session
        from kappa.spark.session import build_session

        return build_session(self._config, f"kappa archive {self._topic}")

    def _begin(self) -> None:
        """The table, and commit 0: which topic it is, and where the archive begins."""
        tables.create(self.archive.paths.records, COLUMNS, partition_by=[PARTITION.name], configuration=_CONFIGURATION)
        crash_point("archive.create")
        low = self._broker.low_watermarks([self._topic])
        topic_id = self._broker.topic_ids([self._topic])[self._topic]
        self._append(kind="commit", seq=0, ranges=low.span_to(low), detail={"topic_id": topic_id})

    def _plan(self, state: LedgerState) -> LedgerRow | None:
        lost = self._check_lost(state)
        end = self._broker.stable_offsets([self._topic])
        position = position_of(state, end).merge(Offsets.of((item.at, item.end) for item in lost))
        ranges = bounded(position, end, self._config.slice_records)
        if all(item.is_empty for item in ranges):
            return None
        detail = {"schemas": list(schemas_of(self._config, self._topic)), "lost": [str(item) for item in lost]}
        row = self._append(kind="plan", seq=state.seq + 1, ranges=ranges, detail=detail)
        crash_point("archive.plan", row.seq)
        return row

    def _finish(self, plan: LedgerRow) -> LedgerRow | None:
        """Write a planned slice and commit it; None when it cannot be done any more and was closed."""
        path = self.archive.paths.records
        rows_read: int | None = None
        seal = self.archive.ledger.state(look=False).open_seal
        if seal is not None:  # an archiver ended while it gave the slice up
            self._seal(plan, seal.detail)
            return None
        if not tables.is_written(path, plan.seq):
            low = self._broker.low_watermarks([self._topic])
            lost = lost_records(ranges_start([item for item in plan.ranges if not item.is_empty]), low)
            if lost:
                self._abandon(plan, lost)
                return None
            self.archive.ledger.check_claim(self.writer)
            rows_read = self._write(plan)
        crash_point("archive.write", plan.seq)
        self._check_topic()
        written = self._written(plan)
        rows = sum(part["rows"] for part in written["parts"].values())
        if rows_read is not None and rows_read != rows:
            raise LedgerError(
                f"Slice {plan.seq} of the archive of {self._topic!r} read {rows_read} records, its table holds {rows} "
                "of it.",
                seq=plan.seq,
            )
        row = self._append(
            kind="commit",
            seq=plan.seq,
            ranges=plan.ranges,
            rows_read=rows,
            rows_parsed=rows,
            detail={**plan.detail, **written},
        )
        crash_point("archive.commit", plan.seq)
        return row

    def _write(self, plan: LedgerRow) -> int | None:
        """The number of records that Kafka gave; None when another process wrote the slice at the same moment."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        schemas = schemas_of(self._config, self._topic)
        sources = {name: schemas[name] for name in plan.detail["schemas"] if name in schemas}
        ranges = [item for item in plan.ranges if not item.is_empty]
        raw = read_log(self.session, self._config.bootstrap_servers, self._topic, ranges, headers=True)
        observation = Observation()
        rows = archived_rows(raw.observe(observation, F.count(F.lit(1)).alias("rows")), sources)
        tables.append_frame(
            self.archive.paths.records,
            rows.withColumn("seq", F.lit(plan.seq).cast("bigint")),
            plan.seq,
            mergeSchema="true",
            maxRecordsPerFile=str(FILE_RECORDS),
            userMetadata=f"{self.writer}/{plan.seq}",
        )
        if not tables.has_commit_of(self.archive.paths.records, f"{self.writer}/{plan.seq}"):
            return None  # the write was passed over as done: nothing was read, and the observation would wait for ever
        return int(observation.get["rows"])

    def _written(self, plan: LedgerRow) -> dict[str, Any]:
        """The table's content of a slice: rows and largest timestamp by partition, and the schemas of parsed rows.

        A schema of the plan is missing when its topology was taken away before the slice was written.
        """
        from pyspark.sql import functions as F

        rows = self.session.read.format("delta").load(self.archive.paths.records).where(F.col("seq") == plan.seq)
        there = [name for name in plan.detail["schemas"] if name in rows.columns]
        null_counts = [F.count_if(F.col(name).isNull()).alias(name) for name in there]
        counts = (
            rows.groupBy("partition")
            .agg(F.count("offset").alias("rows"), F.max("running_max_ms").alias("max_ms"), *null_counts)
            .collect()
        )
        parts = {str(row["partition"]): {"rows": row["rows"], "max_ms": row["max_ms"]} for row in counts}
        return {"parts": parts, "schemas": [name for name in there if not any(row[name] for row in counts)]}

    def _abandon(self, plan: LedgerRow, lost: tuple[OffsetRange, ...]) -> None:
        if not self._skip_lost:
            raise _lost_error(self._topic, lost)
        detail = {"lost": [str(item) for item in lost]}
        self._append(kind="seal", seq=plan.seq, ranges=plan.ranges, detail=detail)
        self._seal(plan, detail)

    def _seal(self, plan: LedgerRow, detail: Mapping[str, Any]) -> None:
        """See to it that no rows of a planned slice can be written any more, and close it."""
        tables.seal(self.archive.paths.records, plan.seq, column="seq")
        self._append(kind="abandon", seq=plan.seq, ranges=plan.ranges, detail=detail)

    def _append(self, **values: Any) -> LedgerRow:
        return self.archive.ledger.append(LedgerRow(writer=self.writer, at=clock.now(), **values))

    def _check_lost(self, state: LedgerState) -> tuple[OffsetRange, ...]:
        """What retention removed before it was archived.

        Raises:
            DataLossError: there is some, and the caller did not say that it may be skipped.
        """
        if not state.commits:
            return ()
        low = self._broker.low_watermarks([self._topic])
        lost = lost_records(position_of(state, low), low)
        if lost and not self._skip_lost:
            raise _lost_error(self._topic, lost)
        return lost

    def _check_topic(self) -> None:
        checked_id(self._broker, self.archive)

    def _has_claim(self) -> bool:
        return Archive(self._config.lake, self._topic).ledger.has_claim(self.writer)

    def _say(self, message: str, *, state: str = "running", **values: Any) -> None:
        if self._beat is not None:
            self._beat.say(message=message, state=state, **values)


def run(
    archivers: list[Archiver],
    *,
    follow: bool = False,
    every_seconds: float = 60.0,
    on_slice: Callable[[Archiver, int], None] = lambda *_: None,
    on_failure: Callable[[Archiver, Exception], None] = lambda *_: None,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Archive topics up to their stable ends, one slice of each in turn; go on from there when asked to follow.

    An archive that :func:`stop` took away is left aside. A topic that fails keeps none of the others: when following it
    is tried again. This ends when none is left, or none can go on.

    Args:
        archivers: opened.
        follow: go on until told to stop, through an outage of Kafka or the lake.
        every_seconds: while following, a topic's records are collected for this long, or until they fill a slice.
        on_slice: called after each slice with the offsets that it spanned.
        on_failure: called with each error of a topic, the first time in a row that it says this.
        is_over: asked between two slices.

    Raises:
        StaleWriterError: another archiver claimed one of the archives.
        DataLossError: as :meth:`Archiver.advance`. As any other error of a topic it is raised at the end; of several
            topics, the first one.
    """
    last = dict.fromkeys(archivers, float("-inf"))
    failures: dict[Archiver, Exception] = {}

    def fail(archiver: Archiver, error: Exception) -> None:
        archiver.fail(error)
        if str(error) != str(failures.get(archiver)):
            on_failure(archiver, error)
        failures[archiver] = error

    while last and not is_over():
        moved = 0
        for archiver in list(last):
            is_waiting = follow and time.monotonic() - last[archiver] < every_seconds
            try:
                if is_over() or (is_waiting and (archiver in failures or not archiver.is_due())):
                    continue
                count = archiver.advance()
            except Exception as error:  # of any kind: the records of other topics do not wait
                last[archiver] = time.monotonic()
                if not follow or isinstance(error, StaleWriterError):
                    del last[archiver]
                if not isinstance(error, StaleWriterError) or error.data["holder"] != NOBODY:
                    fail(archiver, error)
                continue
            failures.pop(archiver, None)
            moved += count
            if count:
                on_slice(archiver, count)
            else:
                last[archiver] = time.monotonic()
        lasting = {archiver for archiver, failure in failures.items() if not isinstance(failure, Transient)}
        if last.keys() <= lasting or not (moved or follow):
            break
        if not moved:
            time.sleep(IDLE_SECONDS)
    for failure in failures.values():
        if not (follow and isinstance(failure, Transient)):  # Kafka or the lake comes back
            raise failure


def _lost_error(topic: str, lost: tuple[OffsetRange, ...]) -> DataLossError:
    return DataLossError(
        f"Retention removed records of {topic!r} before they were archived: {first_few(lost)}. They are in neither "
        f"place. To go on after the gap, which stays on record: kappa archive start {topic} --skip-lost --execute",
        topic=topic,
        lost=ranges_to_json(lost),
    )
