"""The tasks of a replay, in the order of the DAG. Each is safe to clear."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from kappa.replay.stages import Stage
from kappa_airflow.connections import DEFAULT_SPARK_CONNECTION, config_with_spark
from kappa_airflow.drivers import actor, attach, terminal_errors_fail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from kappa.config import Config
    from kappa.replay.plan import ReplayPlan
    from kappa.replay.request import ReplayRequest

#: Tries of a replay's task. Only what can succeed is tried again, so there may be many.
REPLAY_RETRIES: dict[str, Any] = {
    "retries": 10,
    "retry_delay": timedelta(seconds=5),
    "retry_exponential_backoff": 2,
    "max_retry_delay": timedelta(minutes=2),
}

#: Restarts in a row, without one that held, after which a candidate's driver is given up.
MOST_RESTARTS = 8

#: Under which a run keeps its plan.
PLAN_KEY = "kappa_plan"


def skip(log: Any, why: str) -> NoReturn:
    """Skip a task and say why in its log: Airflow logs no message of the exception.

    Raises:
        AirflowSkipException: always.
    """
    log.warning("%s", why)
    raise AirflowSkipException(why)


class ReplayTask(BaseOperator):
    """What the tasks of a replay share: whose replay, on which Spark, tried how often."""

    ui_color = "#d9edf7"

    def __init__(self, *, topology: str, spark_conn_id: str = DEFAULT_SPARK_CONNECTION, **kwargs: Any) -> None:
        super().__init__(**{**REPLAY_RETRIES, **kwargs})
        self.topology = topology
        self.spark_conn_id = spark_conn_id

    def explain(self, plan: ReplayPlan) -> None:
        """Log a plan; what it warns of as warnings.

        Raises:
            AirflowFailException: it is refused.
        """
        from kappa.replay.explain import explain

        for line in explain(plan):
            say = self.log.warning if line.strip().startswith(("warning", "REFUSED")) else self.log.info
            say("%s", line)
        if plan.is_refused:
            findings = " ".join(map(str, plan.refusals))
            raise AirflowFailException(f"The replay of {self.topology} is refused. {findings}")

    def _config(self) -> Config:
        return config_with_spark(self.spark_conn_id)


class PlanReplay(ReplayTask):
    """Makes the plan that the form asks for, logs it, and returns it as JSON. Changes nothing.

    One run has one plan: cleared, the task returns the plan that it made before, so that a replay that was started
    goes on. A refused plan is not kept; clear the task to plan again once its cause is gone. It does not check that
    the log still holds what a kept plan reads: the replay itself does.
    """

    def execute(self, context: Context) -> str:
        """Return the plan as JSON.

        Raises:
            AirflowFailException: the form is wrong or the plan is refused; the findings are in the log.
        """
        from kappa import control

        store = context.get("task_state_store")
        plan_text = store.get(PLAN_KEY) if store is not None else None
        if isinstance(plan_text, str):
            self.log.info("This run has its plan already; for a new plan trigger a new run.")
            return plan_text
        with terminal_errors_fail():
            config = self._config()
            plan = control.plan(config, self.request(context, config))
        self.explain(plan)
        text = plan.to_json()
        if store is not None:
            store.set(PLAN_KEY, text)
        return text

    def request(self, context: Context, config: Config) -> ReplayRequest:
        """What is asked for: what the form says.

        Raises:
            UsageError: the form is wrong.
        """
        from kappa_airflow.forms import check_form, reason_of, replay_form, replay_request

        form = context["params"]
        check_form(list(replay_form(self.topology, "", "")), getattr(context["dag_run"], "conf", None) or {})
        return replay_request(
            self.topology,
            form,
            actor=actor(context),
            reason=reason_of(form, f"run {context['run_id']}"),
            slice_records=config.slice_records,
        )


class StartReplay(ReplayTask):
    """Records the plan as a candidate epoch, asks for its driver, and returns the epoch. Idempotent for one plan.

    Args:
        plan: the plan as JSON, as :class:`PlanReplay` returns it.
    """

    template_fields: Sequence[str] = ("plan",)

    def __init__(self, *, plan: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan

    def final(self, context: Context, plan: ReplayPlan) -> ReplayPlan:
        """The plan that is recorded: the one that was made."""
        return plan

    def author(self, context: Context) -> str:
        """What is on record as the author of the epoch."""
        return actor(context)

    def execute(self, context: Context) -> int:
        """Return the candidate's epoch.

        Raises:
            AirflowFailException: the replay is refused, for instance because another one is active.
            AirflowSkipException: the form asks for the plan only.
        """
        from kappa import control
        from kappa.replay.plan import ReplayPlan
        from kappa_airflow.forms import Then

        if context["params"].get("then") == Then.PLAN:
            skip(self.log, "The form asks for the plan only: nothing was built. The plan is in the log of task plan.")
        with terminal_errors_fail():
            plan = self.final(context, ReplayPlan.from_json(self.plan))
            epoch = control.replay(self._config(), plan, actor=self.author(context), reason=plan.request.reason)
        self.log.info("Replay %s of %s builds epoch %s.", plan.id, self.topology, epoch)
        return epoch


class AwaitStage(ReplayTask):
    """Waits until the candidate has arrived at a stage; starts its driver again, with growing pauses, when it dies.

    Arrived or past it already, it ends at once. It changes nothing else, and never stops a driver.

    Args:
        epoch: the candidate's epoch.
        stage: name of the stage.
        poll_seconds: time between two looks.
    """

    template_fields: Sequence[str] = ("epoch",)

    #: Seconds after which the task looks whether something is amiss; ``None`` for never.
    late_seconds: ClassVar[float | None] = None

    def __init__(self, *, epoch: Any, stage: str, poll_seconds: float = 2.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.epoch = epoch
        self.stage = stage
        self.poll_seconds = poll_seconds

    def execute(self, context: Context) -> None:
        """End if the stage is reached, otherwise make sure that a driver works towards it, and defer.

        Raises:
            AirflowFailException: the epoch will not get there.
        """
        self._await(context, self._config(), restarts=0)

    def resume(self, context: Context, event: dict[str, Any]) -> None:
        """Act on what the trigger saw.

        Raises:
            AirflowFailException: the epoch will not get there, its driver is stuck, or died too often.
        """
        kind, message = event["event"], event["message"]
        if kind == "dead":
            restarts = event["restarts"] + 1
            if restarts > MOST_RESTARTS:
                raise AirflowFailException(
                    f"Driver of {self.topology} epoch {self.epoch} died {restarts} times in a row. {message} "
                    "Its log says why. Clear this task to go on, or abort the epoch."
                )
            self.log.warning("Driver of epoch %s is dead, start %s in a row. %s", self.epoch, restarts, message)
            self._await(context, self._config(), restarts=restarts)
        else:
            self._finish(event)

    def _await(self, context: Context, config: Config, *, restarts: int) -> None:
        from kappa import control
        from kappa_airflow.replays.stages import arrival
        from kappa_airflow.triggers import StageTrigger

        epoch = int(self.epoch)
        with terminal_errors_fail():
            here = arrival(control.progress(config, self.topology, epoch), Stage(self.stage))
            if here is not None:
                self._finish(here)
                return
            attach(context, config, self.topology, epoch)
        trigger = StageTrigger(
            topology=self.topology,
            epoch=epoch,
            stage=self.stage,
            restarts=restarts,
            poll_seconds=self.poll_seconds,
            late_seconds=self.late_seconds,
        )
        self.defer(trigger=trigger, method_name="resume")

    def _finish(self, event: dict[str, Any]) -> None:
        if event["event"] != "arrived":
            what = f"{self.topology} epoch {self.epoch} does not get to {self.stage}"
            raise AirflowFailException(f"{what}. {event['message']}")
        self.log.info("%s", event["message"])


class CutOver(AwaitStage):
    """Moves readers to the candidate and waits until they are there; skipped where the form or an answer says so.

    A live driver that got no answer in time withdraws its handover and goes on; so as long as readers have not been
    moved, the task asks again every few seconds, which also starts a driver of either epoch that died. Asking again
    for a move that was made changes nothing. An epoch that was live and was rolled back since is left alone: clearing
    an old task must not undo a later rollback.

    Args:
        answer: what the task that asked for an approval or a confirmation returned.
    """

    template_fields: Sequence[str] = ("epoch", "answer")
    ui_color = "#fcf8e3"
    late_seconds = 15.0

    def __init__(self, *, answer: Any = None, **kwargs: Any) -> None:
        super().__init__(stage=Stage.CUT_OVER.value, **kwargs)
        self.answer = answer

    def execute(self, context: Context) -> None:
        """Ask for the move and defer until it is made.

        Raises:
            AirflowSkipException: the form does not ask for a cutover, or it was rejected.
            AirflowFailException: the move is refused, or the epoch was rolled back.
        """
        from kappa import control
        from kappa_airflow.forms import Then

        if context["params"].get("then") == Then.KEEP:
            skip(
                self.log,
                f"The form does not ask for it: epoch {self.epoch} is kept up to date beside the live one. DAG "
                f"cutover__{self.topology} moves readers later, or: kappa cutover {self.topology} --execute",
            )
        if isinstance(self.answer, dict) and self.answer.get("answer") == "rejected":
            skip(
                self.log,
                f"It was rejected ({self.answer.get('by')}): readers stay where they are. Clear the task that asked to "
                "ask again.",
            )
        config, epoch = self._config(), int(self.epoch)
        with terminal_errors_fail():
            stage = control.progress(config, self.topology, epoch).stage
            if stage is Stage.RETIRED:
                raise AirflowFailException(
                    f"Epoch {epoch} of {self.topology} was live and is retired since. Clearing this task does not "
                    f"bring it back; `kappa rollback {self.topology} --execute` does."
                )
        self._ask(context, config, restarts=0)

    def resume(self, context: Context, event: dict[str, Any]) -> None:
        """Act on what the trigger saw.

        Raises:
            AirflowFailException: the move is refused, or the epoch will not get there.
        """
        if event["event"] == "late":
            self._ask(context, self._config(), restarts=event["restarts"])
        else:
            super().resume(context, event)

    def _ask(self, context: Context, config: Config, *, restarts: int) -> None:
        from kappa import control
        from kappa_airflow.answers import replaced_by
        from kappa_airflow.forms import Then, reason_of

        form = context["params"]
        with terminal_errors_fail():
            control.cut_over(
                config,
                self.topology,
                int(self.epoch),
                actor=actor(context),
                reason=reason_of(form, f"run {context['run_id']}"),
                replaces=replaced_by(self.answer).get(self.topology),
                keep_old_running=bool(form.get("keep_old_running")),
                is_approval_required=form.get("then", Then.ASK) == Then.ASK,
            )
        self._await(context, config, restarts=restarts)
