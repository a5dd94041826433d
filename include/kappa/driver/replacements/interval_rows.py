"""The rows of an interval: by the records that they come from, or by a column that holds a time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from kappa.offsets.floors import Floors
from kappa.offsets.vector import OffsetRange
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.merge_on_read import frame_at
from kappa.slices.run import EpochRun
from kappa.topology import Slice
from kappa.topology.ddl import literal, quote, quoted
from kappa.topology.readers import least_frontier
from kappa.topology.times.event_time import Frontier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kappa.topology import Append, Table, Topology

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Whose SQL a condition is.
Engine = Literal["spark", "deltalake"]


def rows_from(ranges: Iterable[OffsetRange]) -> str:
    """SQL condition of the rows that come from records of these ranges."""
    parts = [
        f"(_topic = {literal(item.topic)} AND _partition = {item.partition} AND _offset >= {item.start} AND _offset < "
        f"{item.end})"
        for item in ranges
        if not item.is_empty
    ]
    return " OR ".join(parts) or "FALSE"


def belongs(
    append: Append,
    time: str | None,
    begin: datetime,
    end: datetime,
    ranges: Iterable[OffsetRange],
    *,
    engine: Engine = "spark",
) -> str:
    """SQL condition of the rows of an output that belong to an interval.

    Args:
        append: the output.
        time: the column by which they belong to it; None where they do by the records that they come from.
        begin: beginning of the interval.
        end: its end, exclusive.
        ranges: offset ranges of the interval.
        engine: reads the condition.
    """
    if time is None:
        return rows_from(ranges)
    kind = next(column.type for column in append.columns if column.name == time)
    first, last = (_instant(at, kind, engine) for at in (begin, end))
    return f"{quote(time)} >= {first} AND {quote(time)} < {last}"


def closed_windows(
    run: EpochRun, committed: LedgerRow, table: Table, folder: str, begin: datetime, end: datetime
) -> tuple[DataFrame, DataFrame]:
    """Rows of an interval in a table that keeps closed windows: as the epoch has them, and as they were computed.

    Rows whose time to stay is over by now are left out: the epoch has none of them.

    Args:
        committed: the epoch's last commit.
        table: the table.
        folder: name of the folder in which they were computed.
        begin: beginning of the interval.
        end: its end, exclusive.
    """
    assert table.reach is not None and table.reach.column is not None
    recomputed_paths = run.paths.recomputed(folder)
    row, session = Ledger(recomputed_paths.ledger).begun().committed, run.engines.session
    column = quote(table.reach.column)
    first, last = (_instant(at, "TIMESTAMP", "spark") for at in (begin, end))
    frontier = frontier_of_table(run.topology, table, committed, run.ledger.state().floored)
    is_gone = frontier.has_reached("window_end", by_ms=table.reach.keep_ms or 0)
    where = f"{column} >= {first} AND {column} < {last} AND is_closed AND NOT {is_gone}"
    names = quoted(c.name for c in table.columns)
    place = f"tables/{table.name}"
    frames = (frame_at(session, paths, at, place) for paths, at in ((run.paths, committed), (recomputed_paths, row)))
    live, again = (frame.where(where).select(*names) for frame in frames)
    return live, again


def frontier_of_table(topology: Topology, table: Table, committed: LedgerRow, floors: Floors) -> Frontier:
    """The frontier by which the operator of a table closes and removes its rows: that of its own input.

    Args:
        topology: its topology.
        table: a table of windows.
        committed: a commit.
        floors: least frontiers up to there.
    """
    graces = {source.topic: source.grace_ms for source in topology.sources if source.grace_ms is not None}
    frontiers = {topic: committed.frontier({topic: grace}, floors) for topic, grace in graces.items()}
    slice = Slice(seq=committed.seq, records={}, tables={}, frontiers=frontiers)
    operator = next(one for one in topology.operators if table.name in {own.name for own in one.tables})
    return least_frontier([operator], slice)


def _instant(at: datetime, kind: str, engine: Engine) -> str:
    """SQL of a time, in the type of a column; a number of milliseconds is rounded up.

    The engine of ``deltalake`` takes a text or a literal of SQL for nanoseconds, which has no room for most years and,
    as it is of another precision than the column, leaves out no file.
    """
    if kind != "TIMESTAMP":
        return f"{-((_EPOCH - at) // timedelta(milliseconds=1))}L"
    if engine == "spark":
        return f"'{at.astimezone(UTC).isoformat(sep=' ')}'"
    return f"arrow_cast({(at - _EPOCH) // timedelta(microseconds=1)}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
