from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kappa.errors import UsageError
from kappa.replay.offsets import Offsets
from kappa.replay.request import ReplayRequest, Seed
from kappa.replay.starts import (
    ByDuration,
    FromMarker,
    FromSavepoint,
    ShiftBy,
    ToDatetime,
    ToEarliest,
    ToLatest,
    ToOffset,
)
from kappa_airflow.forms import replay_form, replay_request


def request(**filled: Any) -> ReplayRequest:
    form = {"start": "to_earliest", "value": None, "seed": "default", "allow": [], "reason": "test", **filled}
    return replay_request("demo.counts", form, actor="ann", slice_records=7)


def test_every_field_of_the_form_explains_itself() -> None:
    for name, param in replay_form().items():
        assert param.description, name
        assert param.schema["title"], name


def test_the_form_has_no_reason_to_begin_with_so_that_somebody_gives_one() -> None:
    assert not replay_form()["reason"].has_value


@pytest.mark.parametrize(
    ("filled", "start"),
    [
        ({}, ToEarliest()),
        ({"start": "to_datetime", "value": "2026-03-01T00:00:00Z"}, ToDatetime(at=datetime(2026, 3, 1, tzinfo=UTC))),
        (
            {"start": "to_datetime", "value": " 2026-03-01T02:00+02:00 "},
            ToDatetime(at=datetime(2026, 3, 1, tzinfo=UTC)),
        ),
        ({"start": "to_latest"}, ToLatest()),
        ({"start": "by_duration", "value": "P7D"}, ByDuration(duration=timedelta(days=7))),
        ({"start": "shift_by", "value": "-1000"}, ShiftBy(by=-1000)),
        (
            {"start": "to_offset", "value": "pos:0=1200, pos=900  other=0"},
            ToOffset(offsets=Offsets({"pos": {0: 1200}}), topics={"pos": 900, "other": 0}),
        ),
        ({"start": "from_savepoint", "value": "before-the-sale"}, FromSavepoint(name="before-the-sale")),
        ({"start": "from_savepoint", "value": "17"}, FromSavepoint(seq=17)),
        ({"start": "from_savepoint", "value": "2026-03-01T00:00Z"}, FromSavepoint(at=datetime(2026, 3, 1, tzinfo=UTC))),
        ({"start": "from_marker"}, FromMarker()),
        ({"start": "from_marker", "value": "3", "seed": "from-changelog"}, FromMarker(epoch=3)),
    ],
)
def test_a_filled_form_is_a_request(filled: dict[str, Any], start: object) -> None:
    assert request(**filled).start == start


def test_thresholds_are_lines_and_blank_ones_do_not_count() -> None:
    made = request(thresholds=["rewards.keys_removed=0", " ", "rewards.drift.Points=0.1"]).thresholds
    assert [t.limits for t in made] == [{"rewards.keys_removed": 0}, {"rewards.drift.Points": 0.1}]
    assert request(thresholds=None).thresholds == ()


def test_the_seed_may_be_left_to_the_start() -> None:
    assert request().seed is None
    assert request(start="from_savepoint", value="1", seed="empty").seed is Seed.EMPTY


@pytest.mark.parametrize(
    ("filled", "said"),
    [
        ({"value": "2026-03-01"}, "takes no value"),
        ({"start": "to_datetime"}, "needs a value"),
        ({"start": "to_datetime", "value": "yesterday"}, "does not fit"),
        ({"start": "to_datetime", "value": "2026-03-01T00:00"}, "no zone"),
        ({"start": "from_savepoint", "value": "-1"}, "does not fit"),
        ({"start": "to_latest", "value": "9"}, "takes no value"),
        ({"start": "by_duration", "value": "7 days"}, "does not fit"),
        ({"start": "by_duration", "value": "P0D"}, "does not lie in the past"),
        ({"start": "shift_by", "value": "back"}, "does not fit"),
        ({"start": "to_offset", "value": "pos:0=-1"}, "is negative"),
        ({"start": "to_offset"}, "needs a value"),
        ({"start": "from_marker", "value": "x"}, "does not fit"),
        ({"allow": ["everything"]}, "cannot allow"),
        ({"thresholds": ["rewards.key_removed=0"]}, "Did you mean 'keys_removed'"),
    ],
)
def test_a_form_that_says_too_little_or_too_much_is_refused(filled: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        request(**filled)


def test_computing_twice_is_asked_for_by_the_form() -> None:
    assert request(determinism=True).determinism
    assert not request().determinism


def test_archives_are_read_unless_the_form_says_otherwise() -> None:
    assert request().archive
    assert not request(archive=False).archive
