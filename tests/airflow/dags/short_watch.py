"""A DAG of the tests: a watch that is over after seconds."""

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG

from kappa_airflow.stream import WatchStream

START = datetime(2026, 1, 1, tzinfo=UTC)

with DAG(dag_id="short_watch", schedule="@continuous", start_date=START, catchup=False, max_active_runs=1):
    WatchStream(task_id="watch", topology="demo.short", watch_for=timedelta(seconds=6), poll_seconds=0.5)
