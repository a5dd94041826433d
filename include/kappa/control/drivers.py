"""Starting and stopping the drivers of epochs, on record."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kappa.acts import Act, Effect, act
from kappa.config import Config
from kappa.control import approval
from kappa.control.environments import launching_environment
from kappa.control.removals.leftovers import is_at_work
from kappa.control.replays import plan, replay
from kappa.driver.processes.launches import own_environment
from kappa.driver.processes.process import driver_end, last_claim, settled_status, with_driver
from kappa.errors import IllegalTransitionError, MoveRefusedError, RefusedError
from kappa.names import EpochPaths
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import Epochs, Now, epochs_of
from kappa.record.events import DECISIONS, Event
from kappa.record.ledger import Ledger
from kappa.replay.chains import is_reached
from kappa.replay.request import ReplayRequest
from kappa.replay.stages import Stage
from kappa.replay.starts import ToEarliest
from kappa.slices.topics import turns

#: Event after which an epoch's driver is to run no more -> what it means, and what to do next.
_UNWANTED: Mapping[str, tuple[str, str]] = {
    "stop": ("was stopped", "Go on with it: kappa start {topology} --epoch {epoch} --execute"),
    "rejected": ("was rejected", "Take it up again: kappa start {topology} --epoch {epoch} --execute"),
    "released": ("was retired again", "Bring it back: kappa rollback {topology} --to {epoch} --execute"),
    "aborted": ("was aborted", "Build another one: kappa replay {topology} --execute"),
    "dropped": ("was removed", "Build another one: kappa replay {topology} --execute"),
    "superseded": ("was rebuilt in another lake", "See what it left: kappa status {topology}"),
    "moved": ("was replaced by epoch {live}", "Bring it back: kappa rollback {topology} --to {epoch} --execute"),
}


@act
def start(
    config: Config,
    topology: str,
    *,
    epoch: int | None = None,
    actor: str,
    reason: str = "start",
    allow: Collection[str] = (),
    in_this_environment: bool = False,
) -> Act[int]:
    """See to it that an epoch's driver runs, by default the live one's; a stuck driver tries again.

    A topology that was never live gets its first epoch, from the beginning of its topics. A rejected epoch that is
    named is taken up again. Otherwise the driver is started
    with the code that the epoch recorded: new code comes by a replay.

    Args:
        epoch: the epoch; None for the live one, or the first.
        allow: codes of findings that warn instead of refusing the first epoch.
        in_this_environment: whether the environment of this process is the epoch's own from now on, on record.

    Returns:
        The epoch whose driver runs: the live one, one that will be, or the one asked for.

    Raises:
        IllegalTransitionError: the epoch asked for has ended or is retired; or it is to run in another environment,
            and its driver runs.
        RefusedError: the first epoch cannot be planned, the broker knows epochs that this lake does not, or the epoch
            was rebuilt in another lake.
        UnknownEpochError: there is no such epoch.
    """
    epochs = epochs_of(config.lake)
    record = epochs.record(topology)
    current = [record.live, record.candidate.epoch if record.candidate is not None else None]
    number = next((n for n in (epoch, *current) if n is not None), None)
    if number is None:
        turns.check_not_lost(config, record, epochs.lake_id())
        request = ReplayRequest(
            topology=topology,
            start=ToEarliest(),
            reason=reason,
            actor=actor,
            slice_records=config.slice_records,
            allow=frozenset(allow),
        )
        return replay.planned(config, plan(config, request), actor=actor, reason=reason)
    target = record.epoch(number)
    if target.superseded is not None:
        raise RefusedError(target.superseded.reason, findings=(), epoch=number, **target.superseded.detail)
    if target.rejected is not None:
        reopening = approval.reopen.planned(config, topology, number, actor=actor, reason=reason)
        return Act(effects=with_driver(reopening.effects, config, topology, number), outcome=lambda: number)
    if number not in current and not target.is_kept:
        way = f" kappa rollback {topology} brings it back." if target.stage is Stage.RETIRED else ""
        raise IllegalTransitionError(
            f"Epoch {number} of {topology!r} is {target.stage}: it needs no driver.{way}", epoch=number
        )
    if in_this_environment:
        wishes = _settled(config, epochs, topology, number, actor, reason)
    else:
        wishes, _ = wish(epochs, epochs.now(topology), topology, number, actor, reason)
    return Act(effects=with_driver(wishes, config, topology, number), outcome=lambda: number)


def _settled(config: Config, epochs: Epochs, topology: str, epoch: int, actor: str, reason: str) -> tuple[Effect, ...]:
    """That the environment of this process is an epoch's own, as an effect on the record; none where it is by now."""
    if settled_status(config, topology, epoch).is_running:
        raise IllegalTransitionError(
            f"The driver of epoch {epoch} of {topology!r} runs, in the environment in which it was started. Stop it, "
            f"then start it in this one: kappa stop {topology} --epoch {epoch} --execute",
            epoch=epoch,
        )
    here = launching_environment(config)

    def decide(now: Now) -> Sequence[Event]:
        target = now.record.epoch(epoch)
        if target.is_wanted and own_environment(now.record, epoch, last_claim(config, topology, epoch)) == here:
            return []
        return [now.event("start", epoch, actor=actor, reason=reason, detail={"in_environment": here})]

    effects, _ = epochs.effects(epochs.now(topology), decide)
    return effects


