"""Scheduled reprocessing: the tasks of ``reprocess__*``, which recompute, compare with the live epoch and report.

Each is safe to clear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from kappa import clock
from kappa.errors import MoveRefusedError
from kappa.replay.rules.request import REPLAY_ALREADY_ACTIVE
from kappa_airflow.drivers import actor, record, terminal_errors_fail
from kappa_airflow.replays.replay import PlanReplay, StartReplay
from kappa_airflow.replays.reports import report_path
from kappa_airflow.tasks import TopologyTask, existing, filled_form, skip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from kappa.config import Config
    from kappa.control.plans.premise import Premise
    from kappa.record.epoch_record import TopologyRecord
    from kappa.replay.plan import ReplayPlan
    from kappa.replay.request import ReplayRequest

#: The recorded author of epochs that a schedule makes.
AUTHOR = "airflow:reprocess"


class PlanReprocess(PlanReplay):
    """Plans the replay of a scheduled run, and returns it as JSON; the candidate of the previous run is removed.

    One run has one plan: a cleared task returns the plan that it made before. The candidate stays unless it is all that
    refuses the new plan. A candidate with another author, or one that a person approves, brings back or makes live, is
    left alone, and the run is skipped.

    Args:
        savepoint: name of the savepoint that it starts from; empty for the beginning.
    """

    def __init__(self, *, savepoint: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.savepoint = savepoint

    def plan(self, context: Context, config: Config) -> ReplayPlan:
        """The plan without the candidate of the previous run, which is removed if that plan is not refused.

        Raises:
            AirflowSkipException: there is nothing to compare with, or another epoch is being built.
            AirflowFailException: that plan is refused.
            UsageError: the run was triggered with a field; its DAG has no form.
        """
        filled_form(context)
        premise = self._left_over(config)
        plan = super().plan(context, config)
        if premise is None:
            return plan
        others = [str(finding) for finding in plan.refusals if finding.code != REPLAY_ALREADY_ACTIVE.code]
        if others:
            raise AirflowFailException(
                f"The replay of {self.topology} is refused. Epoch {premise.epoch} of the previous run stays. "
                f"{' '.join(others)}"
            )
        self._remove(config, premise, plan.request.reason)
        return super().plan(context, config)

    def request(self, context: Context, config: Config) -> ReplayRequest:
        """A replay of everything, or from the savepoint."""
        from kappa.replay.request import ReplayRequest
        from kappa.replay.starts import FromSavepoint, ToEarliest

        return ReplayRequest(
            topology=self.topology,
            start=FromSavepoint(name=self.savepoint) if self.savepoint else ToEarliest(),
            reason=f"scheduled reprocessing, run {context['run_id']}, {actor(context)}",
            actor=AUTHOR,
            slice_records=config.slice_records,
        )

    def _left_over(self, config: Config) -> Premise | None:
        """The candidate that this schedule left, as it stands; skips the run if another one is being built."""
        from kappa.control.plans.premise import Premise

        topology_record = record(config, self.topology)
        if topology_record.live is None:
            skip(
                self.log,
                f"{self.topology} has no live epoch: there is nothing to compare with. DAG stream__{self.topology} "
                "starts it.",
            )
        candidate = topology_record.candidate
        if candidate is None:
            return None
        if candidate.planned.actor != AUTHOR:
            skip(
                self.log,
                f"Epoch {candidate.epoch} of {self.topology} is being built already, by {candidate.planned.actor}: it "
                "is left alone, and this run compares nothing. Cut it over or abort it; the next run compares again.",
            )
        moving = being_moved(topology_record, candidate.epoch)
        if moving:
            skip(
                self.log,
                f"Epoch {candidate.epoch} of {self.topology}, which an earlier run made, {moving}: it is left alone, "
                "and this run compares nothing. The first run after that compares again.",
            )
        return Premise.of(topology_record, candidate.epoch)

    def _remove(self, config: Config, premise: Premise, why: str) -> None:
        from kappa import control

        try:
            control.abort(config, self.topology, premise.epoch, actor=AUTHOR, reason=why, premise=premise)
        except MoveRefusedError as error:  # a person was faster
            skip(self.log, f"{error} Epoch {premise.epoch} is left alone, and this run compares nothing.")
        self.log.info("Epoch %s of the previous run is removed: this run replaces it.", premise.epoch)


def being_moved(record: TopologyRecord, epoch: int) -> str:
    """What a person is doing with an epoch of the schedule, in words; empty if nothing."""
    epoch_record, handover = record.epoch(epoch), record.handover
    if handover is not None and handover.epoch == epoch:
        return f"is being made live, as {handover.actor} asked at {handover.at:%Y-%m-%d %H:%M} UTC"
    events = [event for event in record.events if event.epoch == epoch]
    if epoch_record.is_recalled:
        recalled = next(event for event in reversed(events) if event.event == "recalled")
        return f"is being brought back, as {recalled.actor} asked at {recalled.at:%Y-%m-%d %H:%M} UTC"
    if epoch_record.approvals:
        return f"was approved by {' and '.join(event.actor for event in epoch_record.approvals)}"
    for event in reversed(events):
        if event.event == "rejected":
            break
        if event.event == "reopened":
            return f"was resumed by {event.actor} at {event.at:%Y-%m-%d %H:%M} UTC"
        if event.event == "asked" and event.detail["until"] > clock.now().isoformat():
            return f"waits for an approval until {event.detail['until']:.16} UTC"
    return ""


class StartReprocess(StartReplay):
    """Records the plan as a candidate epoch of the schedule."""

    def author(self, context: Context) -> str:
        """The schedule, however the run was triggered."""
        return AUTHOR


class Conclude(TopologyTask):
    """Drops a candidate that is the same as the live epoch; fails if it differs, and keeps the candidate for
    inspection.

    Args:
        verification: result of task ``verified``.
    """

    template_fields: Sequence[str] = ("verification",)

    def __init__(self, *, verification: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.verification = verification

    def execute(self, context: Context) -> str:
        """Return the verdict.

        Raises:
            AirflowFailException: the candidate differs from the live epoch.
        """
        verification = existing(self.verification)
        epoch, verdict = int(verification["epoch"]), verification["verdict"]
        if verdict == "same":
            self._drop(epoch)
            return str(verdict)
        for line in verification["difference"]:
            self.log.warning("%s", line)
        raise AirflowFailException(
            f"Recomputed with the deployed code, {self.topology} differs from live epoch {verification['live']}: "
            f"{'; '.join(verification['difference'])}. Epoch {epoch} stays until the next run replaces it: see "
            f"{report_path(self.topology, epoch)}. DAG cutover__{self.topology} moves readers to it; from its question "
            "on, no run replaces it."
        )

    def _drop(self, epoch: int) -> None:
        """Remove a candidate that is the same, unless a person has decided to use it."""
        from kappa import control
        from kappa.control.plans.premise import Premise

        config = self._config()
        with terminal_errors_fail():
            topology_record = record(config, self.topology)
            moved = topology_record.epoch(epoch).moved
            moving = being_moved(topology_record, epoch) or (f"was made live by {moved.actor}" if moved else "")
            if not moving:
                try:
                    premise = Premise.of(topology_record, epoch)
                    why = "the same as what is live"
                    control.abort(config, self.topology, epoch, actor=AUTHOR, reason=why, premise=premise)
                except MoveRefusedError as error:
                    moving = f"is not removed: {error}"
        if moving:
            self.log.warning("Epoch %s is the same as what was live, %s. It stays.", epoch, moving)
            return
        self.log.info(
            "Epoch %s is the same as live epoch %s and was dropped. Its report is kept: %s",
            epoch,
            self.verification["live"],
            self.verification["report"],
        )
