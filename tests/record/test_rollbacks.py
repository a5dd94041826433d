"""Which moves are rollbacks: one definition, for notices, asset events and pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kappa.monitoring.notices import Notice, notice_of
from kappa.record.events import Event
from kappa.record.moves import rollbacks
from kappa_airflow.announcing.announcements import announcements
from kappa_web.pages import history

AT = datetime(2026, 3, 1, tzinfo=UTC)
PLAN = json.dumps({"tables": ["sums"], "appends": []})
#: To the second epoch, back, and forward again; then to the fourth, and to the third, which was rejected at first.
MOVES = (1, 2, 1, 2, 4, 3)
BACK = {3: "rollback", 4: "rollback"}


def record(*epochs: int, topology: str = "a") -> list[Event]:
    """Plans of epochs, and moves to them one after the other; moves are numbered from 1."""

    def event(n: int, kind: Any, epoch: int, **detail: Any) -> Event:
        details = {"code": "c", "version": "1", **detail}
        at = AT + timedelta(minutes=n)
        return Event(n=n, topology=topology, epoch=epoch, event=kind, at=at, actor="ann", detail=details)

    planned = [event(n, "planned", epoch, plan=PLAN) for n, epoch in enumerate(sorted(set(epochs)), start=-9)]
    befores = (None, *epochs)
    moved = zip(epochs, befores, strict=False)
    return [*planned, *(event(n, "moved", epoch, **{"from": old}) for n, (epoch, old) in enumerate(moved, start=1))]


def test_a_rollback_is_a_move_to_an_epoch_that_was_live_before() -> None:
    assert rollbacks(record(*MOVES)) == set(BACK)
    assert rollbacks([*record(1, 2), *record(2, topology="b")]) == frozenset()


@pytest.mark.parametrize("n", range(1, len(MOVES) + 1))
def test_notices_asset_events_and_pages_name_a_move_alike(n: int) -> None:
    events = record(*MOVES)
    expected = BACK.get(n, "cutover")
    (move,) = (event for event in events if event.n == n)
    (announced,) = (one for one in announcements(events, after=0) if one.n == n)
    assert announced.extra["move"] == expected
    (line,) = (one for one in history.event_lines(events, 100) if one.n == n)
    notice = notice_of(move, "lake-1", is_rollback=n in rollbacks(events))
    if n == 1:
        assert (line.what, notice) == ("went live", None), "the first epoch replaces none"
    else:
        assert isinstance(notice, Notice)
        assert (line.what, notice.event) == (expected, expected.upper())


def test_the_record_is_gone_over_once_whatever_is_announced() -> None:
    class Walked(list[Event]):
        walks = 0

        def __iter__(self) -> Iterator[Event]:
            self.walks += 1
            return super().__iter__()

    few, many = Walked(record(1, 2)), Walked([*record(*MOVES), *record(*MOVES, topology="b")])
    assert len(announcements(few, after=0)) == 2 and len(announcements(many, after=0)) == 12
    assert few.walks == many.walks
