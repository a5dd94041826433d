"""Rules about archives, and about topics whose history only an archive has; one function each, as in ``log``."""

from __future__ import annotations

from collections.abc import Mapping

from kappa.offsets.coverage import ArchiveFacts, is_within
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.replay.facts import LogFacts
from kappa.replay.findings import Finding, refuses, warns


def archive_findings(archives: Mapping[str, ArchiveFacts], log: LogFacts) -> list[Finding]:
    """Objections to the archives themselves, wherever a plan starts."""
    return [*archive_of_another_topic(archives, log.topic_ids), *archive_behind_log(archives, log.topic_ids, log.low)]


ARCHIVE_OF_ANOTHER_TOPIC = warns(
    "archive-of-another-topic",
    "The archive of {topic!r} belongs to the topic with id {archived}, and the broker has id {found}: the topic was "
    "recreated, and nothing is read from the archive.",
    "No action needed if Kafka has the records. To archive the new topic, move the old archive away and start another.",
)


def archive_of_another_topic(archives: Mapping[str, ArchiveFacts], topic_ids: Mapping[str, str]) -> list[Finding]:
    """The topic was recreated since it was archived: nothing of the archive belongs to it."""
    return [
        ARCHIVE_OF_ANOTHER_TOPIC(topic=topic, archived=archive.topic_id, found=topic_ids[topic])
        for topic, archive in sorted(archives.items())
        if topic in topic_ids and topic_ids[topic] != archive.topic_id
    ]


ARCHIVE_BEHIND_LOG = warns(
    "archive-behind-log",
    "The archive of {topic}[{partition}] ends at offset {archived} and the log begins at {low}: {lost} offsets are in "
    "neither, and earlier records cannot be joined to the log.",
    "Archive from {low} on: `kappa archive start {topic} --skip-lost`. The lost offsets cannot be recovered.",
)


def archive_behind_log(
    archives: Mapping[str, ArchiveFacts], topic_ids: Mapping[str, str], low: Offsets
) -> list[Finding]:
    """Retention removed records after the archive's end, so they are in neither place."""
    findings = []
    for (topic, partition), first in low.items():
        archive = archives.get(topic)
        if archive is None or archive.topic_id != topic_ids.get(topic):
            continue
        last = max((item.end for item in archive.covered if item.partition == partition), default=0)
        if last < first:
            words = {"lost": first - last}
            findings.append(ARCHIVE_BEHIND_LOG(words, topic=topic, partition=partition, archived=last, low=first))
    return findings


COMPACTED_SOURCE_ARCHIVED = warns(
    "compacted-source-archived",
    "Source {topic!r} has cleanup.policy={policy}; the archive took every offset of the plan before any was compacted "
    "away.",
    "No action needed. Records after the plan's end are read from the topic soon after they were written.",
)
COMPACTED_SOURCE = refuses(
    "compacted-source",
    "Source {topic!r} has cleanup.policy={policy}: older records of a key are gone, in no particular order{archive}.",
    "If the newest record of each key is all that the step needs, --allow compacted-source.",
    way_out="If the newest record of each key is all that the step needs, --allow compacted-source. An "
    "[archive](archive.md#what-is-proved) that took each offset before it was compacted away is read instead.",
    may_be_allowed=True,
)


def compacted_sources(
    cleanup: Mapping[str, str],
    start: Offsets | None,
    end: Offsets,
    archives: Mapping[str, ArchiveFacts],
    topic_ids: Mapping[str, str],
) -> list[Finding]:
    """A source's topic drops older records of a key, so that its history is incomplete unless an archive has all of it.

    The archive has it where each offset of the span held a record when it was taken. A span with holes may owe them to
    transactions or to compaction, which cannot be told apart, so it counts as incomplete.
    """
    findings = []
    for topic, policy in sorted(cleanup.items()):
        if "compact" not in policy:
            continue
        archive = archives.get(topic)
        span = [] if start is None else [r for r in _span(start, end) if r.topic == topic]
        is_whole = (
            start is not None
            and archive is not None
            and archive.topic_id == topic_ids.get(topic)
            and is_within(span, archive.whole)
        )
        if is_whole:
            findings.append(COMPACTED_SOURCE_ARCHIVED(topic=topic, policy=policy))
            continue
        reservation = (
            ", and its archive does not show that each offset held a record when it was taken" if archive else ""
        )
        findings.append(COMPACTED_SOURCE({"archive": reservation}, topic=topic, policy=policy))
    return findings


def _span(start: Offsets, end: Offsets) -> list[OffsetRange]:
    return [
        OffsetRange(topic=at[0], partition=at[1], start=start.get(*at) or 0, end=last)
        for at, last in end.items()
        if (start.get(*at) or 0) < last
    ]
