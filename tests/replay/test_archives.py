"""What can be concluded from the chunks of an archive, and what plans make of it."""

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
    def test_those_that_touch_are_joined_and_a_gap_stays(self) -> None:
        assert joined([part(5, 9), part(0, 5), part(10, 12), part(3, 3), part(0, 2, 1)]) == (
            part(0, 9),
            part(10, 12),
            part(0, 2, 1),
        )

    def test_a_chunk_with_holes_covers_its_range_and_is_not_whole(self) -> None:
        found = archive_facts("pos", "id", [chunk(0, 5), chunk(5, 9, seq=2, rows=3), chunk(9, 12, seq=3)])
        assert found.covered == (part(0, 12),)
        assert found.whole == (part(0, 5), part(9, 12))

    def test_what_is_common_and_what_is_left(self) -> None:
        assert common([part(0, 10), part(0, 4, 1)], [part(3, 7)]) == (part(3, 7),)
        assert common([part(0, 3)], [part(3, 7)]) == ()
        assert without([part(0, 10), part(2, 4, 1)], [part(0, 10), part(2, 3, 1)]) == (part(3, 4, 1),)

    @given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=6), st.integers(1, 120))
    def test_bounded_work_takes_all_that_it_may_and_no_offset_twice(
        self, sizes: list[tuple[int, int]], most: int
    ) -> None:
        position = Offsets({"pos": {p: start for p, (start, _) in enumerate(sizes)}})
        end = Offsets({"pos": {p: start + size for p, (start, size) in enumerate(sizes)}})
        taken = bounded(position, end, most)
        assert sum(r.count for r in taken) == min(most, position.count_to(end))
        assert [r.at for r in taken] == list(end)
        assert not uncovered(taken, position, end).overlaps and not uncovered(taken, position, end).outside

    def test_bounded_work_is_refused_where_the_log_ends_before_the_archive(self) -> None:
        with pytest.raises(DataLossError):
            bounded(Offsets({"pos": {0: 5}}), Offsets({"pos": {0: 4}}), 10)


class TestRunningMaximum:
    def test_a_running_maximum_is_carried_over_chunks_from_what_was_there_before(self) -> None:
        chunks = [chunk(0, 5, seq=1, max_ms=70), chunk(5, 9, seq=2, max_ms=60), chunk(9, 12, seq=3, max_ms=90)]
        assert carried(chunks, [part(2, 12)], {0: 50}) == {(0, 1): 50, (0, 2): 70, (0, 3): 70}

    def test_the_first_chunk_has_none_without_a_history(self) -> None:
        assert carried([chunk(0, 5, seq=1, max_ms=70), chunk(5, 9, seq=2)], [part(0, 9)], {}) == {(0, 2): 70}

    def test_a_chunk_without_records_and_one_outside_change_nothing(self) -> None:
        chunks = [chunk(0, 5, seq=1, max_ms=99), chunk(5, 9, seq=2, rows=0, max_ms=None), chunk(9, 12, seq=3)]
        assert carried(chunks, [part(5, 12)], {0: 50}) == {(0, 2): 50, (0, 3): 50}


class TestWhatIsReadable:
    @pytest.mark.parametrize(
        ("covered", "low"),
        [((0, 99), 100), ((0, 100), 0), ((0, 101), 0), ((40, 250), 40), ((100, 250), 100), ((101, 250), 100)],
    )
    def test_an_archive_counts_when_it_reaches_the_log(self, covered: tuple[int, int], low: int) -> None:
        found = first_readable(Offsets({"pos": {0: 100}}), facts(part(*covered)), {"pos": "id"})
        assert found == Offsets({"pos": {0: low}})

    def test_an_archive_of_another_topic_does_not_count(self) -> None:
        low = Offsets({"pos": {0: 100}})
        assert first_readable(low, facts(part(0, 200)), {"pos": "new"}) == low

    def test_a_span_is_taken_from_its_start_as_far_as_it_is_covered(self) -> None:
        end = Offsets({"pos": {0: 50, 1: 50, 2: 50}})
        archives = facts(part(0, 20), part(30, 60), part(10, 60, 1), part(0, 90, 2))
        found = from_archive(Offsets({"pos": {0: 5, 1: 5, 2: 5}}), end, archives, {"pos": "id"})
        assert found == (part(5, 20), part(5, 50, 2))


def plan(archives: dict[str, ArchiveFacts], *, cleanup: str = "delete", low: int = 0, **asked: Any) -> ReplayPlan:
    log = LogFacts(
        low=Offsets({"pos": {0: low}}),
        high=Offsets({"pos": {0: 90}}),
        stable=Offsets({"pos": {0: 90}}),
        topic_ids={"pos": "id"},
        cleanup={"pos": cleanup},
    )
    topology = TopologyFacts(name="t.t", version="1", code="c", sources=(SourceFacts(topic="pos"),), tables=("x",))
    request = ReplayRequest(**{"topology": "t.t", "start": ToEarliest(), "reason": "r", "actor": "a", **asked})
    return build_plan(request, Facts(topology=topology, log=log, next_epoch=1, archives=archives), now=NOW)


class TestPlans:
    def test_a_plan_says_what_comes_from_the_archive_and_survives_its_json(self) -> None:
        made = plan(facts(part(0, 60)), low=30)
        assert (made.start, made.archived) == (Offsets({"pos": {0: 0}}), (part(0, 60),))
        assert ReplayPlan.from_json(made.to_json()) == made

    def test_a_plan_without_an_archive_is_the_same_as_before_there_were_any(self) -> None:
        made = plan({})
        assert "archive" not in made.to_json()
        assert plan(facts(part(0, 60)), archive=False).archived == ()
        assert replace(made, archived=(part(0, 1),), id="").id != made.id

    @pytest.mark.parametrize(("end", "is_refused"), [(29, True), (30, False), (31, False)])
    def test_records_that_the_log_lost_are_there_if_the_archive_reaches_the_log(
        self, end: int, is_refused: bool
    ) -> None:
        made = plan(facts(part(0, end)), low=30, start=ToOffset(offsets=Offsets({"pos": {0: 10}}), topics={}))
        assert made.is_refused == is_refused

    @pytest.mark.parametrize(
        ("whole", "code"),
        [((0, 90), "compacted-source-archived"), ((0, 89), "compacted-source"), ((1, 90), "compacted-source")],
    )
    def test_a_compacted_source_needs_every_offset_of_the_plan(self, whole: tuple[int, int], code: str) -> None:
        archives = facts(part(0, 90), whole=(part(*whole),))
        assert [f.code for f in plan(archives, cleanup="compact").findings] == [code]
        assert plan(archives, cleanup="compact", allow=frozenset({"compacted-source"})).is_refused is False

    def test_an_archive_of_another_topic_is_named_and_not_used(self) -> None:
        made = plan(facts(part(0, 90), topic_id="old"))
        assert [f.code for f in made.warnings] == ["archive-of-another-topic"]
        assert made.archived == ()

    def test_an_archive_that_the_log_has_left_behind_is_named(self) -> None:
        made = plan(facts(part(0, 29)), low=30)
        assert [
            (f.code, f.numbers["archived"], f.numbers["low"]) for f in made.warnings if f.code != "partial-history"
        ] == [("archive-behind-log", 29, 30)]
