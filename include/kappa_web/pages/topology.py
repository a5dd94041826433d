"""One topology: its live epoch, its candidate, its epochs over time, and possible actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any

from markupsafe import Markup

from kappa.control.cutover import previous
from kappa.control.overview import reached_event_time
from kappa.errors import UNREADABLE, UnknownEpochError
from kappa.record.epoch_record import EpochRecord, TopologyRecord
from kappa.record.ledger_rows import LedgerRow
from kappa.record.moves import others_of
from kappa.replay.stages import Stage
from kappa.serving.dead_letter_reasons import Reason
from kappa_web.pages import charts, conditions, history, overview, progress, words
from kappa_web.pages.board import Board, BoardFacts
from kappa_web.pages.charts import Piece

#: Numbers of the last epochs on the timeline and of the last moves below it.
_EPOCHS, _EVENTS = 12, 12
#: Number of reasons for dead letters, the most frequent ones.
_REASONS = 10
#: Parts of a slice, in order.
PARTS = (
    ("wait", "waiting", "from the previous commit to the plan: for records, for the next trigger, for maintenance"),
    ("compute", "reading and computing", "from the plan until the rows are written"),
    ("finish", "sending and committing", "the Kafka transaction, changes merged into tables, the commit"),
)


@dataclass(frozen=True, kw_only=True)
class Action:
    """A possible action.

    Attributes:
        label: label of its button.
        what: what will change.
        dag: the DAG with its form.
        command: its command line.
        kind: ``main``, ``plain`` or ``risky``.
    """

    label: str
    what: str
    dag: str
    command: str
    kind: str = "plain"


def page(board: Board, record: TopologyRecord, now: datetime, caller: Any) -> dict[str, Any]:
    """What the page shows."""
    numbers = sorted(record.epochs, reverse=True)
    facts = {number: board.facts(record, number) for number in numbers[:_EPOCHS] if _is_there(record, number)}
    if record.live is not None and record.live not in facts:
        facts[record.live] = board.facts(record, record.live)
    live = facts.get(record.live) if record.live is not None else None
    candidate = facts.get(record.candidate.epoch) if record.candidate is not None else None
    lag = board.lags.now(overview.positions({record.topology: live} if live is not None else {}))
    shown = live or candidate
    letters, letters_problem = _letters(board, record.topology, shown)
    return {
        "letters": letters[:_REASONS],
        "letters_problem": letters_problem,
        "more_reasons": max(0, len(letters) - _REASONS),
        "letters_of": shown.epoch.epoch if shown is not None else None,
        "with_values": caller.may_unmask(record.topology) or not (shown and letters and shown.state.masked),
        "record": record,
        "state": conditions.of_topology(live, candidate),
        "owner": conditions.owner(live, candidate),
        "asks": list(conditions.attention(record, live, candidate)),
        "live": live,
        "lag": lag,
        "lag_chart": overview.lag_chart(board, record.topology, now),
        "rate_chart": overview.rate_chart(live, now),
        "event_time": reached_event_time(live.committed) if live is not None and live.committed else "",
        "rows": _counts(live),
        "published": board.published(record.topology, live) if live is not None else {},
        "candidate": candidate,
        "progress": progress.of(record, candidate) if candidate is not None else None,
        "actions": actions(record),
        "timeline": timeline(record, now),
        "epochs": [(record.epoch(n), conditions.role(record, record.epoch(n)), facts.get(n)) for n in numbers],
        "verdict": conditions.verdict,
        "driver": conditions.driver,
        "anatomy": anatomy(_last_rows(board, record, live)),
        "events": history.event_lines(record.events, _EVENTS),
        "moves": len(record.moves),
        "moving_with": others_of(record.topology, record.handover),
        "handover": record.handover,
    }


def _letters(board: Board, topology: str, shown: BoardFacts | None) -> tuple[tuple[Reason, ...], str]:
    """Dead letters by reason, and why they cannot be read: their table must not hide the page."""
    if shown is None:
        return (), ""
    try:
        return board.dead_letters(topology, shown.epoch.epoch, shown.committed), ""
    except UNREADABLE as error:
        return (), str(error)


def _is_there(record: TopologyRecord, number: int) -> bool:
    return not record.epoch(number).stage.is_ended


def _counts(live: BoardFacts | None) -> dict[str, int]:
    """Rows of the last half hour's slices, as far as the ledger has rows for them."""
    if live is None:
        return {}
    recent = live.state.commits[-200:]
    assert isinstance(recent, list | tuple)
    return {
        "slices": live.state.slices,
        "dead": sum(row.rows_dead for row in recent),
        "late": sum(row.rows_late for row in recent),
        "of": len(recent),
    }


def _can_replace(candidate: EpochRecord) -> bool:
    """Whether a candidate was verified, and its verdict did not fail: that one only the command line can accept."""
    if candidate.stage not in (Stage.VERIFIED, Stage.APPROVED) or candidate.verified is None:
        return False
    return bool(candidate.verified.detail["verdict"] != "failed")


