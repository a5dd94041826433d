"""Several topologies in one run: replayed side by side, approved by one answer, moved in one commit. Safe to clear.

A task is mapped over what the form names: its instance has the name of its topology.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from kappa.replay.stages import Stage
from kappa_airflow.answers import premises_of, replaced_by
from kappa_airflow.drivers import actor, record, terminal_errors_fail
from kappa_airflow.forms import Then, check_form, reason_of
from kappa_airflow.joint.joint_approval import Member, members_of, wanted_then
from kappa_airflow.joint.joint_forms import joint_move_form, joint_replay_form
from kappa_airflow.moves import previous_epoch, previous_lines, waiting_epoch, waiting_lines
from kappa_airflow.replays.replay import REPLAY_RETRIES, AwaitStage, PlanReplay, ReplayTask, StartReplay, skip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from kappa.config import Config
    from kappa.replay.request import ReplayRequest


def _named(context: Context, fields: Sequence[str]) -> list[str]:
    """The topologies that the form names, once each.

    Raises:
        AirflowFailException: fewer than two are named.
    """
    with terminal_errors_fail():
        check_form(fields, getattr(context["dag_run"], "conf", None) or {})
    names = list(dict.fromkeys(context["params"].get("topologies") or ()))
    if len(names) < 2:
        raise AirflowFailException(
            f"Field 'topologies' names {', '.join(names) or 'none'}, and several are moved together: name two or more. "
            "A topology alone has DAGs of its own. Trigger a new run."
        )
    return names


def for_each(kind: Any, **arguments: Any) -> Any:
    """A task that is mapped over topologies; in Airflow each instance has the name of its topology.

    Args:
        kind: the operator; of one that is mapped Airflow takes the number of tries from here, not from the operator.
        **arguments: what its instances have in common.
    """
    return kind.partial(map_index_template="{{ task.topology }}", **{**REPLAY_RETRIES, **arguments})


class NameTopologies(ReplayTask):
    """Returns the topologies that the form of a joint replay names."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(topology="", **kwargs)

    def execute(self, context: Context) -> list[str]:
        """Return their names.

        Raises:
            AirflowFailException: fewer than two are named, or the form has a field that there is not.
        """
        return _named(context, list(joint_replay_form(())))


class PlanMember(PlanReplay):
    """Plans the replay of one of the topologies, as the form says for all of them; nothing starts before all are."""

    def request(self, context: Context, config: Config) -> ReplayRequest:
        """What is asked for.

        Raises:
            UsageError: the form is wrong.
        """
        from kappa_airflow.forms import DEFAULT_SEED, replay_request

        form = context["params"]
        return replay_request(
            self.topology,
            {"seed": DEFAULT_SEED, **form},
            actor=actor(context),
            reason=reason_of(form, f"run {context['run_id']}"),
            slice_records=config.slice_records,
        )


