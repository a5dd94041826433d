"""The DAG of a backfill: its runs, what its task says while nothing happens, and what it refuses without Kafka."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest
from airflow.sdk.definitions.param import ParamsDict, process_params
from airflow.sdk.exceptions import AirflowFailException
from airflow.timetables.base import DataInterval, TimeRestriction

from kappa.errors import UsageError
from kappa_airflow import backfill
from kappa_airflow.backfill import BackfillInterval, saying
from kappa_airflow.forms import backfill_form
from kappa_airflow.timetables import BackfillTimetable

pytestmark = pytest.mark.usefixtures("no_connection")

FIRST, LAST = pendulum.datetime(2026, 11, 1), pendulum.datetime(2026, 11, 7)


def runs(*, catchup: bool) -> list[DataInterval]:
    """The intervals that the timetable gives between two days."""
    timetable, intervals = BackfillTimetable("@daily", timezone="UTC"), list[DataInterval]()
    restriction = TimeRestriction(earliest=FIRST, latest=LAST, catchup=catchup)
    while True:
        info = timetable.next_dagrun_info(
            last_automated_data_interval=intervals[-1] if intervals else None, restriction=restriction
        )
        if info is None:
            return intervals
        assert info.data_interval is not None
        intervals.append(info.data_interval)


def test_a_backfill_has_a_run_for_each_day_and_the_scheduler_none() -> None:
    intervals = runs(catchup=True)
    assert [(item.start.day, item.end.day) for item in intervals] == [(day, day + 1) for day in range(1, 8)]
    assert runs(catchup=False) == []


#: Prints the days of runs between two dates, as ``airflow backfill create`` reads them, over both changes of the clock,
#: and the day that "Trigger" with a date computes.
IN_ANOTHER_ZONE = """
import sys
from airflow._shared.timezones import timezone
from airflow.timetables.base import TimeRestriction
from kappa_airflow.timetables import BackfillTimetable

timetable = BackfillTimetable("@daily", timezone="UTC")
timetable = BackfillTimetable.deserialize(timetable.serialize())
for first, last in (("2026-03-27", "2026-03-31"), ("2026-10-23", "2026-10-27"), ("2026-11-07", "2026-11-07")):
    restriction = TimeRestriction(timezone.parse(first), timezone.parse(last), True)
    interval, days = None, []
    while True:
        info = timetable.next_dagrun_info(last_automated_data_interval=interval, restriction=restriction)
        if info is None:
            break
        interval = info.data_interval
        days.append(f"{interval.start:%m-%d %H}-{interval.end:%m-%d %H}")
    print(" ".join(days))
print(timetable.infer_manual_data_interval(run_after=timezone.parse("2026-11-07")).start)
times = (timezone.parse("2026-11-07T06:00:00+00:00"), timezone.parse("2026-11-09T18:00:00+00:00"))
restriction = TimeRestriction(*times, True)
print(timetable.next_dagrun_info(last_automated_data_interval=None, restriction=restriction).logical_date)
"""


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York", "Pacific/Auckland", "Africa/Cairo"])
def test_no_day_is_left_out_or_made_twice_whatever_the_default_zone_of_airflow(zone: str) -> None:
    environment = {**os.environ, "AIRFLOW__CORE__DEFAULT_TIMEZONE": zone}
    run = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_ZONE], env=environment, capture_output=True, text=True, check=True
    )
    *lines, triggered, between = run.stdout.splitlines()[-5:]

    def days(month: int, first: int, last: int) -> str:
        begin = datetime(2026, month, first, tzinfo=UTC)
        each = [begin + timedelta(days=n) for n in range(last - first + 1)]
        return " ".join(f"{day:%m-%d %H}-{day + timedelta(days=1):%m-%d %H}" for day in each)

    assert lines == [days(3, 27, 31), days(10, 23, 27), days(11, 7, 7)]
    assert triggered.startswith("2026-11-06")
    assert between.startswith("2026-11-08"), "a time of its own stays what it is"


def test_the_timetable_comes_back_from_its_stored_form() -> None:
    timetable = BackfillTimetable("@daily", timezone="UTC")
    again = BackfillTimetable.deserialize(timetable.serialize())
    assert isinstance(again, BackfillTimetable) and again.summary == "backfill only"
    assert again.serialize() == timetable.serialize()


def test_a_run_without_a_data_interval_fails_and_names_the_command() -> None:
    task = BackfillInterval(task_id="backfill", topology="demo.t")
    context: Any = {
        "dag": SimpleNamespace(dag_id="backfill__demo.t"),
        "run_id": "r",
        "data_interval_start": None,
        "params": {},
    }
    with pytest.raises(AirflowFailException, match=r"airflow backfill create --dag-id backfill__demo.t"):
        task.execute(context)


def test_what_is_done_is_said_again_while_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backfill, "SAYS_EVERY_SECONDS", 0.05)
    lines: list[str] = []
    with saying(lambda text, *values: lines.append(text % values)) as say:
        say("computed 5 of 9 offsets")
        deadline = time.monotonic() + 30
        while lines.count("computed 5 of 9 offsets ...") < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    count = len(lines)
    assert lines[0] == "computed 5 of 9 offsets" and lines.count("computed 5 of 9 offsets ...") >= 2
    time.sleep(0.2)
    assert len(lines) == count


def test_an_interval_is_what_airflow_hands_over_in_times_of_python() -> None:
    context: Any = {"data_interval_start": FIRST, "data_interval_end": LAST}
    begin, end = backfill._interval(context)
    assert {type(begin), type(end)} == {datetime} and (begin, end) == (FIRST, LAST)


def test_a_run_with_a_zone_is_of_the_local_day_of_its_date() -> None:
    begin, end = datetime(2026, 10, 25, tzinfo=UTC), datetime(2026, 10, 26, tzinfo=UTC)
    assert backfill.local_days(begin, end, "Europe/Berlin") == (
        datetime(2026, 10, 24, 22, tzinfo=UTC),
        datetime(2026, 10, 25, 23, tzinfo=UTC),
    )
    with pytest.raises(UsageError, match=r"are not whole days, and its form names zone 'Europe/Berlin'. Omit"):
        backfill.local_days(begin + timedelta(hours=1), end, "Europe/Berlin")
    with pytest.raises(UsageError, match="'Europe/Berln' is not a time zone"):
        backfill.local_days(begin, end, "Europe/Berln")


@pytest.mark.parametrize("outputs", [["shipments", " ", ""], [" shipments "], ["", " "], [], None])
def test_empty_lines_and_an_empty_zone_name_nothing(
    control: Any, monkeypatch: pytest.MonkeyPatch, outputs: list[str] | None
) -> None:
    from kappa.control.backfills import backfill_plan

    proposed: list[Any] = []

    def propose(*arguments: Any) -> Any:
        proposed.append(arguments[3:])
        raise UsageError("enough")

    monkeypatch.setattr(backfill_plan, "propose", propose)
    conf, form = {"outputs": outputs, "zone": " "}, backfill_form()
    dag: Any = SimpleNamespace(params=ParamsDict(form))
    params = process_params(dag, SimpleNamespace(params={}), conf, suppress_exception=False)  # type: ignore[arg-type]
    days = {"data_interval_start": FIRST, "data_interval_end": LAST}
    run = {"dag": dag, "dag_run": SimpleNamespace(conf=conf), "params": params, **days}
    with pytest.raises(AirflowFailException, match="enough"):
        BackfillInterval(task_id="backfill", topology="demo.t").execute(run)
    assert proposed == [(FIRST, LAST, ["shipments"] if outputs and outputs[0].strip() else [])]
