"""Tables and outputs of an epoch that is removed: their folders, and the published tables that show them or did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from kappa.acts import Effect
from kappa.delta.log_state import LogState, state_of
from kappa.delta.publication import shown_by
from kappa.errors import RefusedError
from kappa.faults import crash_point
from kappa.names import EpochPaths
from kappa.record.epoch_record import TopologyRecord
from kappa.store.stores import store_of


def folders_of(paths: EpochPaths) -> list[str]:
    """Folders of an epoch's tables and outputs that are there."""
    return [f"{folder}/{paths.folder}" for folder in _published_folders(paths)]


def remove(paths: EpochPaths) -> None:
    """Remove an epoch's tables and outputs. Idempotent; a crash leaves some of them."""
    for folder in _published_folders(paths):
        store = store_of(folder)
        store.delete_folder(f"{folder}/{paths.folder}")
        store.delete_empty(folder)
        crash_point("removal.tables")


def ends(paths: EpochPaths, record: TopologyRecord) -> tuple[Effect, ...]:
    """What the removal of a retired epoch does to published tables: readers of earlier versions are told.

    A table that no later epoch has ends with the epoch: its log is removed.

    Raises:
        RefusedError: a published table that the live epoch has too shows this one's files still.
    """
    live = None if record.live is None else replace(paths, epoch=record.live)
    effects = []
    for folder in _published_folders(paths):
        state = state_of(folder)
        shown = None if state is None else shown_by(folder, state)
        if state is None or shown is None:
            continue
        has_successor = live is not None and live.folder in store_of(folder).folders(folder)
        if shown.epoch == paths.epoch and has_successor:
            raise RefusedError(
                f"Epoch {paths.epoch} of {paths.topology!r} is not removed: the published table {folder} shows its "
                f"files still, because the driver of live epoch {record.live} has not published since the move. "
                f"Start it, then again: kappa start {paths.topology} --execute",
                findings=(),
                path=folder,
            )
        if shown.epoch == paths.epoch:
            what = f"remove the log of the published table {folder}, which no later epoch has"
            make: Callable[[], None] = partial(store_of(folder).delete_folder, f"{folder}/_delta_log")
        elif (last := _last_removal(state, paths.folder)) is not None:
            what = f"end the versions of the published table {folder} from before {last:%Y-%m-%d %H:%M:%S} UTC"
            make = _nothing
        else:
            continue
        effects.append(Effect(what=what, values={"published": folder, "epoch": paths.epoch}, make=make))
    return tuple(effects)


def _nothing() -> None:
    """The removal of the files is an effect of its own."""


def _last_removal(state: LogState, folder: str) -> datetime | None:
    """When the last file of an epoch left a published table, as far as its log tells."""
    removals = [
        one.get("deletionTimestamp", 0) for path, one in state.tombstones.items() if path.startswith(f"{folder}/")
    ]
    return datetime.fromtimestamp(max(removals) / 1000, UTC) if removals else None


def _published_folders(paths: EpochPaths) -> Iterator[str]:
    """Folders of published tables that have a table of the epoch."""
    root = f"{paths.lake}/{paths.topology}"
    store = store_of(root)
    for name in store.folders(root):
        if paths.folder in store.folders(f"{root}/{name}"):
            yield f"{root}/{name}"
