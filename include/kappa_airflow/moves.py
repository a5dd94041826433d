"""Tasks that bring back, take up or remove an epoch: what would change, and then the change. Each is safe to clear."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException

from kappa.replay.stages import Stage
from kappa_airflow.answers import premises_of
from kappa_airflow.drivers import actor, record, terminal_errors_fail
from kappa_airflow.forms import check_form, move_form, reason_of
from kappa_airflow.replays.replay import AwaitStage, ReplayTask, skip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from kappa.record.epoch_record import EpochRecord, TopologyRecord


class _Choice(ReplayTask):
    """Chooses the epoch that the form means, and says what would change. Changes nothing.

    Its result is the epoch; under the key ``lines`` are the lines of what would change, and under ``shown`` is what
    they were made of.
    """

    #: Whether its form has a field for keeping the old version running.
    keeps: ClassVar[bool] = True

    def execute(self, context: Context) -> int:
        """Return the epoch.

        Raises:
            AirflowFailException: there is no such epoch, or nothing can be done with it.
        """
        from kappa.control.plans.premise import Premise

        with terminal_errors_fail():
            check_form(list(move_form("", keeps=self.keeps)), getattr(context["dag_run"], "conf", None) or {})
            topology_record = record(self._config(), self.topology)
            epoch = self.choose(topology_record, context["params"].get("epoch"))
            lines = self.lines(topology_record, topology_record.epoch(epoch))
        for line in lines:
            self.log.info("%s", line)
        context["ti"].xcom_push(key="lines", value=lines)
        context["ti"].xcom_push(key="shown", value={self.topology: Premise.of(topology_record, epoch).to_dict()})
        return epoch

    def choose(self, record: TopologyRecord, number: int | None) -> int:
        """The epoch that is meant."""
        raise NotImplementedError

    def lines(self, record: TopologyRecord, epoch: EpochRecord) -> list[str]:
        """What would change, one per line."""
        raise NotImplementedError


class ChooseCandidate(_Choice):
    """The epoch that waits for its cutover: the one that is being built, or the last one that was rejected."""

    def choose(self, record: TopologyRecord, number: int | None) -> int:
        """The epoch that the form names, the candidate, or the last one that was rejected."""
        return waiting_epoch(record, number)

    def lines(self, record: TopologyRecord, epoch: EpochRecord) -> list[str]:
        """What the epoch is."""
        return waiting_lines(record, epoch)


class ChooseCandidateToAbort(ChooseCandidate):
    """The same epoch, which is to be removed."""

    keeps = False

    def lines(self, record: TopologyRecord, epoch: EpochRecord) -> list[str]:
        """What would go."""
        return [
            f"Epoch {epoch.epoch} of {self.topology} is {epoch.stage}. {_origin(epoch)}",
            "It was live before, and is on its way back: that ends. It is retired again, with its files."
            if epoch.is_recalled
            else "Its driver ends; its tables, topics, consumer group, plan and code are removed for good.",
            f"Live epoch {record.live} and its readers are not touched.",
        ]


class ChoosePrevious(_Choice):
    """The retired epoch to which readers go back."""

    def choose(self, record: TopologyRecord, number: int | None) -> int:
        """The epoch that the form names, or the one that was live before."""
        return previous_epoch(record, number)

    def lines(self, record: TopologyRecord, epoch: EpochRecord) -> list[str]:
        """What would change."""
        return previous_lines(record, epoch)


def waiting_epoch(record: TopologyRecord, number: int | None = None) -> int:
    """The epoch that waits for its cutover: a named one, the candidate, or the last one that was rejected.

    Raises:
        AirflowFailException: none waits.
    """
    if number is not None:
        return record.epoch(number).epoch
    if record.candidate is not None:
        return record.candidate.epoch
    waiting = [e.epoch for e in record.epochs.values() if e.rejected is not None and not e.stage.is_ended]
    if not waiting:
        raise AirflowFailException(
            f"No epoch of {record.topology} waits for a cutover. DAG replay__{record.topology} builds one."
        )
    return waiting[-1]


def waiting_lines(record: TopologyRecord, epoch: EpochRecord) -> list[str]:
    """What an epoch that waits is, one per line."""
    return [f"Epoch {epoch.epoch} of {record.topology} is {epoch.stage}; live is epoch {record.live}. {_origin(epoch)}"]


def previous_epoch(record: TopologyRecord, number: int | None = None) -> int:
    """The epoch that comes back: a named one, or the one that was live before.

    Raises:
        AirflowFailException: it is live, or cannot come back.
        UnknownEpochError: there is none.
    """
    from kappa import control

    if record.candidate is not None and record.candidate.is_recalled and number in (None, record.candidate.epoch):
        return record.candidate.epoch
    epoch = control.previous(record) if number is None else record.epoch(number).epoch
    if epoch == record.live:
        raise AirflowFailException(f"Epoch {epoch} of {record.topology} is live: readers have it already.")
    stage = record.epoch(epoch).stage
    if stage is not Stage.RETIRED:
        retired_epochs = [e.epoch for e in record.epochs.values() if e.stage is Stage.RETIRED]
        raise AirflowFailException(
            f"Field 'epoch' is {epoch}, and epoch {epoch} of {record.topology} is {stage}: it was not live, or its "
            f"tables are gone. Kept for a way back: {', '.join(map(str, retired_epochs)) or 'none'}. Trigger a new run."
        )
    return epoch


def previous_lines(record: TopologyRecord, epoch: EpochRecord) -> list[str]:
    """What would change if an epoch came back, one per line."""
    lines = [
        f"Readers of {record.topology} go back from epoch {record.live} to epoch {epoch.epoch}. {_origin(epoch)}",
        f"Epoch {epoch.epoch} first catches up with its own code; then it takes over at the offset where epoch "
        f"{record.live} yields.",
        f"Epoch {record.live} is retired and stays: the same DAG goes forward to it again.",
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


class _Confirmed(AwaitStage):
    """A change that was confirmed.

    Args:
        answer: what the task that asked returned.
    """

    template_fields: Sequence[str] = ("epoch", "answer")

    def __init__(self, *, answer: Any, stage: str = "CAUGHT_UP", **kwargs: Any) -> None:
        super().__init__(stage=stage, **kwargs)
        self.answer = answer

    def check(self) -> None:
        """Go on only where the answer is yes.

        Raises:
            AirflowSkipException: it is no.
        """
        if self.answer["answer"] != "approved":
            skip(
                self.log,
                f"It was rejected ({self.answer['by']}): nothing was changed. Clear the task that asked to ask again.",
            )


class BringBack(_Confirmed):
    """Brings a retired epoch back and waits until it can take over."""

    def execute(self, context: Context) -> None:
        """Put it on record, and wait for the driver to catch up.

        Raises:
            AirflowFailException: it is refused, for instance because another epoch is being built, or it is not what
                was shown.
        """
        from kappa import control

        self.check()
        config = self._config()
        with terminal_errors_fail():
            control.rollback(
                config,
                self.topology,
                to=int(self.epoch),
                actor=actor(context),
                reason=reason_of(context["params"], f"run {context['run_id']}"),
                premise=premises_of(self.answer)[self.topology],
            )
        self._await(context, config, restarts=0)


class Abort(_Confirmed):
    """Removes an epoch that was never live."""

    def execute(self, context: Context) -> None:
        """Remove it.

        Raises:
            AirflowFailException: it is live, it is not what was shown, or another topology's epoch reads its topics.
        """
        from kappa import control

        self.check()
        with terminal_errors_fail():
            control.abort(
                self._config(),
                self.topology,
                int(self.epoch),
                actor=actor(context),
                reason=reason_of(context["params"], f"run {context['run_id']}"),
                premise=premises_of(self.answer)[self.topology],
            )
        self.log.info("Epoch %s of %s is gone.", self.epoch, self.topology)
