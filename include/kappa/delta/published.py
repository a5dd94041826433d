"""A published table: a Delta table that stays at its path, whose files are those of the table of the live epoch.

Its log is written here, entry by entry, and each names the state of an epoch's table that it shows. Nothing is copied.
A writer feature that no engine has shuts out all other writers; readers do not ask for it (Delta's protocol, "Valid
Feature Names in Table Features").
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import unquote

from kappa import clock
from kappa.delta.access import answers, open_table
from kappa.delta.damage import entry_of
from kappa.delta.log_entries import actions_of
from kappa.delta.log_state import Action, LogState, state_of
from kappa.delta.tables import APP
from kappa.delta.tail_table import uptime
from kappa.delta.vacuum import COMPACTED
from kappa.errors import ConflictError, LedgerError, PublicationError, first_line
from kappa.faults import crash_point
from kappa.store.stores import store_of

#: What shuts other writers out; they name it when they refuse.
FEATURE = "kappaPublished"
_PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "invariants", FEATURE]}
#: Applications of the transactions of an entry: the epoch that it shows, the Delta version of that epoch's table, and
#: the last slice in it.
EPOCH, VERSION, SEQ = "kappa.published.epoch", "kappa.published.version", "kappa.published.seq"
#: Entries between two checkpoints, and after a commit of how many files there is one at once.
CHECKPOINT_EVERY = 100
_LARGE_COMMIT = 1000
#: Entries of the log that stay, at least. With those up to the next checkpoint there are never 2,000.
LOG_ENTRIES = 1800
#: Beyond as many commits of the epoch's table, or as long after the last publication, the state of the table as a whole
#: is compared: entries, and files that were merged meanwhile, may be gone.
_MOST_ENTRIES = 200
_FRESH_SECONDS = 3600.0
#: After this time without a look the last entry is looked for: it may have been cleaned up.
LOOK_SECONDS = 60.0
#: Features of a table that a published table does not show as they are meant.
_REFUSED_PROPERTIES = (
    "delta.columnMapping.mode",
    "delta.enableChangeDataFeed",
    "delta.enableDeletionVectors",
    "delta.enableRowTracking",
)


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The state of an epoch's table that is to be shown.

    Attributes:
        path: the Delta table of the epoch.
        folder: its folder in that of the published table.
        epoch: the epoch.
        version: the Delta version, of a commit of its ledger.
        hidden: columns that readers do not see.
        offsets: gives the offsets up to which a table with a slice as its last has all records; None for unknown ones.
    """

    path: str
    folder: str
    epoch: int
    version: int
    hidden: frozenset[str] = frozenset()
    offsets: Callable[[int], Mapping[str, Any] | None] = lambda seq: None


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What a published table shows.

    Attributes:
        path: the published table.
        version: its Delta version.
        epoch: the epoch whose files it names.
        source_version: Delta version of that epoch's table.
        seq: the last slice in it; None where it has none of its own.
        at: when it was published, milliseconds since 1970 in UTC; None where a checkpoint is all there is.
        offsets: offsets up to which it has all records, where that is known.
    """

    path: str
    version: int
    epoch: int
    source_version: int
    seq: int | None
    at: int | None
    offsets: Mapping[str, Any] | None


class PublishedTable:
    """The log of a published table, as of the last look. May be used by several threads.

    One process writes it at a time, but nothing relies on that.

    Args:
        path: the table.
        retention: how long files stay for readers of earlier versions.
    """

    def __init__(self, path: str, retention: timedelta) -> None:
        self.path = path
        self.retention = retention
        self._state: LogState | None = None
        self._is_foreign = False
        self._source: tuple[int, LogState] | None = None
        self._looked = self._succeeded = float("-inf")
        self._lock = threading.RLock()

    def look(self) -> LogState | None:
        """Take in what was committed since the last look; None where there is no table."""
        with self._lock:
            if self._state is None or not self._is_there(self._state.version):
                self._state = state_of(self.path, has_statistics=False)
                self._is_foreign = self._state is not None and not _is_own(self._state)
            else:
                for actions in self._state.advance(self.path):
                    self._is_foreign |= not any(_is_txn(action) for action in actions)
            self._looked = uptime()
            return self._state

    def shown(self) -> Shown | None:
        """What it shows as of the last look, the first of which is made here; None where there is no table."""
        state = self._state or self.look()
        return None if state is None else shown_by(self.path, state)

    def prepare(self, origin: Origin) -> None:
        """Read the files of an epoch that is about to be shown: right after the move only the rest is read.

        Raises:
            PublicationError: its table has features that a published table does not show.
        """
        with self._lock:
            self._source_state(origin)

    def publish(self, origin: Origin) -> bool:
        """Show the state of an epoch's table, in one commit, or the first part of the way there.

        Files that were merged without a change of rows are a commit of their own, so that readers of a stream need not
        read the rows again. A crash leaves the commit whole or not at all.

        Returns:
            Whether it was there already.

        Raises:
            ConflictError: another process published at the same time; nothing was done. Look again.
            PublicationError: the epoch's table has features that a published table does not show.
        """
        with self._lock:
            is_due = self._state is None or uptime() - self._looked > LOOK_SECONDS
            state = self.look() if is_due else self._state
            if state is None:
                self._commit(LogState(), self._whole(LogState(), origin), origin)
                return False
            before = None if self._is_foreign else shown_by(self.path, state)
            if before is not None and (before.epoch, before.source_version) == (origin.epoch, origin.version):
                self._succeeded = uptime()
                return True
            self._commit(state, self._change(state, before, origin), origin)
            return False

    def needed(self, folder: str) -> set[str]:
        """Files of a folder that readers of this table may need, by their paths in it: the present ones, and those that
        were removed within the retention.
        """
        with self._lock:
            state, begin = self.look(), _milliseconds() - self.retention.total_seconds() * 1000
            return set() if state is None else _named(state, begin, f"{folder}/")

    def _change(self, state: LogState, before: Shown | None, origin: Origin) -> _Publication:
        is_fresh = uptime() - self._succeeded <= _FRESH_SECONDS
        if before is None or before.epoch != origin.epoch or not is_fresh:
            return self._whole(state, origin)
        if not 0 < origin.version - before.source_version <= _MOST_ENTRIES:
            return self._whole(state, origin)
        entries = [actions_of(origin.path, number) for number in range(before.source_version + 1, origin.version + 1)]
        present = [actions for actions in entries if actions is not None]
        if len(present) < len(entries) or any(_is_of_table(action) for actions in present for action in actions):
            return self._whole(state, origin)
        return _net(state, before, present, origin.folder)

    def _whole(self, state: LogState, origin: Origin) -> _Publication:
        """The difference between what is shown and an epoch's table as a whole."""
        source = self._source_state(origin)
        self._source = None  # from here on entries are enough
        files = {f"{origin.folder}/{path}": add for path, add in source.files.items()}
        for add in files.values():
            _check_file(origin.path, add)
        metadata = self._metadata(state, source, origin)
        return _Publication(
            version=source.version,
            seq=source.transactions.get(APP),
            removed=[remove for path, remove in state.files.items() if path not in files],
            added={path: add for path, add in files.items() if path not in state.files},
            metadata=None if _is_same(metadata, state.metadata) and not self._is_foreign else metadata,
            protocol=None if state.protocol == _PROTOCOL else _PROTOCOL,
        )

    def _source_state(self, origin: Origin) -> LogState:
        """The state of an epoch's table at a version, from that of the last time where it is an earlier one."""
        epoch, source = self._source or (None, None)
        self._source = None  # what a failure leaves half advanced is not gone on from
        try:
            if source is not None and epoch == origin.epoch and source.version <= origin.version:
                source.advance(origin.path, origin.version)
            else:
                source = state_of(origin.path, origin.version)
        except LedgerError:  # entries in between were cleaned up
            source = state_of(origin.path, origin.version)
        if source is None:
            raise LedgerError(f"The table {origin.path} is gone. Look: kappa status", path=origin.path)
        _check_table(origin.path, source)
        self._source = (origin.epoch, source)
        return source

    def _metadata(self, state: LogState, source: LogState, origin: Origin) -> Action:
        schema = json.loads(source.metadata["schemaString"])
        schema["fields"] = [column for column in schema["fields"] if column["name"] not in origin.hidden]
        hours = max(1, round(self.retention.total_seconds() / 3600))
        return {
            "id": state.metadata.get("id") or str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(schema),
            "partitionColumns": source.metadata.get("partitionColumns") or [],
            "createdTime": state.metadata.get("createdTime") or _milliseconds(),
            "configuration": {
                "delta.checkpointInterval": str(CHECKPOINT_EVERY),
                "delta.deletedFileRetentionDuration": f"interval {hours} hours",
                "delta.enableExpiredLogCleanup": "false",
                "delta.logRetentionDuration": f"interval {hours} hours",
            },
        }

    def _is_there(self, version: int) -> bool:
        """Whether the entry of a version is there, by a look at it after a while: it may have been cleaned up."""
        is_due = uptime() - self._looked > LOOK_SECONDS
        return not is_due or store_of(self.path).head(entry_of(self.path, version)) is not None

    def _commit(self, state: LogState, change: _Publication, origin: Origin) -> None:
        store, version = store_of(self.path), state.version + 1
        if version and not self._is_there(version - 1):
            self._state = None
            raise ConflictError(f"The log of {self.path} was cleaned up since the last look.", path=self.path)
        actions = _actions(change, origin)
        store.make_folder(f"{self.path}/_delta_log")
        crash_point("publish.begin", version)
        entry = "".join(f"{json.dumps(action)}\n" for action in actions).encode()
        if not store.create(entry_of(self.path, version), entry):
            self._state = None
            raise ConflictError(f"Another process published {self.path} first.", path=self.path)
        crash_point("publish.commit", version)
        state.info, state.has_statistics = {}, False
        state.apply(actions)
        state.version, self._state, self._is_foreign = version, state, False
        self._looked = self._succeeded = uptime()
        if version % CHECKPOINT_EVERY == 0 or len(change.added) + len(change.removed) > _LARGE_COMMIT:
            self._check_point()
        if version % CHECKPOINT_EVERY == 0:
            self._clean_up(version)

    def _check_point(self) -> None:
        """Sum the log up for those who open it. The commit is made whatever comes of it."""
        try:
            with answers(self.path):
                open_table(self.path).create_checkpoint()
        except Exception as error:  # of any kind: the next one makes it
            import structlog

            structlog.get_logger(__name__).warning("no checkpoint", path=self.path, error=first_line(error))
        crash_point("publish.checkpoint")

    def _clean_up(self, version: int) -> None:
        """Remove entries and checkpoints before the last checkpoint that leaves enough of them. May be repeated."""
        store = store_of(self.path)
        names = {file.name: file.path for file in store.files(f"{self.path}/_delta_log")}
        numbers = {name: int(name[:20]) for name in names if name[:20].isdigit()}
        checkpoints = [number for name, number in numbers.items() if ".checkpoint" in name]
        first = max((number for number in checkpoints if number <= version - LOG_ENTRIES), default=0)
        for name in sorted(name for name, number in numbers.items() if number < first):  # the oldest first
            store.delete(names[name])
            crash_point("publish.cleanup")


