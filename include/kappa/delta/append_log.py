"""An append-only Delta table of small rows with compare-and-set, without a JVM.

The ledger of every epoch and the record of all epochs are such logs. Rows are numbered by ``n`` from 1 without gaps;
an append states the number that it expects to write and is refused when another process wrote it first. The first rows
of a log may be replaced by fewer; what comes after them stays without gaps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kappa.delta import row_files
from kappa.delta.access import CHECKPOINT_INTERVAL, answers, compact, create_table, id_of, is_table, open_table
from kappa.delta.damage import damage, damaged
from kappa.delta.log_entries import sync_commits
from kappa.delta.log_tables import LogTable, Mode, is_late, open_log_table
from kappa.errors import ConflictError, DamagedTableError, LakeUnreachableError, LedgerError, first_line
from kappa.store.stores import store_of

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

#: Column with the number of a row's format.
FORMAT = "format"
_APP = "kappa.append_log"
#: Up to which number rows may have gone, as a Delta transaction of this name says.
_FLOOR = "kappa.append_log.floor"
#: Number of small files after which they are merged into one, so that an append stays at about 10 ms.
COMPACT_AFTER = 64
_COMPACT_TARGET_BYTES = 4 << 20
#: A file of late rows is left out of that from this size on: in a smaller one there are few of them.
LATE_BYTES = 256 << 10
#: Merged files are removed after this time, so that their readers can finish.
KEEP_HOURS = 1
#: Every look lists all entries of Delta's log: those of a day at one slice a second would take it a second. A reader
#: that is further behind reads the last checkpoint; an append to what is older is refused.
_KEEP_LOG_MINUTES = 10
#: A checkpoint names every file that was merged and may still be read: by Delta's default those of a week.
_CONFIGURATION = {
    "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
    "delta.logRetentionDuration": f"interval {_KEEP_LOG_MINUTES} minutes",
    "delta.deletedFileRetentionDuration": f"interval {KEEP_HOURS} hours",
}
#: A file of this age that no commit names belongs to no write that is still under way.
ABANDONED_HOURS = 24
#: Number of merges after which files are removed.
VACUUM_AFTER = 8


class AppendLog:
    """One append-only table, read incrementally: a refresh reads only the files that are new and keeps no row.

    May be used by several threads: each row is given to one of them, and an append is checked against what any of them
    saw. A table that other code made with more or fewer columns is read and appended to; what a row lacks is null.
    Column ``format`` says with which format number a row was written, null for 1: the log's own, unless the row names
    one.

    Args:
        path: path or URL of the Delta table.
        schema: Arrow schema of a row, its first column ``n`` (int64).
        format: the number of a row's format that this code writes, and the newest that it reads.
        what: what a row is called.
        is_rewritten: whether rows below a new floor may be others than before: then all rows are given again.
        properties: what the table says of itself once it is made.
        check: called with what it says whenever that may be new, before a row is read; it raises to refuse the table.
        late: a column that :meth:`new_rows` leaves out: :attr:`late` has it.
        late_by: the column by which one asks for late rows, those that :meth:`new_rows` leaves out.
    """

    def __init__(
        self,
        path: str,
        schema: pa.Schema,
        *,
        format: int = 1,
        what: str = "row",
        is_rewritten: bool = False,
        properties: Mapping[str, str] | None = None,
        check: Callable[[Mapping[str, str]], object] = lambda _: None,
        late: str = "",
        late_by: str = "",
    ) -> None:
        import pyarrow as pa

        self.path = path
        self.schema = schema.append(pa.field(FORMAT, pa.int64()))
        self._format = format
        self._what = what
        self._is_rewritten = is_rewritten
        self._properties, self._check = properties or {}, check
        self._table: LogTable | None = None
        self._last = 0
        self._seen: frozenset[str] = frozenset()
        #: Delta version whose rows were given.
        self._taken_in = -1
        self._lineage = ""
        self._floor = 0
        self._merges = 0
        #: Then the table is opened anew: what it took in of a torn file would stay after the file is put back.
        self._is_damaged = False
        self._lock = threading.RLock()
        #: The column that new rows do not have, of all that were given since the last time that was of all.
        self.late = row_files.LateColumn(late)
        #: The rows that were not given, by the column by which one asks for them.
        self.late_rows = row_files.LateRows(path, late_by, format=format, what=what)
        #: Whether the last refresh gave all rows: some that this object had not seen are gone, or the table is another.
        self.is_anew = False

    def exists(self) -> bool:
        """Whether the table is there."""
        return is_table(self.path)

    def create(self) -> None:
        """Create the table unless it is there."""
        if not self.exists():
            create_table(self.path, self.schema, configuration={**_CONFIGURATION, **self._properties})
            sync_commits(self.path, range(1))

    def table_id(self) -> str:
        """Delta's id of the table: a copy keeps it, a new table gets another. Empty while there is none."""
        return id_of(open_table(self.path)) if self.exists() else ""

    @property
    def floor(self) -> int:
        """Number up to which rows may be gone, as of the last :meth:`refresh`."""
        return self._floor

    @property
    def last(self) -> int:
        """Number of the last row that this object has seen."""
        return self._last

    def refresh(self, *, look: bool = True) -> list[dict[str, Any]]:
        """The rows since the last call, in order of ``n``: those of :meth:`new_rows`."""
        return sorted(row_files.python_rows(self.new_rows(look=look)), key=lambda row: int(row["n"]))

    def new_rows(self, *, look: bool = True) -> pa.Table:
        """The rows since the last call, in any order; all of them at first, and where :attr:`is_anew` says so.

        Args:
            look: whether to look for rows of others, too. Without it, that is done only where the last look is so long
                ago that an append would no longer be sure to be refused after one of theirs.

        Raises:
            LedgerError: the table was there and is gone.
            DamagedTableError: files of it are missing or torn.
            NewerFormatError: newer code wrote a row in a format that this code does not read.
            LakeUnreachableError: the storage does not answer.
        """
        with self._lock:
            try:
                return self._new_rows(look=look)
            except DamagedTableError:
                self._is_damaged = True
                raise

    def _new_rows(self, *, look: bool) -> pa.Table:
        from deltalake.exceptions import DeltaError

        if self._table is None and not self.exists():
            return row_files.no_rows(self.schema)
        try:
            if self._table is None or self._is_damaged:
                self._table, self._is_damaged = open_log_table(self.path), False
            elif not self._has_more(self._table, look=look):
                self.is_anew = False
                return row_files.no_rows(self.schema)
            floor = self._table.transaction(_FLOOR) or 0
        except DeltaError as error:
            if not self.exists():
                raise self._gone() from error
            raise LakeUnreachableError(f"Cannot read {self.path}: {error}", path=self.path) from error
        self._check(self._table.properties)
        is_other = self._taken_in >= 0 and (
            self._table.version < self._taken_in or self._table.lineage != self._lineage
        )
        is_past = self._last < floor or (self._is_rewritten and floor != self._floor)
        is_anew = is_other or (self._last > 0 and is_past)
        last, seen = (0, frozenset()) if is_anew else (self._last, self._seen)
        files = self._table.files
        contents = [(file, self._content(file)) for file in files - seen]
        new = self._of(((file, content) for file, content in contents if not is_late(file)), without=self.late.name)
        numbers = new["n"].to_pylist()
        if last and min(numbers, default=last + 1) <= last:  # a merged file repeats rows
            new = new.sort_by("n").slice(sum(n <= last for n in numbers))
        self._check_numbers([n for n in numbers if n > max(last, floor)], max(last, floor))
        # At last: after an error the same rows are read again.
        self._last, self._seen, self._floor = max([last, floor, *numbers]), files, floor
        if is_anew:
            self.late, self.late_rows = row_files.LateColumn(self.late.name), self.late_rows.emptied()
        self.late_rows.update({file: content for file, content in contents if is_late(file)})
        if self.late.name:
            self.late.update({file: content for file, content in contents if not is_late(file)}, files)
        self.is_anew = is_anew
        self._taken_in, self._lineage = self._table.version, self._table.lineage
        return new

    def _check_numbers(self, numbers: Sequence[int], base: int) -> None:
        """Refuse numbers after one of which the next is not there."""
        if numbers and (min(numbers), max(numbers)) != (base + 1, base + len(numbers)):
            raise damage(self.path) or LedgerError(
                f"{self.path} holds {len(numbers)} rows after number {base}, numbered {min(numbers)} to "
                f"{max(numbers)}.",
                path=self.path,
            )

    def _has_more(self, table: LogTable, *, look: bool) -> bool:
        """Whether there may be rows that were not given: of others, or own ones."""
        has_advanced = (look or not table.is_fresh) and table.advance()
        return has_advanced or not self._is_taken_in(table)

    def _is_taken_in(self, table: LogTable) -> bool:
        return (table.version, table.lineage) == (self._taken_in, self._lineage)

    def newest_first(self) -> Iterator[dict[str, Any]]:
        """All rows, the last one first; files are read as they are asked for: the end of a long log is cheap."""
        for path in reversed(self._in_order("max.n")):
            yield from sorted(row_files.python_rows(self._rows_of(path)), key=lambda row: -row["n"])

    def first(self, column: str, value: str) -> dict[str, Any] | None:
        """The first row with a value in a column, or none; files are read up to its own, and no other row is made."""
        for path in self._in_order("min.n"):
            matches = row_files.where(self._rows_of(path), column, value).sort_by("n").slice(0, 1)
            if matches.num_rows:
                return row_files.python_rows(matches)[0]
        return None

    def _in_order(self, by: str) -> list[str]:
        """The files that there are now, by the least or the greatest number of their rows."""
        if not self.exists():
            return []
        files = open_table(self.path).get_add_actions(flatten=True)
        if files.num_rows == 0:
            return []
        return [path for _, path in sorted(zip(files[by].to_pylist(), files["path"].to_pylist(), strict=True))]

    def rows(self) -> list[dict[str, Any]]:
        """All rows that there were at the last :meth:`refresh`, in order of ``n``."""
        with self._lock:
            if self._table is None:
                return []
            rows = self._of((file, self._content(file)) for file in self._table.files)
            return row_files.python_rows(rows.sort_by("n"))

    def full_schema(self) -> pa.Schema:
        """The columns of this code, and those that other code gave the table."""
        import pyarrow as pa

        if self._table is None or self._is_alike(self._table):
            return self.schema
        others = (column for column in self._table.columns if column.name not in self.schema.names)
        return pa.schema([*self.schema, *others])

    def replace(
        self,
        kept_rows: Sequence[Mapping[str, Any]],
        rows: Sequence[Mapping[str, Any]],
        floor: int,
        late_rows: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """Replace the rows of the log, if nothing was appended since the last :meth:`refresh`.

        One commit: readers see the log as it was or as it is then. The files that go stay for as long as merged ones,
        so that their readers can finish. A crash leaves the one or the other.

        Args:
            kept_rows: those of the rows that stay, with their numbers; all of those above ``floor``.
            rows: rows without ``n`` that follow them.
            floor: number up to which rows may be missing, or changed, from now on.
            late_rows: more rows that stay, none of them above ``floor``, in the order in which they are asked for:
                a refresh does not give them, see :attr:`late_rows`.

        Raises:
            ConflictError: something was appended; nothing was written.
            LedgerError: the table is gone.
        """
        with self._lock:
            whole = [*kept_rows, *self._numbered(rows)]
            self._write(whole, len(rows), "overwrite", {_FLOOR: floor}, late=late_rows)

    def append(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Append rows if no other process appended since the last :meth:`refresh`.

        All rows become visible in one commit. A crash leaves either none or all of them.

        Args:
            rows: rows without ``n``.

        Returns:
            The rows as written, with ``n``; the next :meth:`refresh` gives them too.

        Raises:
            ConflictError: another process appended first; nothing was written. Refresh, check again, retry.
            LedgerError: the table is gone.
        """
        with self._lock:
            numbered = self._numbered(rows)
            self._write(numbered, len(rows), "append", {})
            if len(self._seen) > COMPACT_AFTER:
                self._compact()
            return numbered

    def _numbered(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return [{FORMAT: self._format, **row, "n": self._last + index} for index, row in enumerate(rows, start=1)]

    def _write(
        self,
        rows: Sequence[Mapping[str, Any]],
        more: int,
        mode: Mode,
        floor: Mapping[str, int],
        late: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        import pyarrow as pa

        if self._table is None:
            raise LedgerError(f"The table {self.path} was not read before an append.", path=self.path)
        if not self._is_taken_in(self._table):  # a refresh failed half-way: what it builds on is not known
            raise ConflictError(f"{self.path} has rows that were not read yet.", path=self.path)
        schema = self.schema if mode == "append" else self.full_schema()
        self._table.commit(
            pa.Table.from_pylist(list(rows), schema=schema),
            {_APP: self._last + more, **floor},
            mode,
            adds_columns=not self._is_alike(self._table),
            late=pa.Table.from_pylist(list(late), schema=schema) if late else None,
        )

    def _is_alike(self, table: LogTable) -> bool:
        """Whether the table has the columns of this code, and no others."""
        return set(table.columns.names) == set(self.schema.names)

    def _of(self, contents: Iterable[tuple[str, bytes]], *, without: str = "") -> pa.Table:
        """The rows of some files."""
        import pyarrow as pa

        tables = [self._rows(file, content, without) for file, content in contents]
        # Permissive: a file of other code has more columns, or fewer.
        return pa.concat_tables([*tables, row_files.no_rows(self.schema)], promote_options="permissive")

    def _rows_of(self, file: str) -> pa.Table:
        return self._rows(file, self._content(file), "")

    def _content(self, file: str) -> bytes:
        place = f"{self.path}/{file}"
        content = store_of(place).get(place) if self._table is None else self._table.content(file)
        if content is None:
            raise damaged(self.path, [f"{file} is missing"]) if self.exists() else self._gone()
        return content

    def _gone(self) -> LedgerError:
        return LedgerError(f"The table {self.path} is gone.", path=self.path)

    def _rows(self, file: str, content: bytes, without: str) -> pa.Table:
        # A dataset would take "=" in a folder's name for a partition.
        place = f"{self.path}/{file}"
        return row_files.read(place, content, format=self._format, what=self._what, origin=self.path, without=without)

    def _compact(self) -> None:
        """Merge small files. The rows are committed whatever comes of it."""
        try:
            table = open_table(self.path)
            before = table.version()
            # Files of this size and more are left out.
            target = min([_COMPACT_TARGET_BYTES, *(max(size, LATE_BYTES) for size in self.late_rows.sizes())])
            compact(table, target)
            # Before the files that were merged can go.
            sync_commits(self.path, range(before + 1, table.version() + 1))
            self._merges += 1
            if self._merges % VACUUM_AFTER == 0:
                self._vacuum(table)
        except ConflictError:
            return  # another process wrote in between: the next append compacts
        except Exception as error:  # of any kind: the next one compacts
            import structlog

            structlog.get_logger(__name__).warning("not merged", path=self.path, error=first_line(error))

    def _vacuum(self, table: DeltaTable) -> None:
        """Remove files that the log dropped long ago, and those that a dead writer left without a commit.

        A process may be frozen before this and wake up when others have written for hours: of its own snapshot only the
        files that it names as removed are sure not to be needed. All others are judged by the log of this moment.
        """

        with answers(self.path):
            table.vacuum(KEEP_HOURS, dry_run=False, enforce_retention_duration=False)
            open_table(self.path).vacuum(ABANDONED_HOURS, dry_run=False, enforce_retention_duration=False, full=True)
