"""Measurements of replays, put on record at their end: the next plan of the topology estimates from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kappa.delta import table_files
from kappa.kafka.broker import Broker
from kappa.kafka.changelogs import changelogs_of, folded_offsets
from kappa.names import SERVED, EpochPaths
from kappa.record.epoch_record import EpochRecord, TopologyRecord
from kappa.record.ledger import Ledger
from kappa.record.ledger_state import LedgerState
from kappa.record.rollup import runs_of
from kappa.record.slice_runs import Run
from kappa.replay.estimates import Measured, comparison
from kappa.replay.plan import ReplayPlan
from kappa.replay.request import Seed
from kappa.store.stores import store_of


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Rates of earlier work of a topology; ``None`` where there is no measurement.

    Attributes:
        records_per_second: of the last replay that finished its bulk work.
        records_per_offset: how many offsets were records, in that replay or in the live epoch's slices.
        bytes_per_record: keys and values, in that replay or in the live epoch's slices.
        disk_per_record: bytes in the lake, in that replay if its tables began empty, or for the live epoch.
        epoch: the epoch of that replay.
        records: how many records were measured.
        live_bytes: size of the live epoch's tables and outputs.
    """

    records_per_second: float | None = None
    records_per_offset: float | None = None
    bytes_per_record: float | None = None
    disk_per_record: float | None = None
    epoch: int | None = None
    records: int | None = None
    live_bytes: int | None = None


def replayed(paths: EpochPaths, plan: ReplayPlan, state: LedgerState) -> dict[str, Any]:
    """Measurement and estimate of an epoch's bulk work, for the event that ends it."""
    measurement = measured(paths, runs_of(state), state.commits[-1].delta_versions if state.slices > 0 else {})
    return {
        "estimate": plan.estimate.as_dict(),
        "measured": measurement.as_dict(),
        "by_estimate": measurement.ratios(plan.estimate),
    }


def folded(broker: Broker, paths: EpochPaths, plan: ReplayPlan, seconds: float) -> dict[str, Any]:
    """The speed of a changelog's fold, for the event that ends a seed; empty where there was none."""
    if plan.seed is not Seed.FROM_CHANGELOG or plan.seed_epoch is None:
        return {}
    topics = changelogs_of(broker, replace(paths, epoch=plan.seed_epoch), plan.tables)
    return {"folded": {"offsets": folded_offsets(broker, topics), "seconds": round(seconds, 3)}}


def measured(paths: EpochPaths, runs: Iterable[Run], delta_versions: Mapping[str, int]) -> Measured:
    """The measurement of these slices of an epoch, without the seed; the last of them left these versions."""
    slices = [run for run in runs if run.facts.seq > 0]
    return Measured(
        offsets=sum(item.count for run in slices for item in run.facts.offsets),
        records=sum(run.facts.rows_read for run in slices),
        seconds=round(sum(run.seconds for run in slices), 3),
        bytes=None if any(run.sized < run.slices for run in slices) else sum(run.bytes_read for run in slices),
        disk_bytes=disk_bytes(paths, delta_versions),
    )


def outcome(epoch: EpochRecord) -> str:
    """Estimate and measurement of an epoch's bulk work, in one line; empty until it is done, and long after its end."""
    measurement = _measured_of(epoch)
    if measurement is None or epoch.rolled_up:
        return ""
    return comparison(epoch.plan.estimate, measurement)


def rates(lake: str, record: TopologyRecord, live_state: LedgerState | None = None) -> Rates:
    """The rates of a topology: from the record, which outlives its epochs, then from the remaining ledgers.

    Args:
        live_state: the ledger of its live epoch.
    """
    live = _live_rates(lake, record, live_state)
    epochs = [epoch for epoch in record.epochs.values() if epoch.replayed is not None]
    for epoch in sorted(epochs, key=lambda epoch: epoch.epoch, reverse=True):
        paths = EpochPaths(lake=lake, topology=record.topology, epoch=epoch.epoch)
        past = _measured_of(epoch) or _from_ledger(paths)
        if past is None or not past.records or not past.seconds:
            continue
        is_from_nothing = epoch.seed is Seed.EMPTY
        disk = past.disk_bytes if is_from_nothing else None
        return replace(
            live,
            records_per_second=past.records / past.seconds,
            records_per_offset=past.records / past.offsets if past.offsets else live.records_per_offset,
            bytes_per_record=live.bytes_per_record if past.bytes is None else past.bytes / past.records,
            disk_per_record=live.disk_per_record if disk is None else disk / past.records,
            epoch=epoch.epoch,
            records=past.records,
        )
    return live


def disk_bytes(paths: EpochPaths, delta_versions: Mapping[str, int]) -> int:
    """Bytes of an epoch in the lake: of its folders, or where there are none of its tables' files at these versions."""
    second = paths.recomputed("any").lake.rpartition("/")[0]  # goes when the epoch has been replayed
    folders = [paths.root, *(paths.place(place) for place in delta_versions if place.startswith(SERVED))]
    files = [file for folder in folders for file in store_of(folder).files(folder)]
    sizes = [file.size for file in files if not file.path.startswith(f"{second}/")]
    return sum(sizes) if sizes else _size_of(paths, delta_versions)


def _measured_of(epoch: EpochRecord) -> Measured | None:
    values = epoch.replayed.detail.get("measured") if epoch.replayed is not None else None
    return None if values is None else Measured.from_dict(values)


def _live_rates(lake: str, record: TopologyRecord, state: LedgerState | None) -> Rates:
    if record.live is None or state is None or state.committed is None:
        return Rates()
    size = _size_of(EpochPaths(lake=lake, topology=record.topology, epoch=record.live), state.committed.delta_versions)
    runs = runs_of(state)
    offsets = sum(item.count for run in runs for item in run.facts.offsets)
    records = sum(run.facts.rows_read for run in runs)
    if not records:
        return Rates(live_bytes=size)
    # A seed's rows came from records that this epoch never read: their size is not the size per record.
    is_from_nothing = record.epoch(record.live).seed is Seed.EMPTY
    counted = sum(run.sized_records for run in runs)
    return Rates(
        records_per_offset=records / offsets,
        disk_per_record=size / records if is_from_nothing else None,
        live_bytes=size,
        bytes_per_record=sum(run.bytes_read for run in runs) / counted if counted else None,
    )


def _size_of(paths: EpochPaths, delta_versions: Mapping[str, int]) -> int:
    return sum(table_files.size_bytes(paths.place(place), version) for place, version in delta_versions.items())


def _from_ledger(paths: EpochPaths) -> Measured | None:
    """The measurement of a replay by earlier code, which put none on record."""
    ledger = Ledger(paths.ledger)
    if not ledger.exists():
        return None
    bulk = [run for run in runs_of(ledger.state()) if run.facts.sends == "held" and not run.logged]
    return replace(measured(paths, bulk, {}), disk_bytes=None)  # its folder grew since
