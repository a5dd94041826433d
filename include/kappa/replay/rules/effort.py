"""Rules that check an estimate against Kafka's retention and the free space; one function each.

An estimate may be wrong. These rules refuse only what fails even in the best case, warn of the rest, and may be allowed
by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from kappa.replay.estimates import Estimate
from kappa.replay.facts import Facts
from kappa.replay.findings import Finding, refuses, warns
from kappa.replay.topic_retention import FoldFacts, RetentionFacts, RetentionProbe

#: Offsets of a changelog that a fold takes per second if none was measured: a safe lower and a safe upper bound.
FOLD_AT_LEAST, FOLD_AT_MOST = 20_000.0, 2_000_000.0
#: An estimate that is exceeded by this much is not a surprise: closer than that is worth a warning.
CLOSE = 2.0

#: Longest estimate in seconds that still counts: thirty years.
_LONGEST = 1e9
_RAISE = "Raise the topic's retention until the replay has passed"


def effort_findings(facts: Facts, estimate: Estimate, slice_records: int, now: datetime) -> list[Finding]:
    """Objections that follow from an estimate of the bulk work."""
    # A first epoch does not replay: it goes live and reads on, so it has no bulk work to estimate.
    seconds = estimate.seconds if facts.live is not None and not estimate.rough else None
    slice_share = min(1.0, slice_records / max(1, estimate.offsets))
    return [
        *retention_overtakes(facts.retention, seconds, slice_share, now),
        *size_overtakes(facts.retention, seconds),
        *disk_too_small(None if estimate.rough else estimate.disk_bytes, facts.free_bytes, facts.lake),
        *fold_outlasts_tombstones(facts.fold),
    ]


_STOPS = "a record that is removed before it is read stops the replay."
_RECORD = "Record {offset} of {topic}[{partition}] may be removed from {due_at} on (retention.ms={retention_ms})"
_SIZE = (
    "{topic}[{partition}] keeps {retention_bytes:,} bytes (retention.bytes), holds about {held:,} and grows by "
    "{growth:,} while the replay runs, as estimated from the last hour"
)

RETENTION_OVERTAKES_REPLAY = refuses(
    "retention-overtakes-replay",
    f"{_RECORD} and is gone by {{gone_at}}; the replay would read it at {{read_at}}, as estimated.",
    f"{_RAISE}, archive it (`kappa archive start {{topic}}`) and plan again, start later, or --allow "
    "retention-overtakes-replay if the estimate is wrong: the replay stops where records are missing.",
    may_be_allowed=True,
)
RETENTION_CLOSE_BEHIND = warns(
    "retention-close-behind",
    f"{_RECORD}; the replay would read it at {{read_at}} at the earliest. It stays for as long as a later record of "
    "its segment does.",
    f"{_RAISE}; {_STOPS}",
)
SIZE_OVERTAKES_REPLAY = refuses(
    "size-overtakes-replay",
    f"{_SIZE}: everything that it holds now is removed before the end.",
    f"{_RAISE}, archive it (`kappa archive start {{topic}}`) and plan again, start later, or --allow "
    "size-overtakes-replay.",
    may_be_allowed=True,
)
SIZE_CLOSE_BEHIND = warns(
    "size-close-behind", f"{_SIZE}: its oldest records may be removed before they are read.", f"{_RAISE}; {_STOPS}"
)


def retention_overtakes(
    retention: Iterable[RetentionFacts], seconds: float | None, slice_share: float, now: datetime
) -> list[Finding]:
    """Records will be removed before the replay, at its estimated rate, has read them.

    Args:
        retention: retention of the topics from which the replay reads.
        seconds: how long the bulk work takes, as estimated; ``None`` where nothing was measured: then nothing is
            refused.
        slice_share: the largest slice as a share of the span: a slice is done when all of it was read.
        now: when it would begin.
    """
    findings = []
    total = min(seconds or 0.0, _LONGEST)
    for facts in retention:
        by_partition: dict[int, list[tuple[bool, RetentionProbe, datetime]]] = {}
        for probe in facts.probes if facts.keeps is not None else ():
            read = now + timedelta(seconds=total * min(1.0, probe.share + slice_share))
            late = now + CLOSE * (read - now)
            # A record that should be gone and is there belongs to a segment with a later one: when that goes is
            # unknown.
            is_lost = now <= facts.deadline(probe) < read
            if is_lost or facts.due(probe) < late or facts.due(probe) <= now:
                by_partition.setdefault(probe.partition, []).append((is_lost, probe, read))
        findings += [_overtaken(facts, *_worst(facts, cases)) for cases in by_partition.values()]
    return findings


def _worst(
    facts: RetentionFacts, cases: list[tuple[bool, RetentionProbe, datetime]]
) -> tuple[bool, RetentionProbe, datetime]:
    return max(cases, key=lambda case: (case[0], case[2] - facts.due(case[1])))


def _overtaken(facts: RetentionFacts, is_lost: bool, probe: RetentionProbe, read: datetime) -> Finding:
    assert facts.keeps is not None
    due, deadline = facts.due(probe), facts.deadline(probe)
    declared = RETENTION_OVERTAKES_REPLAY if is_lost else RETENTION_CLOSE_BEHIND
    return declared(
        {"due_at": _at(due), "gone_at": _at(deadline), "read_at": _at(read)},
        topic=facts.topic,
        partition=probe.partition,
        offset=probe.offset,
        retention_ms=round(facts.keeps.total_seconds() * 1000),
        due=due.isoformat(),
        gone=deadline.isoformat(),
        read=read.isoformat(),
    )


def size_overtakes(retention: Iterable[RetentionFacts], seconds: float | None) -> list[Finding]:
    """A partition with a limited size will grow by more than that limit while the replay runs.

    Nothing is known without an estimate, or of a partition that did not grow in the last hour.
    """
    findings = []
    for facts in retention:
        for partition, rate in sorted(facts.bytes_per_second.items()):
            if facts.keeps_bytes is None or not seconds or not rate:
                continue
            growth, held = round(rate * seconds), round(facts.bytes_held.get(partition, 0.0))
            numbers = {"retention_bytes": facts.keeps_bytes, "growth": growth, "held": held}
            if growth > facts.keeps_bytes + facts.segment_bytes:
                findings.append(SIZE_OVERTAKES_REPLAY(topic=facts.topic, partition=partition, **numbers))
            elif held + CLOSE * growth > facts.keeps_bytes:
                findings.append(SIZE_CLOSE_BEHIND(topic=facts.topic, partition=partition, **numbers))
    return findings


_DISK = "The new epoch takes about {needed:,} bytes and the disk of {lake} has {free:,} free"

NOT_ENOUGH_DISK = refuses(
    "not-enough-disk",
    f"{_DISK}: {{lacking:,}} too few.",
    "`kappa housekeeping` and `kappa retire` make room; --allow not-enough-disk if the estimate is wrong.",
    may_be_allowed=True,
)
DISK_GETS_TIGHT = warns(
    "disk-gets-tight",
    f"{_DISK}: more than half of it.",
    "`kappa housekeeping` shows what is left over; `kappa retire` removes epochs that are no longer needed for a "
    "rollback.",
)


def disk_too_small(needed: int | None, free: int | None, lake: str) -> list[Finding]:
    """The new epoch does not fit onto the disk of the lake, or leaves little of it."""
    if needed is None or free is None or CLOSE * needed <= free:
        return []
    words = {"lake": lake, "lacking": needed - free}
    return [(NOT_ENOUGH_DISK if needed > free else DISK_GETS_TIGHT)(words, needed=needed, free=free)]


_FOLD = (
    "The changelog of epoch {epoch} spans {offsets:,} offsets, {exact:,.1f} s to fold {rate}; tombstones are kept for "
    "{keeps:,.1f} s (delete.retention.ms)"
)

FOLD_OUTLASTS_TOMBSTONES = refuses(
    "fold-outlasts-tombstones",
    f"{_FOLD}: rows that were deleted may come back.",
    "Raise delete.retention.ms of the changelog topics, or start from a savepoint; --allow fold-outlasts-tombstones if "
    "nothing was deleted.",
    may_be_allowed=True,
)
FOLD_MAY_OUTLAST_TOMBSTONES = warns(
    "fold-may-outlast-tombstones",
    f"{_FOLD}: if it takes that long, rows that were deleted may come back.",
    "Raise delete.retention.ms of the changelog topics before the replay begins.",
)


def fold_outlasts_tombstones(fold: FoldFacts | None) -> list[Finding]:
    """A tombstone may be compacted away after a reader has read the row that it deletes: the row would come back."""
    if fold is None:
        return []
    speed = fold.offsets_per_second
    slow, fast = (speed or FOLD_AT_LEAST), (speed or FOLD_AT_MOST)
    keeps = fold.keeps.total_seconds()
    rate = f"at {slow:,.0f} per second, as measured" if speed else f"at {slow:,.0f} per second or more, not measured"
    seconds = fold.offsets / slow
    if seconds <= keeps:
        return []
    declared = FOLD_OUTLASTS_TOMBSTONES if fold.offsets / fast > keeps else FOLD_MAY_OUTLAST_TOMBSTONES
    return [
        declared(
            {"exact": seconds, "rate": rate, "keeps": keeps},
            epoch=fold.epoch,
            offsets=fold.offsets,
            seconds=round(seconds, 3),
            delete_retention_ms=round(1000 * keeps),
        )
    ]


def _at(time: datetime) -> str:
    return time.isoformat(timespec="seconds")
