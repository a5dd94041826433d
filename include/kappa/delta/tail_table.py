"""A Delta table on an object store, followed by the names of its next entries, and appended to.

``deltalake`` lists a table's log and opens its entries for each append, and each such request is billed. Here a look is
one request for the next entry, and a commit is two objects: a file, and an entry that the store makes only where there
is none (Delta's protocol, "Delta Log Entries").
"""

from __future__ import annotations

import io
import json
import math
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from kappa import clock
from kappa.delta.access import answers, check_point_if_due, compared_columns, declared_schema, file_names, open_table
from kappa.delta.damage import entry_of
from kappa.delta.log_entries import actions_of, add_entry
from kappa.errors import ConflictError, LakeRefusedError, LedgerError
from kappa.store.stores import store_of
from kappa.topology.ddl import quote

if TYPE_CHECKING:
    import pyarrow as pa

#: For this long only the next entry is looked for, by its name: well before an entry could go. Then also the last one.
NEXT_ENTRY_SECONDS = 60.0
#: Field of a commit that tells it from those of all other writers.
MARK = "kappa.mark"
#: Setting of a table: the columns of which its log says the least and greatest values.
_COMPARED = "delta.dataSkippingStatsColumns"
_EPOCH = date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = (date.min - _EPOCH).days, (date.max - _EPOCH).days
#: Longest text in a file's statistics: of a longer one nothing is said.
_LONGEST_TEXT = 32


