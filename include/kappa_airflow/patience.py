"""How long to wait before a dead driver is started again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

FIRST_PAUSE = timedelta(seconds=2)
LONGEST_PAUSE = timedelta(minutes=5)

#: A driver that ran for this long was healthy: its next death begins again with the first pause.
HEALTHY_AFTER = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True)
class Patience:
    """The observations of a driver, which decide whether to start it again now.

    Attributes:
        restarts: consecutive restarts that did not last.
        dead_since: when it was first seen dead, ``None`` while it is not.
        well_since: when it was first seen running, ``None`` while it is not.
    """

    restarts: int = 0
    dead_since: datetime | None = None
    well_since: datetime | None = None

    @property
    def pause(self) -> timedelta:
        """How long a driver must be dead: doubled with each restart that did not last, up to a bound."""
        doubled: timedelta = FIRST_PAUSE * int(2 ** min(self.restarts, 16))
        return min(doubled, LONGEST_PAUSE)

    def after_dead(self, now: datetime) -> Patience:
        """The driver was seen dead."""
        return replace(self, dead_since=self.dead_since or now, well_since=None)

    def after_well(self, now: datetime) -> Patience:
        """The driver was seen running."""
        since = self.well_since or now
        restarts = 0 if now - since >= HEALTHY_AFTER else self.restarts
        return replace(self, dead_since=None, well_since=since, restarts=restarts)

    def after_unknown(self) -> Patience:
        """The driver could not be seen, or is stopped on purpose: neither counts for or against it."""
        return replace(self, dead_since=None, well_since=None)

    def is_over(self, now: datetime) -> bool:
        """Whether the driver has been dead for the whole pause."""
        return self.dead_since is not None and now - self.dead_since >= self.pause
