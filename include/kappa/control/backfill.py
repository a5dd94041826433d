"""Backfill: rows of an interval of time computed again and replaced in the live epoch, beside the live stream.

An interval is one of records' times, as the total order has them (``_order_timestamp``). It is a range of offsets of each
partition, and every record is in one interval. Its records are read again and computed in a folder within the epoch's, by a
process of its own. The live epoch's driver then replaces the rows in its own turn (:mod:`kappa.driver.backfill`).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from kappa import clock
from kappa.archive.reader import Archive
from kappa.config import Config
from kappa.driver import process
from kappa.driver.backfill import rows_from
from kappa.errors import DriverNotRunningError, MoveRefusedError, UsageError, first_line
from kappa.faults import crash_point
from kappa.kafka.broker import Broker
from kappa.kafka.offsets_for_times import milliseconds
from kappa.lake import code as code_store
from kappa.lake.epoch_record import EpochRecord
from kappa.lake.epochs import Epochs
from kappa.lake.events import Event
from kappa.lake.ledger import Ledger
from kappa.lake.ledger_rows import LedgerRow
from kappa.lake.ledger_state import LedgerState
from kappa.lake.merge_on_read import frame_at
from kappa.names import EpochPaths
from kappa.offsets.coverage import first_readable, from_archive
from kappa.offsets.notation import utc
from kappa.offsets.vector import OffsetRange, Offsets, ranges_as_dict, ranges_end, ranges_start
from kappa.replay.determinism import Twice
from kappa.replay.findings import Finding, check, refusals
from kappa.replay.plan import ReplayPlan
from kappa.replay.rules import backfill as backfill_rules
from kappa.slices.cuts import time_index
from kappa.slices.run import EpochRun
from kappa.slices.seeding import SeedSource
from kappa.topology import registry
from kappa.verify.content_hash import twice
from kappa.verify.diff import Mask
from kappa.verify.inspection import dependencies
from kappa.verify.second_run import advance, opened, rows_of

if TYPE_CHECKING:
    from kappa.spark.session import LazySession
    from kappa.topology import Append, Topology

#: Begins the name of a backfill's folder.
FOLDER = "backfill-"
#: What stored code has that can replace an interval.
KNOWS_BACKFILLS = "include/kappa/driver/backfill.py"


@dataclass(frozen=True, kw_only=True)
class Backfill:
    """What a backfill would do, and what speaks against it.

    Attributes:
        topology: the topology.
        epoch: its live epoch.
        code: content hash of the code that the epoch runs, by which rows are computed.
        version: the author's word for that code.
        begin: beginning of the interval, UTC; records of this time belong to it.
        end: end of the interval, UTC; records of this time do not.
        outputs: the append outputs whose rows are replaced.
        ranges: offset ranges of the interval, one for each partition of each source.
        archived: the parts of them that are read from archives.
        findings: what speaks against it.
    """

    topology: str
    epoch: int
    code: str
    version: str
    begin: datetime
    end: datetime
    outputs: tuple[str, ...]
    ranges: tuple[OffsetRange, ...] = ()
    archived: tuple[OffsetRange, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def refusals(self) -> tuple[Finding, ...]:
        """The findings that refuse it."""
        return refusals(self.findings)

    @property
    def offsets(self) -> int:
        """How many offsets are read again."""
        return sum(item.count for item in self.ranges)

    @property
    def folder(self) -> str:
        """Name of the folder in which it is computed: the same for the same interval, code and outputs."""
        content = [self.epoch, self.code, self.outputs, [str(item) for item in self.ranges]]
        return FOLDER + hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def render(self) -> list[str]:
        """Lines of text for people."""
        lines = [
            f"Backfill of {self.topology}, live epoch {self.epoch}, version {self.version} (code {self.code[:12]}): "
            f"{', '.join(self.outputs) or 'nothing'} from {utc(self.begin)} to {utc(self.end)}"
        ]
        lines += [f"  reads      {item}" for item in self.ranges if not item.is_empty]
        lines += [f"  archive    {item}" for item in self.archived]
        if self.ranges and not self.offsets:
            lines.append("  reads      no record: there is none of this time")
        for found in self.findings:
            lines.append(f"  {'REFUSED' if found in self.refusals else 'warning':9}  {found}  [{found.code}]")
        return lines


@dataclass(frozen=True, kw_only=True)
class Computed:
    """What a backfill computed, beside what the live epoch has.

    Attributes:
        writer: the process that has the backfill's folder.
        rows: Delta version of each output in the folder.
        compared: each output: rows of the live epoch, and those that would take their place.
    """

    writer: str
    rows: Mapping[str, int]
    compared: tuple[Twice, ...]

    def render(self) -> list[str]:
        """Lines of text for people."""
        return [f"  {_compared(found)}" for found in self.compared]


def propose(
    config: Config, spark: LazySession, topology: str, begin: datetime, end: datetime, outputs: Sequence[str] = ()
) -> Backfill:
    """What a backfill would do. Changes nothing. Spark is started where nothing refuses it before.

    Args:
        config: where everything is.
        spark: Spark, started when it is needed.
        topology: the topology; it has a live epoch.
        begin: beginning of the interval.
        end: end of the interval, exclusive.
        outputs: append outputs; all of them where none is named.

    Raises:
        UsageError: the interval ends before it begins.
        UnknownTopologyError: the topology has no live epoch.
        CodeError: the code that the epoch runs is not in the lake.
        BrokerUnreachableError: Kafka does not answer.
    """
    if end <= begin:
        raise UsageError(f"The interval ends at {utc(end)}, which is not after {utc(begin)}.")
    record = Epochs(config.lake).record(topology)
    epoch = record.epoch(record.live_epoch())
    code = code_store.extract(config.lake, epoch.code, config.home)
    loaded = registry.load_apart(code / "topologies", topology)
    known = [append.name for append in loaded.appends]
    chosen = tuple(outputs) or tuple(known)
    wanted = Backfill(
        topology=topology, epoch=epoch.epoch, code=epoch.code, version=epoch.version, begin=begin, end=end, outputs=chosen
    )  # fmt: skip
    found = backfill_rules.no_such_output(topology, chosen, known)
    if not (code / KNOWS_BACKFILLS).is_file():
        found += backfill_rules.older_platform(topology, epoch.epoch)
    upstreams = {binding.topology for binding in epoch.bound.values()}
    found += [*backfill_rules.reads_upstream(topology, upstreams), *_about_topics(loaded, chosen)]
    if not upstreams:
        wanted, more = _located(config, wanted, epoch)
        found += more
    if not refusals(found):
        found += _about_step(spark, loaded, chosen)
    return replace(wanted, findings=tuple(found))


def compute(
    config: Config, spark: LazySession, wanted: Backfill, progress: Callable[[str], None] = lambda _: None
) -> Computed:
    """Compute the rows of an interval in a folder within the epoch's, and compare them with those of the live epoch.

    The live epoch is not touched and nothing is sent. Killed, it goes on from its last slice when it is called again.

    Args:
        config: where everything is.
        spark: Spark, started when it is needed.
        wanted: what :func:`propose` gave.
        progress: told what is done.

    Raises:
        RefusedError: a finding refuses it.
        StaleWriterError: another process computes the same interval.
        DataLossError: records of the interval are gone.
    """
    check(wanted.findings, f"The backfill of {wanted.topology!r}")
    paths = EpochPaths(lake=config.lake, topology=wanted.topology, epoch=wanted.epoch)
    topology = registry.load_apart(
        code_store.extract(config.lake, wanted.code, config.home) / "topologies", wanted.topology
    )
    state = Ledger(paths.ledger).state()
    start, end = ranges_start(wanted.ranges), ranges_end(wanted.ranges)
    with Broker(config.bootstrap_servers) as broker:
        run = EpochRun(
            topology=topology, paths=paths, writer=f"{wanted.folder}-{time.time_ns()}", code=wanted.code, ledger=Ledger(paths.ledger),
            session=spark.session, broker=broker, bootstrap_servers=config.bootstrap_servers, topic_ids=state.commits[0].detail["topic_ids"],
            archived=wanted.archived, arrow_rows=config.arrow_rows, small_slice=config.small_slice,
        )  # fmt: skip
        made = opened(run, wanted.folder, SeedSource(kind="empty"), start)
        archives = [run.archive(topic) for topic in sorted({item.topic for item in wanted.archived})]
        index = time_index(broker, start.topics, archives)
        while advance(made, end, index, config.slice_records, check=lambda _: None):
            done = start.count_to(made.ledger.state().position)
            progress(f"computed {done:,} of {wanted.offsets:,} offsets")
    progress("comparing with the live epoch")
    committed = made.ledger.state().committed
    assert committed is not None
    compared = tuple(_twice(run, made, committed, append, wanted) for append in _chosen(topology, wanted.outputs))
    for table in made.states.values():
        table.forget()
    return Computed(
        writer=made.writer,
        rows={name: committed.delta_versions[f"outputs/{name}"] for name in wanted.outputs},
        compared=compared,
    )


def request(config: Config, wanted: Backfill, computed: Computed, *, actor: str, reason: str) -> Event:
    """Ask the live epoch's driver to replace the rows. Returns at once; see :func:`await_replaced`.

    One event in the record of epochs, by compare-and-set. An interval that is asked for already is not asked for again.

    Args:
        config: where everything is.
        wanted: what :func:`propose` gave.
        computed: what :func:`compute` gave.
        actor: who.
        reason: why.

    Raises:
        MoveRefusedError: the live epoch or its code is another by now.
    """
    epochs = Epochs(config.lake)
    detail = {
        "from": wanted.begin.isoformat(), "to": wanted.end.isoformat(), "code": wanted.code, "folder": wanted.folder,
        "writer": computed.writer, "ranges": ranges_as_dict(wanted.ranges), "offsets": wanted.offsets,
        "outputs": {
            found.name: {"version": computed.rows[found.name], "rows": found.rows_again, "before": found.rows, "same": found.is_same}
            for found in computed.compared
        },
    }  # fmt: skip
    asked: list[Event] = []

    def decide(_: list[Event]) -> Sequence[Event]:
        record = epochs.record(wanted.topology)
        if record.live != wanted.epoch or record.epoch(wanted.epoch).code != wanted.code:
            running = record.epoch(record.live).code if record.live is not None else ""
            raise MoveRefusedError(
                f"Live epoch {record.live} of {wanted.topology!r} runs code {running[:12]} by now; the interval was computed with code "
                f"{wanted.code[:12]} for epoch {wanted.epoch}. Compute it again: kappa backfill {wanted.topology}",
                live=record.live, code=running,
            )  # fmt: skip
        asked[:] = [e for e in record.epoch(wanted.epoch).backfills if e.detail["folder"] == wanted.folder]
        if asked:
            return []
        return [
            Event(
                topology=wanted.topology, epoch=wanted.epoch, event="backfill", at=clock.now(), actor=actor, reason=reason,
                detail=detail,
            )
        ]  # fmt: skip

    made = epochs.append(decide)
    crash_point("backfill.asked")
    if epochs.record(wanted.topology).epoch(wanted.epoch).is_wanted:
        process.ensure_driver(config, wanted.topology, wanted.epoch)
    return (made or asked)[0]


def await_replaced(
    config: Config, asked: Event, *, timeout_seconds: float = 600.0, progress: Callable[[str], None] = lambda _: None
) -> Event:
    """Wait until the live epoch's driver replaced the rows; one that died is started again.

    Returns:
        The event ``backfilled``.

    Raises:
        MoveRefusedError: the driver withdrew it; the message says why.
        DriverNotRunningError: it is not done yet; it stays asked for.
    """
    deadline, revived = time.monotonic() + timeout_seconds, time.monotonic()
    progress(f"waiting for the turn of epoch {asked.epoch}")
    while time.monotonic() < deadline:
        record = Epochs(config.lake).record(asked.topology)
        ended = [e for e in record.events if e.detail.get("backfill") == asked.n and e.epoch == asked.epoch]
        for event in ended:
            if event.event == "backfill_withdrawn":
                raise MoveRefusedError(
                    f"The backfill of {asked.topology!r} was withdrawn: {event.reason}", epoch=asked.epoch
                )
            return event
        if record.live != asked.epoch:
            raise MoveRefusedError(
                f"Epoch {record.live} of {asked.topology!r} is live by now: epoch {asked.epoch} replaces nothing. "
                f"Compute the interval again: kappa backfill {asked.topology}",
                live=record.live,
            )
        if time.monotonic() - revived > 5.0 and record.epoch(asked.epoch).is_wanted:
            revived = time.monotonic()
            process.ensure_driver(config, asked.topology, asked.epoch)
        time.sleep(0.2)
    raise DriverNotRunningError(
        f"Epoch {asked.epoch} of {asked.topology!r} has not replaced the interval after {timeout_seconds:.0f} s; it stays asked for. "
        f"See `kappa status {asked.topology}`, and start a driver that is stopped: kappa start {asked.topology} --execute",
        epoch=asked.epoch,
    )


def told(event: Event) -> list[str]:
    """What a backfill did, one line for each output.

    Args:
        event: the event ``backfilled``.
    """
    detail = event.detail
    return [
        f"{name}: {found['rows']:,} rows in the place of {found['before']:,}"
        f"{', the same' if found['same'] else ', which were others'} (slice {detail['seq']})"
        for name, found in sorted(detail["outputs"].items())
    ]


def _located(config: Config, wanted: Backfill, epoch: EpochRecord) -> tuple[Backfill, list[Finding]]:
    """The backfill with its offset ranges, and what speaks against reading them."""
    paths = EpochPaths(lake=config.lake, topology=wanted.topology, epoch=wanted.epoch)
    state = Ledger(paths.ledger).state()
    position, topics = state.position, state.position.topics
    with Broker(config.bootstrap_servers) as broker:
        archives = [Archive(config.lake, topic) for topic in topics]
        facts = {archive.topic: known for archive in archives if (known := archive.facts()) is not None}
        low, topic_ids = broker.low_watermarks(topics), broker.topic_ids(topics)
        first = first_readable(low, facts, topic_ids)
        index = time_index(
            broker, topics, [a for a in archives if any(first[at] < low[at] for at in low if at[0] == a.topic)]
        )
        # To Kafka a negative time is another question.
        start, end = (index(max(0, milliseconds(at)), Offsets()) for at in (wanted.begin, wanted.end))
    begin = _first_rows(epoch, state)
    found = [
        *backfill_rules.begins_before_epoch(wanted.topology, start, begin),
        *backfill_rules.log_is_gone(start, first, begin),
        *backfill_rules.unread_yet(end, position),
    ]
    # Of each partition as far as the live epoch has read; it reads the rest by itself.
    ends = Offsets.of((at, min(end.get(*at) or 0, offset)) for at, offset in position.items())
    starts = Offsets.of((at, min(start.get(*at) or 0, offset)) for at, offset in ends.items())
    gone = Offsets.of((at, max(offset, min(ends[at], low.get(*at) or 0))) for at, offset in starts.items())
    archived = from_archive(starts, gone, facts, topic_ids)
    return replace(wanted, ranges=starts.span_to(ends), archived=archived), found


def _first_rows(epoch: EpochRecord, state: LedgerState) -> Offsets:
    """The first record of each partition of which the outputs of an epoch may have rows."""
    plan = ReplayPlan.from_json(epoch.planned.detail["plan"])
    return epoch.origin if plan.seed == "from-savepoint" else ranges_end(state.commits[0].ranges)


def _about_topics(topology: Topology, outputs: Sequence[str]) -> list[Finding]:
    topics = [topic for topic in topology.topics if topic.of in outputs]
    return [
        *backfill_rules.versioned_topic(topology.name, {t.of: t.name for t in topics if t.is_versioned}),
        *backfill_rules.holds_topics({t.of: t.name for t in topics if not t.is_versioned}),
    ]


def _about_step(spark: LazySession, topology: Topology, outputs: Sequence[str]) -> list[Finding]:
    try:
        found = dependencies(spark.session, topology)
    except Exception as error:  # whatever a step raises without rows leaves it unknown
        return backfill_rules.not_inspected(f"{type(error).__name__}: {first_line(error)}")
    return backfill_rules.cumulative(topology.name, {name: found[name] for name in outputs})


def _twice(run: EpochRun, made: EpochRun, row: LedgerRow, append: Append, wanted: Backfill) -> Twice:
    """Rows of an output as the live epoch has them, and as they were computed."""
    committed = run.ledger.state().committed
    assert committed is not None
    live = frame_at(run.session, run.paths, committed, f"outputs/{append.name}").where(rows_from(wanted.ranges))
    return twice(append, live, rows_of(made, row, append), Mask())


def _chosen(topology: Topology, outputs: Sequence[str]) -> list[Append]:
    return [append for append in topology.appends if append.name in outputs]


def _compared(found: Twice) -> str:
    if found.is_same:
        return f"{found.name}: {found.rows_again:,} rows, the same as the live epoch has"
    columns = f" Columns that differ: {', '.join(found.columns)}." if found.columns else ""
    samples = f" For example {', '.join(s['record'] for s in found.samples)}." if found.samples else ""
    return f"{found.name}: {found.rows_again:,} rows, the live epoch has {found.rows:,} others.{columns}{samples}"
