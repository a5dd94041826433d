"""Laws 2, 10 and 12 as a certificate states them; each way to break one is named."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest

from kappa.offsets.vector import OffsetRange, Offsets
from kappa.replay.proof.certificate import Certificate, MoveFacts, SliceFacts
from kappa.replay.proof.certify import certify


def at(offset: int) -> Offsets:
    return Offsets({"pos": {0: offset}})


def slice_(seq: int, start: int, end: int, sends: Literal["live", "held"] = "live", partition: int = 0) -> SliceFacts:
    return SliceFacts(
        seq=seq,
        ranges=(OffsetRange(topic="pos", partition=partition, start=start, end=end),),
        sends=sends,
        rows_read=end - start,
        rows_parsed=end - start,
        rows_dead=0,
        code=f"code-{seq % 2}",
    )


MOVES = (
    MoveFacts(epoch=1, from_epoch=None, at=at(0)),
    MoveFacts(epoch=2, from_epoch=1, at=at(20)),
    MoveFacts(epoch=1, from_epoch=2, at=at(30)),
)
LEDGERS = {
    1: (slice_(0, 0, 0), slice_(1, 0, 10), slice_(2, 10, 20), slice_(3, 20, 30, "held"), slice_(4, 30, 35)),
    2: (slice_(0, 0, 0, "held"), slice_(1, 0, 20, "held"), slice_(2, 20, 30)),
}


def broken(epoch: int, *slices: SliceFacts) -> tuple[str, ...]:
    certificate = certify("retail.loyalty", MOVES, {**LEDGERS, epoch: slices})
    assert certificate.complete is not bool(certificate.problems)
    return certificate.problems


def test_a_cutover_and_a_rollback_are_certified() -> None:
    certificate = certify("retail.loyalty", MOVES, LEDGERS, starts={1: at(0), 2: at(0)})
    assert certificate.problems == ()
    assert (certificate.complete, certificate.at_epoch, certificate.at) == (True, 1, at(35))
    assert certificate.render() == [
        "Certificate of retail.loyalty, live epoch 1: complete: each offset was sent by exactly one epoch",
        "  pos[0]  0..20 by epoch 1 (slices 1 to 2), 20..30 by epoch 2 (slices 2 to 2), "
        "30..35 by epoch 1 (slices 4 to 4)",
        "  35 records read = 35 parsed + 0 dead letters",
    ]
    assert certificate.codes == {1: ("code-0", "code-1"), 2: ("code-0", "code-1")}


def test_a_certificate_survives_json() -> None:
    for moves in (MOVES, ()):
        certificate = certify("retail.loyalty", moves, LEDGERS)
        assert Certificate.from_json(certificate.to_json()) == certificate


def test_the_order_of_slices_does_not_matter() -> None:
    assert certify("t", MOVES, {epoch: slices[::-1] for epoch, slices in LEDGERS.items()}).complete


@pytest.mark.parametrize(("start", "is_broken"), [(9, True), (10, False), (11, True)])
def test_slices_of_an_epoch_join_end_to_end(start: int, is_broken: bool) -> None:
    problems = broken(2, slice_(1, 0, 10, "held"), slice_(2, start, 20, "held"), slice_(3, 20, 30))
    assert bool(problems) is is_broken
    if is_broken:
        assert problems == (f"Epoch 2, slice 2: pos[0] {start}..20 does not start at 10, the end before it.",)


def test_an_epoch_begins_where_its_plan_does() -> None:
    certificate = certify("t", MOVES, LEDGERS, starts={1: at(0), 2: at(5)})
    assert certificate.problems == ("Epoch 2, slice 0: pos[0] 0..0 does not start at 5, the end before it.",)


def test_a_partition_that_appears_later_begins_at_zero() -> None:
    move = (MoveFacts(epoch=1, from_epoch=None, at=at(0)),)
    assert certify("t", move, {1: (slice_(1, 0, 5), slice_(2, 0, 3, partition=1))}).complete
    late = certify("t", move, {1: (slice_(1, 0, 5), slice_(2, 1, 3, partition=1))})
    assert late.problems[0] == "Epoch 1, slice 2: pos[1] 1..3 does not start at 0, the end before it."


def test_a_slice_committed_twice_is_named() -> None:
    assert "Epoch 2 committed slice 2 more than once." in broken(2, *LEDGERS[2], slice_(2, 30, 30))


def test_an_offset_that_no_epoch_sent_is_named() -> None:
    held = slice_(2, 20, 30, "held")
    assert broken(2, slice_(1, 0, 20, "held"), held) == ("pos[0] 20..30: no epoch has sent it.",)


def test_an_offset_that_two_epochs_sent_is_named() -> None:
    problems = broken(2, slice_(1, 0, 18, "held"), slice_(2, 18, 30))
    assert problems[0] == "pos[0] 18..20: epoch 1 (slice 2) and epoch 2 (slice 2) have sent it, once too often."


def test_a_live_epoch_that_has_stopped_sending_is_named() -> None:
    assert broken(1, *LEDGERS[1], slice_(5, 35, 40, "held")) == ("pos[0] 35..40: no epoch has sent it.",)


def test_an_epoch_that_sent_out_of_turn_is_named_even_without_duplicates() -> None:
    moved_late = (MOVES[0], replace(MOVES[1], at=at(25)), MOVES[2])
    certificate = certify("t", moved_late, LEDGERS)
    assert certificate.problems == ("Epoch 2, slice 2: pos[0] 20..30 was sent while the pointer was not at epoch 2.",)


def test_an_epoch_that_was_never_live_may_not_send() -> None:
    problems = broken(3, slice_(1, 0, 5))
    assert "Epoch 3, slice 1: pos[0] 0..5 was sent while the pointer was not at epoch 3." in problems


def test_offsets_sent_past_the_live_commit_are_named() -> None:
    moves = MOVES[:2]
    problems = certify("t", moves, LEDGERS).problems
    assert problems == ("Epoch 1, slice 4: pos[0] 30..35 was sent while the pointer was not at epoch 1.",)


def test_a_live_epoch_that_stands_before_its_own_beginning_is_named() -> None:
    problems = broken(1, *LEDGERS[1][:2])
    assert problems[0].startswith("Live epoch 1 has committed up to") and "went live at" in problems[0]


@pytest.mark.parametrize(("dead", "is_broken"), [(0, True), (1, False), (2, True)])
def test_records_read_are_records_parsed_and_dead_letters(dead: int, is_broken: bool) -> None:
    counted = replace(slice_(2, 20, 30), rows_parsed=9, rows_dead=dead)
    assert bool(broken(2, slice_(1, 0, 20, "held"), counted)) is is_broken


@pytest.mark.parametrize(("rows", "is_broken"), [(9, False), (10, False), (11, True)])
def test_no_more_records_are_read_than_offsets_spanned(rows: int, is_broken: bool) -> None:
    counted = replace(slice_(2, 20, 30), rows_read=rows, rows_parsed=rows)
    assert bool(broken(2, slice_(1, 0, 20, "held"), counted)) is is_broken


def test_moves_follow_one_another() -> None:
    lost = certify("t", (MOVES[0], MOVES[2]), LEDGERS).problems
    assert lost[0] == "The pointer moved from epoch 2 to 1, but 1 was live."
    back = certify("t", (MOVES[0], MOVES[1], replace(MOVES[2], at=at(19))), LEDGERS).problems
    assert back[0].startswith("The pointer moved to epoch 1 at")


def test_offsets_sent_by_a_dropped_epoch_are_unproved_and_not_a_gap() -> None:
    certificate = certify("retail.loyalty", MOVES, {1: LEDGERS[1]})
    assert certificate.problems == ()
    assert certificate.unproved == ("pos[0] 20..30 by epoch 2: its ledger was dropped, only the moves show it",)
    assert (
        "  not shown  pos[0] 20..30 by epoch 2: its ledger was dropped, only the moves show it" in certificate.render()
    )
    overlapping = {1: (*LEDGERS[1][:3], slice_(3, 20, 35))}
    assert not certify("retail.loyalty", MOVES, overlapping).complete


def test_a_first_epoch_sends_from_the_first_move_on() -> None:
    move = (MoveFacts(epoch=1, from_epoch=None, at=at(0)),)
    late = certify("t", move, {1: (slice_(1, 0, 5, "held"), slice_(2, 5, 9))})
    assert late.problems == ("pos[0] 0..5: no epoch has sent it.",)


def test_nothing_is_certified_without_a_live_epoch_or_its_ledger() -> None:
    assert "No epoch was ever live." in certify("t", (), {}).problems
    assert "The ledger of the live epoch 1 is not there." in certify("t", MOVES, {2: LEDGERS[2]}).problems


def test_notes_do_not_weaken_a_certificate_and_older_ones_are_read() -> None:
    proof = certify("a.b", MOVES, LEDGERS)
    noted = replace(proof, notes=("Epoch 2: its plan's range was computed twice",))
    assert Certificate.from_json(noted.to_json()) == noted
    assert noted.complete == proof.complete
    assert "  note       Epoch 2: its plan's range was computed twice" in noted.render()
    assert Certificate.from_json(proof.to_json().replace(',"notes":[]', "")) == proof
