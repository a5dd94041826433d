"""The changelog topics of an epoch, counted."""

from __future__ import annotations

from collections.abc import Iterable

from kappa.kafka.broker import Broker
from kappa.names import EpochPaths


def changelogs_of(broker: Broker, paths: EpochPaths, tables: Iterable[str]) -> list[str]:
    """Those changelogs of an epoch's tables that are there."""
    present = set(broker.topics(f"{paths.name}."))
    return sorted({paths.changelog(name) for name in tables} & present)


def folded_offsets(broker: Broker, topics: Iterable[str]) -> int:
    """How many offsets a fold of these changelogs reads over."""
    names = list(topics)
    low, end = broker.low_watermarks(names), broker.stable_offsets(names)
    return sum(last - (low.get(*at) or 0) for at, last in end.items())
