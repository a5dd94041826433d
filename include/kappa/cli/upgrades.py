"""The command that gives a live epoch new code, and all live epochs this release."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

import kappa
from kappa.acts import Act
from kappa.cli.options import (
    Execute,
    Json,
    Reason,
    Wait,
    actor,
    completed,
    config,
    config_of,
    plain,
    say,
    say_json,
    show,
    table,
)
from kappa.errors import UsageError
from kappa.replay.rules import upgrade as upgrade_rules

if TYPE_CHECKING:
    from kappa.control.release_upgrades import ReleaseUpgrade
    from kappa.control.upgrade import Upgrade

AnyTopology = Annotated[
    str | None, typer.Argument(help="Name of the topology, for example retail.loyalty.", autocompletion=completed)
]
All = Annotated[
    bool,
    typer.Option(
        "--all", help="Give all live epochs the release of Kappa that runs this command, one after the other."
    ),
]
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
        help="Compute this many of the last slices again and compare them with what is there; 0 for none, without "
        "Spark.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(upgrade)


def upgrade(
    topology: AnyTopology = None,
    all_: All = False,
    history_stands: HistoryStands = False,
    slices: Slices = upgrade_rules.SLICES,
    reason: Reason = "",
    execute: Execute = False,
    wait: Wait = True,
    json: Json = False,
) -> None:
    """Give the live epoch the deployed code at its next slice boundary, without a replay: history stays as it is.

    For changes that do not affect existing rows: a faster step, a new case from now on, a log line. A change that
    affects them needs a replay. The last slices are computed with the deployed code, compared with the rows that the
    running code wrote, and the differences are shown first. Sources, tables, keys, outputs and topics must stay the
    same.

    With --all: another release of Kappa, for every live epoch whose own files are the same. Equal results need no word
    of yours. An epoch with an objection stays as it is, the others go over. If the new driver of one does not run, the
    command ends there.
    """
    if (topology is None) != all_:
        raise UsageError(
            "Name one topology, or --all for every live epoch: kappa upgrade <topology>, or kappa upgrade --all"
        )
    if topology is None:
        _all(history_stands, slices, reason, execute=execute, wait=wait, json=json)
    else:
        _one(topology, history_stands, slices, reason, execute=execute, wait=wait, json=json)


def _one(
    topology: str, history_stands: bool, slices: int, reason: str, *, execute: bool, wait: bool, json: bool
) -> None:
    """Give one live epoch the deployed code."""
    from kappa.control import upgrade as upgrading
    from kappa.record.epochs import epochs_of

    settings = config_of(topology)
    proposal = upgrading.propose(settings, topology, slices=slices)
    if not json:
        say(proposal.render())
    if proposal.refusals and not execute:
        say_json({"executed": False, **plain(proposal), "effects": []}) if json else say("Nothing will be changed.")
        raise typer.Exit(1)
    if not execute:  # a dry run need not vouch for history
        act = upgrading.upgrade.planned(settings, proposal, history_stands=True, actor=actor(), reason=reason or "-")
        show(act, way=_way(proposal), json=json, **plain(proposal))
        return
    upgrading.upgrade(settings, proposal, history_stands=history_stands, actor=actor(), reason=reason)
    is_wanted = epochs_of(settings.lake).record(topology).epoch(proposal.epoch).is_wanted
    if wait and is_wanted and not proposal.is_withdrawal:
        upgrading.await_switch(settings, proposal)
    epoch = epochs_of(settings.lake).record(topology).epoch(proposal.epoch)
    if json:
        say_json({"epoch": proposal.epoch, "code": epoch.code, "is_made": epoch.upgrade is None})
    elif proposal.is_withdrawal:
        say(f"The upgrade is withdrawn. Epoch {proposal.epoch} goes on with code {proposal.from_code[:12]}.")
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


def _way(proposal: Upgrade) -> str:
    """How to make the upgrade that is shown."""
    command = f"kappa upgrade {proposal.topology}"
    if proposal.is_withdrawal:
        return f"The epoch runs the deployed code, and needs no word of yours: {command} --reason '...' --execute"
    if proposal.is_proven:
        return f"Only the release of Kappa is another, and its results are equal: {command} --reason '...' --execute"
    return f"If history stands as it is, declare it: {command} --history-stands --reason '...' --execute"


def _all(history_stands: bool, slices: int, reason: str, *, execute: bool, wait: bool, json: bool) -> None:
    """Give all live epochs the release that runs here."""
    from kappa.control import release_upgrades as releases
    from kappa.control import upgrade as upgrading
    from kappa.control.release_upgrades import Standing
    from kappa.spark.session import LazySession

    if history_stands and execute and not reason.strip():
        raise UsageError(
            "You vouch for rows that cannot be compared. State why: "
            "kappa upgrade --all --history-stands --reason '...' --execute"
        )
    settings, who, why = config(), actor(), reason.strip() or f"Kappa {kappa.__version__}"
    names = releases.live_topologies(settings)
    items: list[ReleaseUpgrade] = []
    act: Act[None] = Act(effects=(), outcome=lambda: None)
    with LazySession(config=settings, name="kappa upgrade --all") as spark:
        for number, name in enumerate(names, start=1):

            def note(text: str, place: str = f"[{number}/{len(names)}] {name}") -> None:
                if not json:
                    say(f"{place}: {text}")

            def progress(done: int, due: int, note: Callable[[str], None] = note) -> None:
                note(f"slice {done} of {due} computed")

            item = releases.propose(
                settings, name, slices=slices, history_stands=history_stands, spark=spark, progress=progress
            )
            note(item.standing)
            if execute and item.standing in (Standing.READY, Standing.ASKED):
                item = releases.go_over(settings, item, history_stands=history_stands, actor=who, reason=why, wait=wait)
                note(item.standing)
            elif item.standing == Standing.READY and item.proposal is not None:
                one = upgrading.upgrade.planned(
                    settings, item.proposal, history_stands=history_stands, actor=who, reason=why
                )
                act = Act(effects=(*act.effects, *one.effects), outcome=act.outcome)
            items.append(item)
            if item.standing == Standing.DOWN:  # what stopped its driver may stop the next one as well
                break
    if not json:
        _report(items)
        if rest := names[len(items) :]:
            say(f"Not looked at, since the driver of {items[-1].topology} does not run: {', '.join(rest)}")
    if not execute:
        show(act, otherwise="no live epoch goes over", json=json, topologies=_plain(items))
    elif json:
        say_json({"executed": True, "topologies": _plain(items)})
    if any(item.is_open for item in items):
        raise typer.Exit(1)


def _report(items: Sequence[ReleaseUpgrade]) -> None:
    """The table of all live epochs, and below it what stopped some, and what is to be known of others."""
    rows = [
        (item.topology, item.epoch, item.code[:12], item.to_code[:12] or None, item.evidence, item.standing)
        for item in items
    ]
    table(rows, ("topology", "epoch", "code", "this release", "evidence", "verdict"))
    for item in items:
        warnings = () if item.proposal is None else tuple(finding.line for finding in item.proposal.warnings)
        lines = [*item.reasons, *(line for line in warnings if line not in item.reasons)]
        if lines or item.command:
            say(f"{item.topology}, epoch {item.epoch}, {item.standing}:")
            say(f"  {line}" for line in lines)
        if item.command:
            say(f"  {item.command}")


def _plain(items: Sequence[ReleaseUpgrade]) -> list[Any]:
    return [{**plain(item), "evidence": item.evidence} for item in items]
