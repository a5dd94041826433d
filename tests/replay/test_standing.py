"""Topics and dead letters of only one epoch, as a report shows them."""

from __future__ import annotations

from kappa.offsets.vector import Offsets
from kappa.replay.proof.standing import dead_letter_notes, has_common_topic, later, topic_notes

POS = Offsets({"pos": {0: 10, 1: 20}})


def test_epochs_of_the_same_topics_need_no_note() -> None:
    assert has_common_topic(POS, POS)
    assert topic_notes(POS, Offsets({"pos": {0: 9, 1: 20}})) == []


def test_epochs_without_a_common_topic_have_no_common_offsets() -> None:
    renamed = Offsets({"pos.v2": {0: 3}})
    assert not has_common_topic(POS, renamed)
    (note,) = topic_notes(POS, renamed)
    assert note.startswith("The live epoch reads 'pos', this epoch reads 'pos.v2': no topic in common")


def test_topics_read_by_only_one_epoch_are_named_with_their_offsets() -> None:
    more = POS.merge(Offsets({"refunds": {0: 7}}))
    (note,) = topic_notes(POS, more)
    assert "Only this epoch reads 'refunds'" in note and "7" in note
    (note,) = topic_notes(more, POS)
    assert note.startswith("Only the live epoch reads 'refunds'")


def test_dead_letters_of_only_one_epoch_are_counted_by_reason() -> None:
    assert dead_letter_notes({}, {}) == []
    assert dead_letter_notes({}, {"id is NOT NULL and absent": 1200, "the value is not JSON": 1}) == [
        "1,201 records are dead letters of this epoch alone: 1,200 (id is NOT NULL and absent), 1 (the value is not "
        "JSON)."
    ]


def test_later_is_the_furthest_of_common_partitions() -> None:
    assert later(POS, Offsets({"pos": {0: 11, 2: 1}, "refunds": {0: 7}})) == Offsets({"pos": {0: 11}})
