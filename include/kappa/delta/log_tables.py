"""The Delta table under an append log: followed, and appended to at the version that was seen last.

On a disk ``deltalake`` does both; on an object store see :mod:`kappa.delta.tail_table`.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

from kappa.delta.access import (
    answers,
    declared_schema,
    file_names,
    id_of,
    is_table,
    of_system,
    open_table,
    replace_files,
    write,
)
from kappa.delta.damage import check_entries, entry_of
from kappa.delta.log_entries import sync_commits
from kappa.delta.tail_table import MARK, NEXT_ENTRY_SECONDS, TailTable, added_file, has_mark, put_rows, uptime
from kappa.errors import ConflictError, LedgerError
from kappa.store.address import is_remote
from kappa.store.stores import store_of

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable

    from kappa.store.store import StoredFile

Mode = Literal["append", "overwrite"]
#: How the name of a file of late rows begins. One that is merged of it and others begins otherwise: it is read at once.
_LATE = "late"
#: How many of them are read to get at one.
_LATE_AT_ONCE = 4096


class LogTable(Protocol):
    """A table as of the last look."""

    @property
    def version(self) -> int:
        """Its Delta version."""

    @property
    def files(self) -> frozenset[str]:
        """Names of its files."""

    @property
    def columns(self) -> pa.Schema:
        """Its columns."""

    @property
    def properties(self) -> Mapping[str, str]:
        """What it says of itself (Delta's protocol, "Change Metadata": the configuration)."""

    @property
    def lineage(self) -> str:
        """Another one after the table was removed and made again, or put back from a copy that went another way."""

    @property
    def is_fresh(self) -> bool:
        """Whether the last look or own commit is so recent that a number cannot have been used and cleaned away since:
        a commit on it is refused where another came in between.
        """

    def advance(self) -> bool:
        """Look again; whether there may be something new."""

    def transaction(self, app: str) -> int | None:
        """The last version of an application's transactions."""

    def content(self, file: str) -> bytes | None:
        """The bytes of a file; None where it is gone."""

    def commit(
        self,
        rows: pa.Table,
        transactions: Mapping[str, int],
        mode: Mode,
        *,
        adds_columns: bool,
        late: pa.Table | None = None,
    ) -> None:
        """Write rows in one commit, if nothing was committed since the last look; durable.

        Args:
            rows: the rows.
            transactions: application -> version.
            mode: ``overwrite`` replaces all rows.
            adds_columns: whether the rows have columns that the table lacks.
            late: of rows that replace all, those that get a file of their own, for which :func:`is_late` holds.

        Raises:
            ConflictError: something was committed; nothing was written.
            LedgerError: the table is gone.
            OSError: a disk refuses.
        """


def open_log_table(path: str) -> LogTable:
    """The table at a path, as of now.

    Raises:
        DeltaError: of ``deltalake``: it cannot be opened.
    """
    return RemoteLogTable(path) if is_remote(path) else HandleTable(path)


class HandleTable:
    """A table on a disk, by ``deltalake``; see :class:`LogTable`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._open()
        self.lineage = self._id

    def _open(self) -> None:
        self._looked = self._fresh = uptime()
        self._handle: DeltaTable = open_table(self.path)
        self._id = id_of(self._handle)
        self._note()

    def _note(self) -> None:
        """Take the version as seen, and its entry as the one by which another table in its place is recognised."""
        self._seen = self.version
        self._entry = self._entry_now()

    def _entry_now(self, otherwise: StoredFile | None = None) -> StoredFile | None:
        try:
            return store_of(self.path).head(entry_of(self.path, self._seen))
        except OSError:  # a full look says what is wrong with the storage
            return otherwise

    @property
    def version(self) -> int:
        """See :class:`LogTable`."""
        return self._handle.version()

    @property
    def is_fresh(self) -> bool:
        """See :class:`LogTable`."""
        return uptime() - self._fresh <= NEXT_ENTRY_SECONDS

    def advance(self) -> bool:
        """See :class:`LogTable`."""
        started = uptime()
        if self._is_unchanged():
            self._fresh = started
            return False
        entry = self._entry_now(self._entry)
        if self._entry is not None and entry != self._entry:
            before = self._id
            self._open()
            if entry is not None or self._id != before:  # otherwise the entry was cleaned away, or a copy was put back
                self.lineage = uuid.uuid4().hex
            return True
        with answers(self.path):
            self._handle.update_incremental()
        check_entries(self.path, range(self._seen + 1, self.version + 1))
        self._note()
        self._looked = self._fresh = started
        return True

    def _is_unchanged(self) -> bool:
        if self.version != self._seen or uptime() - self._looked > NEXT_ENTRY_SECONDS:
            return False
        try:
            has_next = store_of(self.path).head(entry_of(self.path, self._seen + 1)) is not None
        except OSError:
            return False
        return not has_next and self._entry is not None and self._entry_now() == self._entry

    @property
    def files(self) -> frozenset[str]:
        """See :class:`LogTable`."""
        return file_names(self._handle)

    @property
    def columns(self) -> pa.Schema:
        """See :class:`LogTable`."""
        return declared_schema(self._handle)

    @property
    def properties(self) -> Mapping[str, str]:
        """See :class:`LogTable`."""
        return self._handle.metadata().configuration

    def transaction(self, app: str) -> int | None:
        """See :class:`LogTable`."""
        with answers(self.path):
            return self._handle.transaction_version(app)

    def content(self, file: str) -> bytes | None:
        """See :class:`LogTable`."""
        return store_of(self.path).get(f"{self.path}/{file}")

    def commit(
        self,
        rows: pa.Table,
        transactions: Mapping[str, int],
        mode: Mode,
        *,
        adds_columns: bool,
        late: pa.Table | None = None,
    ) -> None:
        """See :class:`LogTable`."""
        if not is_table(self.path):  # otherwise a file without a commit would bring the folder back
            raise LedgerError(f"The table {self.path} is gone.", path=self.path)
        started, before = uptime(), self.version
        _commit(self._handle, self.path, rows, transactions, mode, adds_columns=adds_columns, late=late)
        self._fresh = started
        # The caller's next act rests on these rows; a creator that died may not have come to the table's own commit.
        sync_commits(self.path, range(before + 1 if before else 0, self.version + 1))


class RemoteLogTable(TailTable):
    """A table on an object store; see :class:`LogTable`."""

    def __init__(self, path: str) -> None:
        super().__init__(path, is_log=True)

    def commit(
        self,
        rows: pa.Table,
        transactions: Mapping[str, int],
        mode: Mode,
        *,
        adds_columns: bool,
        late: pa.Table | None = None,
    ) -> None:
        """See :class:`LogTable`."""
        if mode == "append" and not adds_columns:
            self.append(rows, transactions, compared=("n",))
            return
        handle = open_table(self.path)
        if handle.version() != self.version:
            raise ConflictError(f"Another process appended to {self.path} first.", path=self.path)
        _commit(handle, self.path, rows, transactions, mode, adds_columns=adds_columns, late=late)
        self.reopen()


def is_late(file: str) -> bool:
    """Whether the rows of a file are read when somebody asks for one of them; one that others merged is not late."""
    return file.startswith(_LATE)


def _commit(
    handle: DeltaTable,
    path: str,
    rows: pa.Table,
    transactions: Mapping[str, int],
    mode: Mode,
    *,
    adds_columns: bool,
    late: pa.Table | None,
) -> None:
    """Write rows by ``deltalake``; the handle is at the new version then."""
    from deltalake import CommitProperties, Transaction
    from deltalake.exceptions import DeltaError

    # What follows the commit may fail, and its answer may be lost: the entry says whose it is.
    mark = uuid.uuid4().hex
    properties = CommitProperties(
        app_transactions=[Transaction(name, version) for name, version in transactions.items()],
        custom_metadata={MARK: mark},
        max_commit_retries=0,
    )
    before = handle.version()
    try:
        if mode == "append":
            write(handle, rows, properties, schema_mode="merge" if adds_columns else None)
        else:
            parts = {"part": rows} if late is None else {"part": rows, _LATE: late}
            files = [_new_file(path, kind, part) for kind, part in parts.items() if part.num_rows]
            replace_files(handle, files, _columns(handle, rows.schema) if adds_columns else handle.schema(), properties)
    except Exception as error:
        if has_mark(path, before + 1, mark):
            with answers(path):
                handle.update_incremental()
            return
        is_there = is_table(path)
        if is_there and (why := of_system(error, path)) is not None:
            raise why from error
        if not isinstance(error, DeltaError):
            raise
        if is_there and open_table(path).version() > before:  # so far behind that the next entry was removed
            raise ConflictError(f"Another process appended to {path} first.", path=path) from error
        raise LedgerError(f"Cannot append to {path}: {error}", path=path) from error


def _new_file(path: str, kind: str, rows: pa.Table) -> dict[str, Any]:
    """Write a file that no commit names yet; what a commit says of it."""
    name = f"{kind}-00000-{uuid.uuid4()}-c000.snappy.parquet"
    size = len(put_rows(path, name, rows, most=_LATE_AT_ONCE if kind == _LATE else None))
    return added_file(name, size, rows, ("n",))


def _columns(handle: DeltaTable, schema: pa.Schema) -> pa.Schema:
    """The columns of a table, and those of a schema that it lacks."""
    import pyarrow as pa

    columns = declared_schema(handle)
    return pa.schema([*columns, *(field for field in schema if field.name not in columns.names)])
