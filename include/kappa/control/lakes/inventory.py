"""The files of a lake: which of them belong to a copy, and in which order they arrive there.

Names are relative to the lake. Pure but for :func:`sizes`, which lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from kappa.names import epochs_log
from kappa.store.stores import store_of

#: In the target, by whom it is being filled; the last file of a copy is there when it goes.
MARK = "_kappa/copy.json"
#: What its writers make and drop: temporary files of Kappa, of object_store and of Hadoop, with Hadoop's checksums.
_SCRATCH = re.compile(r"(?:.*\.tmp|.*#\d+|\..*\.crc|heartbeat\.json)")
#: What a driver computes again, in the folder of an epoch.
_RECOMPUTED = re.compile(r"[^/]+/e\d{4,}/recomputed/.*")
_LOG = "/_delta_log/"
_RECORD = f"{epochs_log('').lstrip('/')}{_LOG}"
_VERSION = re.compile(r"(\d{20})\.(json|.*)")


def sizes(lake: str) -> dict[str, int]:
    """Name -> size of all files of a lake, scratch included."""
    return {file.path.removeprefix(f"{lake}/"): file.size for file in store_of(lake).files(lake)}


def is_copied(name: str) -> bool:
    """Whether a file belongs to a copy.

    Examples:
        >>> is_copied("_kappa/plans/1f.json"), is_copied("orders/e0001/heartbeat.json")
        (True, False)
    """
    last = name.rpartition("/")[2]
    return name != MARK and not _SCRATCH.fullmatch(last) and not _RECOMPUTED.fullmatch(name)


def is_entry(name: str) -> bool:
    """Whether a file is of the log of a Delta table: it arrives after the files that it names."""
    return _LOG in name


def is_of_record(name: str) -> bool:
    """Whether a file is of the log of the record of epochs: with the last of them a lake is there."""
    return name.startswith(_RECORD)


def is_compared(name: str) -> bool:
    """Whether the content of a file counts, and not its size alone: a data file is never written again."""
    return is_entry(name) or not name.endswith(".parquet")


def of_record(names: Iterable[str]) -> list[str]:
    """Files of the log of the record in their order of arrival: the oldest last.

    Without its beginning, or the checkpoint in its place, nobody can open a log. It opens when nothing is missing.
    """
    return sorted(filter(is_of_record, names), key=_age)


def _age(name: str) -> tuple[int, str]:
    """Order of arrival: the pointer to a checkpoint, then the newest version first, its entry before a checkpoint."""
    match = _VERSION.fullmatch(name.removeprefix(_RECORD))
    return (-int(match[1]), "" if match[2] == "json" else match[2]) if match else (-(10**20), name)
