"""What can be asked for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from kappa.errors import UsageError
from kappa.replay.offsets import Offsets
from kappa.replay.request import FromMarker, FromSavepoint, ReplayRequest, Seed, Start, ToDatetime, ToEarliest

AT = datetime(2026, 2, 1, tzinfo=UTC)


EARLIEST = ToEarliest()


def request(start: Start = EARLIEST, **changes: Any) -> ReplayRequest:
    return ReplayRequest(**{"topology": "retail.loyalty", "start": start, "reason": "v2", "actor": "ana", **changes})


@pytest.mark.parametrize(
    ("start", "seed"),
    [
        (ToEarliest(), Seed.EMPTY),
        (ToDatetime(at=AT), Seed.EMPTY),
        (FromSavepoint(seq=5), Seed.FROM_SAVEPOINT),
        (FromMarker(), Seed.FROM_CHANGELOG),
    ],
)
def test_each_start_has_the_seed_that_goes_with_it(start: Start, seed: Seed) -> None:
    assert request(start).resolved_seed is seed


def test_a_savepoint_can_be_a_start_with_empty_tables() -> None:
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
def test_tables_of_one_moment_are_not_continued_from_another(start: Start, seed: Seed) -> None:
    with pytest.raises(UsageError):
        request(start, seed=seed)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(UsageError, match="has no zone"):
        ToDatetime(at=AT.replace(tzinfo=None))
    with pytest.raises(UsageError, match="has no zone"):
        FromSavepoint(at=AT.replace(tzinfo=None))


def test_a_time_is_kept_in_utc() -> None:
    assert ToDatetime(at=datetime(2026, 2, 1, 2, tzinfo=timezone(timedelta(hours=2)))).at.isoformat() == AT.isoformat()


@pytest.mark.parametrize("parts", [{}, {"seq": 1, "at": AT}])
def test_a_savepoint_is_named_in_one_way(parts: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="one of them"):
        FromSavepoint(**parts)


def test_only_findings_that_can_be_lived_with_can_be_allowed() -> None:
    with pytest.raises(UsageError, match="recreated-topic"):
        request(allow=frozenset({"recreated-topic"}))


@pytest.mark.parametrize("size", [0, -1])
def test_a_slice_spans_at_least_one_offset(size: int) -> None:
    with pytest.raises(UsageError):
        request(slice_records=size)
    assert request(slice_records=1).slice_records == 1


@pytest.mark.parametrize(
    "asked",
    [
        request(),
        request(ToDatetime(at=AT), end=Offsets({"pos": {0: 5}}), allow={"partial-history"}, slice_records=7),
        request(FromSavepoint(seq=0)),
        request(FromSavepoint(at=AT), seed=Seed.EMPTY),
        request(FromMarker(epoch=3)),
    ],
)
def test_a_request_survives_json_values(asked: ReplayRequest) -> None:
    assert ReplayRequest.from_dict(asked.as_dict()) == asked


@pytest.mark.parametrize(
    "change", [{"start": {"kind": "to_nowhere"}}, {"seed": "half"}, {"surplus": 1}, {"end": {"pos": 5}}]
)
def test_values_that_are_no_request_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="no replay request"):
        ReplayRequest.from_dict({**request().as_dict(), **change})
