"""A plan, made from a request and facts. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from kappa.offsets import set_asides
from kappa.offsets.set_asides import SetAsides
from kappa.offsets.vector import Offsets
from kappa.replay import chains
from kappa.replay.catalogue import relaxed
from kappa.replay.estimates import estimated
from kappa.replay.facts import Facts, TopologyFacts
from kappa.replay.findings import Finding, refusals
from kappa.replay.plan import BESIDE_LIVE, FIRST_EPOCH, ReplayPlan
from kappa.replay.request import ReplayRequest, Seed
from kappa.replay.resolution import Resolved, adoption_of
from kappa.replay.rules import adoption as adoption_rules
from kappa.replay.rules import archive as archive_rules
from kappa.replay.rules import chain as chain_rules
from kappa.replay.rules import effort as effort_rules
from kappa.replay.rules import live as live_rules
from kappa.replay.rules import log as log_rules
from kappa.replay.rules import needed as needed_rules
from kappa.replay.rules import output as output_rules
from kappa.replay.rules import request as request_rules
from kappa.replay.rules import set_aside as aside_rules
from kappa.replay.rules import topic as topic_rules
from kappa.replay.span import ReplaySpan, of_sources, resolve_span, unreadable, with_archives
from kappa.topology.thresholds import limits_of


def build_plan(request: ReplayRequest, facts: Facts, *, now: datetime) -> ReplayPlan:
    """Make a plan: resolve the start, freeze the end, gather all findings. Never raises because of a finding.

    Args:
        request: the request.
        facts: the facts; for a start by time with ``first_records``, looked up for
            :func:`~kappa.replay.starts.start_time` of the same ``now``. Topics that are not sources are ignored.
        now: the time of planning.
    """
    topology = facts.topology
    findings = request_rules.replay_already_active(request.topology, facts.active)
    if topology is None:
        return _plan(
            request, facts, [*findings, *request_rules.unknown_topology(request.topology, facts.topologies)], now
        )
    facts = of_sources(request, facts, topology)
    if missing := unreadable(topology, facts):
        return _plan(request, facts, [*findings, *missing], now)
    findings += request_rules.mask_key_missing(topology)
    findings += request_rules.library_unversioned(facts.unversioned)
    findings += output_rules.schema_findings(topology)
    findings += request_rules.unknown_thresholds(limits_of(request.thresholds), topology)
    findings += log_rules.open_transactions(facts.log.stable, facts.log.high)
    findings += log_rules.future_timestamps(topology, facts.log.future_ms)
    findings += log_rules.times_in_seconds(topology, facts.in_seconds)
    findings += live_rules.live_findings(topology, facts.log, facts.live) if facts.live else []
    if facts.live and request.resolved_seed is not Seed.FROM_CHANGELOG:
        findings += live_rules.wall_clock_time(topology, facts.live.epoch)
    if facts.live and request.resolved_seed is Seed.EMPTY:
        findings += live_rules.releases_lost(topology, facts.live)
        findings += aside_rules.set_asides_lost(topology.name, facts.live)
        findings += adoption_rules.adopted_rows_left_out(facts.live.adoption)
    findings += archive_rules.archive_findings(facts.archives, facts.log)
    facts = with_archives(facts)
    span = resolve_span(request, facts, now)
    resolved, end = span.resolved, span.wanted_end
    findings += archive_rules.compacted_sources(
        facts.log.cleanup, resolved.start, end, facts.archives, facts.log.topic_ids
    )
    findings += [*resolved.findings, *facts.step]
    findings += aside_rules.bring_in_findings(request.bring_in, facts, span.start)
    if request.resolved_seed is Seed.FROM_CHANGELOG:
        of = next((marker for marker in facts.markers if marker.epoch == resolved.seed_epoch), None)
        findings += aside_rules.set_asides_unnamed(topology.name, of)
    is_seeded = request.resolved_seed is Seed.FROM_SAVEPOINT
    findings += chain_rules.chain_findings(facts.chain, facts.live, request.start, resolved.start, is_seeded=is_seeded)
    findings += request_rules.determinism_without_live_epoch(
        request.determinism, facts.live.epoch if facts.live else None
    )
    findings += topic_rules.topic_findings(topology, facts)
    findings += output_rules.output_findings(topology.outputs, facts.log.outputs, facts.log.largest)
    findings += output_rules.paths_taken(topology.name, facts.occupied)
    findings += needed_rules.needed_findings(topology, facts)
    live_cuts = request_rules.live_cuts_unknown(facts.live, resolved.start, is_chained=bool(facts.chain.bound))
    if request.cuts == "live":
        findings += live_cuts
    elif facts.live:
        keyed = [source.topic for source in topology.sources if source.keyed]
        findings += live_rules.order_across_cuts(
            keyed,
            facts.live.origin,
            facts.log.high,
            facts.live.epoch,
            is_cut_by_arrival=facts.live.is_cut_by_arrival,
            spread=facts.spread,
            has_live_cuts=not live_cuts,
        )
    if request.resolved_seed is Seed.FROM_CHANGELOG:
        appended = [name for name, of in topology.versioned.items() if of in topology.appends]
        findings += topic_rules.versioned_history_lost(appended, facts.next_epoch, resolved.seed_epoch)
    if resolved.start is not None:
        findings += _vector_findings(request, resolved.start, end, facts)
        estimate = estimated(resolved.start, end, facts, is_seeded=request.resolved_seed is not Seed.EMPTY)
        findings += effort_rules.effort_findings(facts, estimate, request.slice_records, now)
    return _plan(request, facts, findings, now, span)


def _roots(facts: Facts, resolved: Resolved, start: Offsets) -> dict[str, Offsets]:
    if not facts.chain.bound or resolved.start is None:
        return {}
    begin = chains.roots(facts.chain, start) or Offsets()
    is_seeded = resolved.seed_epoch is not None and facts.live is not None and facts.live.root_origin is not None
    return {"start": begin, "origin": facts.live.root_origin if is_seeded else begin}  # type: ignore[union-attr,dict-item]  # is_seeded says so


def _asides(request: ReplayRequest, facts: Facts, start: Offsets, end: Offsets) -> tuple[SetAsides, SetAsides]:
    """Records of the span that the live epoch set aside: those that the replay computes, and those that it leaves out
    too.
    """
    if facts.live is None or not end.dominates(start):
        return (), ()
    of_topics = set_asides.of_topics(facts.live.set_aside, facts.log.topic_ids)
    read = set_asides.within(of_topics, start.span_to(end))
    brought_in = aside_rules.brought_in(request.bring_in, read)
    return brought_in, set_asides.without(read, brought_in)


def _vector_findings(request: ReplayRequest, start: Offsets, end: Offsets, facts: Facts) -> list[Finding]:
    findings = request_rules.start_after_end(start, end)
    if request.end is not None:
        findings += log_rules.end_above_high_watermark(end, facts.log.high, facts.log.stable)
        findings += request_rules.end_ahead_of_live(end, facts.live.position) if facts.live else []
    if request.resolved_seed is Seed.EMPTY:
        findings += request_rules.partial_history(start)
    return findings


def _plan(
    request: ReplayRequest, facts: Facts, findings: list[Finding], now: datetime, span: ReplaySpan | None = None
) -> ReplayPlan:
    topology = facts.topology or TopologyFacts(name=request.topology)
    span = span or ReplaySpan(resolved=Resolved(start=None), wanted_end=Offsets(), archived=())
    resolved, start, end = span.resolved, span.start, span.end
    live = facts.live
    relaxed_findings = relaxed(findings, request.allow)
    brought_in, set_aside = _asides(request, facts, start, end)
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
        sent_forms=dict(topology.sent_forms),
        stages=() if refusals(relaxed_findings) else stages,
        findings=relaxed_findings,
        estimate=estimated(start, end, facts, is_seeded=request.resolved_seed is not Seed.EMPTY),
        bound=dict(facts.chain.bound),
        roots=_roots(facts, resolved, start),
        archived=span.archived,
        set_aside=set_aside,
        brought_in=brought_in,
        adoption=adoption_of(request, facts.live),
        created_at=now.astimezone(UTC),
        request=request,
    )
