"""Leftovers in the lake, on the broker and below home: found by the record of epochs, then removed.

A leftover belongs to an epoch that ended, or to none; never to a live epoch, a candidate or a retired epoch. Everything
stays where the record has no entry for a topology, or might be older than the files and topics. Then the broker is the
only memory, and ``kappa rebuild`` the way out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import psutil

from kappa.acts import Act, Effect, act
from kappa.config import Config
from kappa.control.removals import served_tables
from kappa.control.removals.leftovers import EPOCH_NAME, Fate, Inventory, Judge, Leftover, Present, is_at_work
from kappa.errors import UNREADABLE, ConflictError, LakeUnreachableError
from kappa.faults import crash_point
from kappa.kafka.broker import Broker
from kappa.names import EpochPaths, code_file, epoch_word, epochs_history, plan_file, query_checkpoints
from kappa.presence import heartbeat
from kappa.record import code as code_store
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import epochs_of
from kappa.record.ledger import Ledger
from kappa.replay.stages import Stage
from kappa.store.address import is_remote
from kappa.store.local import LocalStore
from kappa.store.outages import is_outage
from kappa.store.store import StoredFile
from kappa.store.stores import store_of

#: Files younger than this stay: plan and code are written before the record that names them.
GRACE = timedelta(hours=1)
#: The same for events that are rolled up: they are nowhere else then.
_EVENTS_GRACE = timedelta(days=1)

_LOG = re.compile(r"(.+)\.e(\d{4,})\.log")


def find(
    config: Config,
    names: Iterable[tuple[str, str]],
    records: Mapping[str, TopologyRecord],
    last_sender: Callable[[str], int | None],
    maker: Callable[[str, int], str | None],
    lake: str,
    now: Present,
) -> Inventory:
    """All leftovers and their lookalikes. Changes nothing.

    Args:
        names: kind (``topic`` or ``group``) and name of all that is on the broker, listed before the record was read.
        records: what the record of epochs says, by topology.
        last_sender: see :class:`Judge`.
        maker: see there.
        lake: see there.
        now: the present; ages are judged by it.
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
    for folder, topology, number in _epoch_folders(config.lake):
        fate = judge.fate(topology, number)
        files = _sorted_files(folder) if fate.reason else []
        if files or not is_remote(folder):  # programs make objects for folders on S3, which no client of Kappa removes
            put("epoch folder", folder, fate, sum(file.size for file in files))
    for file in _files_like(f"{config.home}/logs/x.log"):
        match = _LOG.fullmatch(file.name)
        fate = judge.fate(match[1], int(match[2])) if match else Fate(is_over=False)
        if fate.is_over and _is_old([file], now.host):
            put("log", file.path, fate, file.size)
    leftovers += _checkpoints(config, records, now)
    leftovers += _recomputations(config, records, now)
    if records:  # without a record nothing tells what is referred to
        leftovers += _files(config, records, now)
    return Inventory(leftovers=tuple(sorted(leftovers)), lookalikes=tuple(sorted(lookalikes)))


@act
def remove(config: Config, leftovers: Iterable[Leftover], now: Present) -> Act[tuple[Leftover, ...]]:
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
        store = store_of(item.name)
        if item.kind in ("epoch folder", "query checkpoint", "recomputation"):
            folder, _, name = item.name.rpartition("/")
            if name.startswith("_"):  # one of its tables, in the folder of a published table
                topology, _, _ = folder.rpartition("/")
                number = int(name.removeprefix("_e"))
                paths = EpochPaths(lake=config.lake, topology=topology.rpartition("/")[2], epoch=number)
                is_gone = served_tables.remove_table(folder, paths)
            else:
                if item.kind == "epoch folder":
                    seal(f"{item.name}/ledger")
                is_gone = store.delete_folder(item.name)
            if is_gone:
                removed.append(item)
        elif item.kind == "code":
            # What a writer left half way is named after code too, with more after it: and no record names that.
            code = item.name.rpartition("/")[2].removesuffix(".zip")
            place = code_file(config.lake, code)
            is_whole = place == item.name
            if not is_whole and store.discard(item.name, now.lake - GRACE):
                removed.append(item)
            if is_whole and code_store.discard(
                config.lake,
                code,
                lambda path: store.discard(path, now.lake - GRACE),
                lambda: code in named_codes(config),
            ):
                removed.append(item)
        elif item.kind == "events":
            if Path(item.name).stem not in _rolled_up(epochs_of(config.lake).records()) and store.discard(
                item.name, now.lake - _EVENTS_GRACE
            ):
                removed.append(item)
        elif store.discard(item.name, (now.lake if item.kind == "plan" else now.host) - GRACE):
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


