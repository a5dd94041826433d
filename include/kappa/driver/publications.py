"""Publications: what the live epoch has committed is shown at the paths of its published tables.

A publication follows from the pointer, the ledger and the published table alone. A cutover that nobody published, or a
driver that died, is made good by the driver of whichever epoch is live.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

from kappa.delta import tables
from kappa.delta.publication import Origin, Shown
from kappa.driver.driven_epoch import DrivenEpoch
from kappa.driver.merges import Merges
from kappa.driver.voice import Voice
from kappa.errors import StaleWriterError, first_line
from kappa.offsets.vector import Offsets
from kappa.record.epoch_record import TopologyRecord
from kappa.record.ledger_state import LedgerState
from kappa.record.merge_on_read import contents_of
from kappa.serving.hidden_columns import hidden_of
from kappa.serving.published_tables import waiting_since

#: Least time between two looks of a candidate at the files that are to be published when it goes live.
PREPARE_SECONDS = 60.0
_OWN_COLUMNS = frozenset(column.name for column in (tables.SEQ, *tables.LINEAGE))


class Publications:
    """Publishes an epoch's tables and append outputs while it is live. May be used by several threads.

    Args:
        merges: brings changes into the tables where a published table would go back.
    """

    def __init__(self, epoch: DrivenEpoch, voice: Voice, merges: Merges) -> None:
        self._epoch = epoch
        self._voice = voice
        self._merges = merges
        self._times: dict[str, float] = {}
        self._shown: dict[str, Shown | None] = {}
        self._problems: dict[str, str] = {}
        self._unmerged: set[str] = set()
        self._prepared = -math.inf

    def look(self, record: TopologyRecord, *, is_asked: bool = False, may_merge: bool = False) -> bool:
        """Publish what is due: at most one commit per table and ``publish_seconds``. Whether a table waits for a merge.

        Args:
            record: the topology's record.
            is_asked: whether all of it is due, in as many commits as it takes.
            may_merge: whether no slice is in work.

        Raises:
            StaleWriterError: another driver claimed the epoch.
        """
        epoch, now = self._epoch, time.monotonic()
        if record.live != epoch.paths.epoch:
            self._voice.exporter.unpublished()
            return False
        state, pause = epoch.ledger.state(look=False), epoch.config.publish_seconds
        for place in state.served:
            if not is_asked and now - self._times.get(place, -pause) < pause:
                continue
            try:
                has_published = is_left = self._publish(place, state, may_merge=may_merge)
                while is_asked and is_left:  # files that were merged without a change of rows are a commit of their own
                    is_left = self._publish(place, epoch.ledger.state(look=False), may_merge=may_merge)
            except StaleWriterError:
                raise
            except Exception as error:  # readers by path wait; the stream goes on, and the next look tries again
                self._complain(place, f"{type(error).__name__}: {first_line(error)}")
                has_published = True
            if has_published:
                self._times[place] = time.monotonic()
        self._measure(record, state)
        return bool(self._unmerged)

    def _complain(self, place: str, problem: str) -> None:
        """Log why a table is not published; once, however often it is tried."""
        if self._problems.get(place) != problem:
            self._voice.log.error("not published", place=place, error=problem)
        self._problems[place] = problem

    def prepare(self) -> None:
        """Read the files of this epoch, which may go live, and what its published tables show now; every minute."""
        if time.monotonic() - self._prepared < PREPARE_SECONDS:
            return
        self._prepared = time.monotonic()
        state = self._epoch.ledger.state(look=False)
        for place in state.served:
            try:
                published = self._epoch.published(place)
                published.look()
                published.prepare(self._origin(place, state))
            except Exception as error:  # the move does not wait for it
                self._voice.log.warning("publication not prepared", place=place, error=first_line(error))

    def _measure(self, record: TopologyRecord, state: LedgerState) -> None:
        """Tell since when each published table has lacked a commit."""
        epoch, moved = self._epoch, record.last_move
        moved_at = None if moved is None else moved.at

        def since(place: str) -> datetime | None:
            return waiting_since(epoch.paths, state, place, self._shown.get(place), moved_at)

        for place in state.served:
            self._voice.exporter.published(place, partial(since, place))

    def _publish(self, place: str, state: LedgerState, *, may_merge: bool) -> bool:
        """Publish a table, if it shows anything else; whether it was tried."""
        epoch, published = self._epoch, self._epoch.published(place)
        shown = published.shown()
        if shown is not None and shown.epoch != epoch.paths.epoch:  # its driver published since this one was prepared
            published.look()
            shown = published.shown()
        self._shown[place] = shown
        target, version = (epoch.paths.epoch, state.recorded[place]), published.version
        if shown is not None and (shown.epoch, shown.source_version) == target and not published.is_foreign:
            return False
        epoch.ledger.check_claim(epoch.writer)
        if epoch.record().live != epoch.paths.epoch:  # asked after the look: what was published since is a conflict
            return False
        if shown is not None and shown.epoch != epoch.paths.epoch and self._is_behind(place, state, shown.offsets):
            self._unmerged.add(place)
            if not may_merge:
                return False
            self._merges.merge(is_asked=True)
            state = epoch.ledger.state()
            if self._is_behind(place, state, shown.offsets):  # nothing is open yet that merges, or it failed
                return False
        self._unmerged.discard(place)
        started = time.monotonic()
        published.publish(self._origin(place, state), version)
        self._problems.pop(place, None)
        self._shown[place] = shown = published.shown()
        if shown is not None:
            self._voice.log.info(
                "published",
                place=place,
                version=shown.version,
                seq=shown.seq,
                seconds=round(time.monotonic() - started, 3),
            )
        return True

    def _is_behind(self, place: str, state: LedgerState, offsets: Mapping[str, Any] | None) -> bool:
        """Whether a table lacks changes that readers of the path have seen, of the epoch that was live before."""
        kind, _, name = place.partition("/")
        if kind != "tables" or state.committed is None:
            return False
        contents = contents_of(self._epoch.paths, state.committed, name)
        if contents.is_merged:
            return False
        version, last = tables.merged(self._epoch.paths.place(place))  # of a merge since the commit, the table tells
        seq = contents.merged if last is None or version != state.recorded[place] else last
        if offsets is None or seq >= state.committed.seq:
            return seq < state.committed.seq
        merged = state.commit(seq)
        return merged is None or not merged.standing.dominates(Offsets.from_json(offsets))

    def _origin(self, place: str, state: LedgerState) -> Origin:
        kind, _, name = place.partition("/")
        hidden = frozenset(hidden_of(state.shapes).get(name, ())) if kind == "tables" else _OWN_COLUMNS
        paths = self._epoch.paths

        def offsets(seq: int) -> Mapping[str, Any] | None:
            commit = state.commit(seq)
            return None if commit is None else commit.standing.as_dict()

        return Origin(
            path=paths.place(place),
            folder=paths.folder,
            epoch=paths.epoch,
            version=state.recorded[place],
            hidden=hidden,
            offsets=offsets,
        )
