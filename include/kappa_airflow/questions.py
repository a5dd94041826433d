"""Questions in a DAG, asked by Airflow's own operator: their terms, kept until the answer, and the answer.

An answer is a task's result: ``answer``, ``by``, and ``shown``, the terms that it answers, by topology.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput

from kappa import clock
from kappa.errors import MoveRefusedError
from kappa_airflow.connections import DEFAULT_SPARK_CONNECTION, config_with_spark
from kappa_airflow.drivers import record, terminal_errors_fail
from kappa_airflow.tasks import REPLAY_RETRIES, keep, kept_value, members_of, skip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from kappa.config import Config
    from kappa.control.plans.premise import Premise
    from kappa.record.epoch_record import TopologyRecord
    from kappa.record.events import Event

#: What was shown, kept between the question and its answer.
TERMS_KEY = "kappa_terms"
#: How the author of a rejection begins that nobody made.
NO_ANSWER = "no answer"
#: A rejection, kept with the task's number of tries: clearing the task raises that number, a retry does not.
_REJECTION_KEY = "kappa_rejection"
#: The number of tries with which the task began.
_TRIES_KEY = "kappa_tries"


class Question(ApprovalOperator):
    """The base of questions: an answer is the task's result, on which the next task acts.

    Args:
        members: topologies and epochs of the question.
        hours: time for an answer; no answer in that time is a rejection.
    """

    template_fields: Sequence[str] = ("subject", "body", "members")
    ui_color = "#fcf8e3"

    def __init__(
        self, *, members: Any, hours: float, spark_conn_id: str = DEFAULT_SPARK_CONNECTION, **kwargs: Any
    ) -> None:
        super().__init__(
            subject="See the message",
            body="",
            defaults=self.REJECT,
            response_timeout=timedelta(hours=hours),
            **{**REPLAY_RETRIES, **kwargs},
        )
        self.members = members
        self.hours = hours
        self.spark_conn_id = spark_conn_id

    def _config(self) -> Config:
        return config_with_spark(self.spark_conn_id)

    def _show(
        self, context: Context, subject: str, lines: Sequence[str], shown: Mapping[str, Any], *, anew: str
    ) -> None:
        """Give Airflow the question, as a headline and lines of Markdown, which go to the log as well; keep its terms.

        Airflow keeps the text of a task's first question and drops that of every later one, also after the task was
        cleared.

        Args:
            shown: the terms of the question.
            anew: the DAG of which a new run asks about the present state.

        Raises:
            AirflowFailException: the page of the task shows an earlier question.
        """
        from airflow.sdk.execution_time import task_runner
        from airflow.sdk.execution_time.comms import CreateHITLDetailPayload, HITLDetailRequestResult

        self.subject, self.body = subject, "\n".join(lines)
        for line in (subject, *filter(None, lines)):
            self.log.info("%s", line)
        question = CreateHITLDetailPayload(
            ti_id=context["task_instance"].id,
            options=self.options,
            subject=self.subject,
            body=self.body,
            defaults=self.defaults,
            params=self.serialized_params,
            assigned_users=[],
        )
        page = task_runner.SUPERVISOR_COMMS.send(msg=question)
        if not isinstance(page, HITLDetailRequestResult) or (page.subject, page.body) != (subject, self.body):
            raise AirflowFailException(
                "The page of this task still shows an earlier question, whose text Airflow cannot replace. Nothing is "
                f"asked, and nothing was changed. Trigger a new run of DAG {anew}: it asks about what the log shows."
            )
        keep_terms(context, shown)

    def _wait(self) -> NoReturn:
        """Wait for the answer to the question that is shown."""
        raise TaskAwaitingInput(method_name="execute_complete", timeout=self.response_timeout)

    def _answer(self, context: Context, event: dict[str, Any]) -> tuple[bool, str]:
        """Whether it was approved, and the actor."""
        response = super(ApprovalOperator, self).execute_complete(context, event)
        user = response.get("responded_by_user") or {}
        name = user.get("name") or user.get("id")
        who = f"airflow:{name}" if name else f"{NO_ANSWER} within {self.hours:g} hours"
        return bool(name) and response["chosen_options"] == [self.APPROVE], who


class Confirm(Question):
    """Asks whether to do what the previous task described.

    An answer holds for what was shown: the live epoch and what it replaced, the stage of the epoch, its approvals.
    These are part of the result, so that the task that acts is refused once any of them has changed.

    Args:
        what: the question, as a headline.
        lines: what would change, one per line: the result of the previous task.
        shown: the facts that the lines were made from, by topology, if the previous task gives them.
    """

    template_fields: Sequence[str] = ("subject", "body", "members", "lines", "shown")

    def __init__(self, *, what: str, lines: Any, shown: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.what = what
        self.lines = lines
        self.shown = shown

    def execute(self, context: Context) -> Any:
        """Ask.

        Raises:
            AirflowFailException: the lines are no longer true.
        """
        shown = self._terms()
        if self.shown is not None:
            self._check(self.shown)
        lines = [line for change in self.lines for line in (f"- {change}", "")]
        self._show(context, self.what, lines, shown, anew=context["ti"].dag_id)
        self._wait()

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Return the answer, with the terms that it answers.

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
        """The terms that the question shows now: topology -> where its epochs stand."""
        from kappa.control.plans.premise import Premise

        config, members = self._config(), members_of(self.members)
        with terminal_errors_fail():
            return {name: Premise.of(record(config, name), epoch).to_dict() for name, epoch in sorted(members.items())}

    def _check(self, shown: Mapping[str, Any]) -> None:
        from kappa.control.plans.premise import Premise

        config = self._config()
        for name, one in sorted(shown.items()):
            with terminal_errors_fail():
                topology_record = record(config, name)
            try:
                Premise.from_dict(one).check(topology_record)
            except MoveRefusedError as error:
                raise AirflowFailException(f"{error}. Trigger a new run: it shows the present state.") from error


def confirm_choice(choice: Any, *, what: str, hours: float) -> Confirm:
    """The task that asks whether to do what the choosing task described.

    Args:
        choice: the output of :class:`kappa_airflow.moves.Choose`.
        what: the question.
        hours: time for an answer.
    """
    terms = {"members": choice, "lines": choice["lines"], "shown": choice["shown"]}
    return Confirm(task_id="confirm", what=what, hours=hours, **terms)


def keep_terms(context: Context, shown: Mapping[str, Any]) -> None:
    """Keep the terms of a question until it is answered: the answer is about those and nothing else."""
    keep(context, TERMS_KEY, dict(shown))


def kept_terms(context: Context) -> dict[str, Any]:
    """The terms that the question showed.

    Raises:
        AirflowFailException: they are not kept, so it is unknown what was answered.
    """
    terms = kept_value(context, TERMS_KEY)
    if not isinstance(terms, dict) or not terms:
        raise AirflowFailException(
            "The terms of the question are lost: Airflow has none in the state of this task. Nothing was changed. "
            "Clear this task to ask again."
        )
    return terms


def keep_rejection(context: Context, by: str) -> None:
    """Keep a rejection for the tries that follow."""
    keep(context, _REJECTION_KEY, {"by": by, "max_tries": _max_tries(context)})


def asking(context: Context) -> str:
    """What is the same in each try of a question, and another one once the task was cleared."""
    ti = context["ti"]
    return f"{ti.dag_id} {ti.run_id} {ti.task_id} {_max_tries(context)}"


def asked_in_another_run(context: Context, record: TopologyRecord, epoch: int) -> Event | None:
    """The last question of another run about an epoch, if its time is not over, and no answer to it was a no."""
    ti, question = context["ti"], None
    for event in record.recent_events:
        if event.epoch == epoch and event.event == "rejected":
            question = None
        elif event.epoch == epoch and event.event == "asked":
            is_own = str(event.detail.get("asking", "")).startswith(f"{ti.dag_id} {ti.run_id} ")
            question = question if is_own else event
    return question if question is not None and question.detail["until"] > clock.now().isoformat() else None


def is_cleared(context: Context) -> bool:
    """Whether the task was cleared since it asked this for the first time."""
    first = kept_value(context, _TRIES_KEY)
    if first is None:
        keep(context, _TRIES_KEY, _max_tries(context))
    return first not in (None, _max_tries(context))


def _max_tries(context: Context) -> int:
    return int(context["ti"].max_tries)


def kept_rejection(context: Context) -> str | None:
    """The author of a rejection in an earlier try, unless the task was cleared since."""
    rejection = kept_value(context, _REJECTION_KEY)
    if not isinstance(rejection, dict) or rejection["max_tries"] != _max_tries(context):
        return None
    return str(rejection["by"])


def skip_rejected(log: Any, answer: object, outcome: str) -> None:
    """Skip the task if the answer is no.

    Args:
        answer: result of the task that asked.
        outcome: the consequence of a no.

    Raises:
        AirflowSkipException: it is no.
    """
    if isinstance(answer, dict) and answer.get("answer") == "rejected":
        skip(log, f"The change was rejected ({answer.get('by')}): {outcome}. Clear the task that asked to ask again.")


def premises_of(answer: object) -> dict[str, Premise]:
    """The terms that an answer is about, by topology.

    Raises:
        AirflowFailException: the answer does not have them.
    """
    from kappa.control.plans.premise import Premise

    shown = shown_in(answer)
    if not shown:
        raise AirflowFailException(
            "The answer does not have the terms that were shown. Nothing was changed. Clear the task that asked to ask "
            "again."
        )
    with terminal_errors_fail():
        return {name: Premise.from_dict(one) for name, one in shown.items()}


def replaced_by(answer: object) -> dict[str, int]:
    """Topology -> the live epoch that was shown as the one to replace; empty if nothing was shown."""
    return {name: int(one["live"]) for name, one in shown_in(answer).items() if one["live"] is not None}


def shown_in(answer: object) -> dict[str, Any]:
    """The terms that an answer is about; empty where nothing was shown, or where somebody marked the task as done."""
    shown = answer.get("shown") if isinstance(answer, dict) else None
    return shown if isinstance(shown, dict) else {}
