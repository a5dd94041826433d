"""The records that a replay sets aside: of what the live epoch has read, those that it set aside, whatever an epoch
before it decided.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.page_lake import CANDIDATE, TopologyStory, steady

from kappa import clock
from kappa.config import Config
from kappa.driver.decisions import Decisions
from kappa.driver.driven_epoch import DrivenEpoch
from kappa.driver.voice import Voice
from kappa.offsets.set_asides import SetAside
from kappa.offsets.vector import OffsetRange

NAME = "retail.loyalty"


@pytest.fixture
def story(tmp_path: Path) -> TopologyStory:
    config = Config.from_env({"KAPPA_HOME": str(tmp_path), "KAPPA_BOOTSTRAP_SERVERS": "127.0.0.1:1"})
    Path(config.lake).mkdir(parents=True, exist_ok=True)
    return TopologyStory(config=replace(config, launcher="elsewhere"), name=NAME, partitions=1)


def live(story: TopologyStory, epoch: int, before: int | None, **plan: Any) -> None:
    stages = CANDIDATE[:3] if before is None else CANDIDATE
    story.begin(epoch, clock.now(), live=before, stages=stages, topic_ids={"pos": "id"}, **plan)
    story.move(epoch, before, 0, clock.now())


def decide(story: TopologyStory, epoch: int, *offsets: int) -> None:
    records = {"topic": "pos", "topic_id": "id", "partition": 0, "offsets": dict.fromkeys(map(str, offsets), "hash")}
    story.tell(epoch, "set_aside", clock.now(), records=[records], count=len(offsets), failing="")


def left_out(story: TopologyStory, epoch: int, **plan: Any) -> list[int]:
    """The offsets that a replay leaves out, of all that there are."""
    story.begin(epoch, clock.now(), live=1, topic_ids={"pos": "id"}, **plan)
    driven = DrivenEpoch(story.config, NAME, epoch)
    everything = (OffsetRange(topic="pos", partition=0, start=0, end=1_000),)
    several: Iterable[SetAside] = Decisions(driven, Voice(driven)).within(driven.record(), everything)
    return sorted(offset for one in several for offset in one.offsets)


def test_what_the_live_epoch_has_brought_in_stays_in_later_replays(story: TopologyStory) -> None:
    live(story, 1, None)
    decide(story, 1, 7, 150)
    live(story, 2, 1)
    story.ledger(2, steady(clock.now(), 1, each=100))  # with the record at 7; it has not come to the one at 150
    assert left_out(story, 3) == [150]


def test_what_only_a_later_epoch_left_out_is_computed_once_that_is_rolled_back(story: TopologyStory) -> None:
    live(story, 1, None)
    story.ledger(1, steady(clock.now(), 1, each=100))
    live(story, 2, 1)
    decide(story, 2, 7)
    for event in ("recalled", "caught_up"):
        story.tell(1, event, clock.now())
    story.move(1, 2, 0, clock.now())
    assert left_out(story, 3) == []


def test_a_topic_that_was_created_anew_has_other_records(story: TopologyStory) -> None:
    live(story, 1, None)
    story.ledger(1, steady(clock.now(), 1, each=100))
    before, now = (
        SetAside(decision=9, reason="", topic="pos", topic_id=one, partition=0, offsets={offset: "hash"})
        for offset, one in ((7, "earlier"), (8, "id"))
    )
    assert left_out(story, 2, set_aside=(before, now)) == [8]


def test_a_comparison_tells_of_what_only_one_epoch_is_going_to_leave_out(story: TopologyStory) -> None:
    live(story, 1, None)
    story.ledger(1, steady(clock.now(), 1, each=100))
    story.begin(2, clock.now(), live=1, topic_ids={"pos": "id"})
    story.ledger(2, steady(clock.now(), 1, each=100, sends="held"))
    decide(story, 1, 150)
    decide(story, 2, 150, 151)
    driven = DrivenEpoch(story.config, NAME, 2)
    (one,) = Decisions(driven, Voice(driven)).alone(driven.record(), 1)
    assert list(one.offsets) == [151]


def test_what_the_live_epoch_never_read_stays_left_out(story: TopologyStory) -> None:
    live(story, 1, None)
    decide(story, 1, 7)
    live(story, 2, 1, start=story.at(50), origin=story.at(50))
    story.ledger(2, steady(clock.now(), 1, first=50, each=100))
    assert left_out(story, 3) == [7]
