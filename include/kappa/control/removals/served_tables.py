"""Tables and outputs of an epoch that is removed: their folders, and the published tables that show them or did."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from kappa.acts import Effect
from kappa.delta.access import is_table
from kappa.delta.log_state import state_of
from kappa.errors import DamagedTableError, LedgerError, RefusedError
from kappa.faults import crash_point
from kappa.names import EpochPaths
from kappa.record.epoch_record import TopologyRecord
from kappa.serving.published_tables import shown_now
from kappa.store.stores import store_of

#: Time between two looks at published tables.
_LOOK_SECONDS = 0.5


def awaited(paths: EpochPaths, record: TopologyRecord, seconds: float) -> tuple[Effect, ...]:
    """The wait until no published table shows an epoch that is about to be removed; none where none does.

    It ends in a refusal where the driver of the live epoch does not publish.

    Args:
        paths: of the epoch.
        record: the topology's.
        seconds: longest time of the wait.
    """

    def wait() -> None:
        deadline = time.monotonic() + seconds
        while folders := _unmoved(paths, record):
            if time.monotonic() > deadline:
                raise RefusedError(
                    f"Epoch {paths.epoch} of {paths.topology!r} is not removed: the published table {folders[0]} shows "
                    f"its files still, because the driver of live epoch {record.live} has not published since the "
                    f"move. Start it, then again: kappa start {paths.topology} --execute",
                    findings=(),
                    path=folders[0],
                )
            time.sleep(_LOOK_SECONDS)

    if not (folders := _unmoved(paths, record)):
        return ()
    return (
        Effect(
            what=f"wait until {', '.join(folders)} {'show' if len(folders) > 1 else 'shows'} live epoch {record.live}",
            values={"published": folders, "epoch": record.live},
            make=wait,
        ),
    )


def _unmoved(paths: EpochPaths, record: TopologyRecord) -> list[str]:
    """Published tables that show an epoch still, though the live epoch has the table too."""
    if record.live is None:
        return []
    live = replace(paths, epoch=record.live).folder
    folders = [folder for folder in _published_folders(paths) if live in store_of(folder).folders(folder)]
    return [folder for folder in folders if _shown_epoch(folder) == paths.epoch]


def consequences(paths: EpochPaths) -> str:
    """The end of published tables, and of versions of them, with an epoch's files; for people, empty without any."""
    ended, versions = [], []
    for folder in _published_folders(paths):
        if _shown_epoch(folder) == paths.epoch:
            ended.append(folder)
        elif removals := _removals(folder, paths):
            last = datetime.fromtimestamp(max(removals) / 1000, UTC)
            versions.append(f"{folder} from before {last:%Y-%m-%d %H:%M:%S} UTC")
    parts = [
        f"{what} {', '.join(places)}"
        for what, places in (("the published tables", ended), ("the versions of the published tables", versions))
        if places
    ]
    return f"; with them {' and '.join(parts)}" if parts else ""


def remove(paths: EpochPaths) -> bool:
    """Remove an epoch's tables and outputs; whether they are gone. Idempotent; a crash leaves some of them."""
    are_gone = [remove_table(folder, paths) for folder in _published_folders(paths)]
    return all(are_gone)


def remove_table(folder: str, paths: EpochPaths) -> bool:
    """Remove an epoch's table, and first the log of its published table where it names the files that go.

    Idempotent; a crash leaves some of it. The newest entry of the log goes last: while there is any, it says which
    epoch the table shows.

    Args:
        folder: of the published table.
        paths: of the epoch.

    Returns:
        Whether it is gone.
    """
    store, epoch = store_of(folder), _shown_epoch(folder)
    others = [name for name in store.folders(folder) if name not in (paths.folder, "_delta_log")]
    if epoch == paths.epoch or (not others and not is_table(folder)):
        store.delete_folder(f"{folder}/_delta_log")
    is_gone = store.delete_folder(f"{folder}/{paths.folder}")
    store.delete_empty(folder)
    crash_point("removal.tables")
    return is_gone


def _shown_epoch(folder: str) -> int | None:
    """The epoch that a published table shows, by its newest entry; None where there is none, or it is damaged."""
    try:
        shown = shown_now(folder)
    except (DamagedTableError, LedgerError):
        return None
    return None if shown is None else shown.epoch


def _removals(folder: str, paths: EpochPaths) -> list[int]:
    """When files of an epoch left a published table that shows another one; of those that its log knows."""
    try:
        state = state_of(folder, has_statistics=False)
    except (DamagedTableError, LedgerError):
        return []
    return [at for path, at in state.tombstones.items() if path.startswith(f"{paths.folder}/")] if state else []


def _published_folders(paths: EpochPaths) -> Iterator[str]:
    """Folders of published tables that have a table of the epoch."""
    root = f"{paths.lake}/{paths.topology}"
    store = store_of(root)
    for name in store.folders(root):
        if paths.folder in store.folders(f"{root}/{name}"):
            yield f"{root}/{name}"
