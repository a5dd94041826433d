"""All topologies on one page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from markupsafe import Markup

from kappa.offsets.vector import ranges_end
from kappa_web.pages import charts, conditions, words
from kappa_web.pages.board import Board, BoardFacts, rates
from kappa_web.pages.conditions import Condition
from kappa_web.pages.lags import Lag

#: Number of slices in a chart: half an hour, one per second.
_SLICES = 1_800


@dataclass(frozen=True, kw_only=True)
class Row:
    """A topology.

    Attributes:
        owner: the team or person whom the code of its live epoch names, or of its candidate; empty for none.
        live: its live epoch.
        version: its author's name for the code of the live epoch.
        lag: offsets that the live epoch is behind; None if that is not known.
        rate: records per second in its last slices.
        committed: when its last slice was committed.
        candidate: the epoch that is being built, in a few words; empty if none.
        candidate_epoch: its number.
    """

    name: str
    owner: str
    state: Condition
    live: int | None
    version: str
    lag: int | None
    lag_chart: Markup
    rate: float | None
    rate_chart: Markup
    committed: datetime | None
    candidate: str
    candidate_epoch: int | None


def page(board: Board, caller: Any, now: datetime) -> dict[str, Any]:
    """What the page shows."""
    records = {name: record for name, record in board.lake.records().items() if caller.may_read(name)}
    epochs = [(name, record.live) for name, record in records.items() if record.live is not None]
    epochs += [(name, record.candidate.epoch) for name, record in records.items() if record.candidate is not None]
    if unread := board.unread(epochs):
        return {"unread": unread, "total": len(epochs)}
    live = {
        name: board.facts(record, record.live, is_read=True)
        for name, record in records.items()
        if record.live is not None
    }
    lag = board.lags.now(positions(live))
    rows, asks = [], []
    for name, record in records.items():
        candidate = board.facts(record, record.candidate.epoch, is_read=True) if record.candidate is not None else None
        rows.append(_row(board, name, live.get(name), candidate, lag, now))
        asks += [(name, *note) for note in conditions.attention(record, live.get(name), candidate)]
    kinds = [row.state.kind for row in rows]
    return {
        "unread": 0,
        "rows": rows,
        "asks": sorted(asks, key=lambda ask: (ask[1] != "bad", ask[0])),
        "lag": lag,
        "counts": [
            ("topologies", len(rows), ""),
            ("running", kinds.count("good"), "good"),
            ("with a replay", sum(bool(row.candidate) for row in rows), "busy"),
            ("in trouble", kinds.count("bad") + kinds.count("warn"), "bad"),
        ],
    }


def positions(live: dict[str, BoardFacts]) -> dict[str, Any]:
    """Topology -> what its live epoch reads next."""
    return {name: ranges_end(facts.committed.ranges) for name, facts in live.items() if facts.committed is not None}


def _row(
    board: Board, name: str, live: BoardFacts | None, candidate: BoardFacts | None, lag: Lag, now: datetime
) -> Row:
    behind = lag.offsets.get(name)
    committed = live.committed if live is not None else None
    return Row(
        name=name,
        owner=conditions.owner(live, candidate),
        state=conditions.of_topology(live, candidate),
        live=live.epoch.epoch if live is not None else None,
        version=live.epoch.version if live is not None else "",
        lag=behind,
        lag_chart=lag_chart(board, name, now),
        rate=live.rate if live is not None else None,
        rate_chart=rate_chart(live, now),
        committed=committed.at if committed is not None else None,
        candidate=conditions.progress(candidate) if candidate is not None else "",
        candidate_epoch=candidate.epoch.epoch if candidate is not None else None,
    )


def rate_chart(facts: BoardFacts | None, now: datetime) -> Markup:
    """Records per second in the last half hour, from the ledger."""
    values = rates(reversed(facts.state.commits[-_SLICES:]), now) if facts is not None else []
    most = max((value for value in values if value is not None), default=0.0)
    return charts.line(values, title=f"records per second in the last 30 minutes, at most {words.short(most)}")


def lag_chart(board: Board, name: str, now: datetime) -> Markup:
    """Lag in the last half hour, as far as it was measured."""
    values = board.lags.charted(name, now)
    most = max((value for value in values if value is not None), default=0.0)
    return charts.line(values, title=f"lag in the last 30 minutes, at most {words.short(most)} offsets")
