"""The state of a Delta table as its log has it, word for word: files with their statistics, and removed files.

``deltalake`` gives the files of a table, but neither their statistics as they were written nor the removed ones.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kappa.delta.damage import damaged, entry_number, entry_of
from kappa.delta.log_entries import actions_of
from kappa.errors import LedgerError
from kappa.store.stores import store_of

Action = dict[str, Any]

#: A checkpoint of one file, or part of one of several (Delta's protocol, "Checkpoints").
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")
#: Columns of a checkpoint that are read; of those in it, these fields.
_FIELDS = {
    "txn": ("appId", "version"),
    "add": ("path", "partitionValues", "size", "modificationTime", "stats", "deletionVector", "baseRowId"),
    "remove": ("path", "deletionTimestamp"),
    "metaData": ("id", "format", "schemaString", "partitionColumns", "configuration", "createdTime"),
    "protocol": ("minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures"),
}
_MAPS = ("partitionValues", "configuration", "options")


@dataclass(kw_only=True)
class LogState:
    """A table as of a version.

    Attributes:
        version: the Delta version; -1 before the first.
        files: path in the table, as the log has it -> its ``add`` action.
        tombstones: path of a file that is no longer part of the table -> when it was removed, in milliseconds since
            1970 in UTC.
        transactions: application -> version of its last transaction.
        metadata: the last ``metaData`` action.
        protocol: the last ``protocol`` action.
        info: the ``commitInfo`` of the newest entry; empty where there is only a checkpoint of it.
        has_statistics: whether files keep their statistics, which take most of the memory.
    """

    version: int = -1
    files: dict[str, Action] = field(default_factory=dict)
    tombstones: dict[str, int] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    metadata: Action = field(default_factory=dict)
    protocol: Action = field(default_factory=dict)
    info: Action = field(default_factory=dict)
    has_statistics: bool = True

    def apply(self, actions: Iterable[Mapping[str, Any]]) -> None:
        """Take the actions of an entry, or of a checkpoint, in."""
        for action in actions:
            if (add := action.get("add")) is not None:
                without = {} if self.has_statistics else {"stats"}
                self.files[add["path"]] = {name: value for name, value in add.items() if name not in without}
                self.tombstones.pop(add["path"], None)
            elif (remove := action.get("remove")) is not None:
                self.files.pop(remove["path"], None)
                self.tombstones[remove["path"]] = remove.get("deletionTimestamp") or 0
            elif (txn := action.get("txn")) is not None:
                self.transactions[txn["appId"]] = txn["version"]
            elif (metadata := action.get("metaData")) is not None:
                self.metadata = metadata
            elif (protocol := action.get("protocol")) is not None:
                self.protocol = protocol
            elif (info := action.get("commitInfo")) is not None:
                self.info = info

    def forget_removals(self, before: float) -> None:
        """Drop tombstones of files that were removed before a time, in milliseconds since 1970 in UTC."""
        self.tombstones = {path: at for path, at in self.tombstones.items() if at >= before}

    def advance(self, path: str, version: int | None = None) -> list[list[Action]]:
        """Take in the entries since, up to a version or to the newest; return them.

        Raises:
            DamagedTableError: an entry is torn.
            LedgerError: the entry of the version is gone, or not there yet.
        """
        entries = []
        while version is None or self.version < version:
            actions = actions_of(path, self.version + 1)
            if actions is None:
                if version is not None:
                    raise _gone(path, self.version + 1)
                break
            self.info = {}
            self.apply(actions)
            self.version += 1
            entries.append(actions)
        return entries


def state_of(path: str, version: int | None = None, *, has_statistics: bool = True) -> LogState | None:
    """The state of a table as of a version, or as of now; None where there is no table.

    One listing of its log, then its last checkpoint before the version and each entry since.

    Args:
        path: the table.
        version: the Delta version; None for the newest.
        has_statistics: whether files keep their statistics.

    Raises:
        DamagedTableError: files of the log are missing or torn.
        LedgerError: the entries of the version are gone.
    """
    names = [file.name for file in store_of(path).files(f"{path}/_delta_log")]
    entries = {number for name in names if (number := entry_number(name)) is not None}
    checkpoints = _whole_checkpoints(names)
    newest = max([*entries, *checkpoints], default=None)
    if newest is None:
        return None
    last = newest if version is None else version
    state = LogState(has_statistics=has_statistics)
    if earlier := [number for number in checkpoints if number <= last]:
        for name in checkpoints[max(earlier)]:
            state.apply(_checkpoint(path, name))
        state.version = max(earlier)
        if state.version == last:  # the entry says what a checkpoint does not
            state.info = next((one["commitInfo"] for one in actions_of(path, last) or () if "commitInfo" in one), {})
    state.advance(path, last)
    return state


def _whole_checkpoints(names: Iterable[str]) -> dict[int, list[str]]:
    """Version -> the files of its checkpoint, of those that have all their parts; of several the one of fewest."""
    parts: dict[tuple[int, int], set[str]] = {}  # two writers may have cut one version differently
    for name in names:
        if match := _CHECKPOINT.fullmatch(name):
            parts.setdefault((int(match[1]), int(match[3] or 0)), set()).add(name)
    whole = {key: sorted(files) for key, files in parts.items() if len(files) == max(1, key[1])}
    return {number: whole[number, total] for number, total in sorted(whole, reverse=True)}


def _checkpoint(path: str, name: str) -> Iterator[Action]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = store_of(path).get(f"{path}/_delta_log/{name}")
    if content is None:
        raise damaged(path, [f"_delta_log/{name} is missing"])
    try:
        rows = pq.read_table(io.BytesIO(content))
    except pa.ArrowException as error:
        raise damaged(path, [f"_delta_log/{name} is torn"]) from error
    for kind in [name for name in _FIELDS if name in rows.column_names]:
        column = rows[kind].combine_chunks().drop_null()
        present = [field.name for field in column.type if field.name in _FIELDS[kind]]
        values = [column.field(name).to_pylist() for name in present]
        for row in zip(*values, strict=True):
            fields = {
                name: _mapping(name, value) for name, value in zip(present, row, strict=True) if value is not None
            }
            yield {kind: fields}


def _mapping(name: str, value: Any) -> Any:
    """A field as an entry has it: Arrow gives maps as pairs."""
    if name in _MAPS and isinstance(value, list):
        return dict(value)
    if isinstance(value, dict):
        return {key: _mapping(key, item) for key, item in value.items()}
    return value


def _gone(path: str, version: int) -> LedgerError:
    return LedgerError(
        f"The entry {entry_of(path, version)} is gone, or was not written: the state of its table is not known. Look "
        "again: kappa status",
        path=path,
        version=version,
    )
