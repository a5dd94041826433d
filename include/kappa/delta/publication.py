"""A commit of a published table: what it shows, and how it follows from an epoch's table. Nothing is written here."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kappa.delta.damage import is_elsewhere
from kappa.delta.log_entries import addition, removal
from kappa.delta.log_state import Action, LogState
from kappa.delta.tables import APP
from kappa.delta.tail_table import milliseconds
from kappa.errors import PublicationError

#: What shuts other writers out; they name it when they refuse.
FEATURE = "kappaPublished"
PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly", "invariants", FEATURE]}
#: Applications of the transactions of an entry: the epoch that it shows, the Delta version of that epoch's table, and
#: the last slice in it.
EPOCH, VERSION, SEQ = "kappa.published.epoch", "kappa.published.version", "kappa.published.seq"
#: Entries between two checkpoints.
CHECKPOINT_EVERY = 100
#: The protocol of tables of an epoch: the newest versions of it.
_PLAIN_PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
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


@dataclass(frozen=True, kw_only=True)
class Publication:
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
        seq=info.get("seq", state.transactions.get(SEQ)),
        at=state.info.get("timestamp"),
        offsets=info.get("offsets"),
    )


def metadata_of(state: LogState, source: LogState, hidden: Collection[str], retention: timedelta) -> Action:
    """The ``metaData`` of a published table that is to show an epoch's table: its columns but for hidden ones.

    Args:
        state: of the published table; its id stays.
        source: of the epoch's table.
        hidden: columns that readers do not see.
        retention: how long files stay for readers of earlier versions.
    """
    schema = json.loads(source.metadata["schemaString"])
    schema["fields"] = [column for column in schema["fields"] if column["name"] not in hidden]
    return {
        "id": state.metadata.get("id") or str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": source.metadata.get("partitionColumns") or [],
        "createdTime": state.metadata.get("createdTime") or milliseconds(),
        "configuration": properties_of(retention),
    }


def properties_of(retention: timedelta) -> dict[str, str]:
    """The properties of a published table, after which checkpoints forget removed files.

    Args:
        retention: how long files stay for readers of earlier versions.
    """
    hours = max(1, round(retention.total_seconds() / 3600))
    return {
        "delta.checkpointInterval": str(CHECKPOINT_EVERY),
        "delta.deletedFileRetentionDuration": f"interval {hours} hours",
        "delta.enableExpiredLogCleanup": "false",
        "delta.logRetentionDuration": f"interval {hours} hours",
    }


def net(state: LogState, before: Shown, entries: Iterable[Sequence[Action]], origin: Origin) -> Publication:
    """What entries of an epoch's table come to, up to the first that changes rows after one that does not, or back."""
    added: dict[str, Action] = {}
    removed: dict[str, Action] = {}
    is_rows: bool | None = None
    version, seq = before.source_version, before.seq
    for actions in entries:
        has_files = any("add" in action or "remove" in action for action in actions)
        if has_files:
            is_upkeep = _is_upkeep(actions)
            if is_rows is not None and is_rows == is_upkeep:
                break
            is_rows = not is_upkeep
        for action in actions:
            if "remove" in action:
                path = f"{origin.folder}/{action['remove']['path']}"
                if added.pop(path, None) is None and path in state.files:
                    removed[path] = state.files[path]
            elif "add" in action:
                path = f"{origin.folder}/{action['add']['path']}"
                check_file(origin.path, action["add"])
                if removed.pop(path, None) is None and path not in state.files:
                    added[path] = action["add"]
            elif "txn" in action and action["txn"]["appId"] == APP:
                seq = action["txn"]["version"]
        version += 1
    return Publication(
        version=version, seq=seq, removed=list(removed.values()), added=added, is_rows=is_rows is not False
    )


def entry_actions(change: Publication, origin: Origin) -> list[Action]:
    """The actions of the entry that makes a change."""
    now = milliseconds()
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
    actions += [removal(add, now, is_rows=change.is_rows) for add in change.removed]
    actions += [addition(add, path, is_rows=change.is_rows) for path, add in change.added.items()]
    return actions


def check_log(path: str, state: LogState) -> None:
    """Refuse to publish over a table that is not one of Kappa's.

    Raises:
        PublicationError: another program made it.
    """
    if EPOCH not in state.transactions:
        raise PublicationError(
            f"Nothing is published at {path}: another program has a Delta table there, which stays as it is. The "
            "stream goes on. Move that table to another folder, and the driver publishes.",
            path=path,
            feature="another program's table",
        )


def check_table(path: str, source: LogState) -> None:
    """Refuse features of a table that readers of a published table would not see.

    Raises:
        PublicationError: it has one.
    """
    properties = source.metadata.get("configuration") or {}
    names = [f"{name} = {properties[name]}" for name in _REFUSED_PROPERTIES if properties.get(name) not in _OFF]
    versions = {name: source.protocol.get(name, 1) for name in _PLAIN_PROTOCOL}
    if any(versions[name] > most for name, most in _PLAIN_PROTOCOL.items()):
        features = {name for kind in ("readerFeatures", "writerFeatures") for name in source.protocol.get(kind) or ()}
        names.append(f"protocol {versions} ({', '.join(sorted(features)) or 'no features'})")
    if names:
        raise _refused(path, ", ".join(names))


#: Values of a property that turn its feature off.
_OFF = (None, "", "none", "false")


def check_file(path: str, add: Mapping[str, Any]) -> None:
    """Refuse a file that readers of a published table would misread, or not find.

    Raises:
        PublicationError: it has deletion vectors, or lies elsewhere.
    """
    if add.get("deletionVector") is not None:
        raise _refused(path, f"a deletion vector of the file {add['path']}")
    if is_elsewhere(add["path"]):
        raise _refused(path, f"the file {add['path']}, which lies elsewhere")


def _refused(path: str, feature: str) -> PublicationError:
    return PublicationError(
        f"The table {path} is not published: it has {feature}. Another program changed the table. The stream goes on, "
        "and the published table stays as it is. Compute the table again: kappa replay <topology> --execute",
        path=path,
        feature=feature,
    )


def is_same_metadata(metadata: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two ``metaData`` actions say the same of a table."""
    names = ("schemaString", "partitionColumns", "configuration")
    return all(_parsed(metadata.get(name)) == _parsed(other.get(name)) for name in names)


def _parsed(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _is_upkeep(actions: Sequence[Action]) -> bool:
    """Whether an entry only merges files, by its own word; one that goes back to earlier files does not."""
    files = [file for action in actions if (file := action.get("add") or action.get("remove"))]
    is_restore = any(action.get("commitInfo", {}).get("operation") == "RESTORE" for action in actions)
    return not is_restore and not any(file.get("dataChange", True) for file in files)
