"""Rules about a backfill: outputs and intervals that cannot be computed again by themselves. One function each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kappa.offsets.vector import Offsets, TopicPartition
from kappa.replay.findings import Finding, refuse, warn


def no_such_output(topology: str, wanted: Iterable[str], known: Sequence[str]) -> list[Finding]:
    """A backfill replaces rows of append outputs."""
    if not known:
        return [
            refuse(
                "backfill-without-outputs",
                f"{topology!r} has no append output. Its tables are running totals: an interval of them does not exist.",
                f"`kappa replay {topology}` computes the tables again.",
            )
        ]
    return [
        refuse(
            "backfill-unknown-output",
            f"{topology!r} has no append output {name!r}.",
            f"Name one of {', '.join(known)}.",
            output=name,
        )
        for name in wanted
        if name not in known
    ]


def cumulative(topology: str, reasons: Mapping[str, Sequence[str]]) -> list[Finding]:
    """A row that depends on more than its record cannot be computed from the records of an interval.

    Args:
        topology: the topology.
        reasons: output -> what its rows depend on beside their record; empty where on nothing.
    """
    return [
        refuse(
            "backfill-cumulative",
            f"Rows of {output!r} are not computed record by record: the step {_together(found)}. "
            "The records of an interval do not say what they are.",
            f"`kappa replay {topology}` computes them from the beginning, `kappa replay {topology} --from-savepoint NAME` from a savepoint.",
            output=output,
            reasons=list(found),
        )
        for output, found in reasons.items()
        if found
    ]


def not_inspected(error: str) -> list[Finding]:
    """The step raised when it was called without records."""
    return [
        refuse(
            "backfill-not-inspected",
            f"Whether rows are computed record by record is unknown: the step failed without records: {error}",
            "Let the step return empty DataFrames for empty input, and upgrade the live epoch.",
            error=error,
        )
    ]


def versioned_topic(topology: str, topics: Mapping[str, str]) -> list[Finding]:
    """A versioned topic holds exactly the rows of its output; a record in it cannot be taken back.

    Args:
        topology: the topology.
        topics: output -> its versioned topic.
    """
    return [
        refuse(
            "backfill-versioned-topic",
            f"Topic {topic!r} is versioned and holds every row of {output!r}. Rows that are replaced cannot be taken back from it.",
            f"`kappa replay {topology}` fills a new topic.",
            output=output,
            topic=topic,
        )
        for output, topic in topics.items()
    ]


def reads_upstream(topology: str, upstreams: Iterable[str]) -> list[Finding]:
    """Times of a topic that another topology fills are those of its sends."""
    found = sorted(upstreams)
    if not found:
        return []
    return [
        refuse(
            "backfill-of-chain",
            f"{topology!r} reads topics that {', '.join(found)} filled. Their records have the time at which they were sent.",
            f"`kappa replay {topology}` computes it again from its upstream epoch.",
            upstreams=found,
        )
    ]


def begins_before_epoch(topology: str, start: Offsets, begin: Offsets) -> list[Finding]:
    """The epoch has no rows of records before its beginning."""
    earlier = _behind(start, begin)
    if not earlier:
        return []
    (topic, partition), wanted = earlier[0]
    return [
        refuse(
            "backfill-before-epoch",
            f"The interval begins at offset {wanted} of {topic}[{partition}]; the live epoch begins at {begin[topic, partition]} "
            "and has no rows of earlier records.",
            f"`kappa replay {topology} --to-datetime TIME` builds an epoch that begins earlier.",
            partitions=[f"{t}[{p}]" for (t, p), _ in earlier],
        )
    ]


def log_is_gone(start: Offsets, first: Offsets, begin: Offsets) -> list[Finding]:
    """Records at the beginning of the interval may have gone with retention.

    Args:
        start: where the interval begins in what can be read.
        first: the first offset that can be read.
        begin: where the epoch begins: nothing before it is asked for.
    """
    gone = [
        (at, offset)
        for at, offset in start.items()
        if at in first and offset == first[at] and offset > (begin.get(*at) or 0)
    ]
    if not gone:
        return []
    (topic, partition), offset = gone[0]
    return [
        refuse(
            "backfill-records-gone",
            f"{topic}[{partition}] can be read from offset {offset} on. Records of the interval may have gone before it.",
            f"Choose a later --from. An archive keeps records that Kafka removes: kappa archive {topic}.",
            topic=topic,
            partition=partition,
            first=offset,
        )
    ]


def unread_yet(end: Offsets, position: Offsets) -> list[Finding]:
    """The live epoch has not read the interval to its end."""
    behind = _behind(position, end)
    if not behind:
        return []
    count = sum(end[at] - offset for at, offset in behind)
    return [
        warn(
            "backfill-not-final",
            f"The live epoch has yet to read {count:,} offsets of the interval. They are left to it.",
            "No action needed if both run the same code.",
            offsets=count,
        )
    ]


def holds_topics(topics: Mapping[str, str]) -> list[Finding]:
    """Readers of a topic keep what they were sent.

    Args:
        topics: output -> the topic that is made of it.
    """
    return [
        warn(
            "backfill-sends-nothing",
            f"Topic {topic!r} of {output!r} gets nothing. Its readers keep the records that they were sent.",
            "No action needed if they do not have to know.",
            output=output,
            topic=topic,
        )
        for output, topic in topics.items()
    ]


def _together(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def _behind(offsets: Offsets, other: Offsets) -> list[tuple[TopicPartition, int]]:
    return [(at, offset) for at, offset in offsets.items() if at in other and offset < other[at]]
