"""The question whether to move readers, and its answer on record, for one topology or several together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import chain
from airflow.sdk.exceptions import AirflowFailException

from kappa_airflow.drivers import actor, record, terminal_errors_fail
from kappa_airflow.forms import THEN, Then
from kappa_airflow.pages import site
from kappa_airflow.questions import (
    NO_ANSWER,
    Question,
    asked_in_another_run,
    asking,
    is_cleared,
    keep_rejection,
    kept_rejection,
    kept_terms,
)
from kappa_airflow.replays.replay import AwaitStage, CutOver
from kappa_airflow.replays.reports import ReportLink, Verify, in_short, report_path
from kappa_airflow.tasks import all_members, dag_id, for_each, in_words, members_of, reason_in, then_in

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from airflow.sdk import Context

    from kappa.config import Config
    from kappa.control.approval import Terms
    from kappa.topology.registry import Declared


class Approve(Question):
    """Asks once whether verified epochs may go live, for several topologies together, and records the answer.

    An approval is recorded for each of them. It holds for what was shown: the epoch, its code, its report and the live
    epoch. If one of these has changed by then, or one epoch is rejected, all readers stay where they are. No answer
    within ``hours`` is a rejection without an author. After a rejection drivers of the epochs stop and their tables
    stay for ``KAPPA_REJECTED_HOURS``; clearing the task resumes the epochs and asks again, unless something of the
    question has changed. If a worker is lost before it could record a rejection, the retry records and returns it. The
    file of a topology, and the code of the epochs that a move is about, say how many people must approve; they are
    asked whatever the form says.

    Args:
        nth: number of the person for whom it waits; an approval from the command line counts. A topology that needs
            fewer people needs no further one.
        is_last: whether no other task asks after it: it waits for all whose approval is missing.
        before: result of the task for the previous person.
        resumes: whether epochs that were rejected before are resumed. Otherwise only a cleared task resumes them: who
            rejects the epoch of a run before the run asks has answered.
    """

    operator_extra_links = (ReportLink(),)
    template_fields: Sequence[str] = ("subject", "body", "members", "before")

    def __init__(
        self, *, nth: int = 1, is_last: bool = False, before: Any = None, resumes: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.nth = nth
        self.is_last = is_last
        self.before = before
        self.resumes = resumes

    def execute(self, context: Context) -> Any:
        """Ask, unless the form says otherwise or all epochs are live or approved already.

        Raises:
            AirflowFailException: one of the epochs cannot be approved.
        """
        from kappa import control

        if isinstance(self.before, dict) and self.before.get("answer") == "rejected":
            self.log.info("The move was rejected (%s): there is nothing more to ask.", self.before.get("by"))
            return self.before
        config, members, then = self._config(), all_members(context, self.members), then_in(context)
        needed, is_resumed = _needed(config, members), is_cleared(context) or self.resumes
        if then == Then.KEEP or (then != Then.ASK and not any(needed.values())):
            self.log.info("The form does not ask for an approval. It says to %s.", THEN[then])
            return {"answer": "not asked"}
        with terminal_errors_fail():
            rejected_by = kept_rejection(context)
            if rejected_by is not None:
                return self._rejected(context, config, rejected_by)
            settled = self._settled(config, members, needed)
            if settled is not None:
                return settled
            for name, epoch in members.items():
                rejected = record(config, name).epoch(epoch).rejected
                if rejected is not None and not is_resumed:
                    return self._rejected(context, config, rejected.actor)
                if rejected is not None:
                    self.log.info("Epoch %s of %s was rejected by %s. It is resumed.", epoch, name, rejected.actor)
                    control.start(config, name, epoch=epoch, actor=actor(context), reason="asked for approval again")
            shown = {name: control.approval_terms(config, name, epoch) for name, epoch in members.items()}
        self._show(
            context,
            self._subject(shown, needed),
            self._message(config, shown),
            _plain(shown),
            anew=dag_id("cutover", members),
        )
        for name, terms in shown.items():
            self._put_on_record(context, config, terms, max(1, needed[name]))
        self._wait()

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Put the answer on record for each topology and return it.

        Raises:
            AirflowFailException: something changed since it was asked; readers stay where they are.
        """
        from kappa import control
        from kappa.control.approval import Terms

        is_approved, who = self._answer(context, event)
        config, members = self._config(), members_of(self.members)
        needed = _needed(config, members)
        with terminal_errors_fail():
            if not is_approved:
                keep_rejection(context, who)  # first: a later try must not ask again
                return self._rejected(context, config, who)
            shown = {name: Terms.from_dict(one) for name, one in kept_terms(context).items()}
            asked_about = {name: terms.epoch for name, terms in shown.items()}
            if asked_about != members:
                raise AirflowFailException(
                    f"The question was about {in_words(asked_about)}, but other epochs would be moved now. Readers "
                    f"stay. Trigger a new run of DAG {dag_id('cutover', members)}."
                )
            now = {name: control.approval_terms(config, name, epoch) for name, epoch in members.items()}
            changes = [f"{name}: {change}" for name in sorted(now) for change in shown[name].changes(now[name])]
            if changes:  # before any approval is on record
                raise AirflowFailException(
                    f"This has changed since it was shown: {'; '.join(changes)}. Readers stay. Trigger a new run "
                    f"of DAG {dag_id('cutover', members)}."
                )
            for _, terms in sorted(shown.items()):
                control.approve(config, terms, actor=who, reason=reason_in(context))
            missing = self._missing(_approvers(config, shown), needed)
        if missing:
            raise AirflowFailException(
                f"{who} has already approved {in_words({name: members[name] for name in missing})}, which needs "
                f"{max(needed[name] for name in missing)} people. Clear this task, and let another person answer."
            )
        self.log.info("Approved by %s.", who)
        return _approved(who, shown)

    def _put_on_record(self, context: Context, config: Config, shown: Terms, needed: int) -> None:
        """Record the question before the task waits, so that its notice is sent even if this worker dies here."""
        from kappa import control

        ti, airflow = context["ti"], site()
        page = f"/dags/{ti.dag_id}/runs/{quote(ti.run_id)}/tasks/{ti.task_id}/required_actions"
        with terminal_errors_fail():
            control.ask(
                config,
                shown,
                actor=actor(context),
                asking=asking(context),
                nth=self.nth,
                needed=needed,
                hours=self.hours,
                link=f"{airflow}{page}" if airflow else "",
            )

    def _missing(self, approvers: Mapping[str, Sequence[str]], needed: Mapping[str, int]) -> list[str]:
        """Topologies that lack the approval for which this task waits; the last task waits for all of them.

        An epoch may need more people than the deployed file, by which the tasks are made, asks for.
        """
        most = max(1, *needed.values()) if self.is_last else self.nth
        return [name for name, each in approvers.items() if len(each) < min(most, max(1, needed[name]))]

    def _settled(self, config: Config, members: Mapping[str, int], needed: Mapping[str, int]) -> dict[str, Any] | None:
        """The result without a question: all epochs are live, or were approved in another run or a terminal."""
        from kappa import control

        if all(record(config, name).live == epoch for name, epoch in members.items()):
            self.log.info("There is nothing to approve: %s is live already.", in_words(members))
            return {"answer": "live already"}
        shown = {name: control.approval_terms(config, name, epoch) for name, epoch in members.items()}
        approvers = _approvers(config, shown)
        if self._missing(approvers, needed):
            return None
        by = " and ".join(dict.fromkeys(who for each in approvers.values() for who in each))
        self.log.info("Approved already, by %s: %s.", by, in_words(members))
        return _approved(by, shown)

    def _rejected(self, context: Context, config: Config, who: str) -> dict[str, Any]:
        """Record the rejection of each epoch unless it is recorded, and return it.

        No answer rejects nothing that was approved meanwhile, is live, or that another run still asks about.
        """
        from kappa import control

        members = members_of(self.members)
        if who.startswith(NO_ANSWER):
            settled = self._settled(config, members, _needed(config, members))
            if settled is not None:
                return settled
            others = (asked_in_another_run(context, record(config, name), epoch) for name, epoch in members.items())
            if other := next(filter(None, others), None):
                self.log.warning(
                    "There was %s. Another run asks about the same until %.16s UTC, so nothing is rejected.",
                    who,
                    other.detail["until"],
                )
                return {"answer": "rejected", "by": who}
        for name, epoch in sorted(members.items()):
            control.reject(config, name, epoch, actor=who, reason=reason_in(context))
        self.log.warning(
            "Rejected: %s. Readers stay where they are. %s Clear this task to resume %s and ask again.",
            who,
            _after_rejection(config, members.values()),
            in_words(members),
        )
        return {"answer": "rejected", "by": who}

    def _subject(self, shown: Mapping[str, Terms], needed: Mapping[str, int]) -> str:
        terms, *others = shown.values()
        which = "together" if others else f"from epoch {terms.live} to epoch {terms.epoch}"
        most = max(needed.values())
        return f"Move readers of {' and '.join(shown)} {which}?{f' Approval {self.nth} of {most}' if most > 1 else ''}"

    def _message(self, config: Config, shown: Mapping[str, Terms]) -> list[str]:
        is_joint, lines = len(shown) > 1, []
        for name, terms in shown.items():
            lines += [*([f"### {name}", ""] if is_joint else []), *shown_lines(config, terms), ""]
        together = "All of them move in one commit, or none. " if is_joint else ""
        rejected = _after_rejection(config, [terms.epoch for terms in shown.values()])
        return [*lines, f"{together}Without an answer within {self.hours:g} hours the move is rejected. {rejected}"]


