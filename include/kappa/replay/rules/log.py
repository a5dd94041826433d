"""Rules about the log: one function each, from plain facts to findings.

A message gives the observation with its numbers, and why; its remedy says what to do. Nothing is ever moved to the
nearest possible offset instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from kappa.offsets.vector import Offsets
from kappa.replay.facts import TopologyFacts
from kappa.replay.findings import Declaration, Finding, refuses, warns
from kappa.topology.times.event_time import shown

UNKNOWN_TOPIC = refuses(
    "unknown-topic",
    "Source {topic!r} is not a topic of this broker.",
    "Create it, or correct the name in the topology or the broker's address.",
)


def missing_topics(topics: Iterable[str], high: Offsets) -> list[Finding]:
    """A source's topic does not exist."""
    return [UNKNOWN_TOPIC(topic=topic) for topic in topics if not high.partitions(topic)]


RECREATED_TOPIC = refuses(
    "recreated-topic",
    "Source {topic!r} was recreated: {keeper} recorded id {recorded}, the broker has {found}. Recorded offsets name "
    "other records there.",
    "No epoch of the topology can continue in the new topic. Deploy the topology under a new name: it starts from the "
    "new topic's beginning, and the results of this one stay readable.",
)


def recreated_topics(recorded: Mapping[str, str], topic_ids: Mapping[str, str], keeper: str) -> list[Finding]:
    """A topic was deleted and made again: recorded offsets name other records now. ``keeper`` recorded them."""
    return [
        RECREATED_TOPIC({"keeper": keeper}, topic=topic, recorded=recorded[topic], found=topic_ids[topic])
        for topic in sorted(recorded.keys() & topic_ids.keys())
        if recorded[topic] != topic_ids[topic]
    ]


PARTITION_COUNT_CHANGED = refuses(
    "partition-count-changed",
    "Source {topic!r} had {before} partitions when its history began and has {now} now: records of one key lie in "
    "several partitions, ordered by timestamp only.",
    "If the step does not depend on the order of a key's records, --allow partition-count-changed or declare the "
    "source keyed=False.",
    may_be_allowed=True,
)


def partition_counts_changed(keyed: Iterable[str], before: Offsets, high: Offsets) -> list[Finding]:
    """A keyed source has another number of partitions than when its history began."""
    counts = [(topic, len(before.partitions(topic)), len(high.partitions(topic))) for topic in keyed]
    return [
        PARTITION_COUNT_CHANGED(topic=topic, before=was, now=now) for topic, was, now in counts if was and was != now
    ]


STORED_VECTOR_BEYOND_END = refuses(
    "stored-vector-beyond-end",
    "{keeper} stands at offset {stored} of {topic}[{partition}], the log {has}: the topic was truncated or recreated, "
    "or this is another broker.",
    "Check the broker's address, KAPPA_BOOTSTRAP_SERVERS; if it is right, bring the lost records back first.",
)


def vector_beyond_log(vector: Offsets, high: Offsets, keeper: str) -> list[Finding]:
    """A stored vector names offsets that the log does not have yet: the log is not the one that was read."""
    findings = []
    for (topic, partition), offset in vector.items():
        end = high.get(topic, partition)
        if end is None or end < offset:
            has = "has no such partition" if end is None else f"ends at offset {end}"
            words = {"keeper": keeper, "has": has}
            findings.append(STORED_VECTOR_BEYOND_END(words, topic=topic, partition=partition, stored=offset, end=end))
    return findings


START_BELOW_LOW_WATERMARK = refuses(
    "start-below-low-watermark",
    "Source {topic}[{partition}] starts at offset {low}, the plan begins at {start}: retention removed {removed} "
    "offsets.",
    "Replay {instead}--from-savepoint with a later commit or --to-datetime with a later time.",
    way_out="Replay --from-savepoint with a later commit or --to-datetime with a later time; a replay from the "
    "beginning can also use --allow partial-history, to begin with what is left. An [archive](archive.md) with the "
    "records up to the beginning of the log is read instead.",
)


def start_below_low_watermark(start: Offsets, low: Offsets, *, is_allowable: bool = False) -> list[Finding]:
    """The plan begins at records that retention has removed.

    ``is_allowable`` says whether the request may ask for what is left, by allowing ``partial-history``.
    """
    words = {"instead": "--allow partial-history to begin with what is left, " if is_allowable else ""}
    both = [(at, start[at], first) for at, first in low.items() if at in start]
    return [
        START_BELOW_LOW_WATERMARK(
            words, topic=topic, partition=partition, low=first, start=begin, removed=first - begin
        )
        for (topic, partition), begin, first in both
        if begin < first
    ]


TIME_BELOW_LOW_WATERMARK = refuses(
    "time-below-low-watermark",
    "Source {topic}[{partition}] starts at offset {low}, and that record is not before {at}: retention may have "
    "removed others of that time.",
    "Replay --to-datetime with a later time, or --allow partial-history to begin with what is left.",
)


