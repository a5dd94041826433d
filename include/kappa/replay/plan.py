"""A replay as data: what it will do, frozen, with all that speaks against it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from kappa.errors import UsageError
from kappa.offsets.coverage import ArchiveFacts, first_readable, from_archive
from kappa.offsets.vector import OffsetRange, Offsets, ranges_as_dict, ranges_from_json
from kappa.replay import chains
from kappa.replay.chains import Binding, bindings_as_dict, bindings_from_dict
from kappa.replay.estimates import Estimate, estimated
from kappa.replay.facts import Facts, LiveFacts, LogFacts, TopologyFacts
from kappa.replay.findings import Finding, Severity, check, refusals, relaxed
from kappa.replay.request import ReplayRequest, Seed
from kappa.replay.resolution import Resolved, every_partition, resolve_start
from kappa.replay.rules import (
    archive as archive_rules,
)
from kappa.replay.rules import (
    chain as chain_rules,
)
from kappa.replay.rules import (
    effort as effort_rules,
)
from kappa.replay.rules import (
    live as live_rules,
)
from kappa.replay.rules import (
    log as log_rules,
)
from kappa.replay.rules import (
    request as request_rules,
)
from kappa.replay.rules import (
    topic as topic_rules,
)
from kappa.replay.stages import Stage
from kappa.topology.thresholds import limits_of

#: What a replay beside a live epoch runs through by itself.
BESIDE_LIVE = (Stage.REWOUND, Stage.SEEDED, Stage.REPLAYED, Stage.CAUGHT_UP, Stage.VERIFIED)
#: What an epoch runs through that has no live one beside it: it goes live as soon as it is seeded.
FIRST_EPOCH = (Stage.REWOUND, Stage.SEEDED, Stage.CUT_OVER)


@dataclass(frozen=True, kw_only=True)
class ReplayPlan:
    """What a replay will do.

    Attributes:
        topology: name of the topology.
        topology_version: its author's word for the code.
        code: content hash of the code that will run.
        epoch: the epoch that will be built.
        live_epoch: the epoch that it may replace; ``None`` if there is none.
        live_seq: the live epoch's commit at which bulk work ends.
        start: next offset to read of every partition; empty if it could not be resolved.
        end: where bulk work ends and catching up begins; where there is no live epoch, the end of the log at planning.
        origin: where the history in the tables begins: the start, or that of what they are seeded from.
        topic_ids: topic -> Kafka's id of it; checked before records are read.
        seed: what the tables hold before the first slice.
        seed_epoch: epoch whose tables or changelog they are taken from; ``None`` if they start empty.
        seed_seq: the slice of that epoch after which they are taken.
        tables: names of the tables that are computed.
        appends: names of the append outputs that are computed.
        topics: names of the topics that the epoch will send to once it is live.
        versioned: those of them of which the epoch has its own, to which it sends history too.
        reconciled: those that get what differs when the epoch goes live, with the table that they are of.
        sends: ``hold``: nothing is sent for history to topics that epochs share.
        bound: source -> the own topic of another topology's epoch that is read as it; offsets are those of that topic.
        roots: where ``start`` and ``origin`` are in root topics; empty when nothing is bound.
        archived: the parts of the span that are read from archives, sorted; what is left is read from Kafka.
        stages: what the driver runs through by itself, in order; none if the plan is refused.
        findings: what speaks against it.
        estimate: how much work it is.
        created_at: when it was made; no part of the id.
        request: what was asked for.
        id: first 16 digits of the SHA-256 of everything else.
    """

    topology: str
    topology_version: str
    code: str
    epoch: int
    live_epoch: int | None
    live_seq: int | None
    start: Offsets
    end: Offsets
    origin: Offsets
    topic_ids: Mapping[str, str]
    seed: Seed
    seed_epoch: int | None
    seed_seq: int | None
    tables: tuple[str, ...]
    appends: tuple[str, ...]
    topics: tuple[str, ...]
    stages: tuple[Stage, ...]
    findings: tuple[Finding, ...]
    estimate: Estimate
    created_at: datetime
    request: ReplayRequest
    versioned: tuple[str, ...] = ()
    reconciled: Mapping[str, str] = field(default_factory=dict)
    sends: str = "hold"
    bound: Mapping[str, Binding] = field(default_factory=dict)
    roots: Mapping[str, Offsets] = field(default_factory=dict)
    archived: tuple[OffsetRange, ...] = ()
    id: str = field(default="")

    def __post_init__(self) -> None:
        expected = _digest(self)
        if self.id not in ("", expected):
            raise UsageError(f"Plan {self.id} was changed after it was made: its content is that of {expected}.")
        object.__setattr__(self, "id", expected)

    @property
    def is_refused(self) -> bool:
        """Whether a finding refuses the plan."""
        return bool(self.refusals)

    @property
    def refusals(self) -> tuple[Finding, ...]:
        """The findings that refuse the plan."""
        return refusals(self.findings)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """The findings that do not refuse it."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.WARN)

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """What the bulk work reads, by partition.

        Raises:
            DataLossError: the plan is refused because its end is behind its start.
        """
        return self.start.span_to(self.end)

    def check(self) -> None:
        """Accept the plan or refuse it.

        Raises:
            RefusedError: a finding refuses it; the message holds all of them.
        """
        check(self.findings, f"The plan for {self.topology!r}")

    def as_dict(self) -> dict[str, Any]:
        """The plan as JSON values."""
        # Left out where there is nothing: a plan's id is a hash of this, and older plans know of no archive, for one.
        archived = {"archived": ranges_as_dict(self.archived)} if self.archived else {}
        versioned = {"versioned": self.versioned} if self.versioned else {}
        reconciled = {"reconciled": dict(self.reconciled)} if self.reconciled else {}
        chain: dict[str, Any] = {"bound": bindings_as_dict(self.bound)} if self.bound else {}
        if self.roots:
            chain["roots"] = {name: offsets.as_dict() for name, offsets in self.roots.items()}
        nested = ("request", "findings", "estimate", "archived", "versioned", "reconciled", "bound", "roots")
        return {
            **{name: value for name, value in vars(self).items() if name not in nested},
            **archived,
            **versioned,
            **reconciled,
            **chain,
            "start": self.start.as_dict(),
            "end": self.end.as_dict(),
            "origin": self.origin.as_dict(),
            "topic_ids": dict(self.topic_ids),
            "findings": [finding.as_dict() for finding in self.findings],
            "estimate": self.estimate.as_dict(),
            "created_at": self.created_at.isoformat(),
            "request": self.request.as_dict(),
        }

    def to_json(self) -> str:
        """The plan as canonical JSON."""
        return _canonical(self.as_dict())

    @classmethod
    def from_json(cls, text: str) -> ReplayPlan:
        """Read what :meth:`to_json` wrote.

        Raises:
            UsageError: the text is no plan, or was changed after it was made.
        """
        try:
            values = json.loads(text)
            vectors = {name: Offsets.from_json(values[name]) for name in ("start", "end", "origin")}
            names = {name: tuple(values[name]) for name in ("tables", "appends", "topics")}
            made = {
                "seed": Seed(values["seed"]),
                "stages": tuple(Stage(stage) for stage in values["stages"]),
                "findings": tuple(Finding.from_dict(found) for found in values["findings"]),
                "estimate": Estimate(**values["estimate"]),
                "created_at": datetime.fromisoformat(values["created_at"]),
                "request": ReplayRequest.from_dict(values["request"]),
                "archived": ranges_from_json(values.get("archived", {})),
                "versioned": tuple(values.get("versioned", ())),
                "bound": bindings_from_dict(values.get("bound", {})),
                "roots": {name: Offsets.from_json(found) for name, found in values.get("roots", {}).items()},
            }
            return cls(**{**values, **vectors, **names, **made})
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"This is no plan: {error!r}.") from error


