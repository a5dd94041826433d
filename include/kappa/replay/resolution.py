"""From a request to one frozen offset vector: where the plan begins and what the tables hold there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from kappa.offsets.vector import Offsets, TopicPartition
from kappa.replay.adoption import Adoption
from kappa.replay.facts import Facts, LiveFacts, LogFacts, MarkerFacts, SavepointFacts
from kappa.replay.findings import Finding
from kappa.replay.request import ReplayRequest, Seed
from kappa.replay.rules import adoption as adoption_rules
from kappa.replay.rules import log as log_rules
from kappa.replay.rules import request as request_rules
from kappa.replay.rules import start as start_rules
from kappa.replay.rules.seed import unlike_seed
from kappa.replay.starts import (
    ByDuration,
    FromMarker,
    FromSavepoint,
    ShiftBy,
    ToDatetime,
    ToEarliest,
    ToLatest,
    ToOffset,
)
from kappa.topology.shapes import tables_only


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """Where a plan begins.

    Attributes:
        start: next offset to read of every partition; ``None`` if the request names nothing that exists.
        origin: where the history in the tables begins: the start, or that of what they are seeded from.
        seed_epoch: epoch whose tables or changelog seed the new one; ``None`` if they start empty.
        seed_seq: the slice after which they are taken.
        findings: objections to it.
    """

    start: Offsets | None
    origin: Offsets | None = None
    seed_epoch: int | None = None
    seed_seq: int | None = None
    findings: tuple[Finding, ...] = ()


def resolve_start(request: ReplayRequest, facts: Facts, now: datetime) -> Resolved:
    """The start of a replay that is planned ``now``; never moved to a nearby offset."""
    match request.start:
        case ToOffset() | ToEarliest() if request.resolved_seed is Seed.FROM_TABLES:
            resolution = _from_tables(request, facts)
        case ToEarliest():
            resolution = _to_earliest(request, facts)
        case ToLatest():
            resolution = _to_latest(facts)
        case ToDatetime(at=at):
            resolution = _to_time(at, request, facts)
        case ByDuration(duration=duration):
            resolution = _to_time(now - duration, request, facts)
        case ShiftBy(by=by):
            resolution = _shift_by(by, facts)
        case ToOffset() as start:
            resolution = _to_offset(start, facts)
        case FromSavepoint() as start:
            resolution = _from_savepoint(start, request, facts)
        case FromMarker() as start:
            resolution = _from_marker(start, facts)
    return resolution


def _to_earliest(request: ReplayRequest, facts: Facts) -> Resolved:
    low = facts.log.low
    if facts.live is None or "partial-history" in request.allow:
        return Resolved(start=low, origin=low)
    # What the live epoch has read belongs to the history, even where retention has removed it since.
    origin = facts.live.origin
    start = Offsets.of(
        (at, min(first, origin.get(*at) or 0) if at[0] in origin.topics else first) for at, first in low.items()
    )
    lost = log_rules.start_below_low_watermark(start, low, is_allowable=True)
    return Resolved(start=start, origin=start, findings=tuple(lost))


def _to_latest(facts: Facts) -> Resolved:
    # Without a live epoch nothing was read yet: a first epoch begins with the records that arrive from now on.
    begin = frozen_position(facts)
    return Resolved(
        start=begin, origin=begin, findings=tuple(log_rules.start_below_low_watermark(begin, facts.log.low))
    )


def _to_time(at: datetime, request: ReplayRequest, facts: Facts) -> Resolved:
    if facts.first_records is None:
        raise ValueError("A start by time needs Facts.first_records, looked up for that time.")
    begin, offsets, findings = first_records_at(at, facts.first_records, facts.log.stable, facts.log.last_times)
    if begin is None:
        return Resolved(start=None, findings=tuple(findings))
    if "partial-history" not in request.allow:
        findings += log_rules.time_below_low_watermark(at, offsets, facts.log.low)
    return Resolved(start=begin, origin=begin, findings=tuple(findings))


def first_records_at(
    at: datetime,
    first_records: Mapping[TopicPartition, int | None],
    end: Offsets,
    last_times: Mapping[TopicPartition, datetime],
) -> tuple[Offsets | None, Offsets, list[Finding]]:
    """A vector by time: the start, None if no record is that late; the partitions that have such a record; findings."""
    looked_up = {where: first_records.get(where) for where in end}
    findings = request_rules.time_without_record(at, looked_up, last_times, end)
    offsets = Offsets.of((where, offset) for where, offset in looked_up.items() if offset is not None)
    return (end.merge(offsets) if len(offsets) else None), offsets, findings


def _shift_by(by: int, facts: Facts) -> Resolved:
    if facts.live is None:
        return Resolved(start=None, findings=tuple(start_rules.shift_without_live_epoch(by)))
    position = frozen_position(facts)
    if by > 0:  # ahead of the live epoch whatever the log holds: start-after-end refuses it
        ahead = Offsets.of((at, offset + by) for at, offset in position.items())
        return Resolved(start=ahead, origin=ahead)
    begin, findings = shifted(position, by, facts.log.low, facts.log.stable)
    return Resolved(start=begin, origin=begin, findings=tuple(findings))


def shifted(position: Offsets, by: int, low: Offsets, end: Offsets) -> tuple[Offsets | None, list[Finding]]:
    """A vector shifted by N offsets in every partition; None and findings if one of them would leave the log."""
    findings = start_rules.shift_outside_log(by, position, low, end)
    if findings:
        return None, findings
    return Offsets.of((at, offset + by) for at, offset in position.items()), []


def _to_offset(start: ToOffset, facts: Facts) -> Resolved:
    begin, findings = named_offsets(start, facts.log.high)
    findings += log_rules.start_below_low_watermark(begin, facts.log.low)
    findings += start_rules.start_above_log(begin, facts.log.high, facts.log.stable)
    return Resolved(start=begin, origin=begin, findings=tuple(findings))


def named_offsets(start: ToOffset, targets: Offsets) -> tuple[Offsets, list[Finding]]:
    """The named vector, for the partitions of ``targets``: each of them has to be named, and no other may be."""
    begin = Offsets.of((at, start.topics[at[0]]) for at in targets if at[0] in start.topics).merge(start.offsets)
    findings = start_rules.unknown_partitions(start, targets) + start_rules.start_lacks_partitions(begin, targets)
    return Offsets.of((at, offset) for at, offset in begin.items() if at in targets), findings


def adoption_of(request: ReplayRequest, live: LiveFacts | None) -> Adoption | None:
    """The tables of another job with which the history in a new epoch's tables begins."""
    if request.adoption is not None or live is None or request.resolved_seed is Seed.EMPTY:
        return request.adoption
    return live.adoption


