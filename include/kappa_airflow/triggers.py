"""Triggers: values, one loop that polls, one event.

They observe and never act: a driver is started by the task that resumes, on a worker. Clearing, failing or pausing a
task ends its trigger and nothing else, which is why none has an ``on_kill``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from kappa import clock
from kappa.config import Config
from kappa.errors import Transient
from kappa.replay.stages import Stage
from kappa_airflow.drivers import record
from kappa_airflow.patience import Patience
from kappa_airflow.replays.stages import arrival

if TYPE_CHECKING:
    from kappa.control import DriverStatus
    from kappa.record.epoch_record import TopologyRecord

Event = dict[str, Any]

#: How old a trigger's look at the record may be: those of a process share one.
AGE_SECONDS = 1.0
#: Seconds between two lines on a stage's progress in the task's log.
SPEAK_SECONDS = 8


class _Looking(BaseTrigger):
    """Watches one driver until there is an event.

    If the lake or broker does not answer, it tries again, for as long as that takes; any other error ends the trigger,
    and with it this try of the task.
    """

    def __init__(self, *, topology: str, epoch: int, restarts: int = 0, poll_seconds: float = 2.0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's triggers are not typed
        self.topology = topology
        self.epoch = epoch
        self.restarts = restarts
        self.poll_seconds = poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments; all of them plain values."""
        arguments = {
            "topology": self.topology,
            "epoch": self.epoch,
            "restarts": self.restarts,
            "poll_seconds": self.poll_seconds,
        }
        return f"{type(self).__module__}.{type(self).__qualname__}", arguments

    def look(self, config: Config, patience: Patience) -> tuple[Event | None, Patience]:
        """Look once; blocking, so called in a thread.

        Raises:
            Transient: lake or broker do not answer.
        """
        raise NotImplementedError

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until there is an event, emit it, end."""
        config = Config.from_env()
        patience = Patience(restarts=self.restarts)
        unreachable = False
        while True:
            event: Event | None = None
            try:
                event, patience = await asyncio.to_thread(self.look, config, patience)
                unreachable = False
            except Transient as error:
                patience = patience.after_unknown()
                if not unreachable:
                    self.log.warning("%s Looking again every %s s.", error, self.poll_seconds)
                unreachable = True
            if event is not None:
                payload = {**event, "epoch": self.epoch, "restarts": patience.restarts}
                yield TriggerEvent(payload)  # type: ignore[no-untyped-call]  # Airflow's triggers are not typed
                return
            await asyncio.sleep(self.poll_seconds)

    def _driver_event(
        self, config: Config, driver: DriverStatus, patience: Patience, *, is_wanted: bool
    ) -> tuple[Event | None, Patience]:
        now = clock.now()
        if driver.state in ("running", "slow"):
            return None, patience.after_well(now)
        if driver.state == "stuck":
            return {"event": "stuck", "message": driver.message}, patience
        is_awaited = driver.state == "never" and config.launcher == "elsewhere"  # no task can start it
        if not is_wanted or is_awaited or driver.state == "unconfirmed":
            return None, patience.after_unknown()
        patience = patience.after_dead(now)
        return ({"event": "dead", "message": driver.message} if patience.is_over(now) else None), patience


class StreamTrigger(_Looking):
    """Watches the driver of a topology's live epoch.

    Events, all with ``epoch`` and ``restarts``: ``dead`` (for the whole pause), ``moved`` (another epoch is live
    now), ``stuck``, ``ended`` (this watch is over).

    Args:
        until: ISO time at which the watch is over.
    """

    def __init__(self, *, until: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.until = until
        self._state = ""

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments; all of them plain values."""
        path, arguments = super().serialize()
        return path, {**arguments, "until": self.until}

    def look(self, config: Config, patience: Patience) -> tuple[Event | None, Patience]:
        """Look at the pointer first, then at the driver: an epoch that is no longer live is not started again."""
        from kappa import control

        if clock.now() >= datetime.fromisoformat(self.until):
            return {"event": "ended"}, patience
        topology_record = record(config, self.topology, age_seconds=AGE_SECONDS)
        if topology_record.live is not None and topology_record.live != self.epoch:
            return {"event": "moved", "live": topology_record.live}, patience
        driver = control.driver_status(config, self.topology, self.epoch)
        if driver.state != self._state:
            say = self.log.warning if driver.state == "slow" else self.log.info
            say("Driver of %s epoch %s is %s: %s", self.topology, self.epoch, driver.state, driver.message)
            self._state = driver.state
        is_wanted = topology_record.epoch(self.epoch).is_wanted
        return self._driver_event(config, driver, patience, is_wanted=is_wanted)


class StageTrigger(_Looking):
    """Watches an epoch until it arrives at a stage.

    Events, all with ``epoch`` and ``restarts``: ``arrived``, ``failed`` (the epoch will not arrive; the message says
    why), ``dead``, ``stuck``, ``late``.

    Args:
        stage: name of the awaited stage.
        late_seconds: time without any other event after which ``late`` is emitted; ``None`` for never.
    """

    def __init__(self, *, stage: str, late_seconds: float | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stage = stage
        self.late_seconds = late_seconds
        self._late_at = None if late_seconds is None else clock.now() + timedelta(seconds=late_seconds)
        self._spoke_at: datetime | None = None
        self._seen: TopologyRecord | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Class path and arguments; all of them plain values."""
        path, arguments = super().serialize()
        return path, {**arguments, "stage": self.stage, "late_seconds": self.late_seconds}

    def look(self, config: Config, patience: Patience) -> tuple[Event | None, Patience]:
        """Look at the epoch's stage, where something of it is new on record, and at its driver."""
        from kappa import control

        topology_record = record(config, self.topology, age_seconds=AGE_SECONDS)
        is_line_due = self._speaks()
        if is_line_due or topology_record is not self._seen:
            progress = control.progress(config, self.topology, self.epoch)
            if is_line_due:
                self.log.info(progress.doing)
                self._spoke_at = clock.now()
            arrived = arrival(progress, Stage(self.stage))
            if arrived is not None:
                return arrived, patience
            driver, self._seen = progress.driver, topology_record
        else:
            driver = control.driver_status(config, self.topology, self.epoch)
        is_wanted = topology_record.epoch(self.epoch).is_wanted
        event, patience = self._driver_event(config, driver, patience, is_wanted=is_wanted)
        if event is None and self._late_at is not None and clock.now() >= self._late_at:
            event = {"event": "late", "message": control.progress(config, self.topology, self.epoch).message}
        return event, patience

    def _speaks(self) -> bool:
        """Whether a line is due: every few seconds even if nothing has changed, so that a standstill shows too."""
        return self._spoke_at is None or clock.now() - self._spoke_at >= timedelta(seconds=SPEAK_SECONDS)
