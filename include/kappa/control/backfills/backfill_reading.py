"""The input of a backfill: the commits of the live epoch between which it reads again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kappa.config import Config
from kappa.control.backfills.backfill_span import Edges, SpannedMember, changed, edges, edges_ms, span
from kappa.offsets.notation import utc
from kappa.offsets.vector import OffsetRange, Offsets, ranges_end, ranges_start
from kappa.record import code as code_store
from kappa.record.epoch_record import EpochRecord
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import LedgerState
from kappa.record.past_commits import PastCommits
from kappa.replay.findings import Finding
from kappa.replay.rules import backfill as backfill_rules
from kappa.topology import Topology, registry
from kappa.topology.times.event_time import Frontier, shown

if TYPE_CHECKING:
    from kappa.control.backfills.proposal import Backfill


@dataclass(frozen=True, kw_only=True)
class IntervalReading:
    """What is read again.

    Attributes:
        start: where it begins.
        end: where it ends.
        since: the commit whose times it goes on with; None where it begins with none.
        seed: what the tables begin with.
    """

    start: Offsets
    end: Offsets
    since: int | None = None
    seed: str = "empty"


def spanned(
    config: Config,
    backfill: Backfill,
    epoch: EpochRecord,
    state: LedgerState,
    topology: Topology,
    members: Sequence[SpannedMember],
    ranges: Sequence[OffsetRange],
    past: Iterable[PastCommits] = (),
) -> tuple[IntervalReading, list[Finding]]:
    """The part of the log to read so that the rows of all outputs are whole, and objections to it.

    Args:
        epoch: the live epoch.
        state: its ledger.
        topology: the code that it runs.
        members: outputs whose rows belong to the interval by a time of their own.
        ranges: offset ranges of the interval for the others; none where there are none.
        past: the commits of the ledger that were rolled up, the newest first.
    """
    findings: list[Finding] = []
    all_edges = []
    begin_ms, end_ms = edges_ms(backfill.begin, backfill.end)
    for member in members:
        graces = {s.topic: s.grace_ms for s in topology.sources if s.topic in member.sources and s.grace_ms is not None}
        all_edges.append(edges(graces, begin_ms, end_ms, member.reach_ms))
        findings += _about_member(backfill, epoch, state, member, all_edges[-1], state.commits[-1].frontier(graces))
    start, end = ranges_start(tuple(ranges)), ranges_end(tuple(ranges))
    if ranges and topology.has_event_time:
        # Their rows may ask how far the partition had come: it is read on from a commit, which knows.
        all_edges.append(Edges(is_early=lambda row: _is_behind(row, start), is_done=lambda _: True))
    if not all_edges or findings:
        return IntervalReading(start=start, end=end), findings

    def may_begin(row: LedgerRow) -> bool:
        return _has_state(epoch, state, row)

    is_bounded = all(member.is_bounded for member in members)
    rolled_up_to = -1 if state.rolled is None else int(state.rolled.detail["seq"])
    needed = None if is_bounded else may_begin
    one = span(state.commits, all_edges, past=past, rolled_up_to=rolled_up_to, may_begin=needed)
    since = one.since or state.commits[0]
    if members and one.until is not None:
        # Of each partition the later end: records of the interval may lie after the commit that makes windows whole.
        reached = ranges_end(one.until.ranges)
        end = end.merge(Offsets.of((at, max(offset, end.get(*at) or 0)) for at, offset in reached.items()))
        ran = codes_between(state, since.seq, one.until.seq)
        findings += _other_parameters(config, backfill, topology, members, sorted(ran - {backfill.code}))
    seed = "empty" if is_bounded or _is_empty(since) else "from-savepoint"
    return IntervalReading(start=ranges_end(since.ranges).naming(end), end=end, since=since.seq, seed=seed), findings


def codes_between(state: LedgerState, after: int, upto: int) -> set[str]:
    """Code hashes by which slices after one and up to another were computed, rolled up or not.

    Args:
        state: the epoch's ledger, in which upgrades stay rows.
        after: a slice.
        upto: a later one.
    """
    begins = [(0, state.commits[0].code), *((row.seq, row.code) for row in state.upgrades)]
    ends = [*(seq for seq, _ in begins[1:]), upto]
    ran = {code for (begin, code), end in zip(begins, ends, strict=True) if begin < upto and max(begin, after) < end}
    return ran | {row.code for row in state.commits if after < row.seq <= upto}


def _about_member(
    backfill: Backfill,
    epoch: EpochRecord,
    state: LedgerState,
    member: SpannedMember,
    own_edges: Edges,
    frontier: Frontier,
) -> list[Finding]:
    """Objections to an output: rows that are not final, or no commit to begin with."""
    begin_ms, end_ms = edges_ms(backfill.begin, backfill.end)
    findings: list[Finding] = []
    if not own_edges.is_done(state.commits[-1]):
        reached = "no time yet" if frontier.ms is None else shown(frontier.ms)
        needed = shown(end_ms + member.reach_ms)
        findings += backfill_rules.still_open(member.name, utc(backfill.end), needed, reached)
    beginnings = state.commits[:1] if member.is_bounded else [r for r in state.commits if _has_state(epoch, state, r)]
    if not any(map(own_edges.is_early, beginnings)):
        since = shown(begin_ms - member.reach_ms)
        findings += backfill_rules.state_is_gone(
            backfill.topology, member.name, utc(backfill.begin), since, is_bounded=member.is_bounded
        )
    return findings


def _has_state(epoch: EpochRecord, state: LedgerState, row: LedgerRow) -> bool:
    """Whether rows can be made from the tables of a commit: those of earlier code hold other rows."""
    return _is_empty(row) or (not epoch.upgraded and state.is_readable(row.seq))


def _is_empty(row: LedgerRow) -> bool:
    return row.seq == 0 and row.detail["seed"] == "empty"


def _other_parameters(
    config: Config, backfill: Backfill, topology: Topology, members: Sequence[SpannedMember], codes: Iterable[str]
) -> list[Finding]:
    for code in codes:
        folder = code_store.extract(config.lake, code, config.home)
        before = registry.load_stored(folder / "topologies", backfill.topology)
        findings = backfill_rules.other_parameters(backfill.topology, changed(before, topology, members))
        if findings:
            return findings
    return []


def _is_behind(row: LedgerRow, start: Offsets) -> bool:
    position = ranges_end(row.ranges)
    return all((position.get(*at) or 0) <= offset for at, offset in start.items())