def build_plan(request: ReplayRequest, facts: Facts, *, now: datetime) -> ReplayPlan:
    """Make a plan: resolve the start, freeze the end, gather all findings. Never raises because of a finding.

    Args:
        request: what was asked for.
        facts: what was found; for a start by time with ``first_records``, looked up
            for :func:`~kappa.replay.starts.start_time` of the same ``now``. Topics that are no source are left aside.
        now: when.
    """
    topology = facts.topology
    found = request_rules.replay_already_active(request.topology, facts.active)
    if topology is None:
        return _plan(request, facts, [*found, *request_rules.unknown_topology(request.topology, facts.known)], now)
    facts = replace(
        facts, log=_sources_only(facts.log, topology), archives=_archives(request, facts.archives, topology)
    )
    unreadable = [*request_rules.code_does_not_import(topology), *facts.chain.findings]
    if not unreadable:
        unreadable += log_rules.missing_topics((source.topic for source in topology.sources), facts.log.high)
    if unreadable:
        return _plan(request, facts, [*found, *unreadable], now)
    found += request_rules.unknown_thresholds(limits_of(request.thresholds), topology)
    found += _log_findings(topology, facts.log, facts.live, facts.spread)
    found += archive_rules.archive_of_another_topic(facts.archives, facts.log.topic_ids)
    found += archive_rules.archive_behind_log(facts.archives, facts.log.topic_ids, facts.log.low)
    # What an archive covers up to the log's beginning can be read as if retention had not removed it.
    low = first_readable(facts.log.low, facts.archives, facts.log.topic_ids)
    facts = replace(facts, log=replace(facts.log, low=low))
    resolved = resolve_start(request, facts, now)
    end = _end(request, facts)
    found += archive_rules.compacted_sources(
        facts.log.cleanup, resolved.start, end, facts.archives, facts.log.topic_ids
    )
    found += [*resolved.findings, *facts.step, *_chain_findings(request, facts, resolved)]
    found += request_rules.determinism_without_live_epoch(request.determinism, facts.live.epoch if facts.live else None)
    found += topic_rules.topics_taken(topology.versioned, facts.next_epoch, facts.taken)
    found += topic_rules.everything_sent(topology.reconciled, topology.shapes, facts.live)
    if request.resolved_seed is Seed.FROM_CHANGELOG:
        appended = [name for name, of in topology.versioned.items() if of in topology.appends]
        found += topic_rules.versioned_history_lost(appended, facts.next_epoch, resolved.seed_epoch)
    if resolved.start is not None:
        found += _vector_findings(request, resolved.start, end, facts)
        found += _effort_findings(request, resolved.start, end, facts, now)
    return _plan(request, facts, found, now, resolved=resolved, end=end)


