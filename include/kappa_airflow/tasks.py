"""The common parts of epoch tasks: Spark, tries, the form, and members, which are topologies with one epoch each.

DAGs of one topology and of several have the same tasks. Tasks per topology are mapped where the form names topologies.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from kappa_airflow.connections import DEFAULT_SPARK_CONNECTION, config_with_spark
from kappa_airflow.drivers import terminal_errors_fail
from kappa_airflow.forms import Then, check_form, reason_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow.sdk import Context

    from kappa.config import Config
    from kappa.topology.registry import Declared

#: Tries of a task of an epoch. Only errors that may pass are tried again, so there may be many.
REPLAY_RETRIES: dict[str, Any] = {
    "retries": 10,
    "retry_delay": timedelta(seconds=5),
    "retry_exponential_backoff": 2,
    "max_retry_delay": timedelta(minutes=2),
}

T = TypeVar("T")
#: A topology and one of its epochs, as tasks return them: ``{"topology": "retail.loyalty", "epoch": 8}``.
Member = dict[str, Any]


def keep(context: Context, key: str, value: Any) -> None:
    """Keep a value with the task, for later tries and after it was cleared, until its run is deleted.

    Airflow would remove it after some days (``[state_store] default_retention_days``): answers may take longer.
    """
    from airflow.sdk.execution_time.context import NEVER_EXPIRE

    store = context.get("task_state_store")
    if store is not None:
        store.set(key, value, retention=NEVER_EXPIRE)


def kept_value(context: Context, key: str) -> Any:
    """The value that the task has kept; None if it has none."""
    store = context.get("task_state_store")
    return store.get(key) if store is not None else None


def existing(result: T | None) -> T:
    """The result of an earlier task.

    Raises:
        AirflowFailException: it has none.
    """
    if result is None:
        raise AirflowFailException(
            "An earlier task has no result: somebody marked it as a success, or its XCom was removed. Nothing was "
            "changed. Clear that task."
        )
    return result


def members_of(result: Mapping[str, Any] | Iterable[Mapping[str, Any]] | None) -> dict[str, int]:
    """Topology -> epoch, from the result of a task: one member or several.

    Raises:
        AirflowFailException: the task has no result.
    """
    members = [result] if isinstance(result, Mapping) else existing(result)
    return {str(one["topology"]): int(one["epoch"]) for one in members}


def all_members(context: Context, result: Any) -> dict[str, int]:
    """The same, for a move of all topologies that the form names.

    Raises:
        AirflowFailException: the task has no result, or lacks one of them.
    """
    members = members_of(result)
    missing = sorted(set(context["params"].get("topologies") or ()) - set(members))
    if missing:
        raise AirflowFailException(
            f"This run has no epoch of {' and '.join(missing)}: somebody marked a task of it as a success, or its XCom "
            "was removed. Readers of all topologies stay. Clear that task."
        )
    return members


def in_words(members: Mapping[str, int]) -> str:
    """Members in a sentence."""
    return " and ".join(f"epoch {epoch} of {name}" for name, epoch in members.items())


def dag_id(verb: str, topologies: Iterable[str]) -> str:
    """The id of the DAG with this verb, for one topology, or for several of which a run names some."""
    first, *others = topologies
    return f"joint_{verb}" if others else f"{verb}__{first}"


def skip(log: Any, why: str) -> NoReturn:
    """Skip a task and log the reason, because Airflow does not log the exception's message.

    Raises:
        AirflowSkipException: always.
    """
    log.warning("%s", why)
    raise AirflowSkipException(why)


def filled_form(context: Context) -> Mapping[str, Any]:
    """The form of the run.

    Raises:
        UsageError: the run was triggered with a field that the form of its DAG does not have, or whose value does not
            count.
    """
    form = context["params"]
    check_form(list(context["dag"].params), getattr(context["dag_run"], "conf", None) or {}, form)
    return form


def reason_in(context: Context) -> str:
    """The reason in the form, or the run's id."""
    return reason_of(context["params"], f"run {context['run_id']}")


def then_in(context: Context) -> Then:
    """The form's choice for a verified epoch; forms of moves have no such field: they ask."""
    return Then(context["params"].get("then") or Then.ASK.value)


def named_topologies(form: Mapping[str, Any]) -> list[str]:
    """The topologies that a form names, once each.

    Raises:
        AirflowFailException: fewer than two are named.
    """
    names = list(dict.fromkeys(form.get("topologies") or ()))
    if len(names) < 2:
        raise AirflowFailException(
            f"Field 'topologies' names {', '.join(names) or 'none'}, but this DAG moves several together: name two or "
            "more. A single topology has DAGs of its own. Trigger a new run."
        )
    return names


class ReplayTask(BaseOperator):
    """The common parts of an epoch's tasks: the Spark connection and the retries."""

    ui_color = "#d9edf7"

    def __init__(self, *, spark_conn_id: str = DEFAULT_SPARK_CONNECTION, **kwargs: Any) -> None:
        super().__init__(**{**REPLAY_RETRIES, **kwargs})
        self.spark_conn_id = spark_conn_id

    def _config(self) -> Config:
        return config_with_spark(self.spark_conn_id)


class TopologyTask(ReplayTask):
    """A task of a topology before an epoch is chosen."""

    def __init__(self, *, topology: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.topology = topology


class NameTopologies(ReplayTask):
    """Returns the topologies that the form names."""

    def execute(self, context: Context) -> list[str]:
        """Return their names.

        Raises:
            AirflowFailException: fewer than two are named, or the form has an unknown field.
        """
        with terminal_errors_fail():
            return named_topologies(filled_form(context))


def names(topologies: Sequence[Declared]) -> Any:
    """The name of a DAG's only topology; for several, the result of a task ``name``: those that the form names."""
    return topologies[0].name if len(topologies) == 1 else NameTopologies(task_id="name").output


def for_each(topologies: Sequence[Declared], kind: Any, *, over: Mapping[str, Any], **arguments: Any) -> Any:
    """A task per topology: for several topologies it is mapped, and each instance has the name of its topology in
    Airflow.

    Args:
        topologies: those of the DAG.
        kind: the operator; for a mapped one Airflow takes the number of tries from here, not from the operator.
        over: the argument whose value differs per topology.
        **arguments: the common arguments.
    """
    if len(topologies) == 1:
        return kind(**over, **arguments)
    return kind.partial(map_index_template="{{ task.topology }}", **{**REPLAY_RETRIES, **arguments}).expand(**over)
