"""Commands that approve a verified epoch, or reject it."""

from __future__ import annotations

import hashlib
import json as json_text
from typing import Annotated, Any

import typer

from kappa import control
from kappa.cli.options import Epoch, Execute, Json, Reason, Topology, actor, config_of, say, say_json, show
from kappa.config import Config
from kappa.errors import MoveRefusedError

#: Characters of the hash that identifies the state that was shown.
_SHOWN = 12


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(approve)
    app.command()(reject)


def approve(
    topology: Topology,
    epoch: Annotated[int | None, typer.Argument(help="Number of the epoch; by default the candidate.")] = None,
    shown: Annotated[
        str, typer.Option("--shown", help="Hash of the state that was shown; refused if that has changed since.")
    ] = "",
    reason: Reason = "",
    execute: Execute = False,
    json: Json = False,
) -> None:
    """Approve a verified epoch: its code, its report and the live epoch that it replaces, as they are shown.

    `kappa cutover` moves readers. A topology may require one approval or those of two people (`approvals=`). Where the
    lake or the drivers are not this host's own, only approvals in Airflow count, and this one is refused.
    """
    from kappa.record.epochs import epochs_of

    settings = config_of(topology)
    number = epoch if epoch is not None else epochs_of(settings.lake).record(topology).candidate_epoch()
    terms = control.approval_terms(settings, topology, number)
    name = hashlib.sha256(json_text.dumps(terms.to_dict(), sort_keys=True).encode()).hexdigest()[:_SHOWN]
    if shown and shown != name:
        raise MoveRefusedError(
            f"Epoch {number} of {topology!r} is {name} now, but {shown} was shown: code, report or live epoch changed. "
            f"Review it again: kappa approve {topology} {number}"
        )
    if not json:
        replaced = "no epoch" if terms.live is None else f"epoch {terms.live}"
        say(f"Epoch {number} of {topology} would replace {replaced}. Code {terms.code[:12]}, verdict {terms.verdict}.")
        say(control.diff(settings, topology, number).render())
        say(f"The hash of this state is {name}: an approval with --shown {name} is refused after any change.")
    act = control.approve.planned(settings, terms, actor=actor(), reason=reason)
    if not execute:
        about = {"topology": topology, "epoch": number, "shown": name, **_state(settings, topology, number)}
        show(act, otherwise=f"epoch {number} has your approval, or all that it needs", json=json, **about)
        return
    act.make()
    state = _state(settings, topology, number)
    by, missing = " and ".join(state["approved_by"]), state["missing"]
    if json:
        say_json({"topology": topology, "epoch": number, "shown": name, **state})
        return
    say(f"Epoch {number} of {topology} is approved by {by}.")
    way = f"kappa cutover {topology} --execute"
    say(f"{missing} more is needed: another person runs the same command." if missing else f"To move readers: {way}")


def reject(topology: Topology, epoch: Epoch, reason: Reason = "", execute: Execute = False) -> None:
    """Reject a verified epoch: it does not go live, its driver stops, and its tables stay for KAPPA_REJECTED_HOURS."""
    settings = config_of(topology)
    act = control.reject.planned(settings, topology, epoch, actor=actor(), reason=reason)
    if not execute:
        show(act, otherwise=f"epoch {epoch} of {topology} was rejected")
        return
    act.make()
    say(
        f"Epoch {epoch} of {topology} is rejected; its tables are kept for {settings.rejected_hours:g} hours. To "
        f"resume it: kappa start {topology} --epoch {epoch} --execute"
    )


def _state(settings: Config, topology: str, epoch: int) -> dict[str, Any]:
    from kappa.control import approval
    from kappa.record.epochs import epochs_of

    record = epochs_of(settings.lake).record(topology)
    approvers = [event.actor for event in approval.valid_approvals(settings, record, epoch)]
    missing = max(0, approval.required(settings, record, epoch) - len(approvers))
    return {"approved_by": approvers, "missing": missing}
