"""The ledger: an epoch's own record of every slice, in order.

A row is appended by compare-and-set by the one driver that claimed the epoch. Everything else about an epoch's progress
is derived from these rows: :meth:`Ledger.state`.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, overload

from kappa import clock
from kappa.errors import ConflictError, KappaError, LedgerError, StaleWriterError
from kappa.faults import crash_point
from kappa.lake import row_files
from kappa.lake.append_log import AppendLog
from kappa.lake.rollup import stays
from kappa.offsets.vector import OffsetRange, Offsets, TopicPartition, ranges_end, ranges_from_json, ranges_to_json
from kappa.replay import stored
from kappa.topology.shapes import Shape, shapes_from_dict

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal[
    "claim", "plan", "effects", "commit", "abandon", "baseline", "yield", "resume", "upgrade", "maintain", "rollup"
]
#: What a slice sends: all topic outputs, none, or only those that go to the epoch's own topics.
Sends = Literal["live", "held", "versioned"]


@dataclass(frozen=True, kw_only=True)
class LedgerRow:
    """One row of a ledger.

    Attributes:
        n: position in the ledger, from 1.
        kind: ``claim``: a driver took the epoch. ``plan``: the ranges of slice ``seq`` and whether it sends.
            ``effects``: all rows of the slice are written. ``commit``: the slice is done; seq 0 is the seed.
            ``abandon``: the planned slice will never be done. ``baseline``: the whole state is in the changelog.
            ``yield`` / ``resume``: from here on the epoch does not send / sends. ``upgrade``: from here on other code runs.
            ``maintain``: small files were merged, and files that no held commit needs were removed; ``folds`` in its detail
            says which Delta versions of each table are kept, ``forgotten`` up to which slice its changes are gone.
            ``rollup``: what the rows up to number ``upto`` in its detail said that are no rows any more.
        seq: the slice; for other rows the last committed one.
        writer: the driver that wrote it.
        at: when, UTC.
        ranges: offset ranges of a plan or commit, every partition named.
        sends: which topic outputs a slice sends: ``live`` all, ``held`` none, ``versioned`` only those to the epoch's own topics.
        logged: whether a slice writes the changelog and its marker.
        code: content hash of the code.
        rows_read: records read from Kafka, counted before parsing.
        rows_parsed: records that parsed.
        rows_dead: dead letters.
        max_timestamps: topic -> partition -> running maximum of record timestamps, epoch milliseconds.
        delta_versions: table path within the epoch -> Delta version.
        detail: whatever else belongs to the kind.
    """

    n: int = 0
    kind: Kind
    seq: int
    writer: str
    at: datetime
    ranges: tuple[OffsetRange, ...] = ()
    sends: Sends = "held"
    logged: bool = False
    code: str = ""
    rows_read: int = 0
    rows_parsed: int = 0
    rows_dead: int = 0
    max_timestamps: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    delta_versions: Mapping[str, int] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def reached_ms(self) -> dict[TopicPartition, int]:
        """``max_timestamps`` by partition, as cuts ask for them."""
        return {(topic, p): ms for topic, parts in self.max_timestamps.items() for p, ms in parts.items()}

    @property
    def is_replacement(self) -> bool:
        """Whether it is of a slice that replaces rows instead of reading records."""
        return "backfill" in self.detail

    @property
    def standing(self) -> Offsets:
        """Up to where of the root topics the epoch has read after this plan or commit: where its ranges end, unless it reads own topics."""
        roots = self.detail.get("roots")
        return ranges_end(self.ranges) if roots is None else Offsets.from_json(roots)


def plan_hash(row: LedgerRow) -> str:
    """A hash of what a slice was planned to be: the same of its plan row and of its commit row, without who and when.

    A slice's number says which one it is in one ledger; where a ledger loses rows, the next slice of that number is another.
    """
    said = {name: row.detail.get(name) for name in ("roots", "archived")}
    if row.is_replacement:
        said["backfill"] = row.detail["backfill"]
    content = [row.seq, ranges_to_json(row.ranges), row.sends, row.logged, json.loads(json.dumps(said))]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


class Commits(Sequence[LedgerRow]):
    """The first so many rows of a list that only grows: a copy at each slice would cost more the longer a stream runs."""

    def __init__(self, rows: list[LedgerRow], length: int) -> None:
        self._rows = rows
        self._length = length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> LedgerRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[LedgerRow]: ...
    def __getitem__(self, index: int | slice) -> LedgerRow | list[LedgerRow]:
        if isinstance(index, slice):
            return [self._rows[i] for i in range(*index.indices(self._length))]
        return self._rows[range(self._length)[index]]


@dataclass(frozen=True, kw_only=True)
class LedgerState:
    """What the rows of a ledger say.

    Attributes:
        claim: the row of the driver that has the epoch.
        commits: the commits that are rows, oldest first: the seed, and all but those that are rolled up and unreadable.
        open_plan: a plan without commit or abandon.
        open_effects: the effects row of that plan.
        tries: drivers that claimed the epoch since that plan: each found it open.
        shrunk: the last abandon row that bounds the slices after it.
        since_shrunk: commits since that row.
        miscounted: the abandon row of a slice after the last commit whose records did not add up.
        seq: number of the last slice that was planned.
        is_yielded: whether the epoch may not send.
        yielded_for: number of the handover event that it yielded for.
        has_sent: whether the epoch was ever allowed to send.
        resumed_for: the handover by which it had gone live when it last began to send; 0 for a first epoch, None in rows of
            earlier code.
        baseline_seq: slice up to which the whole state was written to the changelog.
        baseline: that row.
        readable_from: slice from which on every commit is readable.
        savepoints: earlier slices whose commits are readable too.
        maintained: the last maintain row.
        looks: maintain rows, oldest first: those that commits which are rows can ask for.
        upgrade: the last upgrade row: its code runs the epoch from there on.
        rolled: the roll-up of the rows that have gone.
        resumes: numbers of the rows after which the epoch may send.
        last: number of the last row.
    """

    claim: LedgerRow | None = None
    commits: Sequence[LedgerRow] = ()
    open_plan: LedgerRow | None = None
    open_effects: LedgerRow | None = None
    tries: int = 0
    shrunk: LedgerRow | None = None
    since_shrunk: int = 0
    miscounted: LedgerRow | None = None
    seq: int = -1
    is_yielded: bool = True
    yielded_for: int | None = None
    has_sent: bool = False
    resumed_for: int | None = None
    baseline_seq: int | None = None
    baseline: LedgerRow | None = None
    readable_from: int = 0
    savepoints: frozenset[int] = frozenset()
    maintained: LedgerRow | None = None
    looks: Sequence[LedgerRow] = ()
    upgrade: LedgerRow | None = None
    rolled: LedgerRow | None = None
    resumes: tuple[int, ...] = ()
    last: int = 0

    @property
    def rolled_commits(self) -> int:
        """How many of :attr:`commits` are told by the roll-up as well."""
        if self.rolled is None:
            return 0
        return bisect_right(self.commits, self.rolled.detail["upto"], key=lambda row: row.n)

    @property
    def recent(self) -> list[LedgerRow]:
        """The commits that no roll-up tells of, oldest first."""
        return list(self.commits[self.rolled_commits :])

    @property
    def slices(self) -> int:
        """How many slices were committed; the seed is none."""
        told = 0 if self.rolled is None else int(self.rolled.detail["commits"])
        return told + len(self.commits) - self.rolled_commits - 1

    @property
    def shapes(self) -> dict[str, Shape]:
        """Keys and columns of its tables and append outputs, by place, as they were seeded."""
        return shapes_from_dict(self.commits[0].detail["shapes"])

    def is_readable(self, seq: int) -> bool:
        """Whether the files of a commit are still there; those of old ones go (see :mod:`kappa.driver.maintenance`)."""
        return seq >= self.readable_from or seq in self.savepoints

    @property
    def readable(self) -> list[LedgerRow]:
        """The commits whose files are still there, oldest first."""
        return [row for row in self.commits if self.is_readable(row.seq)]

    def serves(self, fold: Sequence[int], row: LedgerRow, name: str, own: int) -> bool:
        """Whether a commit's table can be read from a fold: its own, or an earlier one with all the changes since.

        Args:
            fold: Delta version, and the slice up to which it is folded.
            row: the commit.
            name: the table.
            own: Delta version of the fold that the commit names.
        """
        version, folded = fold
        return version == own or (version < own and folded >= self.forgotten(name, row.n))

    def forgotten(self, name: str, n: int | None = None) -> int:
        """The last slice whose changes had gone from a table's changes when row ``n`` was written; None for now."""
        before = len(self.looks) if n is None else bisect_left(self.looks, n, key=lambda look: look.n)
        if before == 0:
            return 0
        look = self.looks[before - 1]
        # Earlier code let go of all changes but those of the last slice.
        return int(look.detail.get("forgotten", {}).get(name, look.seq - 1))

    def resolved(self, row: LedgerRow) -> LedgerRow:
        """A commit by the folds that are still there: where its own went, by the newest kept one before it.

        The rows of its tables are the same either way: an older fold, and more changes over it.
        """
        if self.maintained is None or row.n > self.maintained.n:
            return row
        versions, entries = dict(row.delta_versions), dict(row.detail.get("folded", {}))
        for name, known in self.maintained.detail.get("folds", {}).items():
            own = versions.get(f"tables/{name}")
            serving = [] if own is None else [pair for pair in known["kept"] if self.serves(pair, row, name, own)]
            if not serving or max(serving)[0] == own:
                continue
            versions[f"tables/{name}"], folded = max(serving)
            entries[name] = {"seq": folded, "key": known["key"]}
        return replace(
            row, delta_versions=versions, detail={**row.detail, "folded": entries} if entries else row.detail
        )

    @property
    def committed(self) -> LedgerRow | None:
        """The last commit."""
        return self.commits[-1] if self.commits else None

    @property
    def position(self) -> Offsets:
        """Offsets from which the next slice is read.

        Raises:
            LedgerError: the epoch has no commit yet.
        """
        return ranges_end(self._last_commit().ranges)

    @property
    def standing(self) -> Offsets:
        """The same in offsets of root topics, in which epochs that read different own topics can be compared.

        Raises:
            LedgerError: the epoch has no commit yet.
        """
        return self._last_commit().standing

    def _last_commit(self) -> LedgerRow:
        if not self.commits:
            raise LedgerError("The epoch has no commit yet: it was not seeded.")
        return self.commits[-1]


