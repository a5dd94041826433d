"""The slices of one epoch in turn: where the next one ends, the protocol, and the care between two of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING

from kappa import clock
from kappa.driver import consumer_group, upgrade
from kappa.driver.attempts import Attempts, headline, is_shrunk, slice_records
from kappa.driver.decisions import Decisions
from kappa.driver.driven_epoch import DrivenEpoch
from kappa.driver.lazy_engines import LazyEngines
from kappa.driver.maintenance import is_due, maintain
from kappa.driver.next_slice import cuts_of
from kappa.driver.slice_sizes import AnyCut, SliceSizes
from kappa.driver.upstreams import Cut
from kappa.driver.voice import Voice
from kappa.errors import ConflictError, DamagedTableError, LedgerError, StaleWriterError
from kappa.names import SERVED
from kappa.offsets import releases
from kappa.offsets.floors import Floors, of_added
from kappa.offsets.releases import Releases
from kappa.offsets.vector import OffsetRange, Offsets, ranges_end
from kappa.presence.heartbeat import LIVE
from kappa.record import chains, rollup
from kappa.record.epoch_record import TopologyRecord
from kappa.record.ledger_rows import LedgerRow
from kappa.record.ledger_state import BegunState
from kappa.replay.proof.certificate import Sends
from kappa.replay.stages import Stage
from kappa.slices.input.reading import is_small
from kappa.slices.protocol import run_slice
from kappa.spark.jvm_heap import LEAST, LEAST_LIVE, OldObjects
from kappa.topology.shapes import timings_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


#: Most offsets of the first slice that a driver computes from a log, unless a slice in memory may have more. Its JVM
#: compiles what slices need, which takes as long for few records: the first commit is made in two thirds of the time,
#: and the last one as early. Reading an archive is so quick that one more slice would make the last one late.
FIRST_RECORDS = 60_000
#: Commits that say how large records were.
_LAST = 3


class Slices:
    """Makes slices for an epoch, each in the driver's one thread or in that of its streaming query.

    Attributes:
        seconds: how long the last slice took; 0.0 before the first.
        cuts: where the next slice ends.
        sizes: bounds slices in bytes.
        decisions: what they leave out.
    """

    def __init__(self, epoch: DrivenEpoch, engines: LazyEngines, voice: Voice, attempts: Attempts) -> None:
        self._epoch = epoch
        self._engines = engines
        self._voice = voice
        self._attempts = attempts
        self.seconds = 0.0
        self.cuts = cuts_of(epoch, engines)
        self.sizes = SliceSizes(engines.broker, epoch.config.slice_bytes)
        self.decisions = Decisions(epoch, voice)

    @cached_property
    def _old_objects(self) -> OldObjects:
        return OldObjects(self._engines.session)

    @property
    def most(self) -> int:
        """Most offsets of the next slice: by the plan, by this process's settings, and by what failed."""
        epoch = self._epoch
        most = min(epoch.plan.request.slice_records, epoch.config.slice_records)
        return slice_records(epoch.ledger.state(look=False), most)

    @property
    def _first_or_most(self) -> int:
        """The same on the way to an end that lies far away, where the first slice is a short one."""
        if self.seconds:
            return self.most
        return min(self.most, max(FIRST_RECORDS, self._epoch.config.small_slice))

    @property
    def apart(self) -> Sends:
        """What a slice sends while another epoch is live: nothing, or what goes to the epoch's versioned topics."""
        return "versioned" if self._epoch.topology.versioned_topics else "held"

    def bulk(self, state: BegunState) -> None:
        """The next slice of a replay, towards the end of its plan."""
        plan, position = self._epoch.plan, state.position
        is_archived = any((position.get(r.topic, r.partition) or 0) < r.end for r in plan.archived)
        cut = self._bounded(state, partial(self.cuts.bulk, state), self.most if is_archived else self._first_or_most)
        self.cut(state, cut, sends=self.apart, what="replaying")

    def towards(self, state: BegunState, end: Offsets, what: str) -> None:
        """One live slice towards ``end``; a pause where none can be made yet."""
        cut = self._bounded(state, partial(self.cuts.towards, state, end), self._first_or_most)
        if cut is None:
            time.sleep(self._epoch.config.idle_seconds / 2)
        else:
            self.cut(state, cut, sends="live", what=what)

    def read_on(self, state: BegunState, end: Offsets) -> None:
        """One live slice towards ``end``, where all that hand over together yield."""
        self.towards(state, end, "going on to where its group meets")

    def follow(self, record: TopologyRecord, what: str) -> bool:
        """One held slice that ends on a commit of the live epoch or leads to one; False when there is none.

        What the live epoch does not read is read meanwhile, until a handover is asked for: the rest is sent after it,
        but for what another epoch has sent.
        """
        if record.live is None:
            return False
        state, theirs = self._epoch.ledger.begun(), self._epoch.live_ledger(record).begun()
        position = state.standing
        ahead: list[Offsets] = []
        for row in reversed(theirs.commits):
            end = row.standing.beside(position)
            here = position.beside(end)
            if end == here or not end.dominates(here):
                break
            ahead.insert(0, end)
        if not ahead:
            may_read = record.handover is None or not self._epoch.has_read_what_was_sent(record)
            return may_read and self._read_apart(state, theirs.standing, what)
        # The commits up to the first that is a row may be rolled up: then it lies further away than one slice of
        # theirs.
        is_far = theirs.rolled is not None or is_shrunk(state)
        cut = self._bounded(state, partial(self.cuts.following, state, ahead, is_far=is_far), self.most)
        if cut is not None:
            self.cut(state, cut, sends=self.apart, what=what)
        return cut is not None

    def _read_apart(self, state: BegunState, live: Offsets, what: str) -> bool:
        """One held slice towards the end of topics that the live epoch does not read; False when nothing is left."""
        cut = self._bounded(state, partial(self.cuts.apart, state, live), self.most)
        if cut is not None:
            self.cut(state, cut, sends=self.apart, what=what)
        return cut is not None

    def onward(self, state: BegunState) -> Cut | None:
        """The next slice towards the end of what there is; None where there is nothing."""
        return self._bounded(state, partial(self.cuts.onward, state), self.most)

    def _bounded(self, state: BegunState, cut: Callable[[int], AnyCut], most: int) -> AnyCut:
        return self.sizes.bounded(cut, most, state.position, state.commits[-_LAST:])

    def micro_batch(self, ranges: Sequence[OffsetRange], raw: DataFrame) -> None:
        """The slices of a micro-batch: one of its records, unless these are too large; then several, read anew."""
        state, end = self._epoch.ledger.begun(look=False), ranges_end(ranges)
        if self.sizes.fitting(ranges, state.commits[-_LAST:]) is None:
            self.run(ranges, sends="live", what=LIVE, raw=raw)
            return
        while state.position != end and not self._voice.stop_reason:
            self.towards(state, end, "live")
            state = self._epoch.ledger.begun(look=False)

    def cut(self, state: BegunState, cut: Cut, *, sends: Sends, what: str) -> None:
        """One slice from the last commit to a cut."""
        ranges = state.position.span_to(cut.end)
        self.run(ranges, sends=sends, what=what, roots=cut.standing, frontiers=cut.frontiers)

    def run(
        self,
        ranges: Sequence[OffsetRange],
        *,
        sends: Sends,
        what: str,
        raw: DataFrame | None = None,
        roots: Offsets | None = None,
        frontiers: Mapping[str, int] | None = None,
    ) -> None:
        """One slice, from planned to committed.

        Args:
            ranges: what it reads; the first offsets are those after the last commit.
            sends: what it sends.
            what: said of it in the heartbeat and the log.
            raw: its records, where a streaming query has them already.
            roots: where it ends in root topics; None where it reads no versioned topic.
            frontiers: versioned topic -> up to when its rows are final there; those that a source follows are kept.

        Raises:
            DataLossError: records of the ranges are gone.
            StaleWriterError: another driver claimed the epoch.
        """
        epoch, engines, voice = self._epoch, self._engines, self._voice
        epoch.check_low(engines.broker, ranges)
        state = epoch.ledger.begun(look=False)
        logged = state.baseline_seq is not None
        if logged:
            engines.open_sender()
        started = time.monotonic()
        voice.exporter.begin("plan")
        aside = self.decisions.within(self.decisions.without_late(epoch.record(), state), ranges)
        released, floors = self._releases(state, ranges, sends), self._floors(state, ranges, sends)
        row = run_slice(
            engines.slice_run,
            ranges,
            sends=sends,
            logged=logged,
            raw=raw,
            roots=roots,
            releases=released,
            floors=floors,
            frontiers=frontiers,
            set_aside=aside,
        )
        self.seconds = time.monotonic() - started
        self.committed(row, what, self.seconds)
        # What large slices leave behind takes longer to collect than to outgrow.
        if is_small(ranges, epoch.config.small_slice):
            self._old_objects.collect_if_grown(LEAST_LIVE if sends == "live" else LEAST)

    def _releases(self, state: BegunState, ranges: Sequence[OffsetRange], sends: Sends) -> Releases:
        """What a live slice releases; of any other, what it takes over from the live epoch."""
        epoch = self._epoch
        idle_after = epoch.topology.idle_after
        if not idle_after:
            return {}
        if sends == "live":
            position, times = state.position, state.committed.stream_times
            broker = self._engines.broker
            return releases.of_live_slice(ranges, position, idle_after, times, lambda: epoch.stable(broker, position))
        record = epoch.record()
        if record.live is None:
            return {}
        return releases.copied(epoch.live_ledger(record).state().releases, state.released, ranges)

    def _floors(self, state: BegunState, ranges: Sequence[OffsetRange], sends: Sends) -> Floors:
        """The floors of partitions that were added; of any other slice than a live one, those of the live epoch.

        A floor says nothing to code that takes the time from elsewhere.
        """
        epoch = self._epoch
        if not epoch.topology.has_event_time:
            return {}
        if sends == "live":
            return of_added(ranges, state.position, state.floored)
        record = epoch.record()
        if record.live is None or record.live == epoch.paths.epoch:
            return {}
        live = epoch.live_ledger(record).state()
        own, theirs = timings_of(epoch.topology.sources), live.timings
        strange = {topic for topic, one in own.items() if topic in theirs and theirs[topic].time != one.time}
        live_floors = ((at, {t: held for t, held in floors.items() if t not in strange}) for at, floors in live.floors)
        return releases.copied(live_floors, state.floored, ranges)

    def committed(self, row: LedgerRow, what: str, seconds: float) -> None:
        """What follows each commit: the heartbeat, the group, the files and the ledger's length."""
        self._attempts.committed()
        self._voice.exporter.committed(row, seconds)
        rate = row.rows_read / seconds if seconds else None
        role = "live" if row.sends == "live" else "candidate"
        self._voice.tell(seq=row.seq, message=what, records_per_second=rate, role=role)
        self._voice.log.info(
            "slice",
            seq=row.seq,
            what=what,
            rows=row.rows_read,
            dead=row.rows_dead,
            sends=row.sends,
            seconds=round(seconds, 3),
        )
        if not row.logged:
            # The group is moved by the slice's own transaction otherwise; here it only shows how far the replay is.
            self._show_position(ranges_end(row.ranges))
        self._maintain()
        self._roll_up()

    def _roll_up(self) -> None:
        """Put one row in the place of the ledger's rows of slices long done, when there are enough of them."""
        epoch, voice, state = self._epoch, self._voice, self._epoch.ledger.state(look=False)
        if not rollup.is_due(state, epoch.config.rollup_slices):
            return
        records, own = epoch.epochs.records(), (epoch.topology.name, epoch.paths.epoch)
        if chains.is_read_by_replay(records, *own):
            return
        try:
            stands = chains.stands_of_readers(epoch.paths.lake, records, *own)
            row = rollup.rolled_up(state, writer=epoch.writer, code=epoch.code, at=clock.now(), stands=stands)
            if row is None:
                return
            epoch.ledger.roll_up(row)
        except (StaleWriterError, ConflictError):
            raise
        except Exception as error:  # a ledger that is longer stops no stream; it is tried again after the next slice
            voice.log.error("not rolled up", error=f"{type(error).__name__}: {headline(error)}", seq=state.seq)
            return
        voice.log.info("rolled up", seq=row.detail["seq"], commits=row.detail["commits"])

    def _show_position(self, position: Offsets) -> None:
        """A consumer in the epoch's group keeps the group from being moved; the slice is done all the same."""
        try:
            consumer_group.set_offsets(self._epoch, self._engines.broker, position)
        except ConflictError as error:
            self._voice.log.warning("group not moved", error=str(error))

    def _maintain(self) -> None:
        """Look after the Delta files, when it is time; not in a handover, which is withdrawn where it takes long."""
        epoch, voice, state = self._epoch, self._voice, self._epoch.ledger.state(look=False)
        if not is_due(state, epoch.config, clock.now()):
            return
        record = epoch.record()
        if record.handover is not None:
            return
        kept_for = timedelta(hours=epoch.config.savepoint_hours)
        upgrade.expire_savepoints(epoch.epochs, epoch.paths, clock.now() - kept_for)
        voice.say("looking after files")
        try:
            row = maintain(
                self._engines.slice_run,
                epoch.config,
                clock.now(),
                self._named,
                published=partial(self._published_files, record),
            )
        except StaleWriterError:
            raise
        except Exception as error:  # files that stay longer stop no stream; it is tried again when it is time
            voice.log.error("not maintained", error=f"{type(error).__name__}: {headline(error)}", seq=state.seq)
            return
        voice.log.info("maintained", seq=row.seq, readable_from=row.detail["readable_from"])

    def _named(self) -> set[int] | None:
        """Slices whose commits stay readable by the record as it is now; None for all."""
        epoch, record = self._epoch, self._epoch.record()
        candidate, named = record.candidate, record.named_seqs(epoch.paths.epoch)
        if record.live != epoch.paths.epoch or candidate is None:
            return named
        # It compares itself with the commit at which it stands, however old that is by then.
        if candidate.stage in (Stage.REPLAYED, Stage.CAUGHT_UP) and not candidate.is_recalled:
            return None
        plan = candidate.plan
        if plan.seed_epoch == epoch.paths.epoch and plan.seed_seq is not None:
            named.add(plan.seed_seq)
        return named

    def _published_files(self, record: TopologyRecord, place: str) -> set[str] | None:
        """Files of a place that readers of its published table may need; none of an epoch that was never live.

        None where the log of the published table cannot be read.
        """
        epoch = self._epoch
        if not place.startswith(SERVED) or record.epoch(epoch.paths.epoch).moved is None:
            return set()
        try:
            return epoch.published(place).needed(epoch.paths.folder)
        except (DamagedTableError, LedgerError) as error:
            self._voice.log.error("not vacuumed", place=place, error=f"{type(error).__name__}: {headline(error)}")
            return None
