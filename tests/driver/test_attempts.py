"""Attempts at a slice, counted in the ledger: another try, a smaller slice, a wait for a decision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kappa import clock
from kappa.driver import attempts
from kappa.driver.attempts import Attempts, is_abandonable, slice_records
from kappa.errors import BrokerUnreachableError, ConflictError, DataLossError
from kappa.offsets.vector import OffsetRange
from kappa.record.events import Event
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow, plan_hash
from kappa.record.ledger_state import LedgerState
from kappa.slices.probing import Refusal

WRITER = "w"


def ranges(start: int, end: int) -> tuple[OffsetRange, ...]:
    return (OffsetRange(topic="pos", partition=0, start=start, end=end),)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """A ledger with a seed."""
    new_ledger = Ledger(str(tmp_path / "ledger"))
    new_ledger.create()
    new_ledger.claim(WRITER, "code", LedgerState())
    add(new_ledger, "commit", 0, ranges(0, 0))
    return new_ledger


def add(ledger: Ledger, kind: Any, seq: int, spans: tuple[OffsetRange, ...] = (), **values: Any) -> None:
    ledger.state()
    ledger.append(LedgerRow(kind=kind, seq=seq, writer=WRITER, at=clock.now(), ranges=spans, **values))


def claim(ledger: Ledger) -> None:
    """What is left of a driver that dies while it works on the planned slice."""
    ledger.claim(WRITER, "code", ledger.state())


def planned(ledger: Ledger) -> tuple[LedgerState, LedgerRow]:
    """The ledger, and its planned slice."""
    state = ledger.state()
    assert state.open_plan is not None
    return state, state.open_plan


@pytest.fixture
def own(ledger: Ledger) -> Any:
    """What a driver works with, as far as attempts look at it."""
    reports: list[tuple[str, dict[str, Any]]] = []
    events: list[Event] = []

    def put(topology: str, epoch: int, event: str, *, actor: str, reason: str = "", **detail: Any) -> Event:
        row = Event(
            n=len(events) + 1,
            topology=topology,
            epoch=epoch,
            event=event,
            at=clock.now(),
            actor=actor,
            reason=reason,
            detail=detail,
        )
        events.append(row)
        return row

    levels = ("error", "warning", "info")
    log = SimpleNamespace(**{name: lambda what, **_: reports.append((what, {})) for name in levels})
    run = SimpleNamespace(ledger=ledger, sent=SimpleNamespace(seq=-1, sender=object()))
    return SimpleNamespace(
        ledger=ledger,
        slice_run=run,
        writer=WRITER,
        log=log,
        reports=reports,
        messages=[],
        events=events,
        spent=[],
        config=SimpleNamespace(attempts=3, lake="/lake"),
        topology=SimpleNamespace(name="a.b", is_confidential=False),
        paths=SimpleNamespace(epoch=1),
        epochs=SimpleNamespace(add=put),
        tell=lambda **values: reports.append(("beat", values)),
        say=lambda message: None,
        record=lambda: SimpleNamespace(live=1),
        is_spark_dead=lambda: False,
        is_kafka_there=lambda: True,
        spend_sender=lambda: None,
    )


def test_drivers_that_die_at_a_slice_are_counted_and_the_next_slice_is_smaller(ledger: Ledger, own: Any) -> None:
    add(ledger, "plan", 1, ranges(0, 5_000), logged=True)
    assert Attempts(own, own, own).next(*planned(ledger), []) == "try"
    claim(ledger)
    assert Attempts(own, own, own).next(*planned(ledger), []) == "try", "the second of three drivers tries it once more"
    claim(ledger)
    assert Attempts(own, own, own).next(*planned(ledger), []) == "smaller"


def test_a_slice_that_is_given_up_is_not_tried_again_by_the_next_driver(ledger: Ledger, own: Any) -> None:
    """A driver failed at it, and ended while it removed what was written: the next one finds some of it."""
    add(ledger, "plan", 1, ranges(0, 5_000), logged=True)
    add(ledger, "effects", 1)
    attempts = Attempts(own, own, own)
    assert attempts.next(*planned(ledger), []) == "try"
    add(ledger, "seal", 1, ranges(0, 5_000), detail={"most": 50, "tries": 3})
    claim(ledger)
    assert Attempts(own, own, own).next(*planned(ledger), []) == "again"
    add(ledger, "abandon", 1, ranges(0, 5_000), detail={"most": 50, "tries": 3})
    add(ledger, "plan", 2, ranges(0, 50), logged=True)
    assert Attempts(own, own, own).next(*planned(ledger), []) == "try"


@pytest.mark.parametrize(("error", "last"), [(DataLossError("gone"), "stuck"), (RuntimeError("too large"), "smaller")])
def test_records_that_are_gone_are_not_looked_for_in_smaller_slices(
    ledger: Ledger, own: Any, error: Exception, last: str
) -> None:
    add(ledger, "plan", 1, ranges(0, 5_000))
    attempts = Attempts(own, own, own)
    seen = []
    while len(seen) < 3 and "smaller" not in seen:
        attempts.failed(error)
        seen.append(attempts.next(*planned(ledger), []))
    assert seen[-1] == last
    assert (last == "stuck") is (len(seen) == own.config.attempts)


@pytest.mark.parametrize("is_confidential", [False, True])
@pytest.mark.parametrize("kafka", [True, False])
def test_the_words_of_an_error_are_told_only_where_values_of_records_are_for_everyone(
    ledger: Ledger, own: Any, is_confidential: bool, kafka: bool
) -> None:
    add(ledger, "plan", 1, ranges(0, 1))
    own.topology.is_confidential = is_confidential
    own.is_kafka_there = lambda: kafka
    for level in ("error", "warning"):
        setattr(own.log, level, lambda what, **values: own.reports.append((what, values)))
    own.say = lambda message: own.reports.append(("now", {"doing": message}))
    attempts = Attempts(own, own, own)
    for _ in range(6):
        attempts.failed(RuntimeError("[CAST_INVALID_INPUT] The value 'C-17' cannot be cast"))
    words = repr((own.reports, own.events, attempts.error))
    assert bool(own.events) is kafka and "CAST_INVALID_INPUT" in words
    assert ("C-17" in words) is not is_confidential


@pytest.mark.parametrize(("span", "expected"), [(500_000, 5_000), (250, 2), (40, 1), (2, 1)])
def test_a_slice_that_failed_is_cut_by_what_it_spanned(ledger: Ledger, span: int, expected: int) -> None:
    """Not by what a slice may span at most: of a small slice that failed nothing would be left to cut."""
    most = max(1, span // attempts.SHRINK)
    add(ledger, "plan", 1, ranges(0, span))
    add(ledger, "abandon", 1, ranges(0, span), detail={"most": most})
    assert slice_records(Ledger(ledger.path).state(), 500_000) == expected, "read anew, as the next driver does"


def test_after_a_slice_that_failed_slices_grow_and_stay_below_half_of_it_for_a_while(ledger: Ledger) -> None:
    add(ledger, "abandon", 1, ranges(0, 1_000), detail={"most": 10})
    sizes = []
    for seq in range(2, 2 + attempts.CAUTIOUS_COMMITS):
        sizes.append(slice_records(ledger.state(), 400))
        add(ledger, "commit", seq, ranges(seq, seq + 1))
    assert sizes[:7] == [10, 20, 40, 80, 160, 320, 400]
    state = ledger.begun()
    assert state.shrunk is not None
    later = replace(state.shrunk, seq=state.committed.seq - 9)
    assert slice_records(replace(state, shrunk=later), 10_000) == 500
    assert slice_records(ledger.state(), 10_000) == 10_000


def test_a_record_that_ends_every_driver_gets_the_epoch_stuck_until_told_to_go_on(ledger: Ledger, own: Any) -> None:
    add(ledger, "plan", 1, ranges(0, 1), logged=True)
    for _ in range(3):
        assert Attempts(own, own, own).next(*planned(ledger), own.events) == "try"
        claim(ledger)
    last = Attempts(own, own, own)
    assert last.next(*planned(ledger), own.events) == "stuck"
    last.give_up(ledger.state())
    assert [(e.event, e.detail["seq"], e.detail["claims"]) for e in own.events] == [("stuck", 1, 3)]
    assert "out of memory?" in own.events[0].reason
    assert own.reports[-1][1]["state"] == "stuck"
    claim(ledger)
    again = Attempts(own, own, own)
    assert again.next(*planned(ledger), own.events) == "stuck", "a driver that is started by itself waits as well"
    again.give_up(ledger.state())
    assert len(own.events) == 1, "once on record is enough"
    own.epochs.add("a.b", 1, "start", actor="ada")
    assert again.is_decided(own.events[0], own.events)
    attempts = Attempts(own, own, own)
    assert attempts.next(*planned(ledger), own.events) == "again", "drivers that only waited made no attempt"
    add(ledger, "abandon", 1, ranges(0, 1), detail={"most": 1})
    add(ledger, "plan", 2, ranges(0, 1), logged=True)
    for _ in range(3):
        assert Attempts(own, own, own).next(*planned(ledger), own.events) == "try"
        claim(ledger)
    assert Attempts(own, own, own).next(*planned(ledger), own.events) == "stuck"


def test_a_slice_that_was_sent_is_never_given_up(ledger: Ledger, own: Any) -> None:
    add(ledger, "plan", 1, ranges(0, 100), logged=True)
    plan = ledger.state().open_plan
    assert plan is not None
    own.slice_run.sent.seq, own.slice_run.sent.plan = 1, plan_hash(plan)
    assert not is_abandonable(own.slice_run, ledger.state())
    for _ in range(3):
        claim(ledger)
    assert Attempts(own, own, own).next(*planned(ledger), []) == "stuck"


@pytest.mark.parametrize(
    ("logged", "sender", "abandonable"), [(True, True, True), (True, False, False), (False, False, False)]
)
def test_a_slice_behind_its_effects_row_is_given_up_only_where_nothing_can_be_sent(
    ledger: Ledger, own: Any, logged: bool, sender: bool, abandonable: bool
) -> None:
    add(ledger, "plan", 1, ranges(0, 100), logged=logged)
    add(ledger, "effects", 1)
    own.slice_run.sent.sender = object() if sender else None
    assert is_abandonable(own.slice_run, ledger.state()) is abandonable


def test_a_slice_that_is_planned_again_as_it_was_is_not_abandoned_for_ever(ledger: Ledger, own: Any) -> None:
    for seq in (1, 2):
        add(ledger, "plan", seq, ranges(0, 100), logged=True)
        claim(ledger)
        claim(ledger)
        if seq == 1:
            assert Attempts(own, own, own).next(*planned(ledger), []) == "smaller"
            add(ledger, "abandon", 1, ranges(0, 100), detail={"most": 1})
    assert Attempts(own, own, own).next(*planned(ledger), []) == "try"
    claim(ledger)
    assert Attempts(own, own, own).next(*planned(ledger), []) == "stuck"


def test_errors_that_pass_do_not_count_and_are_waited_for_longer_and_longer(own: Any) -> None:
    tried = Attempts(own, own, own)
    conflicts = [tried.failed(ConflictError("two at once")) for _ in range(4)]
    assert conflicts == [0.2, 0.4, 0.8, 1.6]
    outage = [tried.failed(BrokerUnreachableError("away")) for _ in range(8)]
    assert outage == sorted(outage) and outage[-1] == attempts.LONGEST_PAUSE_SECONDS
    assert tried.failures == 0
    assert {what for what, _ in own.reports} == {"conflict", "waiting"}, "none of them in silence"
    tried.failed(ValueError("bad"))
    assert (tried.failures, own.events) == (1, [])
    tried.succeeded()
    assert tried.failed(ConflictError("two at once")) == 0.2


def test_a_failure_of_a_stuck_epoch_adds_no_event_and_is_not_tried_in_a_hot_loop(ledger: Ledger, own: Any) -> None:
    add(ledger, "plan", 1, ranges(0, 1), logged=True)
    tried = Attempts(own, own, own)
    tried.give_up(ledger.state())
    pauses = [tried.failed(ValueError("cannot be finished")) for _ in range(4)]
    assert pauses == [1.0, 2.0, 3.0, 4.0]
    assert [e.event for e in own.events] == ["stuck"]


FULL = {
    "the system": OSError(28, "No space left on device"),
    "a quota": OSError(122, "Disk quota exceeded"),
    "Delta": RuntimeError("Generic LocalFileSystem error: Unable to write: No space left on device (os error 28)"),
    "the JVM": RuntimeError("java.io.IOException: No space left on device"),
}


@pytest.mark.parametrize("full", FULL.values(), ids=FULL)
def test_a_full_disk_is_no_attempt_and_the_driver_says_what_it_waits_for(
    ledger: Ledger, own: Any, full: Exception
) -> None:
    add(ledger, "plan", 1, ranges(0, 5_000), logged=True)
    own.say = own.messages.append
    tries = Attempts(own, own, own)
    for _ in range(2 * own.config.attempts):
        try:
            try:
                raise full
            except Exception as error:
                raise RuntimeError("a slice cannot be written") from error
        except RuntimeError as error:
            assert 0 < tries.failed(error) <= attempts.LONGEST_PAUSE_SECONDS
    assert tries.failures == 0 and own.events == []
    assert tries.next(*planned(ledger), []) == "try"
    assert all(message.startswith("waiting: no room on the disk") for message in own.messages)


@pytest.mark.parametrize("refused", [OSError(28, "No space left on device"), RuntimeError("the lake does not answer")])
def test_an_epoch_that_cannot_be_put_on_record_as_stuck_is_tried_on(
    ledger: Ledger, own: Any, refused: Exception
) -> None:
    own.say = own.messages.append
    put = own.epochs.add

    def add_nothing(*_: Any, **__: Any) -> Event:
        raise refused

    attempts = Attempts(own, own, own)
    own.epochs.add = add_nothing
    for _ in range(own.config.attempts + 2):
        assert attempts.failed(ValueError("wrong")) > 0
    assert attempts.stuck is None and own.messages
    own.epochs.add = put
    assert attempts.failed(ValueError("wrong")) == 0.0
    assert attempts.stuck is not None and attempts.stuck.reason == "wrong"


def test_an_error_that_only_a_new_process_can_mend_ends_the_driver_all_the_same(ledger: Ledger, own: Any) -> None:
    own.is_spark_dead = lambda: True
    with pytest.raises(ValueError, match="the JVM is gone"):
        Attempts(own, own, own).failed(ValueError("the JVM is gone"))


def test_what_cannot_even_be_given_up_gets_the_epoch_stuck_with_its_reason(ledger: Ledger, own: Any) -> None:
    """A table that nothing can open any more: neither the slice nor its abandon row can be made."""
    add(ledger, "plan", 1, ranges(0, 5_000), logged=True)
    tried, seen = Attempts(own, own, own), []
    while not own.events and len(seen) < 20:
        tried.failed(OSError("Found unmasked nulls for non-nullable field"))
        if not own.events:
            seen.append(tried.next(*planned(ledger), own.events))
    assert seen == ["try", "smaller", "smaller", "smaller", "smaller"]
    (event,) = own.events
    assert (event.event, event.reason) == ("stuck", "Found unmasked nulls for non-nullable field")
    assert own.reports[-1][1] == {"state": "stuck", "message": f"stuck at slice 1: {event.reason}"}
    own.epochs.add("a.b", 1, "start", actor="ada")
    assert tried.is_decided(own.events[0], own.events)
    again = []
    for _ in range(own.config.attempts + 1):
        again.append(tried.next(*planned(ledger), own.events))
        tried.failed(OSError("still"))
    assert again == ["again", "again", "again", "smaller"]
    assert [e.event for e in own.events].count("stuck") == 1


def test_what_fails_before_a_planned_slice_is_looked_at_gets_the_epoch_stuck_too(ledger: Ledger, own: Any) -> None:
    add(ledger, "plan", 1, ranges(0, 1), logged=True)
    tried = Attempts(own, own, own)
    for _ in range(2 * own.config.attempts):
        assert own.events == []
        tried.failed(OSError("the table is gone"))
    assert [(e.event, e.reason) for e in own.events] == [("stuck", "the table is gone")]


def test_a_decision_to_set_records_aside_ends_the_wait(ledger: Ledger, own: Any) -> None:
    add(ledger, "plan", 1, ranges(0, 1), logged=True)
    tried = Attempts(own, own, own)
    refusal = Refusal(topic="pos", partition=0, offset=0, error="BAD", cause="code")
    tried.failed(ValueError("bad row."))
    tried.give_up(ledger.state(), refusal)
    (event,) = own.events
    assert event.detail["record"] == refusal.as_dict()
    assert event.reason.startswith("bad row. The record is pos[0] at offset 0") and "--execute" in event.reason
    assert not tried.is_decided(own.events[0], own.events)
    own.epochs.add("a.b", 1, "set_aside", actor="ada")
    assert tried.is_decided(own.events[0], own.events)
    assert tried.next(*planned(ledger), own.events) == "again"