class _Fold:
    """Ledger rows, one after the other, into what they say."""

    def __init__(self) -> None:
        self._commits: list[LedgerRow] = []
        self._looks: list[LedgerRow] = []
        self._values: dict[str, Any] = {}

    def add(self, row: LedgerRow) -> None:
        values = self._values
        values["last"] = row.n
        if row.kind == "claim":
            values["claim"] = row
            values["tries"] = values.get("tries", 0) + 1 if values.get("open_plan") is not None else 0
        elif row.kind == "plan":
            values.update(open_plan=row, open_effects=None, seq=row.seq, tries=0)
        elif row.kind == "effects":
            values["open_effects"] = row
        elif row.kind == "commit":
            self._commits.append(row)
            values.update(open_plan=None, open_effects=None, seq=row.seq, tries=0, miscounted=None)
            values["since_shrunk"] = values.get("since_shrunk", 0) + 1
        elif row.kind == "abandon":
            values.update(open_plan=None, open_effects=None, tries=0)
            if "most" in row.detail:
                values.update(shrunk=row, since_shrunk=0)
            if "miscounted" in row.detail:
                values["miscounted"] = row
        elif row.kind == "maintain":
            values["maintained"] = row
            self._looks.append(row)
            values.update(readable_from=row.detail["readable_from"], savepoints=frozenset(row.detail["savepoints"]))
        elif row.kind == "upgrade":
            values["upgrade"] = row
        elif row.kind == "baseline":
            values.update(baseline_seq=row.seq, baseline=row)
        elif row.kind == "yield":
            values.update(is_yielded=True, yielded_for=row.detail.get("handover"))
        elif row.kind == "resume":
            values.update(is_yielded=False, has_sent=True, yielded_for=None, resumed_for=row.detail.get("handover"))
            values["resumes"] = (*values.get("resumes", ()), row.n)
        elif row.kind == "rollup":
            is_kept = stays(self.state(), row.detail["upto"])
            # New lists: whoever has an earlier state reads the old ones.
            self._commits = [commit for commit in self._commits if is_kept(commit.n, commit.kind, commit.seq)]
            self._looks = [look for look in self._looks if is_kept(look.n, look.kind, look.seq)]
            values["rolled"] = row

    def state(self) -> LedgerState:
        looks = Commits(self._looks, len(self._looks))
        return LedgerState(**self._values, commits=Commits(self._commits, len(self._commits)), looks=looks)


