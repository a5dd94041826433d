"""What an answer to a question was an answer to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from kappa_airflow.drivers import terminal_errors_fail

if TYPE_CHECKING:
    from kappa.control.plans.premise import Premise


def premises_of(answer: Mapping[str, Any]) -> dict[str, Premise]:
    """What an answer is an answer to, by topology.

    Raises:
        AirflowFailException: it does not say.
    """
    from kappa.control.plans.premise import Premise

    shown = answer.get("shown")
    if not isinstance(shown, dict) or not shown:
        raise AirflowFailException(
            "The answer does not say what was shown. Nothing was changed. Clear the task that asked to ask again."
        )
    with terminal_errors_fail():
        return {name: Premise.from_dict(one) for name, one in shown.items()}


def replaced_by(answer: object) -> dict[str, int]:
    """Topology -> the live epoch that was shown as the one that is replaced; empty where nothing was shown."""
    if not isinstance(answer, dict):
        return {}
    shown: dict[str, Any] = answer.get("replaces") or {
        name: one["live"] for name, one in (answer.get("shown") or {}).items()
    }
    return {name: int(live) for name, live in shown.items() if live is not None}
