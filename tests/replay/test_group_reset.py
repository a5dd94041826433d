"""Law 9 for consumer groups: set exactly as asked, or refused with the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kappa.errors import RefusedError, UsageError
from kappa.offsets.vector import Offsets
from kappa.replay.findings import Finding
from kappa.replay.group_reset import GroupFacts, GroupRequest, GroupReset, build_reset
from kappa.replay.starts import (
    ByDuration,
    FromMarker,
    FromSavepoint,
    ShiftBy,
    ToCurrent,
    ToDatetime,
    ToEarliest,
    ToLatest,
    ToOffset,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ALL: Mapping[str, Sequence[int] | None] = {"pos": None}


def pos(*offsets: int) -> Offsets:
    return Offsets({"pos": dict(enumerate(offsets))})


FACTS = GroupFacts(
    offsets=pos(40, 50).with_("other", 0, 3),
    exists=True,
    members=0,
    low=pos(10, 0),
    high=pos(100, 80),
    stable=pos(95, 80),
)


def reset(start: Any, facts: GroupFacts = FACTS, partitions: Any = ALL, group: str = "reports") -> GroupReset:
    return build_reset(GroupRequest(group=group, start=start, partitions=partitions), facts, now=NOW)


def only(group_reset: GroupReset) -> Finding:
    assert len(group_reset.findings) == 1, group_reset.findings
    return group_reset.findings[0]


@pytest.mark.parametrize(
    ("start", "after"),
    [
        (ToEarliest(), pos(10, 0)),
        (ToLatest(), pos(100, 80)),
        (ToCurrent(), pos(40, 50)),
        (ShiftBy(by=-30), pos(10, 20)),
        (ShiftBy(by=30), pos(70, 80)),
        (ToOffset(offsets=Offsets({"pos": {0: 12}}), topics={"pos": 7}), pos(12, 7)),
    ],
)
def test_each_verb_sets_every_selected_partition(start: Any, after: Offsets) -> None:
    group_reset = reset(start)
    assert (group_reset.before, group_reset.after, group_reset.findings) == (pos(40, 50), after, ())
    group_reset.check()


def test_only_the_selected_partitions_are_set() -> None:
    assert reset(ToEarliest(), partitions={"pos": (1,)}).after == Offsets({"pos": {1: 0}})


def test_named_offsets_select_their_own_partitions() -> None:
    named = ToOffset(offsets=Offsets({"pos": {1: 7}}))
    assert reset(named, partitions={}).after == Offsets({"pos": {1: 7}})
    assert only(reset(named)).code == "start-lacks-partition", "all partitions of the topic were selected"
    assert reset(ToOffset(topics={"pos": 20}), partitions={}).after == pos(20, 20)


@pytest.mark.parametrize("partitions", [{}, {"pos": (0,)}])
def test_a_name_outside_the_selection_is_refused(partitions: Any) -> None:
    group_reset = reset(ToOffset(offsets=pos(12, 7).with_("pos", 2, 9)), partitions=partitions)
    assert {finding.code for finding in group_reset.refusals} == {"start-names-unknown"}


def test_a_reset_without_a_selection_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="No partition is selected"):
        reset(ToEarliest(), partitions={})


@pytest.mark.parametrize("start", [FromSavepoint(seq=1), FromMarker()])
def test_a_group_cannot_start_from_an_epoch(start: Any) -> None:
    with pytest.raises(UsageError, match="for replays only"):
        reset(start)


@pytest.mark.parametrize(("first", "is_refused"), [(9, True), (10, False), (100, False), (101, True)])
def test_an_offset_outside_the_log_is_refused_where_kafkas_tool_clamps(first: int, is_refused: bool) -> None:
    group_reset = reset(ToOffset(offsets=pos(first, 0)))
    assert group_reset.is_refused is is_refused
    if is_refused:
        assert only(group_reset).code == "offset-outside-log"
        assert f"Offset {first} of pos[0] is outside the log, which holds 10 to 100" in only(group_reset).message


@pytest.mark.parametrize(("by", "is_refused"), [(-31, True), (-30, False), (30, False), (31, True)])
def test_a_shift_outside_of_the_log_is_refused(by: int, is_refused: bool) -> None:
    group_reset = reset(ShiftBy(by=by))
    assert [finding.code for finding in group_reset.findings] == (["shift-outside-log"] if is_refused else [])
    if is_refused:
        assert (group_reset.after, only(group_reset).numbers["least"], only(group_reset).numbers["most"]) == (
            Offsets(),
            -30,
            30,
        )


@pytest.mark.parametrize("start", [ShiftBy(by=1), ToCurrent()])
def test_a_partition_without_an_offset_cannot_be_shifted(start: Any) -> None:
    finding = only(reset(start, replace(FACTS, offsets=Offsets({"pos": {0: 40}}))))
    assert (finding.code, finding.numbers["partitions"]) == ("group-without-offset", ["pos[1]"])


def test_to_current_refuses_an_offset_that_retention_overtook() -> None:
    assert only(reset(ToCurrent(), replace(FACTS, offsets=pos(9, 50)))).code == "offset-outside-log"


@pytest.mark.parametrize(
    ("partitions", "message"),
    [
        ({"pso": None}, "There is no topic 'pso' on this broker."),
        ({"pos": (0, 2)}, "There is no partition 2 of 'pos'; it has 2, 0 to 1."),
    ],
)
def test_an_unknown_topic_or_partition_is_refused(partitions: Any, message: str) -> None:
    finding = only(reset(ToEarliest(), partitions=partitions))
    assert (finding.code, finding.message) == ("unknown-partition", message)


def test_a_group_with_members_is_refused() -> None:
    finding = only(reset(ToEarliest(), replace(FACTS, members=2)))
    assert (finding.code, finding.numbers["members"]) == ("group-has-members", 2)


def test_the_group_of_an_epoch_is_refused_in_favour_of_a_replay() -> None:
    finding = only(reset(ToEarliest(), group="kappa.retail.loyalty.e0007"))
    assert (finding.code, finding.numbers["topology"]) == ("group-of-epoch", "retail.loyalty")
    assert "`kappa replay retail.loyalty`" in finding.remedy
    assert not reset(ToEarliest(), group="kappa.verify.report").findings


def test_a_new_group_is_a_warning() -> None:
    group_reset = reset(ToEarliest(), replace(FACTS, offsets=Offsets(), exists=False))
    assert (only(group_reset).code, group_reset.is_refused) == ("group-is-new", False)


def by_time(first: int | None, second: int | None) -> GroupFacts:
    return replace(FACTS, first_records={("pos", 0): first, ("pos", 1): second})


@pytest.mark.parametrize("start", [ToDatetime(at=NOW), ByDuration(duration=timedelta(hours=1))])
def test_a_time_is_the_first_record_that_reaches_it(start: Any) -> None:
    assert reset(start, by_time(60, 7)).after == pos(60, 7)
    with pytest.raises(ValueError, match="first_records"):
        reset(start)


def test_a_time_without_a_record_is_refused_where_kafkas_tool_takes_the_end() -> None:
    group_reset = reset(ToDatetime(at=NOW), by_time(None, None))
    assert (only(group_reset).code, group_reset.after) == ("time-without-record", Offsets())


def test_a_quiet_partition_begins_at_its_stable_end_and_is_reported() -> None:
    group_reset = reset(ToDatetime(at=NOW), by_time(None, 7))
    assert (group_reset.after, only(group_reset).code, group_reset.is_refused) == (
        pos(95, 7),
        "quiet-partitions",
        False,
    )


@pytest.mark.parametrize(("first", "is_refused"), [(10, True), (11, False)])
def test_a_time_in_the_range_removed_by_retention_is_refused(first: int, is_refused: bool) -> None:
    group_reset = reset(ToDatetime(at=NOW), by_time(first, 0))
    assert [f.code for f in group_reset.refusals] == (["group-time-below-low-watermark"] if is_refused else [])


def test_a_refused_reset_raises_when_checked() -> None:
    with pytest.raises(RefusedError, match="Setting group 'reports' is refused"):
        reset(ToEarliest(), replace(FACTS, members=1)).check()


def test_all_findings_are_reported_at_once() -> None:
    group_reset = reset(ToOffset(offsets=pos(9, 81)), replace(FACTS, members=1), group="kappa.a.e0001")
    codes = ["group-of-epoch", "group-has-members", "offset-outside-log", "offset-outside-log"]
    assert [finding.code for finding in group_reset.findings] == codes
