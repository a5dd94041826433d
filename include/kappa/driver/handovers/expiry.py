"""Handovers whose time is over, withdrawn by any process that sees it, not only by the driver that hangs."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kappa.config import Config
from kappa.names import EpochPaths
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import Epochs
from kappa.record.ledger import Ledger
from kappa.record.moves import withdrawals

#: States of a live epoch's driver in which it cannot be relied on to withdraw a handover itself.
UNABLE = ("slow", "stuck", "dead", "never")


@dataclass(kw_only=True)
class Expiry:
    """Watches the handover of a topology by this process's own clock.

    Attributes:
        epochs: the record.
        actor: what is on record as the one that withdrew it.
        state_of: state of the driver of an epoch.
        clock: monotonic seconds.
    """

    config: Config
    epochs: Epochs
    actor: str
    state_of: Callable[[str, int], str]
    clock: Callable[[], float] = time.monotonic
    _since: float = 0.0
    _at: tuple[object, ...] = ()
    _ledgers: dict[str, Ledger] = field(default_factory=dict)

    def look(self, record: TopologyRecord) -> bool:
        """Withdraw the handover if nothing of it moved for too long and the live driver hangs or is gone.

        Compare-and-set on the record: a move that was made meanwhile stays. Idempotent; a crash leaves it pending or
        withdrawn.

        Returns:
            Whether its time is over.
        """
        handover = record.handover
        if handover is None or record.live is None:
            self._at = ()
            return False
        at = (handover.n, *(self._position(record.topology, epoch) for epoch in (record.live, handover.epoch)))
        now = self.clock()
        if at != self._at:
            self._at, self._since = at, now
        if now - self._since <= self.config.handover_seconds:
            return False
        state = self.state_of(record.topology, record.live)
        if state not in UNABLE:
            return False
        reason = f"the driver of live epoch {record.live} is {state}, and nothing moved for {now - self._since:.0f} s"
        self.epochs.change(
            handover.topology, lambda now: withdrawals(now.records, handover, actor=self.actor, reason=reason)
        )
        self._at = ()
        return True

    def _position(self, topology: str, epoch: int) -> tuple[int, int | None]:
        path = EpochPaths(lake=self.config.lake, topology=topology, epoch=epoch).ledger
        state = self._ledgers.setdefault(path, Ledger(path)).state()
        return -1 if state.committed is None else state.committed.seq, state.yielded_for
