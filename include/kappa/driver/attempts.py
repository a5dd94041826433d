"""Attempts at a planned slice, and their consequence: another try, a smaller slice, or a wait for a decision.

Attempts outlive the process that makes them: each driver that takes over a planned slice leaves its claim in the
ledger, and one that runs out of memory leaves nothing else. What a process itself sees fail is added to that.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import Any, Literal

from kappa.driver.driven_epoch import DrivenEpoch
from kappa.driver.lazy_engines import LazyEngines
from kappa.driver.voice import Voice
from kappa.errors import (
    AdoptionError,
    ConfigError,
    ConflictError,
    DataLossError,
    DisagreementError,
    KappaError,
    LakeMovedError,
    LedgerError,
    RecordRefusedError,
    StaleWriterError,
    SupersededError,
    Transient,
    first_line,
    unworded,
)
from kappa.offsets.vector import Offsets
from kappa.presence.full_disk import is_full
from kappa.record.events import DECISIONS, Event
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import BegunState, LedgerState
from kappa.slices.abandoning import abandon_slice
from kappa.slices.input.reading import is_small
from kappa.slices.probing import Probe, Refusal, named_by, refused
from kappa.slices.run import EpochRun
from kappa.slices.topics import turns
from kappa.slices.topics.sending import is_sent
from kappa.spark.error_classes import error_class
from kappa.store.address import is_remote
from kappa.store.outages import is_outage

#: What a slice that failed too often is divided by: 500,000 records, then 5,000, 50 and one. Each size costs several
#: attempts, of which each may cost a JVM.
SHRINK = 100
#: For this many commits slices stay below half of the one that failed.
CAUTIOUS_COMMITS = 100
LONGEST_PAUSE_SECONDS = 30.0
#: What a status says while there is no room.
_NO_ROOM = "no room on the disk of the lake, or of this host: it goes on when there is some"
#: Another try would find the same.
_HOPELESS = (AdoptionError, DisagreementError, RecordRefusedError)
#: Records that are gone do not come back in smaller slices, and what a broker refuses it refuses in those too. Those
#: beside them would be computed all the same.
_WHATEVER_THE_SIZE = (DataLossError, ConfigError, RecordRefusedError)

Next = Literal["try", "smaller", "again", "stuck"]


def slice_records(state: LedgerState, most: int) -> int:
    """Most offsets of the next slice: fewer after one that failed, twice as many with each commit since.

    Args:
        state: the epoch's ledger.
        most: what the plan and the settings allow.
    """
    shrunk = state.shrunk
    if shrunk is None or not is_shrunk(state):
        return most
    first = int(shrunk.detail["most"])
    ceiling = max(first, span_of(shrunk) // 2)
    return max(1, min(most, ceiling, first << min(state.since_shrunk, 40)))


def is_shrunk(state: LedgerState) -> bool:
    """Whether slices are smaller because one failed not long ago."""
    return state.shrunk is not None and state.since_shrunk < CAUTIOUS_COMMITS


def span_of(row: LedgerRow) -> int:
    """Offsets that a planned slice spans."""
    return sum(item.count for item in row.ranges)


def is_abandonable(run: EpochRun, state: LedgerState) -> bool:
    """Whether the planned slice can still be given up: nothing of it was sent, and nothing of it is in a table.

    The driver's sender must be open where the slice sends: only then is it known what was sent.
    """
    plan = state.open_plan
    if plan is None or is_sent(run, plan):
        return False
    sends = plan.logged or plan.sends != "held"
    if sends and run.sent.sender is None:
        return False
    return sends or state.open_effects is None  # one that does not send is applied right after its effects row


def last_stuck(events: Sequence[Event], epoch: int, seq: int) -> tuple[Event | None, bool]:
    """The last time that an epoch got stuck at a slice, and whether a decision followed."""
    own_events = [e for e in events if e.epoch == epoch and (e.event == "stuck" or e.event in DECISIONS)]
    stuck = [e for e in own_events if e.event == "stuck" and e.detail.get("seq") == seq]
    if not stuck:
        return None, False
    return stuck[-1], any(e.event in DECISIONS and e.n > stuck[-1].n for e in own_events)


class Attempts:
    """What the driver of an epoch makes of errors."""

    #: The event after which the driver waits for a decision.
    stuck: Event | None = None

    def __init__(self, epoch: DrivenEpoch, engines: LazyEngines, voice: Voice) -> None:
        self._epoch = epoch
        self._engines = engines
        self._voice = voice
        self._failures = 0
        self._failed_at: tuple[Offsets, int] | None = None
        self._is_whole = False
        self._error, self._headline = "", ""
        #: The last error itself, where a slice failed in this process.
        self.cause: Exception | None = None
        self._unsent = 0
        self._waits = 0

    @property
    def failures(self) -> int:
        """Failures in a row at one place that this process has seen."""
        return self._failures

    @property
    def error(self) -> str:
        """The error of the last one of them; empty where there was none."""
        return self._error

    def succeeded(self) -> None:
        """An act succeeded."""
        self._waits = 0

    def committed(self) -> None:
        """A slice was committed: earlier failures no longer count."""
        self._failures, self._failed_at, self._unsent, self._waits = 0, None, 0, 0
        self._is_whole, self._error, self._headline, self.cause = False, "", "", None

    def failed(self, error: Exception) -> float:
        """Weigh an error; how many seconds to wait before the next act.

        What goes wrong while it is weighed is waited for: an epoch whose lake takes no row at the moment cannot be put
        on record as stuck, and a process that ends for it would be started again and again.

        Raises:
            StaleWriterError: another driver claimed the epoch.
            SupersededError: the epoch was rebuilt in another lake.
            LakeMovedError: the lake is at another address.
            Exception: the error itself, where only a new process can go on.
        """
        try:
            return self._weighed(error)
        except (StaleWriterError, SupersededError, LakeMovedError):
            raise
        except Exception as other:
            if other is error:
                raise
            return self._wait("not weighed", other, 1.0)

    def _weighed(self, error: Exception) -> float:
        epoch, engines, voice = self._epoch, self._engines, self._voice
        if isinstance(error, LakeMovedError):
            raise error
        if isinstance(error, StaleWriterError):
            epoch.ledger.check_claim(epoch.writer)  # raises unless only the producer was fenced
        if isinstance(error, DisagreementError):
            epoch.ledger.check_claim(
                epoch.writer
            )  # to a driver that was replaced its successor's slices look like that
        if isinstance(error, LedgerError) and not epoch.ledger.exists():
            raise error
        if isinstance(error, SupersededError):
            turns.put_on_record(epoch.epochs, epoch.paths, error)
            raise error
        if engines.is_spark_dead():
            raise error  # a new process gets a new JVM; the epoch's watcher starts it
        engines.spend_sender()
        what = f"{type(error).__name__}: {self._words(error)}"
        if isinstance(error, ConflictError):
            return self._wait("conflict", error, 0.2)
        is_gone = is_remote(epoch.config.lake) and is_outage(error)
        outside = "disk full" if is_full(error) else "lake unreachable" if is_gone else ""
        if outside:  # no attempt: the same slice goes on when there is room, or an answer
            return self._wait(outside, error, 1.0)
        is_there = engines.is_kafka_there()
        if isinstance(error, Transient) or not is_there:
            state = epoch.ledger.state()
            self._unsent += is_there and state.open_effects is not None
            return self._wait("waiting", error, 1.0)
        state = epoch.ledger.state()
        trace = "".join(traceback.format_tb(error.__traceback__))
        if self.stuck is not None:  # a handover tries to finish what was sent: not for ever, and not in a hot loop
            voice.log.error("failed", error=what, seq=state.seq, trace=trace)
            self._waits += 1
            return min(LONGEST_PAUSE_SECONDS, float(self._waits))
        # By position and plan: a slice that was abandoned is planned again, smaller, under the next number.
        position = state.position if isinstance(state, BegunState) else Offsets()
        at = (position, state.open_plan.seq if state.open_plan else -1)
        self._failures = self._failures + 1 if at == self._failed_at else 1
        self._failed_at, self._error, self._headline = at, what, self._words(error)
        self.cause = error.with_traceback(None)
        self._is_whole = isinstance(error, _WHATEVER_THE_SIZE)
        voice.log.error("failed", error=what, attempt=self._failures, seq=state.seq, trace=trace)
        is_hopeless = isinstance(error, _HOPELESS)  # another try would find the same
        # What cannot even be given up fails outside of the slice: a table that nothing can open any more, for one.
        most = epoch.config.attempts * (1 if state.open_plan is None else 2)
        if is_hopeless or self._failures >= most:
            self.give_up(state)
            return 0.0
        return float(self._failures)

    def next(self, state: LedgerState, plan: LedgerRow, events: Sequence[Event]) -> Next:
        """What to do with the planned slice.

        Args:
            state: the ledger.
            plan: the planned slice.
            events: those of the topology's epochs that were not rolled up, oldest first.
        """
        epoch, engines = self._epoch, self._engines
        stuck, is_decided = last_stuck(events, epoch.paths.epoch, plan.seq)
        if stuck is not None and not is_decided:
            self.stuck = stuck
            return "stuck"
        if state.open_seal is not None:  # a driver ended while it gave the slice up: some of its rows are gone
            return "again"
        limit, run = epoch.config.attempts, engines.slice_run
        if stuck is not None and self._failures < limit and is_abandonable(run, state):
            # Claims of drivers that only waited are not attempts: the same slice, counted from the start.
            return "again"
        before = 0 if stuck is None else int(stuck.detail.get("claims", state.tries))
        tried = max(0, state.tries - before) + self._failures
        # A slice that cannot be cut where it would have to be is planned as before: once is enough.
        is_cut = state.shrunk is None or state.since_shrunk > 0 or span_of(plan) < span_of(state.shrunk)
        can_shrink = span_of(plan) > 1 and is_cut and not self._is_whole and is_abandonable(run, state)
        if can_shrink and max(tried + 1, self._unsent) >= limit and tried + self._unsent > 0:
            return "smaller"
        if not can_shrink and tried >= limit:
            return "stuck"
        return "try"

    def abandon(self, state: LedgerState, plan: LedgerRow, *, is_same: bool = False, is_decided: bool = False) -> None:
        """Give the planned slice up; the next one at this place is smaller, or as large. What was decided when that
        began counts.

        Args:
            state: the ledger.
            plan: the planned slice.
            is_same: the next slice may be as large.
            is_decided: a decision has taken away what failed: slices may be as large as ever.
        """
        most = span_of(plan) if is_same else max(1, span_of(plan) // SHRINK)
        bound: dict[str, Any] = {"decided": True} if is_decided else {"most": most}
        detail = {**bound, "tries": state.tries + self._failures}
        self._voice.log.warning("abandoned", seq=plan.seq, span=span_of(plan), error=self._error or None, **detail)
        abandon_slice(self._engines.slice_run, plan, detail)
        self._failures, self._failed_at, self._unsent = 0, None, 0

    def give_up(self, state: LedgerState, refusal: Refusal | None = None) -> None:
        """Put it on record that the epoch is stuck, and say so; it waits for a decision then.

        Args:
            state: the ledger.
            refusal: the record at which it is stuck, where that is known.
        """
        epoch, voice = self._epoch, self._voice
        stuck = self.stuck
        if stuck is None:
            dead = (
                f"{state.tries} drivers ended while they worked on slice {state.seq}, the last one without a word: out "
                "of memory?"
            )
            what = self._error or dead
            reason = self._headline or dead
            detail = {}
            plan = state.open_plan
            if refusal is None and plan is not None:
                refusal = named_by(self.cause, plan.ranges)
            if refusal is not None:
                detail = {"record": refusal.as_dict()}
                reason = f"{reason.rstrip('.')}. {refusal.described(epoch.topology.name, self._option())}"
            self.stuck = stuck = epoch.epochs.add(
                epoch.topology.name,
                epoch.paths.epoch,
                "stuck",
                actor="driver",
                reason=reason,
                error=what,
                seq=state.seq,
                claims=state.tries,
                **detail,
            )
            voice.log.error("stuck", error=what, seq=state.seq)
        voice.tell(state="stuck", message=f"stuck at slice {stuck.detail['seq']}: {stuck.reason}")

    def refusal(self, state: BegunState, plan: LedgerRow) -> Refusal | None:
        """The record that the planned slice fails at; None where no record fails alone, or it cannot be found.

        Nothing is computed again where drivers only died at the slice: this one would too.

        Raises:
            StaleWriterError: another driver claimed the epoch.
        """
        error = self.cause
        spans = [item for item in plan.ranges if item.count]
        refusal = named_by(error, spans)
        if refusal is None and len(spans) == 1 and spans[0].count == 1:
            word = "the end of its driver" if error is None else error_class(error)
            refusal = Refusal(topic=spans[0].topic, partition=spans[0].partition, offset=spans[0].start, error=word)
        if error is None or state.open_effects is not None or not is_small(plan.ranges, self._epoch.config.small_slice):
            return refusal
        try:
            with Probe(self._engines.slice_run, plan, state) as probe:
                return refused(probe, spans, None if refusal is None else refusal.range) or refusal
        except StaleWriterError:
            raise
        except Exception as failed:  # the epoch is stuck all the same, for the reason that is known
            what = f"{type(failed).__name__}: {self._words(failed)}"
            self._voice.log.warning("record not found", error=what, seq=plan.seq)
            return refusal

    def _option(self) -> str:
        """What the command line needs to name the epoch: nothing for the live one."""
        record = self._epoch.record()
        return "" if record.live in (None, self._epoch.paths.epoch) else f" --epoch {self._epoch.paths.epoch}"

    def is_decided(self, stuck: Event, events: Sequence[Event]) -> bool:
        """Whether the wait is over: the epoch was told to try again.

        Args:
            stuck: the event after which the driver waits.
            events: those of the topology's epochs that were not rolled up, oldest first.
        """
        epoch, n = self._epoch.paths.epoch, stuck.n
        if not any(e.event in DECISIONS and e.epoch == epoch and e.n > n for e in events):
            return False
        self.stuck = None
        self.committed()
        return True

    def _is_withheld(self, error: BaseException) -> bool:
        """Whether the message of an error may hold values that are not for everyone: an engine's or a step's may."""
        return self._epoch.topology.is_confidential and not isinstance(error, KappaError | OSError)

    def _words(self, error: BaseException) -> str:
        """The first line of an error for the record, the heartbeat and the log, or its kind."""
        without = f"{unworded(error)} (its message is not shown: it may hold values that are not for everyone)"
        return without if self._is_withheld(error) else headline(error)

    def _wait(self, event: str, error: Exception, first: float) -> float:
        """Errors that pass by themselves do not count as attempts; the pauses between them grow."""
        self._waits += 1
        seconds = min(LONGEST_PAUSE_SECONDS, first * 2.0 ** min(self._waits - 1, 10))
        whole = self._words(error) if self._is_withheld(error) else str(error)
        self._voice.log.warning(event, error=whole, pause_seconds=seconds)
        words = str(error) if isinstance(error, KappaError) else self._words(error)
        if is_full(error):
            words = f"{_NO_ROOM} ({words})"
        self._voice.say(f"waiting: {words}")
        return seconds


def headline(error: BaseException) -> str:
    """The first line of an error, or its kind."""
    return first_line(error) or type(error).__name__
