"""The part of the log that makes an interval of event time whole: from one commit of the live epoch to another.

Stream time never goes back. All records of a time and of later ones follow a commit at which every partition is before
that time. Once the frontier has passed a time, no operator takes a record of it any more. Everything that rows of an
interval are made from lies between the two, late records included.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kappa.record.ledger_rows import LedgerRow
from kappa.record.past_commits import Condition, PastCommits, newest_of, oldest_of
from kappa.topology import Append, Table, Topology
from kappa.topology.members.source import READING
from kappa.topology.readers import may_go_on
from kappa.topology.times.grid import Grid

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class SpannedMember:
    """An append output, or a table of windows, whose rows belong to an interval by a time of their own.

    Attributes:
        time: the column of that time.
        reach_ms: how far in event time the records lie that a row is made from.
        grids: where the windows begin that its rows are of.
        sources: topics, as the step knows them, whose records it is made from.
        tables: the state that it comes of.
        is_bounded: whether it can be computed without the state from before the interval.
    """

    name: str
    time: str
    reach_ms: int
    grids: tuple[Grid, ...]
    sources: tuple[str, ...]
    tables: tuple[str, ...]
    is_bounded: bool


@dataclass(frozen=True, kw_only=True)
class IntervalSpan:
    """The part of the log that makes an interval whole.

    Attributes:
        since: the commit after which it begins; None where the epoch has none that is early enough.
        until: the commit with which it ends; None where the epoch has not come so far.
    """

    since: LedgerRow | None
    until: LedgerRow | None


@dataclass(frozen=True, kw_only=True)
class Edges:
    """The commits between which everything lies that rows of an interval are made from.

    Attributes:
        is_early: whether reading may begin after a commit: of early ones, and of none after.
        is_done: whether it may end with one: of late ones, and of none before.
    """

    is_early: Condition
    is_done: Condition


def windowed_tables(topology: Topology) -> list[Table]:
    """Tables that keep the rows of closed windows."""
    return [table for table in topology.tables if table.reach is not None and table.reach.keep_ms is not None]


def member_of(
    topology: Topology, of: Append | Table, tables: Sequence[Table], sources: Sequence[str]
) -> SpannedMember | None:
    """An output that comes of the state of operators; None where no column says to which interval a row belongs.

    Args:
        topology: its topology.
        of: the output, or a table of windows.
        tables: the state, of which each has a reach.
        sources: topics whose records it is made from.
    """
    # Two tables of one join are one operator.
    reaches = {(table.made_by, table.reach) for table in tables if table.reach is not None}
    names = {column.name: column.type for column in of.columns}
    own = {r.column for _, r in reaches if r.column is not None and names.get(r.column) == "TIMESTAMP"}
    time = of.time if isinstance(of, Append) else None
    if time is None and len(own) == 1:
        time = own.pop()
    if time is None:
        return None
    timed = {source.topic for source in topology.sources if source.has_event_time}
    return SpannedMember(
        name=of.name,
        time=time,
        reach_ms=sum(reach.ms for _, reach in reaches),
        grids=tuple(sorted({r.grid for _, r in reaches if r.grid is not None}, key=lambda grid: grid.text)),
        sources=tuple(topic for topic in sources if topic in timed),
        tables=tuple(table.name for table in tables),
        is_bounded=all(reach.is_bounded for _, reach in reaches),
    )


def edges(graces: Mapping[str, int], begin_ms: int, end_ms: int, reach_ms: int) -> Edges:
    """The part of the log to read so that the rows of an interval are whole.

    Args:
        graces: topic -> how late its records may be, milliseconds.
        begin_ms: beginning of the interval, epoch milliseconds.
        end_ms: its end, exclusive.
        reach_ms: how far in event time the records of a row lie from it.
    """
    return Edges(
        is_early=lambda row: _is_before(row, graces, begin_ms - reach_ms),
        is_done=lambda row: _has_passed(row, graces, end_ms + reach_ms),
    )


def span(
    commits: Sequence[LedgerRow],
    output_edges: Sequence[Edges],
    *,
    past: Iterable[PastCommits] = (),
    rolled_up_to: int = -1,
    may_begin: Condition | None = None,
) -> IntervalSpan:
    """The part of the log to read so that the rows of all outputs are whole.

    Args:
        commits: those of the live epoch that are rows, oldest first.
        output_edges: the edges that each output needs.
        past: those that were rolled up, the newest first; as many pieces are taken as are needed.
        rolled_up_to: the last slice that ``past`` tells of.
        may_begin: whether the state of a commit can be begun with; those of ``past`` have none. None where none is
            needed.
    """

    def is_early(row: LedgerRow) -> bool:
        return all(edges.is_early(row) for edges in output_edges)

    def is_done(row: LedgerRow) -> bool:
        return all(edges.is_done(row) for edges in output_edges)

    since = next((r for r in reversed(commits) if is_early(r) and (may_begin is None or may_begin(r))), None)
    until = next(filter(is_done, commits), None)
    if since is None and may_begin is not None:
        return IntervalSpan(since=None, until=until)
    older = iter(past)
    while since is None or since.seq < rolled_up_to:
        piece = next(older, None)
        if piece is None:
            break
        early, final = newest_of(piece, is_early) if may_begin is None else None, oldest_of(piece, is_done)
        since = max(filter(None, (since, early)), key=lambda row: row.seq, default=None)
        until = min(filter(None, (until, final)), key=lambda row: row.seq, default=None)
        rolled_up_to = piece.reaches_back_to
    return IntervalSpan(since=since, until=until)


def off_grid(at: datetime, grids: Iterable[Grid]) -> tuple[Grid, datetime, datetime] | None:
    """A grid on which a time does not lie, with the starts of windows before and after; None where it lies on all."""
    for grid in grids:
        before, after = grid.around(at)
        if before != at:
            return grid, before, after
    return None


def edges_ms(begin: datetime, end: datetime) -> tuple[int, int]:
    """An interval in whole epoch milliseconds that holds all of it."""
    return (begin - _EPOCH) // timedelta(milliseconds=1), -((_EPOCH - end) // timedelta(milliseconds=1))


def changed(before: Topology, after: Topology, members: Iterable[SpannedMember]) -> list[str]:
    """The parameters by which two versions of a topology give members other rows for the same records, in words."""
    changes: list[str] = []
    old = {source.topic: source for source in before.sources}
    for topic in sorted({topic for member in members for topic in member.sources}):
        new, was = next(s for s in after.sources if s.topic == topic), old.get(topic)
        for name in ("time", "grace", "ahead", "idle_after", *READING):
            if was is not None and getattr(was, name) != getattr(new, name):
                changes.append(f"{name} of source {topic!r} was {getattr(was, name)!r} and is {getattr(new, name)!r}")
    states = {table.name: table.made_by for table in before.tables}
    for table in sorted({table for member in members for table in member.tables}):
        made_by = after.table(table).made_by
        if not may_go_on(made_by, states.get(table, made_by)):
            changes.append(f"table {table!r} was the state of {states[table]} and is that of {made_by}")
    return changes


def _is_before(row: LedgerRow, graces: Mapping[str, int], ms: int) -> bool:
    return all(reached < ms for topic in graces for reached in row.stream_times.get(topic, {}).values())


def _has_passed(row: LedgerRow, graces: Mapping[str, int], ms: int) -> bool:
    reached = row.frontier(graces).ms
    return reached is not None and reached > ms