def _sources_only(log: LogFacts, topology: TopologyFacts) -> LogFacts:
    topics = {source.topic for source in topology.sources}
    return LogFacts(
        low=log.low.only(topics),
        high=log.high.only(topics),
        stable=log.stable.only(topics),
        topic_ids={topic: value for topic, value in log.topic_ids.items() if topic in topics},
        cleanup={topic: value for topic, value in log.cleanup.items() if topic in topics},
        last_times={at: value for at, value in log.last_times.items() if at[0] in topics},
    )


def _archives(
    request: ReplayRequest, archives: Mapping[str, ArchiveFacts], topology: TopologyFacts
) -> dict[str, ArchiveFacts]:
    topics = {source.topic for source in topology.sources}
    return {topic: found for topic, found in archives.items() if request.archive and topic in topics}


def _log_findings(
    topology: TopologyFacts, log: LogFacts, live: LiveFacts | None, spread: tuple[str, ...]
) -> list[Finding]:
    found = log_rules.open_transactions(log.stable, log.high)
    if live is None:
        return found
    keeper = f"The live epoch {live.epoch}"
    keyed = [source.topic for source in topology.sources if source.keyed]
    return [
        *found,
        *log_rules.recreated_topics(live.topic_ids, log.topic_ids, keeper),
        *log_rules.partition_counts_changed(keyed, live.origin, log.high),
        *log_rules.vector_beyond_log(live.position.only(log.high.topics), log.high, keeper),
        *live_rules.reader_schema_changed(topology.shapes, live.shapes, live.epoch),
        *live_rules.group_moved(f"kappa.{topology.name}.e{live.epoch:04d}", live.group, live.position),
        *live_rules.order_across_cuts(
            keyed, live.origin, log.high, live.epoch, is_cut_by_arrival=live.is_cut_by_arrival, spread=spread
        ),
    ]


def _chain_findings(request: ReplayRequest, facts: Facts, resolved: Resolved) -> list[Finding]:
    """What speaks against reading own topics of other epochs from there."""
    chain, live = facts.chain, facts.live
    if not chain.bound:
        return []
    found = chain_rules.start_within_chain(request.start, chain.bound)
    keys = [(upstream.topology, upstream.epoch) for upstream in chain.upstreams]
    if live is not None and live.is_behind:
        found += chain_rules.upstream_behind(keys, live.epoch)
    if request.resolved_seed is Seed.FROM_SAVEPOINT and live is not None:
        found += chain_rules.seeded_from_another(live.upstreams, keys)
    is_lost = resolved.start is not None and chains.roots(chain, resolved.start) is None
    if is_lost and not refusals(found):
        found += chain_rules.upstream_behind(keys, live.epoch if live else None)
    return found


