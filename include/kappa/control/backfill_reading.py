"""What a backfill reads again: from which commit of the live epoch on, and up to which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kappa.config import Config
from kappa.control.backfill_span import Member, Span, changed, edges_ms, span, time_of
from kappa.lake import code as code_store
from kappa.lake.epoch_record import EpochRecord
from kappa.lake.ledger_rows import LedgerRow
from kappa.lake.ledger_state import LedgerState
from kappa.offsets.notation import utc
from kappa.offsets.vector import OffsetRange, Offsets, ranges_end, ranges_start
from kappa.replay.findings import Finding
from kappa.replay.rules import backfill as backfill_rules
from kappa.topology import Topology, registry
from kappa.topology.event_time import shown

if TYPE_CHECKING:
    from kappa.control.backfill_plan import Backfill


@dataclass(frozen=True, kw_only=True)
class Reading:
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
    wanted: Backfill,
    epoch: EpochRecord,
    state: LedgerState,
    topology: Topology,
    members: Sequence[Member],
    ranges: Sequence[OffsetRange],
) -> tuple[Reading, list[Finding]]:
    """What is read so that the rows of all outputs are whole, and what speaks against it.

    Args:
        epoch: the live epoch.
        state: its ledger.
        topology: the code that it runs.
        members: outputs whose rows belong to the interval by a time of their own.
        ranges: offset ranges of the interval for the others; none where there are none.
    """
    found: list[Finding] = []
    firsts, lasts = [], []
    for member in members:
        one, more = _of_member(wanted, epoch, state, topology, member)
        found += more
        if one.since is not None and one.until is not None:
            firsts.append(one.since)
            lasts.append(one.until)
    start, end = ranges_start(tuple(ranges)), ranges_end(tuple(ranges))
    if ranges and topology.has_event_time:
        # Their rows may ask how far the partition had come: it is read on from a commit, which knows.
        early = next((row for row in reversed(state.commits) if _is_behind(row, start)), None)
        firsts += [early] if early is not None else []
    if not firsts:
        return Reading(start=start, end=end), found
    least = min(row.seq for row in firsts)
    is_bounded = all(member.is_bounded for member in members)
    since = next(
        row
        for row in reversed(state.commits)
        if row.seq == 0 or (row.seq <= least and (is_bounded or _has_state(epoch, state, row)))
    )
    for last in lasts:
        end = end.merge(ranges_end(last.ranges))
    if members and not found:
        until = max((row.seq for row in lasts), default=since.seq)
        ran = {row.code for row in state.commits if since.seq < row.seq <= until}
        found += _other_parameters(config, wanted, topology, members, sorted(ran - {wanted.code}))
    seed = "empty" if is_bounded or _is_empty(since) else "from-savepoint"
    return Reading(start=ranges_end(since.ranges).naming(end), end=end, since=since.seq, seed=seed), found


def _of_member(
    wanted: Backfill, epoch: EpochRecord, state: LedgerState, topology: Topology, member: Member
) -> tuple[Span, list[Finding]]:
    graces = {s.topic: s.grace_ms for s in topology.sources if s.topic in member.sources and s.grace_ms is not None}
    begin_ms, end_ms = edges_ms(wanted.begin, wanted.end)

    def may_begin(row: LedgerRow) -> bool:
        return member.is_bounded or _has_state(epoch, state, row)

    one = span(state.commits, graces, begin_ms, end_ms, member.reach_ms, may_begin=may_begin)
    found: list[Finding] = []
    if one.until is None:
        reached = "no time yet" if one.frontier_ms is None else shown(one.frontier_ms)
        needed = shown(end_ms + member.reach_ms)
        found += backfill_rules.still_open(member.name, utc(wanted.end), needed, reached)
    if one.since is None:
        since = utc(time_of(begin_ms - member.reach_ms))
        found += backfill_rules.state_is_gone(
            wanted.topology, member.name, utc(wanted.begin), since, is_bounded=member.is_bounded
        )
    return one, found


def _has_state(epoch: EpochRecord, state: LedgerState, row: LedgerRow) -> bool:
    """Whether rows can be made from the tables of a commit: those of earlier code hold other rows."""
    return _is_empty(row) or (not epoch.upgraded and state.is_readable(row.seq))


def _is_empty(row: LedgerRow) -> bool:
    return row.seq == 0 and row.detail["seed"] == "empty"


def _other_parameters(
    config: Config, wanted: Backfill, topology: Topology, members: Sequence[Member], codes: Iterable[str]
) -> list[Finding]:
    for code in codes:
        folder = code_store.extract(config.lake, code, config.home)
        before = registry.load_apart(folder / "topologies", wanted.topology)
        found = backfill_rules.other_parameters(wanted.topology, changed(before, topology, members))
        if found:
            return found
    return []


def _is_behind(row: LedgerRow, start: Offsets) -> bool:
    position = ranges_end(row.ranges)
    return all((position.get(*at) or 0) <= offset for at, offset in start.items())
