"""When runs are made: by ``airflow backfill create`` only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.timetables.interval import CronDataIntervalTimetable

if TYPE_CHECKING:
    from airflow.timetables.base import DagRunInfo, DataInterval, TimeRestriction


class BackfillTimetable(CronDataIntervalTimetable):
    """Data intervals by cron for runs of a backfill. The scheduler gets no run from it.

    The DAG has ``catchup=False``, which the scheduler passes on; ``airflow backfill create`` asks with catch-up.
    """

    description = "Only when it is asked for: airflow backfill create"

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
        return super().next_dagrun_info(
            last_automated_data_interval=last_automated_data_interval, restriction=restriction
        )
