"""Commands that start, stop, swap and remove epochs, and what they left."""

from __future__ import annotations

from typing import Annotated

import typer

from kappa import control
from kappa.cli.options import Epoch, Execute, Json, Reason, Topology, Wait, actor, config, dry, say, say_json, table
from kappa.cli.watch import watch
from kappa.config import Config
from kappa.errors import UnknownEpochError
from kappa.runtime.epochs import Epochs

OneEpoch = Annotated[int | None, typer.Option("--epoch", help="The epoch; by default the obvious one.")]

KeepOld = Annotated[
    bool,
    typer.Option("--keep-old-running", help="The old driver follows on, sending nothing: a way back without a wait."),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (start, stop, cutover, rollback, abort, retire, housekeeping):
        app.command()(command)


def start(
    topology: Topology,
    epoch: OneEpoch = None,
    reason: Reason = "start",
    execute: Execute = False,
    wait: Wait = True,
    json: Json = False,
) -> None:
    """Start a driver, the live epoch's unless --epoch says which; a topology that was never live gets its first epoch.

    A driver that is stuck tries again.
    """
    chosen = config()
    if not execute:
        live = Epochs(chosen.lake).record(topology).live
        what = (
            f"start the driver of live epoch {live}"
            if live
            else "build epoch 1 from the beginning of its topics and make it live"
        )
        named = f" --epoch {epoch}" if epoch is not None else ""
        dry(f"start the driver of epoch {epoch}" if epoch is not None else what, f"kappa start {topology}{named}")
        return
    started = control.start(chosen, topology, epoch=epoch, actor=actor(), reason=reason)
    if wait:
        watch(
            chosen,
            topology,
            started,
            until=lambda p: (p.is_live or epoch is not None) and p.driver.is_running,
            quiet=json,
        )
    found = control.progress(chosen, topology, started)
    say_json(found) if json else say(found.message)


def stop(
    topology: Topology, epoch: OneEpoch = None, reason: Reason = "stop", execute: Execute = False, wait: Wait = True
) -> None:
    """Stop a driver at its next slice boundary. Nothing is lost; `kappa start` goes on from there."""
    chosen = config()
    if not execute:
        dry("stop the driver", f"kappa stop {topology}")
        return
    stopped = control.stop(chosen, topology, epoch=epoch, actor=actor(), reason=reason)
    if wait:
        control.await_end(chosen, topology, stopped)
    say(f"Epoch {stopped} of {topology} is {control.driver_status(chosen, topology, stopped).state}.")


def cutover(
    topology: Topology,
    epoch: OneEpoch = None,
    reason: Reason = "",
    accept_verdict: Annotated[
        bool,
        typer.Option("--accept-verdict", help="Move readers although the verification failed; --reason says why."),
    ] = False,
    keep_old_running: KeepOld = False,
    execute: Execute = False,
    wait: Wait = True,
    json: Json = False,
) -> None:
    """Make a verified candidate live: the old epoch yields, the new one takes over at the same offset, in one step."""
    chosen = config()
    wanted = epoch if epoch is not None else _candidate(chosen, topology)
    if not execute:
        dry(f"hand {topology} over to epoch {wanted}", f"kappa cutover {topology}")
        return
    control.cut_over(
        chosen, topology, wanted, actor=actor(), reason=reason, accept_verdict=accept_verdict,
        keep_old_running=keep_old_running,
    )  # fmt: skip
    _await_live(chosen, topology, wanted, wait, json)


def rollback(
    topology: Topology, to: Annotated[int | None, typer.Option("--to", help="A retired epoch; by default the one that was live before.")] = None,
    keep_old_running: KeepOld = False, reason: Reason = "", execute: Execute = False, json: Json = False,
) -> None:  # fmt: skip
    """Go back to a retired epoch: it catches up with its own code, then takes over. Also the way forward again."""
    chosen = config()
    if not execute:
        dry(
            f"bring back {f'epoch {to}' if to else 'the epoch that was live before'} and make it live",
            f"kappa rollback {topology}",
        )
        return
    wanted = control.rollback(chosen, topology, to=to, actor=actor(), reason=reason)
    watch(chosen, topology, wanted, until=lambda p: p.is_live or p.is_caught_up, quiet=json)
    control.cut_over(chosen, topology, wanted, actor=actor(), reason=reason, keep_old_running=keep_old_running)
    _await_live(chosen, topology, wanted, True, json)


def abort(topology: Topology, epoch: Epoch, reason: Reason = "", execute: Execute = False) -> None:
    """Give a candidate up and remove what it left. The live epoch is not touched."""
    if not execute:
        dry(f"abort epoch {epoch} and remove its files, topics and group", f"kappa abort {topology} {epoch}")
        return
    control.abort(config(), topology, epoch, actor=actor(), reason=reason)
    say(f"Epoch {epoch} of {topology} is gone.")


def retire(topology: Topology, epoch: Epoch, reason: Reason = "", execute: Execute = False) -> None:
    """Remove a retired epoch for good: no rollback to it any more. Never a live one."""
    if not execute:
        dry(f"remove retired epoch {epoch}: its files, topics and group", f"kappa retire {topology} {epoch}")
        return
    control.retire(config(), topology, epoch, actor=actor(), reason=reason)
    say(f"Epoch {epoch} of {topology} is gone.")


def housekeeping(execute: Execute = False, json: Json = False) -> None:
    """Find what is left over of epochs that ended or are on no record, and remove it. Nothing of an epoch that is kept."""
    chosen = config()
    found = control.housekeeping(chosen)
    removed = control.clean(chosen, found.leftovers) if execute else ()
    if json:
        say_json({"leftovers": found.leftovers, "kept": found.kept, "removed": removed})
        return
    shown = removed if execute else found.leftovers
    if shown:
        table(
            [[item.kind, _size(item.size_bytes), item.name, item.reason] for item in shown],
            ["kind", "size", "name", "why"],
        )
    say(f"Stays: {item.kind} {item.name}: {item.reason}." for item in found.kept)
    total = _size(sum(item.size_bytes or 0 for item in shown))
    if execute:
        say(f"Removed {len(removed)} leftovers, {total}.")
    elif found.leftovers:
        dry(f"remove {len(found.leftovers)} leftovers, {total}", "kappa housekeeping")
    else:
        say("Nothing is left over.")


def _size(size_bytes: int | None) -> str | None:
    return None if size_bytes is None else f"{size_bytes / 1_000_000:,.1f} MB"


def _candidate(chosen: Config, topology: str) -> int:
    candidate = Epochs(chosen.lake).record(topology).candidate
    if candidate is None:
        raise UnknownEpochError(
            f"No epoch of {topology!r} is being built. Build one: kappa replay {topology} --execute", topology=topology
        )
    return candidate.epoch


def _await_live(chosen: Config, topology: str, epoch: int, wait: bool, json: bool) -> None:
    if wait:
        watch(chosen, topology, epoch, until=lambda p: p.is_live, quiet=json)
    found = control.progress(chosen, topology, epoch)
    say_json(found) if json else say(found.message)
    if wait and not json:
        say(control.certify(chosen, topology).render())
