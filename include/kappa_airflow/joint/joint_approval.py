"""One question for several topologies: whether verified epochs of all of them may go live together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from kappa_airflow.approvals import Question, keep_rejection, keep_terms, kept_rejection, kept_terms, shown_lines
from kappa_airflow.drivers import actor, record, terminal_errors_fail
from kappa_airflow.forms import THEN, Then, reason_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from kappa.config import Config
    from kappa.control.approval import Terms
    from kappa.topology.registry import Declared

#: A topology and an epoch of it, as tasks hand them on: ``{"topology": "retail.loyalty", "epoch": 8}``.
Member = dict[str, Any]


def members_of(results: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Topology -> epoch, of what the tasks before returned."""
    return {str(one["topology"]): int(one["epoch"]) for one in results}


def wanted_then(context: Context) -> Then:
    """What the form says of a verified epoch; forms of moves have no such field: they ask."""
    return Then(context["params"].get("then") or Then.ASK.value)


class ApproveTogether(Question):
    """Asks once whether verified epochs of several topologies may go live together, and puts the answer on record.

    The answer is on record for each of them, bound to what was shown: :class:`kappa_airflow.approvals.ApproveCutover`.
    One that is not the same any more by then, or one rejection, keeps all where they are.

    Args:
        members: topologies and epochs.
        nth: for which person it waits; a topology that asks for fewer people is not asked about again.
        before: what the task for the person before returned.
    """

    template_fields: Sequence[str] = ("subject", "body", "members", "before")

    def __init__(self, *, members: Any, nth: int = 1, before: Any = None, **kwargs: Any) -> None:
        super().__init__(topology="several topologies", epoch=None, **kwargs)
        self.members = members
        self.nth = nth
        self.before = before

    def execute(self, context: Context) -> Any:
        """Ask, unless the form says otherwise or all of it is live or approved already.

        Raises:
            AirflowFailException: one of the epochs cannot be approved.
        """
        from kappa import control

        if isinstance(self.before, dict) and self.before.get("answer") == "rejected":
            self.log.info("It was rejected (%s): there is nothing more to ask.", self.before.get("by"))
            return self.before
        config, members, then = self._config(), members_of(self.members), wanted_then(context)
        needed = self._needed(config, members)
        if then == Then.KEEP or (then != Then.ASK and not any(needed.values())):
            self.log.info("The form does not ask for an approval. It says: %s.", THEN[then])
            return {"answer": "not asked"}
        with terminal_errors_fail():
            progress_by_name = {name: control.progress(config, name, epoch) for name, epoch in members.items()}
            if all(progress.is_live for progress in progress_by_name.values()):
                self.log.info("All of them are live already: there is nothing to approve.")
                return {"answer": "live already"}
            rejected_by = kept_rejection(context)
            if rejected_by is not None:
                return self._rejected(context, config, rejected_by)
            for name, progress in progress_by_name.items():
                if progress.rejected:
                    self.log.info(
                        "Epoch %s of %s was %s. It is taken up again.", members[name], name, progress.rejected
                    )
                    why = "asked for approval again"
                    control.start(config, name, epoch=members[name], actor=actor(context), reason=why)
            shown = {name: control.approval_terms(config, name, epoch) for name, epoch in members.items()}
        if not [name for name in shown if self._missing(config, shown[name], needed[name])]:
            self.log.info("All of them were approved already.")
            return {"answer": "approved", "by": "those on record", "replaces": _replaces(shown)}
        keep_terms(context, {name: terms.to_dict() for name, terms in shown.items()})
        lines: list[str] = []
        for name, terms in shown.items():
            self._put_on_record(context, config, terms, nth=self.nth, needed=max(1, needed[name]))
            lines += [f"### {name}", "", *shown_lines(config, terms), ""]
        last = f"All of them move in one commit, or none. Without an answer within {self.hours:g} hours it is rejected."
        most = max(1, *needed.values())
        which = f" Approval {self.nth} of {most}" if most > 1 else ""
        return self._ask(context, f"Move readers of {' and '.join(shown)} together?{which}", [*lines, last])

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Put the answer on record for each topology and return it.

        Raises:
            AirflowFailException: something changed since it was asked; readers stay where they are.
        """
        from kappa import control
        from kappa.control.approval import Terms

        is_approved, who = self._answer(context, event)
        config, members = self._config(), members_of(self.members)
        needed = self._needed(config, members)
        with terminal_errors_fail():
            if not is_approved:
                keep_rejection(context, who)  # first: a try after this one must not ask anew
                return self._rejected(context, config, who)
            shown = {name: Terms.from_dict(one) for name, one in kept_terms(context).items()}
            if {name: one.epoch for name, one in shown.items()} != members:
                subject = ", ".join(f"{name} epoch {one.epoch}" for name, one in sorted(shown.items()))
                raise AirflowFailException(
                    f"The question was about {subject}, which is not what would be moved now. Readers stay. Clear this "
                    "task to ask again."
                )
            now = {name: control.approval_terms(config, name, epoch) for name, epoch in members.items()}
            changes = [f"{name}: {change}" for name in sorted(now) for change in shown[name].changes(now[name])]
            if changes:  # before any approval is on record
                raise AirflowFailException(
                    f"It is not what was shown: {'; '.join(changes)}. Readers stay. Clear this task to ask again."
                )
            for name in sorted(now):
                why = reason_of(context["params"], f"run {context['run_id']}")
                control.approve(config, shown[name], actor=who, reason=why)
            missing = [name for name in sorted(now) if self._missing(config, shown[name], needed[name])]
        if missing:
            raise AirflowFailException(
                f"{who} approved {' and '.join(missing)} already, and {self.nth} people have to. Clear this task, and "
                "have another person answer."
            )
        self.log.info("Approved by %s.", who)
        return {"answer": "approved", "by": who, "replaces": _replaces(shown)}

    def _needed(self, config: Config, members: Mapping[str, int]) -> dict[str, int]:
        """Topology -> how many people have to approve it, by its file."""
        from kappa.control import approval

        return {name: approval.required(config, name) for name in sorted(members)}

    def _missing(self, config: Config, shown: Terms, needed: int) -> bool:
        """Whether an epoch lacks the approval for which this task waits."""
        from kappa.control.approval import of_terms

        approvals = of_terms(config, record(config, shown.topology), shown)
        return len(approvals) < min(self.nth, max(1, needed))

    def _rejected(self, context: Context, config: Config, who: str) -> dict[str, Any]:
        """Put the rejection of each epoch on record, where it is not, and return it."""
        from kappa import control

        why = reason_of(context["params"], f"run {context['run_id']}")
        for name, epoch in sorted(members_of(self.members).items()):
            control.reject(config, name, epoch, actor=who, reason=why)
        self.log.warning(
            "Rejected: %s. All readers stay where they are. The drivers of the epochs stop; their tables are kept for "
            "%g hours. Clear this task to take the epochs up again and ask anew.",
            who,
            config.rejected_hours,
        )
        return {"answer": "rejected", "by": who}


def _replaces(shown: Mapping[str, Terms]) -> dict[str, int | None]:
    """Topology -> the live epoch that was shown as the one that is replaced."""
    return {name: terms.live for name, terms in shown.items()}


def approve_together(topologies: Sequence[Declared], *, members: Any, hours: float) -> list[ApproveTogether]:
    """The tasks that ask for approval, one for each person that any of the topologies asks for, and at least one.

    Args:
        topologies: all that the form may name.
        members: topologies and epochs of the run.
        hours: time for each answer.
    """
    tasks: list[ApproveTogether] = []
    for nth in range(1, max(1, *(topology.approvals for topology in topologies)) + 1):
        tasks.append(
            ApproveTogether(
                task_id="approve" if nth == 1 else f"approve_{nth}",
                members=members,
                hours=hours,
                nth=nth,
                before=tasks[-1].output if tasks else None,
            )
        )
    return tasks