def time_below_low_watermark(
    at: datetime, first_records: Offsets, low: Offsets, declared: Declaration = TIME_BELOW_LOW_WATERMARK
) -> list[Finding]:
    """The first remaining record is not before the requested time: records that retention removed may belong to it."""
    return [
        declared(topic=topic, partition=partition, low=first, at=at.isoformat())
        for (topic, partition), first in low.items()
        if first > 0 and first_records.get(topic, partition) == first
    ]


END_ABOVE_HIGH_WATERMARK = refuses(
    "end-above-high-watermark",
    "Source {topic}[{partition}] ends at offset {high}, the plan at {end}: {over} too many.",
    "Omit the end: it is then the live epoch's last commit.",
)
END_ABOVE_STABLE_OFFSET = refuses(
    "end-above-stable-offset",
    "Source {topic}[{partition}] can be read up to offset {stable}, the plan ends at {end}: a transaction is open in "
    "between.",
    "Wait until its producer ends it, or omit the end.",
)


def end_above_high_watermark(end: Offsets, high: Offsets, stable: Offsets) -> list[Finding]:
    """The plan ends at records that do not exist, or cannot be read yet because a transaction is open."""
    return vector_above_log(end, high, stable, "end", END_ABOVE_HIGH_WATERMARK, END_ABOVE_STABLE_OFFSET)


def vector_above_log(
    vector: Offsets, high: Offsets, stable: Offsets, name: str, above: Declaration, hidden: Declaration
) -> list[Finding]:
    """An offset lies after the last record, or after records that an open transaction hides.

    Args:
        vector: the offsets.
        high: where the log ends.
        stable: up to where it can be read.
        name: what the findings call the offset.
        above: the finding for an offset after the last record.
        hidden: the finding for an offset after the last readable record.
    """
    findings = []
    for (topic, partition), offset in vector.items():
        last, readable = high.get(topic, partition) or 0, stable.get(topic, partition) or 0
        numbers = {"topic": topic, "partition": partition, name: offset}
        if offset > last:
            findings.append(above({"over": offset - last}, **numbers, high=last))
        elif offset > readable:
            findings.append(hidden(**numbers, stable=readable))
    return findings


#: How far a time in seconds may lie from Kafka's timestamp of its record and still be recognised by it.
_NEAR_MS = 366 * 24 * 3600 * 1000
TIME_IN_SECONDS = warns(
    "time-in-seconds",
    "Source {topic!r}: event time {column!r} of a record is {value}, which as epoch milliseconds is {shown}; Kafka's "
    "timestamp of the record is {sent}. Most records seem to hold epoch seconds: windows would lie in 1970.",
    "Declare the column TIMESTAMP and the source timestamps='epoch_seconds', or send milliseconds.",
)


def is_in_seconds(value: int, record_ms: int) -> bool:
    """Whether a number is a time in epoch seconds: as milliseconds it lies decades before its record, as seconds within
    a year of it.
    """
    return 0 < value * 100 < record_ms and abs(value * 1000 - record_ms) < _NEAR_MS


def times_in_seconds(topology: TopologyFacts, in_seconds: Mapping[str, tuple[int, int]]) -> list[Finding]:
    """A time far before its record's makes no dead letter, unlike one far ahead: this finding reports it."""
    columns = {source.topic: source.time_in_ms for source in topology.sources}
    return [
        TIME_IN_SECONDS({"shown": shown(value), "sent": shown(sent)}, topic=topic, column=columns[topic], value=value)
        for topic, (value, sent) in sorted(in_seconds.items())
    ]


#: A topic that accepts timestamps further ahead than this is reported.
LONGEST_FUTURE_MS = 24 * 3600 * 1000
FUTURE_TIMESTAMPS = warns(
    "future-timestamps",
    "Topic {topic!r} accepts records whose timestamp lies {days} days ahead, more than one "
    "(message.timestamp.after.max.ms={ms}): one such record makes all later ones of its partition late.",
    "Lower it to an hour: kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config "
    "message.timestamp.after.max.ms=3600000",
)


def future_timestamps(topology: TopologyFacts, future_ms: Mapping[str, int]) -> list[Finding]:
    """Stream time follows the greatest time of a partition, and a column may lie at most ``ahead`` of the timestamp."""
    topics = sorted(source.topic for source in topology.sources if source.has_event_time)
    return [
        FUTURE_TIMESTAMPS({"days": f"{ms // LONGEST_FUTURE_MS:,}"}, topic=topic, ms=ms)
        for topic in topics
        if (ms := future_ms.get(topic, 0)) > LONGEST_FUTURE_MS
    ]


OPEN_TRANSACTIONS = warns(
    "open-transactions",
    "Source {topic}[{partition}] can be read up to offset {stable} of {high}: an open transaction holds back the rest.",
    "No action needed if its producer ends it; a dead producer's is ended by the broker after transaction.timeout.ms.",
)


def open_transactions(stable: Offsets, high: Offsets) -> list[Finding]:
    """A transaction that is not finished hides the end of a partition."""
    return [
        OPEN_TRANSACTIONS(topic=topic, partition=partition, stable=stable.get(topic, partition) or 0, high=last)
        for (topic, partition), last in high.items()
        if (stable.get(topic, partition) or 0) < last
    ]