@dataclass(frozen=True, kw_only=True)
class _Publication:
    """From one state of a published table to the next.

    Attributes:
        version: Delta version of the epoch's table that is shown then.
        seq: the last slice in it.
        removed: ``add`` actions of files that go.
        added: path in the published table -> ``add`` action in that of the epoch.
        is_rows: whether rows change.
        metadata: the new ``metaData``; None where it stays.
        protocol: the new ``protocol``; None where it stays.
    """

    version: int
    seq: int | None
    removed: Sequence[Action]
    added: Mapping[str, Action]
    is_rows: bool = True
    metadata: Action | None = None
    protocol: Mapping[str, Any] | None = None


def shown_by(path: str, state: LogState) -> Shown | None:
    """What a published table shows in a state; None where its log is not one of Kappa's."""
    if EPOCH not in state.transactions:
        return None
    info = json.loads(state.info.get("userMetadata") or "{}") if state.info.get("operation") == "PUBLISH" else {}
    return Shown(
        path=path,
        version=state.version,
        epoch=state.transactions[EPOCH],
        source_version=state.transactions[VERSION],
        seq=state.transactions.get(SEQ),
        at=state.info.get("timestamp"),
        offsets=info.get("offsets"),
    )


def _net(state: LogState, before: Shown, entries: Iterable[Sequence[Action]], folder: str) -> _Publication:
    """What entries of an epoch's table come to, up to the first that changes rows after one that does not, or back."""
    added: dict[str, Action] = {}
    removed: dict[str, Action] = {}
    is_rows: bool | None = None
    version, seq = before.source_version, before.seq
    for actions in entries:
        has_files = any("add" in action or "remove" in action for action in actions)
        if has_files:
            is_upkeep = any(_message(action).startswith(COMPACTED) for action in actions)
            if is_rows is not None and is_rows == is_upkeep:
                break
            is_rows = not is_upkeep
        for action in actions:
            if "remove" in action:
                path = f"{folder}/{action['remove']['path']}"
                if added.pop(path, None) is None and path in state.files:
                    removed[path] = state.files[path]
            elif "add" in action:
                path = f"{folder}/{action['add']['path']}"
                _check_file(folder, action["add"])
                if removed.pop(path, None) is None and path not in state.files:
                    added[path] = action["add"]
            elif "txn" in action and action["txn"]["appId"] == APP:
                seq = action["txn"]["version"]
        version += 1
    return _Publication(
        version=version, seq=seq, removed=list(removed.values()), added=added, is_rows=is_rows is not False
    )


