"""The plan of a backfill, and objections to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from kappa.archive.reader import Archive
from kappa.config import Config
from kappa.control.backfills.backfill_reading import spanned
from kappa.control.backfills.backfill_span import SpannedMember, member_of, off_grid, windowed_tables
from kappa.control.backfills.proposal import Backfill
from kappa.control.environments import backfill_findings
from kappa.errors import UsageError, first_line
from kappa.kafka.broker import Broker
from kappa.kafka.offsets_for_times import milliseconds
from kappa.names import EpochPaths
from kappa.offsets.coverage import first_readable, from_archive, without
from kappa.offsets.notation import utc
from kappa.offsets.vector import Offsets, ranges_end
from kappa.record import code as code_store
from kappa.record.epoch_record import EpochRecord, TopologyRecord
from kappa.record.epochs import epochs_of
from kappa.record.ledger import Ledger
from kappa.record.ledger_state import LedgerState
from kappa.replay.findings import Finding, refusals
from kappa.replay.proof.determinism import Twice
from kappa.replay.rules import backfill as backfill_rules
from kappa.slices.input.cuts import time_index
from kappa.slices.places import check_topics
from kappa.slices.writing import check_mask
from kappa.topology import registry
from kappa.topology.revisions import operator_of
from kappa.verify.inspection import dependencies

if TYPE_CHECKING:
    from kappa.spark.session import LazySession
    from kappa.topology import Append, Table, Topology


@dataclass(frozen=True, kw_only=True)
class Computed:
    """The rows that a backfill computed, compared with those of the live epoch.

    Attributes:
        writer: the process that has the backfill's folder.
        rows: Delta version of each append output in the folder.
        compared: each output: rows of the live epoch, and those that would take their place.
    """

    writer: str
    rows: Mapping[str, int]
    compared: tuple[Twice, ...]

    def render(self) -> list[str]:
        """Lines of text for people."""
        return [f"  {_compared(comparison)}" for comparison in self.compared]


def propose(
    config: Config, spark: LazySession, topology: str, begin: datetime, end: datetime, outputs: Sequence[str] = ()
) -> Backfill:
    """Propose a backfill, with objections. Changes nothing. Starts Spark unless something refuses it before.

    Args:
        spark: Spark, started when it is needed.
        topology: the topology; it has a live epoch.
        begin: beginning of the interval.
        end: end of the interval, exclusive.
        outputs: append outputs and tables of closed windows; all of them where none is named.

    Raises:
        UsageError: the interval ends before it begins.
        UnknownTopologyError: the topology has no live epoch.
        CodeError: the code that the epoch runs is not in the lake.
        LedgerError: the epoch masks values under another key.
        DataLossError: a topic was deleted or recreated since the epoch began.
        BrokerUnreachableError: Kafka does not answer.
    """
    if end <= begin:
        raise UsageError(f"The interval ends at {utc(end)}, which is not after {utc(begin)}.")
    record = epochs_of(config.lake).record(topology)
    epoch = record.epoch(record.live_epoch())
    code = code_store.extract(config.lake, epoch.code, config.home)
    loaded = registry.load_stored(code / "topologies", topology)
    paths = EpochPaths(lake=config.lake, topology=topology, epoch=epoch.epoch)
    check_mask(loaded, Ledger(paths.ledger).state(), config.mask_key)
    names = [append.name for append in loaded.appends] + [table.name for table in windowed_tables(loaded)]
    selection = tuple(outputs) or tuple(names)
    backfill = Backfill(
        topology=topology,
        epoch=epoch.epoch,
        code=epoch.code,
        version=epoch.version,
        begin=begin,
        end=end,
        outputs=selection,
        after=_ended(record, epoch.epoch, begin, end),
    )
    findings = backfill_rules.no_such_output(topology, selection, names)
    findings += backfill_findings(config, record, epoch.epoch)
    upstreams = {binding.topology for binding in epoch.bound.values()}
    findings += [*backfill_rules.reads_upstream(topology, upstreams), *_about_topics(loaded, selection)]
    members: list[SpannedMember] = []
    if not refusals(findings) and any(table.reach is not None for table in loaded.tables):
        members, more = _about_step(spark, loaded, backfill)
        findings += more
    if not upstreams and not (members and refusals(findings)):
        backfill, more = _located(config, backfill, epoch, loaded, members)
        findings += more
    if not refusals(findings) and not any(table.reach is not None for table in loaded.tables):
        findings += _about_step(spark, loaded, backfill)[1]
    return replace(backfill, findings=tuple(findings))


def _ended(record: TopologyRecord, epoch: int, begin: datetime, end: datetime) -> int:
    """The number of the event by which the last backfill of an interval ended; 0 where there was none."""
    interval = (begin.isoformat(), end.isoformat())
    ends = [e for e in record.events if e.epoch == epoch and e.event in ("backfilled", "backfill_withdrawn")]
    return max((e.n for e in ends if (e.detail["from"], e.detail["to"]) == interval), default=0)


def _located(
    config: Config, backfill: Backfill, epoch: EpochRecord, topology: Topology, members: Sequence[SpannedMember]
) -> tuple[Backfill, list[Finding]]:
    """The backfill with its offset ranges, and objections to reading them."""
    paths = EpochPaths(lake=config.lake, topology=backfill.topology, epoch=backfill.epoch)
    ledger = Ledger(paths.ledger)
    state = ledger.begun()
    position, topics = state.position, state.position.topics
    times = {member.name: member.time for member in members}
    with Broker(config.bootstrap_servers) as broker:
        check_topics(broker, state.commits[0].detail["topic_ids"])
        archives = [Archive(config.lake, topic) for topic in topics]
        facts = {archive.topic: archive_facts for archive in archives if (archive_facts := archive.facts()) is not None}
        low, topic_ids = broker.low_watermarks(topics), broker.topic_ids(topics)
        first = first_readable(low, facts, topic_ids)
        start = end = Offsets()
        if set(backfill.outputs) - times.keys():
            index = time_index(
                broker, topics, [a for a in archives if any(first[at] < low[at] for at in low if at[0] == a.topic)]
            )
            # To Kafka a negative time is another question.
            start, end = (index(max(0, milliseconds(at)), Offsets()) for at in (backfill.begin, backfill.end))
    begin = _first_rows(epoch, state)
    findings = [
        *backfill_rules.begins_before_epoch(backfill.topology, start, begin),
        *backfill_rules.log_is_gone(start, first, begin),
        *backfill_rules.unread_yet(end, position),
    ]
    # Of each partition as far as the live epoch has read; it reads the rest by itself.
    ends = Offsets.of((at, min(end.get(*at) or 0, offset)) for at, offset in position.items())
    starts = Offsets.of((at, min(start.get(*at) or 0, offset)) for at, offset in ends.items())
    ranges = starts.span_to(ends) if start else ()
    span, more = spanned(config, backfill, epoch, state, topology, members, ranges, ledger.past_commits())
    findings += more
    reads = span.start.span_to(span.end)
    log_start = Offsets.of((r.at, max(r.start, min(r.end, low.get(*r.at) or 0))) for r in reads)
    archived = from_archive(span.start.naming(span.end), log_start, facts, topic_ids)
    if not more:
        findings += backfill_rules.records_are_gone(without(reads, archived), first)
    located = replace(
        backfill, times=times, ranges=ranges, reads=reads, archived=archived, since=span.since, seed=span.seed
    )
    return located, findings


def _first_rows(epoch: EpochRecord, state: LedgerState) -> Offsets:
    """The first record of each partition of which the outputs of an epoch may have rows."""
    plan = epoch.plan
    if plan.seed != "from-savepoint":
        return ranges_end(state.commits[0].ranges)
    # Rows of an adopted output name no record: none of them could be replaced.
    return epoch.origin if plan.adoption is None else plan.adoption.offsets.naming(epoch.origin)


def _about_topics(topology: Topology, outputs: Sequence[str]) -> list[Finding]:
    topics = [topic for topic in topology.topics if topic.of in outputs]
    return [
        *backfill_rules.versioned_topic(topology.name, {t.of: t.name for t in topics if t.is_versioned}),
        *backfill_rules.holds_topics({t.of: t.name for t in topics if not t.is_versioned}),
    ]


def _about_step(
    spark: LazySession, topology: Topology, backfill: Backfill
) -> tuple[list[SpannedMember], list[Finding]]:
    """The outputs whose rows belong to the interval by a time of their own, and objections to any of them."""
    try:
        dependences = dependencies(spark.session, topology)
    except Exception as error:  # whatever a step raises without rows leaves it unknown
        return [], backfill_rules.not_inspected(f"{type(error).__name__}: {first_line(error)}")
    members: list[SpannedMember] = []
    reasons: dict[str, Sequence[str]] = {}
    untimed: dict[str, Sequence[str]] = {}
    every: list[Append | Table] = [*topology.appends, *windowed_tables(topology)]
    for member in every:
        if member.name not in backfill.outputs or not dependences[member.name].words:
            continue
        dependence = dependences[member.name]
        tables = [topology.table(name) for name in dependence.tables]
        if not tables or dependence.is_open or member.cuts != "any" or any(table.reach is None for table in tables):
            reasons[member.name] = [*dependence.words, *_unbounded(member, tables)]
            continue
        spanned_member = member_of(topology, member, tables, dependence.sources)
        if spanned_member is None or not spanned_member.sources:
            untimed[member.name] = dependence.tables
        else:
            members.append(spanned_member)
    return members, [
        *backfill_rules.cumulative(backfill.topology, reasons),
        *backfill_rules.without_time(backfill.topology, untimed),
        *_off_grid(backfill, members),
        *backfill_rules.leaves_tables(
            backfill.topology,
            {
                member.name: [name for name in dependences[member.name].beside if name not in backfill.outputs]
                for member in members
            },
        ),
    ]


def _unbounded(member: Append | Table, tables: Sequence[Table]) -> list[str]:
    """The state that no interval of time bounds, in words."""
    reasons = [f"keeps the state of {operator_of(t.made_by)}" for t in tables if t.made_by and t.reach is None]
    return [*reasons, *([f"declares cuts={member.cuts!r}"] if member.cuts != "any" else [])]


def _off_grid(backfill: Backfill, members: Sequence[SpannedMember]) -> list[Finding]:
    findings = []
    for member in members:
        for edge, at in (("--from", backfill.begin), ("--to", backfill.end)):
            miss = off_grid(at, member.grids)
            if miss is not None:
                grid, before, after = miss
                nearest = (before.isoformat(), after.isoformat())
                findings += backfill_rules.off_grid(member.name, edge, at.isoformat(), grid.every_text, nearest)
    return findings


def _compared(comparison: Twice) -> str:
    if comparison.is_same:
        return f"{comparison.name}: {comparison.rows_again:,} rows, the same as the live epoch has"
    columns = f" Columns that differ: {', '.join(comparison.columns)}." if comparison.columns else ""
    shown = ["/".join(sample.values()) for sample in comparison.samples]  # the record of a row, or the key of a window
    samples = f" For example {', '.join(shown)}." if shown else ""
    return (
        f"{comparison.name}: {comparison.rows_again:,} rows, the live epoch has {comparison.rows:,} others."
        f"{columns}{samples}"
    )