@act
def stop(
    config: Config, topology: str, *, epoch: int | None = None, actor: str, reason: str, wait: bool = False
) -> Act[int]:
    """Tell an epoch's driver, by default the live one's, to stop at the next slice boundary. Idempotent.

    Args:
        epoch: the epoch; None for the live one, or the one that is being built where none is live.
        wait: whether to return when it has ended.

    Returns:
        The epoch.
    """
    epochs = epochs_of(config.lake)
    now = epochs.now(topology)
    number = epoch if epoch is not None else now.record.live
    if number is None:
        number = now.record.live_epoch() if now.record.candidate is None else now.record.candidate.epoch

    def decide(now: Now) -> Sequence[Event]:
        return [now.event("stop", number, actor=actor, reason=reason)] if now.record.epoch(number).is_wanted else []

    effects, _ = epochs.effects(now, decide)
    if wait and is_at_work(config, EpochPaths(lake=config.lake, topology=topology, epoch=number)):
        effects = (*effects, driver_end(config, topology, number))
    return Act(effects=effects, outcome=lambda: number)


def check_wanted(record: TopologyRecord, epoch: int, *, request: str = "") -> None:
    """Refuse to wait for an epoch whose driver is to run no more: whoever decided that is named.

    Args:
        request: what stays asked for, and is done when the epoch runs again.

    Raises:
        MoveRefusedError: the epoch was stopped, aborted, rejected, released or replaced meanwhile.
    """
    if record.epoch(epoch).is_wanted:
        return
    is_retired = record.epoch(epoch).stage is Stage.RETIRED
    ends = [
        event
        for event in record.events
        if event.event in _UNWANTED and (is_retired if event.event == "moved" else event.epoch == epoch)
    ]
    end = ends[-1]
    what, way = _UNWANTED[end.event]
    why = f": {end.reason.rstrip('.')}" if end.reason else ""
    rest = f"{request} stays asked for." if request else "Nothing is waited for any more."
    topology = record.topology
    raise MoveRefusedError(
        f"Epoch {epoch} of {topology!r} {what.format(live=end.epoch)} by {end.actor} at {end.at:%Y-%m-%d %H:%M:%S} "
        f"UTC{why}. {rest} {way.format(topology=topology, epoch=epoch)}",
        epoch=epoch,
    )


def answered_reason(config: Config, topology: str, epoch: int) -> str:
    """Why an epoch was stuck before it was told to try again; empty where it was not, or was not told.

    Its driver reads that in a moment: until then its heartbeat says the reason.
    """
    events = [e for e in epochs_of(config.lake).record(topology).recent_events if e.epoch == epoch]
    decisive = [e for e in events if e.event == "stuck" or e.event in DECISIONS]
    stuck = [e for e in decisive if e.event == "stuck"]
    return stuck[-1].reason if stuck and decisive[-1].event != "stuck" else ""


def stuck_reason(record: TopologyRecord, epoch: int) -> str:
    """Why an epoch is stuck; empty where it is not, or was told to try again."""
    decisive = [e for e in record.recent_events if e.epoch == epoch and (e.event == "stuck" or e.event in DECISIONS)]
    return decisive[-1].reason if decisive and decisive[-1].event == "stuck" else ""


def check_not_ahead(config: Config, record: TopologyRecord, epoch: int) -> None:
    """Raise where an epoch has read further than the live one, which is stuck: it would wait for that for ever.

    It read a topic alone, without sending, before the live epoch went live. Moved there, nobody would send these rows.

    Raises:
        MoveRefusedError: it has.
    """
    if record.live is None or not stuck_reason(record, record.live):
        return
    live, own = (
        Ledger(EpochPaths(lake=config.lake, topology=record.topology, epoch=number).ledger).begun().standing
        for number in (record.live, epoch)
    )
    if is_reached(own, live):
        return
    raise MoveRefusedError(
        f"Epoch {epoch} of {record.topology!r} stands at {own.beside(live).to_json()} and has not sent what it read "
        f"last. Live epoch {record.live}, which would send it, is stuck at {live.beside(own).to_json()}. Nothing was "
        "changed. Get that epoch past these offsets, with `kappa upgrade` or `kappa set-aside`, then ask again; or "
        f"compute an epoch that takes over where it stands: kappa replay {record.topology} --execute",
        own=own.to_json(),
        live=live.to_json(),
    )


def wish(
    epochs: Epochs, now: Now, topology: str, epoch: int, actor: str, reason: str
) -> tuple[tuple[Effect, ...], Now]:
    """That an epoch's driver has to run, as an effect on the record. A ``start`` also lets a stuck one try again.

    One that was retired since it was looked at is left alone: it would follow on without having been asked to.
    """

    def decide(now: Now) -> Sequence[Event]:
        record = now.of(topology)
        target = record.epoch(epoch)
        if target.stage is Stage.RETIRED and not target.is_recalled and not target.is_wanted:
            return []
        is_stuck = any(e.event == "stuck" for e in record.recent_events if e.epoch == epoch)
        if target.is_wanted and (reason == "handover" or not is_stuck):
            return []
        return [now.event("start", epoch, topology=topology, actor=actor, reason=reason)]

    return epochs.effects(now, decide)
