"""From what was asked to one frozen offset vector: where the plan begins and what the tables hold there."""

from __future__ import annotations

from dataclasses import dataclass

from kappa.replay import log_rules, request_rules
from kappa.replay.facts import Facts, LogFacts, MarkerFacts, SavepointFacts
from kappa.replay.findings import Finding
from kappa.replay.offsets import Offsets
from kappa.replay.request import FromMarker, FromSavepoint, ReplayRequest, Seed, ToDatetime


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """Where a plan begins.

    Attributes:
        start: next offset to read of every partition; ``None`` if the request names nothing that exists.
        origin: where the history in the tables begins: the start, or that of what they are seeded from.
        seed_epoch: epoch whose tables or changelog seed the new one; ``None`` if they start empty.
        seed_seq: the slice after which they are taken.
        findings: what speaks against it.
    """

    start: Offsets | None
    origin: Offsets | None = None
    seed_epoch: int | None = None
    seed_seq: int | None = None
    findings: tuple[Finding, ...] = ()


def resolve_start(request: ReplayRequest, facts: Facts) -> Resolved:
    """The start of a replay; never moved to what is merely near."""
    start = request.start
    if isinstance(start, FromSavepoint):
        return _from_savepoint(start, request, facts)
    if isinstance(start, FromMarker):
        return _from_marker(start, facts)
    if isinstance(start, ToDatetime):
        return _to_datetime(start, request, facts)
    return _to_earliest(request, facts)


def _to_earliest(request: ReplayRequest, facts: Facts) -> Resolved:
    low = facts.log.low
    if facts.live is None or "partial-history" in request.allow:
        return Resolved(start=low, origin=low)
    # What the live epoch has read belongs to the history, also where retention has removed it since.
    origin = facts.live.origin
    start = Offsets.of(
        (at, min(first, origin.get(*at) or 0) if at[0] in origin.topics else first) for at, first in low.items()
    )
    lost = log_rules.start_below_low_watermark(start, low, is_allowable=True)
    return Resolved(start=start, origin=start, findings=tuple(lost))


def _to_datetime(start: ToDatetime, request: ReplayRequest, facts: Facts) -> Resolved:
    if facts.first_records is None:
        raise ValueError("A start by time needs Facts.first_records, looked up for that time.")
    stable = facts.log.stable
    first_records = {at: facts.first_records.get(at) for at in stable}
    found = request_rules.time_without_record(start.at, first_records, facts.log.last_times, stable)
    if all(offset is None for offset in first_records.values()):
        return Resolved(start=None, findings=tuple(found))
    known = [(at, offset) for at, offset in first_records.items() if offset is not None]
    begin = Offsets.of((at, stable[at] if offset is None else offset) for at, offset in first_records.items())
    if "partial-history" not in request.allow:
        found += request_rules.time_below_low_watermark(start.at, Offsets.of(known), facts.log.low)
    return Resolved(start=begin, origin=begin, findings=tuple(found))


def _from_savepoint(start: FromSavepoint, request: ReplayRequest, facts: Facts) -> Resolved:
    live, topology = facts.live, facts.topology
    savepoints = tuple(sorted(live.savepoints, key=lambda savepoint: savepoint.seq)) if live else ()
    found = _savepoint(start, savepoints)
    if found is None or live is None or topology is None:
        wanted = f"at seq {start.seq}" if start.at is None else f"of {start.at.isoformat()} or earlier"
        return Resolved(start=None, findings=tuple(request_rules.unknown_savepoint(wanted, savepoints)))
    keeper = f"The savepoint at seq {found.seq} of epoch {live.epoch}"
    problems = log_rules.vector_beyond_log(found.offsets.only(facts.log.high.topics), facts.log.high, keeper)
    begin = every_partition(found.offsets, facts.log)
    problems += log_rules.start_below_low_watermark(begin, facts.log.low)
    if request.resolved_seed is Seed.EMPTY:
        return Resolved(start=begin, origin=begin, findings=tuple(problems))
    problems += request_rules.seed_lacks_tables(topology.tables, found.tables, keeper)
    origin = every_partition(live.origin, facts.log)
    return Resolved(start=begin, origin=origin, seed_epoch=live.epoch, seed_seq=found.seq, findings=tuple(problems))


def _savepoint(start: FromSavepoint, savepoints: tuple[SavepointFacts, ...]) -> SavepointFacts | None:
    at = start.at
    fitting = [s for s in savepoints if (s.seq == start.seq if at is None else s.finished_at <= at)]
    return fitting[-1] if fitting else None


def _from_marker(start: FromMarker, facts: Facts) -> Resolved:
    marker = _marker(start, facts.markers)
    if marker is None or facts.topology is None:
        return Resolved(start=None, findings=tuple(request_rules.unknown_epoch(start.epoch, facts.markers)))
    keeper = f"The last marker of epoch {marker.epoch}"
    problems = [
        *log_rules.vector_beyond_log(marker.position.only(facts.log.high.topics), facts.log.high, keeper),
        *log_rules.recreated_topics(marker.topic_ids, facts.log.topic_ids, keeper),
        *request_rules.seed_lacks_tables(
            facts.topology.tables, marker.tables, f"The changelog of epoch {marker.epoch}"
        ),
        *request_rules.append_outputs_lost(facts.topology.appends),
    ]
    if facts.live is None:
        problems += request_rules.marker_behind_last_sender(marker, facts.markers)
    begin = every_partition(marker.position, facts.log)
    problems += log_rules.start_below_low_watermark(begin, facts.log.low)
    known = facts.live.origin if facts.live and facts.live.epoch == marker.epoch else Offsets()
    return Resolved(
        start=begin,
        # A marker does not say where its epoch began: offset 0 makes a later to_earliest refuse, not forget.
        origin=every_partition(known, facts.log),
        seed_epoch=marker.epoch,
        seed_seq=marker.seq,
        findings=tuple(problems),
    )


def _marker(start: FromMarker, markers: tuple[MarkerFacts, ...]) -> MarkerFacts | None:
    if start.epoch is not None:
        return next((marker for marker in markers if marker.epoch == start.epoch), None)
    return request_rules.last_sender(markers)


def every_partition(offsets: Offsets, log: LogFacts) -> Offsets:
    """The vector with every partition of the sources named, one that appeared later at 0, and no other topic."""
    return Offsets.of((at, 0) for at in log.high).merge(offsets.only(log.high.topics))
