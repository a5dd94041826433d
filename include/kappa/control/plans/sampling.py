"""Measurements for one plan, once its span is known: size of records, retention, and free space.

A few records of each partition are read, and Kafka's settings; no JVM. Nothing is changed.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kappa.config import Config
from kappa.errors import Terminal
from kappa.kafka import topic_settings
from kappa.kafka.broker import Broker
from kappa.kafka.changelogs import changelogs_of, folded_offsets
from kappa.kafka.offsets_for_times import milliseconds
from kappa.names import EpochPaths
from kappa.offsets.coverage import without
from kappa.offsets.vector import Offsets, TopicPartition
from kappa.record.epoch_record import TopologyRecord
from kappa.replay.facts import Facts, TopologyFacts
from kappa.replay.request import ReplayRequest, Seed
from kappa.replay.rules.log import is_in_seconds
from kappa.replay.span import ReplaySpan, span_of
from kappa.replay.topic_retention import FoldFacts, RetentionFacts, RetentionProbe
from kappa.store.address import is_remote

#: Where in the span of a partition records are looked at: what is due first, and whether a slow replay is overtaken
#: later on.
SHARES = (0.0, 0.5, 0.9)
#: Period in which the growth of a partition is measured.
GROWTH = timedelta(hours=1)
_DEFAULT_CHECK_MS = 300_000
_LATEST_MS = 221_845_392_000_000
_CHECK_MS = "log.retention.check.interval.ms"


@dataclass(frozen=True, kw_only=True)
class _Sample:
    """The records read at one place: the first, the share of the span before it, sizes, values and times by offset."""

    at: datetime
    offset: int
    share: float
    sizes: Mapping[int, int]
    values: Mapping[int, bytes]
    times: Mapping[int, int]


def sounded(
    config: Config, broker: Broker, record: TopologyRecord, request: ReplayRequest, facts: Facts, *, now: datetime
) -> Facts:
    """The facts with those that are measured only for a span that can be replayed."""
    span = span_of(request, facts, now=now)
    if span is None or not span.is_readable or facts.topology is None:
        return facts
    samples = _samples(broker, span, facts)
    size = facts.bytes_per_record or _size(span, samples)
    return replace(
        facts,
        bytes_per_record=size,
        lake=config.lake,
        free_bytes=_free_bytes(config.lake),
        retention=_retention(broker, samples, facts, size, now),
        spread=_spread(samples, facts.topology),
        in_seconds=_in_seconds(samples, facts.topology),
        fold=_fold(config, broker, record, request, span, facts),
    )


def _samples(broker: Broker, span: ReplaySpan, facts: Facts) -> dict[TopicPartition, list[_Sample]]:
    """Records of the part of the span that is read from Kafka and is still there."""
    samples: dict[TopicPartition, list[_Sample]] = {}
    ranges = {item.at: item for item in span.ranges}
    rest = [
        replace(item, start=max(item.start, facts.log.low.get(*item.at) or 0))
        for item in without(span.ranges, span.archived)
        if max(item.start, facts.log.low.get(*item.at) or 0) < min(item.end, facts.log.stable.get(*item.at) or 0)
    ]
    end = Offsets.of((item.at, min(item.end, facts.log.stable.get(*item.at) or 0)) for item in rest)
    starts = [Offsets.of((item.at, item.start + int(share * item.count)) for item in rest) for share in SHARES]
    for batch in broker.sample(starts, end):
        for at, messages in batch.items():
            first, whole = messages[0], ranges[at]
            sizes = {m.offset() or 0: len(m.key() or b"") + len(m.value() or b"") for m in messages}
            values = {m.offset() or 0: m.value() or b"" for m in messages}
            time, offset = _time(first.timestamp()[1]), first.offset() or 0
            reached = (offset - whole.start) / whole.count
            times = {m.offset() or 0: m.timestamp()[1] for m in messages}
            samples.setdefault(at, []).append(
                _Sample(at=time, offset=offset, share=reached, sizes=sizes, values=values, times=times)
            )
    return samples


def _size(span: ReplaySpan, samples: Mapping[TopicPartition, list[_Sample]]) -> float | None:
    """Average size of a record, weighted by what the plan reads per partition; places may overlap in a short one."""
    counts = {item.at: item.count for item in span.ranges if item.at in samples}
    total = 0.0
    for at, count in counts.items():
        sizes = {offset: size for sample in samples[at] for offset, size in sample.sizes.items()}
        total += count * sum(sizes.values()) / len(sizes)
    return total / sum(counts.values()) if counts else None


def _spread(samples: Mapping[TopicPartition, list[_Sample]], topology: TopologyFacts) -> tuple[str, ...]:
    """Tables with a key that occurs in several partitions: Kafka keeps no order among those."""
    keyed = {source.topic for source in topology.sources if source.keyed}
    keys = {name: topology.shapes[f"tables/{name}"].key for name in topology.tables}
    places: dict[tuple[str, str], TopicPartition] = {}
    tables = set()
    for at, parts in samples.items():
        values = [value for sample in parts for value in sample.values.values()] if at[0] in keyed else []
        for row in filter(None, map(_fields, values)):
            for name, columns in keys.items():
                if all(row.get(column) is not None for column in columns):
                    key = json.dumps([row[column] for column in columns])
                    if places.setdefault((name, key), at) != at:
                        tables.add(name)
    return tuple(sorted(tables))


def _in_seconds(samples: Mapping[TopicPartition, list[_Sample]], topology: TopologyFacts) -> dict[str, tuple[int, int]]:
    """Topics most of whose records have epoch seconds where milliseconds are read: one such time, and Kafka's."""
    examples = {}
    for source in (source for source in topology.sources if source.time_in_ms is not None):
        own_samples = [sample for at, parts in samples.items() if at[0] == source.topic for sample in parts]
        both = [
            (row.get(source.time_in_ms or ""), sample.times[offset])
            for sample in own_samples
            for offset, value in sample.values.items()
            if (row := _fields(value)) is not None
        ]
        times = [(value, sent) for value, sent in both if isinstance(value, int) and not isinstance(value, bool)]
        odd = [pair for pair in times if is_in_seconds(*pair)]
        if 2 * len(odd) > len(times):
            examples[source.topic] = odd[0]
    return examples