class TailTable:
    """A Delta table on an object store as of the last look. May be used by several threads.

    Args:
        path: the table.
        is_log: whether it is an append log: its rows are read back.

    Attributes:
        lock: held over a look and what is decided by it.
        version: its Delta version.
        columns: its columns.
        files: names of its files.
        partition_by: the columns by which its files lie in folders.
        properties: what it says of itself.
        lineage: of an append log, see :class:`kappa.delta.log_tables.LogTable`.

    Raises:
        TableNotFoundError: of ``deltalake``: there is none.
    """

    def __init__(self, path: str, *, is_log: bool = False) -> None:
        self.path = path
        self.lock = threading.RLock()
        self._is_log = is_log
        self._own: dict[str, bytes] = {}
        self.reopen()
        self.lineage: str = self._id

    def reopen(self) -> None:
        """Take the table as it is now."""
        started, opened = uptime(), open_table(self.path)
        version, columns, metadata = opened.version(), declared_schema(opened), opened.metadata()
        files = file_names(opened)
        self._opened, self.version, self.columns, self.files = opened, version, columns, files
        self.partition_by: list[str] = metadata.partition_columns
        self.properties: Mapping[str, str] = metadata.configuration
        self._compared = self.properties.get(_COMPARED)
        self._transactions: dict[str, int | None] = {}
        self._id = str(metadata.id)
        self._looked = self._fresh = started

    @property
    def is_fresh(self) -> bool:
        """See :class:`kappa.delta.log_tables.LogTable`."""
        return uptime() - self._fresh <= NEXT_ENTRY_SECONDS

    def advance(self) -> bool:
        """Look again; whether there is something new."""
        with self.lock:
            before, started = (self.lineage, self.version), uptime()
            is_due = started - self._looked > NEXT_ENTRY_SECONDS
            if is_due:
                self._is_same()
                self._looked = started
            actions = actions_of(self.path, self.version + 1)
            if actions is not None and self._is_log and not is_due and not self._is_same():
                actions = actions_of(self.path, self.version + 1)
            while actions is not None:
                self._apply(actions)
                actions = actions_of(self.path, self.version + 1)
            self._fresh = started
            return (self.lineage, self.version) != before

    def _is_same(self) -> bool:
        """Whether the entry of its version is there, and of an append log still the one that was taken in.

        Otherwise the table is opened anew: later entries may be gone too, or it is another table.
        """
        if not self._is_log:
            is_same = store_of(self.path).head(entry_of(self.path, self.version)) is not None
            if not is_same:
                self.reopen()
            return is_same
        actions = actions_of(self.path, self.version) or []
        added = {unquote(action["add"]["path"]) for action in actions if "add" in action}
        ids = {action["metaData"]["id"] for action in actions if "metaData" in action}
        if (added and added <= self.files) or self._id in ids:
            return True
        self.reopen()
        self.lineage = uuid.uuid4().hex if added or ids else self._id
        return False

    def transaction(self, app: str) -> int | None:
        """The last version of an application's transactions."""
        with self.lock:
            if app not in self._transactions:
                self._transactions[app] = self._read_transaction(app)
            return self._transactions[app]

    def _read_transaction(self, app: str) -> int | None:
        """The same by ``deltalake``, which reads the log for it with the keys that there were when it was opened."""
        try:
            with answers(self.path):
                return self._opened.transaction_version(app)
        except LakeRefusedError:
            self._opened = open_table(self.path, self.version)  # not a later one: nobody has looked at that yet
            with answers(self.path):
                return self._opened.transaction_version(app)

    def content(self, file: str) -> bytes | None:
        """The bytes of a file; None where it is gone. What this process wrote last is not asked for."""
        own = self._own.get(file)
        return own if own is not None else store_of(self.path).get(f"{self.path}/{file}")

    def append(
        self,
        rows: pa.Table,
        transactions: Mapping[str, int],
        *,
        user_metadata: str | None = None,
        compared: Sequence[str] | None = None,
    ) -> None:
        """Append rows in one commit, if nothing was committed since the last look.

        A crash leaves a file without a commit, or all of it. Without rows there is a commit too, of no file.

        Args:
            rows: the rows, in the table's columns; the table has no partitions.
            transactions: application -> version.
            user_metadata: what the commit says of itself.
            compared: columns of which the log says the least and greatest values; None for those of the table.

        Raises:
            ConflictError: something was committed; nothing was written.
            LedgerError: the table is gone.
        """
        with self.lock:
            version, started = self.version + 1, uptime()
            actions = [_commit_info(user_metadata), *_transactions(transactions)]
            name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
            if rows.num_rows:
                content = put_rows(self.path, name, rows)
                actions.append({"add": added_file(name, len(content), rows, compared or self._compared_names())})
            if not add_entry(self.path, version, actions):
                raise ConflictError(f"Another process wrote to {self.path} first.", path=self.path)
            self._check_place(version, name)
            if self._is_log and rows.num_rows:
                self._own = {name: content}
            self._apply(actions)
            self._fresh = started
            check_point_if_due(self.path, version)

    def _compared_names(self) -> Sequence[str] | None:
        if self._compared is None:
            return None
        return [name for name in self.columns.names if quote(name) in self._compared]

    def _check_place(self, version: int, name: str) -> None:
        """Look whether the entry before an own one is there.

        Where it is gone, this writer was frozen for longer than entries stay: before its entry, which then has a number
        that was used before and counts for nobody, or after it. Or the table was removed, and a piece of it came back.
        """
        store = store_of(self.path)
        if store.head(entry_of(self.path, version - 1)) is not None:
            return
        self._looked = self._fresh = -math.inf  # the next look opens the table anew
        if not _is_whole(self.path, version):
            store.delete(entry_of(self.path, version))
            store.delete(f"{self.path}/{name}")
            raise LedgerError(f"The table {self.path} is gone.", path=self.path)
        raise ConflictError(f"Other processes wrote to {self.path} long ago. Look again.", path=self.path)

    def _apply(self, actions: Iterable[Mapping[str, Any]]) -> None:
        for action in actions:
            if "add" in action:
                self.files |= {unquote(action["add"]["path"])}
            elif "remove" in action:
                self.files -= {unquote(action["remove"]["path"])}
            elif "txn" in action:
                self._transactions[action["txn"]["appId"]] = action["txn"]["version"]
            elif "metaData" in action:
                self.reopen()  # other columns: seldom
                return
        self.version += 1


class _Tails:
    """The lock for the tails of a process, and table -> its tail."""

    def __init__(self) -> None:
        self.reset()

    def __call__(self) -> tuple[threading.Lock, dict[str, TailTable]]:
        return self._lock, self._tails

    def reset(self) -> None:
        """Begin with none."""
        self._lock = threading.Lock()
        self._tails: dict[str, TailTable] = {}


_tails = _Tails()
# A lock or a table that another thread is using would stay so in a child of this process.
os.register_at_fork(after_in_child=_tails.reset)


