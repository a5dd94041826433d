"""Which epochs may read each other, which may move alone, and their positions in a chain: on plain values."""

from __future__ import annotations

import pytest

from kappa.errors import LedgerError
from kappa.offsets.vector import Offsets
from kappa.replay.chains import (
    Binding,
    ChainFacts,
    Final,
    SentEnd,
    UpstreamFacts,
    final_from_dict,
    is_at,
    next_end,
    physical,
    roots,
    sent_at,
    sent_before,
    within,
)
from kappa.replay.rules.chain import (
    Link,
    move_refusals,
    removal_refusals,
    seeded_from_another,
    start_within_chain,
    upstream_behind,
    upstream_cycle,
    upstream_missing,
    upstream_not_followed,
    upstream_not_live_yet,
    upstream_not_read,
    upstream_silent,
    upstream_twice,
    upstream_without_topic,
)
from kappa.replay.stages import Stage
from kappa.replay.starts import FromSavepoint, ShiftBy, ToEarliest


def at(root: int) -> Offsets:
    return Offsets({"pos": {0: root}})


def sent_end(own: int, root: int) -> SentEnd:
    return SentEnd(ends=Offsets({"story.e0002": {0: own}}), standing=at(root))


#: Slices up to root offsets 5, 9, 12 and 20; the one up to 12 sent nothing.
SENT = (sent_end(0, 0), sent_end(4, 5), sent_end(7, 9), sent_end(7, 12), sent_end(30, 20))
UPSTREAM = UpstreamFacts(topology="a", epoch=2, topics=("story.e0002",), sent=SENT, origin=at(0))
CHAIN = ChainFacts(
    bound={"story": Binding(topology="a", epoch=2, topic="story.e0002")}, upstreams=(UPSTREAM,), direct=("codes",)
)


def link(topology: str, epoch: int, *, live: bool = False, building: bool = False, reads: int | None = None) -> Link:
    bound = {} if reads is None else {"story": Binding(topology="a", epoch=reads, topic=f"story.e{reads:04d}")}
    stage = Stage.CUT_OVER if live else Stage.VERIFIED if building else Stage.RETIRED
    return Link(topology=topology, epoch=epoch, stage=stage, is_live=live, is_building=building, bound=bound)


def test_vectors_of_different_topics_are_never_equal() -> None:
    assert is_at(at(5), at(5), is_bound=True)
    assert not is_at(at(5), at(6), is_bound=True)
    with pytest.raises(LedgerError, match="name no topic in common"):
        is_at(Offsets({"story.e0001": {0: 5}}), Offsets({"story.e0002": {0: 5}}), is_bound=True)


def test_a_root_position_is_found_exactly_or_as_the_last_one_before() -> None:
    assert sent_at(SENT, at(9)) == sent_end(7, 9) and sent_at(SENT, at(10)) is None
    assert [sent_before(SENT, at(root)) for root in (8, 9, 10)] == [sent_end(4, 5), sent_end(7, 9), sent_end(7, 9)]
    place = Offsets({"pos": {0: 9}, "codes": {0: 3}})
    assert physical(CHAIN, place, is_exact=True) == Offsets({"story.e0002": {0: 7}, "codes": {0: 3}})
    assert physical(CHAIN, Offsets({"pos": {0: 10}}), is_exact=True) is None


def test_an_epoch_stands_where_its_upstream_first_had_these_ends() -> None:
    assert roots(CHAIN, Offsets({"story.e0002": {0: 7}, "codes": {0: 3}})) == Offsets({"pos": {0: 9}, "codes": {0: 3}})
    assert roots(CHAIN, Offsets({"story.e0002": {0: 0}, "codes": {0: 0}})) == Offsets({"pos": {0: 0}, "codes": {0: 0}})
    assert roots(CHAIN, Offsets({"story.e0002": {0: 5}})) is None


def test_a_slice_ends_on_a_commit_even_if_that_is_too_large() -> None:
    position = Offsets({"story.e0002": {0: 0}})
    assert next_end(SENT[1:], position, 6) == sent_end(4, 5)
    assert next_end(SENT[1:], position, 7) == sent_end(7, 12)
    assert next_end(SENT[4:], Offsets({"story.e0002": {0: 7}}), 7) == sent_end(30, 20)
    assert next_end((), position, 7) is None
    assert within(SENT, Offsets({"story.e0002": {0: 7}})) == [sent_end(0, 0), sent_end(4, 5), sent_end(7, 9)]


def test_a_source_is_bound_only_to_a_suitable_upstream() -> None:
    assert upstream_missing("a", "story", None, [1], 1) == []
    assert upstream_missing("a", "story", 1, [1], None) == []
    assert [f.code for f in upstream_missing("a", "story", None, [1], None)] == ["upstream-not-live"]
    assert [f.code for f in upstream_missing("a", "story", 3, [1, 2], 1)] == ["upstream-unknown"]
    assert upstream_not_live_yet("a", 1, 1) == [] and upstream_not_live_yet("a", 2, 1)[0].code == "upstream-not-live"
    assert upstream_without_topic("a", 1, "story", ["story"]) == []
    assert upstream_without_topic("a", 1, "story", [])[0].code == "upstream-not-versioned"
    assert upstream_silent("a", 1, True) == [] and upstream_silent("a", 1, False)[0].code == "upstream-silent"
    assert upstream_cycle("b", {"a"}) == [] and upstream_cycle("b", {"a", "b"})[0].code == "upstream-cycle"
    assert upstream_not_read(["a"], ["a"]) == [] and upstream_not_read(["x"], ["a"])[0].code == "upstream-not-read"


