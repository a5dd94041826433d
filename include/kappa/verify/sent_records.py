"""What slices sent, as it is in Kafka, compared byte by byte with what other code would have sent for them.

Rows that are equal may still be sent otherwise: key, value and time of a record are made of them by the code that runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import TYPE_CHECKING

from kappa.errors import ConfigError, DataLossError, SchemaRefusedError, TopologyError, first_line
from kappa.kafka.changelogs import seq_of
from kappa.kafka.offsets_for_times import milliseconds
from kappa.offsets.vector import Offsets
from kappa.record.ledger_rows import LedgerRow
from kappa.replay.proof.verdict import CheckResult
from kappa.slices.run import EpochRun, Scratch
from kappa.slices.topics.paged_keys import PagedKeys, digest
from kappa.slices.topics.sending import change_records, output_records
from kappa.wire.encoding import Record

if TYPE_CHECKING:
    from confluent_kafka import Message

#: How much earlier than the clock of a driver its broker may date a record, milliseconds.
_SKEW_MS = 60_000
#: Most offsets of a topic that are read, counted from its end.
MOST_OFFSETS = 5_000_000
#: What keeps a topic from being read: its settings, its records, or what this user may do.
_UNREADABLE = (ConfigError, DataLossError, TopologyError)


@dataclass(frozen=True, kw_only=True)
class SentRecords:
    """How records compare.

    Attributes:
        records: how many are equal.
        checks: failed, one per topic whose records differ.
        gaps: what could not be compared, a sentence per topic.
    """

    records: int = 0
    checks: tuple[CheckResult, ...] = ()
    gaps: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Own:
    """The records that slices sent to a topic that only their epoch writes to.

    Attributes:
        has: whether a record of the topic is one of them.
        start: offsets before the first of them; none where only their times tell.
        is_changelog: whether the topic is that of a table.
    """

    has: Callable[[Message], bool]
    start: Offsets = field(default_factory=Offsets)
    is_changelog: bool = False


@dataclass(kw_only=True)
class _Computed:
    """What the slices would send to a topic.

    Attributes:
        digests: of key, value and, where the broker keeps that, the time of a record that has one of its own.
        settings: of the topic; none where they cannot be read.
        first_ms: no record that they would send is earlier, epoch milliseconds.
        own: the records that the slices sent, of a topic that only the epoch writes to.
        count: number of records.
    """

    digests: PagedKeys
    settings: Mapping[str, str]
    first_ms: int
    own: _Own | None
    count: int = 0

    @property
    def has_times(self) -> bool:
        """Whether the broker keeps the times with which records are sent."""
        return self.settings.get("message.timestamp.type") == "CreateTime"

    def add(self, records: Iterable[Record]) -> None:
        """Count records."""
        self.digests.add(map(self._digest, records))

    def _digest(self, record: Record) -> bytes:
        self.count += 1
        time = record.timestamp_ms if self.has_times else None
        self.first_ms = self.first_ms if time is None else min(self.first_ms, time)
        return _digest(record.key, record.value, time)

    def take(self, message: Message) -> bool:
        """Whether a record of the topic is one of them; each is once."""
        key, value = message.key(), message.value()
        with_time = self.has_times and self.digests.take(_digest(key, value, message.timestamp()[1]))
        return with_time or self.digests.take(_digest(key, value, None))


def compared(run: EpochRun, base: LedgerRow, rows: Sequence[LedgerRow], commits: Sequence[LedgerRow]) -> SentRecords:
    """Compare the records that slices sent with those that a run of other code would send.

    A topic output must have each computed record as often, and one that only the epoch writes to no other records of
    the slices. Of a changelog the newest record per key stays: each that is there must be a computed one. Order and
    partitions are not compared.

    Args:
        run: the slices computed again.
        base: the row before them, a commit or a baseline.
        rows: their commits.
        commits: their commits in the run.
    """
    run = replace(run, scratch=Scratch())  # that of the run has the rows of its last slice
    own = _own(run, base, rows)
    with ExitStack() as stack:
        topics: dict[str, _Computed] = {}

        def of(name: str) -> _Computed:
            if name not in topics:
                topics[name] = _Computed(
                    digests=stack.enter_context(PagedKeys(run.engines.scratch)),
                    settings=_settings(run, name),
                    first_ms=milliseconds(base.at) - _SKEW_MS,
                    own=own.get(name),
                )
            return topics[name]

        for name in own:  # also where nothing would be sent
            of(name)
        try:
            for was, now in zip(rows, commits, strict=True):
                changes = change_records(run, now, now) if was.logged else ()
                records = chain(output_records(run, replace(now, sends=was.sends), now), changes)
                for name, group in groupby(records, key=lambda record: record.topic):
                    of(name).add(group)
        except SchemaRefusedError as error:
            return SentRecords(checks=(CheckResult(name="schemas of topics", ok=False, detail=first_line(error)),))
        outcomes = [_outcome(run, name, computed) for name, computed in topics.items()]
    return SentRecords(
        records=sum(one.records for one in outcomes),
        checks=tuple(check for one in outcomes for check in one.checks),
        gaps=tuple(gap for one in outcomes for gap in one.gaps),
    )


def _own(run: EpochRun, base: LedgerRow, rows: Sequence[LedgerRow]) -> dict[str, _Own]:
    """What slices sent to the changelogs and the versioned topics of their epoch, by topic, as the ledger says it."""
    seqs = {row.seq for row in rows if row.logged}  # the number of one that is not logged may be that of the baseline
    logged = _Own(has=lambda message: seq_of(message) in seqs, is_changelog=True)
    own = {run.paths.changelog(table.name): logged for table in run.topology.tables if seqs}
    begin, end = (Offsets.from_json(row.detail.get("sent", {})) for row in (base, rows[-1]))

    def is_sent(message: Message) -> bool:
        topic, partition, offset = str(message.topic()), message.partition() or 0, message.offset() or 0
        return (begin.get(topic, partition) or 0) <= offset < (end.get(topic, partition) or 0)

    if "sent" in base.detail:  # earlier platforms did not keep it
        own |= {topic: _Own(has=is_sent, start=begin.only([topic])) for topic in end.topics}
    return own


def _settings(run: EpochRun, topic: str) -> Mapping[str, str]:
    try:
        return run.engines.broker.topic_configs([topic])[topic]
    except _UNREADABLE:  # a read of its records says why
        return {}


def _digest(key: bytes | None, value: bytes | None, timestamp_ms: int | None) -> bytes:
    return digest(key, value, None if timestamp_ms is None else b"%d" % timestamp_ms)


def _outcome(run: EpochRun, topic: str, computed: _Computed) -> SentRecords:
    own, equal, others = computed.own, 0, 0
    try:
        since = _since(run, topic)
        if own is not None and own.start:
            start = Offsets.of((at, max(offset, own.start.get(*at) or 0)) for at, offset in since.items())
        else:
            start = run.engines.broker.offsets_for_time([topic], computed.first_ms, since)
        for message in _messages(run, topic, start):
            if own is not None and not own.has(message):
                continue
            if computed.take(message):
                equal += 1
            else:
                others += 1
    except _UNREADABLE as error:
        return SentRecords(gaps=(f"What was sent to topic {topic} cannot be read: {first_line(error)}",))
    name = f"records of topic {topic}"
    if own is not None and others:
        detail = f"{others:,} of {equal + others:,} records would not be sent, or with another key, value or time"
        return SentRecords(records=equal, checks=(CheckResult(name=name, ok=False, detail=detail),))
    if equal == computed.count or (own is not None and own.is_changelog):
        return SentRecords(records=equal)
    missing = f"{computed.count - equal:,} of {computed.count:,} records"
    may_lack = any(0 < offset <= since[at] for at, offset in start.items())
    if may_lack or "compact" in computed.settings.get("cleanup.policy", "compact"):
        gap = f"{missing} are not in topic {topic} as they would be sent: compaction or retention may have removed them"
        return SentRecords(records=equal, gaps=(f"{gap}.",))
    detail = f"{missing} would be sent with another key, value or time"
    return SentRecords(records=equal, checks=(CheckResult(name=name, ok=False, detail=detail),))


def _since(run: EpochRun, topic: str) -> Offsets:
    """The beginning of a topic, or of the last part of it, which is all that is read."""
    low, end = run.engines.broker.low_watermarks([topic]), run.engines.broker.stable_offsets([topic])
    room = MOST_OFFSETS // max(1, len(end))
    return Offsets.of((at, max(offset, end[at] - room)) for at, offset in low.items())


def _messages(run: EpochRun, topic: str, start: Offsets) -> Iterator[Message]:
    for batch in run.engines.broker.read(start, run.engines.broker.decided_ends([topic])):
        yield from batch