def _named(state: LogState, begin: float, prefix: str) -> set[str]:
    """Files below a folder that are part of the table, or were at a time or later."""
    recent = (path for path, one in state.tombstones.items() if one.get("deletionTimestamp", 0) >= begin)
    return {unquote(path.removeprefix(prefix)) for path in (*state.files, *recent) if path.startswith(prefix)}


def _actions(change: _Publication, origin: Origin) -> list[Action]:
    now = _milliseconds()
    about: dict[str, Any] = {"epoch": origin.epoch, "seq": change.seq}
    if change.seq is not None:
        about["offsets"] = origin.offsets(change.seq)
    info = {
        "timestamp": now,
        "operation": "PUBLISH",
        "operationParameters": {"epoch": str(origin.epoch), "version": str(change.version)},
        "engineInfo": "kappa",
        "userMetadata": json.dumps(about),
    }
    versions = {EPOCH: origin.epoch, VERSION: change.version, **({} if change.seq is None else {SEQ: change.seq})}
    actions: list[Action] = [{"commitInfo": info}]
    if change.protocol is not None:
        actions.append({"protocol": dict(change.protocol)})
    if change.metadata is not None:
        actions.append({"metaData": change.metadata})
    actions += [{"txn": {"appId": app, "version": number, "lastUpdated": now}} for app, number in versions.items()]
    for add in change.removed:
        remove = {
            "path": add["path"],
            "deletionTimestamp": now,
            "dataChange": change.is_rows,
            "extendedFileMetadata": True,
            "partitionValues": add.get("partitionValues") or {},
            "size": add["size"],
        }
        actions.append({"remove": remove})
    for path, add in change.added.items():
        fields = ("partitionValues", "size", "modificationTime", "stats")
        values = {name: add[name] for name in fields if add.get(name) is not None}
        actions.append({"add": {"path": path, "partitionValues": {}, **values, "dataChange": change.is_rows}})
    return actions


