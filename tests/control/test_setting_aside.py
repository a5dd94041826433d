"""What a decision to set records aside may be about, decided on record and ledger alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.page_lake import CANDIDATE, TopologyStory, steady

from kappa import clock
from kappa.config import Config
from kappa.control import set_aside_listings, setting_aside
from kappa.control.setting_aside import Listing, subject
from kappa.errors import MoveRefusedError, RefusedError, UsageError
from kappa.offsets import set_asides
from kappa.offsets.set_asides import SetAside
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.record.events import records_of
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.replay.chains import Binding

NAME = "retail.loyalty"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    settings = Config.from_env({"KAPPA_HOME": str(tmp_path), "KAPPA_BOOTSTRAP_SERVERS": "127.0.0.1:1"})
    Path(settings.lake).mkdir(parents=True, exist_ok=True)
    return replace(settings, launcher="elsewhere")


@pytest.fixture
def story(config: Config) -> TopologyStory:
    """A live epoch that has read 300 offsets of each of two partitions of ``pos``."""
    epochs, now = TopologyStory(config=config, name=NAME, partitions=2), clock.now()
    epochs.begin(1, now, topic_ids={"pos": "id-1"})
    epochs.move(1, None, 0, now)
    epochs.ledger(1, steady(now, 3, each=100))
    return epochs


def end(story: TopologyStory, epoch: int = 1) -> int:
    return Ledger(story.paths(epoch).ledger).state().position.get("pos", 0) or 0


def listing(story: TopologyStory, *offsets: int, epoch: int = 1) -> Listing:
    return Listing(
        topology=NAME,
        epoch=epoch,
        topic="pos",
        topic_id="id-1",
        partition=0,
        offsets=dict.fromkeys(offsets, "hash"),
        samples=(),
    )


def decide(story: TopologyStory, *offsets: int, epoch: int = 1, reason: str = "bad deploy") -> SetAside:
    event = setting_aside.set_aside(story.config, listing(story, *offsets, epoch=epoch), actor="ann", reason=reason)
    (one,) = records_of(event)
    return one


def open_plan(story: TopologyStory, *, has_effects: bool) -> int:
    """A slice of ten offsets is planned; its number."""
    ledger, first = Ledger(story.paths(1).ledger), end(story)
    state = ledger.state()
    ranges = tuple(OffsetRange(topic="pos", partition=p, start=first, end=first + 10 * (p == 0)) for p in range(2))
    plan = LedgerRow(kind="plan", seq=state.seq + 1, writer="d", at=clock.now(), ranges=ranges, sends="live")
    ledger.append(plan)
    if has_effects:
        ledger.append(replace(plan, kind="effects", ranges=()))
    return plan.seq


def test_a_decision_is_one_event_that_names_each_record(story: TopologyStory) -> None:
    at = end(story)
    one = decide(story, at, at + 7)
    assert (one.topic_id, one.at, dict(one.offsets)) == ("id-1", ("pos", 0), {at: "hash", at + 7: "hash"})
    assert one.dead_reason == f"set aside by decision {one.decision}: bad deploy"
    assert [event.n for event in story.epochs.record(NAME).epoch(1).set_asides] == [one.decision]
    with pytest.raises(RefusedError, match=f"at {at} is set aside already, by decision {one.decision}"):
        decide(story, at)
    story.tell(1, "set_aside_withdrawn", clock.now(), set_aside=one.decision)
    assert story.epochs.record(NAME).epoch(1).set_asides == ()
    decide(story, at)


def test_only_what_is_not_committed_nor_about_to_be_can_be_set_aside(story: TopologyStory) -> None:
    at = end(story)
    with pytest.raises(RefusedError, match=rf"has committed pos\[0\] up to offset {at}"):
        decide(story, at - 1)
    with pytest.raises(UsageError, match="A decision says why"):
        decide(story, at, reason=" ")
    seq = open_plan(story, has_effects=True)
    with pytest.raises(RefusedError, match=rf"Slice {seq} .* has computed pos\[0\] at {at}"):
        decide(story, at)
    decide(story, at + 10)
    story.tell(1, "stuck", clock.now(), seq=seq, error="e", claims=0)
    assert decide(story, at).at == ("pos", 0), "the broker refuses what it sends"


def test_a_slice_that_is_only_planned_keeps_no_record_from_being_set_aside(story: TopologyStory) -> None:
    at = end(story)
    open_plan(story, has_effects=False)
    assert set_asides.count([decide(story, at, at + 9)]) == 2


def test_topic_and_partition_are_asked_for_where_there_are_several(story: TopologyStory) -> None:
    with pytest.raises(UsageError, match="'pos' has 2 partitions"):
        subject(story.config, NAME, None, None, None)
    about = subject(story.config, NAME, None, None, 1)
    assert (about.topic, about.partition, about.topic_id, about.next_offset) == ("pos", 1, "id-1", end(story))
    with pytest.raises(UsageError, match="does not read 'other'; it reads pos"):
        subject(story.config, NAME, None, "other", 0)


def test_an_epoch_that_reads_nothing_of_its_own_is_refused_and_a_candidate_is_not(story: TopologyStory) -> None:
    now = clock.now()
    story.begin(2, now, live=1, stages=CANDIDATE, topic_ids={"pos": "id-1"})
    story.ledger(2, steady(now, 2, sends="held"))
    assert subject(story.config, NAME, 2, None, 0).epoch.epoch == 2
    decide(story, end(story, 2), epoch=2)
    for event in CANDIDATE[-2:]:
        story.tell(2, event, now)
    story.tell(2, "handover", now, **{"from": 1})
    with pytest.raises(MoveRefusedError, match=r"is being made live since .*, as it was compared"):
        decide(story, end(story, 2) + 1, epoch=2)
    decide(story, end(story))
    story.move(2, 1, end(story, 2), now)
    with pytest.raises(RefusedError, match=r"Epoch 1 of .retail.loyalty. is retired and reads nothing of its own"):
        subject(story.config, NAME, 1, None, 0)
    with pytest.raises(MoveRefusedError, match="neither live nor being built"):
        decide(story, end(story), epoch=1)


def test_a_record_of_a_versioned_topic_is_set_aside_where_it_enters_the_chain(config: Config) -> None:
    story, now = TopologyStory(config=config, name=NAME, partitions=1), clock.now()
    bound = {"story": Binding(topology="retail.pos", epoch=4, topic="story.e0004")}
    story.begin(1, now, topic_ids={"pos": "id-1", "story.e0004": "id-2"}, bound=bound)
    story.move(1, None, 0, now)
    story.ledger(1, steady(now, 1))
    for name in ("story", "story.e0004"):
        with pytest.raises(
            RefusedError, match=r"has another place in each epoch of .retail\.pos.,.*set-aside retail\.pos"
        ):
            subject(config, NAME, None, name, 0)
    assert subject(config, NAME, None, "pos", None).partition == 0
    with pytest.raises(UsageError, match=r"reads pos, story\.e0004\. Name one"):
        subject(config, NAME, None, None, None)


class EmptyLog:
    """A broker whose topic has offsets and no records."""

    def __init__(self, *_: object) -> None:
        self.reads = 0

    def __enter__(self) -> EmptyLog:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def topic_ids(self, topics: list[str]) -> dict[str, str]:
        return dict.fromkeys(topics, "id-1")

    def low_watermarks(self, topics: list[str]) -> Offsets:
        return Offsets.of(((topic, 0), 0) for topic in topics)

    def stable_offsets(self, topics: list[str]) -> Offsets:
        return Offsets.of(((topic, 0), 10**9) for topic in topics)

    def read(self, start: Offsets, end: Offsets) -> Iterator[list[object]]:
        yield from ()


def test_offsets_that_lie_far_apart_are_gone_over_once(story: TopologyStory, monkeypatch: pytest.MonkeyPatch) -> None:
    class Walked(list[int]):
        walks = 0

        def __iter__(self) -> Iterator[int]:
            self.walks += 1
            return super().__iter__()

    monkeypatch.setattr(set_aside_listings, "Broker", EmptyLog)
    about = replace(subject(story.config, NAME, 1, "pos", 0), topic_id="id-1")
    few, many = (Walked(about.next_offset + 5_000 * n for n in range(count)) for count in (10, 40))
    for offsets in (few, many):
        with pytest.raises(RefusedError, match=f"and {len(offsets) - 3} more: compaction"):
            set_aside_listings.named(story.config, about, offsets, is_readable=False)
    assert many.walks == few.walks