def actions(record: TopologyRecord) -> list[Action]:
    """The actions that are possible now, and what they will change."""
    name, live, candidate = record.topology, record.live, record.candidate
    choices = []
    if candidate is not None and _can_replace(candidate) and live is not None:
        choices.append(
            Action(
                label=f"Cut over to epoch {candidate.epoch}",
                what=f"Readers move from epoch {live} to epoch {candidate.epoch} in one step, at one offset. Epoch "
                f"{live} stops and is kept.",
                dag=f"cutover__{name}",
                command=f"kappa cutover {name} --execute",
                kind="main",
            )
        )
    if live is not None and (candidate is None or candidate.is_recalled):
        choices.append(
            Action(
                label="Replay",
                what=f"The deployed code computes history again, beside epoch {live}. Readers keep epoch {live} until "
                "the new epoch is verified.",
                dag=f"replay__{name}",
                command=f"kappa replay {name} --execute",
                kind="main",
            )
        )
    back = _previous(record)
    if live is not None and back is not None and candidate is None:
        choices.append(
            Action(
                label=f"Roll back to epoch {back}",
                what=f"Readers go back from epoch {live} to epoch {back}, which first catches up with its own code.",
                dag=f"rollback__{name}",
                command=f"kappa rollback {name} --execute",
                kind="risky",
            )
        )
    if candidate is not None:
        keeps = f" Readers keep epoch {live}." if live is not None else ""
        is_back = candidate.is_recalled
        choices.append(
            Action(
                label=f"{'Leave' if is_back else 'Abort'} epoch {candidate.epoch}",
                what=f"Epoch {candidate.epoch} is retired again.{keeps}"
                if is_back
                else f"Epoch {candidate.epoch} is removed for good, with its tables, topics and consumer group.{keeps}",
                dag=f"abort__{name}",
                command=f"kappa abort {name} {candidate.epoch} --execute",
                kind="risky",
            )
        )
    return choices


def _previous(record: TopologyRecord) -> int | None:
    try:
        return previous(record)
    except UnknownEpochError:
        return None


def timeline(record: TopologyRecord, now: datetime) -> Markup:
    """When each epoch was built, live and kept."""
    last = sorted(record.epochs)[-_EPOCHS:]
    epochs = [record.epochs[number] for number in sorted({*last, *([] if record.live is None else [record.live])})]
    begin = min(epoch.planned.at for epoch in epochs)
    span = max((now - begin).total_seconds(), 1.0)

    def share(at: datetime) -> float:
        return min(1.0, max(0.0, (at - begin).total_seconds() / span))

    rows = []
    for epoch in reversed(epochs):
        pieces = [
            Piece(
                start=share(first),
                end=share(last or now),
                kind=kind,
                title=f"{words.stamp(first)} UTC to {words.stamp(last) + ' UTC' if last else 'now'}: {phase}",
            )
            for first, last, kind, phase in _phases(record, epoch)
        ]
        rows.append((f"epoch {epoch.epoch}", pieces))
    style = "%H:%M" if span < 86_400 * 2 else "%b %d"
    ticks = [(n / 4, f"{begin + timedelta(seconds=span * n / 4):{style}}") for n in range(4)]
    return charts.timeline(rows, [*ticks, (1.0, "now")], title="When each epoch was built, live and kept")


def _phases(record: TopologyRecord, epoch: EpochRecord) -> list[tuple[datetime, datetime | None, str, str]]:
    """Times of an epoch: from, to (None for now), class, and what it was."""
    ended = next((e.at for e in record.events if e.epoch == epoch.epoch and e.event in ("aborted", "dropped")), None)
    turns = [
        (move, after)
        for move, after in zip(record.moves, (*record.moves[1:], None), strict=False)
        if move.epoch == epoch.epoch
    ]
    phases: list[tuple[datetime, datetime | None, str, str]] = []
    first = turns[0][0].at if turns else ended
    phases.append((epoch.planned.at, first, "building", "built"))
    if epoch.verified is not None:
        word = str(epoch.verified.detail["verdict"])
        kind = conditions.verdict_kind(epoch.verified)
        phases.append((epoch.verified.at, first, f"verified {kind}", f"verified: {word}"))
    reached = first
    for move, after in turns:
        if reached is not None and reached < move.at:
            phases.append((reached, move.at, "kept", "kept for rollback"))
        phases.append((move.at, after.at if after is not None else None, "live", "live"))
        reached = after.at if after is not None else None
    if turns and reached is not None:
        phases.append((reached, ended, "kept", "kept for rollback"))
    return phases


def _last_rows(board: Board, record: TopologyRecord, live: BoardFacts | None) -> list[LedgerRow]:
    if live is None or live.committed is None:
        return []
    return board.last_rows(record.topology, live.epoch.epoch, live.state.last)


def anatomy(rows: Sequence[LedgerRow]) -> dict[str, Any] | None:
    """Where the time of the last slices went, by the rows of their protocol; None if there is no whole slice."""
    spent: dict[str, list[float]] = {part: [] for part, _, _ in PARTS}
    marks: dict[str, LedgerRow] = {}
    before: LedgerRow | None = None
    for row in rows:
        if row.kind in ("plan", "effects"):
            marks[row.kind] = row
        elif row.kind == "commit":
            plan, effects = marks.get("plan"), marks.get("effects")
            if plan is not None and effects is not None and plan.seq == effects.seq == row.seq:
                spent["compute"].append((effects.at - plan.at).total_seconds())
                spent["finish"].append((row.at - effects.at).total_seconds())
                if before is not None and before.seq == row.seq - 1:
                    spent["wait"].append((plan.at - before.at).total_seconds())
            before, marks = row, {}
    if not spent["compute"]:
        return None
    middles = {part: median(seconds) if seconds else 0.0 for part, seconds in spent.items()}
    whole = sum(middles.values()) or 1.0
    pieces, reached, table = [], 0.0, []
    for part, label, what in PARTS:
        share = middles[part] / whole
        pieces.append(
            Piece(
                start=reached,
                end=reached + share,
                kind=f"part {part}",
                title=f"{label}: {words.lasting(middles[part])}",
                label=words.lasting(middles[part]),
            )
        )
        reached += share
        longest = max(spent[part], default=0.0)
        table.append((part, label, what, words.lasting(middles[part]), round(100 * share), words.lasting(longest)))
    chart = charts.bar(pieces, title="Where the time of a slice goes", height=26)
    return {"chart": chart, "table": table, "slices": len(spent["compute"])}
