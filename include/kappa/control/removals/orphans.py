"""Leftovers in the lake, on the broker and below home: found by the record of epochs, then removed.

A leftover belongs to an epoch that ended, or to none; never to a live epoch, a candidate or a retired epoch. Everything
stays where the record has no entry for a topology, or might be older than the files and topics. Then the broker is the
only memory, and ``kappa rebuild`` the way out.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import psutil

from kappa.acts import Act, Effect, act
from kappa.config import Config
from kappa.control.removals.leftovers import EPOCH_NAME, Fate, Inventory, Judge, Leftover, is_at_work
from kappa.errors import ConflictError
from kappa.faults import crash_point
from kappa.kafka.broker import Broker
from kappa.names import EpochPaths, code_file, epoch_word, plan_file
from kappa.presence import heartbeat
from kappa.record.epoch_record import TopologyRecord
from kappa.replay.stages import Stage

#: Files younger than this stay: plan and code are written before the record that names them.
GRACE = timedelta(hours=1)

_LOG = re.compile(r"(.+)\.e(\d{4,})\.log")


def find(
    config: Config,
    names: Iterable[tuple[str, str]],
    records: Mapping[str, TopologyRecord],
    last_sender: Callable[[str], int | None],
    maker: Callable[[str, int], str | None],
    lake: str,
    now: datetime,
) -> Inventory:
    """All leftovers and their lookalikes. Changes nothing.

    Args:
        names: kind (``topic`` or ``group``) and name of all that is on the broker, listed before the record was read.
        records: what the record of epochs says, by topology.
        last_sender: see :class:`Judge`.
        maker: see there.
        lake: see there.
    """
    judge = Judge(config, records, last_sender, maker, lake)
    leftovers: list[Leftover] = []
    lookalikes: list[Leftover] = []

    def put(kind: str, name: str, fate: Fate, size: int | None) -> None:
        if fate.reason:
            item = Leftover(kind=kind, name=name, reason=fate.reason, size_bytes=size)
            (leftovers if fate.is_over else lookalikes).append(item)

    own = _own_topics(records)
    for kind, name in names:
        if kind == "topic" and name in own:
            put(kind, name, judge.fate_of_topic(own[name]), None)
        elif _is_named(name):
            put(kind, name, judge.fate_of_name(name), None)
    for folder, topology, number in _epoch_folders(config):
        put("epoch folder", str(folder), judge.fate(topology, number), _size(folder))
    for file in sorted(config.home.joinpath("logs").glob("*.log")):
        match = _LOG.fullmatch(file.name)
        fate = judge.fate(match[1], int(match[2])) if match else Fate(is_over=False)
        if fate.is_over and _is_old(file, now):
            put("log", str(file), fate, _size(file))
    leftovers += _checkpoints(config, records, now)
    leftovers += _recomputations(config, records, now)
    if records:  # without a record nothing tells what is referred to
        leftovers += _files(config, records, now)
    return Inventory(leftovers=tuple(sorted(leftovers)), lookalikes=tuple(sorted(lookalikes)))


@act
def remove(config: Config, leftovers: Iterable[Leftover], now: datetime) -> Act[tuple[Leftover, ...]]:
    """Remove leftovers of a moment ago; returns those that were removed.

    Idempotent: what is gone already is passed over. A crash leaves some of it, which the next call finds.
    """
    items = list(leftovers)
    removed: list[Leftover] = []

    def topics(of: list[Leftover]) -> None:
        with Broker(config.bootstrap_servers) as broker:
            broker.delete_topics(item.name for item in of)
        removed.extend(of)

    def group(item: Leftover) -> None:
        with Broker(config.bootstrap_servers) as broker, suppress(ConflictError):  # a consumer reads under that name
            broker.delete_group(item.name)
            removed.append(item)

    def local(item: Leftover) -> None:
        if item.kind in ("epoch folder", "query checkpoint", "recomputation"):
            shutil.rmtree(item.name, ignore_errors=True)
            removed.append(item)
        elif discard(Path(item.name), now):
            removed.append(item)

    named = [item for item in items if item.kind == "topic"]
    # Markers last: they say which lake made the others.
    markers = [item for item in named if item.name.endswith(".markers")]
    effects = [
        Effect(
            what=f"delete topics {', '.join(item.name for item in of)}",
            values={"leftovers": of},
            make=partial(topics, of),
        )
        for of in ([item for item in named if item not in markers], markers)
        if of
    ]
    for item in sorted(items, key=lambda item: item.kind != "group"):
        if item.kind != "topic":
            make = group if item.kind == "group" else local
            effects.append(
                Effect(what=f"remove {item.kind} {item.name}", values={"leftovers": [item]}, make=partial(make, item))
            )
    return Act(effects=tuple(effects), outcome=lambda: tuple(removed))


def remove_from_broker(broker: Broker, paths: EpochPaths, own: Iterable[str] = ()) -> None:
    """Remove an epoch's topics, also those under names of its ``own``, and its group. Idempotent."""
    present = broker.topics()
    named = topics_of(paths, present)
    # Markers last: they say which lake made the others.
    broker.delete_topics([*(name for name in named if name != paths.markers), *(set(own) & set(present))])
    crash_point("removal.topics")
    broker.delete_topics(name for name in named if name == paths.markers)
    if paths.name in broker.groups(paths.name):
        broker.delete_group(paths.name)