def seal(ledger: str) -> None:
    """Seal an epoch's ledger before its folder is removed, if there is one that can be read and written.

    Raises:
        LakeUnreachableError: the storage does not answer: a writer that wakes up could go on.
        LakeRefusedError: it refuses.
    """
    try:
        Ledger(ledger).seal()
    except LakeUnreachableError as error:
        if error.__cause__ is None or is_outage(error.__cause__):
            raise
    except UNREADABLE:
        return  # half removed or altered it takes no row of a driver either; on a full disk its removal makes room


def topics_of(paths: EpochPaths, names: Iterable[str]) -> list[str]:
    """The changelogs and markers of an epoch among these topics; not one that only begins like them."""
    form = re.compile(rf"{re.escape(paths.name)}\.(?:[a-z][a-z0-9_]*\.changelog|markers)")
    return [name for name in names if form.fullmatch(name)]


def used_codes(config: Config, records: Iterable[TopologyRecord]) -> set[str]:
    """Content hashes of all code that ran an epoch which has not ended, or whose driver has not.

    Not of epochs that were rolled up: there are ever more of them, and each look at a heartbeat is a request.
    """
    codes: set[str] = set()
    for record in records:
        for epoch in record.recent.values():
            paths = EpochPaths(lake=config.lake, topology=record.topology, epoch=epoch.epoch)
            if epoch.stage.is_ended and not is_at_work(config, paths):
                continue
            codes |= epoch.codes
            with suppress(*UNREADABLE):
                beat = heartbeat.read(paths.heartbeat)
                codes |= {beat.code} if beat else set()
    return codes


def named_codes(config: Config) -> set[str]:
    """The same by the record of epochs of now."""
    return used_codes(config, epochs_of(config.lake).records())


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


def _epoch_folders(lake: str) -> Iterator[tuple[str, str, int]]:
    store = store_of(lake)
    for topology in store.folders(lake):
        if not "a" <= topology[:1] <= "z":
            continue
        for name in store.folders(f"{lake}/{topology}"):
            match = EPOCH_NAME.fullmatch(name)
            if match and name == epoch_word(int(match[1])):
                yield f"{lake}/{topology}/{name}", topology, int(match[1])
                continue
            for folder in store.folders(f"{lake}/{topology}/{name}"):
                match = EPOCH_NAME.fullmatch(folder.removeprefix("_"))
                if match and folder == f"_{epoch_word(int(match[1]))}":
                    yield f"{lake}/{topology}/{name}/{folder}", topology, int(match[1])


def _checkpoints(config: Config, records: Mapping[str, TopologyRecord], now: Present) -> Iterator[Leftover]:
    """Query checkpoints of epochs that have no driver; one that starts makes a new one under another name."""
    for record in records.values():
        for epoch in record.epochs.values():
            paths = EpochPaths(lake=config.lake, topology=record.topology, epoch=epoch.epoch)
            root = query_checkpoints(config.home, paths)
            starts = store_of(root).folders(root)
            if not starts or is_at_work(config, paths):
                continue
            beat_file = store_of(paths.heartbeat).head(paths.heartbeat)
            if beat_file is not None and not _is_old([beat_file], now.lake):
                continue
            for start in starts:
                folder = f"{root}/{start}"
                if _is_old(_with_folder(folder), now.host):
                    yield Leftover(
                        kind="query checkpoint",
                        name=folder,
                        size_bytes=_size(folder),
                        reason=f"of a start of epoch {epoch.epoch} of {record.topology} that ended",
                    )


