"""Files of a Delta table that are missing or torn: they were removed, or cut short, by something other than Kappa."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from kappa.errors import DamagedTableError
from kappa.store.stores import store_of

#: Names of files in a table's log, with their versions (Delta's protocol, "Delta Log Entries" and "Checkpoints").
_ENTRY, _CHECKPOINT = re.compile(r"(\d{20})\.json"), re.compile(r"(\d{20})\.checkpoint(?:\..+)?\.parquet")
#: Paths of files that are not below the folder of their table (Delta's protocol, "Add File and Remove File").
_ELSEWHERE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")
#: A table of an epoch, and not its ledger: a replay computes it again.
_OF_AN_EPOCH = re.compile(r"/([^/]+)/(?:e\d{4,}/(?!ledger$)|[^/]+/_e\d{4,}$)")
#: The topology of a published table, and its own name: none is called like an epoch.
_NAME, _EPOCH = re.compile(r"[a-z][a-z0-9_.]*"), re.compile(r"e\d{4,}")
#: How many files a message names.
_MOST = 3


def is_log_file(name: str) -> bool:
    """Whether a file of this name makes a folder the log of a table."""
    return any(pattern.fullmatch(name) for pattern in (_ENTRY, _CHECKPOINT))


def entry_number(name: str) -> int | None:
    """The version whose commit made a file of a table's log of this name; None of any other file."""
    match = _ENTRY.fullmatch(name)
    return None if match is None else int(match[1])


def is_elsewhere(file: str) -> bool:
    """Whether a file that a table names is not below the table's folder."""
    return _ELSEWHERE.match(file) is not None


def entry_of(path: str, version: int) -> str:
    """The file that the commit of a version makes in a Delta table's log (Delta's protocol, "Delta Log Entries")."""
    return f"{path}/_delta_log/{version:020}.json"


def actions_in(content: bytes) -> list[dict[str, Any]]:
    """The actions of an entry: one line each, which only a line feed ends. None at all of one that is torn, or empty:
    no writer commits nothing.
    """
    try:
        return [json.loads(line) for line in content.split(b"\n") if line.strip()]
    except ValueError:
        return []


def damage(path: str) -> DamagedTableError | None:
    """What is wrong with the log of a table that cannot be opened; None where its files are as they should be.

    Raises:
        LakeUnreachableError: the storage does not answer.
        LakeRefusedError: it refuses.
    """
    problems = list(_problems(path))
    return damaged(path, problems) if problems else None


def damaged(path: str, problems: Sequence[str]) -> DamagedTableError:
    """The error of a table some of whose files are missing or torn.

    Args:
        path: the table.
        problems: what is wrong with each of them.
    """
    more = f", and {len(problems) - _MOST} more files" if len(problems) > _MOST else ""
    return DamagedTableError(
        f"The Delta table {path} is damaged: {', '.join(problems[:_MOST])}{more}. Put what it lacks back from a "
        f"backup, or from older versions in its bucket: docs/restore-a-bucket.md. {_without_a_backup(path)}",
        path=path,
        problems=list(problems),
    )


def torn_entries(path: str, versions: Iterable[int]) -> DamagedTableError:
    """The error of a table whose entries of some versions are torn, or empty."""
    return damaged(path, [f"{_name(version)} is torn" for version in versions])


def _name(version: int) -> str:
    """The path of an entry in its table."""
    return entry_of("", version)[1:]


def check_entries(path: str, versions: Iterable[int]) -> None:
    """Refuse a table whose entries of some versions are empty: ``deltalake`` takes them for commits of nothing.

    One request each; entries that are gone were cleaned up.

    Raises:
        DamagedTableError: an entry is empty.
        LakeUnreachableError: the storage does not answer.
        LakeRefusedError: it refuses.
    """
    store = store_of(path)
    entries = {version: store.head(entry_of(path, version)) for version in versions}
    empty = [version for version, file in entries.items() if file is not None and file.size == 0]
    if empty:
        raise torn_entries(path, empty)


def _problems(path: str) -> Iterator[str]:
    """What is wrong with the files that a reader of the newest version needs, or else with older ones."""
    names = [file.name for file in store_of(path).files(f"{path}/_delta_log")]
    entries = {number for name in names if (number := entry_number(name)) is not None}
    checkpoints = {int(match[1]): name for name in names if (match := _CHECKPOINT.fullmatch(name))}
    newest, hint = max(checkpoints, default=-1), _hint(path)
    if hint > newest:
        yield f"_delta_log/{hint:020}.checkpoint.parquet is missing"
    elif checkpoints and not is_parquet(f"{path}/_delta_log/{checkpoints[newest]}"):
        yield f"_delta_log/{checkpoints[newest]} is torn"
    begin, end = max(newest, hint) + 1, max(entries, default=-1) + 1
    gaps = sorted(set(range(begin, end)) - entries) or sorted(set(range(min(entries, default=0), end)) - entries)
    yield from (f"{_name(version)} is missing" for version in gaps)
    for version in sorted(entries):
        if version >= begin and not actions_in(store_of(path).get(entry_of(path, version)) or b""):
            yield f"{_name(version)} is torn"


def _hint(path: str) -> int:
    """The version of the last checkpoint, as the log says; -1 where it says nothing."""
    try:
        return int(json.loads(store_of(path).get(f"{path}/_delta_log/_last_checkpoint") or b"{}").get("version", -1))
    except ValueError:  # readers go without it
        return -1


def is_parquet(file: str) -> bool:
    """Whether a file has the end of one of Parquet; of a long one no more is read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with store_of(file).open(file) as content:
            pq.read_metadata(content)
    except (pa.ArrowException, OSError):
        return False
    return True


def _topology_of(path: str) -> str | None:
    """The topology of a published table; None for a path of another table."""
    parent, _, name = path.rpartition("/")
    topology = parent.rpartition("/")[2]
    names = (topology, name)
    is_published = all(_NAME.fullmatch(one) and not _EPOCH.fullmatch(one) for one in names)
    return topology if is_published else None


def _without_a_backup(path: str) -> str:
    """How what the table holds is made again."""
    if table := _OF_AN_EPOCH.search(path):
        return f"Without one, compute it again: kappa replay {table[1]} --execute"
    if "/_archive/" in path:
        return "Without one, the archive is lost. Which others there are: kappa archive status"
    if topology := _topology_of(path):
        return (
            f"Without one, its driver publishes it anew: kappa stop {topology} --execute, remove the folder "
            f"{path}/_delta_log, then: kappa start {topology} --execute"
        )
    return (
        "Without one, build what it is the record of again, in an empty lake: KAPPA_LAKE=<new folder> kappa rebuild "
        "<topology> --from-changelog --execute"
    )
