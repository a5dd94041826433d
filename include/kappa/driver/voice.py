"""The output of a driver: log, heartbeat, measures and notices; and the request to stop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kappa import clock
from kappa.driver.driven_epoch import DrivenEpoch
from kappa.monitoring.exporter import Exporter
from kappa.monitoring.notices import Notices
from kappa.presence.heartbeat import Beating, Heartbeat
from kappa.presence.watchdog import Line, Watchdog, stacks


class Voice:
    """A driver's ways to people and to other processes.

    Attributes:
        doing: what is done at the moment, for people.
        stop_reason: why the driver is to end at the next slice boundary; None while it is not.
        log: with topology, epoch and writer.
        watchdog: knows for how long each thread has been at its line.
        exporter: measures for Prometheus.
        notices: for a webhook.
    """

    def __init__(self, epoch: DrivenEpoch) -> None:
        config, paths = epoch.config, epoch.paths
        self.doing = ""
        self.stop_reason: str | None = None
        self.log = epoch.log
        self.watchdog = Watchdog(config.slow_seconds, 60 * config.stuck_minutes)
        self.exporter = Exporter(config, paths)
        self.notices = Notices(config, paths, epoch.topology.owner)
        self._path, self._beat_seconds = paths.heartbeat, config.beat_seconds
        self._beat: Beating | None = None

    def start_beating(self, first: Heartbeat, has_claim: Callable[[], bool]) -> None:
        """Write the first heartbeat, and more of them from a thread.

        Args:
            first: the first one.
            has_claim: called before each; a driver that lost its claim stops beating.
        """
        self._beat = Beating(self._path, first, self._beat_seconds, has_claim, watchdog=self.watchdog, alarm=self.alarm)

    @property
    def state(self) -> str:
        """The driver's state, as its heartbeat has it."""
        return "running" if self._beat is None else self._beat.state

    @property
    def is_lost(self) -> bool:
        """Whether the epoch was removed, or is another driver's by now."""
        return self._beat is not None and self._beat.is_lost

    def tell(self, **changes: Any) -> None:
        """Change fields of the heartbeat; nothing before the first one."""
        if self._beat is not None:
            self._beat.say(**changes)

    def say(self, message: str) -> None:
        """Show people the current activity."""
        self.watchdog.begin(message, is_long=True)
        if message != self.doing:
            self.doing = message
            self.tell(message=message)
            self.log.info("now", doing=message)

    def begin(self, line: str) -> None:
        """A line of the slice protocol begins."""
        self.watchdog.begin(line)
        self.exporter.begin(line)

    def alarm(self, line: Line) -> None:
        """Put into the log what every thread is at: a line does not end."""
        self.log.error(line.level, line=line.name, seconds=round(line.seconds, 1), stacks=stacks())
        seq = -1 if self._beat is None else self._beat.seq
        self.notices.hangs(line, seq, clock.now().isoformat())

    def end(self, reason: str) -> None:
        """Write the last heartbeat."""
        if self._beat is not None:
            self._beat.close(message=reason)
