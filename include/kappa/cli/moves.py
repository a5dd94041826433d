"""Commands that start, stop, swap and remove epochs, and remove their leftovers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from kappa import control
from kappa.acts import Act, Effect
from kappa.cli.options import (
    Allow,
    Epoch,
    Execute,
    Json,
    Reason,
    Topologies,
    Topology,
    Wait,
    actor,
    config,
    config_of,
    say,
    say_json,
    show,
    table,
)
from kappa.cli.views.watch import watch, watch_together
from kappa.config import Config
from kappa.errors import UsageError
from kappa.replay.rules.cutover import rest_of_group
from kappa.replay.stages import Stage

if TYPE_CHECKING:
    from kappa.driver.handovers.expiry import Expiry

OneEpoch = Annotated[int | None, typer.Option("--epoch", help="The epoch; by default the only one that fits.")]

KeepOld = Annotated[
    bool,
    typer.Option(
        "--keep-old-running", help="Let the old driver continue without sending, so that a rollback needs no wait."
    ),
]

InThisEnvironment = Annotated[
    bool,
    typer.Option(
        "--in-this-environment",
        help="Where no interpreter has an epoch's own environment, run it in that of this command; stays on record.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (start, stop, cutover, rollback, abort, retire, housekeeping):
        app.command()(command)


def start(
    topology: Topology,
    epoch: OneEpoch = None,
    allow: Allow = None,
    in_this_environment: Annotated[
        bool,
        typer.Option(
            "--in-this-environment",
            help="Make the environment of this command the epoch's own from now on; stays on record.",
        ),
    ] = False,
    reason: Reason = "start",
    execute: Execute = False,
    wait: Wait = True,
    json: Json = False,
) -> None:
    """Start a driver, by default the live epoch's. A topology that was never live gets its first epoch.

    A stuck driver tries again.
    """
    settings = config()
    act = control.start.planned(
        settings,
        topology,
        epoch=epoch,
        actor=actor(),
        reason=reason,
        allow=allow or (),
        in_this_environment=in_this_environment,
    )
    if not execute:
        show(act, otherwise="the driver runs", json=json)
        return
    started = act.make()
    if wait:
        watch(
            settings,
            topology,
            started,
            until=lambda p: (p.is_live or epoch is not None) and p.driver.is_running,
            quiet=json,
        )
    progress = control.progress(settings, topology, started)
    say_json(progress) if json else say(progress.message)


def stop(
    topology: Topology, epoch: OneEpoch = None, reason: Reason = "stop", execute: Execute = False, wait: Wait = True
) -> None:
    """Stop a driver at its next slice boundary. Nothing is lost; `kappa start` continues from there."""
    settings = config_of(topology)
    act = control.stop.planned(settings, topology, epoch=epoch, actor=actor(), reason=reason, wait=wait)
    if not execute:
        show(act, otherwise="the driver is stopped, or is stopping")
        return
    stopped = act.make()
    say(f"Epoch {stopped} of {topology} is {control.driver_status(settings, topology, stopped).state}.")


def cutover(
    topologies: Topologies,
    epoch: OneEpoch = None,
    reason: Reason = "",
    accept_verdict: Annotated[
        list[str] | None,
        typer.Option(
            "--accept-verdict",
            metavar="TOPOLOGY",
            help="Move readers of this topology although its verification failed; --reason says why. May be repeated.",
        ),
    ] = None,
    keep_old_running: KeepOld = False,
    override: Annotated[
        str,
        typer.Option(
            "--override",
            metavar="REASON",
            help="Move readers without approvals that the topology requires; this reason stays on record.",
        ),
    ] = "",
    in_this_environment: InThisEnvironment = False,
    execute: Execute = False,
    wait: Wait = True,
    json: Json = False,
) -> None:
    """Make a verified candidate live: the old epoch yields, the new one takes over at the same offset, in one step.

    With several topologies, the candidates go live together: they take over at equal offsets, and one commit moves all
    readers, or none.
    """
    from kappa.record.epochs import epochs_of

    settings = config()
    _check_names(topologies, epoch, "--epoch")
    accepted = accept_verdict or []
    _check_accepted(topologies, accepted)
    control.check_name(settings, *topologies)
    epochs = epochs_of(settings.lake)
    members = {name: epoch if epoch is not None else epochs.record(name).candidate_epoch() for name in topologies}
    act = _handover(settings, members, reason, accepted, keep_old_running, override, in_this_environment)
    if not execute:
        show(act, otherwise=f"{_listed(members)} is requested, or done", json=json)
        return
    act.make()
    _arrive(settings, members, wait, json)


def rollback(
    topologies: Topologies,
    to: Annotated[
        int | None, typer.Option("--to", help="A retired epoch; by default the one that was live before.")
    ] = None,
    keep_old_running: KeepOld = False,
    in_this_environment: InThisEnvironment = False,
    reason: Reason = "",
    execute: Execute = False,
    json: Json = False,
) -> None:
    """Go back to a retired epoch: it catches up with its own code, then takes over. The same command goes forward
    again.

    With several topologies, the epochs come back together: all or none.
    """
    from kappa.control import cutover as moves

    settings = config()
    _check_names(topologies, to, "--to")
    control.check_name(settings, *topologies)
    live = _live(settings, topologies)  # catching up may take hours, and readers may be moved meanwhile
    recall = moves.recall_together.planned(
        settings, dict.fromkeys(topologies, to), actor=actor(), reason=reason, in_this_environment=in_this_environment
    )

    def hand_over() -> None:
        members = recall.outcome()
        for name, back in members.items():
            watch(settings, name, back, until=lambda p: p.is_live or p.is_caught_up, quiet=json)
        _handover(
            settings, members, reason, [], keep_old_running, in_this_environment=in_this_environment, replaces=live
        ).make()

    members = recall.outcome()
    what = f"hand over {_listed(members)}{', all in one commit,' if len(members) > 1 else ''} once caught up"
    is_to_move = any(live.get(name) != back for name, back in members.items())
    later = (Effect(what=what, values={"members": members}, make=hand_over),) if is_to_move else ()
    act = Act(effects=(*recall.effects, *later), outcome=recall.outcome)
    if not execute:
        if not json:
            say(_left_behind(settings, topologies))
        show(act, otherwise=f"{_listed(members)} is done", json=json)
        return
    _arrive(settings, act.make(), True, json)


def abort(topology: Topology, epoch: Epoch, reason: Reason = "", execute: Execute = False) -> None:
    """Abort a candidate and remove what it left. The live epoch is not touched."""
    from kappa.record.epochs import epochs_of

    settings = config_of(topology)
    act = control.abort.planned(settings, topology, epoch, actor=actor(), reason=reason)
    if not execute:
        show(act, otherwise=f"epoch {epoch} of {topology} is gone")
        return
    act.make()
    stage = epochs_of(settings.lake).record(topology).epoch(epoch).stage
    outcome = "is gone" if stage is Stage.ABORTED else f"was live before: it is {stage} again, with its files"
    say(f"Epoch {epoch} of {topology} {outcome}.")


def retire(topology: Topology, epoch: Epoch, reason: Reason = "", execute: Execute = False) -> None:
    """Remove a retired epoch permanently: no rollback to it is possible any more. A live epoch is refused."""
    settings = config_of(topology)
    act = control.retire.planned(settings, topology, epoch, actor=actor(), reason=reason)
    if not execute:
        show(act, otherwise=f"epoch {epoch} of {topology} is gone")
        return
    act.make()
    say(f"Epoch {epoch} of {topology} is gone.")


def housekeeping(execute: Execute = False, json: Json = False) -> None:
    """Find leftovers of epochs that have ended or are not on record, and remove them.

    Epochs that are kept are not touched.
    """
    settings = config()
    report = control.housekeeping(settings)
    act = control.clean.planned(settings, report.leftovers)
    if json and not execute:
        show(act, json=True, leftovers=report.leftovers, kept=report.lookalikes, removed=())
        return
    removed = act.make() if execute else ()
    if json:
        say_json({"executed": True, "leftovers": report.leftovers, "kept": report.lookalikes, "removed": removed})
        return
    shown = removed if execute else report.leftovers
    if shown:
        table(
            [[item.kind, _size(item.size_bytes), item.name, item.reason] for item in shown],
            ["kind", "size", "name", "why"],
        )
    say(f"Stays: {item.kind} {item.name}: {item.reason}." for item in report.lookalikes)
    if execute:
        say(
            f"Left over: {item.kind} {item.name}: it is needed again, or this user may not remove all of it."
            for item in report.leftovers
            if item not in removed
        )
        say(f"Removed {len(removed)} leftovers, {_size(sum(item.size_bytes or 0 for item in removed))}.")
    else:
        show(act, otherwise="nothing is left over")


def _size(size_bytes: int | None) -> str | None:
    return None if size_bytes is None else f"{size_bytes / 1_000_000:,.1f} MB"


def _expiry(settings: Config) -> Expiry:
    """Withdraws a handover that times out while this command waits for it: the driver that should do so may hang."""
    from kappa.driver.handovers.expiry import Expiry
    from kappa.record.epochs import epochs_of

    return Expiry(
        config=settings,
        epochs=epochs_of(settings.lake),
        actor=actor(),
        state_of=lambda name, epoch: control.driver_status(settings, name, epoch).state,
    )


def _arrive(settings: Config, members: dict[str, int], wait: bool, json: bool) -> None:
    """Wait for the cutover of one topology or several, and show its outcome."""
    from kappa.control import cutover as moves

    if wait and len(members) == 1:
        ((name, epoch),) = members.items()
        expiry = _expiry(settings)

        def is_live(_: control.Progress) -> bool:
            expiry.look(expiry.epochs.record(name))
            return moves.is_live(settings, members)

        # Not only until it is live: a handover that is withdrawn ends the wait, and says why.
        watch(settings, name, epoch, until=is_live, quiet=json)
    elif wait:
        watch_together(settings, members, quiet=json)
    progress = [control.progress(settings, name, epoch) for name, epoch in members.items()]
    if json:
        say_json(progress if len(progress) > 1 else progress[0])
        return
    for one in progress:
        say(one.message if len(progress) == 1 else f"{one.topology}: {one.message}")
        if wait:
            say(control.certify(settings, one.topology).render())


def _handover(
    settings: Config,
    members: dict[str, int],
    reason: str,
    accepted: list[str],
    keep_old: bool,
    override: str = "",
    in_this_environment: bool = False,
    replaces: dict[str, int] | None = None,
) -> Act[None]:
    """The cutover of one topology or several, from these live epochs; by default from the present ones."""
    from kappa.control import cutover as moves

    return moves.cut_over_together.planned(
        settings,
        members,
        actor=actor(),
        reason=reason,
        accept_verdict=accepted,
        keep_old_running=keep_old,
        override=override,
        in_this_environment=in_this_environment,
        replaces=_live(settings, members) if replaces is None else replaces,
    )


def _live(settings: Config, topologies: Iterable[str]) -> dict[str, int]:
    """Topology -> its live epoch, for those that have one."""
    from kappa.record.epochs import epochs_of

    epochs = epochs_of(settings.lake)
    live = {name: epochs.record(name).live for name in topologies}
    return {name: epoch for name, epoch in live.items() if epoch is not None}


def _check_names(topologies: list[str], epoch: int | None, option: str) -> None:
    twice = sorted({name for name in topologies if topologies.count(name) > 1})
    if twice:
        raise UsageError(f"{', '.join(twice)} is named twice: an epoch goes live once.")
    if epoch is not None and len(topologies) > 1:
        raise UsageError(f"{option} {epoch} belongs to one topology, but {len(topologies)} are named. Omit it.")


def _check_accepted(topologies: list[str], accepted: list[str]) -> None:
    unknown = sorted(set(accepted) - set(topologies))
    if unknown:
        raise UsageError(
            f"--accept-verdict names {', '.join(unknown)}, but the cutover is of {', '.join(topologies)}. Name the "
            "topology whose failed verdict is accepted."
        )


def _left_behind(settings: Config, topologies: list[str]) -> list[str]:
    """Warnings of topologies that went live together with these and would not go back."""
    from kappa.record.epochs import epochs_of
    from kappa.record.moves import others_of

    epochs = epochs_of(settings.lake)
    groups = {name: others_of(name, epochs.record(name).last_move) for name in topologies}
    return [
        f"{name} went live together with {rest_of_group(others, name)}; a topology that is not named here stays where "
        "it is."
        for name, others in groups.items()
        if set(others) - set(topologies)
    ]


def _listed(members: dict[str, int]) -> str:
    return ", ".join(f"{name} to epoch {epoch}" for name, epoch in members.items())
