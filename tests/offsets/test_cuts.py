"""Cutting by time gives prefixes of one total order, whatever the timestamps."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kappa.errors import DataLossError
from kappa.offsets.cuts import Spread, likely_ms, next_cut
from kappa.offsets.vector import Offsets, TopicPartition

YEAR_2099_MS = 4_070_908_800_000

Record = tuple[int, str, int, int]


class Log:
    """An in-memory log of (offset, timestamp) pairs; offsets have holes, as transaction markers leave them."""

    def __init__(self, records: Mapping[TopicPartition, list[tuple[int, int]]]) -> None:
        self.records = records
        self.lookups = 0

    @property
    def end(self) -> Offsets:
        # Not the last record's offset + 1: a transaction marker follows.
        return Offsets.of((at, records[-1][0] + 2 if records else 0) for at, records in self.records.items())

    def index(self, time_ms: int, since: Offsets | None = None) -> Offsets:
        self.lookups += 1
        assert 0 <= time_ms < 2**63, "Kafka gives negative times another meaning, and has no later ones"
        least = since or Offsets()

        def first(at: TopicPartition) -> int:
            later = (o for o, time in self.records[at] if time >= time_ms and o >= (least.get(*at) or 0))
            return next(later, self.end[at])

        return Offsets.of((at, first(at)) for at in self.records)

    def ordered(self, position: Offsets, reached: Mapping[TopicPartition, int]) -> list[Record]:
        """Records from ``position`` on in their total order, by its definition."""
        places = []
        for (topic, partition), records in self.records.items():
            maximum = reached.get((topic, partition), -1)
            for offset, time in records:
                if offset >= (position.get(topic, partition) or 0):
                    maximum = max(maximum, time)
                    places.append((maximum, topic, partition, offset))
        return sorted(places)

    def reached(self, position: Offsets, since: Offsets | None = None) -> dict[TopicPartition, int]:
        """Running maximum before ``position``, as a ledger carries it that began at ``since``."""
        first = since or Offsets()
        before = {
            at: [t for o, t in records if (first.get(*at) or 0) <= o < (position.get(*at) or 0)]
            for at, records in self.records.items()
        }
        return {at: max(times) for at, times in before.items() if times}


def is_between(record: Record, start: Offsets, end: Offsets) -> bool:
    _, topic, partition, offset = record
    return (start.get(topic, partition) or 0) <= offset < (end.get(topic, partition) or 0)


def drain(
    log: Log, sizes: list[int], start: Offsets | None = None, slack: int = 0, carried: Offsets | None = None
) -> list[Record]:
    """All records, slice after slice; each slice in the order that a step sees, with the running maximum carried.

    Args:
        log: the records.
        sizes: of the slices, in turn.
        start: where the first slice starts.
        slack: of each cut.
        carried: from where on maxima are carried; None: from the beginning of the log.
    """
    records: list[Record] = []
    position, turn = start or Offsets(), 0
    while position != log.end:
        reached, size = log.reached(position, carried), sizes[turn % len(sizes)]
        cut = next_cut(log.index, position, log.end, max_records=size, reached_ms=reached, slack=slack)
        assert cut.dominates(position), "it goes forward"
        assert cut != position, "it goes on"
        assert position.count_to(cut) <= size, "it keeps the bound"
        records += [record for record in log.ordered(position, reached) if is_between(record, position, cut)]
        position, turn = cut, turn + 1
    return records


# Few distinct times make many ties; rogue ones lie far from the others, in both directions.
times = st.one_of(
    st.integers(1_000, 1_006), st.sampled_from([-1, 0, 1, YEAR_2099_MS, 2**63 - 1]), st.integers(0, 10**13)
)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    places = draw(st.lists(st.tuples(st.sampled_from(["a", "pos"]), st.integers(0, 2)), max_size=4, unique=True))
    records = {}
    for at in places:
        offset, partition = 0, []
        for time in draw(st.lists(times, max_size=9)):
            offset += draw(st.sampled_from([0, 0, 0, 1, 5]))
            partition.append((offset, time))
            offset += 1
        records[at] = partition
    return Log(records)


@given(logs(), st.lists(st.integers(1, 20), min_size=1, max_size=4), st.integers(0, 20))
@settings(max_examples=200, deadline=None)
@example(Log({("pos", 0): [(0, YEAR_2099_MS), (1, 1_000)], ("pos", 1): [(0, 1_001), (1, 1_002)]}), [1], 0)
@example(Log({("pos", 0): [(0, -1), (1, -1), (2, 5)], ("pos", 1): [(0, -1)]}), [1], 0)
def test_every_way_of_cutting_by_time_gives_the_same_order(log: Log, sizes: list[int], slack: int) -> None:
    assert drain(log, sizes, slack=slack) == log.ordered(Offsets(), {})


@given(logs(), st.integers(1, 20), st.data())
@settings(deadline=None)
def test_a_cut_is_a_prefix_even_from_a_position_chosen_by_arrival(log: Log, size: int, data: st.DataObject) -> None:
    start = Offsets.of((at, data.draw(st.integers(0, end))) for at, end in log.end.items())
    assert drain(log, [size], start) == log.ordered(start, log.reached(start))


@given(logs(), st.lists(st.integers(1, 20), min_size=1, max_size=4), st.integers(0, 20), st.data())
@settings(max_examples=200, deadline=None)
def test_a_replay_from_the_middle_has_one_order_whatever_precedes_it(
    log: Log, sizes: list[int], slack: int, data: st.DataObject
) -> None:
    """As in production, running maxima cover the records that this replay has read, not those before its start."""
    start = Offsets.of((at, data.draw(st.integers(0, end))) for at, end in log.end.items())
    assert drain(log, sizes, start, slack, carried=start) == log.ordered(start, {})


@given(logs(), st.integers(1, 20))
@settings(deadline=None)
def test_a_cut_is_the_furthest_whole_millisecond_within_the_bound(log: Log, size: int) -> None:
    cut = next_cut(log.index, Offsets(), log.end, max_records=size)
    times = {time + more for records in log.records.values() for _, time in records for more in (0, 1)}
    whole = [log.index(time) for time in times if 0 <= time < 2**63] + [log.end]
    fitting = [Offsets().count_to(candidate) for candidate in whole if Offsets().count_to(candidate) <= size]
    spanned = Offsets().count_to(cut)
    assert spanned == (max(fitting, default=0) or min(size, Offsets().count_to(log.end)))


@pytest.mark.parametrize(("size", "expected"), [(2, {0: 2, 1: 0}), (3, {0: 2, 1: 1}), (4, {0: 2, 1: 2})])
def test_a_millisecond_that_exceeds_the_bound_is_cut_by_partition_and_offset(
    size: int, expected: dict[int, int]
) -> None:
    log = Log({("pos", 0): [(0, 7), (1, 7)], ("pos", 1): [(0, 7), (1, 7), (2, 7)]})
    assert next_cut(log.index, Offsets(), Offsets({"pos": {0: 2, 1: 3}}), max_records=size) == Offsets(
        {"pos": expected}
    )


@pytest.mark.parametrize(
    ("size", "expected"), [(1, {0: 1, 1: 0}), (2, {0: 1, 1: 1}), (3, {0: 2, 1: 1}), (4, {0: 2, 1: 2})]
)
def test_the_bound_is_kept_just_below_at_and_above_a_cut(size: int, expected: dict[int, int]) -> None:
    log = Log({("pos", 0): [(0, 1_000), (1, 1_002)], ("pos", 1): [(0, 1_001), (1, 1_003)]})
    assert next_cut(log.index, Offsets(), Offsets({"pos": {0: 2, 1: 2}}), max_records=size) == Offsets(
        {"pos": expected}
    )


def test_a_rogue_timestamp_removed_by_retention_still_orders_later_records() -> None:
    log = Log({("pos", 0): [(5, 1_000), (6, 1_001)], ("pos", 1): [(0, 1_000), (1, 1_001)]})
    position, end = Offsets({"pos": {0: 5, 1: 0}}), Offsets({"pos": {0: 7, 1: 2}})
    reached = {("pos", 0): YEAR_2099_MS}
    cut = next_cut(log.index, position, end, max_records=2, reached_ms=reached)
    assert cut == Offsets({"pos": {0: 5, 1: 2}}), "partition 0 comes last, as its running maximum says"


def test_a_maximum_removed_by_retention_ties_with_other_partitions() -> None:
    log = Log({("pos", 0): [(0, YEAR_2099_MS)], ("pos", 1): [(5, 1_000), (6, 1_001)]})
    position, end = Offsets({"pos": {0: 0, 1: 5}}), Offsets({"pos": {0: 1, 1: 7}})
    cut = next_cut(log.index, position, end, max_records=2, reached_ms={("pos", 1): YEAR_2099_MS})
    assert cut == Offsets({"pos": {0: 1, 1: 6}}), "all three are of one millisecond, partition 0 comes first"


def test_a_rogue_timestamp_before_the_start_does_not_affect_the_cut() -> None:
    log = Log({("pos", 0): [(0, YEAR_2099_MS), (1, 1_000)], ("pos", 1): [(0, 1_000), (1, 1_001)]})
    cut = next_cut(log.index, Offsets({"pos": {0: 1, 1: 0}}), Offsets({"pos": {0: 2, 1: 2}}), max_records=2)
    assert cut == Offsets({"pos": {0: 2, 1: 1}}), "both records of one millisecond, partition 0 first"


def test_a_cut_without_new_records_is_the_end_and_costs_no_lookup() -> None:
    log = Log({("pos", 0): [(0, 1)]})
    assert next_cut(log.index, log.end, log.end, max_records=1) == log.end
    assert log.lookups == 0


def test_an_end_before_the_position_is_refused() -> None:
    with pytest.raises(DataLossError):
        next_cut(Log({}).index, Offsets({"pos": {0: 5}}), Offsets({"pos": {0: 4}}), max_records=1)


def test_a_slice_of_zero_records_is_refused() -> None:
    with pytest.raises(ValueError, match="never end"):
        next_cut(Log({}).index, Offsets(), Offsets(), max_records=0)


@pytest.mark.parametrize(
    ("slack", "near_ms", "most"), [(0, None, 60), (0, 1_700_000_100_000, 32), (250, 1_700_000_100_000, 8)]
)
def test_a_cut_takes_few_lookups(slack: int, near_ms: int | None, most: int) -> None:
    evenly = {("pos", p): [(offset, 1_700_000_000_000 + 40 * offset) for offset in range(20_000)] for p in range(2)}
    log = Log(evenly)
    cut = next_cut(log.index, Offsets(), log.end, max_records=5_000, near_ms=near_ms, slack=slack)
    assert 5_000 - slack <= Offsets().count_to(cut) <= 5_000
    assert log.lookups <= most


def test_slices_after_the_second_take_two_lookups_if_records_are_even() -> None:
    log = Log({("pos", p): [(offset, 1_700_000_000_000 + 40 * offset) for offset in range(20_000)] for p in range(2)})
    positions = [Offsets()]
    looked = []
    while positions[-1] != log.end:
        before, last = log.lookups, positions[-2:]
        near = likely_ms([log.reached(at) for at in last], last[0].count_to(last[-1]), 5_000)
        cut = next_cut(
            log.index, last[-1], log.end, max_records=5_000, reached_ms=log.reached(last[-1]), slack=500, near_ms=near
        )
        positions.append(cut)
        looked.append(log.lookups - before)
    assert len(looked) == 9, "eight of about 4,750 records and the rest"
    assert max(looked[2:]) <= 2


@pytest.mark.parametrize("position", [0, 4_000])
def test_a_first_slice_takes_few_lookups_given_the_times_of_both_ends(position: int) -> None:
    log = Log({("pos", p): [(offset, 1_700_000_000_000 + 40 * offset) for offset in range(20_000)] for p in range(2)})
    start = Offsets.of((at, 0) for at in log.records)
    spread = Spread(start=start, end=log.end, first_ms=1_700_000_000_000, last_ms=1_700_000_000_000 + 40 * 19_999)
    here = Offsets.of((at, position) for at in log.records)

    near = spread.likely_ms(here, 5_000)
    cut = next_cut(log.index, here, log.end, max_records=5_000, reached_ms={}, slack=500, near_ms=near)

    assert 4_500 <= here.count_to(cut) <= 5_000
    assert log.lookups <= 3, "thirty without"


def test_times_at_the_ends_of_another_log_are_ignored() -> None:
    here, there = (Offsets.of([((topic, 0), 10)]) for topic in ("pos", "other"))
    spread = Spread(start=here, end=here, first_ms=5, last_ms=5)
    assert spread.likely_ms(there, 100) is None
    assert spread.likely_ms(here, 100) == 5


def test_a_guess_needs_a_slice_with_times_before_and_after_it() -> None:
    assert likely_ms([], 0, 100) is None
    assert likely_ms([{("pos", 0): 5}], 10, 100) is None
    assert likely_ms([{}, {("pos", 0): 5}], 10, 100) is None
    assert likely_ms([{("pos", 0): 1_000}, {("pos", 0): 3_000}], 0, 100) is None
    assert likely_ms([{("pos", 0): 1_000}, {("pos", 0): 3_000}], 50, 100) == 6_800
