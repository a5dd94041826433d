"""A decision on records of which one is committed is withdrawn, and no slice after that sets any of them aside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support import epoch_record
from support.live_lake import NAME, live_lake

from kappa.driver.decisions import Decisions
from kappa.driver.driven_epoch import DrivenEpoch
from kappa.driver.voice import Voice
from kappa.offsets.vector import OffsetRange


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