def tail_of(path: str) -> TailTable:
    """The tail of a table in this process, as of its last look.

    Raises:
        TableNotFoundError: of ``deltalake``: there is none.
    """
    lock, tails = _tails()
    with lock:
        if path not in tails:
            tails[path] = TailTable(path)
        return tails[path]


def uptime() -> float:
    """Seconds that go on while the host is suspended: entries of the log go meanwhile."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def put_rows(path: str, name: str, rows: pa.Table, *, most: int | None = None) -> bytes:
    """Write rows as a file of a table that no commit names yet; its content.

    Args:
        path: the table.
        name: the file.
        rows: the rows.
        most: how many of them are read at once, at most; None for as many as Arrow thinks best.
    """
    import pyarrow.parquet as pq

    content, compared = io.BytesIO(), compared_columns(rows.schema)
    statistics: Any = True if compared is None else compared
    pq.write_table(rows, content, compression="snappy", row_group_size=most, write_statistics=statistics)
    store_of(path).put(f"{path}/{name}", content.getvalue())
    return content.getvalue()


def has_mark(path: str, version: int, mark: str) -> bool:
    """Whether a commit has this mark: its writer's own stands in its way where the answer to it was lost."""
    actions = actions_of(path, version) or []
    return any(action["commitInfo"].get(MARK) == mark for action in actions if "commitInfo" in action)


def _is_whole(path: str, version: int) -> bool:
    """Whether a table is more than one entry of its log."""
    files = store_of(path).files(f"{path}/_delta_log")
    return any(file.path != entry_of(path, version) for file in files)


def _commit_info(user_metadata: str | None) -> dict[str, Any]:
    info: dict[str, Any] = {
        "timestamp": milliseconds(),
        "operation": "WRITE",
        "operationParameters": {"mode": "Append"},
        "engineInfo": "kappa",
        MARK: uuid.uuid4().hex,
    }
    return {"commitInfo": info if user_metadata is None else {**info, "userMetadata": user_metadata}}


def _transactions(versions: Mapping[str, int]) -> list[dict[str, Any]]:
    return [{"txn": {"appId": app, "version": version}} for app, version in versions.items()]


def added_file(name: str, size: int, rows: pa.Table, compared: Sequence[str] | None) -> dict[str, Any]:
    """What a commit says of a file that it adds to a table (Delta's protocol, "Add File and Remove File").

    Args:
        name: the file.
        size: its bytes.
        rows: its rows.
        compared: columns of which it says the least and greatest values; None for all.
    """
    return {
        "path": name,
        "partitionValues": {},
        "size": size,
        "modificationTime": milliseconds(),
        "dataChange": True,
        "stats": json.dumps(_statistics(rows, compared)),
    }


def _statistics(rows: pa.Table, compared: Sequence[str] | None) -> dict[str, Any]:
    """How many rows a file has, and the least and greatest values of columns that every engine compares alike."""
    import pyarrow as pa
    import pyarrow.compute as pc

    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for field in rows.schema:
        if compared is not None and field.name not in compared:
            continue
        to_text = _text_of(field.type)
        if to_text is None:
            continue
        nulls[field.name] = rows[field.name].null_count
        column = rows[field.name].cast(pa.int32()) if pa.types.is_date32(field.type) else rows[field.name]
        ends = pc.min_max(column)
        first, last = to_text(ends["min"].as_py()), to_text(ends["max"].as_py())
        if first is not None and last is not None:
            least[field.name], greatest[field.name] = first, last
    return {"numRecords": rows.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _text_of(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """How the values of a type stand in statistics (Delta's protocol, "Per-file Statistics"); None for the others.

    A value of which nothing is said is None: no value at all, a long text, and a day outside of Python's years.
    """
    import pyarrow as pa

    if pa.types.is_integer(kind):
        return lambda value: value
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return lambda value: value if value is not None and len(value) <= _LONGEST_TEXT else None
    if pa.types.is_date32(kind):
        return _day
    return None


def _day(number: int | None) -> str | None:
    if number is None or not _FIRST_DAY <= number <= _LAST_DAY:
        return None
    return (_EPOCH + timedelta(days=number)).isoformat()


def milliseconds() -> int:
    """The present as Delta's log has times: milliseconds since 1970 in UTC."""
    return int(clock.now().timestamp() * 1000)
