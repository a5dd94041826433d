"""Records set aside, as values: their offsets, and their notation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kappa.errors import BrokerUnreachableError, UsageError
from kappa.offsets import set_asides
from kappa.offsets.set_asides import SetAside
from kappa.offsets.vector import OffsetRange


def aside(*offsets: int, decision: int = 1, partition: int = 0, topic: str = "pos") -> SetAside:
    hashes = {offset: set_asides.value_hash(str(offset).encode()) for offset in offsets}
    return SetAside(decision=decision, reason="why", topic=topic, topic_id="id", partition=partition, offsets=hashes)


def span(start: int, end: int, partition: int = 0) -> OffsetRange:
    return OffsetRange(topic="pos", partition=partition, start=start, end=end)


@pytest.mark.parametrize(
    ("text", "offsets"), [("17", (17,)), ("17,20", (17, 20)), ("20-22, 17", (17, 20, 21, 22)), ("5-5", (5,))]
)
def test_offsets_are_typed_as_a_list_with_ranges(text: str, offsets: tuple[int, ...]) -> None:
    assert set_asides.listed(text, 10) == offsets


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1..3", "٣", "1,,2", "9" * 5_000])
def test_an_invalid_list_of_offsets_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a list of offsets"):
        set_asides.listed(text, 10)


def test_a_list_that_descends_or_names_too_many_offsets_is_refused() -> None:
    with pytest.raises(UsageError, match=r"runs backwards\. Write --offset 3-9"):
        set_asides.listed("9-3", 10)
    assert len(set_asides.listed("1-10", 10)) == 10
    with pytest.raises(UsageError, match="more than 10 offsets"):
        set_asides.listed("1-11", 10)
    with pytest.raises(UsageError, match="more than 10 offsets"):
        set_asides.listed("0-99999999999999", 10)


@pytest.mark.parametrize(
    ("start", "end", "expected"), [(4, 7, {4, 6}), (5, 6, set()), (6, 7, {6}), (0, 5, {4}), (7, 9, set())]
)
def test_a_slice_sets_aside_only_offsets_within_its_ranges(start: int, end: int, expected: set[int]) -> None:
    within = set_asides.within([aside(4, 6), aside(4, partition=1)], [span(start, end), span(0, 0, 1)])
    assert {offset for one in within for offset in one.offsets} == expected


def test_the_first_of_two_decisions_about_a_record_counts() -> None:
    one, two = aside(1, 2, decision=3), aside(2, 3, decision=9)
    merged = set_asides.merged([two, one])
    assert [(each.decision, sorted(each.offsets)) for each in merged] == [(3, [1, 2]), (9, [3])]
    assert set_asides.merged(merged) == merged == set_asides.merged([*merged, *merged])


def test_readmitted_offsets_are_not_set_aside() -> None:
    several = (aside(1, 2, decision=3), aside(5, decision=4, partition=1))
    selection = set_asides.selection(several, "pos:0=2,7-9")
    assert [sorted(one.offsets) for one in selection] == [[2]]
    assert set_asides.count(set_asides.without(several, selection)) == 2
    assert set_asides.selection(several, "4") == several[1:]
    assert set_asides.selection(several, "all") == several
    assert set_asides.selection(several, "5") == ()


@pytest.mark.parametrize("text", ["", "pos", "pos=1", "pos:x=1", ":0=1", "pos:0=", "pos:0=a", "-1"])
def test_a_selection_without_a_record_set_aside_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        set_asides.check_choice(text)


def test_set_aside_records_survive_their_text() -> None:
    several = (aside(1, 12), aside(3, partition=2), replace(aside(5), mask="0123456789abcdef"))
    assert set_asides.from_list(json.loads(json.dumps(set_asides.as_list(several)))) == several
    assert set_asides.detail(()) == {}


def test_a_null_value_and_an_unreadable_one_have_distinct_hashes() -> None:
    hashes = {set_asides.value_hash(value) for value in (None, b"", b"null")} | {set_asides.UNREADABLE}
    assert len(hashes) == 4
    assert set_asides.value_hash(b"4111", "a key that is long enough") != set_asides.value_hash(b"4111")


@settings(max_examples=300)
@given(st.lists(st.sampled_from(["record", "hole", "broken"]), min_size=1, max_size=20), st.data())
def test_what_a_reader_passes_is_not_a_record(log: list[str], data: st.DataObject) -> None:
    def read(start: int, end: int) -> Iterator[int]:
        for offset in range(start, end):
            if log[offset] == "broken":
                raise BrokerUnreachableError("a CRC error")
            if log[offset] == "record":
                yield offset

    offsets = sorted(data.draw(st.sets(st.integers(0, len(log) - 1), min_size=1)))
    holes = set_asides.holes(offsets, read)
    span = log[offsets[0] : offsets[-1] + 1]
    broken = [offset for offset in range(offsets[0], offsets[-1] + 1) if log[offset] == "broken"]
    assert all(log[offset] == "hole" and offset in offsets for offset in holes)
    assert ("broken" in span) or holes == [offset for offset in offsets if log[offset] == "hole"]
    for hole in (offset for offset in offsets if log[offset] == "hole" and offset not in holes):
        before = any(log[offset] == "record" for offset in range(hole, broken[0]))
        assert not before and hole < broken[-1], "it lies beside what cannot be read"


def test_unreadable_offsets_are_left_out_of_the_ranges() -> None:
    around = set_asides.ranges_around([span(2, 6), span(0, 3, 1)], {("pos", 0): [2, 4, 9], ("pos", 1): [2]})
    assert around == [span(3, 4), span(5, 6), span(0, 2, 1)]
    assert set_asides.ranges_around([span(2, 4)], {("pos", 0): [2, 3]}) == []


def test_set_aside_records_are_described_by_count_and_first_places() -> None:
    assert set_asides.described([aside(4)]) == "1 record, pos[0] at 4"
    assert set_asides.described([aside(*range(7, 12)), aside(1, partition=1)]) == (
        "6 records, pos[0] at 7, 8, 9 and 2 more; pos[1] at 1"
    )