def _from_tables(request: ReplayRequest, facts: Facts) -> Resolved:
    adoption = adoption_of(request, facts.live)
    if adoption is None or facts.topology is None:
        return Resolved(start=None, findings=tuple(adoption_rules.adoption_missing()))
    if request.adoption is not None:
        begin, findings = named_offsets(ToOffset(offsets=adoption.offsets), facts.log.high)
        findings += start_rules.start_above_log(begin, facts.log.high, facts.log.stable)
    else:  # sources change after an adoption; what has been added since is read from its beginning
        stored = adoption.offsets.only(facts.log.high.topics)
        findings = log_rules.vector_beyond_log(stored, facts.log.high, f"The adopted job ({adoption.job})")
        begin = begun_at(adoption.offsets, facts.log)
    findings += log_rules.start_below_low_watermark(begin, facts.log.low)
    if request.adoption is not None:
        findings = [adoption_rules.in_an_adoption(finding) for finding in findings]
    findings += adoption_rules.adoption_findings(
        adoption, facts.topology, facts.existing, is_first=request.adoption is not None
    )
    # Nobody says with which record the other job began: offset 0 makes a later to_earliest refuse, not forget.
    origin = every_partition(Offsets(), facts.log).merge(_added(adoption.offsets, facts.log))
    return Resolved(start=begin, origin=origin, findings=tuple(findings))


