"""The files of a lake: which of them belong to a copy, and in which order they arrive there.

Names are relative to the lake. Pure but for :func:`sizes` and :func:`links`, which list.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from kappa.errors import LakeUnreachableError
from kappa.names import EpochPaths, epochs_log, launcher_file
from kappa.record.topology_records import TopologyRecords
from kappa.store.address import bucket_and_key, is_remote
from kappa.store.stores import store_of

#: In the target, by whom it is being filled; the last file of a copy is there when they go.
MARKS = "_kappa/copy/"
#: What hosts have that start drivers here: those of the copy are others.
LAUNCHERS = launcher_file("", "").lstrip("/").removesuffix(".json")
#: What its writers make and drop: temporary files of Kappa, of object_store and of Hadoop, with Hadoop's checksums.
_SCRATCH = re.compile(r"(?:.*\.tmp|.*#\d+|\..*\.crc|heartbeat\.json)")
#: What is computed again, in the folder of an epoch: by its driver, or for a backfill that its driver has yet to take.
_RECOMPUTED = re.compile(r"[^/]+/e\d{4,}/recomputed/.*")
#: Characters that no client of Kappa takes in a key on S3: controls, and those that stand for bytes without UTF-8.
_NO_KEY = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
#: Bytes of the longest key (AWS: "Naming Amazon S3 objects").
_LONGEST_KEY = 1024
_LOG = "/_delta_log/"
_TABLE_OF_RECORD = f"{epochs_log('').lstrip('/')}/"
_RECORD = f"{_TABLE_OF_RECORD}{_LOG.lstrip('/')}"
_VERSION = re.compile(r"(\d{20})\.(json|.*)")


def sizes(lake: str) -> dict[str, int]:
    """Name -> size of all files of a lake, scratch included.

    Raises:
        LakeUnreachableError: a folder cannot be listed, or the store does not answer.
    """
    try:
        return {file.path.removeprefix(f"{lake}/"): file.size for file in store_of(lake).files(lake)}
    except OSError as error:
        raise LakeUnreachableError(
            f"{error.filename or lake} cannot be listed: {error.strerror or error}. Let this user read it, or take it "
            "out of the lake; then look: kappa doctor",
            path=error.filename or lake,
        ) from error


def links(lake: str) -> list[str]:
    """Names of links in a lake on a disk that no listing follows: to folders, and to what is not there."""
    if is_remote(lake):
        return []
    paths = (Path(root, name) for root, folders, files in os.walk(lake) for name in (*folders, *files))
    return sorted(str(path.relative_to(lake)) for path in paths if path.is_symlink() and not path.is_file())


def backfill_folders(records: TopologyRecords) -> tuple[str, ...]:
    """Folders with rows that were computed for a backfill, and that wait for the driver of their epoch."""
    return tuple(
        f"{EpochPaths(lake='', topology=record.topology, epoch=epoch.epoch).recomputed(folder).lake}/".lstrip("/")
        for record in records
        for epoch in record.recent.values()
        for folder in sorted(epoch.backfill_folders)
    )


def is_copied(name: str, backfills: tuple[str, ...] = ()) -> bool:
    """Whether a file belongs to a copy.

    Args:
        name: the file.
        backfills: folders of :func:`backfill_folders`, which are copied too.

    Examples:
        >>> is_copied("_kappa/plans/1f.json"), is_copied("orders/e0001/heartbeat.json")
        (True, False)
        >>> is_copied("orders/e0001/environments/1f.json"), is_copied("_kappa/launchers/h.json")
        (True, False)
    """
    last = name.rpartition("/")[2]
    is_again = _RECOMPUTED.fullmatch(name) and not name.startswith(backfills)
    return not name.startswith((MARKS, LAUNCHERS)) and not _SCRATCH.fullmatch(last) and not is_again


def without_key(names: Iterable[str], lake: str) -> list[str]:
    """Those names that are not parts of keys of a lake on S3, sorted."""
    keys = {name: bucket_and_key(f"{lake}/{name}")[1] for name in names}
    return sorted(name for name, key in keys.items() if _NO_KEY.search(key) or len(key.encode()) > _LONGEST_KEY)


def is_entry(name: str) -> bool:
    """Whether a file is of the log of a Delta table: it arrives after the files that it names."""
    return _LOG in name


def is_of_record(name: str) -> bool:
    """Whether a file is of the log of the record of epochs: with the last of them a lake is there."""
    return name.startswith(_RECORD)


def is_of_table_of_record(name: str) -> bool:
    """Whether a file is of the record of epochs, in its log or beside it."""
    return name.startswith(_TABLE_OF_RECORD)


def is_compared(name: str) -> bool:
    """Whether the content of a file counts, and not its size alone: a data file is never written again."""
    return is_entry(name) or not name.endswith(".parquet")


def of_record(names: Iterable[str]) -> list[str]:
    """Files of the log of the record in their order of arrival: the oldest last.

    Without its beginning, or the checkpoint in its place, nobody can open a log. It opens with :func:`opener`.
    """
    return sorted(filter(is_of_record, names), key=_age)


def opener(record: Sequence[str]) -> str:
    """Of the files of :func:`of_record`, the one with which the log opens: the newest checkpoint, or the oldest entry.

    What is older than a checkpoint arrives after it, and nobody needs it.
    """
    return next((name for name in record if is_opener(name)), record[-1])


def is_opener(name: str) -> bool:
    """Whether a file of the log of the record is one that readers begin with."""
    match = _VERSION.fullmatch(name.removeprefix(_RECORD))
    return match is not None and (int(match[1]) == 0 or match[2].startswith("checkpoint"))


def _age(name: str) -> tuple[int, str]:
    """Order of arrival: the pointer to a checkpoint, then the newest version first, its entry before a checkpoint."""
    match = _VERSION.fullmatch(name.removeprefix(_RECORD))
    return (-int(match[1]), "" if match[2] == "json" else match[2]) if match else (-(10**20), name)
