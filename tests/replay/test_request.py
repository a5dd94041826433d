"""Valid and invalid requests for a replay."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from kappa.errors import UsageError
from kappa.offsets.vector import Offsets
from kappa.replay.request import ReplayRequest, Seed
from kappa.replay.starts import (
    ByDuration,
    FromMarker,
    FromSavepoint,
    ShiftBy,
    Start,
    ToDatetime,
    ToEarliest,
    ToLatest,
    ToOffset,
)

AT = datetime(2026, 2, 1, tzinfo=UTC)


EARLIEST = ToEarliest()


def request(start: Start = EARLIEST, **changes: Any) -> ReplayRequest:
    return ReplayRequest(**{"topology": "retail.loyalty", "start": start, "reason": "v2", "actor": "ana", **changes})


@pytest.mark.parametrize(
    ("start", "seed"),
    [
        (ToEarliest(), Seed.EMPTY),
        (ToLatest(), Seed.EMPTY),
        (ToDatetime(at=AT), Seed.EMPTY),
        (ByDuration(duration=timedelta(days=7)), Seed.EMPTY),
        (ShiftBy(by=-1), Seed.EMPTY),
        (ToOffset(topics={"pos": 5}), Seed.EMPTY),
        (FromSavepoint(seq=5), Seed.FROM_SAVEPOINT),
        (FromMarker(), Seed.FROM_CHANGELOG),
    ],
)
def test_each_start_has_its_default_seed(start: Start, seed: Seed) -> None:
    assert request(start).resolved_seed is seed


def test_a_savepoint_can_be_a_start_without_its_tables() -> None:
    assert request(FromSavepoint(seq=5), seed=Seed.EMPTY).resolved_seed is Seed.EMPTY


@pytest.mark.parametrize(
    ("start", "seed"),
    [
        (ToEarliest(), Seed.FROM_SAVEPOINT),
        (ToEarliest(), Seed.FROM_CHANGELOG),
        (ToDatetime(at=AT), Seed.FROM_SAVEPOINT),
        (FromSavepoint(seq=1), Seed.FROM_CHANGELOG),
        (FromMarker(), Seed.EMPTY),
        (FromMarker(), Seed.FROM_SAVEPOINT),
    ],
)
def test_a_seed_from_another_moment_than_the_start_is_refused(start: Start, seed: Seed) -> None:
    with pytest.raises(UsageError):
        request(start, seed=seed)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(UsageError, match="has no zone"):
        ToDatetime(at=AT.replace(tzinfo=None))
    with pytest.raises(UsageError, match="has no zone"):
        FromSavepoint(at=AT.replace(tzinfo=None))


def test_a_time_is_converted_to_utc() -> None:
    assert ToDatetime(at=datetime(2026, 2, 1, 2, tzinfo=timezone(timedelta(hours=2)))).at.isoformat() == AT.isoformat()


@pytest.mark.parametrize("parts", [{}, {"seq": 1, "at": AT}, {"seq": 1, "name": "a"}])
def test_a_savepoint_is_named_in_only_one_way(parts: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="one of them"):
        FromSavepoint(**parts)


def test_only_allowable_findings_can_be_allowed() -> None:
    with pytest.raises(UsageError, match="recreated-topic"):
        request(allow=frozenset({"recreated-topic"}))


@pytest.mark.parametrize("size", [0, -1])
def test_a_slice_spans_at_least_one_offset(size: int) -> None:
    with pytest.raises(UsageError):
        request(slice_records=size)
    assert request(slice_records=1).slice_records == 1


@pytest.mark.parametrize(
    "original",
    [
        request(),
        request(ToDatetime(at=AT), end=Offsets({"pos": {0: 5}}), allow={"partial-history"}, slice_records=7),
        request(FromSavepoint(seq=0)),
        request(FromSavepoint(at=AT), seed=Seed.EMPTY),
        request(FromSavepoint(name="before-the-sale")),
        request(FromMarker(epoch=3)),
        request(ToLatest()),
        request(ByDuration(duration=timedelta(days=7, hours=1, seconds=0.25))),
        request(ShiftBy(by=-1000)),
        request(ToOffset(offsets=Offsets({"pos": {0: 5}}), topics={"pos": 7, "other": 0}, file="offsets.csv")),
    ],
)
def test_a_request_survives_json_values(original: ReplayRequest) -> None:
    assert ReplayRequest.from_dict(json.loads(json.dumps(original.as_dict()))) == original


def test_a_savepoint_without_a_name_keeps_its_former_json() -> None:
    assert request(FromSavepoint(seq=5)).as_dict()["start"] == {"kind": "from_savepoint", "seq": 5, "at": None}


@pytest.mark.parametrize("days", [0, -1])
def test_a_duration_lies_in_the_past(days: int) -> None:
    with pytest.raises(UsageError, match="does not lie in the past"):
        ByDuration(duration=timedelta(days=days))


def test_offsets_name_a_partition_and_are_not_negative() -> None:
    with pytest.raises(UsageError, match="No offset is named"):
        ToOffset()
    with pytest.raises(UsageError, match="-1 of 'pos' is negative"):
        ToOffset(topics={"pos": -1})


@pytest.mark.parametrize(
    "change",
    [{"start": {"kind": "to_nowhere"}}, {"start": {"kind": "to_current"}}, {"seed": "half"}, {"end": {"pos": 5}}],
)
def test_values_that_are_not_a_request_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="not a replay request"):
        ReplayRequest.from_dict({**request().as_dict(), **change})