def _from_savepoint(start: FromSavepoint, request: ReplayRequest, facts: Facts) -> Resolved:
    live, topology = facts.live, facts.topology
    savepoints = tuple(sorted(live.savepoints, key=lambda item: item.seq)) if live else ()
    named = facts.named_savepoints.get(start.name) if start.name is not None else None
    if start.name is not None and (
        problems := request_rules.unusable_savepoint_name(
            start.name, named, facts.named_savepoints, live.epoch if live else None
        )
    ):
        return Resolved(start=None, findings=tuple(problems))
    savepoint = _savepoint(FromSavepoint(seq=named.seq) if named else start, savepoints)
    if savepoint is None or live is None or topology is None:
        seq = named.seq if named else start.seq
        place = f"at seq {seq}" if start.at is None else f"of {start.at.isoformat()} or earlier"
        return Resolved(start=None, findings=tuple(request_rules.unknown_savepoint(place, savepoints)))
    keeper = f"The savepoint at seq {savepoint.seq} of epoch {live.epoch}"
    problems = log_rules.vector_beyond_log(savepoint.offsets.only(facts.log.high.topics), facts.log.high, keeper)
    begin = begun_at(savepoint.offsets, facts.log)
    problems += log_rules.start_below_low_watermark(begin, facts.log.low)
    if request.resolved_seed is Seed.EMPTY:
        return Resolved(start=begin, origin=begin, findings=tuple(problems))
    problems += unlike_seed(topology.shapes, savepoint.shapes, keeper)
    origin = begun_at(live.origin, facts.log)
    return Resolved(start=begin, origin=origin, seed_epoch=live.epoch, seed_seq=savepoint.seq, findings=tuple(problems))


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
        *unlike_seed(tables_only(facts.topology.shapes), marker.shapes, f"The changelog of epoch {marker.epoch}"),
        *request_rules.append_outputs_lost(facts.topology.appends),
        *request_rules.growing_changelog(marker),
    ]
    if facts.live is None:
        problems += request_rules.other_lakes_epoch(marker)
        problems += request_rules.marker_behind_last_sender(marker, facts.markers)
    begin = begun_at(marker.position, facts.log)
    problems += log_rules.start_below_low_watermark(begin, facts.log.low)
    origin = facts.live.origin if facts.live and facts.live.epoch == marker.epoch else Offsets()
    return Resolved(
        start=begin,
        # A marker does not say where its epoch began: offset 0 makes a later to_earliest refuse, not forget.
        origin=every_partition(origin, facts.log).merge(_added(marker.position, facts.log)),
        seed_epoch=marker.epoch,
        seed_seq=marker.seq,
        findings=tuple(problems),
    )


def _marker(start: FromMarker, markers: tuple[MarkerFacts, ...]) -> MarkerFacts | None:
    if start.epoch is not None:
        return next((marker for marker in markers if marker.epoch == start.epoch), None)
    return request_rules.last_sender(markers)


def every_partition(offsets: Offsets, log: LogFacts) -> Offsets:
    """The vector with every partition of the sources, later ones at 0, and no other topic."""
    return offsets.only(log.high.topics).naming(log.high)


def frozen_position(facts: Facts) -> Offsets:
    """Where the live epoch stands; where it reads nothing, the end of what there is now.

    A topic that only the new epoch reads has no commit of the live one. What it holds now is history all the same.
    """
    if facts.live is None:
        return facts.log.stable
    position = facts.live.position
    return every_partition(position, facts.log).merge(of_others(facts.log.stable, position))


def begun_at(offsets: Offsets, log: LogFacts) -> Offsets:
    """The vector with every partition of the sources: topics that it does not name begin with their first record."""
    return every_partition(offsets, log).merge(_added(offsets, log))


def _added(offsets: Offsets, log: LogFacts) -> Offsets:
    """The beginning of sources that the vector does not name."""
    return of_others(log.low, offsets)


def of_others(offsets: Offsets, named: Offsets) -> Offsets:
    """The offsets of topics that another vector does not name."""
    return offsets.only(set(offsets.topics) - set(named.topics))
