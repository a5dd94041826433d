"""Law 10 where epochs read different topics: an offset counts only while the live epoch reads its topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappa.offsets.vector import OffsetRange, Offsets
from kappa.replay.proof.certificate import Certificate, MoveFacts, SliceFacts
from kappa.replay.proof.certify import certify, sent_upto


def at(**offsets: int) -> Offsets:
    return Offsets.of(((topic, 0), offset) for topic, offset in offsets.items())


def read(seq: int, sends: Literal["live", "held"], **ranges: tuple[int, int]) -> SliceFacts:
    """A slice of single partitions."""
    parts = tuple(OffsetRange(topic=t, partition=0, start=start, end=end) for t, (start, end) in ranges.items())
    count = sum(part.count for part in parts)
    return SliceFacts(seq=seq, ranges=parts, sends=sends, rows_read=count, rows_parsed=count, rows_dead=0, code="c")


def move(epoch: int, old: int | None, place: Offsets, yielded: Offsets | None = None) -> MoveFacts:
    return MoveFacts(epoch=epoch, from_epoch=old, at=place, yielded=yielded)


Ledgers = Mapping[int, tuple[SliceFacts, ...]]

#: The second epoch does not read `b`, which grows meanwhile; the first one comes back and reads on.
BACK = (
    (move(1, None, at(a=0, b=0)), move(2, 1, at(a=10), at(a=10, b=5)), move(1, 2, at(a=20, b=7), at(a=20))),
    {
        1: (
            read(1, "live", a=(0, 10), b=(0, 5)),
            read(2, "held", a=(10, 20), b=(5, 7)),
            read(3, "live", a=(20, 25), b=(7, 8)),
        ),
        2: (read(1, "held", a=(0, 10)), read(2, "live", a=(10, 20))),
    },
)
#: The second epoch alone reads `b`; the first one comes back, and then the second one again.
FORTH = (
    (
        move(1, None, at(a=0)),
        move(2, 1, at(a=10, b=4), at(a=10)),
        move(1, 2, at(a=20), at(a=20, b=8)),
        move(2, 1, at(a=30, b=12), at(a=30)),
    ),
    {
        1: (read(1, "live", a=(0, 10)), read(2, "held", a=(10, 20)), read(3, "live", a=(20, 30))),
        2: (
            read(1, "held", a=(0, 10), b=(0, 4)),
            read(2, "live", a=(10, 20), b=(4, 8)),
            read(3, "held", a=(20, 30), b=(8, 12)),
            read(4, "live", a=(30, 40), b=(12, 15)),
        ),
    },
)
#: The second epoch gives `b` up, and the third reads it again.
AGAIN = (
    (move(1, None, at(a=0, b=0)), move(2, 1, at(a=10), at(a=10, b=5)), move(3, 2, at(a=20, b=9), at(a=20))),
    {
        1: (read(1, "live", a=(0, 10), b=(0, 5)),),
        2: (read(1, "held", a=(0, 10)), read(2, "live", a=(10, 20))),
        3: (read(1, "held", a=(0, 20), b=(0, 9)), read(2, "live", a=(20, 30), b=(9, 12))),
    },
)
#: The second epoch reads another topic instead; the first one comes back.
RENAMED = (
    (move(1, None, at(old=0)), move(2, 1, at(new=7), at(old=10)), move(1, 2, at(old=12), at(new=9))),
    {
        1: (read(1, "live", old=(0, 10)), read(2, "held", old=(10, 12)), read(3, "live", old=(12, 14))),
        2: (read(1, "held", new=(0, 7)), read(2, "live", new=(7, 9))),
    },
)


@pytest.mark.parametrize("history", [BACK, FORTH, AGAIN, RENAMED], ids=["back", "forth", "again", "renamed"])
def test_offsets_that_pass_while_no_live_epoch_reads_their_topic_are_not_missing(
    history: tuple[Sequence[MoveFacts], Ledgers],
) -> None:
    moves, ledgers = history
    assert certify("t", tuple(moves), ledgers).problems == ()


def test_an_offset_of_a_topic_that_only_one_epoch_reads_is_sent_by_no_other_turn() -> None:
    moves, ledgers = BACK
    first, _, third = ledgers[1]
    early = (first, read(2, "live", a=(10, 10), b=(5, 7)), read(3, "held", a=(10, 20)), replace(third, seq=4))
    assert certify("t", moves, {**ledgers, 1: early}).problems == (
        "Epoch 1, slice 2: b[0] 5..7 was sent while the pointer was not at epoch 1.",
    )


def test_an_offset_that_two_turns_sent_is_named_although_a_turn_without_its_topic_lies_between() -> None:
    moves, ledgers = AGAIN
    twice = (read(1, "held", a=(0, 20), b=(0, 4)), read(2, "live", a=(20, 30), b=(4, 12)))
    problems = certify("t", (*moves[:2], move(3, 2, at(a=20, b=4), at(a=20))), {**ledgers, 3: twice}).problems
    assert problems == ("b[0] 4..5: epoch 1 (slice 1) and epoch 3 (slice 2) have sent it, once too often.",)


def test_what_an_earlier_turn_sent_does_not_lie_ahead_of_an_epoch_that_goes_live() -> None:
    moves, ledgers = AGAIN
    for place, problems in {
        4: ("b[0] 4..5: epoch 1 has sent it, and epoch 3, which stands at 4, would send it again.",),
        5: (),
    }.items():
        about_to_move = (*moves[:2], move(3, 2, at(a=20, b=place), at(a=20)))
        held = {**ledgers, 3: (read(1, "held", a=(0, 20), b=(0, place)),)}
        assert certify("t", about_to_move, held).problems == problems


def test_the_first_slices_of_a_new_topic_have_to_be_sent() -> None:
    moves = (move(1, None, at(a=0)), move(2, 1, at(a=10, b=4), at(a=10)))
    second = (
        read(1, "held", a=(0, 10), b=(0, 4)),
        read(2, "held", a=(10, 10), b=(4, 6)),
        read(3, "live", a=(10, 20), b=(6, 9)),
    )
    problems = certify("t", moves, {1: (read(1, "live", a=(0, 10)),), 2: second}).problems
    assert problems == ("b[0] 4..6: no epoch has sent it.",)


def test_the_last_slices_of_a_topic_that_is_given_up_have_to_be_sent() -> None:
    moves = (move(1, None, at(a=0, b=0)), move(2, 1, at(a=10), at(a=10, b=5)))
    first = (read(1, "live", a=(0, 10), b=(0, 3)), read(2, "held", a=(10, 10), b=(3, 5)))
    second = (read(1, "held", a=(0, 10)), read(2, "live", a=(10, 20)))
    assert certify("t", moves, {1: first, 2: second}).problems == ("b[0] 3..5: no epoch has sent it.",)
    following = (*first[:1], read(2, "held", a=(10, 20), b=(3, 5)))
    yielded = (moves[0], move(2, 1, at(a=10), at(a=10, b=3)))
    assert certify("t", yielded, {1: following, 2: second}).problems == ()


def test_the_topics_of_a_dropped_epoch_are_those_that_it_read() -> None:
    moves = (move(1, None, at(a=6)), move(2, 1, at(a=10, b=5)), move(3, 2, at(a=20)))
    certificate = certify("t", moves, {3: (read(1, "held", a=(0, 20)), read(2, "live", a=(20, 30)))})
    assert certificate.problems == ()
    assert certificate.unproved == (
        "a[0] 6..20 by 2 epochs, 1 to 2: their ledgers were dropped, only the moves show it",
        "b[0] from 5 by epoch 2: its ledger was dropped, only the moves show it",
    )


def test_an_epoch_each_night_makes_no_certificate_longer() -> None:
    def size(nights: int) -> int:
        moves = [move(n, n - 1 or None, at(a=10 * n, b=n)) for n in range(1, nights + 1)]
        certificate = certify("t", tuple(moves), {nights: (read(1, "held", a=(0, 10 * nights), b=(0, nights)),)})
        assert certificate.problems == () and len(certificate.unproved) == 2
        return len(certificate.to_json())

    assert size(100) < size(25) + 20


TOPICS = ("a", "b", "c")


@dataclass(kw_only=True)
class Epoch:
    """An epoch that reads as drivers do.

    Attributes:
        offsets: topic -> next offset to read.
        slices: its ledger.
    """

    offsets: dict[str, int]
    slices: list[SliceFacts] = field(default_factory=list)

    def reads(self, sends: Literal["live", "held"], ends: Mapping[str, int]) -> None:
        ranges = {topic: (self.offsets[topic], max(end, self.offsets[topic])) for topic, end in ends.items()}
        self.slices.append(read(len(self.slices), sends, **ranges))
        self.offsets.update({topic: end for topic, (_, end) in ranges.items()})

    @property
    def place(self) -> Offsets:
        return at(**self.offsets)


@dataclass(kw_only=True)
class History:
    """What a plain oracle remembers: each offset that the live epoch read without sending it."""

    draw: st.DrawFn
    log: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TOPICS, 0))
    epochs: dict[int, Epoch] = field(default_factory=dict)
    moves: list[MoveFacts] = field(default_factory=list)
    gaps: set[tuple[int, str, int]] = field(default_factory=set)

    def grows(self) -> None:
        for topic in TOPICS:
            self.log[topic] += self.draw(st.integers(0, 3))

    def ends(self, epoch: Epoch) -> dict[str, int]:
        return {topic: self.draw(st.integers(first, self.log[topic])) for topic, first in epoch.offsets.items()}

    def apart(self, epoch: Epoch) -> dict[str, int]:
        """Ends of topics that the live epoch may not read: what was sent of them before is not sent again."""
        sent = sent_upto(self.moves)
        firsts = {topic: max(first, sent.get(topic, 0) or 0) for topic, first in epoch.offsets.items()}
        return {topic: self.draw(st.integers(first, self.log[topic])) for topic, first in firsts.items()}

    def turn(self, number: int) -> None:
        """An epoch comes to where the live one stands, goes live, and reads."""
        if number not in self.epochs:
            topics = self.draw(st.sets(st.sampled_from(TOPICS), min_size=1))
            self.epochs[number] = Epoch(offsets=dict.fromkeys(sorted(topics), 0))
        epoch, old = self.epochs[number], self.moves[-1].epoch if self.moves else None
        if old is not None:
            self.reaches(self.epochs[old], epoch.offsets)
        yielded = None if old is None else self.epochs[old].place
        epoch.reads("held", {**self.apart(epoch), **self.common(epoch, yielded)})
        self.moves.append(move(number, old, epoch.place, yielded))
        for _ in range(self.draw(st.integers(0, 3))):
            self.grows()
            ends = self.ends(epoch)
            if self.draw(st.integers(0, 3)) == 0:
                first = epoch.offsets
                self.gaps |= {(number, topic, n) for topic, end in ends.items() for n in range(first[topic], end)}
                epoch.reads("held", ends)
            else:
                epoch.reads("live", ends)
        self.grows()

    @staticmethod
    def reaches(live: Epoch, offsets: Mapping[str, int]) -> None:
        """An epoch that stands ahead of the live one waits until that has sent what lies between."""
        ahead = {topic: offsets[topic] for topic in live.offsets if live.offsets[topic] < offsets.get(topic, 0)}
        if ahead:
            live.reads("live", {**live.offsets, **ahead})

    @staticmethod
    def common(epoch: Epoch, yielded: Offsets | None) -> dict[str, int]:
        places = {} if yielded is None else {topic: offset for (topic, _), offset in yielded.items()}
        return {topic: places[topic] for topic in epoch.offsets if topic in places}


@st.composite
def histories(draw: st.DrawFn, least: int = 1) -> History:
    history = History(draw=draw)
    history.grows()
    numbers = draw(st.lists(st.integers(1, 3), min_size=least, max_size=6))
    for number in numbers:
        if not history.moves or history.moves[-1].epoch != number:
            history.turn(number)
    return history


def named_gaps(certificate: Certificate) -> set[tuple[str, int]]:
    """Each offset that a certificate misses; it complains of nothing else."""
    offsets = set()
    for problem in certificate.problems:
        part, _, rest = problem.partition(": ")
        assert rest == "no epoch has sent it.", problem
        place, span = part.split(" ")
        start, end = map(int, span.split(".."))
        offsets |= {(place.removesuffix("[0]"), offset) for offset in range(start, end)}
    return offsets


@given(histories(least=4))
def test_an_epoch_that_has_read_what_earlier_turns_sent_sends_nothing_again(history: History) -> None:
    ranges = [
        item for epoch in history.epochs.values() for one in epoch.slices if one.sends == "live" for item in one.ranges
    ]
    sent = [(item.topic, offset) for item in ranges for offset in range(item.start, item.end)]
    assert len(sent) == len(set(sent))


@given(histories(), st.data())
def test_a_certificate_names_exactly_the_offsets_that_live_epochs_left_out(
    history: History, data: st.DataObject
) -> None:
    live = history.moves[-1].epoch
    dropped = data.draw(st.sets(st.sampled_from(sorted(history.epochs)))) - {live}
    ledgers = {number: tuple(epoch.slices) for number, epoch in history.epochs.items() if number not in dropped}
    moves = tuple(
        move(one.epoch, one.from_epoch, one.at, None if one.from_epoch in dropped else one.yielded)
        for one in history.moves
    )
    certificate = certify("t", moves, ledgers)
    assert named_gaps(certificate) == {(topic, n) for epoch, topic, n in history.gaps if epoch not in dropped}
    turns = [one for one in moves if one.epoch in dropped]
    words = ["their ledgers were dropped", *(f"by epoch {one.epoch}:" for one in turns)]
    assert all(any(word in part for word in words) for part in certificate.unproved)