def _roots(facts: Facts, resolved: Resolved, start: Offsets) -> dict[str, Offsets]:
    if not facts.chain.bound or resolved.start is None:
        return {}
    begin = chains.roots(facts.chain, start) or Offsets()
    is_seeded = resolved.seed_epoch is not None and facts.live is not None and facts.live.root_origin is not None
    return {"start": begin, "origin": facts.live.root_origin if is_seeded else begin}  # type: ignore[union-attr,dict-item]  # is_seeded says so


def _end(request: ReplayRequest, facts: Facts) -> Offsets:
    if request.end is not None:
        # Not reduced to the sources: a topic that is none is a finding, not left out in silence.
        return every_partition(Offsets(), facts.log).merge(request.end)
    return every_partition(facts.live.position, facts.log) if facts.live else facts.log.stable


def _vector_findings(request: ReplayRequest, start: Offsets, end: Offsets, facts: Facts) -> list[Finding]:
    found = request_rules.start_after_end(start, end)
    if request.end is not None:
        found += log_rules.end_above_high_watermark(end, facts.log.high, facts.log.stable)
        found += request_rules.end_ahead_of_live(end, facts.live.position) if facts.live else []
    if request.resolved_seed is Seed.EMPTY:
        found += request_rules.partial_history(start)
    return found


def _effort_findings(
    request: ReplayRequest, start: Offsets, end: Offsets, facts: Facts, now: datetime
) -> list[Finding]:
    estimate = estimated(start, end, facts, is_seeded=request.resolved_seed is not Seed.EMPTY)
    # A first epoch does not replay: it goes live and reads on, so that no estimate of bulk work is one of it.
    is_firm = facts.live is not None and not estimate.rough
    seconds = estimate.seconds if is_firm else None
    slice_share = min(1.0, request.slice_records / max(1, estimate.offsets))
    return [
        *effort_rules.retention_overtakes(facts.retention, seconds, slice_share, now),
        *effort_rules.size_overtakes(facts.retention, seconds),
        *effort_rules.disk_too_small(None if estimate.rough else estimate.disk_bytes, facts.free_bytes, facts.lake),
        *effort_rules.fold_outlasts_tombstones(facts.fold),
    ]


def _plan(
    request: ReplayRequest,
    facts: Facts,
    found: list[Finding],
    now: datetime,
    *,
    resolved: Resolved | None = None,
    end: Offsets | None = None,
) -> ReplayPlan:
    topology = facts.topology or TopologyFacts(name=request.topology)
    resolved = resolved or Resolved(start=None)
    live = facts.live
    kept = relaxed(found, request.allow)
    start, end = (resolved.start, end or Offsets()) if resolved.start is not None else (Offsets(), Offsets())
    stages = FIRST_EPOCH if live is None else BESIDE_LIVE
    return ReplayPlan(
        topology=topology.name,
        topology_version=topology.version,
        code=topology.code,
        epoch=facts.next_epoch,
        live_epoch=live.epoch if live else None,
        live_seq=live.seq if live else None,
        start=start,
        end=end,
        origin=resolved.origin or start,
        topic_ids=facts.log.topic_ids,
        seed=request.resolved_seed,
        seed_epoch=resolved.seed_epoch,
        seed_seq=resolved.seed_seq,
        tables=topology.tables,
        appends=topology.appends,
        topics=topology.topics,
        versioned=tuple(topology.versioned),
        reconciled=dict(topology.reconciled),
        stages=() if refusals(kept) else stages,
        findings=kept,
        estimate=estimated(start, end, facts, is_seeded=request.resolved_seed is not Seed.EMPTY),
        bound=dict(facts.chain.bound),
        roots=_roots(facts, resolved, start),
        archived=from_archive(start, end, facts.archives, facts.log.topic_ids),
        created_at=now.astimezone(UTC),
        request=request,
    )


def _digest(plan: ReplayPlan) -> str:
    content = {name: value for name, value in plan.as_dict().items() if name not in ("id", "created_at")}
    return hashlib.sha256(_canonical(content).encode()).hexdigest()[:16]


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
