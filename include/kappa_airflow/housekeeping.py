"""The task of ``housekeeping``: it removes leftovers in the lake, on the broker and below home. Safe to clear."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from kappa_airflow.connections import DEFAULT_SPARK_CONNECTION, config_with_spark
from kappa_airflow.drivers import terminal_errors_fail
from kappa_airflow.tasks import REPLAY_RETRIES, filled_form

if TYPE_CHECKING:
    from airflow.sdk import Context


class RemoveLeftovers(BaseOperator):
    """Finds leftovers and removes them, unless the form says to list them only. Idempotent.

    It checks again immediately before it removes, and two at the same time do no harm. After a crash the next run finds
    the rest.
    """

    ui_color = "#eeeeee"

    def __init__(self, *, spark_conn_id: str = DEFAULT_SPARK_CONNECTION, **kwargs: Any) -> None:
        super().__init__(**{**REPLAY_RETRIES, "execution_timeout": timedelta(hours=2), **kwargs})
        self.spark_conn_id = spark_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the numbers of leftovers ``found`` and ``removed``, and the removed ``bytes``."""
        from kappa import control

        with terminal_errors_fail():
            form = filled_form(context)
            config = config_with_spark(self.spark_conn_id)
            report = control.housekeeping(config)
            is_wanted = bool(form.get("remove", True))
            removed = control.clean(config, report.leftovers) if is_wanted else ()
        for item in report.leftovers:
            outcome = "removed" if item in removed else "left over"
            self.log.info("%s: %s %s: %s", outcome, item.kind, item.name, item.reason)
        for item in report.lookalikes:
            self.log.info("stays: %s %s: %s", item.kind, item.name, item.reason)
        total = sum(item.size_bytes or 0 for item in removed)
        self.log.info("%s left over, %s removed, %.1f MB.", len(report.leftovers), len(removed), total / 1_000_000)
        return {"found": len(report.leftovers), "removed": len(removed), "bytes": total}
