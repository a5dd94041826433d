"""Offset arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappa.errors import DataLossError, LedgerError
from kappa.offsets.vector import (
    OffsetRange,
    Offsets,
    joins,
    ranges_end,
    ranges_from_json,
    ranges_start,
    ranges_to_json,
    uncovered,
)

partitions = st.tuples(st.sampled_from(["pos", "stores"]), st.integers(0, 11))
vectors = st.dictionaries(partitions, st.integers(0, 50), max_size=6).map(lambda items: Offsets.of(items.items()))


def pos(start: int, end: int, partition: int = 0) -> OffsetRange:
    return OffsetRange(topic="pos", partition=partition, start=start, end=end)


@pytest.mark.parametrize(("partition", "start", "end"), [(-1, 0, 1), (0, -1, 1), (0, 5, 4)])
def test_an_impossible_range_is_refused(partition: int, start: int, end: int) -> None:
    with pytest.raises(ValueError, match="not an offset range"):
        pos(start, end, partition)


@pytest.mark.parametrize(("end", "count"), [(5, 0), (6, 1), (7, 2)])
def test_a_range_spans_from_its_start_to_before_its_end(end: int, count: int) -> None:
    assert (pos(5, end).count, pos(5, end).is_empty) == (count, count == 0)


def test_a_vector_reads_and_writes_the_form_of_spark() -> None:
    offsets = Offsets({"pos": {10: 7, 2: 5}, "a": {0: 0}})
    assert offsets.to_json() == '{"a":{"0":0},"pos":{"2":5,"10":7}}'
    assert offsets.get("pos", 10) == 7
    assert offsets.get("pos", 3) is None
    assert offsets.topics == ("a", "pos")


@pytest.mark.parametrize(
    "text", ['{"pos":{"0":-1}}', '{"pos":{"0":true}}', '{"pos":{"0":1.5}}', '{"pos":5}', "[1]", "{"]
)
def test_text_that_is_not_a_vector_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not topic|are 0 or more|Expecting"):
        Offsets.from_json(text)


@given(vectors)
def test_a_vector_survives_json_and_is_sorted(offsets: Offsets) -> None:
    assert Offsets.from_json(offsets.to_json()) == offsets
    assert hash(Offsets.from_json(offsets.as_dict())) == hash(offsets)
    assert list(offsets.items()) == sorted(offsets.items())


@given(vectors, vectors)
def test_merging_prefers_the_other_vector_where_it_names_a_partition(left: Offsets, right: Offsets) -> None:
    merged = left.merge(right)
    assert all(merged[at] == (right[at] if at in right else left[at]) for at in merged)
    assert set(merged) == set(left) | set(right)


@given(vectors, vectors)
def test_a_span_exists_only_if_the_end_names_all_partitions_and_dominates(start: Offsets, end: Offsets) -> None:
    if set(start) <= set(end) and end.dominates(start):
        ranges = start.span_to(end)
        assert ranges_end(ranges) == end
        assert all(range_.start == (start.get(*range_.at) or 0) for range_ in ranges)
        assert start.count_to(end) == sum(range_.count for range_ in ranges)
    else:
        with pytest.raises(DataLossError):
            start.span_to(end)


@given(vectors, vectors, vectors)
def test_dominance_is_a_partial_order(a: Offsets, b: Offsets, c: Offsets) -> None:
    assert a.dominates(a)
    assert not (a.dominates(b) and b.dominates(c)) or a.dominates(c)


@pytest.mark.parametrize(("offset", "dominates"), [(4, False), (5, True), (6, True)])
def test_dominance_is_componentwise(offset: int, dominates: bool) -> None:
    assert Offsets({"pos": {0: 9, 1: offset}}).dominates(Offsets({"pos": {0: 9, 1: 5}})) is dominates


def test_a_span_ending_before_its_start_names_partition_and_numbers() -> None:
    with pytest.raises(DataLossError, match=r"pos\[1\] was read up to 7, but the end is at 6"):
        Offsets({"pos": {1: 7}}).span_to(Offsets({"pos": {1: 6}}))


def test_a_partition_that_appears_later_starts_at_zero() -> None:
    assert Offsets({"pos": {0: 5}}).span_to(Offsets({"pos": {0: 5, 1: 3}})) == (pos(5, 5), pos(0, 3, 1))


def test_a_slice_names_each_partition_once() -> None:
    with pytest.raises(LedgerError):
        ranges_end([pos(0, 1), pos(1, 2)])


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ([pos(5, 9)], True),
        ([pos(4, 9)], False),
        ([pos(6, 9)], False),
        ([pos(5, 5), pos(0, 2, 1)], True),
        ([pos(5, 5), pos(1, 2, 1)], False),
        ([], True),
    ],
)
def test_slices_join_if_one_starts_where_the_other_ends(later: list[OffsetRange], expected: bool) -> None:
    assert joins([pos(0, 5)], later) is expected


@given(vectors, st.data())
def test_any_division_of_a_span_covers_it_exactly(end: Offsets, data: st.DataObject) -> None:
    ranges: list[OffsetRange] = []
    position = Offsets()
    for _ in range(data.draw(st.integers(0, 4))):
        reach = Offsets.of((at, data.draw(st.integers(position.get(*at) or 0, last))) for at, last in end.items())
        later = position.span_to(reach)
        assert joins(position.span_to(position), later)
        ranges += later
        position = reach
    ranges += position.span_to(end)
    assert uncovered(data.draw(st.permutations(ranges)), Offsets(), end).is_exact


spans = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda ends: pos(min(ends), max(ends)))


@given(st.lists(spans, max_size=5), spans)
def test_coverage_agrees_with_counting_offsets_one_by_one(ranges: list[OffsetRange], goal: OffsetRange) -> None:
    start, end = ranges_start([goal]), ranges_end([goal])
    coverage = uncovered(ranges, start, end)

    def covered(part: tuple[OffsetRange, ...]) -> list[int]:
        return sorted(offset for range_ in part for offset in range(range_.start, range_.end))

    times = {offset: sum(r.start <= offset < r.end for r in ranges) for offset in range(13)}
    inside = range(goal.start, goal.end)
    assert covered(coverage.gaps) == [offset for offset in inside if times[offset] == 0]
    assert covered(coverage.overlaps) == [offset for offset in inside for _ in range(times[offset] - 1)]
    assert covered(coverage.outside) == [o for o, count in times.items() if o not in inside for _ in range(count)]


def test_coverage_names_ranges_of_partitions_outside_the_goal() -> None:
    assert uncovered([pos(0, 3, 7)], Offsets(), Offsets()).outside == (pos(0, 3, 7),)


@given(vectors, vectors)
def test_ranges_survive_json(start: Offsets, more: Offsets) -> None:
    end = start.merge(Offsets.of((at, (start.get(*at) or 0) + offset) for at, offset in more.items()))
    ranges = start.span_to(end)
    assert ranges_from_json(ranges_to_json(reversed(ranges))) == ranges


def test_ranges_are_written_compactly() -> None:
    assert ranges_to_json([pos(5, 9)]) == '{"pos":{"0":[5,9]}}'


def test_a_vector_has_zero_for_a_later_partition() -> None:
    before = Offsets({"pos": {0: 5}})
    assert before.naming([("pos", 0), ("pos", 1)]) == Offsets({"pos": {0: 5, 1: 0}})
    assert before.naming([]) == before


def test_vectors_of_different_topics_are_compared_on_common_topics() -> None:
    live, replay = Offsets({"pos": {0: 5}, "old": {0: 9}}), Offsets({"pos": {0: 5, 1: 0}, "new": {0: 3}})
    assert live.beside(replay) == replay.beside(live) == Offsets({"pos": {0: 5, 1: 0}})
    assert live.beside(replay.with_("pos", 1, 1)) != replay.with_("pos", 1, 1).beside(live)
    assert live.beside(Offsets({"new": {0: 1}})) == Offsets()