class Ledger:
    """A ledger, opened for reading, or for writing after a claim."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._log = AppendLog(path, _arrow_schema())
        self._fold = _Fold()
        # Held from the look to the append that rests on it, as in :class:`kappa.lake.epochs.Epochs`.
        self._lock = threading.RLock()

    def exists(self) -> bool:
        """Whether the ledger is there."""
        return self._log.exists()

    def create(self) -> None:
        """Create the ledger; does nothing when it is there."""
        self._log.create()

    def rows(self) -> list[LedgerRow]:
        """All rows that are not rolled up, oldest first, read anew."""
        return [_from_record(record) for record in AppendLog(self.path, _arrow_schema()).refresh()]

    def state(self) -> LedgerState:
        """What the rows say now; only rows that are new are read."""
        with self._lock:
            records = self._log.refresh()
            if self._log.is_anew:
                self._fold = _Fold()
            for record in records:
                self._fold.add(_from_record(record))
            return self._fold.state()

    def last_commit(self) -> LedgerRow | None:
        """The last commit, without reading the whole ledger."""
        found = (record for record in self._log.newest_first() if record["kind"] == "commit")
        record = next(found, None)
        return None if record is None else _from_record(record)

    def claim(self, writer: str, code: str, expected: LedgerState) -> None:
        """Take the epoch for a writer.

        Idempotent for one writer. A crash right after it leaves a claim that the next driver supersedes.

        Args:
            writer: the new driver.
            code: content hash of the code that it runs.
            expected: the state on which the decision to claim was made.

        Raises:
            ConflictError: the ledger moved since; look again who has the epoch.
        """
        with self._lock:
            state = self.state()
            if state.last != expected.last:
                raise ConflictError(f"The ledger {self.path} moved while it was being claimed.", path=self.path)
            self._write(LedgerRow(kind="claim", seq=state.seq, writer=writer, at=clock.now(), code=code))

    def append(self, row: LedgerRow) -> LedgerRow:
        """Append a row as the epoch's writer.

        Raises:
            StaleWriterError: another driver claimed the epoch; nothing was written.
            LedgerError: the ledger is gone.
        """
        with self._lock:
            self.check_claim(row.writer)
            try:
                return self._write(row)
            except ConflictError:
                self.check_claim(row.writer)
                raise

    def roll_up(self, row: LedgerRow) -> None:
        """Put one row in the place of those that it tells of; see :mod:`kappa.lake.rollup`.

        The rows that go are in a file beside the ledger first, which only auditors read: :meth:`history`. A crash leaves the
        ledger as it was or rolled up.

        Args:
            row: the roll-up, made from the state that the ledger has now.

        Raises:
            StaleWriterError: another driver claimed the epoch; nothing was changed.
            ConflictError: the ledger moved since; nothing was changed.
        """
        with self._lock:
            self.check_claim(row.writer)
            upto, name = int(row.detail["upto"]), f"{row.detail['upto']:012d}-{secrets.token_hex(4)}"
            is_kept = stays(self._fold.state(), upto)
            records = self._log.rows()
            gone = [record for record in records if not is_kept(record["n"], record["kind"], record["seq"])]
            numbers = {record["n"] for record in gone}
            row_files.keep(self._history, name, gone, self._log.full_schema())
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
        """All rows that there ever were, in pieces: those that are there now, then those of each roll-up, the last one first.

        Reads every file there is: for auditors. Each row is in one piece.
        """
        piece = self.rows()
        while True:
            yield piece
            rolled = next((row for row in piece if row.kind == "rollup"), None)
            if rolled is None:
                return
            piece = [_from_record(record) for record in row_files.read(self._history, rolled.detail["file"])]

    @property
    def _history(self) -> str:
        return f"{self.path}_history"

    def check_claim(self, writer: str) -> None:
        """Raise unless the writer has the epoch.

        Raises:
            StaleWriterError: another driver claimed the epoch.
        """
        claim = self.state().claim
        if claim is None or claim.writer != writer:
            holder = claim.writer if claim else "nobody"
            raise StaleWriterError(
                f"Epoch at {self.path} is claimed by {holder}; this driver ({writer}) stops and changes nothing.",
                path=self.path, holder=holder, writer=writer,
            )  # fmt: skip

    def has_claim(self, writer: str) -> bool:
        """Whether the writer has the epoch, as far as can be seen: False too when the ledger cannot be read."""
        try:
            self.check_claim(writer)
        except KappaError:
            return False
        return True

    def _write(self, row: LedgerRow) -> LedgerRow:
        (written,) = self._log.append([_to_record(row)])
        return replace(row, n=written["n"])


def _arrow_schema() -> pa.Schema:
    import pyarrow as pa

    text = {
        name: pa.string()
        for name in ("kind", "writer", "sends", "code", "ranges", "max_timestamps", "delta_versions", "detail")
    }
    numbers = {name: pa.int64() for name in ("seq", "rows_read", "rows_parsed", "rows_dead")}
    return pa.schema({"n": pa.int64(), **numbers, **text, "logged": pa.bool_(), "at": pa.timestamp("us", "UTC")})


def _to_record(row: LedgerRow) -> dict[str, Any]:
    record = {name: getattr(row, name) for name in row.__dataclass_fields__ if name != "n"}
    record["ranges"] = ranges_to_json(row.ranges)
    for name in ("max_timestamps", "delta_versions", "detail"):
        record[name] = json.dumps(record[name])
    return record


def _from_record(record: dict[str, Any]) -> LedgerRow:
    values = dict(record)
    for name in ("ranges", "max_timestamps", "delta_versions", "detail"):
        values[name] = json.loads(values.get(name) or "{}")
    values["ranges"] = ranges_from_json(values["ranges"])
    times = values["max_timestamps"]
    values["max_timestamps"] = {topic: {int(p): t for p, t in parts.items()} for topic, parts in times.items()}
    return stored.read(LedgerRow, values)
