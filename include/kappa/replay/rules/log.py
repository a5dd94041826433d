"""Rules about the log: one function each, from plain facts to findings.

A message says what was found, with its numbers, and why; its remedy says what to do. Nothing is ever moved to the
nearest possible offset instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kappa.offsets.vector import Offsets
from kappa.replay.findings import Finding, refuse, warn


def missing_topics(topics: Iterable[str], high: Offsets) -> list[Finding]:
    """A source's topic does not exist."""
    return [
        refuse(
            "unknown-topic",
            f"Source {topic!r} is not a topic of this broker.",
            "Create it, or correct the name in the topology or the broker's address.",
            topic=topic,
        )
        for topic in topics
        if not high.partitions(topic)
    ]


def recreated_topics(recorded: Mapping[str, str], found: Mapping[str, str], keeper: str) -> list[Finding]:
    """A topic was deleted and made again: offsets on record name other records now. ``keeper`` says who recorded."""
    return [
        refuse(
            "recreated-topic",
            f"Source {topic!r} was recreated: {keeper} knows it by id {recorded[topic]}, the broker has "
            f"{found[topic]}. Recorded offsets name other records there.",
            "Bring the old topic back, or deploy the topology under a new name to start over.",
            topic=topic,
            recorded=recorded[topic],
            found=found[topic],
        )
        for topic in sorted(recorded.keys() & found.keys())
        if recorded[topic] != found[topic]
    ]


def partition_counts_changed(keyed: Iterable[str], before: Offsets, high: Offsets) -> list[Finding]:
    """A keyed source has another number of partitions than when its history began."""
    found = []
    for topic in keyed:
        was, now = len(before.partitions(topic)), len(high.partitions(topic))
        if was and was != now:
            found.append(
                refuse(
                    "partition-count-changed",
                    f"Source {topic!r} had {was} partitions when its history began and has {now} now: records of one "
                    "key lie in several partitions, ordered by timestamp only.",
                    "If the step does not depend on the order of a key's records, --allow partition-count-changed or "
                    "declare the source keyed=False.",
                    topic=topic,
                    before=was,
                    now=now,
                )
            )
    return found


def vector_beyond_log(vector: Offsets, high: Offsets, keeper: str) -> list[Finding]:
    """A stored vector names offsets that the log does not have yet: the log is not the one that was read."""
    found = []
    for (topic, partition), offset in vector.items():
        end = high.get(topic, partition)
        if end is None or end < offset:
            has = "has no such partition" if end is None else f"ends at offset {end}"
            found.append(
                refuse(
                    "stored-vector-beyond-end",
                    f"{keeper} stands at offset {offset} of {topic}[{partition}], the log {has}: "
                    "the topic was truncated or recreated, or this is another broker.",
                    "Check the broker's address; if it is right, bring the lost records back before planning.",
                    topic=topic,
                    partition=partition,
                    stored=offset,
                    end=end,
                )
            )
    return found


def start_below_low_watermark(start: Offsets, low: Offsets, *, is_allowable: bool = False) -> list[Finding]:
    """The plan begins at records that retention has removed.

    ``is_allowable`` says whether the request may ask for what is left, by allowing ``partial-history``.
    """
    instead = "--allow partial-history to begin with what is left, " if is_allowable else ""
    return [
        refuse(
            "start-below-low-watermark",
            f"Source {topic}[{partition}] starts at offset {first}, the plan begins at {start[topic, partition]}: "
            f"retention removed {first - start[topic, partition]} offsets.",
            f"Replay {instead}--from-savepoint with a later commit or --to-datetime with a later time.",
            topic=topic,
            partition=partition,
            low=first,
            start=start[topic, partition],
            removed=first - start[topic, partition],
        )
        for (topic, partition), first in low.items()
        if (topic, partition) in start and start[topic, partition] < first
    ]


def end_above_high_watermark(end: Offsets, high: Offsets, stable: Offsets) -> list[Finding]:
    """The plan ends at records that do not exist, or cannot be read yet because a transaction is open."""
    found = []
    for (topic, partition), offset in end.items():
        last = high.get(topic, partition) or 0
        readable = stable.get(topic, partition) or 0
        if offset > last:
            message = (
                f"Source {topic}[{partition}] ends at offset {last}, the plan at {offset}: {offset - last} too many."
            )
            found.append(
                refuse(
                    "end-above-high-watermark",
                    message,
                    "Leave the end away: it is then the live epoch's last commit.",
                    topic=topic,
                    partition=partition,
                    high=last,
                    end=offset,
                )
            )
        elif offset > readable:
            found.append(
                refuse(
                    "end-above-stable-offset",
                    f"Source {topic}[{partition}] can be read up to offset {readable}, the plan ends at {offset}: "
                    "a transaction is open in between.",
                    "Wait until its producer ends it, or leave the end away.",
                    topic=topic,
                    partition=partition,
                    stable=readable,
                    end=offset,
                )
            )
    return found


def open_transactions(stable: Offsets, high: Offsets) -> list[Finding]:
    """A transaction that is not finished hides the end of a partition."""
    return [
        warn(
            "open-transactions",
            f"Source {topic}[{partition}] can be read up to offset {stable.get(topic, partition) or 0} of {last}: "
            "an open transaction holds back the rest.",
            "Nothing, if its producer ends it; a dead producer's is ended by the broker after transaction.timeout.ms.",
            topic=topic,
            partition=partition,
            stable=stable.get(topic, partition) or 0,
            high=last,
        )
        for (topic, partition), last in high.items()
        if (stable.get(topic, partition) or 0) < last
    ]
