from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.definitions.param import ParamsDict, process_params

from kappa.errors import UsageError
from kappa.offsets.vector import Offsets
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
from kappa.topology.registry import Declared
from kappa_airflow.forms import (
    backfill_form,
    check_form,
    housekeeping_form,
    move_form,
    reason_of,
    rebuild_form,
    replay_form,
    replay_request,
)
from kappa_airflow.tasks import filled_form

COUNTS, STOCK = (Declared(name=f"demo.{name}", version="2", file=Path(f"{name}.py")) for name in ("counts", "stock"))
FORM, TOGETHER = replay_form([COUNTS]), replay_form([COUNTS, STOCK])
MOVES = [move_form(group, "the one before") for group in ([COUNTS], [COUNTS, STOCK])]


def request(**filled: Any) -> ReplayRequest:
    form = {name: param.value for name, param in FORM.items()} | filled
    return replay_request("demo.counts", form, actor="ann", reason="test", slice_records=7)


@pytest.mark.parametrize("form", [FORM, TOGETHER, *MOVES, rebuild_form(), housekeeping_form()])
def test_every_field_of_a_form_explains_itself(form: dict[str, Any]) -> None:
    for name, param in form.items():
        assert param.description or param.schema["description_md"], name
        assert param.schema["title"], name


def test_the_form_opens_without_errors_and_stars_only_what_is_chosen_from_a_list() -> None:
    for name, param in FORM.items():
        param.resolve()
        kinds = param.schema["type"]
        assert "null" in kinds or kinds == "boolean" or "enum" in param.schema, name


def test_the_form_names_the_code_that_would_run_and_where_it_is_seen_what_is_live() -> None:
    description = FORM["start"].schema["description_md"]
    assert "version 2 of counts.py" in description and "(/kappa/topologies/demo.counts)" in description


def test_of_several_topologies_a_form_names_them_and_has_what_means_the_same_in_each() -> None:
    assert set(FORM) - set(TOGETHER) == {
        *("shift", "offsets", "savepoint", "savepoint_time", "changelog_epoch", "seed", "thresholds")
    }
    assert TOGETHER["start"].schema["enum"] == ["to_earliest", "to_latest", "to_datetime", "by_duration"]
    one, several = MOVES
    assert list(one) == ["epoch", "reason", "keep_old_running", "in_this_environment"]
    assert list(several) == ["topologies", "reason", "keep_old_running", "in_this_environment"]
    for form in (TOGETHER, several):
        assert form["topologies"].schema["items"]["enum"] == ["demo.counts", "demo.stock"]


def test_an_empty_reason_is_replaced_by_what_is_known() -> None:
    assert reason_of({"reason": " "}, "run 7") == reason_of({}, "run 7") == "run 7"
    assert reason_of({"reason": "new code"}, "run 7") == "new code"


def test_a_key_that_is_no_field_is_refused_with_the_nearest() -> None:
    check_form(list(FORM), {"start": "to_latest"}, {"start": "to_latest"})
    with pytest.raises(UsageError, match=r"no field 'starts'\. Did you mean 'start'"):
        check_form(list(FORM), {"starts": "to_latest"}, {})
    with pytest.raises(UsageError, match=r"no field 'xyz'\. It has allow, archive"):
        check_form(list(FORM), {"xyz": 1}, {})


