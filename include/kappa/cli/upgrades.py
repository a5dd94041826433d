"""The command that gives a live epoch new code."""

from __future__ import annotations

from typing import Annotated

import typer

from kappa.cli.options import Execute, Json, Reason, Topology, Wait, actor, config, plain, say, say_json, show
from kappa.replay.rules import upgrade as upgrade_rules

HistoryStands = Annotated[
    bool,
    typer.Option(
        "--history-stands",
        help="Declare that every row of the old code is right under the new one too; kept in the history with your "
        "name.",
    ),
]
Slices = Annotated[
    int,
    typer.Option(
        "--slices",
        min=0,
        help="Compute this many of the last slices with both codes, and compare; 0 for none, without Spark.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(upgrade)


def upgrade(
    topology: Topology,
    history_stands: HistoryStands = False,
    slices: Slices = upgrade_rules.SLICES,
    reason: Reason = "",
    execute: Execute = False,
    wait: Wait = True,
    json: Json = False,
) -> None:
    """Give the live epoch the deployed code at its next slice boundary, without a replay: history stays as it is.

    For changes that do not affect existing rows: a faster step, a new case from now on, a log line. A change that
    affects them needs a replay. The results of both codes for the last slices are computed and shown first. Sources,
    tables, keys, outputs and topics must stay the same.
    """
    from kappa.control import upgrade as upgrading
    from kappa.record.epochs import epochs_of

    settings = config()
    proposal = upgrading.propose(settings, topology, slices=slices)
    if not json:
        say(proposal.render())
    if proposal.refusals and not execute:
        say_json({"executed": False, **plain(proposal), "effects": []}) if json else say("Nothing will be changed.")
        raise typer.Exit(1)
    if not execute:  # a dry run need not vouch for history
        act = upgrading.upgrade.planned(settings, proposal, history_stands=True, actor=actor(), reason=reason or "-")
        command = f"kappa upgrade {topology} --history-stands --reason '...' --execute"
        show(act, way=f"If history stands as it is, declare it: {command}", json=json, **plain(proposal))
        return
    upgrading.upgrade(settings, proposal, history_stands=history_stands, actor=actor(), reason=reason)
    is_wanted = epochs_of(settings.lake).record(topology).epoch(proposal.epoch).is_wanted
    if wait and is_wanted:
        upgrading.await_switch(settings, proposal)
    epoch = epochs_of(settings.lake).record(topology).epoch(proposal.epoch)
    if json:
        say_json({"epoch": proposal.epoch, "code": epoch.code, "is_made": epoch.upgrade is None})
    elif epoch.upgrade is None:
        detail = epoch.upgraded[-1].detail
        say(
            f"Epoch {proposal.epoch} runs version {proposal.to_version} (code {proposal.to_code[:12]}) from slice "
            f"{detail['seq'] + 1} on. The commit before it is savepoint {detail['savepoint']}."
        )
    elif is_wanted:
        say(f"Requested; the driver switches at its next slice boundary. Follow it with: kappa history {topology}")
    else:
        say(f"Requested; its driver is stopped and switches when it is started: kappa start {topology} --execute")
