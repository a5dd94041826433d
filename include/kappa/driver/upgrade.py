"""The driver's side of an upgrade: at a slice boundary the epoch goes over to other code.

One ledger row decides. Before it the old code runs, after it the new: a driver whose code is not that of the last
``upgrade`` row only reports that and ends. The next start of the epoch takes the code that is on record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from kappa import clock
from kappa.config import Config
from kappa.driver.processes import launches
from kappa.driver.processes.rehearsals import Rehearsal, rehearse
from kappa.errors import KappaError
from kappa.faults import crash_point
from kappa.names import EpochPaths
from kappa.offsets.floors import Floors, floors_detail, of_longer_grace
from kappa.record import code as code_store
from kappa.record import savepoints
from kappa.record.epochs import Epochs, Now
from kappa.record.events import Event
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.topology import Topology
from kappa.topology.shapes import Timing, timings_from_dict, timings_of

if TYPE_CHECKING:
    from kappa.record.epoch_record import EpochRecord
    from kappa.record.ledger_state import BegunState, LedgerState


#: How the names begin that upgrades give to commits.
_BEFORE = "before-upgrade-e"


def overtaken(epochs: Epochs, paths: EpochPaths, epoch: EpochRecord, state: LedgerState, running: str) -> str | None:
    """Why a driver has to end, because the epoch runs other code by now; None when it runs this one.

    Puts the upgrade on record where the driver that made it died before it could. Idempotent.
    """
    if state.upgrade is not None and not _is_on_record(epoch, state.upgrade):
        _conclude(epochs, paths, state.upgrade)
    if state.upgrade is None or state.upgrade.code == running:
        return None
    return f"the epoch runs code {state.upgrade.code[:12]} from slice {state.upgrade.seq + 1} on"


def switch(
    config: Config,
    epochs: Epochs,
    paths: EpochPaths,
    ledger: Ledger,
    writer: str,
    request: Event,
    running: Topology,
    bound: Mapping[str, str],
) -> None:
    """Make an upgrade that was requested, between two slices; after it :func:`overtaken` ends this driver.

    The last commit gets a name first, so that its files stay: the way back. Code that cannot be had on this host, or
    imported by the interpreter that is to run it, is withdrawn instead. A crash before the ledger row leaves the old
    code, one after it the new. With a longer grace the row says where the frontiers stand: they do not go back.

    Args:
        epochs: the record.
        ledger: its ledger, claimed by ``writer``, without an open slice.
        writer: the driver.
        request: the event ``upgrade``.
        running: the code up to here.
        bound: versioned topics that the epoch reads, by the names that the step knows.

    Raises:
        StaleWriterError: another driver claimed the epoch.
        LedgerError: the epoch was not seeded.
    """
    code = str(request.detail["code"])
    try:
        root = code_store.extract(config.lake, code, config.home)
    except KappaError as error:
        _withdraw(epochs, request, f"{type(error).__name__}: {error}")
        return
    rehearsal = _rehearsal(config, epochs, paths, ledger, root)
    if rehearsal.obstacle:
        _withdraw(epochs, request, rehearsal.obstacle)
        return
    pending = epochs.record(paths.topology).epoch(paths.epoch).upgrade
    if pending is None or pending.n != request.n:  # withdrawn while the new code was asked
        return
    state = ledger.begun()
    name = savepoint_name(paths.epoch, state.seq)
    why = f"before the upgrade to {code[:12]}"
    savepoints.create(config, paths.topology, name, seq=state.committed.seq, actor="driver", reason=why)
    crash_point("upgrade.ready", state.seq)
    row = ledger.append(
        LedgerRow(
            kind="upgrade",
            seq=state.seq,
            writer=writer,
            at=clock.now(),
            code=code,
            detail={
                "asked": request.n,
                "from": request.detail["from"],
                "at": state.position.as_dict(),
                "savepoint": name,
                "masked": rehearsal.masked,
                "times": rehearsal.times,
                **floors_detail(_floors(state, running, timings_from_dict(rehearsal.times), bound)),
            },
        )
    )
    crash_point("upgrade", state.seq)
    _conclude(epochs, paths, row)
    crash_point("upgraded", state.seq)


def _rehearsal(config: Config, epochs: Epochs, paths: EpochPaths, ledger: Ledger, root: Path) -> Rehearsal:
    """What this code says in the interpreter of the next driver; an obstacle with what helps."""
    own = launches.own_environment(epochs.record(paths.topology), paths.epoch, ledger.state().claim)
    python = launches.python(config, own)
    rehearsal = rehearse(python, root, paths.topology)
    if not rehearsal.obstacle:
        return rehearsal
    return Rehearsal(
        obstacle=f"The interpreter {python} of epoch {paths.epoch} cannot run code {root.name[:12]}: "
        f"{rehearsal.obstacle}. The old code goes on. Stop the epoch, and start it with the interpreter of an "
        f"environment that can: kappa start {paths.topology} --in-this-environment"
    )


def _floors(state: BegunState, before: Topology, after: Mapping[str, Timing], bound: Mapping[str, str]) -> Floors:
    """Where frontiers stand whose grace becomes longer."""
    old, new = (
        {bound.get(topic, topic): timing.grace_ms for topic, timing in timings.items()}
        for timings in (timings_of(before.sources), after)
    )
    return of_longer_grace(state.position, state.committed.stream_times, old, new, state.floored)


def savepoint_name(epoch: int, seq: int) -> str:
    """What the last commit before an upgrade is called."""
    return f"{_BEFORE}{epoch}-s{seq}"


def expire_savepoints(epochs: Epochs, paths: EpochPaths, before: datetime) -> None:
    """Drop the names that upgrades of an epoch gave to commits before a time: the files would stay for good.

    Idempotent; names that a person gave stay.
    """

    def decide(now: Now) -> Sequence[Event]:
        return [
            now.event(
                "savepoint_dropped",
                paths.epoch,
                actor="driver",
                reason="its upgrade was long ago",
                detail={"name": name, "seq": event.detail["seq"]},
            )
            for name, event in now.record.savepoints.items()
            if event.epoch == paths.epoch and event.actor == "driver" and name.startswith(_BEFORE) and event.at < before
        ]

    epochs.change(paths.topology, decide)


def _is_on_record(epoch: EpochRecord, row: LedgerRow) -> bool:
    return any(event.detail.get("upgrade") == row.detail["asked"] for event in epoch.upgraded)


def _conclude(epochs: Epochs, paths: EpochPaths, row: LedgerRow) -> None:
    """Put an upgrade that the ledger holds on record, once.

    The row decides, also for a request that was withdrawn or replaced in the moment before it.
    """

    def decide(now: Now) -> Sequence[Event]:
        epoch, number = now.record.epoch(paths.epoch), row.detail["asked"]
        requests = [one for one in now.record.recent_events if one.n == number and one.event == "upgrade"]
        if _is_on_record(epoch, row) or not requests:
            return []
        request, late = requests[0], []
        detail = {
            name: request.detail[name] for name in ("code", "from", "version", "verdict") if name in request.detail
        }
        detail |= {"upgrade": request.n, "seq": row.seq, "at": row.detail["at"], "savepoint": row.detail["savepoint"]}
        if epoch.upgrade is not None and epoch.upgrade.n != number:
            why = f"the driver went over to code {row.code[:12]} before it could be replaced"
            past = {"upgrade": epoch.upgrade.n}
            late = [now.event("upgrade_withdrawn", paths.epoch, actor="driver", reason=why, detail=past)]
        upgraded = now.event("upgraded", paths.epoch, actor=request.actor, reason=request.reason, detail=detail)
        return [*late, upgraded]

    epochs.change(paths.topology, decide)


def _withdraw(epochs: Epochs, request: Event, reason: str) -> None:
    def decide(now: Now) -> Sequence[Event]:
        pending = now.record.epoch(request.epoch).upgrade
        if pending is None or pending.n != request.n:
            return []
        return [
            now.event("upgrade_withdrawn", request.epoch, actor="driver", reason=reason, detail={"upgrade": request.n})
        ]

    epochs.change(request.topology, decide)