def topics_of(paths: EpochPaths, names: Iterable[str]) -> list[str]:
    """The changelogs and markers of an epoch among these topics; not one that only begins like them."""
    form = re.compile(rf"{re.escape(paths.name)}\.(?:[a-z][a-z0-9_]*\.changelog|markers)")
    return [name for name in names if form.fullmatch(name)]


def discard(path: Path, now: datetime) -> bool:
    """Remove a file or folder that is older than the grace period; whether it is gone.

    Moved aside first, then looked at again: a process that needs the same content at that moment either touched it
    before, and it is put back, or finds it missing and writes it anew.
    """
    aside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return True
    if not _is_old(aside, now) and not path.exists():
        aside.rename(path)
        return False
    if aside.is_dir():
        shutil.rmtree(aside, ignore_errors=True)
    else:
        aside.unlink(missing_ok=True)
    return True


def used_codes(config: Config, records: Iterable[TopologyRecord]) -> set[str]:
    """Content hashes of all code that ran an epoch which has not ended, or whose driver has not."""
    codes = set()
    for record in records:
        for epoch in record.epochs.values():
            paths = EpochPaths(lake=config.lake, topology=record.topology, epoch=epoch.epoch)
            if epoch.stage.is_ended and not is_at_work(config, paths):
                continue
            beat = heartbeat.read(paths.heartbeat)
            codes |= {*epoch.codes, *([beat.code] if beat else [])}
    return codes


def _is_named(name: str) -> bool:
    parts = name.split(".")
    return parts[0] == "kappa" and any(EPOCH_NAME.fullmatch(part) for part in parts[2:])


def _own_topics(records: Mapping[str, TopologyRecord]) -> dict[str, list[tuple[str, int]]]:
    """Topic -> the epochs that made it for themselves."""
    owners: dict[str, list[tuple[str, int]]] = {}
    for topology, record in records.items():
        for epoch in record.epochs.values():
            for name in epoch.topics.values():
                owners.setdefault(name, []).append((topology, epoch.epoch))
    return owners


def _epoch_folders(config: Config) -> Iterator[tuple[Path, str, int]]:
    for folder in sorted(Path(config.lake).glob("[a-z]*/e*")):
        match = EPOCH_NAME.fullmatch(folder.name)
        if match and folder.is_dir() and folder.name == epoch_word(int(match[1])):
            yield folder, folder.parent.name, int(match[1])