def _needed(config: Config, members: Mapping[str, int]) -> dict[str, int]:
    """Topology -> how many people must approve it."""
    from kappa.control import approval

    return {name: approval.required(config, record(config, name), epoch) for name, epoch in members.items()}


def _approvers(config: Config, shown: Mapping[str, Terms]) -> dict[str, list[str]]:
    """Topology -> the people who approved exactly these terms."""
    from kappa.control import approval

    return {
        name: [event.actor for event in approval.of_terms(config, record(config, name), terms)]
        for name, terms in shown.items()
    }


def _plain(shown: Mapping[str, Terms]) -> dict[str, Any]:
    return {name: terms.to_dict() for name, terms in shown.items()}


def _approved(by: str, shown: Mapping[str, Terms]) -> dict[str, Any]:
    """The answer yes, with the terms that it answers."""
    return {"answer": "approved", "by": by, "shown": _plain(shown)}


def _after_rejection(config: Config, epochs: Collection[int]) -> str:
    one = next(iter(epochs))
    what = "The drivers of the epochs stop; their" if len(epochs) > 1 else f"The driver of epoch {one} stops; its"
    return f"{what} tables are kept for {config.rejected_hours:g} hours."


def shown_lines(config: Config, shown: Terms) -> list[str]:
    """The lines of a question about one epoch, as Markdown: epochs, code, verdict, offsets and difference."""
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


