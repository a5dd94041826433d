"""Merges between two slices: of changes that have waited for longer than they may."""

from __future__ import annotations

import time
from datetime import timedelta

from kappa import clock
from kappa.driver.driven_epoch import DrivenEpoch
from kappa.driver.lazy_engines import LazyEngines
from kappa.driver.voice import Voice
from kappa.errors import StaleWriterError, first_line
from kappa.presence import heartbeat
from kappa.slices.merging import merge_between, unmerged_since


class Merges:
    """Brings changes into the tables while no slice is in work."""

    def __init__(self, epoch: DrivenEpoch, engines: LazyEngines, voice: Voice) -> None:
        self._epoch = epoch
        self._engines = engines
        self._voice = voice
        self._looked = (-1, 0.0)

    def idle(self, share: float = 1.0) -> None:
        """Wait for what comes next, and meanwhile merge what has waited long enough. Between two slices only.

        Args:
            share: of the pause between two looks.
        """
        self._voice.watchdog.begin(heartbeat.WAITING)
        self.merge_when_due()
        time.sleep(share * self._epoch.config.idle_seconds)

    def merge_when_due(self) -> None:
        """Merge changes that wait for longer than they may. Between two slices only."""
        if self.is_due():
            self.merge()

    def is_due(self) -> bool:
        """Whether changes have waited too long, by the last commit; one that was looked at is left for a while."""
        committed, most = self._epoch.ledger.state(look=False).committed, self._epoch.config.merge_seconds
        seq, at = self._looked
        if committed is None or (committed.seq == seq and time.monotonic() - at < max(1.0, most)):
            return False
        return any(clock.is_due(since, timedelta(seconds=most), clock.now()) for since in unmerged_since(committed))

    def merge(self, *, is_asked: bool = False, is_hasty: bool = False) -> None:
        """Bring changes into the tables without a slice: those that waited long enough, or all of them on request.

        Args:
            is_asked: whether those that are not due are merged as well.
            is_hasty: whether tables that Spark would merge are left to the next driver.

        Raises:
            StaleWriterError: another driver claimed the epoch.
        """
        epoch, log, run = self._epoch, self._voice.log, self._engines.opened_run
        if run is None:
            return
        if epoch.record().epoch(epoch.paths.epoch).stage.is_ended:  # its ledger may be gone
            return
        state = epoch.ledger.state()
        if not state.commits or self._engines.is_spark_dead():
            return
        self._looked = (state.commits[-1].seq, time.monotonic())
        try:
            if merge_between(run, is_asked=is_asked, is_hasty=is_hasty):
                log.info("merged", seq=state.commits[-1].seq)
        except StaleWriterError:
            raise
        except Exception as error:  # every commit reads as before; the next slice, or the next driver, does it
            headline = first_line(error) or type(error).__name__
            log.error("not merged", error=f"{type(error).__name__}: {headline}", seq=state.seq)
