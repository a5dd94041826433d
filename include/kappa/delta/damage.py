"""Files of a Delta table that are missing or torn: they were removed, or cut short, by something other than Kappa."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence

from kappa.errors import DamagedTableError
from kappa.store.stores import store_of

#: Names of files in a table's log, with their versions (Delta's protocol, "Delta Log Entries" and "Checkpoints").
_ENTRY, _CHECKPOINT = re.compile(r"(\d{20})\.json"), re.compile(r"(\d{20})\.checkpoint(?:\..+)?\.parquet")
#: A table of an epoch, and not its ledger: a replay computes it again.
_OF_AN_EPOCH = re.compile(r"/([^/]+)/e\d{4,}/(?!ledger$)")
#: How many files a message names.
_MOST = 3


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


def check_entries(path: str, versions: Iterable[int]) -> None:
    """Refuse a table whose entries of some versions are empty: ``deltalake`` takes them for commits of nothing.

    One request each; entries that are gone were cleaned up.

    Raises:
        DamagedTableError: an entry is empty.
        LakeUnreachableError: the storage does not answer.
        LakeRefusedError: it refuses.
    """
    store = store_of(path)
    entries = {version: store.head(f"{path}/_delta_log/{version:020}.json") for version in versions}
    empty = [version for version, file in entries.items() if file is not None and file.size == 0]
    if empty:
        raise damaged(path, [f"_delta_log/{version:020}.json is torn" for version in empty])


def _problems(path: str) -> Iterator[str]:
    """What is wrong with the files that a reader of the newest version needs, or else with older ones."""
    names = [file.name for file in store_of(path).files(f"{path}/_delta_log")]
    entries = {int(match[1]) for name in names if (match := _ENTRY.fullmatch(name))}
    checkpoints = {int(match[1]): name for name in names if (match := _CHECKPOINT.fullmatch(name))}
    newest, hint = max(checkpoints, default=-1), _hint(path)
    if hint > newest:
        yield f"_delta_log/{hint:020}.checkpoint.parquet is missing"
    elif checkpoints and not is_parquet(f"{path}/_delta_log/{checkpoints[newest]}"):
        yield f"_delta_log/{checkpoints[newest]} is torn"
    begin, end = max(newest, hint) + 1, max(entries, default=-1) + 1
    gaps = sorted(set(range(begin, end)) - entries) or sorted(set(range(min(entries, default=0), end)) - entries)
    yield from (f"_delta_log/{version:020}.json is missing" for version in gaps)
    for version in sorted(entries):
        if version >= begin and not _is_entry(f"{path}/_delta_log/{version:020}.json"):
            yield f"_delta_log/{version:020}.json is torn"


def _hint(path: str) -> int:
    """The version of the last checkpoint, as the log says; -1 where it says nothing."""
    try:
        return int(json.loads(store_of(path).get(f"{path}/_delta_log/_last_checkpoint") or b"{}").get("version", -1))
    except ValueError:  # readers go without it
        return -1


def _is_entry(file: str) -> bool:
    lines = (store_of(file).get(file) or b"").split(b"\n")
    try:
        actions = [json.loads(line) for line in lines if line.strip()]
    except ValueError:
        return False
    return bool(actions)


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


def _without_a_backup(path: str) -> str:
    """How what the table holds is made again."""
    if table := _OF_AN_EPOCH.search(path):
        return f"Without one, compute it again: kappa replay {table[1]} --execute"
    if "/_archive/" in path:
        return "Without one, the archive is lost. Which others there are: kappa archive status"
    return (
        "Without one, build what it is the record of again, in an empty lake: KAPPA_LAKE=<new folder> kappa rebuild "
        "<topology> --from-changelog --execute"
    )
