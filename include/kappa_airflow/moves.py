"""Tasks that bring back, resume or remove epochs: they show the change, then make it. Each is safe to clear."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from kappa.replay.stages import Stage
from kappa_airflow.drivers import actor, record, terminal_errors_fail
from kappa_airflow.questions import premises_of, skip_rejected
from kappa_airflow.tasks import Member, ReplayTask, filled_form, members_of, named_topologies, reason_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from kappa.control.plans.premise import Premise
    from kappa.record.epoch_record import EpochRecord, TopologyRecord
    from kappa.topology.registry import Declared


class Choose(ReplayTask):
    """Chooses the epoch of each topology in the form, and shows what would change. Changes nothing.

    Its result is topologies and epochs; the key ``lines`` has the lines about the change, and ``shown`` the facts that
    they were made from.

    Args:
        topologies: those of the DAG; where there are several, the form names some.
    """

    def __init__(self, *, topologies: Sequence[Declared], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topology = topologies[0].name if len(topologies) == 1 else None

    def execute(self, context: Context) -> list[Member]:
        """Return topologies and epochs.

        Raises:
            AirflowFailException: there is no such epoch, or nothing can be done with it.
        """
        from kappa.control.plans.premise import Premise

        members, lines, shown = [], [], {}
        with terminal_errors_fail():
            config, form = self._config(), filled_form(context)
            records = {name: record(config, name) for name in self._named(form)}
            live = {name: topology_record.live for name, topology_record in records.items()}
            for name, topology_record in records.items():
                epoch = self.choose(topology_record, form.get("epoch"), live)
                lines += self.lines(topology_record, topology_record.epoch(epoch))
                members.append({"topology": name, "epoch": epoch})
                shown[name] = Premise.of(topology_record, epoch).to_dict()
        for line in lines:
            self.log.info("%s", line)
        context["ti"].xcom_push(key="lines", value=lines)
        context["ti"].xcom_push(key="shown", value=shown)
        return members

    def _named(self, form: Mapping[str, Any]) -> list[str]:
        return [self.topology] if self.topology else named_topologies(form)

    def choose(self, record: TopologyRecord, number: int | None, live: Mapping[str, int | None]) -> int:
        """The chosen epoch.

        Args:
            record: the record of its topology.
            number: the one that the form names, if it names one.
            live: all topologies of the move -> their live epochs.
        """
        raise NotImplementedError

    def lines(self, record: TopologyRecord, epoch: EpochRecord) -> list[str]:
        """What would change, one per line."""
        raise NotImplementedError


class ChooseCandidate(Choose):
    """The epoch that waits for its cutover: the one that is being built, or the last one that was rejected."""

    def choose(self, record: TopologyRecord, number: int | None, live: Mapping[str, int | None]) -> int:
        """The epoch that the form names, the candidate, or the last one that was rejected.

        Raises:
            AirflowFailException: none waits.
        """
        if number is not None:
            return record.epoch(number).epoch
        if record.candidate is not None:
            return record.candidate.epoch
        waiting = [e.epoch for e in record.recent.values() if e.rejected is not None and not e.stage.is_ended]
        if not waiting:
            raise AirflowFailException(
                f"No epoch of {record.topology} waits for a cutover. DAG replay__{record.topology} builds one."
            )
        return waiting[-1]

    def lines(self, record: TopologyRecord, epoch: EpochRecord) -> list[str]:
        """What the epoch is."""
        live = f"live is epoch {record.live}"
        return [f"Epoch {epoch.epoch} of {record.topology} is {epoch.stage}; {live}. {_origin(epoch)}"]


class ChooseCandidateToAbort(ChooseCandidate):
    """The same epoch, to remove it."""

    def choose(self, record: TopologyRecord, number: int | None, live: Mapping[str, int | None]) -> int:
        """The same epoch.

        Raises:
            AirflowFailException: none waits, or the one in the form is live or retired.
        """
        epoch = super().choose(record, number, live)
        target = record.epoch(epoch)
        if epoch == record.live:
            raise AirflowFailException(
                f"Epoch {epoch} of {record.topology} is live: it is not removed. DAG rollback__{record.topology} moves "
                "readers to another one first."
            )
        if target.stage is Stage.RETIRED and not target.is_recalled:
            raise AirflowFailException(
                f"Epoch {epoch} of {record.topology} was live and is retired: there is nothing to end. To remove it "
                f"permanently: kappa retire {record.topology} {epoch} --execute"
            )
        return epoch

    def lines(self, record: TopologyRecord, epoch: EpochRecord) -> list[str]:
        """What would be removed."""
        return [
            f"Epoch {epoch.epoch} of {record.topology} is {epoch.stage}. {_origin(epoch)}",
            "It was live before and is on its way back: this ends the way back. It is retired again, with its files."
            if epoch.is_recalled
            else "Its driver ends; its tables, topics, consumer group, plan and code are removed permanently.",
            f"Live epoch {record.live} and its readers are not touched.",
        ]


class ChoosePrevious(Choose):
    """The retired epoch to which readers go back; of a topology whose candidate reads what comes back, that one."""

    def execute(self, context: Context) -> list[Member]:
        """Return topologies and epochs.

        Raises:
            AirflowFailException: one cannot come back, or no interpreter of this host has its environment.
        """
        members = super().execute(context)
        with terminal_errors_fail():
            if not filled_form(context).get("in_this_environment"):
                self._check_environments({member["topology"]: member["epoch"] for member in members})
        return members

    def _check_environments(self, members: Mapping[str, int]) -> None:
        from kappa import control

        config = self._config()
        missing = (control.missing_environment(config, record(config, name), epoch) for name, epoch in members.items())
        if reasons := [str(one) for one in missing if one is not None]:
            raise AirflowFailException(
                f"{' '.join(reasons)} Name an interpreter that has it in KAPPA_ENVIRONMENTS, or trigger a new run with "
                "field 'in_this_environment'."
            )

    def choose(self, record: TopologyRecord, number: int | None, live: Mapping[str, int | None]) -> int:
        """The epoch that the form names, the one that is on its way with the others, or the one that was live before.

        Raises:
            AirflowFailException: it is live, or cannot come back.
            UnknownEpochError: there is none.
        """
        from kappa import control

        if record.candidate is not None and record.goes_along(live) and number in (None, record.candidate.epoch):
            return record.candidate.epoch
        epoch = control.previous(record) if number is None else record.epoch(number).epoch
        if epoch == record.live:
            raise AirflowFailException(f"Epoch {epoch} of {record.topology} is live: readers already get it.")
        stage = record.epoch(epoch).stage
        if stage is not Stage.RETIRED:
            retired = [e.epoch for e in record.recent.values() if e.stage is Stage.RETIRED]
            raise AirflowFailException(
                f"Field 'epoch' is {epoch}, but epoch {epoch} of {record.topology} is {stage}: it was not live, or its "
                f"tables are gone. Kept for a rollback: {', '.join(map(str, retired)) or 'none'}. Trigger a new run."
            )
        return epoch

    def lines(self, record: TopologyRecord, epoch: EpochRecord) -> list[str]:
        """What would change."""
        if epoch.is_building and not epoch.is_recalled:
            return [
                f"Readers of {record.topology} go forward from epoch {record.live} to epoch {epoch.epoch}, which reads "
                f"an epoch that comes back, in the same commit. {_origin(epoch)}",
                f"Epoch {record.live} is retired and stays.",
            ]
        lines = [
            f"Readers of {record.topology} go back from epoch {record.live} to epoch {epoch.epoch}. {_origin(epoch)}",
            f"Epoch {epoch.epoch} first catches up with its own code; then it takes over at the offset where epoch "
            f"{record.live} yields.",
            f"Epoch {record.live} is retired and stays: the same DAG moves forward to it again.",
        ]
        if epoch.moved is not None:
            lines.append(
                f"Epoch {epoch.epoch} went live at {epoch.moved.at:%Y-%m-%d %H:%M:%S} UTC, by {epoch.moved.actor}."
            )
        return lines


def _origin(epoch: EpochRecord) -> str:
    why = f": {epoch.planned.reason}" if epoch.planned.reason else ""
    return (
        f"It runs version {epoch.version or '?'}, code {epoch.code[:12]}, and was planned by {epoch.planned.actor} at "
        f"{epoch.planned.at:%Y-%m-%d %H:%M} UTC{why}."
    )


class _Confirmed(ReplayTask):
    """A change that needs a confirmation; skipped if the answer is no.

    Args:
        members: topologies and epochs.
        answer: result of the task that asked.
    """

    template_fields: Sequence[str] = ("members", "answer")

    def __init__(self, *, members: Any, answer: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.members = members
        self.answer = answer

    def execute(self, context: Context) -> list[Member]:
        """Make the change, and return topologies and epochs.

        Raises:
            AirflowSkipException: it was rejected.
            AirflowFailException: it is refused, or something has changed since it was shown; nothing was done.
        """
        skip_rejected(self.log, self.answer, "nothing was changed")
        members, shown = members_of(self.members), premises_of(self.answer)
        with terminal_errors_fail():
            self.change(members, shown, context["params"], actor=actor(context), reason=reason_in(context))
        return [{"topology": name, "epoch": epoch} for name, epoch in members.items()]

    def change(
        self, members: Mapping[str, int], premises: Mapping[str, Premise], form: Mapping[str, Any], **by: str
    ) -> None:
        """Make the change."""
        raise NotImplementedError


class BringBack(_Confirmed):
    """Brings back retired epochs, all or none; they then catch up."""

    def change(
        self, members: Mapping[str, int], premises: Mapping[str, Premise], form: Mapping[str, Any], **by: str
    ) -> None:
        """Put it on record."""
        from kappa import control

        is_here = bool(form.get("in_this_environment"))
        control.recall_together(self._config(), members, premises=premises, in_this_environment=is_here, **by)


class Abort(_Confirmed):
    """Removes an epoch that was never live."""

    def change(
        self, members: Mapping[str, int], premises: Mapping[str, Premise], form: Mapping[str, Any], **by: str
    ) -> None:
        """Remove it, unless it is live, or an epoch of another topology reads its topics."""
        from kappa import control

        for name, epoch in members.items():
            control.abort(self._config(), name, epoch, premise=premises[name], **by)
            outcome = "retired again" if premises[name].is_recalled else "gone"
            self.log.info("Epoch %s of %s is %s.", epoch, name, outcome)