def _checkpoints(config: Config, records: Mapping[str, TopologyRecord], now: datetime) -> Iterator[Leftover]:
    """Query checkpoints of epochs that have no driver; one that starts makes a new one under another name."""
    for record in records.values():
        for epoch in record.epochs.values():
            paths = EpochPaths(lake=config.lake, topology=record.topology, epoch=epoch.epoch)
            beat = heartbeat.read(paths.heartbeat)
            if epoch.stage.is_ended or is_at_work(config, paths) or (beat is not None and now - beat.at < GRACE):
                continue
            for folder in sorted(Path(paths.query_checkpoint("x")).parent.glob("*")):
                if _is_old(folder, now):
                    yield Leftover(
                        kind="query checkpoint",
                        name=str(folder),
                        size_bytes=_size(folder),
                        reason=f"of a start of epoch {epoch.epoch} of {record.topology} that ended",
                    )


def _recomputations(config: Config, records: Mapping[str, TopologyRecord], now: datetime) -> Iterator[Leftover]:
    """Runs that computed a range again and were killed. The next such run begins anew."""
    for record in records.values():
        for epoch in record.epochs.values():
            paths = EpochPaths(lake=config.lake, topology=record.topology, epoch=epoch.epoch)
            if epoch.stage.is_ended:
                continue
            backfill_folders = {event.detail["folder"] for event in epoch.backfills}
            is_building = epoch.stage in (Stage.PLANNED, Stage.REWOUND, Stage.SEEDED)
            for folder in sorted(Path(paths.recomputed("x").lake).parent.glob("*")):
                if folder.name in backfill_folders:  # its rows wait for the live epoch's driver
                    continue
                if not all(_is_old(path, now) for path in (folder, *folder.rglob("*"))):
                    continue
                # A backfill has a process of its own, which beats in its folder; it may wait for hours for cores.
                workers = (paths.recomputed(folder.name), *([paths] if is_building else []))
                if not any(is_at_work(config, worker) for worker in workers):
                    yield Leftover(
                        kind="recomputation",
                        name=str(folder),
                        size_bytes=_size(folder),
                        reason=f"a second run or backfill of epoch {epoch.epoch} of {record.topology} that was not "
                        "finished",
                    )


def _files(config: Config, records: Mapping[str, TopologyRecord], now: datetime) -> Iterator[Leftover]:
    """Plans and code that no epoch refers to, in the lake and below home."""
    codes = used_codes(config, records.values())
    plans = {
        epoch.planned.detail.get("plan_id")
        for record in records.values()
        for epoch in record.epochs.values()
        if not epoch.stage.is_ended
    }
    for kind, pattern, used in (
        ("plan", plan_file(config.lake, "*"), plans),
        ("code", code_file(config.lake, "*"), codes),
    ):
        # A process that died while it wrote a file, or moved one aside, leaves it under a longer name.
        for file in sorted(Path(pattern).parent.glob(f"{Path(pattern).name}*")):
            if file.name.split(".")[0] not in used and _is_old(file, now):
                yield Leftover(kind=kind, name=str(file), reason="no epoch refers to it", size_bytes=_size(file))
            elif file.suffix == ".tmp" and _is_old(file, now):
                yield Leftover(
                    kind=kind, name=str(file), reason="it was not written to its end", size_bytes=_size(file)
                )
    in_use = _running_from(config.home / "code")
    for folder in sorted(config.home.joinpath("code").glob("*")):
        if folder.name not in codes | in_use and _is_old(folder, now):
            yield Leftover(
                kind="extracted code", name=str(folder), reason="no epoch refers to it", size_bytes=_size(folder)
            )


def _running_from(folder: Path) -> set[str]:
    """Names below a folder from which a process of this host runs: the home may serve another lake too."""
    names = set()
    for process in psutil.process_iter(["cmdline"]):
        for word in process.info["cmdline"] or ():
            if word.startswith(f"{folder}/"):
                names.add(word.removeprefix(f"{folder}/").partition("/")[0])
    return names


def _is_old(path: Path, now: datetime) -> bool:
    try:
        return now.timestamp() - path.stat().st_mtime > GRACE.total_seconds()
    except FileNotFoundError:
        return False


def _size(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    total = 0
    for file in files:
        try:
            total += file.stat().st_size
        except FileNotFoundError:  # a driver or another housekeeping removed it
            continue
    return total
