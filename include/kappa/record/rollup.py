"""The roll-up of a ledger: one row in the place of those about slices long past.

It holds the facts about old slices that the product still needs: their input and output, as runs of slices, and their
number. Rows that something still needs stay rows: commits whose files are there, the claim, baselines, yields,
upgrades, the row that bounds slices.
See docs/decisions/ledgers-are-rolled-up.md.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kappa.offsets import floors, releases, set_asides
from kappa.offsets.vector import Offsets, ranges_from_json
from kappa.record.slice_runs import Run, extended
from kappa.replay.chains import SentEnd, final_from_dict
from kappa.replay.proof.certificate import SliceFacts

if TYPE_CHECKING:
    from kappa.record.ledger_rows import LedgerRow
    from kappa.record.ledger_state import LedgerState

#: How many of the last slices keep all their rows.
RECENT = 10
#: How many places an epoch with versioned topics keeps for readers that begin early, and their least distance.
PLACES, PLACE_OFFSETS = 10_000, 100_000


def is_due(state: LedgerState, slices: int) -> bool:
    """Whether this many slices were committed since the last roll-up, without those that keep their rows."""
    return state.open_plan is None and len(state.commits) - state.rolled_commits >= slices + RECENT


def rolled_up(
    state: LedgerState, *, writer: str, code: str, at: datetime, stands: Sequence[Offsets] = ()
) -> LedgerRow | None:
    """The row that takes the place of all but the last slices; None when there is nothing to roll up.

    Args:
        writer: the driver.
        code: content hash of the code that it runs.
        at: when.
        stands: where live readers of its versioned topics stand: those places stay.
    """
    recent = state.recent
    since = state.rolled.n if state.rolled is not None else 0
    past = recent[:-RECENT]
    if state.open_plan is not None or not past or past[-1].n <= since:
        return None
    runs = extended(_rolled_runs(state), _single_runs(past, _reached(state), state.resumes))
    rolled = [] if state.rolled is None else [state.rolled]
    ends = _thinned([*(state.rolled.detail.get("sent", ()) if state.rolled else ()), *_sent(past)], stands)
    detail: dict[str, Any] = {
        "upto": past[-1].n,
        "seq": past[-1].seq,
        "commits": sum(run.slices for run in runs),
        "standing": past[-1].standing.as_dict(),
        "runs": [run.as_dict() for run in runs],
        **({"sent": ends} if ends else {}),
        **releases.releases_detail(
            releases.merged([*(row.releases for row in rolled), *(row.releases for row in past)])
        ),
        **set_asides.detail(set_asides.merged(one for row in (*rolled, *past) for one in row.set_aside)),
        **floors.floors_detail(releases.merged([*(row.floors for row in rolled), *(row.floors for row in past)])),
    }
    from kappa.record.ledger_rows import LedgerRow

    return LedgerRow(kind="rollup", seq=state.seq, writer=writer, at=at, code=code, detail=detail)


def runs_of(state: LedgerState) -> tuple[Run, ...]:
    """All slices of an epoch, oldest first: those rolled up as runs, the others one by one."""
    return (*_rolled_runs(state), *_single_runs(state.recent, _reached(state), state.resumes))


def is_cut_by_arrival(state: LedgerState) -> bool:
    """Whether slices of an epoch were cut as records arrived."""
    return any(run.facts.sends == "live" for run in runs_of(state))


def slice_facts(commits: Iterable[LedgerRow], before: Offsets | None = None) -> tuple[SliceFacts, ...]:
    """Committed slices; of an epoch that reads versioned topics of others, by the root topics of those.

    Args:
        commits: the commits.
        before: where the epoch stood before the first of them; None where that is the seed.
    """
    facts = []
    for row in commits:
        is_chained = "roots" in row.detail
        ranges = (before or row.standing).span_to(row.standing) if is_chained else row.ranges
        facts.append(
            SliceFacts(
                seq=row.seq,
                ranges=ranges,
                sends=row.sends,
                rows_read=row.rows_read,
                rows_parsed=row.rows_parsed,
                rows_dead=row.rows_dead,
                rows_set_aside=row.rows_set_aside,
                rows_late=row.rows_late,
                code=row.code,
                archived=ranges_from_json(row.detail.get("archived", {})),
                read=row.ranges if is_chained else (),
            )
        )
        before = row.standing
    return tuple(facts)


def sent_before(state: LedgerState) -> list[SentEnd]:
    """The ends of an epoch's versioned topics at rolled-up commits, newest first."""
    places = state.rolled.detail.get("sent", ()) if state.rolled is not None else ()
    return [
        SentEnd(
            ends=Offsets.from_json(ends),
            standing=Offsets.from_json(standing),
            final=final_from_dict(final[0] if final else {}),
        )
        for ends, standing, *final in reversed(places)
    ]


def _rolled_runs(state: LedgerState) -> tuple[Run, ...]:
    return tuple(map(Run.from_dict, state.rolled.detail["runs"])) if state.rolled is not None else ()


def _reached(state: LedgerState) -> Offsets | None:
    return None if state.rolled is None else Offsets.from_json(state.rolled.detail["standing"])


def _single_runs(commits: Sequence[LedgerRow], before: Offsets | None, resumes: Sequence[int]) -> Iterable[Run]:
    for row, facts in zip(commits, slice_facts(commits, before), strict=True):
        size = row.detail.get("bytes_read")
        turn = bisect_left(resumes, row.n)
        yield Run(
            facts=facts,
            logged=row.logged,
            turn=resumes[turn - 1] if turn else 0,
            seconds=_seconds(row),
            bytes_read=size or 0,
            sized_records=0 if size is None else row.rows_read,
            sized=int(size is not None),
        )


def _seconds(row: LedgerRow) -> float:
    started = row.detail.get("started_at")
    return (row.at - datetime.fromisoformat(started)).total_seconds() if started else 0.0


def _sent(commits: Iterable[LedgerRow]) -> Iterable[list[Mapping[str, Any]]]:
    for row in commits:
        if row.seq and "sent" in row.detail:
            final = [row.detail["final"]] if "final" in row.detail else []
            yield [row.detail["sent"], row.standing.as_dict(), *final]


def _thinned(
    places: Sequence[Sequence[Mapping[str, Any]]], stands: Sequence[Offsets]
) -> list[Sequence[Mapping[str, Any]]]:
    """Places at some distance from one another; of too many, every second one. The last one stays, and those where
    readers stand.
    """
    rest: list[int] = []
    reached: int | None = None
    for number, place in enumerate(places):
        filled = sum(offset for partitions in place[0].values() for offset in partitions.values())
        if reached is None or filled - reached >= PLACE_OFFSETS:
            rest.append(number)
            reached = filled
    while len(rest) > PLACES:
        rest = rest[::2]
    last = [len(places) - 1] if places else []
    needed = (
        number
        for number, place in enumerate(places)
        if any(Offsets.from_json(place[1]).is_level_with(stand) for stand in stands)
    )
    return [places[number] for number in sorted({*rest, *last, *needed})]
