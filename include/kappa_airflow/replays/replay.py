"""The tasks of a replay of one topology or several, in the order of the DAG. Each is safe to clear."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException

from kappa.replay.stages import Stage
from kappa_airflow.drivers import actor, attach, terminal_errors_fail
from kappa_airflow.forms import Then
from kappa_airflow.questions import replaced_by, skip_rejected
from kappa_airflow.tasks import (
    Member,
    ReplayTask,
    TopologyTask,
    all_members,
    dag_id,
    existing,
    filled_form,
    in_words,
    keep,
    kept_value,
    members_of,
    reason_in,
    skip,
    then_in,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from kappa.config import Config
    from kappa.replay.plan import ReplayPlan
    from kappa.replay.request import ReplayRequest

#: Consecutive restarts, none of which lasted, after which a candidate's driver is given up.
MOST_RESTARTS = 8

#: Key under which a run keeps its plan.
PLAN_KEY = "kappa_plan"


def explain(log: Any, plan: ReplayPlan) -> None:
    """Log a plan, with its warnings as warnings.

    Raises:
        AirflowFailException: it is refused.
    """
    from kappa.replay.explain import explain

    for line in explain(plan):
        say = log.warning if line.strip().startswith(("warning", "REFUSED")) else log.info
        say("%s", line)
    if plan.is_refused:
        findings = " ".join(map(str, plan.refusals))
        raise AirflowFailException(f"The replay of {plan.topology} is refused. {findings}")


def skip_plan_only(log: Any, context: Context) -> None:
    """Skip the task if the form asks for the plan only.

    Raises:
        AirflowSkipException: it does.
    """
    if then_in(context) == Then.PLAN:
        skip(log, "The form asks for the plan only: nothing was built. The plan is in the log of task plan.")


class PlanReplay(TopologyTask):
    """Makes the plan for the form, logs it, and returns it as JSON. Changes nothing.

    One run has one plan: a cleared task returns the plan that it made before, so that a started replay continues. A
    refused plan is not kept; clear the task to plan again once the cause is gone. The task does not check that the log
    still has the records of a kept plan; the replay itself does. With several topologies, nothing starts before all are
    planned.
    """

    def execute(self, context: Context) -> str:
        """Return the plan as JSON.

        Raises:
            AirflowFailException: the form is wrong or the plan is refused; the findings are in the log.
        """
        plan_text = kept_value(context, PLAN_KEY)
        if isinstance(plan_text, str):
            self.log.info("This run already has its plan; for a new plan trigger a new run.")
            return plan_text
        with terminal_errors_fail():
            plan = self.plan(context, self._config())
        explain(self.log, plan)
        text = plan.to_json()
        keep(context, PLAN_KEY, text)
        return text

    def plan(self, context: Context, config: Config) -> ReplayPlan:
        """The plan, which may be refused."""
        from kappa import control

        return control.plan(config, self.request(context, config))

    def request(self, context: Context, config: Config) -> ReplayRequest:
        """The request that the form makes.

        Raises:
            UsageError: the form is wrong.
        """
        from kappa_airflow.forms import replay_request

        return replay_request(
            self.topology,
            filled_form(context),
            actor=actor(context),
            reason=reason_in(context),
            slice_records=config.slice_records,
        )


class StartReplay(ReplayTask):
    """Records the plan as a candidate epoch, requests its driver, and returns the topology and the epoch. Idempotent
    for one plan.

    Args:
        plan: the plan as JSON, as :class:`PlanReplay` returns it.
    """

    template_fields: Sequence[str] = ("plan",)

    def __init__(self, *, plan: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan

    @property
    def topology(self) -> str:
        """The topology of the plan."""
        return plan_of(self.plan).topology

    def final(self, context: Context, plan: ReplayPlan) -> ReplayPlan:
        """The plan to record: the one that was made."""
        return plan

    def author(self, context: Context) -> str:
        """The recorded author of the epoch."""
        return actor(context)

    def execute(self, context: Context) -> Member:
        """Return the topology and its candidate's epoch.

        Raises:
            AirflowFailException: the replay is refused, for instance because another one is active, or because it would
                read the live epoch of another topology of the run.
            AirflowSkipException: the form asks for the plan only.
        """
        from kappa import control

        skip_plan_only(self.log, context)
        with terminal_errors_fail():
            plan = plan_of(self.plan)
            named = context["params"].get("topologies") or ()
            others = sorted({one.topology for one in plan.bound.values()} & set(named))
            if others:
                raise AirflowFailException(
                    f"{plan.topology} reads a topic of {', '.join(others)}, and its candidate would read the present "
                    f"live epoch. Replay {others[0]} first, then kappa replay {plan.topology} --upstream "
                    f"{others[0]}=EPOCH --execute; DAG joint_cutover moves readers of both."
                )
            plan = self.final(context, plan)
            epoch = control.replay(self._config(), plan, actor=self.author(context), reason=plan.request.reason)
        self.log.info("Replay %s of %s builds epoch %s.", plan.id, plan.topology, epoch)
        return {"topology": plan.topology, "epoch": epoch}


def plan_of(text: str | None) -> ReplayPlan:
    """A plan that a task returned.

    Raises:
        AirflowFailException: the task has no result.
    """
    from kappa.replay.plan import ReplayPlan

    return ReplayPlan.from_json(existing(text))


class AwaitStage(ReplayTask):
    """Waits until a member has reached a stage; restarts a dead driver with growing pauses.

    If the stage is reached or passed, it ends immediately. It changes nothing else, and never stops a driver.

    Args:
        members: a topology and its epoch; if several arrive in one commit, it waits for the first.
        stage: name of the stage.
        poll_seconds: time between two looks.
    """

    template_fields: Sequence[str] = ("members",)

    #: Seconds after which the task checks whether something is wrong; ``None`` for never.
    late_seconds: ClassVar[float | None] = None

    def __init__(self, *, members: Any, stage: str, poll_seconds: float = 2.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.members = members
        self.stage = stage
        self.poll_seconds = poll_seconds

    @property
    def topology(self) -> str:
        """The topology that it waits for."""
        return min(members_of(self.members))

    @property
    def epoch(self) -> int:
        """The epoch that it waits for."""
        return members_of(self.members)[self.topology]

    def execute(self, context: Context) -> Any:
        """End if the stage is reached, otherwise make sure that a driver works towards it, and defer.

        Raises:
            AirflowFailException: the epoch will not get there.
        """
        return self._await(context, self._config(), restarts=0)

    def resume(self, context: Context, event: dict[str, Any]) -> Any:
        """Act on the event of the trigger.

        Raises:
            AirflowFailException: the epoch will not get there, its driver is stuck, or it died too often.
        """
        if event["event"] != "dead":
            return self._finish(event)
        restarts, message = event["restarts"] + 1, event["message"]
        if restarts > MOST_RESTARTS:
            raise AirflowFailException(
                f"The driver of {self.topology} epoch {self.epoch} was dead {restarts} times in a row. {message} Its "
                "log says why. Clear this task to continue, or abort the epoch."
            )
        self.log.warning(
            "The driver of epoch %s is dead; request %s in a row for another. %s", self.epoch, restarts, message
        )
        return self._await(context, self._config(), restarts=restarts)

    def _await(self, context: Context, config: Config, *, restarts: int) -> Any:
        from kappa import control
        from kappa_airflow.replays.stages import arrival
        from kappa_airflow.triggers import StageTrigger

        topology, epoch = self.topology, self.epoch
        with terminal_errors_fail():
            here = arrival(control.progress(config, topology, epoch), Stage(self.stage))
            if here is not None:
                return self._finish(here)
            attach(context, config, topology, epoch)
        trigger = StageTrigger(
            topology=topology,
            epoch=epoch,
            stage=self.stage,
            restarts=restarts,
            poll_seconds=self.poll_seconds,
            late_seconds=self.late_seconds,
        )
        self.defer(trigger=trigger, method_name="resume")

    def _finish(self, event: dict[str, Any]) -> Any:
        if event["event"] != "arrived":
            what = f"{self.topology} epoch {self.epoch} will not reach {self.stage}"
            raise AirflowFailException(f"{what}. {event['message']}")
        self.log.info("%s", event["message"])


class AwaitReady(AwaitStage):
    """Waits until an epoch can take over: one that comes back has caught up, one that goes along is verified."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(stage=Stage.CAUGHT_UP.value, **kwargs)

    def _await(self, context: Context, config: Config, *, restarts: int) -> Any:
        from kappa import control

        with terminal_errors_fail():
            if not control.progress(config, self.topology, self.epoch).is_recalled:
                self.stage = Stage.VERIFIED.value
        return super()._await(context, config, restarts=restarts)


