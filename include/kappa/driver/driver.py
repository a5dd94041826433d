"""The one Spark application of an epoch, from its first slice to its last.

The driver keeps no state of its own: before every act it looks at the record of epochs and at the ledger, and does what
comes next. Whatever kills it, the next one looks at the same two places and goes on.
"""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kappa.config import Config
from kappa.driver import upgrade as switching
from kappa.driver.attempts import Attempts, is_abandonable, last_stuck
from kappa.driver.driven_epoch import DrivenEpoch, claim
from kappa.driver.handovers.handover import Handover
from kappa.driver.lazy_engines import LazyEngines
from kappa.driver.live import Live
from kappa.driver.merges import Merges
from kappa.driver.processes import process
from kappa.driver.publications import Publications
from kappa.driver.replacements.requested_backfills import Replacements
from kappa.driver.replaying import Replay
from kappa.driver.slicing import Slices
from kappa.driver.voice import Voice
from kappa.environments import files
from kappa.errors import DisagreementError, KappaError, LakeMovedError, StaleWriterError, SupersededError
from kappa.faults import crash_point
from kappa.monitoring.metrics import Metrics
from kappa.presence import heartbeat
from kappa.presence.watchdog import JvmProbe
from kappa.record.epoch_record import EpochRecord, TopologyRecord
from kappa.record.events import Event
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import BegunState, LedgerState, begun
from kappa.replay.stages import Stage
from kappa.slices.abandoning import abandon_slice
from kappa.slices.places import recorded
from kappa.slices.probing import Refusal
from kappa.slices.protocol import finish_slice
from kappa.spark.session import check_settings
from kappa.verify.second_run import SECOND_RUN, discard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kappa.spark.session import StartingSession


#: Part of a pause after an error: a signal is heard meanwhile.
_PAUSE_SECONDS = 0.2


def run_epoch(
    config: Config,
    topology: str,
    epoch: int,
    *,
    code: str | None = None,
    last_claim: int | None = None,
    starting: StartingSession | None = None,
) -> str:
    """Run an epoch's driver until the epoch needs it no more, or it is told to stop.

    Idempotent: started again after any crash it goes on where the ledger says.

    Args:
        topology: name of the topology; its code is taken from ``config.topologies``.
        code: content hash of the code that runs; None for that of the epoch's plan.
        last_claim: the last claim that its launch saw; see :func:`~kappa.driver.driven_epoch.claim`.
        starting: Spark that is starting already, for this driver alone; None starts one when it is needed.

    Returns:
        Why it ended.

    Raises:
        ConfigError: Spark must not commit to the lake with these settings; no claim was made.
        DriverAlreadyRunningError: another driver with a fresh heartbeat has the epoch.
        StaleWriterError: another driver took the epoch over; this one has changed nothing since.
        SupersededError: the epoch was rebuilt in another lake; that is on record, and its driver is not wanted any
            more.
        LakeMovedError: the lake is at another address.
    """
    check_settings(config)
    driver = Driver(config, topology, epoch, code=code, last_claim=last_claim)
    driver.engines.starting = starting
    signal.signal(signal.SIGTERM, driver.on_signal)
    signal.signal(signal.SIGINT, driver.on_signal)
    return driver.run()


