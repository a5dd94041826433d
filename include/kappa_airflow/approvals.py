"""The question whether readers are moved, asked by Airflow's own operator, and its answer on record."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import conf
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowFailException

from kappa.errors import MoveRefusedError
from kappa_airflow.connections import DEFAULT_SPARK_CONNECTION, config_with_spark
from kappa_airflow.drivers import actor, record, terminal_errors_fail
from kappa_airflow.forms import THEN, Then, reason_of
from kappa_airflow.replays.replay import REPLAY_RETRIES
from kappa_airflow.replays.reports import ReportLink, in_short, report_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from kappa.config import Config
    from kappa.control.approval import Terms
    from kappa.topology.registry import Declared

#: What was shown, kept between the question and its answer.
TERMS_KEY = "kappa_terms"
#: A rejection, kept with the tries that the task had: those rise when the task is cleared, and not by a retry.
_REJECTION_KEY = "kappa_rejection"


class Question(ApprovalOperator):
    """What questions of a topology share: an answer is the task's result, on which the next task acts, as its log says.

    Args:
        epoch: the epoch that it is about.
        hours: time for an answer; none within it is a rejection.
    """

    template_fields: Sequence[str] = ("subject", "body", "epoch")
    ui_color = "#fcf8e3"

    def __init__(
        self, *, topology: str, epoch: Any, hours: float, spark_conn_id: str = DEFAULT_SPARK_CONNECTION, **kwargs: Any
    ) -> None:
        super().__init__(
            subject=f"{topology}: see the message",
            body="",
            defaults=self.REJECT,
            response_timeout=timedelta(hours=hours),
            **{**REPLAY_RETRIES, **kwargs},
        )
        self.topology = topology
        self.epoch = epoch
        self.hours = hours
        self.spark_conn_id = spark_conn_id

    def _config(self) -> Config:
        return config_with_spark(self.spark_conn_id)

    def _ask(self, context: Context, subject: str, lines: Sequence[str]) -> Any:
        """Ask with this headline and these lines of Markdown, which go to the log as well."""
        self.subject, self.body = subject, "\n".join(lines)
        for line in (subject, *filter(None, lines)):
            self.log.info("%s", line)
        return super().execute(context)

    def _put_on_record(self, context: Context, config: Config, shown: Terms, *, nth: int, needed: int) -> None:
        """The question, before it is asked: its notice is sent also when this worker dies here."""
        from kappa import control

        has_address = conf.get("api", "base_url", fallback="")
        with terminal_errors_fail():
            control.ask(
                config,
                shown,
                actor=actor(context),
                nth=nth,
                needed=needed,
                hours=self.hours,
                link=self.generate_link_to_ui(task_instance=context["ti"]) if has_address else "",
            )

    def _answer(self, context: Context, event: dict[str, Any]) -> tuple[bool, str]:
        """Whether it was approved, and the actor."""
        response = super(ApprovalOperator, self).execute_complete(context, event)
        user = (response.get("responded_by_user") or {}).get("name")
        who = f"airflow:{user}" if user else f"no answer within {self.hours:g} hours"
        return response["chosen_options"] == [self.APPROVE], who


class ApproveCutover(Question):
    """Asks whether a verified epoch may go live, and puts the answer on record.

    An approval holds for what was shown: the epoch, its code, its report and the live epoch. No answer within
    ``hours`` is a rejection without an author. After a rejection the epoch's driver stops and its tables
    stay for ``KAPPA_REJECTED_HOURS``; clearing the task takes the epoch up again and asks anew. A retry after a
    rejection, of a worker that was lost before it could tell, puts it on record and returns it.

    Args:
        approvals: how many people the topology asks for; they are asked whatever the form says.
        nth: for which of them this task waits; an approval from the command line counts.
        before: what the task for the person before returned.
    """

    operator_extra_links = (ReportLink(),)
    template_fields: Sequence[str] = ("subject", "body", "epoch", "before")

    def __init__(self, *, approvals: int = 0, nth: int = 1, before: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.approvals = approvals
        self.nth = nth
        self.before = before

    def execute(self, context: Context) -> Any:
        """Ask, unless the form says otherwise or the epoch is live already.

        Raises:
            AirflowFailException: the epoch cannot be approved.
        """
        from kappa import control
        from kappa.control import approval

        if isinstance(self.before, dict) and self.before.get("answer") == "rejected":
            self.log.info("It was rejected (%s): there is nothing more to ask.", self.before.get("by"))
            return self.before
        then = context["params"].get("then", Then.ASK.value)
        if then == Then.KEEP or (then != Then.ASK and not self.approvals):
            self.log.info("The form does not ask for an approval. It says: %s.", THEN[Then(then)])
            return {"answer": "not asked"}
        config, epoch = self._config(), int(self.epoch)
        with terminal_errors_fail():
            progress = control.progress(config, self.topology, epoch)
            if progress.is_live:
                self.log.info("Epoch %s is live already: there is nothing to approve.", epoch)
                return {"answer": "live already"}
            rejected_by = kept_rejection(context)
            if rejected_by is not None:
                return self._rejected(context, config, rejected_by)
            if progress.rejected:
                self.log.info("Epoch %s was %s. It is taken up again.", epoch, progress.rejected)
                control.start(
                    config, self.topology, epoch=epoch, actor=actor(context), reason="asked for approval again"
                )
            shown = control.approval_terms(config, self.topology, epoch)
        approvers = [event.actor for event in approval.of_terms(config, record(config, self.topology), shown)]
        if len(approvers) >= self.nth:  # on the command line, or before a try that did not come to its end
            by = " and ".join(approvers)
            self.log.info("Epoch %s was approved already, by %s.", epoch, by)
            return {"answer": "approved", "by": by, "replaces": {self.topology: shown.live}}
        keep_terms(context, shown.to_dict())
        self._put_on_record(context, config, shown, nth=self.nth, needed=max(1, self.approvals))
        subject = f"Move readers of {self.topology} from epoch {shown.live} to epoch {epoch}?"
        if self.approvals > 1:
            subject += f" Approval {self.nth} of {self.approvals}"
        return self._ask(context, subject, self._message(config, shown))

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Put the answer on record and return it.

        Raises:
            AirflowFailException: something changed since it was asked; readers stay where they are.
        """
        from kappa import control
        from kappa.control.approval import Terms, of_terms

        is_approved, who = self._answer(context, event)
        config, epoch = self._config(), int(self.epoch)
        why = reason_of(context["params"], f"run {context['run_id']}")
        with terminal_errors_fail():
            if is_approved:
                shown = Terms.from_dict(kept_terms(context))
                control.approve(config, shown, actor=who, reason=why)
                approvals = of_terms(config, record(config, self.topology), shown)
                if len(approvals) < min(self.nth, max(1, self.approvals)):
                    raise AirflowFailException(
                        f"{who} approved epoch {epoch} of {self.topology} already, and {self.approvals} people have "
                        "to. Clear this task, and have another person answer."
                    )
                self.log.info("Approved by %s.", who)
                return {"answer": "approved", "by": who, "replaces": {self.topology: shown.live}}
            keep_rejection(context, who)  # first: a try after this one must not ask anew
            return self._rejected(context, config, who)

    def _rejected(self, context: Context, config: Config, who: str) -> dict[str, Any]:
        """Put a rejection on record, if it is not there, and return it."""
        from kappa import control

        epoch, why = int(self.epoch), reason_of(context["params"], f"run {context['run_id']}")
        control.reject(config, self.topology, epoch, actor=who, reason=why)
        self.log.warning(
            "Rejected: %s. Readers stay where they are. The driver of epoch %s stops; its tables are kept for %g "
            "hours. Clear this task to take the epoch up again and ask anew.",
            who,
            epoch,
            config.rejected_hours,
        )
        return {"answer": "rejected", "by": who}

    def _message(self, config: Config, shown: Terms) -> list[str]:
        epoch = int(self.epoch)
        return [
            *shown_lines(config, shown),
            "",
            f"Without an answer within {self.hours:g} hours it is rejected: the driver of epoch {epoch} stops, and its "
            f"tables are kept for {config.rejected_hours:g} hours.",
        ]