class CutOver(AwaitStage):
    """Moves readers to candidates, for several topologies in one commit, and waits for the move.

    It is skipped if the form or an answer says so. A live driver that gets no answer in time withdraws its handover and
    continues. So the task repeats its request every few seconds until readers are moved, which also starts a driver
    that died. Repeating the request after the move changes nothing. An epoch that was live and has been rolled back
    since is left alone: clearing an old task must not undo a later rollback.

    Args:
        answer: result of the task that asked for an approval or a confirmation.
        is_approval_required: whether that task asked for an approval, without which no reader is moved unless the form
            says so.
    """

    template_fields: Sequence[str] = ("members", "answer")
    ui_color = "#fcf8e3"
    late_seconds = 15.0

    def __init__(self, *, answer: Any = None, is_approval_required: bool = True, **kwargs: Any) -> None:
        super().__init__(stage=Stage.CUT_OVER.value, **kwargs)
        self.answer = answer
        self.is_approval_required = is_approval_required

    def execute(self, context: Context) -> Any:
        """Ask for the move and defer until it is made.

        Raises:
            AirflowSkipException: the form does not ask for a cutover, or it was rejected.
            AirflowFailException: the move is refused, or one of the epochs was rolled back.
        """
        from kappa import control

        config, members = self._config(), all_members(context, self.members)
        named = " ".join(members)
        live = (control.progress(config, name, epoch).is_live for name, epoch in members.items())
        if then_in(context) == Then.KEEP and not all(live):  # a first epoch goes live in any case
            skip(
                self.log,
                f"The form does not ask for a cutover: readers stay, and {in_words(members)} is kept up to date beside "
                f"what is live. DAG {dag_id('cutover', members)} moves readers later, or: kappa cutover {named} "
                "--execute",
            )
        skip_rejected(self.log, self.answer, "readers stay where they are")
        with terminal_errors_fail():
            for name, epoch in members.items():
                progress = control.progress(config, name, epoch)
                if progress.stage is Stage.RETIRED and not progress.is_recalled:
                    raise AirflowFailException(
                        f"Epoch {epoch} of {name} was live and has been retired since. Clearing this task does not "
                        f"bring it back; DAG {dag_id('rollback', members)} does, or `kappa rollback {named} --execute`."
                    )
        return self._ask(context, config, restarts=0)

    def resume(self, context: Context, event: dict[str, Any]) -> Any:
        """Act on the event of the trigger.

        Raises:
            AirflowFailException: the move is refused, or the epochs will not get there.
        """
        if event["event"] == "late":
            return self._ask(context, self._config(), restarts=event["restarts"])
        return super().resume(context, event)

    def _ask(self, context: Context, config: Config, *, restarts: int) -> Any:
        from kappa import control

        with terminal_errors_fail():
            control.cut_over_together(
                config,
                members_of(self.members),
                actor=actor(context),
                reason=reason_in(context),
                replaces=replaced_by(self.answer),
                keep_old_running=bool(context["params"].get("keep_old_running")),
                is_approval_required=self.is_approval_required and then_in(context) == Then.ASK,
                in_this_environment=bool(context["params"].get("in_this_environment")),
            )
        return self._await(context, config, restarts=restarts)
