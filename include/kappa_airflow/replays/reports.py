"""The report of a verification: in a task's log, as its XCom, and as a link to its page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperatorLink

from kappa.replay.stages import Stage
from kappa_airflow.pages import address
from kappa_airflow.replays.replay import AwaitStage
from kappa_airflow.tasks import members_of

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

    from kappa.config import Config
    from kappa.replay.proof.verdict import DiffReport


def report_path(topology: str, epoch: int) -> str:
    """Where the plugin shows the report of an epoch's verification."""
    return address("topologies", topology, epoch)


def in_short(report: DiffReport) -> list[str]:
    """The difference in a few lines: rows and keys of each table and output, without samples."""
    lines = [
        f"table {table.name}: {_rows(table.rows_live, table.rows_candidate)}; {table.keys_added:,} keys added, "
        f"{table.keys_removed:,} removed, {table.keys_changed:,} changed"
        for table in report.tables
    ]
    lines += [
        f"output {output.name}: {_rows(output.rows_live, output.rows_candidate)}; {output.rows_added:,} rows added, "
        f"{output.rows_removed:,} removed"
        for output in report.outputs
    ]
    checks = sum(check.ok for check in report.checks)
    lines += [f"{checks} of {len(report.checks)} checks hold"] if report.checks else []
    thresholds = sum(threshold.ok for threshold in report.thresholds)
    lines += [f"{thresholds} of {len(report.thresholds)} thresholds are kept"] if report.thresholds else []
    return [*lines, *(f"failed: {failure}" for failure in report.failures)]


def _rows(live: int | None, candidate: int | None) -> str:
    before, after = ("no such table" if rows is None else f"{rows:,} rows" for rows in (live, candidate))
    return f"{before} live, {after} in the candidate"


class ReportLink(BaseOperatorLink):
    """Opens the report of the epoch that a task verified."""

    name = "Report"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """The page's address; for several topologies, that of the page of all."""
        task: Any = operator  # a task of a replay, its templates rendered
        (name, epoch), *others = members_of(task.members).items()
        return address() if others else report_path(name, epoch)


class Verify(AwaitStage):
    """Waits for the verification, logs its report, and returns it: verdict, difference, checks and thresholds.

    A failed verdict fails the task after its report was logged.
    """

    operator_extra_links = (ReportLink(),)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(stage=Stage.VERIFIED.value, **kwargs)

    def _finish(self, event: dict[str, Any]) -> dict[str, Any]:
        report = self._log(self._config())
        super()._finish(event)
        if report is None:
            return {"epoch": self.epoch, "verdict": None}
        return {
            "epoch": self.epoch,
            "live": report.live_epoch,
            "verdict": report.verdict.value,
            "difference": in_short(report),
            "checks": {check.name: check.ok for check in report.checks},
            "thresholds": {threshold.measure: str(threshold) for threshold in report.thresholds},
            "offsets": report.at.as_dict(),
            "report": report_path(self.topology, self.epoch),
        }

    def _log(self, config: Config) -> DiffReport | None:
        """Log the report; None where there is none: a first epoch has nothing to be compared with."""
        from kappa import control
        from kappa.errors import UnknownEpochError

        try:
            report = control.diff(config, self.topology, self.epoch)
        except UnknownEpochError as error:
            self.log.info("%s", error)
            return None
        say = self.log.warning if report.failures else self.log.info
        for line in report.render():
            say("%s", line)
        self.log.info("The report as a page: %s", report_path(self.topology, self.epoch))
        return report