class Driver:
    """An epoch's life; see :func:`run_epoch`.

    Args:
        code: content hash of the code that runs; None for that of the epoch's plan.
        last_claim: the last claim that its launch saw.
        session: Spark; None starts one when it is needed, and stops it at the end.

    Attributes:
        epoch: the epoch.
        engines: what it is computed and sent with.
        voice: what is said of it.
        merges: those between two slices.
        publications: what readers by path get.
    """

    def __init__(
        self,
        config: Config,
        topology: str,
        epoch: int,
        *,
        code: str | None = None,
        last_claim: int | None = None,
        session: SparkSession | None = None,
    ) -> None:
        self._last_claim = last_claim
        self.epoch = own = DrivenEpoch(config, topology, epoch, code=code)
        self.voice = voice = Voice(own)
        self.engines = engines = LazyEngines(own, voice, session=session)
        self.merges = merges = Merges(own, engines, voice)
        self.publications = publications = Publications(own, voice, merges)
        self._attempts = attempts = Attempts(own, engines, voice)
        self._slices = slices = Slices(own, engines, voice, attempts)
        self._handover = handover = Handover(own, engines, voice, merges, publications, slices.read_on)
        self._replacements = replacements = Replacements(own, engines, voice, attempts)
        self._replay = Replay(own, engines, voice, merges, attempts, slices, handover)
        self._live = Live(own, engines, voice, merges, publications, attempts, slices, handover, replacements)
        self._is_attested = False

    def on_signal(self, number: int, _: object) -> None:
        """Stop at the next slice boundary."""
        self.stop(f"signal {signal.Signals(number).name}")

    def stop(self, reason: str) -> None:
        """Stop at the next slice boundary."""
        self.voice.stop_reason = reason

    def run(self) -> str:
        """Claim the epoch, then do what comes next until nothing does."""
        try:
            return self._life()
        finally:  # last: the driver that follows waits neither for a scrape nor for the receiver of a notice
            with ExitStack() as ending:
                ending.callback(self.voice.notices.close)
                ending.callback(self.voice.exporter.close)

    def _life(self) -> str:
        epoch, voice = self.epoch, self.voice
        environment = claim(epoch, self._last_claim)
        record = epoch.record()
        standing = self._standing(record)
        self._open_exporter(is_live=standing["role"] == "live")
        standing["metrics"] = voice.exporter.address
        first = replace(
            heartbeat.this_process(epoch.writer, epoch.code), owner=epoch.topology.owner, **environment, **standing
        )
        voice.start_beating(first, epoch.has_claim)
        probe = JvmProbe(voice.watchdog, lambda: self.engines.opened_session, epoch.config.beat_seconds)
        voice.notices.open(record, epoch.epochs.lake_id())
        voice.log.info("claimed", code=epoch.code, **environment)
        if record.epoch(epoch.paths.epoch).stage is not Stage.SEEDED:
            discard(epoch.paths, SECOND_RUN)  # its result is on record; the driver that wrote it ended before this
        reason = "failed"
        try:
            if "instead_of" in environment:
                description = files.described(epoch.paths, **environment)
                voice.log.warning("another environment", description=description)
                voice.notices.strays(description, environment["environment"], at=first.at.isoformat())
            reason = self._loop()
            # A reader of the path sees all of an epoch that stands. Nobody waits for minutes of Spark at its end.
            is_hasty = bool(self.voice.stop_reason) or self._is_asked_for()
            self.merges.merge(is_asked=True, is_hasty=is_hasty)
            self.publications.look(self.epoch.record(), is_asked=True)
            crash_point("ending")
        except (StaleWriterError, SupersededError, LakeMovedError) as error:
            reason = str(error)
            raise
        finally:  # each of them whatever becomes of the one before
            with ExitStack() as ending:
                ending.callback(voice.log.info, "ended", reason=reason)
                ending.callback(self.close)
                ending.callback(voice.end, reason)
                ending.callback(probe.close)
        if self._is_asked_for():
            self._start_successor()
        return reason

    def _start_successor(self) -> None:
        """Start the driver of the code that runs the epoch now; where this fails, the epoch's watcher does it."""
        epoch = self.epoch
        try:
            process.ensure_driver(epoch.config, epoch.topology.name, epoch.paths.epoch)
        except KappaError as error:
            self.voice.log.error("successor not started", error=str(error))

    def close(self) -> None:
        """Close Spark and Kafka."""
        self.engines.close()

    def _standing(self, record: TopologyRecord) -> dict[str, Any]:
        """What a first heartbeat says of the epoch: where its last driver left it."""
        committed = self.epoch.ledger.state().committed
        is_live = record.live == self.epoch.paths.epoch
        return {"role": "live" if is_live else "candidate", **({} if committed is None else {"seq": committed.seq})}

    def _open_exporter(self, *, is_live: bool) -> None:
        epoch, voice = self.epoch, self.voice

        def metrics() -> Metrics:
            return Metrics(
                epoch.topology,
                epoch.paths.epoch,
                bound=epoch.upstreams.topics,
                start=epoch.plan.start,
                end=epoch.plan.end,
                floors=lambda: epoch.ledger.state(look=False).floored,
            )

        voice.exporter.open(metrics, lambda: voice.state, epoch.ledger.state().committed, is_live=is_live)

    # What comes next

    def _loop(self) -> str:
        while True:
            try:
                with recorded(self.epoch.plan.topic_ids):  # whatever asks for a topic
                    ended = self._next()
                if ended is not None:
                    return ended
                self._attempts.succeeded()
            except (KeyboardInterrupt, SystemExit):
                raise
            except Exception as error:  # anything that a step or an engine raises is weighed
                self._is_attested &= not isinstance(error, DisagreementError)
                seconds = self._attempts.failed(error)
                self.voice.exporter.failed(error, self._attempts.failures)
                self._pause(seconds)

    def _next(self) -> str | None:
        """One act; the reason to end, or None to look again."""
        voice = self.voice
        voice.watchdog.begin("looking at the record")
        record = self.epoch.record()
        voice.notices.look(record)
        epoch = record.epoch(self.epoch.paths.epoch)
        ended = voice.stop_reason or self._unwanted(epoch) or self._overtaken(epoch)
        if ended is not None:
            return ended
        if self._attempts.stuck is not None or record.live != self.epoch.paths.epoch:
            self.publications.look(record)
        if self._attempts.stuck is not None:
            self._wait_stuck(record, self._attempts.stuck)
            return None
        if not self._is_attested:
            self.epoch.attest(self.engines.broker, record)
            self._is_attested = True
        state = self.epoch.ledger.state(look=False)  # the look was for the code that runs the epoch
        if state.open_plan is not None:
            self._finish_open(record, begun(state), state.open_plan)
            return None
        if record.live == self.epoch.paths.epoch:
            self._live.next(record, begun(state))
        else:
            self._replay.next(record, epoch)
        return None

    def _unwanted(self, epoch: EpochRecord) -> str | None:
        """Why the epoch needs no driver, or None."""
        if epoch.stage.is_ended:  # first: what is left of a removed ledger may not be one that can be read
            return f"epoch is {epoch.stage.lower()}"
        if self.voice.is_lost:
            Ledger(self.epoch.paths.ledger).check_claim(self.epoch.writer)
        if not epoch.is_wanted:
            return "stopped on request" if epoch.stage is not Stage.RETIRED else "retired"
        return None

    def _overtaken(self, epoch: EpochRecord) -> str | None:
        """Why the epoch needs a driver with other code, or None."""
        return switching.overtaken(
            self.epoch.epochs, self.epoch.paths, epoch, self.epoch.ledger.state(), self.epoch.code
        )

    def _is_asked_for(self) -> bool:
        """Whether the epoch needs a driver after this one, which was not told to end: of other code, or called back.

        To call an epoch back is to put it on record, then to start a driver unless a heartbeat is fresh. The last
        heartbeat is written by now, so either that look misses this driver, or this one finds the call on record.
        """
        epoch = self.epoch.record().epoch(self.epoch.paths.epoch)
        return not self.voice.stop_reason and epoch.is_wanted and not epoch.stage.is_ended

    def _finish_open(self, record: TopologyRecord, state: BegunState, plan: LedgerRow) -> None:
        """Redo a slice that was planned and not committed, with its own ranges; or give up after too many attempts."""
        epoch, engines, voice = self.epoch, self.engines, self.voice
        voice.say(f"finishing slice {plan.seq}")
        if plan.logged or plan.sends != "held":
            engines.open_sender()
        if plan.is_replacement:
            started = time.monotonic()
            commit = self._replacements.finish(plan)
            if commit is not None:
                self._slices.committed(commit, "replacing rows", time.monotonic() - started)
            return
        is_leaving = record.live == epoch.paths.epoch and record.handover is not None
        if is_leaving and state.tries and is_abandonable(engines.slice_run, state):
            self._attempts.abandon(state, plan)  # the epoch that takes over reads it
            return
        if self._is_decided_anew(record, state, plan):
            self._attempts.abandon(state, plan, is_decided=True)  # planned again without what is set aside
            return
        match self._attempts.next(state, plan, record.recent_events):
            case "smaller":
                self._attempts.abandon(state, plan)
            case "again":
                self._attempts.abandon(state, plan, is_same=True)
            case "stuck":
                self._attempts.give_up(state, self._refusal(state, plan))
            case _:
                started = time.monotonic()
                row = finish_slice(engines.slice_run, plan)
                self._slices.committed(row, "finishing", time.monotonic() - started)

    def _is_decided_anew(self, record: TopologyRecord, state: LedgerState, plan: LedgerRow) -> bool:
        """Whether a decision sets records of the planned slice aside, which can be planned again without them.

        Before its effects are on record; after that only where the broker refuses them, and they get it stuck.
        """
        if not self._slices.decisions.is_unobeyed(record, plan) or self._attempts.failures > self.epoch.config.attempts:
            return False
        stuck, _ = last_stuck(record.recent_events, self.epoch.paths.epoch, plan.seq)
        return (state.open_effects is None or stuck is not None) and is_abandonable(self.engines.slice_run, state)

    def _refusal(self, state: BegunState, plan: LedgerRow) -> Refusal | None:
        """The record that the planned slice fails at; None where that is not known, or said already."""
        if self._attempts.stuck is not None:
            return None
        self.voice.say(f"looking for the record that slice {state.seq} fails at")
        refusal = self._attempts.refusal(state, plan)
        crash_point("probe", state.seq)
        return refusal

    def _wait_stuck(self, record: TopologyRecord, stuck: Event) -> None:
        """Wait for a decision.

        A start tries again; a handover ends the epoch at its last commit, an upgrade goes on from there.
        """
        epoch, voice = self.epoch, self.voice
        if self._attempts.is_decided(stuck, record.recent_events):
            voice.tell(state="running", message="trying again")
            return
        if not self._is_attested:  # its last commit is not where the epoch stopped sending: no other can begin there
            if record.handover is not None and record.live == epoch.paths.epoch:
                self._handover.refuse(record.handover, stuck.reason)
            time.sleep(self.epoch.config.idle_seconds)
            return
        state = epoch.ledger.state()
        upgrade = record.epoch(epoch.paths.epoch).upgrade
        if record.live == epoch.paths.epoch and (record.handover is not None or upgrade is not None):
            if state.open_plan is not None:
                self._leave(record, state, state.open_plan)
                return
            self._live.next(record, begun(state))
            return
        time.sleep(self.epoch.config.idle_seconds)

    def _leave(self, record: TopologyRecord, state: LedgerState, plan: LedgerRow) -> None:
        """Close the slice at which the epoch is stuck, so that another can go on; a sent one has to be finished."""
        engines = self.engines
        engines.open_sender()
        if plan.is_replacement:
            self._replacements.finish(plan, is_leaving=True)
            return
        if is_abandonable(engines.slice_run, state):
            abandon_slice(engines.slice_run, plan)
            return
        if record.handover is not None and self._handover.is_over(record.handover, "finishing what was sent"):
            return
        finish_slice(engines.slice_run, plan)

    def _pause(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.voice.stop_reason:
            self.voice.watchdog.begin("pausing after an error")
            time.sleep(_PAUSE_SECONDS)
