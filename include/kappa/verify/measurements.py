"""What replays took, put on record when they are done, so that the next plan of the topology estimates from it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kappa.delta import table_files
from kappa.kafka.broker import Broker
from kappa.kafka.changelogs import changelogs_of, folded_offsets
from kappa.names import EpochPaths
from kappa.record.epoch_record import EpochRecord, TopologyRecord
from kappa.record.ledger import Ledger
from kappa.record.ledger_state import LedgerState
from kappa.record.rollup import runs_of
from kappa.record.slice_runs import Run
from kappa.replay.estimates import Measured, comparison
from kappa.replay.plan import ReplayPlan
from kappa.replay.request import Seed


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What earlier work of a topology took for one record; ``None`` where it was not measured.

    Attributes:
        records_per_second: of the last replay that finished its bulk work.
        records_per_offset: how many offsets were records, in that replay or in the live epoch's slices.
        bytes_per_record: keys and values, in that replay or in the live epoch's slices.
        disk_per_record: what the lake takes, in that replay if its tables began empty, or for the live epoch.
        epoch: the epoch of that replay.
        records: how many records it was measured on.
        live_bytes: what the live epoch's tables and outputs hold.
    """

    records_per_second: float | None = None
    records_per_offset: float | None = None
    bytes_per_record: float | None = None
    disk_per_record: float | None = None
    epoch: int | None = None
    records: int | None = None
    live_bytes: int | None = None


def replayed(paths: EpochPaths, plan: ReplayPlan, state: LedgerState) -> dict[str, Any]:
    """What the bulk work of an epoch was and how far its estimate was off, for the event that ends it."""
    found = measured(paths, runs_of(state), state.commits[-1].delta_versions if state.slices > 0 else {})
    return {
        "estimate": plan.estimate.as_dict(),
        "measured": found.as_dict(),
        "by_estimate": found.ratios(plan.estimate),
    }


def folded(broker: Broker, paths: EpochPaths, plan: ReplayPlan, seconds: float) -> dict[str, Any]:
    """How fast a changelog was folded, for the event that ends a seed; nothing where none was."""
    if plan.seed is not Seed.FROM_CHANGELOG or plan.seed_epoch is None:
        return {}
    topics = changelogs_of(broker, replace(paths, epoch=plan.seed_epoch), plan.tables)
    return {"folded": {"offsets": folded_offsets(broker, topics), "seconds": round(seconds, 3)}}


def measured(paths: EpochPaths, runs: Iterable[Run], delta_versions: Mapping[str, int]) -> Measured:
    """What these slices of an epoch were, the last of which left these versions; the seed is none of them."""
    slices = [run for run in runs if run.facts.seq > 0]
    return Measured(
        offsets=sum(item.count for run in slices for item in run.facts.offsets),
        records=sum(run.facts.rows_read for run in slices),
        seconds=round(sum(run.seconds for run in slices), 3),
        bytes=None if any(run.sized < run.slices for run in slices) else sum(run.bytes_read for run in slices),
        disk_bytes=disk_bytes(paths, delta_versions),
    )


def outcome(epoch: EpochRecord) -> str:
    """What was estimated of an epoch's bulk work and what it was, in one line; empty until it is done."""
    found = _measured_of(epoch)
    if found is None:
        return ""
    return comparison(epoch.plan.estimate, found)


def rates(lake: str, record: TopologyRecord, live_state: LedgerState | None = None) -> Rates:
    """What is known of a topology: from the record, which outlives its epochs, then from ledgers that are still there.

    Args:
        live_state: the ledger of its live epoch.
    """
    live = _live_rates(lake, record, live_state)
    done = [epoch for epoch in record.epochs.values() if epoch.replayed is not None]
    for epoch in sorted(done, key=lambda epoch: epoch.epoch, reverse=True):
        found = _measured_of(epoch) or _from_ledger(EpochPaths(lake=lake, topology=record.topology, epoch=epoch.epoch))
        if found is None or not found.records or not found.seconds:
            continue
        is_from_nothing = epoch.plan.seed is Seed.EMPTY
        disk = found.disk_bytes if is_from_nothing else None
        return replace(
            live,
            records_per_second=found.records / found.seconds,
            records_per_offset=found.records / found.offsets if found.offsets else live.records_per_offset,
            bytes_per_record=live.bytes_per_record if found.bytes is None else found.bytes / found.records,
            disk_per_record=live.disk_per_record if disk is None else disk / found.records,
            epoch=epoch.epoch,
            records=found.records,
        )
    return live


def disk_bytes(paths: EpochPaths, delta_versions: Mapping[str, int]) -> int:
    """What an epoch takes in the lake: its folder, or where that is remote its tables' files at these versions."""
    root = Path(paths.root)
    if not root.is_dir():
        return _held(paths, delta_versions)
    second = Path(paths.recomputed("any").lake).parent  # goes when the epoch has been replayed
    total = 0
    for folder, folders, files in os.walk(root):  # passes over folders that go meanwhile
        folders[:] = [name for name in folders if Path(folder, name) != second]
        total += sum(_size(Path(folder, name)) for name in files)
    return total


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # its driver beats and looks after files during the count
        return 0


def _measured_of(epoch: EpochRecord) -> Measured | None:
    found = epoch.replayed.detail.get("measured") if epoch.replayed is not None else None
    return None if found is None else Measured.from_dict(found)


def _live_rates(lake: str, record: TopologyRecord, state: LedgerState | None) -> Rates:
    if record.live is None or state is None or state.committed is None:
        return Rates()
    held = _held(EpochPaths(lake=lake, topology=record.topology, epoch=record.live), state.committed.delta_versions)
    runs = runs_of(state)
    offsets = sum(item.count for run in runs for item in run.facts.offsets)
    records = sum(run.facts.rows_read for run in runs)
    if not records:
        return Rates(live_bytes=held)
    # A seed's rows came from records that this epoch never read: what they take says nothing of one record.
    is_from_nothing = record.epoch(record.live).plan.seed is Seed.EMPTY
    counted = sum(run.sized_records for run in runs)
    return Rates(
        records_per_offset=records / offsets,
        disk_per_record=held / records if is_from_nothing else None,
        live_bytes=held,
        bytes_per_record=sum(run.bytes_read for run in runs) / counted if counted else None,
    )


def _held(paths: EpochPaths, delta_versions: Mapping[str, int]) -> int:
    return sum(table_files.size_bytes(f"{paths.root}/{place}", version) for place, version in delta_versions.items())


def _from_ledger(paths: EpochPaths) -> Measured | None:
    """Of a replay that earlier code ran, which put no measurement on record."""
    ledger = Ledger(paths.ledger)
    if not ledger.exists():
        return None
    bulk = [run for run in runs_of(ledger.state()) if run.facts.sends == "held" and not run.logged]
    return replace(measured(paths, bulk, {}), disk_bytes=None)  # its folder grew since