def _recomputations(config: Config, records: Mapping[str, TopologyRecord], now: Present) -> Iterator[Leftover]:
    """Runs that computed a range again and were killed. The next such run begins anew."""
    for record in records.values():
        for epoch in record.recent.values():
            paths = EpochPaths(lake=config.lake, topology=record.topology, epoch=epoch.epoch)
            if epoch.stage.is_ended:
                continue
            is_building = epoch.stage in (Stage.PLANNED, Stage.REWOUND, Stage.SEEDED)
            root = paths.recomputed("x").lake.rpartition("/")[0]
            for name in store_of(root).folders(root):
                if name in epoch.backfill_folders:
                    continue
                folder = f"{root}/{name}"
                if not _is_old(_with_folder(folder), now.lake):
                    continue
                # A backfill has a process of its own, which beats in its folder; it may wait for hours for cores.
                workers = (paths.recomputed(name), *([paths] if is_building else []))
                if not any(is_at_work(config, worker) for worker in workers):
                    yield Leftover(
                        kind="recomputation",
                        name=folder,
                        size_bytes=_size(folder),
                        reason=f"a second run or backfill of epoch {epoch.epoch} of {record.topology} that was not "
                        "finished",
                    )


def _files(config: Config, records: Mapping[str, TopologyRecord], now: Present) -> Iterator[Leftover]:
    """Plans, code and files of events that no epoch refers to, in the lake and below home."""
    codes = used_codes(config, records.values())
    plans = {
        epoch.planned.detail.get("plan_id")
        for record in records.values()
        for epoch in record.recent.values()
        if not epoch.stage.is_ended
    }
    for kind, example, used in (
        ("plan", plan_file(config.lake, "x"), plans),
        ("code", code_file(config.lake, "x"), codes),
    ):
        for file in _files_like(example):
            if not _is_old([file], now.lake):
                continue
            if file.name.split(".")[0] not in used:
                yield Leftover(kind=kind, name=file.path, reason="no epoch refers to it", size_bytes=file.size)
            elif file.name.endswith(".tmp"):  # a process died while it wrote the file, or moved it aside
                yield Leftover(kind=kind, name=file.path, reason="it was not written to its end", size_bytes=file.size)
    rolled_up = _rolled_up(records.values())
    for file in _files_like(f"{epochs_history(config.lake)}/x.parquet"):
        if Path(file.name).stem not in rolled_up and now.lake - file.modified > _EVENTS_GRACE:
            reason = "of a roll-up of the record of epochs that came to nothing"
            yield Leftover(kind="events", name=file.path, reason=reason, size_bytes=file.size)
    in_use = _running_from(config.home / "code")
    for folder in sorted(config.home.joinpath("code").glob("*")):
        of_folder = LocalStore().head(str(folder))
        if folder.name not in codes | in_use and of_folder is not None and _is_old([of_folder], now.host):
            yield Leftover(
                kind="extracted code",
                name=str(folder),
                reason="no epoch refers to it",
                size_bytes=folder.stat().st_size if folder.is_file() else _size(str(folder)),
            )


def _rolled_up(records: Iterable[TopologyRecord]) -> set[str]:
    """The files that have the events of epochs."""
    return {epoch.rolled_up for record in records for epoch in record.epochs.values()}


def _running_from(folder: Path) -> set[str]:
    """Names below a folder from which a process of this host runs: the home may serve another lake too."""
    names = set()
    for process in psutil.process_iter(["cmdline"]):
        for word in process.info["cmdline"] or ():
            if word.startswith(f"{folder}/"):
                names.add(word.removeprefix(f"{folder}/").partition("/")[0])
    return names


def _sorted_files(folder: str) -> list[StoredFile]:
    return sorted(store_of(folder).files(folder), key=lambda file: file.path)


def _files_like(example: str) -> list[StoredFile]:
    """The files in the folder of an example that have its suffix: those of other programs and in folders below stay.

    A process that died while it wrote one, or moved it aside, leaves it under a longer name.
    """
    folder, suffix = example.rpartition("/")[0], Path(example).suffix
    return [file for file in _sorted_files(folder) if file.path == f"{folder}/{file.name}" and suffix in file.name]


def _with_folder(folder: str) -> list[StoredFile]:
    """The files of a folder, and on a disk itself: one that was just made is not old."""
    itself = store_of(folder).head(folder)
    return [*_sorted_files(folder), *([itself] if itself is not None else [])]


def _is_old(files: Iterable[StoredFile], now: datetime) -> bool:
    """Whether none of some files was written lately, by the clock of where they are."""
    return all(now - file.modified > GRACE for file in files)


def _size(folder: str) -> int:
    return sum(file.size for file in store_of(folder).files(folder))
