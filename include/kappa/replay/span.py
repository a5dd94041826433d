"""The span of a plan: start, end, and the part from archives; resolved before anything is judged. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from kappa.offsets.coverage import ArchiveFacts, first_readable, from_archive
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.replay.facts import Facts, LogFacts, TopologyFacts
from kappa.replay.findings import Finding
from kappa.replay.request import ReplayRequest
from kappa.replay.resolution import Resolved, every_partition, frozen_position, of_others, resolve_start
from kappa.replay.rules import log as log_rules
from kappa.replay.rules import request as request_rules


@dataclass(frozen=True, kw_only=True)
class ReplaySpan:
    """What a plan will read.

    Attributes:
        resolved: where it begins, and what the tables hold there.
        wanted_end: where it ends, whether or not it begins anywhere.
        archived: the parts that are read from archives, sorted; the rest is read from Kafka.
    """

    resolved: Resolved
    wanted_end: Offsets
    archived: tuple[OffsetRange, ...]

    @property
    def start(self) -> Offsets:
        """Next offset to read of every partition; empty if the request names nothing that exists."""
        return self.resolved.start if self.resolved.start is not None else Offsets()

    @property
    def end(self) -> Offsets:
        """First offset after it, of every partition; empty where it has no start."""
        return self.wanted_end if self.resolved.start is not None else Offsets()

    @property
    def is_readable(self) -> bool:
        """Whether it has a start and does not end before it."""
        return bool(len(self.start)) and all((self.start.get(*at) or 0) <= last for at, last in self.end.items())

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """All offsets of it; empty ranges included."""
        return self.start.span_to(self.end)


def span_of(request: ReplayRequest, facts: Facts, *, now: datetime) -> ReplaySpan | None:
    """What a plan that is made ``now`` will read; None where the code or a source cannot be read."""
    topology = facts.topology
    if topology is None:
        return None
    facts = of_sources(request, facts, topology)
    return None if unreadable(topology, facts) else resolve_span(request, with_archives(facts), now)


def of_sources(request: ReplayRequest, facts: Facts, topology: TopologyFacts) -> Facts:
    """The facts without topics that are not sources, and without archives that are not to be read."""
    return replace(facts, log=_sources_only(facts.log, topology), archives=_archives(request, facts.archives, topology))


def unreadable(topology: TopologyFacts, facts: Facts) -> list[Finding]:
    """Why nothing can be read at all: code that does not import, a chain that is not there, a topic that is missing."""
    findings = [*request_rules.code_does_not_import(topology), *facts.chain.findings]
    return findings or log_rules.missing_topics((source.topic for source in topology.sources), facts.log.high)


def with_archives(facts: Facts) -> Facts:
    """Records that an archive has up to the log's beginning can be read as if retention had not removed them."""
    low = first_readable(facts.log.low, facts.archives, facts.log.topic_ids)
    return replace(facts, log=replace(facts.log, low=low))


def resolve_span(request: ReplayRequest, facts: Facts, now: datetime) -> ReplaySpan:
    """What is read, by facts of the sources and their archives."""
    resolved, end = resolve_start(request, facts, now), _end(request, facts)
    start, ids = resolved.start, facts.log.topic_ids
    archived = () if start is None else from_archive(start, end, facts.archives, ids)
    return ReplaySpan(resolved=resolved, wanted_end=end, archived=archived)


def _sources_only(log: LogFacts, topology: TopologyFacts) -> LogFacts:
    topics = {source.topic for source in topology.sources}
    return LogFacts(
        low=log.low.only(topics),
        high=log.high.only(topics),
        stable=log.stable.only(topics),
        topic_ids={topic: value for topic, value in log.topic_ids.items() if topic in topics},
        cleanup={topic: value for topic, value in log.cleanup.items() if topic in topics},
        future_ms={topic: value for topic, value in log.future_ms.items() if topic in topics},
        last_times={at: value for at, value in log.last_times.items() if at[0] in topics},
        largest={topic: value for topic, value in log.largest.items() if topic in topics},
        outputs=log.outputs,
    )


def _archives(
    request: ReplayRequest, archives: Mapping[str, ArchiveFacts], topology: TopologyFacts
) -> dict[str, ArchiveFacts]:
    topics = {source.topic for source in topology.sources}
    return {topic: archive for topic, archive in archives.items() if request.archive and topic in topics}


def _end(request: ReplayRequest, facts: Facts) -> Offsets:
    if request.end is not None:
        # Not reduced to the sources: a topic that is not a source is a finding, and not silently dropped.
        ends = every_partition(request.end, facts.log).merge(request.end)
        return ends.merge(of_others(frozen_position(facts), request.end))
    return frozen_position(facts)
