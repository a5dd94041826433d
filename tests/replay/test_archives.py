"""Facts derived from the chunks of an archive, and their use in plans."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kappa.errors import DataLossError
from kappa.offsets.coverage import (
    ArchiveFacts,
    Chunk,
    archive_facts,
    bounded,
    carried,
    common,
    first_readable,
    from_archive,
    joined,
    without,
)
from kappa.offsets.vector import OffsetRange, Offsets, uncovered
from kappa.replay.building import build_plan
from kappa.replay.facts import Facts, LogFacts, SourceFacts, TopologyFacts
from kappa.replay.plan import ReplayPlan
from kappa.replay.request import ReplayRequest
from kappa.replay.starts import ToEarliest, ToOffset

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def part(start: int, end: int, partition: int = 0) -> OffsetRange:
    return OffsetRange(topic="pos", partition=partition, start=start, end=end)


def chunk(start: int, end: int, *, seq: int = 1, rows: int | None = None, max_ms: int | None = 0) -> Chunk:
    return Chunk(seq=seq, range=part(start, end), rows=end - start if rows is None else rows, max_ms=max_ms)


def facts(*covered: OffsetRange, whole: tuple[OffsetRange, ...] = (), topic_id: str = "id") -> dict[str, ArchiveFacts]:
    return {"pos": ArchiveFacts(topic="pos", topic_id=topic_id, covered=covered, whole=whole)}


class TestRanges:
    def test_adjacent_ranges_are_joined_and_a_gap_stays(self) -> None:
        assert joined([part(5, 9), part(0, 5), part(10, 12), part(3, 3), part(0, 2, 1)]) == (
            part(0, 9),
            part(10, 12),
            part(0, 2, 1),
        )

    def test_a_chunk_with_holes_covers_its_range_but_is_not_whole(self) -> None:
        archive = archive_facts("pos", "id", [chunk(0, 5), chunk(5, 9, seq=2, rows=3), chunk(9, 12, seq=3)])
        assert archive.covered == (part(0, 12),)
        assert archive.whole == (part(0, 5), part(9, 12))

    def test_intersection_and_difference_of_ranges(self) -> None:
        assert common([part(0, 10), part(0, 4, 1)], [part(3, 7)]) == (part(3, 7),)
        assert common([part(0, 3)], [part(3, 7)]) == ()
        assert without([part(0, 10), part(2, 4, 1)], [part(0, 10), part(2, 3, 1)]) == (part(3, 4, 1),)

    @given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=6), st.integers(1, 120))
    def test_bounded_work_takes_up_to_its_bound_and_no_offset_twice(
        self, sizes: list[tuple[int, int]], most: int
    ) -> None:
        position = Offsets({"pos": {p: start for p, (start, _) in enumerate(sizes)}})
        end = Offsets({"pos": {p: start + size for p, (start, size) in enumerate(sizes)}})
        work = bounded(position, end, most)
        assert sum(r.count for r in work) == min(most, position.count_to(end))
        assert [r.at for r in work] == list(end)
        assert not uncovered(work, position, end).overlaps and not uncovered(work, position, end).outside

    def test_bounded_work_is_refused_where_the_log_ends_before_the_archive(self) -> None:
        with pytest.raises(DataLossError):
            bounded(Offsets({"pos": {0: 5}}), Offsets({"pos": {0: 4}}), 10)


class TestRunningMaximum:
    def test_a_running_maximum_is_carried_over_from_earlier_chunks(self) -> None:
        chunks = [chunk(0, 5, seq=1, max_ms=70), chunk(5, 9, seq=2, max_ms=60), chunk(9, 12, seq=3, max_ms=90)]
        assert carried(chunks, [part(2, 12)], {0: 50}) == {(0, 1): 50, (0, 2): 70, (0, 3): 70}

    def test_the_first_chunk_has_none_without_a_history(self) -> None:
        assert carried([chunk(0, 5, seq=1, max_ms=70), chunk(5, 9, seq=2)], [part(0, 9)], {}) == {(0, 2): 70}

    def test_empty_and_unrelated_chunks_change_nothing(self) -> None:
        chunks = [chunk(0, 5, seq=1, max_ms=99), chunk(5, 9, seq=2, rows=0, max_ms=None), chunk(9, 12, seq=3)]
        assert carried(chunks, [part(5, 12)], {0: 50}) == {(0, 2): 50, (0, 3): 50}


class TestReadableRanges:
    @pytest.mark.parametrize(
        ("covered", "low"),
        [((0, 99), 100), ((0, 100), 0), ((0, 101), 0), ((40, 250), 40), ((100, 250), 100), ((101, 250), 100)],
    )
    def test_an_archive_counts_when_it_reaches_the_log(self, covered: tuple[int, int], low: int) -> None:
        first = first_readable(Offsets({"pos": {0: 100}}), facts(part(*covered)), {"pos": "id"})
        assert first == Offsets({"pos": {0: low}})

    def test_an_archive_of_another_topic_does_not_count(self) -> None:
        low = Offsets({"pos": {0: 100}})
        assert first_readable(low, facts(part(0, 200)), {"pos": "new"}) == low

    def test_a_span_is_taken_from_its_start_up_to_the_first_gap(self) -> None:
        end = Offsets({"pos": {0: 50, 1: 50, 2: 50}})
        archives = facts(part(0, 20), part(30, 60), part(10, 60, 1), part(0, 90, 2))
        ranges = from_archive(Offsets({"pos": {0: 5, 1: 5, 2: 5}}), end, archives, {"pos": "id"})
        assert ranges == (part(5, 20), part(5, 50, 2))


def plan(archives: dict[str, ArchiveFacts], *, cleanup: str = "delete", low: int = 0, **fields: Any) -> ReplayPlan:
    log = LogFacts(
        low=Offsets({"pos": {0: low}}),
        high=Offsets({"pos": {0: 90}}),
        stable=Offsets({"pos": {0: 90}}),
        topic_ids={"pos": "id"},
        cleanup={"pos": cleanup},
    )
    topology = TopologyFacts(name="t.t", version="1", code="c", sources=(SourceFacts(topic="pos"),), tables=("x",))
    request = ReplayRequest(**{"topology": "t.t", "start": ToEarliest(), "reason": "r", "actor": "a", **fields})
    return build_plan(request, Facts(topology=topology, log=log, next_epoch=1, archives=archives), now=NOW)


class TestPlans:
    def test_a_plan_names_archived_ranges_and_survives_json(self) -> None:
        with_archive = plan(facts(part(0, 60)), low=30)
        assert (with_archive.start, with_archive.archived) == (Offsets({"pos": {0: 0}}), (part(0, 60),))
        assert ReplayPlan.from_json(with_archive.to_json()) == with_archive

    def test_a_plan_without_an_archive_keeps_its_former_id(self) -> None:
        without_archive = plan({})
        assert "archive" not in without_archive.to_json()
        assert plan(facts(part(0, 60)), archive=False).archived == ()
        assert replace(without_archive, archived=(part(0, 1),), id="").id != without_archive.id

    @pytest.mark.parametrize(("end", "is_refused"), [(29, True), (30, False), (31, False)])
    def test_records_lost_by_the_log_are_available_if_the_archive_reaches_it(self, end: int, is_refused: bool) -> None:
        with_archive = plan(facts(part(0, end)), low=30, start=ToOffset(offsets=Offsets({"pos": {0: 10}}), topics={}))
        assert with_archive.is_refused == is_refused

    @pytest.mark.parametrize(
        ("whole", "code"),
        [((0, 90), "compacted-source-archived"), ((0, 89), "compacted-source"), ((1, 90), "compacted-source")],
    )
    def test_a_compacted_source_needs_every_offset_of_the_plan(self, whole: tuple[int, int], code: str) -> None:
        archives = facts(part(0, 90), whole=(part(*whole),))
        assert [f.code for f in plan(archives, cleanup="compact").findings] == [code]
        assert plan(archives, cleanup="compact", allow=frozenset({"compacted-source"})).is_refused is False

    def test_an_archive_of_another_topic_is_reported_and_not_used(self) -> None:
        with_archive = plan(facts(part(0, 90), topic_id="old"))
        assert [f.code for f in with_archive.warnings] == ["archive-of-another-topic"]
        assert with_archive.archived == ()

    def test_an_archive_that_ends_before_the_log_begins_is_reported(self) -> None:
        with_archive = plan(facts(part(0, 29)), low=30)
        assert [
            (f.code, f.numbers["archived"], f.numbers["low"])
            for f in with_archive.warnings
            if f.code != "partial-history"
        ] == [("archive-behind-log", 29, 30)]