def _fields(value: bytes) -> dict[str, Any] | None:
    """A record's fields by name, if it has any."""
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):  # text and bytes are values too
        return None
    return document if isinstance(document, dict) else None


def _retention(
    broker: Broker, samples: Mapping[TopicPartition, list[_Sample]], facts: Facts, size: float | None, now: datetime
) -> tuple[RetentionFacts, ...]:
    settings = {
        topic: values
        for topic, values in broker.topic_configs(sorted({topic for topic, _ in samples})).items()
        if "delete" in values["cleanup.policy"]
        and (values["retention.ms"] != "-1" or values["retention.bytes"] != "-1")
    }
    if not settings:
        return ()
    check = timedelta(milliseconds=_check_ms(broker))
    retention = []
    for topic, values in settings.items():
        keeps_bytes = int(values["retention.bytes"])
        held, growth = ({}, {}) if keeps_bytes < 0 or size is None else _growth(broker, topic, size, facts, now)
        probes = [
            RetentionProbe(partition=partition, offset=sample.offset, share=sample.share, at=sample.at)
            for (name, partition), parts in sorted(samples.items())
            for sample in parts
            if name == topic
        ]
        retention.append(
            RetentionFacts(
                topic=topic,
                keeps=topic_settings.time_of(values, "retention.ms"),
                keeps_bytes=None if keeps_bytes < 0 else keeps_bytes,
                segment=topic_settings.time_of(values, "segment.ms") or timedelta(0),
                segment_bytes=int(values["segment.bytes"]),
                check=check,
                probes=tuple(probes),
                bytes_held=held,
                bytes_per_second=growth,
            )
        )
    return tuple(retention)


def _check_ms(broker: Broker) -> int:
    try:
        return int(broker.broker_config().get(_CHECK_MS, _DEFAULT_CHECK_MS))
    except Terminal:  # a right to read the topic need not include the settings of brokers
        return _DEFAULT_CHECK_MS


def _time(timestamp_ms: int) -> datetime:
    """A record's time, which its producer chose: one beyond the calendar stands for its end."""
    return datetime.fromtimestamp(min(max(timestamp_ms, 0), _LATEST_MS) / 1000, UTC)


def _growth(
    broker: Broker, topic: str, size: float, facts: Facts, now: datetime
) -> tuple[dict[int, float], dict[int, float]]:
    before = broker.first_at_or_after([topic], milliseconds(now - GROWTH))
    high, low = facts.log.high, facts.log.low
    held = {p: ((high.get(topic, p) or 0) - (low.get(topic, p) or 0)) * size for p in high.partitions(topic)}
    growth = {
        partition: ((high.get(topic, partition) or 0) - offset) * size / GROWTH.total_seconds()
        for (_, partition), offset in before.items()
        if offset is not None
    }
    return held, growth


def _free_bytes(lake: str) -> int | None:
    """Free bytes where the lake is, or will be; None for an object store."""
    if is_remote(lake):
        return None
    there = next((folder for folder in (Path(lake), *Path(lake).parents) if folder.exists()), None)
    return None if there is None else shutil.disk_usage(there).free


def _fold(
    config: Config, broker: Broker, record: TopologyRecord, request: ReplayRequest, span: ReplaySpan, facts: Facts
) -> FoldFacts | None:
    epoch = span.resolved.seed_epoch
    if request.resolved_seed is not Seed.FROM_CHANGELOG or epoch is None or facts.topology is None:
        return None
    paths = EpochPaths(lake=config.lake, topology=request.topology, epoch=epoch)
    topics = changelogs_of(broker, paths, facts.topology.tables)
    if not topics:
        return None
    keeps = [topic_settings.time_of(values, "delete.retention.ms") for values in broker.topic_configs(topics).values()]
    measured = [
        event.detail["folded"] for event in record.events if event.event == "seeded" and "folded" in event.detail
    ]
    rate = measured[-1]["offsets"] / measured[-1]["seconds"] if measured and measured[-1]["seconds"] else None
    return FoldFacts(
        epoch=epoch,
        offsets=folded_offsets(broker, topics),
        keeps=min(limit for limit in keeps if limit is not None),
        offsets_per_second=rate or None,
    )
