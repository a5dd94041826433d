"""The tasks of ``rebuild__*``: tables folded from the changelog of the epoch that sent last. Each is safe to clear."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from kappa.errors import MoveRefusedError
from kappa_airflow.drivers import actor, record, terminal_errors_fail
from kappa_airflow.forms import reason_of
from kappa_airflow.questions import Confirm, shown_in, skip_rejected
from kappa_airflow.replays.replay import PLAN_KEY, PlanReplay, StartReplay, explain, plan_of, skip_plan_only
from kappa_airflow.tasks import Member, filled_form, keep, kept_value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from kappa.config import Config
    from kappa.replay.plan import ReplayPlan
    from kappa.replay.request import ReplayRequest


class PlanRebuild(PlanReplay):
    """Makes the plan of a rebuild, logs it, and returns it as JSON. Changes nothing; one run has one plan."""

    def request(self, context: Context, config: Config) -> ReplayRequest:
        """A fold of the changelog of the epoch that sent last.

        Raises:
            UsageError: the form is wrong.
            UnknownEpochError: no epoch left a marker.
        """
        from kappa import control

        form = filled_form(context)
        request = control.rebuild_request(
            config, self.topology, actor=actor(context), reason=reason_of(form, f"rebuild, run {context['run_id']}")
        )
        return dataclasses.replace(request, allow=frozenset(form.get("allow") or ()))


class ConfirmTakeover(Confirm):
    """Asks before a rebuild ends an epoch of a lost lake; a rebuild beside a live epoch needs no question.

    Args:
        plan: the plan as JSON.
    """

    template_fields: Sequence[str] = ("subject", "body", "plan")

    def __init__(self, *, plan: Any, **kwargs: Any) -> None:
        super().__init__(what="", lines=(), members=(), **kwargs)
        self.plan = plan

    def execute(self, context: Context) -> Any:
        """Ask, if the lake has no live epoch of the topology.

        Raises:
            AirflowSkipException: the form asks for the plan only.
        """
        plan = plan_of(self.plan)
        skip_plan_only(self.log, context)
        if plan.live_epoch is not None:
            self.log.info("Epoch %s is live and continues: there is nothing to confirm.", plan.live_epoch)
            return {"answer": "approved", "by": "nobody was asked", "shown": {"plan": plan.id}}
        self.what = f"Take {plan.topology} over in this lake?"
        self.lines = [
            f"This lake has no live epoch of {plan.topology}. Epoch {plan.epoch} is folded from the changelog of epoch "
            f"{plan.seed_epoch} and goes live automatically.",
            f"Epoch {plan.seed_epoch} ends permanently, even if its driver runs on another lake.",
            "Rows of append outputs are not in a changelog: a replay computes them again.",
        ]
        return super().execute(context)

    def _terms(self) -> dict[str, Any]:
        """The plan: the epoch that is ended, and the one that goes live."""
        return {"plan": plan_of(self.plan).id}

    def _check(self, shown: Mapping[str, Any]) -> None:
        if shown != self._terms():
            raise AirflowFailException(
                "The plan is not the one that the question showed. Nothing was changed. Clear this task to ask again."
            )


class StartRebuild(StartReplay):
    """Records the plan as an epoch and asks for its driver; ends the epoch that sent last if the lake was lost.

    Idempotent. After the end of the other epoch it plans again, because that epoch's last commit counts, and keeps that
    plan with the task before anything is recorded.

    Args:
        answer: what the task that asked returned.
    """

    template_fields: Sequence[str] = ("plan", "answer")

    def __init__(self, *, answer: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.answer = answer

    def execute(self, context: Context) -> Member:
        """Return the topology and the epoch.

        Raises:
            AirflowSkipException: it was rejected, or the form asks for the plan only.
            AirflowFailException: it is refused, or something has changed since it was shown.
        """
        skip_rejected(self.log, self.answer, "nothing was changed")
        if shown_in(self.answer) != {"plan": plan_of(self.plan).id}:
            raise AirflowFailException(
                "The plan is not the one that was confirmed. Nothing was changed. Clear task confirm to ask again."
            )
        return super().execute(context)

    def final(self, context: Context, plan: ReplayPlan) -> ReplayPlan:
        """The plan to record: the same, or the one made after the end of the other epoch."""
        from kappa import control

        if plan.live_epoch is not None:
            return plan
        plan_text = kept_value(context, PLAN_KEY)
        if isinstance(plan_text, str):
            return plan_of(plan_text)
        config = self._config()
        with terminal_errors_fail():
            self._check_standing(config, plan)
            control.supersede(config, plan)
            again = control.plan(config, plan.request)
        explain(self.log, again)
        keep(context, PLAN_KEY, again.to_json())
        return again

    def _check_standing(self, config: Config, plan: ReplayPlan) -> None:
        """Check, before an epoch is ended permanently, that this lake has no live one and that no other one has sent
        since.

        Raises:
            MoveRefusedError: something has changed since it was shown.
        """
        from kappa import control
        from kappa.replay.starts import FromMarker

        live = record(config, plan.topology).live
        request = control.rebuild_request(config, plan.topology, actor=plan.request.actor, reason=plan.request.reason)
        changes = [f"epoch {live} is live in this lake"] if live is not None else []
        if request.start != FromMarker(epoch=plan.seed_epoch):
            changes.append(f"the epoch that sent last is not epoch {plan.seed_epoch}, which was shown")
        if changes:
            raise MoveRefusedError(
                f"{plan.topology!r} has changed since it was shown: {'; '.join(changes)}. Nothing was ended. Trigger a "
                "new run."
            )