@pytest.mark.parametrize("form", [FORM, TOGETHER, *MOVES, rebuild_form(), housekeeping_form(), backfill_form()])
def test_a_run_is_refused_where_airflow_passes_over_its_form(
    form: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = {"remove": False} if "remove" in form else {"reason": "March"}

    def filled() -> Any:
        dag: Any = SimpleNamespace(params=ParamsDict(deepcopy(form)))
        task: Any = SimpleNamespace(params={})
        params = process_params(dag, task, conf, suppress_exception=False)
        run: Any = {"dag": dag, "dag_run": SimpleNamespace(conf=conf), "params": params}
        return filled_form(run)

    assert filled().items() >= conf.items()
    monkeypatch.setenv("AIRFLOW__CORE__DAG_RUN_CONF_OVERRIDES_PARAMS", "False")
    with pytest.raises(UsageError, match=r"ignores the form of this run, such as field '(reason|remove)'"):
        filled()
    conf.clear()
    filled()


@pytest.mark.parametrize(
    ("filled", "start"),
    [
        ({}, ToEarliest()),
        ({"start": "to_datetime", "time": "2026-03-01T00:00:00Z"}, ToDatetime(at=datetime(2026, 3, 1, tzinfo=UTC))),
        ({"start": "to_datetime", "time": " 2026-03-01T02:00+02:00 "}, ToDatetime(at=datetime(2026, 3, 1, tzinfo=UTC))),
        ({"start": "to_latest"}, ToLatest()),
        ({"start": "by_duration", "duration": "P7D"}, ByDuration(duration=timedelta(days=7))),
        ({"start": "shift_by", "shift": -1000}, ShiftBy(by=-1000)),
        (
            {"start": "to_offset", "offsets": "pos:0=1200, pos=900  other=0"},
            ToOffset(offsets=Offsets({"pos": {0: 1200}}), topics={"pos": 900, "other": 0}),
        ),
        ({"start": "from_savepoint", "savepoint": "before-the-sale"}, FromSavepoint(name="before-the-sale")),
        ({"start": "from_savepoint", "savepoint": "17"}, FromSavepoint(seq=17)),
        (
            {"start": "from_savepoint_at", "savepoint_time": "2026-03-01T00:00Z"},
            FromSavepoint(at=datetime(2026, 3, 1, tzinfo=UTC)),
        ),
        ({"start": "from_marker"}, FromMarker()),
        ({"start": "from_marker", "changelog_epoch": 3.0}, FromMarker(epoch=3)),
        ({"start": "from_marker", "changelog_epoch": 3, "seed": "from-changelog"}, FromMarker(epoch=3)),
    ],
)
def test_a_filled_form_is_a_request(filled: dict[str, Any], start: object) -> None:
    assert request(**filled).start == start


def test_thresholds_are_lines_and_blank_ones_do_not_count() -> None:
    thresholds = request(thresholds=["rewards.keys_removed=0", " ", "rewards.drift.Points=0.1"]).thresholds
    assert [t.limits for t in thresholds] == [{"rewards.keys_removed": 0}, {"rewards.drift.Points": 0.1}]
    assert request(thresholds=None).thresholds == ()


def test_the_seed_may_be_left_to_the_start() -> None:
    assert request().seed is None
    assert request(start="from_savepoint", savepoint="1", seed="empty").seed is Seed.EMPTY


@pytest.mark.parametrize(
    ("filled", "message"),
    [
        ({"time": "2026-03-01T00:00Z"}, r"takes no further field, but the form has 'time' \(Time\)"),
        ({"start": "to_datetime"}, r"needs 'time' \(Time\)"),
        ({"start": "from_savepoint_at"}, r"needs 'savepoint_time' \(Savepoint at\)"),
        (
            {"seed": "from-savepoint"},
            r"'seed' \(State to begin with\) is from-savepoint, .* needs start from_savepoint, but",
        ),
        ({"seed": "from-changelog", "start": "to_latest"}, "needs start from_marker, but"),
        ({"determinism": True, "live_cuts": True}, r"'determinism' \(Compute twice\) and 'live_cuts'"),
        (
            {"start": "to_datetime", "time": "2026-03-01T00:00Z", "shift": 0},
            r"takes 'time' \(Time\) only, but the form has 'shift'",
        ),
        ({"start": "to_datetime", "time": "yesterday"}, "does not fit"),
        ({"start": "to_datetime", "time": "2026-03-01T00:00"}, "no zone"),
        ({"start": "from_savepoint", "savepoint": "-1"}, "does not fit"),
        *(({"start": "from_savepoint_at", "savepoint_time": text}, "does not fit") for text in ("7", "latest")),
        ({"start": "from_savepoint", "savepoint": "9" * 5_000}, "9 … 9.*Write it like"),
        ({"start": "shift_by", "shift": "9" * 5_000}, "9 … 9.*Write it like"),
        ({"start": "to_offset", "offsets": f"pos:0={'9' * 5_000}"}, "9 … 9.*Write topic:partition=offset"),
        ({"start": "to_offset", "offsets": f"pos:{'9' * 5_000}=1"}, "9 … 9.*Write topic:partition=offset"),
        ({"start": "to_latest", "savepoint": "9"}, "takes no further field"),
        ({"start": "by_duration", "duration": "7 days"}, "does not fit"),
        ({"start": "by_duration", "duration": "P0D"}, "does not lie in the past"),
        ({"start": "shift_by", "shift": "back"}, "does not fit"),
        ({"start": "to_offset", "offsets": "pos:0=-1"}, "is negative"),
        ({"start": "to_offset"}, "needs 'offsets'"),
        ({"allow": ["everything"]}, "cannot allow"),
        ({"thresholds": ["rewards.key_removed=0"]}, "Did you mean 'keys_removed'"),
    ],
)
def test_a_form_that_says_too_little_or_too_much_is_refused(filled: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        request(**filled)


def test_computing_twice_is_asked_for_by_the_form() -> None:
    assert request(determinism=True).determinism
    assert not request().determinism


def test_archives_are_read_unless_the_form_says_otherwise() -> None:
    assert request().archive
    assert not request(archive=False).archive
