"""The ledger: an epoch's own record of every slice, in order.

A row is appended by compare-and-set by the one driver that claimed the epoch. Everything else about an epoch's progress
is derived from these rows: :meth:`Ledger.state`.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from kappa import clock
from kappa.delta import row_files
from kappa.delta.append_log import AppendLog
from kappa.errors import (
    ConflictError,
    KappaError,
    LakeRefusedError,
    LakeUnreachableError,
    LedgerError,
    StaleWriterError,
    UnknownEpochError,
)
from kappa.faults import crash_point
from kappa.names import EpochPaths
from kappa.offsets.vector import ranges_from_json, ranges_to_json
from kappa.record.ledger_rows import ENVIRONMENT_FIELDS, FORMAT, FORMER_FIELDS, LedgerRow
from kappa.record.ledger_state import BegunState, LedgerState, StateBuilder, begun, stays
from kappa.record.past_commits import PastCommits
from kappa.replay import stored

if TYPE_CHECKING:
    import pyarrow as pa

#: The writer of an epoch that is being removed.
SEAL = "a removal"


class Ledger:
    """A ledger, opened for reading, or for writing after a claim."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._log = _log(path)
        self._builder = StateBuilder()
        # Held from the look to the append that rests on it, as in :class:`kappa.record.epochs.Epochs`.
        self._lock = threading.RLock()

    def exists(self) -> bool:
        """Whether the ledger is there."""
        return self._log.exists()

    def create(self) -> None:
        """Create the ledger; does nothing when it is there."""
        self._log.create()

    def rows(self) -> list[LedgerRow]:
        """All rows that are not rolled up, oldest first, read anew."""
        return [_from_record(record) for record in _log(self.path).refresh()]

    def state(self, *, look: bool = True) -> LedgerState:
        """The state that the rows give now; only new rows are read.

        Args:
            look: whether to look for rows of others. The writer of an epoch looks once before it decides what comes
                next; after that its own rows are all there are, or its next one is refused.
        """
        with self._lock:
            records = self._log.refresh(look=look)
            if self._log.is_anew:
                self._builder = StateBuilder()
            for record in records:
                self._builder.add(_from_record(record))
            return self._builder.state()

    def begun(self, *, look: bool = True) -> BegunState:
        """The same of an epoch that was seeded.

        Raises:
            LedgerError: it has no commit.
        """
        return begun(self.state(look=look))

    def last_commit(self) -> LedgerRow | None:
        """The last commit, without reading the whole ledger."""
        commits = (record for record in self._log.newest_first() if record["kind"] == "commit")
        record = next(commits, None)
        return None if record is None else _from_record(record)

    def seed(self) -> LedgerRow | None:
        """The first commit, without reading the whole ledger: it has the shapes of the epoch's tables."""
        record = self._log.first("kind", "commit")
        return None if record is None else _from_record(record)

    def newest(self, most: int) -> list[LedgerRow]:
        """The last rows, oldest first, without reading the whole ledger.

        Args:
            most: how many at most.
        """
        return [_from_record(record) for record in islice(self._log.newest_first(), most)][::-1]

    def claim(
        self,
        writer: str,
        code: str,
        expected: LedgerState,
        *,
        is_taken: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Take the epoch for a writer.

        Idempotent for one writer. A crash right after it leaves a claim that the next driver supersedes.

        Args:
            writer: the new driver.
            code: content hash of the code that it runs.
            expected: the state on which the decision to claim was made.
            is_taken: whether no driver makes it.
            environment: fields of the claim about the environment of its driver; None for those of the claim before.

        Raises:
            ConflictError: the ledger moved since; look again who has the epoch.
        """
        with self._lock:
            state = self.state()
            if state.last != expected.last:
                raise ConflictError(f"The ledger {self.path} moved while it was being claimed.", path=self.path)
            if environment is None:
                before = {} if state.claim is None else state.claim.detail
                environment = {name: before[name] for name in ENVIRONMENT_FIELDS if name in before}
            detail = {**({"taken": True} if is_taken else {}), **environment}
            self._write(LedgerRow(kind="claim", seq=state.seq, writer=writer, at=clock.now(), code=code, detail=detail))

    def seal(self) -> None:
        """Take the epoch from every writer for good, before it is removed: see :meth:`take`."""
        self.take(SEAL)

    def take(self, writer: str) -> bool:
        """Take the epoch from every writer by a claim that no driver makes.

        Idempotent. A driver that wakes up later can append nothing, also where no folder is missing.

        Returns:
            Whether another one had it.

        Raises:
            LedgerError: the ledger cannot be read or written.
            LakeUnreachableError: the storage does not answer.
        """
        is_new = False
        while self.exists():
            state = self.state()
            if state.claim is not None and state.claim.writer == writer:
                break
            is_new = True
            with suppress(ConflictError):  # a driver was first; it gets nothing after the next try
                self.claim(writer, "" if state.claim is None else state.claim.code, state, is_taken=True)
        return is_new

    def append(self, row: LedgerRow) -> LedgerRow:
        """Append a row as the epoch's writer.

        Raises:
            StaleWriterError: another driver claimed the epoch; nothing was written.
            ConflictError: the ledger has rows of this writer that this object did not know; nothing was written.
            LedgerError: the ledger is gone.
        """
        with self._lock:
            self.check_claim(row.writer, look=False)  # another's claim takes the number of the row
            last = self._log.last
            while True:
                try:
                    return self._write(row)
                except ConflictError:
                    self.check_claim(row.writer)
                    if self._log.last != last:  # otherwise small files were merged
                        raise

    def roll_up(self, row: LedgerRow) -> None:
        """Replace rows by the one that summarises them; see :mod:`kappa.record.rollup`.

        The rows that go are first written to a file beside the ledger, which only auditors read: :meth:`history`. A
        crash leaves the ledger as it was or rolled up.

        Args:
            row: the roll-up, made from the state that the ledger has now.

        Raises:
            StaleWriterError: another driver claimed the epoch; nothing was changed.
            ConflictError: the ledger moved since; nothing was changed.
        """
        with self._lock:
            self.check_claim(row.writer)
            upto, name = int(row.detail["upto"]), f"{row.detail['upto']:012d}-{secrets.token_hex(4)}"
            is_kept = stays(self._builder.state(), upto)
            records = self._log.rows()
            past = [record for record in records if not is_kept(record["n"], record["kind"], record["seq"])]
            numbers = {record["n"] for record in past}
            row_files.keep(self._history, name, past, self._log.full_schema())
            crash_point("rollup.history", row.seq)
            try:
                self._log.replace(
                    [record for record in records if record["n"] not in numbers],
                    [_to_record(replace(row, detail={**row.detail, "file": name}))],
                    upto,
                )
            except ConflictError:
                self.check_claim(row.writer)
                raise
            crash_point("rollup", row.seq)

    def history(self) -> Iterator[list[LedgerRow]]:
        """All rows ever, in pieces: the present ones, then those of each roll-up, the last roll-up first.

        Reads every file there is: for auditors. Each row is in one piece.
        """
        piece = self.rows()
        while True:
            yield piece
            rolled = next((row for row in piece if row.kind == "rollup"), None)
            if rolled is None:
                return
            records = self._past(rolled).to_pylist()
            piece = [_from_record(record) for record in records]

    def past_commits(self) -> Iterator[PastCommits]:
        """The commits that were rolled up, the newest piece first; a file is read when its piece is.

        A piece may have a few much older commits, whose files were kept longer.
        """
        rolled = self.state().rolled
        while rolled is not None:
            table = self._past(rolled)
            earlier = [_from_record(record) for record in row_files.where(table, "kind", "rollup").to_pylist()]
            rolled = earlier[0] if earlier else None
            yield PastCommits(
                row_files.where(table, "kind", "commit"),
                _from_record,
                reaches_back_to=-1 if rolled is None else int(rolled.detail["seq"]),
            )

    def _past(self, rolled: LedgerRow) -> pa.Table:
        """The rows that a roll-up took the place of."""
        return row_files.table(self._history, rolled.detail["file"], format=FORMAT, what="ledger row")

    @property
    def _history(self) -> str:
        return f"{self.path}_history"

    def check_claim(self, writer: str, *, look: bool = True) -> None:
        """Raise unless the writer has the epoch.

        Args:
            writer: the driver.
            look: as for :meth:`state`.

        Raises:
            StaleWriterError: another driver claimed the epoch.
        """
        claim = self.state(look=look).claim
        if claim is None or claim.writer != writer:
            holder = claim.writer if claim else "nobody"
            raise StaleWriterError(
                f"Epoch at {self.path} is claimed by {holder}; this driver ({writer}) stops and changes nothing.",
                path=self.path,
                holder=holder,
                writer=writer,
            )

    def has_claim(self, writer: str) -> bool:
        """Whether the writer has the epoch, as far as can be seen: False too when the ledger cannot be read.

        Raises:
            LakeUnreachableError: the storage does not answer, which says nothing of the claim.
            LakeRefusedError: it refuses, which says as little.
        """
        try:
            self.check_claim(writer)
        except (LakeUnreachableError, LakeRefusedError):
            raise
        except KappaError:
            return False
        return True

    def _write(self, row: LedgerRow) -> LedgerRow:
        (written,) = self._log.append([_to_record(row)])
        return replace(row, n=written["n"])


def commit_of(paths: EpochPaths, state: LedgerState, seq: int) -> LedgerRow:
    """A commit of an epoch whose files can be read.

    Raises:
        UnknownEpochError: the epoch has no such slice, or its files were cleaned up.

    Examples:
        >>> from kappa import serving
        >>> from kappa.config import Config
        >>> from kappa.record.ledger import Ledger
        >>> from kappa.names import EpochPaths
        >>> paths = EpochPaths(lake=Config.from_env().lake, topology="retail.loyalty", epoch=1)
        >>> serving.commit_of(paths, Ledger(paths.ledger).state(), 1).seq
        1
    """
    topology, epoch, commits = paths.topology, paths.epoch, state.commits
    commit = state.commit(seq)
    is_rolled = state.rolled is not None and commits[0].seq < seq <= state.rolled.detail["seq"]
    if commit is None and not is_rolled:
        raise UnknownEpochError(
            f"Epoch {epoch} of {topology!r} has no slice {seq}; it has {commits[0].seq} to {commits[-1].seq}.",
            epoch=epoch,
            seq=seq,
        )
    if commit is None or not state.is_readable(seq):
        raise UnknownEpochError(
            f"The files of slice {seq} of epoch {epoch} of {topology!r} were cleaned up. Readable are "
            f"{sorted(state.savepoints)} and all from {state.readable_from} on; KAPPA_KEEP_MINUTES and "
            "KAPPA_SAVEPOINT_HOURS say how long.",
            epoch=epoch,
            seq=seq,
            readable_from=state.readable_from,
            savepoints=sorted(state.savepoints),
        )
    return state.resolved(commit)


#: Fields that are times by topic and partition.
_TIMES = ("max_timestamps", "stream_times")


def _log(path: str) -> AppendLog:
    return AppendLog(path, _arrow_schema(), format=FORMAT, what="ledger row")


def _arrow_schema() -> pa.Schema:
    import pyarrow as pa

    text = {
        name: pa.string() for name in ("kind", "writer", "sends", "code", "ranges", *_TIMES, "delta_versions", "detail")
    }
    numbers = {
        name: pa.int64() for name in ("seq", "rows_read", "rows_parsed", "rows_dead", "rows_set_aside", "rows_late")
    }
    return pa.schema({"n": pa.int64(), **numbers, **text, "logged": pa.bool_(), "at": pa.timestamp("us", "UTC")})


def _to_record(row: LedgerRow) -> dict[str, Any]:
    record = {name: getattr(row, name) for name in row.__dataclass_fields__ if name != "n"}
    record["format"] = row.format
    record["ranges"] = ranges_to_json(row.ranges)
    for name in (*_TIMES, "delta_versions", "detail"):
        record[name] = json.dumps(record[name])
    return record


def _from_record(record: dict[str, Any]) -> LedgerRow:
    values = dict(record)
    for name in ("ranges", *_TIMES, "delta_versions", "detail"):
        values[name] = json.loads(values.get(name) or "{}")
    if former := FORMER_FIELDS & values["detail"].keys():
        raise LedgerError(
            f"Row {values.get('n')} of a ledger, of slice {values.get('seq')}, has the field "
            f"{', '.join(sorted(former))} of before Kappa 0.1.0, which this code does not read: rows that are not "
            "merged would be missing. Let the code that wrote the lake serve it, and begin a new lake: set KAPPA_LAKE "
            "to an empty folder, then kappa start <topology> --execute",
            fields=sorted(former),
        )
    values["ranges"] = ranges_from_json(values["ranges"])
    for name in _TIMES:
        values[name] = {topic: {int(p): t for p, t in parts.items()} for topic, parts in values[name].items()}
    return stored.read(LedgerRow, values)
