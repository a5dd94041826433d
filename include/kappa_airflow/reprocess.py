"""Scheduled reprocessing: recompute, compare with what is live, report; the tasks of ``reprocess__*``.

Each is safe to clear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from kappa_airflow.drivers import actor, record, terminal_errors_fail
from kappa_airflow.replay import PlanReplay, ReplayTask, StartReplay, skip
from kappa_airflow.reports import report_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from kappa.config import Config
    from kappa.replay.request import ReplayRequest

#: What is on record as the author of the epochs that a schedule makes.
AUTHOR = "airflow:reprocess"


class PlanReprocess(PlanReplay):
    """Plans the replay of a scheduled run, and returns it as JSON; the candidate of the run before it is removed first.

    One run has one plan: cleared, the task returns the plan that it made before. A candidate that another made is left
    alone, and the run is skipped.

    Args:
        savepoint: name of the savepoint that it starts from; empty for the beginning.
    """

    def __init__(self, *, savepoint: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.savepoint = savepoint

    def request(self, context: Context, config: Config) -> ReplayRequest:
        """A replay of everything, or from the savepoint, once there is room for its candidate.

        Raises:
            AirflowSkipException: there is nothing to compare with, or another epoch is being built.
        """
        from kappa.replay.request import ReplayRequest
        from kappa.replay.starts import FromSavepoint, ToEarliest

        why = f"scheduled reprocessing, run {context['run_id']}, {actor(context)}"
        self._make_room(config, why)
        return ReplayRequest(
            topology=self.topology,
            start=FromSavepoint(name=self.savepoint) if self.savepoint else ToEarliest(),
            reason=why,
            actor=AUTHOR,
            slice_records=config.slice_records,
        )

    def _make_room(self, config: Config, why: str) -> None:
        """Remove the candidate that this schedule left; leave the run where another made one."""
        from kappa import control

        known = record(config, self.topology)
        if known.live is None:
            skip(
                self.log,
                f"{self.topology} has no live epoch: there is nothing to compare with. DAG stream__{self.topology} "
                "starts it.",
            )
        candidate = known.candidate
        if candidate is None:
            return
        if candidate.planned.actor != AUTHOR:
            skip(
                self.log,
                f"Epoch {candidate.epoch} of {self.topology} is being built already, by {candidate.planned.actor}: it "
                "is left alone, and this run compares nothing. Cut it over or abort it; the next run compares again.",
            )
        self.log.info("Epoch %s of the run before is removed: this run replaces it.", candidate.epoch)
        control.abort(config, self.topology, candidate.epoch, actor=AUTHOR, reason=why)


class StartReprocess(StartReplay):
    """Records the plan as a candidate epoch of the schedule."""

    def author(self, context: Context) -> str:
        """The schedule, however the run was triggered."""
        return AUTHOR


class Conclude(ReplayTask):
    """Drops a candidate that is the same as what is live; fails where it differs, and leaves the candidate for a look.

    Args:
        found: what task ``verified`` returned.
    """

    template_fields: Sequence[str] = ("found",)

    def __init__(self, *, found: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.found = found

    def execute(self, context: Context) -> str:
        """Return the verdict.

        Raises:
            AirflowFailException: the candidate differs from what is live.
        """
        from kappa import control

        epoch, verdict = int(self.found["epoch"]), self.found["verdict"]
        if verdict == "same":
            with terminal_errors_fail():
                control.abort(self._config(), self.topology, epoch, actor=AUTHOR, reason="the same as what is live")
            self.log.info(
                "Epoch %s is the same as live epoch %s and was dropped. Its report is kept: %s",
                epoch,
                self.found["live"],
                self.found["report"],
            )
            return str(verdict)
        for line in self.found["difference"]:
            self.log.warning("%s", line)
        raise AirflowFailException(
            f"Recomputed with the deployed code, {self.topology} differs from live epoch {self.found['live']}: "
            f"{'; '.join(self.found['difference'])}. Epoch {epoch} stays until the next run replaces it: see "
            f"{report_path(self.topology, epoch)}. DAG cutover__{self.topology} moves readers to it."
        )
