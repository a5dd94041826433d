"""What a backfill would do, and what speaks against it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from kappa.archive.reader import Archive
from kappa.config import Config
from kappa.errors import UsageError, first_line
from kappa.kafka.broker import Broker
from kappa.kafka.offsets_for_times import milliseconds
from kappa.lake import code as code_store
from kappa.lake.epoch_record import EpochRecord
from kappa.lake.epochs import Epochs
from kappa.lake.ledger import Ledger
from kappa.lake.ledger_state import LedgerState
from kappa.names import EpochPaths
from kappa.offsets.coverage import first_readable, from_archive
from kappa.offsets.notation import utc
from kappa.offsets.vector import OffsetRange, Offsets, ranges_end
from kappa.replay.determinism import Twice
from kappa.replay.findings import Finding, refusals
from kappa.replay.rules import backfill as backfill_rules
from kappa.slices.cuts import time_index
from kappa.topology import registry
from kappa.verify.inspection import dependencies

if TYPE_CHECKING:
    from kappa.spark.session import LazySession
    from kappa.topology import Topology


#: Begins the name of a backfill's folder.
FOLDER = "backfill-"


@dataclass(frozen=True, kw_only=True)
class Backfill:
    """What a backfill would do, and what speaks against it.

    Attributes:
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
        return lines + [f"  {found.line}" for found in self.findings]


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
        topology=topology,
        epoch=epoch.epoch,
        code=epoch.code,
        version=epoch.version,
        begin=begin,
        end=end,
        outputs=chosen,
    )
    found = backfill_rules.no_such_output(topology, chosen, known)
    upstreams = {binding.topology for binding in epoch.bound.values()}
    found += [*backfill_rules.reads_upstream(topology, upstreams), *_about_topics(loaded, chosen)]
    if not upstreams:
        wanted, more = _located(config, wanted, epoch)
        found += more
    if not refusals(found):
        found += _about_step(spark, loaded, chosen)
    return replace(wanted, findings=tuple(found))


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
    plan = epoch.plan
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


def _compared(found: Twice) -> str:
    if found.is_same:
        return f"{found.name}: {found.rows_again:,} rows, the same as the live epoch has"
    columns = f" Columns that differ: {', '.join(found.columns)}." if found.columns else ""
    samples = f" For example {', '.join(s['record'] for s in found.samples)}." if found.samples else ""
    return f"{found.name}: {found.rows_again:,} rows, the live epoch has {found.rows:,} others.{columns}{samples}"