def test_a_source_without_grace_follows_its_upstream_by_the_same_column() -> None:
    binding = CHAIN.bound["story"]
    assert upstream_not_followed("story", binding, "window_end", Final(time="window_end", ms=None)) == []
    silent = upstream_not_followed("story", binding, "window_end", None)
    other = upstream_not_followed("story", binding, "window_end", Final(time="window_start", ms=5))
    assert [finding.code for finding in (*silent, *other)] == ["upstream-not-followed"] * 2
    assert "epoch 2 does not report its final rows" in silent[0].message
    assert "reports its final rows by 'window_start'" in other[0].message


def test_fields_of_newer_code_about_final_rows_are_ignored() -> None:
    values = {"story.e0002": {"time": "window_end", "ms": 5, "moon": "full"}, "other.e0002": {"time": "at", "ms": None}}
    assert final_from_dict(values) == {
        "story.e0002": Final(time="window_end", ms=5),
        "other.e0002": Final(time="at", ms=None),
    }


def test_a_root_topic_is_reached_by_only_one_path() -> None:
    assert upstream_twice(CHAIN) == []
    both = ChainFacts(bound=CHAIN.bound, upstreams=(UPSTREAM,), direct=("pos",))
    assert upstream_twice(both)[0].numbers == {"topics": ["pos"]}
    assert upstream_twice(ChainFacts(upstreams=(UPSTREAM, UPSTREAM)))[0].code == "upstream-diamond"


def test_a_replay_of_a_chain_starts_at_the_end_of_a_slice() -> None:
    for start in (ToEarliest(), FromSavepoint(seq=3)):
        assert start_within_chain(start, CHAIN.bound) == []
    assert start_within_chain(ShiftBy(by=-3), CHAIN.bound)[0].code == "upstream-start"
    assert start_within_chain(ShiftBy(by=-3), {}) == []


def test_a_lagging_upstream_is_refused_and_a_mixed_history_is_a_warning() -> None:
    (behind,) = upstream_behind([("a", 2)], 7)
    assert (behind.code, behind.severity, behind.numbers["live"]) == ("upstream-behind", "refuse", 7)
    assert "epoch 2 of 'a'" in behind.message
    (gone,) = upstream_behind([("a", 2)], 7, is_savepoint=True)
    assert gone.code == behind.code and "later savepoint" in gone.remedy
    assert seeded_from_another([("a", 1)], [("a", 1)]) == []
    (mixed,) = seeded_from_another([("a", 1)], [("a", 2)])
    assert (mixed.code, mixed.severity) == ("upstream-mixed-history", "warn")
    assert "epoch 1 of 'a'" in mixed.message and "epoch 2 of 'a'" in mixed.message


def test_a_live_epoch_reads_only_live_epochs_after_any_move() -> None:
    links = [
        link("a", 1, live=True),
        link("a", 2, building=True),
        link("b", 1, live=True, reads=1),
        link("b", 2, building=True, reads=2),
    ]
    assert move_refusals(links, {"a": 2, "b": 2}) == []
    (alone,) = move_refusals(links, {"a": 2})
    assert "Live epoch 1 of 'b' reads epoch 1 of 'a'" in alone and "kappa cutover a b --execute" in alone
    (early,) = move_refusals(links, {"b": 2})
    assert "epoch 2 of 'b' reads epoch 2 of 'a', where epoch 1 is live" in early
    apart = [*links[:3], link("b", 2, building=True, reads=1)]
    assert move_refusals(apart, {"b": 2}) == []
    (wrong,) = move_refusals(apart, {"a": 2, "b": 2})
    assert "where epoch 2 would be live" in wrong


def test_a_move_must_not_stop_an_epoch_that_a_candidate_reads() -> None:
    links = [link("a", 1, live=True), link("a", 2, building=True), link("b", 1, building=True, reads=1)]
    (refusal,) = move_refusals(links, {"a": 2})
    assert "kappa abort b 1 --execute" in refusal
    assert move_refusals([*links[:2], link("b", 1, building=True, reads=2)], {"a": 2}) == []


def test_an_epoch_with_readers_cannot_be_removed() -> None:
    links = [link("b", 1, reads=1), link("b", 2, building=True, reads=1), link("c", 1, live=True)]
    assert [refusal.rpartition(": ")[2] for refusal in removal_refusals(links, "a", 1)] == [
        "kappa retire b 1 --execute",
        "kappa abort b 2 --execute",
    ]
    assert removal_refusals(links, "a", 2) == []