def shown_lines(config: Config, shown: Terms) -> list[str]:
    """What a question says of one epoch, as Markdown: epochs, code, verdict, offsets and difference."""
    from kappa import control

    report = control.diff(config, shown.topology, shown.epoch)
    offsets = " ".join(f"{topic}[{partition}]={offset:,}" for (topic, partition), offset in report.at.items())
    return [
        f"Readers of **{shown.topology}** are moved from epoch **{shown.live}** to epoch **{shown.epoch}**, which runs "
        f"code `{shown.code[:12]}`.",
        "",
        f"Verdict: **{report.verdict}**, compared at {offsets or 'no offset'}.",
        "",
        *(f"- {line}" for line in in_short(report)),
        "",
        f"[The whole report]({report_path(shown.topology, shown.epoch)}).",
    ]


def keep_terms(context: Context, shown: Mapping[str, Any]) -> None:
    """Keep what a question shows until it is answered: the answer is about that, and nothing else."""
    store = context.get("task_state_store")
    if store is not None:
        store.set(TERMS_KEY, dict(shown))


def kept_terms(context: Context) -> dict[str, Any]:
    """What the question showed.

    Raises:
        AirflowFailException: nothing is kept of it, so that nobody can tell what was answered.
    """
    store = context.get("task_state_store")
    terms = store.get(TERMS_KEY) if store is not None else None
    if not isinstance(terms, dict) or not terms:
        raise AirflowFailException(
            "It is not known any more what the question showed: Airflow keeps nothing of it in the state of this task. "
            "Nothing was changed. Clear this task to ask again."
        )
    return terms