def verify_and_move(topologies: Sequence[Declared], members: Any, *, hours: float, stages: Sequence[str] = ()) -> None:
    """The last tasks of a DAG: wait for epochs, verify them, ask for approval and move readers.

    Args:
        topologies: those of the DAG.
        members: topologies and epochs of the run.
        hours: time for each answer.
        stages: what each epoch reaches before it is verified, a task for each.
    """
    over = {"members": members}
    waits = [for_each(topologies, AwaitStage, task_id=stage.lower(), stage=stage, over=over) for stage in stages]
    verify = for_each(topologies, Verify, task_id="verified", over=over)
    approve = _ask_each(topologies, members=members, hours=hours, resumes=not stages)
    chain(*waits, verify, *approve, CutOver(task_id="cut_over", members=members, answer=approve[-1].output))


def _ask_each(topologies: Sequence[Declared], *, members: Any, hours: float, resumes: bool) -> list[Approve]:
    """The tasks that ask for approval: as many as people are needed for any of the topologies, and at least one."""
    tasks: list[Approve] = []
    last = max(1, *(topology.approvals for topology in topologies))
    for nth in range(1, last + 1):
        task_id, before = ("approve", None) if nth == 1 else (f"approve_{nth}", tasks[-1].output)
        asks: dict[str, Any] = {
            "members": members,
            "hours": hours,
            "nth": nth,
            "is_last": nth == last,
            "before": before,
            "resumes": resumes,
        }
        tasks.append(Approve(task_id=task_id, **asks))
    return tasks
