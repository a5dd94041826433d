"""When runs are made: by ``airflow backfill create`` only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.timetables.interval import CronDataIntervalTimetable

if TYPE_CHECKING:
    from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction
    from pendulum import DateTime


class BackfillTimetable(CronDataIntervalTimetable):
    """Data intervals by cron for runs of a backfill. The scheduler makes no run from it.

    The DAG has ``catchup=False``, which the scheduler passes on; ``airflow backfill create`` uses catch-up. A date
    without a time is that day in the timetable's own zone, whatever Airflow's ``core.default_timezone`` is.
    """

    description = "Only on request: airflow backfill create"

    @property
    def summary(self) -> str:
        """What the list of DAGs shows as the schedule."""
        return "backfill only"

    def next_dagrun_info(
        self, *, last_automated_data_interval: DataInterval | None, restriction: TimeRestriction
    ) -> DagRunInfo | None:
        """The next interval of a backfill; None for the scheduler."""
        if not restriction.catchup:
            return None
        earliest, latest = (
            None if at is None else self._dated(at) for at in (restriction.earliest, restriction.latest)
        )
        return super().next_dagrun_info(
            last_automated_data_interval=last_automated_data_interval,
            restriction=restriction._replace(earliest=earliest, latest=latest),
        )

    def infer_manual_data_interval(self, *, run_after: DateTime) -> DataInterval:
        """The last whole interval before a run that was triggered."""
        return super().infer_manual_data_interval(run_after=self._dated(run_after))

    def _dated(self, at: DateTime) -> DateTime:
        """The beginning of a day in Airflow's default zone, moved to that of the same day in the timetable's zone.

        Airflow reads ``2026-11-07`` as the beginning of that day in the zone of ``core.default_timezone``, which may
        lie in another day of UTC.
        """
        import pendulum
        from airflow.settings import TIMEZONE

        there = at.in_timezone(TIMEZONE)
        day = (there.year, there.month, there.day)
        return pendulum.datetime(*day, tz=self._timezone) if pendulum.datetime(*day, tz=TIMEZONE) == there else at