def keep_rejection(context: Context, by: str) -> None:
    """Keep a rejection for the tries that follow."""
    store = context.get("task_state_store")
    if store is not None:
        store.set(_REJECTION_KEY, {"by": by, "max_tries": _max_tries(context)})


def _max_tries(context: Context) -> int:
    return int(context["ti"].max_tries)


def kept_rejection(context: Context) -> str | None:
    """The author of a rejection in an earlier try, unless the task was cleared since."""
    store = context.get("task_state_store")
    rejection = store.get(_REJECTION_KEY) if store is not None else None
    if not isinstance(rejection, dict) or rejection["max_tries"] != _max_tries(context):
        return None
    return str(rejection["by"])


def ask_each(topology: Declared, *, epoch: Any, hours: float) -> list[ApproveCutover]:
    """The tasks that ask for approval, one for each person that the topology asks for, and at least one.

    Args:
        epoch: the epoch.
        hours: time for each answer.
    """
    tasks: list[ApproveCutover] = []
    for nth in range(1, max(1, topology.approvals) + 1):
        tasks.append(
            ApproveCutover(
                task_id="approve" if nth == 1 else f"approve_{nth}",
                topology=topology.name,
                epoch=epoch,
                hours=hours,
                approvals=topology.approvals,
                nth=nth,
                before=tasks[-1].output if tasks else None,
            )
        )
    return tasks


class Confirm(Question):
    """Asks whether something is to be done that the task before it described.

    An answer holds for what was shown: the live epoch and what it replaced, the stage of the epoch, its approvals. It
    is part of the result, so that the task that acts is refused once any of it is another.

    Args:
        what: the question, as a headline.
        lines: what would change, one per line: the result of the task before it.
        members: topologies and epochs, where it is about several.
        shown: what the lines were made of, by topology, where the task before it says so.
    """

    template_fields: Sequence[str] = ("subject", "body", "epoch", "lines", "members", "shown")

    def __init__(self, *, what: str, lines: Any, members: Any = None, shown: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.what = what
        self.lines = lines
        self.members = members
        self.shown = shown

    def execute(self, context: Context) -> Any:
        """Ask.

        Raises:
            AirflowFailException: it is not as the lines say any more.
        """
        shown = self._terms()
        if self.shown is not None:
            self._check(self.shown)
        keep_terms(context, shown)
        return self._ask(context, self.what, [line for change in self.lines for line in (f"- {change}", "")])

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Return the answer, with what it is an answer to.

        Raises:
            AirflowFailException: something changed since it was asked; nothing was changed by it.
        """
        is_approved, who = self._answer(context, event)
        if not is_approved:
            self.log.warning("Rejected: %s. Nothing was changed. Clear this task to ask again.", who)
            return {"answer": "rejected", "by": who}
        shown = kept_terms(context)
        self._check(shown)
        return {"answer": "approved", "by": who, "shown": shown}

    def _terms(self) -> dict[str, Any]:
        """What the question shows now: topology -> where its epochs stand."""
        from kappa.control.plans.premise import Premise

        config = self._config()
        epochs = (
            {self.topology: int(self.epoch)}
            if self.members is None
            else {str(one["topology"]): int(one["epoch"]) for one in self.members}
        )
        with terminal_errors_fail():
            return {name: Premise.of(record(config, name), epoch).to_dict() for name, epoch in sorted(epochs.items())}

    def _check(self, shown: Mapping[str, Any]) -> None:
        from kappa.control.plans.premise import Premise

        config = self._config()
        for name, one in sorted(shown.items()):
            with terminal_errors_fail():
                topology_record = record(config, name)
            try:
                Premise.from_dict(one).check(topology_record)
            except MoveRefusedError as error:
                raise AirflowFailException(
                    f"{error}. Clear the task before this one: it looks again, and this one asks again."
                ) from error