class StartMember(StartReplay):
    """Records the plan of one of the topologies, which the plan names, and returns both: topology and epoch."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(topology="", **kwargs)

    def execute(self, context: Context) -> Member:  # type: ignore[override]  # a task that is mapped hands on both
        """Return the topology and its candidate's epoch.

        Raises:
            AirflowFailException: the replay is refused, or it would read the live epoch of another one of them.
            AirflowSkipException: the form asks for the plan only.
        """
        from kappa.replay.plan import ReplayPlan

        plan = ReplayPlan.from_json(self.plan)
        self.topology = plan.topology
        others = sorted({one.topology for one in plan.bound.values()} & set(context["params"]["topologies"]))
        if others:
            raise AirflowFailException(
                f"{self.topology} reads a topic of {', '.join(others)}, and its candidate would read the epoch that is "
                f"live now. Replay {others[0]} first, then kappa replay {self.topology} --upstream {others[0]}=EPOCH "
                "--execute; DAG joint_cutover moves readers of both."
            )
        return {"topology": self.topology, "epoch": super().execute(context)}


class ChooseMembers(ReplayTask):
    """Chooses an epoch of each topology that the form names, and says what would change. Changes nothing.

    Its result is topologies and epochs; under the key ``lines`` are the lines of what would change, and under ``shown``
    is what they were made of.

    Args:
        is_back: whether it is the epoch that was live before, instead of the one that waits for its cutover.
    """

    def __init__(self, *, is_back: bool, **kwargs: Any) -> None:
        super().__init__(topology="", **kwargs)
        self.is_back = is_back

    def execute(self, context: Context) -> list[Member]:
        """Return topologies and epochs.

        Raises:
            AirflowFailException: one of them has no such epoch.
        """
        from kappa.control.plans.premise import Premise

        config, members, lines, shown = self._config(), [], [], {}
        for name in _named(context, list(joint_move_form(()))):
            topology_record = record(config, name)
            with terminal_errors_fail():
                epoch = previous_epoch(topology_record) if self.is_back else waiting_epoch(topology_record)
            lines += (previous_lines if self.is_back else waiting_lines)(topology_record, topology_record.epoch(epoch))
            members.append({"topology": name, "epoch": epoch})
            shown[name] = Premise.of(topology_record, epoch).to_dict()
        for line in lines:
            self.log.info("%s", line)
        context["ti"].xcom_push(key="lines", value=lines)
        context["ti"].xcom_push(key="shown", value=shown)
        return members


class BringBackTogether(ReplayTask):
    """Brings retired epochs of several topologies back, all or none, and returns them. Skipped where the answer is no.

    Args:
        members: topologies and epochs.
        answer: what the task that asked returned.
    """

    template_fields: Sequence[str] = ("members", "answer")

    def __init__(self, *, members: Any, answer: Any, **kwargs: Any) -> None:
        super().__init__(topology="", **kwargs)
        self.members = members
        self.answer = answer

    def execute(self, context: Context) -> list[Member]:
        """Return topologies and epochs, which catch up.

        Raises:
            AirflowSkipException: it was rejected.
            AirflowFailException: one of them cannot go back, or is not what was shown; nothing was changed.
        """
        from kappa import control

        if self.answer["answer"] != "approved":
            skip(self.log, f"It was rejected ({self.answer['by']}): nothing was changed. Clear the task that asked.")
        with terminal_errors_fail():
            epochs = control.recall_together(
                self._config(),
                members_of(self.members),
                actor=actor(context),
                reason=reason_of(context["params"], f"run {context['run_id']}"),
                premises=premises_of(self.answer),
            )
        return [{"topology": name, "epoch": epoch} for name, epoch in sorted(epochs.items())]


class CutOverTogether(AwaitStage):
    """Moves readers of several topologies in one commit, and waits until they are there.

    As :class:`kappa_airflow.replays.replay.CutOver` does for one: as long as readers have not been moved it asks again
    every few seconds, which starts any of the drivers that died and renews a handover that was withdrawn. One epoch
    that was live and is retired since fails it: clearing an old task must not undo a later rollback.

    Args:
        members: topologies and epochs.
        answer: what the task that asked for an approval or a confirmation returned.
    """

    template_fields: Sequence[str] = ("members", "answer")
    ui_color = "#fcf8e3"
    late_seconds = 15.0

    def __init__(self, *, members: Any, answer: Any = None, **kwargs: Any) -> None:
        super().__init__(topology="", epoch=None, stage=Stage.CUT_OVER.value, **kwargs)
        self.members = members
        self.answer = answer

    def execute(self, context: Context) -> None:
        """Ask for the move and defer until it is made.

        Raises:
            AirflowSkipException: the form does not ask for a cutover, or it was rejected.
            AirflowFailException: the move is refused, or one of the epochs was rolled back.
        """
        from kappa import control

        if wanted_then(context) == Then.KEEP:
            skip(
                self.log,
                "The form does not ask for it: the epochs are kept up to date. DAG joint_cutover moves readers.",
            )
        if isinstance(self.answer, dict) and self.answer.get("answer") == "rejected":
            skip(self.log, f"It was rejected ({self.answer.get('by')}): readers stay. Clear the task that asked.")
        config = self._config()
        with terminal_errors_fail():
            for name, epoch in members_of(self.members).items():
                progress = control.progress(config, name, epoch)
                if progress.stage is Stage.RETIRED and not progress.is_recalled:
                    raise AirflowFailException(
                        f"Epoch {epoch} of {name} was live and is retired since. Clearing this task does not bring it "
                        "back; DAG joint_rollback does."
                    )
        self._ask(context, config, restarts=0)

    def resume(self, context: Context, event: dict[str, Any]) -> None:
        """Act on what the trigger saw.

        Raises:
            AirflowFailException: the move is refused, or the epochs will not get there.
        """
        if event["event"] == "late":
            self._ask(context, self._config(), restarts=event["restarts"])
        else:
            self._watch_first()
            super().resume(context, event)

    def _ask(self, context: Context, config: Config, *, restarts: int) -> None:
        from kappa import control

        form = context["params"]
        with terminal_errors_fail():
            control.cut_over_together(
                config,
                members_of(self.members),
                actor=actor(context),
                reason=reason_of(form, f"run {context['run_id']}"),
                replaces=replaced_by(self.answer),
                keep_old_running=bool(form.get("keep_old_running")),
                is_approval_required=wanted_then(context) == Then.ASK,
            )
        self._watch_first()
        self._await(context, config, restarts=restarts)

    def _watch_first(self) -> None:
        """One commit moves all: to see one of them live is to see them all."""
        self.topology, self.epoch = min(members_of(self.members).items())