def _check_table(path: str, source: LogState) -> None:
    """Refuse features of a table that readers of a published table would not see."""
    properties = source.metadata.get("configuration") or {}
    names = [f"{name} = {properties[name]}" for name in _REFUSED_PROPERTIES if properties.get(name) not in _OFF]
    reader = source.protocol.get("minReaderVersion", 1)
    if reader > 1:
        names.append(f"reader version {reader} ({', '.join(source.protocol.get('readerFeatures') or ()) or 'no name'})")
    if names:
        raise _refused(path, ", ".join(names))


#: Values of a property that turn its feature off.
_OFF = (None, "", "none", "false")


def _check_file(path: str, add: Mapping[str, Any]) -> None:
    if add.get("deletionVector") is not None:
        raise _refused(path, f"a deletion vector of the file {add['path']}")
    if "://" in add["path"] or add["path"].startswith("/"):
        raise _refused(path, f"the file {add['path']}, which lies elsewhere")


def _refused(path: str, feature: str) -> PublicationError:
    return PublicationError(
        f"The table {path} is not published: it has {feature}. Another program changed the table. The stream goes on, "
        "and the published table stays as it is. Compute the table again: kappa replay <topology> --execute",
        path=path,
        feature=feature,
    )


def _is_same(metadata: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    names = ("schemaString", "partitionColumns", "configuration")
    return all(_parsed(metadata.get(name)) == _parsed(other.get(name)) for name in names)


def _parsed(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _is_own(state: LogState) -> bool:
    """Whether the newest entry is one of Kappa's; a checkpoint does not say."""
    return not state.info or state.info.get("operation") == "PUBLISH"


def _is_of_table(action: Mapping[str, Any]) -> bool:
    return "metaData" in action or "protocol" in action


def _is_txn(action: Mapping[str, Any]) -> bool:
    return "txn" in action and action["txn"]["appId"] == VERSION


def _message(action: Mapping[str, Any]) -> str:
    return str(action.get("commitInfo", {}).get("userMetadata") or "")


def _milliseconds() -> int:
    return int(clock.now().timestamp() * 1000)
