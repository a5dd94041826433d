"""A decision on records of which one is committed is withdrawn, and no slice after that sets any of them aside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support import epoch_record
from support.growth import calls
from support.live_lake import NAME, live_lake

from kappa.driver.decisions import Decisions
from kappa.driver.driven_epoch import DrivenEpoch
from kappa.driver.voice import Voice
from kappa.offsets import set_asides
from kappa.offsets.vector import OffsetRange
from kappa.record.epochs import Now
from kappa.record.events import records_of
from kappa.record.ledger_state import BegunState
from kappa.record.topology_records import record_of


def test_the_slice_that_finds_it_late_computes_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = live_lake(tmp_path, monkeypatch)
    epoch = DrivenEpoch(config, NAME, 1)
    epoch.ledger.claim(epoch.writer, epoch.code, epoch.ledger.state())
    epoch.plan = replace(epoch.plan, topic_ids={"pos": "id"}, id="")
    place = {"topic": "pos", "topic_id": "id", "partition": 0}
    detail = {"records": [{**place, "offsets": {"1": "0" * 16, "2": "0" * 16}}], "count": 2, "failing": ""}
    epoch_record.tell(config, NAME, 1, "set_aside", by_event={"set_aside": detail})
    decisions, ranges = Decisions(epoch, Voice(epoch)), (OffsetRange(topic="pos", partition=0, start=2, end=3),)
    assert decisions.within(epoch.record(), ranges)
    record = decisions.without_late(epoch.record(), epoch.ledger.begun())
    assert not decisions.within(record, ranges)
    assert [event.event for event in epoch.record().events][-1] == "set_aside_withdrawn"


def test_a_slice_does_not_look_again_at_decisions_that_are_obeyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = live_lake(tmp_path, monkeypatch)
    epoch = DrivenEpoch(config, NAME, 1)
    epoch.plan = replace(epoch.plan, topic_ids={"pos": "id"}, id="")
    start, begun = epoch.record(), epoch.ledger.begun()

    def first_and_next_slice(count: int) -> tuple[int, int]:
        """Calls of a driver's first slice after so many decisions on two records each, and of its next one."""
        place = {"topic": "pos", "topic_id": "id", "partition": 0}
        details = [{"records": [{**place, "offsets": {str(3 * n): "", str(3 * n + 1): ""}}]} for n in range(count)]
        now = Now(topology=NAME, records=epoch.epochs.records())
        events = [now.event("set_aside", 1, actor="test", detail=detail) for detail in details]
        record = record_of(NAME, (*start.events, *(replace(event, n=100 + n) for n, event in enumerate(events))))
        asides = set_asides.merged(one for event in record.epoch(1).set_asides for one in records_of(event))
        commit = replace(begun.committed, ranges=(OffsetRange(topic="pos", partition=0, start=0, end=3 * count),))
        state = BegunState(commits=[commit], set_aside=asides)
        following = (OffsetRange(topic="pos", partition=0, start=3 * count, end=3 * count + 3),)

        def slice_of(decisions: Decisions) -> None:
            assert decisions.without_late(record, state) is record and not decisions.within(record, following)

        driver = Decisions(epoch, Voice(epoch))
        return calls(lambda: slice_of(Decisions(epoch, Voice(epoch)))), calls(lambda: slice_of(driver))

    few, many = first_and_next_slice(25), first_and_next_slice(100)
    assert many[0] < 6 * few[0], "each record is looked at once, not once for each decision"
    assert many[1] < 2 * few[1] < few[0]
