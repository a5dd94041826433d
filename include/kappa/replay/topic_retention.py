"""How long Kafka will keep the unread records of a replay, as far as clients of the broker can see.

Kafka removes whole segments: one goes when its *latest* record is older than ``retention.ms``, at the broker's next
check. So a record is never removed before its own time is up. It is removed at the latest by the first check after its
segment could have closed and that segment's time is up too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta


@dataclass(frozen=True, kw_only=True)
class RetentionProbe:
    """One record that a replay will read from Kafka.

    Attributes:
        partition: where it is.
        offset: its offset.
        share: how much of the partition's span lies before it, from 0 to 1.
        at: its timestamp.
    """

    partition: int
    offset: int
    share: float
    at: datetime


@dataclass(frozen=True, kw_only=True)
class RetentionFacts:
    """What a topic's retention says, and records of the replay's span to check it against.

    Attributes:
        keeps: ``retention.ms``; ``None`` keeps records whatever their age.
        keeps_bytes: ``retention.bytes`` of a partition; ``None`` keeps any size.
        segment: ``segment.ms``: how much longer a record may stay, because its segment still accepts later ones.
        segment_bytes: ``segment.bytes``.
        check: time between two of the broker's checks.
        probes: records of the span that is read from Kafka.
        bytes_held: size of each partition's log, estimated from the size of its records.
        bytes_per_second: how fast each partition grew in the last hour, by the timestamps of its records.
    """

    topic: str
    keeps: timedelta | None = None
    keeps_bytes: int | None = None
    segment: timedelta = timedelta(days=7)
    segment_bytes: int = 1 << 30
    check: timedelta = timedelta(minutes=5)
    probes: tuple[RetentionProbe, ...] = ()
    bytes_held: Mapping[int, float] = field(default_factory=dict)
    bytes_per_second: Mapping[int, float] = field(default_factory=dict)

    def due(self, probe: RetentionProbe) -> datetime:
        """The time from which the record may be removed."""
        assert self.keeps is not None
        return probe.at + self.keeps

    def deadline(self, probe: RetentionProbe) -> datetime:
        """The time by which it is removed at the latest."""
        return self.due(probe) + self.segment + self.check


@dataclass(frozen=True, kw_only=True)
class FoldFacts:
    """The changelog that a seed folds.

    Attributes:
        epoch: the epoch of the changelog.
        offsets: offsets that its topics span.
        keeps: how long a tombstone stays after it may be compacted away: the least ``delete.retention.ms`` of its
            topics.
        offsets_per_second: how fast an earlier seed of the topology folded, if there was one.
    """

    epoch: int
    offsets: int
    keeps: timedelta
    offsets_per_second: float | None = None
