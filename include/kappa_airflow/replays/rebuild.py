"""The tasks of ``rebuild__*``: tables folded from the changelog of the epoch that sent last. Each is safe to clear."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from kappa.errors import MoveRefusedError
from kappa_airflow.approvals import Confirm
from kappa_airflow.drivers import actor, record, terminal_errors_fail
from kappa_airflow.forms import check_form, reason_of, rebuild_form
from kappa_airflow.replays.replay import PLAN_KEY, PlanReplay, StartReplay, skip

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

        form = context["params"]
        check_form(list(rebuild_form()), getattr(context["dag_run"], "conf", None) or {})
        request = control.rebuild_request(
            config, self.topology, actor=actor(context), reason=reason_of(form, f"rebuild, run {context['run_id']}")
        )
        return dataclasses.replace(request, allow=frozenset(form.get("allow") or ()))


class ConfirmTakeover(Confirm):
    """Asks before a rebuild ends an epoch of a lake that was lost; a rebuild beside a live epoch is not asked about.

    Args:
        plan: the plan as JSON.
    """

    template_fields: Sequence[str] = ("subject", "body", "plan")

    def __init__(self, *, plan: Any, topology: str, **kwargs: Any) -> None:
        super().__init__(what=f"Take {topology} over in this lake?", lines=(), topology=topology, epoch=None, **kwargs)
        self.plan = plan

    def execute(self, context: Context) -> Any:
        """Ask, if the lake has no live epoch of the topology."""
        plan = _plan(self.plan)
        if plan.live_epoch is not None:
            self.log.info("Epoch %s is live and goes on: there is nothing to confirm.", plan.live_epoch)
            return {"answer": "approved", "by": "nobody was asked", "shown": {"plan": plan.id}}
        self.lines = [
            f"This lake has no live epoch of {self.topology}. Epoch {plan.epoch} is folded from the changelog of epoch "
            f"{plan.seed_epoch} and goes live by itself.",
            f"Epoch {plan.seed_epoch} is ended for good, also where its driver runs on another lake.",
            "Rows of append outputs are not in a changelog: a replay computes them again.",
        ]
        return super().execute(context)

    def _terms(self) -> dict[str, Any]:
        """The plan: the epoch that is ended, and the one that goes live."""
        return {"plan": _plan(self.plan).id}

    def _check(self, shown: Mapping[str, Any]) -> None:
        if shown != self._terms():
            raise AirflowFailException(
                "The plan is another one than the question showed. Nothing was changed. Clear this task to ask again."
            )


class StartRebuild(StartReplay):
    """Records the plan as an epoch and asks for its driver; ends the epoch that sent last where the lake was lost.

    Idempotent. After the end of the other epoch it plans again, since what that one committed last counts, and keeps
    that plan with the task before anything is recorded.

    Args:
        answer: what the task that asked returned.
    """

    template_fields: Sequence[str] = ("plan", "answer")

    def __init__(self, *, answer: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.answer = answer

    def execute(self, context: Context) -> int:
        """Return the epoch.

        Raises:
            AirflowSkipException: it was rejected, or the form asks for the plan only.
            AirflowFailException: it is refused, or it is not what was shown.
        """
        if self.answer["answer"] != "approved":
            skip(self.log, f"It was rejected ({self.answer['by']}): nothing was changed.")
        if self.answer.get("shown") != {"plan": _plan(self.plan).id}:
            raise AirflowFailException(
                "The plan is not the one that was confirmed. Nothing was changed. Clear task confirm to ask again."
            )
        return super().execute(context)

    def final(self, context: Context, plan: ReplayPlan) -> ReplayPlan:
        """The plan that is recorded: the same, or the one after the other epoch ended."""
        from kappa import control

        if plan.live_epoch is not None:
            return plan
        store = context.get("task_state_store")
        plan_text = store.get(PLAN_KEY) if store is not None else None
        if isinstance(plan_text, str):
            return _plan(plan_text)
        config = self._config()
        with terminal_errors_fail():
            self._check_standing(config, plan)
            control.supersede(config, plan)
            again = control.plan(config, plan.request)
        self.explain(again)
        if store is not None:
            store.set(PLAN_KEY, again.to_json())
        return again

    def _check_standing(self, config: Config, plan: ReplayPlan) -> None:
        """Before an epoch is ended for good: this lake has no live one by now, and no other one sent last.

        Raises:
            MoveRefusedError: it is not what was shown.
        """
        from kappa import control
        from kappa.replay.starts import FromMarker

        live = record(config, self.topology).live
        request = control.rebuild_request(config, self.topology, actor=plan.request.actor, reason=plan.request.reason)
        changes = [f"epoch {live} is live in this lake"] if live is not None else []
        if request.start != FromMarker(epoch=plan.seed_epoch):
            changes.append(f"another epoch sent last than epoch {plan.seed_epoch}, which was shown")
        if changes:
            raise MoveRefusedError(
                f"{self.topology!r} is not what was shown: {'; '.join(changes)}. Nothing was ended. Trigger a new run."
            )


def _plan(text: str) -> ReplayPlan:
    from kappa.replay.plan import ReplayPlan

    return ReplayPlan.from_json(text)
