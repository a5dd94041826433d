"""Rules that hold an estimate against the time that Kafka keeps records and the room that is left; one function each.

An estimate may be wrong: these refuse only what cannot be done even when all that is not known turns out well, warn of the
rest, and may be allowed by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from kappa.replay.findings import Finding, refuse, warn
from kappa.replay.topic_retention import FoldFacts, Probe, RetentionFacts

#: Offsets of a changelog that a fold takes in a second where none was measured: surely at least, and surely at most.
FOLD_AT_LEAST, FOLD_AT_MOST = 20_000.0, 2_000_000.0
#: An estimate that is exceeded by this much surprises nobody: closer than that is worth a warning.
CLOSE = 2.0

#: Seconds after which nobody counts any more: thirty years.
_LONGEST = 1e9
_RAISE = "Raise the topic's retention until the replay has passed"


def retention_overtakes(
    retention: Iterable[RetentionFacts], seconds: float | None, slice_share: float, now: datetime
) -> list[Finding]:
    """Records will be removed before the replay, at its estimated rate, has read them.

    Args:
        retention: of the topics from which the replay reads.
        seconds: how long the bulk work takes, as estimated; ``None`` where nothing was measured: then nothing is refused.
        slice_share: how much of the span the largest slice is: a slice is done when all of it was read.
        now: when it would begin.
    """
    found = []
    total = min(seconds or 0.0, _LONGEST)
    for facts in retention:
        by_partition: dict[int, list[tuple[bool, Probe, datetime]]] = {}
        for probe in facts.probes if facts.keeps is not None else ():
            read = now + timedelta(seconds=total * min(1.0, probe.share + slice_share))
            late = now + CLOSE * (read - now)
            # A record that should be gone and is there belongs to a segment with a later one: nobody can tell when that goes.
            is_lost = now <= facts.gone(probe) < read
            if is_lost or facts.due(probe) < late or facts.due(probe) <= now:
                by_partition.setdefault(probe.partition, []).append((is_lost, probe, read))
        found += [_overtaken(facts, *_worst(facts, cases)) for cases in by_partition.values()]
    return found


def _worst(facts: RetentionFacts, cases: list[tuple[bool, Probe, datetime]]) -> tuple[bool, Probe, datetime]:
    return max(cases, key=lambda case: (case[0], case[2] - facts.due(case[1])))


def _overtaken(facts: RetentionFacts, is_lost: bool, probe: Probe, read: datetime) -> Finding:
    assert facts.keeps is not None
    where = f"{facts.topic}[{probe.partition}]"
    numbers = {
        "topic": facts.topic,
        "partition": probe.partition,
        "offset": probe.offset,
        "retention_ms": round(facts.keeps.total_seconds() * 1000),
        "due": facts.due(probe).isoformat(),
        "gone": facts.gone(probe).isoformat(),
        "read": read.isoformat(),
    }
    record = f"Record {probe.offset} of {where} may be removed from {_at(facts.due(probe))} on (retention.ms={numbers['retention_ms']})"
    if is_lost:
        return refuse(
            "retention-overtakes-replay",
            f"{record} and is gone by {_at(facts.gone(probe))}; the replay would read it at {_at(read)}, as estimated.",
            f"{_RAISE}, archive it (`kappa archive start {facts.topic}`) and plan again, start later, or --allow "
            "retention-overtakes-replay if the estimate is wrong: the replay stops where records are missing.",
            **numbers,
        )
    return warn(
        "retention-close-behind",
        f"{record}; the replay would read it at {_at(read)} at the earliest. It stays for as long as a later record of its segment does.",
        f"{_RAISE}; what is removed before it was read stops the replay.",
        **numbers,
    )


def size_overtakes(retention: Iterable[RetentionFacts], seconds: float | None) -> list[Finding]:
    """A partition that is kept up to a size will grow by more than that while the replay runs.

    Nothing is known without an estimate, nor of a partition that did not grow in the last hour.
    """
    found = []
    for facts in retention:
        for partition, rate in sorted(facts.bytes_per_second.items()):
            if facts.keeps_bytes is None or not seconds or not rate:
                continue
            growth, held = round(rate * seconds), round(facts.bytes_held.get(partition, 0.0))
            where, keeps = f"{facts.topic}[{partition}]", facts.keeps_bytes
            numbers = {
                "topic": facts.topic,
                "partition": partition,
                "retention_bytes": keeps,
                "growth": growth,
                "held": held,
            }
            grows = f"{where} keeps {keeps:,} bytes (retention.bytes), holds about {held:,} and grows by {growth:,} while the replay runs, as estimated"
            if growth > keeps + facts.segment_bytes:
                found.append(
                    refuse(
                        "size-overtakes-replay",
                        f"{grows}: all that it holds now is removed before the end.",
                        f"{_RAISE}, archive it (`kappa archive start {facts.topic}`) and plan again, start later, or --allow size-overtakes-replay.",
                        **numbers,
                    )
                )
            elif held + CLOSE * growth > keeps:
                found.append(
                    warn(
                        "size-close-behind",
                        f"{grows}: its oldest records may be removed before they are read.",
                        f"{_RAISE}; what is removed before it was read stops the replay.",
                        **numbers,
                    )
                )
    return found


def disk_too_small(needed: int | None, free: int | None, lake: str) -> list[Finding]:
    """The new epoch does not fit onto the disk of the lake, or leaves little of it."""
    if needed is None or free is None or CLOSE * needed <= free:
        return []
    size = f"The new epoch takes about {needed:,} bytes and the disk of {lake} has {free:,} free"
    numbers = {"needed": needed, "free": free}
    if needed > free:
        return [
            refuse(
                "not-enough-disk",
                f"{size}: {needed - free:,} too few.",
                "`kappa housekeeping` and `kappa retire` make room; --allow not-enough-disk if the estimate is wrong.",
                **numbers,
            )
        ]
    return [
        warn(
            "disk-gets-tight",
            f"{size}: more than half of it.",
            "`kappa housekeeping` shows what is left over; `kappa retire` removes epochs that nobody goes back to.",
            **numbers,
        )
    ]


def fold_outlasts_tombstones(fold: FoldFacts | None) -> list[Finding]:
    """A tombstone may be compacted away behind a reader that has seen the row which it deletes: the row would come back."""
    if fold is None:
        return []
    known = fold.offsets_per_second
    slow, fast = (known or FOLD_AT_LEAST), (known or FOLD_AT_MOST)
    keeps = fold.keeps.total_seconds()
    rate = (
        f"at {slow:,.0f} a second, as measured" if known else f"at {slow:,.0f} a second or more, as none was measured"
    )
    seconds = fold.offsets / slow
    said = (
        f"The changelog of epoch {fold.epoch} spans {fold.offsets:,} offsets, {seconds:,.1f} s to fold {rate}; tombstones stay "
        f"{keeps:,.1f} s (delete.retention.ms)"
    )
    numbers = {
        "epoch": fold.epoch,
        "offsets": fold.offsets,
        "seconds": round(seconds, 3),
        "delete_retention_ms": round(1000 * keeps),
    }
    if fold.offsets / fast > keeps:
        return [
            refuse(
                "fold-outlasts-tombstones",
                f"{said}: rows that were deleted may come back.",
                "Raise delete.retention.ms of the changelog topics, or start from a savepoint; --allow fold-outlasts-tombstones if nothing was deleted.",
                **numbers,
            )
        ]
    if seconds > keeps:
        return [
            warn(
                "fold-may-outlast-tombstones",
                f"{said}: if it takes that long, rows that were deleted may come back.",
                "Raise delete.retention.ms of the changelog topics before it begins.",
                **numbers,
            )
        ]
    return []


def _at(time: datetime) -> str:
    return time.isoformat(timespec="seconds")
