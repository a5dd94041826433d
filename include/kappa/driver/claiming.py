"""Taking an epoch over: of all drivers that ever come up for it, the last one to claim it writes."""

from __future__ import annotations

from kappa.driver.driven_epoch import DrivenEpoch
from kappa.errors import ConflictError, DriverAlreadyRunningError, IllegalTransitionError
from kappa.faults import crash_point
from kappa.presence import heartbeat, liveness
from kappa.slices.writing import check_mask
from kappa.store.stores import store_of


def claim(epoch: DrivenEpoch) -> None:
    """Claim the epoch in its ledger.

    Raises:
        DriverAlreadyRunningError: another driver has it.
        IllegalTransitionError: the epoch was given up before its driver came up; nothing is left of the attempt.
        LedgerError: the key of masked values is not that of the epoch.
    """
    _check_not_ended(epoch)
    epoch.ledger.create()
    state = epoch.ledger.state()
    sign = liveness.settled(epoch.paths.heartbeat, epoch.config.stale_seconds)
    if sign.is_alive and sign.beat is not None:
        raise DriverAlreadyRunningError(
            f"Epoch {epoch.paths.epoch} of {epoch.topology.name!r} has a driver: {sign.beat.writer}, last heard "
            f"of at {sign.beat.at:%H:%M:%S}.",
            writer=sign.beat.writer,
        )
    check_mask(epoch.topology, state, epoch.config.mask_key)
    try:
        epoch.ledger.claim(epoch.writer, epoch.code, state)
    except ConflictError as error:
        raise DriverAlreadyRunningError(
            f"Another driver claimed epoch {epoch.paths.epoch} of {epoch.topology.name!r} at the same moment."
        ) from error
    crash_point("claim")
    _check_not_ended(epoch)


def _check_not_ended(epoch: DrivenEpoch) -> None:
    """An abandoned epoch is removed without a wait for a driver that never beat: that one brings nothing back."""
    stage = epoch.record().epoch(epoch.paths.epoch).stage
    if not stage.is_ended:
        return
    if heartbeat.read(epoch.paths.heartbeat) is None:
        store_of(epoch.paths.root).delete_folder(epoch.paths.root)
    raise IllegalTransitionError(
        f"Epoch {epoch.paths.epoch} of {epoch.topology.name!r} is {stage}: its driver came up too late, and ends.",
        epoch=epoch.paths.epoch,
    )
