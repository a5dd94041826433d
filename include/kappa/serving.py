"""How readers get the live state: the pointer resolved, and a snapshot that never shows half a slice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from kappa.config import Config
from kappa.errors import LedgerError, UnknownEpochError, UnknownTableError, UnknownTopologyError
from kappa.lake import queries
from kappa.lake.epoch_record import TopologyRecord, record_of
from kappa.lake.epochs import Epochs
from kappa.lake.ledger import Ledger
from kappa.lake.ledger_rows import LedgerRow
from kappa.lake.ledger_state import LedgerState
from kappa.lake.merge_on_read import Contents, contents_of, query, row_of
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets, ranges_end

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The exact Delta version of every table and output after one slice.

    Attributes:
        seq: the slice.
        position: offsets of the log that the rows are made from.
        versions: ``tables/<name>`` or ``outputs/<name>`` -> path and Delta version; of a table that of its last merge.
        tables: table -> what its rows are made of: the merged version, and the changes of slices since.

    Examples:
        >>> from kappa import serving
        >>> from kappa.config import Config
        >>> before = serving.snapshot(Config.from_env(), "retail.loyalty", seq=1)
        >>> before.rows("rewards", "TotalLoyaltyPoints > 1", select="CustomerCardNo").to_pylist()
        [{'CustomerCardNo': 'c1'}]
        >>> before.position.to_json()
        '{"pos":{"0":1}}'
    """

    topology: str
    epoch: int
    seq: int
    position: Offsets
    versions: Mapping[str, tuple[str, int]]
    lake: str = ""
    tables: Mapping[str, Contents] = field(default_factory=dict)

    def has(self, name: str) -> bool:
        """Whether the epoch has a table or append output of that name."""
        return f"tables/{name}" in self.versions or f"outputs/{name}" in self.versions

    def place(self, name: str) -> tuple[str, int]:
        """Path and Delta version of a table or append output.

        Of a table, the rows at that version may lack the changes of the last slices: :meth:`rows` has them,
        :meth:`merged` says up to which slice they are there.

        Raises:
            UnknownTableError: the epoch has none of that name.
        """
        for kind in ("tables", "outputs"):
            if f"{kind}/{name}" in self.versions:
                return self.versions[f"{kind}/{name}"]
        tables, outputs = (
            ", ".join(sorted(place.partition("/")[2] for place in self.versions if place.startswith(f"{kind}/")))
            or "none"
            for kind in ("tables", "outputs")
        )
        raise UnknownTableError(
            f"Epoch {self.epoch} of {self.topology!r} has no table or output {name!r}. Its tables: {tables}; its "
            f"outputs: {outputs}. What a topology keeps and emits is listed by: kappa topologies",
            name=name,
        )

    def merged(self, name: str) -> int:
        """The slice up to which the own Delta version of a table or append output, as of :meth:`place`, has all rows.

        Raises:
            UnknownTableError: the epoch has none of that name.
        """
        self.place(name)
        return self.tables[name].merged if name in self.tables else self.seq

    def rows(
        self,
        name: str,
        where: str | None = None,
        *,
        select: str = "*",
        order_by: str | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """Rows of a table or append output, by an SQL condition.

        Raises:
            UnknownTableError: the epoch has none of that name.
        """
        path, version = self.place(name)
        if name in self.tables:
            return self._read(name, partial(query, select=select, where=where, order_by=order_by, limit=limit))
        return queries.query(path, version, select=select, where=where, order_by=order_by, limit=limit)

    def row(self, name: str, key: str) -> pa.Table:
        """The row of one key of a table, or none; faster than :meth:`rows` where changes are not merged yet.

        Args:
            name: the table.
            key: SQL condition that says the value of each key column.

        Raises:
            UnknownTableError: the epoch has no table of that name.
        """
        self.place(name)
        if name not in self.tables:
            raise UnknownTableError(
                f"{name!r} of epoch {self.epoch} of {self.topology!r} is an append output, which has no key. Read its "
                f"rows: kappa query {self.topology} {name}",
                name=name,
            )
        return self._read(name, partial(row_of, key=key))

    def _read(self, name: str, read: Callable[..., pa.Table]) -> pa.Table:
        """What a table's contents give; a merged version that has gone is read by an older one with more changes."""
        try:
            return read(self.tables[name])
        except Exception:
            found = self._now(name)
            if found == self.tables[name]:
                raise
            return read(found)

    def _now(self, name: str) -> Contents:
        """What the rows are made of by now: where a merged version has gone, an older one with more changes."""
        paths = EpochPaths(lake=self.lake, topology=self.topology, epoch=self.epoch)
        state = Ledger(paths.ledger).state()
        row = next((commit for commit in reversed(state.commits) if commit.seq == self.seq), None)
        if row is None:
            raise UnknownEpochError(
                f"The files of slice {self.seq} of epoch {self.epoch} of {self.topology!r} were cleaned up while they "
                "were read. Take a new snapshot.",
                epoch=self.epoch,
                seq=self.seq,
                savepoints=sorted(state.savepoints),
            )
        return contents_of(paths, state.resolved(row), name)


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A time in which an epoch was live, as readers of one topic output see it.

    They read ``topic`` from ``start`` to ``end`` and go on with the next turn. Turns joined hold the output for each
    input record once, made by the epoch that was live at its offset.

    Attributes:
        topic: the topic that it sends to; None when it has none of that name.
        start: next offset to read of each partition, empty for the beginning; None where the turn goes on in the topic
            of the turn before.
        end: offset before which to stop; None where the next turn goes on in the same topic, or there is none yet.

    Examples:
        >>> from kappa.offsets.vector import Offsets
        >>> first = Turn(epoch=1, topic="scores.e0001", start=Offsets(), end=Offsets({"scores.e0001": {0: 40}}))
        >>> first.end.get("scores.e0001", 0)
        40
    """

    epoch: int
    topic: str | None
    start: Offsets | None
    end: Offsets | None


def topic(config: Config, topology: str, name: str) -> str:
    """The topic to which the live epoch sends a topic output: of a versioned one that of the epoch.

    Raises:
        UnknownTopologyError: the topology has no live epoch, or that epoch no such topic output.

    Examples:
        >>> from kappa import serving
        >>> from kappa.config import Config
        >>> serving.topic(Config.from_env(), "retail.loyalty", "loyalty")
        'loyalty'
    """
    epoch = Epochs(config.lake).record(topology).epoch(resolve(config, topology))
    found = epoch.topic(name)
    if found is None:
        raise UnknownTopologyError(
            f"Epoch {epoch.epoch} of {topology!r} has no topic {name!r}; it sends to {list(epoch.sends_to)}.", name=name
        )
    return found


def turns(config: Config, topology: str, name: str) -> tuple[Turn, ...]:
    """Which epoch's topic holds a topic output for which part of history, oldest turn first; the last one goes on.

    Raises:
        UnknownTopologyError: as :func:`topic`.

    Examples:
        >>> from kappa import serving
        >>> from kappa.config import Config
        >>> [(turn.epoch, turn.topic) for turn in serving.turns(Config.from_env(), "retail.loyalty", "loyalty")]
        [(1, 'loyalty')]
    """
    topic(config, topology, name)
    record = Epochs(config.lake).record(topology)
    places = [move.detail.get("topics", {}).get(name) for move in record.moves]
    return tuple(
        Turn(
            epoch=move.epoch,
            topic=record.epoch(move.epoch).topic(name),
            start=Offsets.from_json(place["to"]) if place else None,
            end=Offsets.from_json(after["from"]) if after else None,
        )
        for move, place, after in zip(record.moves, places, [*places[1:], None], strict=True)
    )


def resolve(config: Config, topology: str) -> int:
    """The live epoch.

    Raises:
        UnknownTopologyError: the topology has no live epoch.

    Examples:
        >>> from kappa import serving
        >>> from kappa.config import Config
        >>> serving.resolve(Config.from_env(), "retail.loyalty")
        1
    """
    return Epochs(config.lake).record(topology).live_epoch()


def snapshot(config: Config, topology: str, *, epoch: int | None = None, seq: int | None = None) -> Snapshot:
    """A consistent cut of an epoch: everything as it was after one slice.

    Args:
        config: where the lake is.
        epoch: None for the live one.
        seq: the slice; None for the last committed one.

    Raises:
        UnknownTopologyError: the topology has no live epoch.
        UnknownEpochError: the epoch does not exist, or has no such slice.

    Examples:
        >>> from kappa import serving
        >>> from kappa.config import Config
        >>> now = serving.snapshot(Config.from_env(), "retail.loyalty")
        >>> now.epoch, now.seq
        (1, 2)
        >>> now.rows("rewards", order_by="CustomerCardNo").to_pylist()[0]
        {'CustomerCardNo': 'c1', 'TotalLoyaltyPoints': Decimal('2.0000')}
    """
    return _snapshot(config, Epochs(config.lake).record(topology), epoch, seq)


def snapshots(config: Config, topologies: Iterable[str]) -> dict[str, Snapshot]:
    """Consistent cuts of the live epochs of several topologies, resolved by one read of the record.

    Of topologies that are cut over together all are seen before the move, or all after it. Each snapshot is the last
    commit of its own epoch: between moves the streams run by themselves, and their offsets differ.

    Raises:
        UnknownTopologyError: a topology has no live epoch.

    Examples:
        >>> from kappa import serving
        >>> from kappa.config import Config
        >>> found = serving.snapshots(Config.from_env(), ["retail.loyalty"])
        >>> {name: one.epoch for name, one in found.items()}
        {'retail.loyalty': 1}
    """
    events = Epochs(config.lake).events()
    return {name: _snapshot(config, record_of(name, events), None, None) for name in topologies}


def _snapshot(config: Config, record: TopologyRecord, epoch: int | None, seq: int | None) -> Snapshot:
    chosen = record.live_epoch() if epoch is None else record.epoch(epoch).epoch
    paths = EpochPaths(lake=config.lake, topology=record.topology, epoch=chosen)
    ledger = Ledger(paths.ledger)
    row = ledger.last_commit()
    if row is None:
        raise LedgerError(f"Epoch {chosen} of {record.topology!r} has committed nothing yet.", epoch=chosen)
    return snapshot_of(paths, row if seq in (None, row.seq) else commit_of(paths, ledger.state(), seq))


def commit_of(paths: EpochPaths, state: LedgerState, seq: int) -> LedgerRow:
    """A commit of an epoch whose files can be read.

    Raises:
        UnknownEpochError: the epoch has no such slice, or its files were cleaned up.

    Examples:
        >>> from kappa import serving
        >>> from kappa.config import Config
        >>> from kappa.lake.ledger import Ledger
        >>> from kappa.names import EpochPaths
        >>> paths = EpochPaths(lake=Config.from_env().lake, topology="retail.loyalty", epoch=1)
        >>> serving.commit_of(paths, Ledger(paths.ledger).state(), 1).seq
        1
    """
    topology, epoch, commits = paths.topology, paths.epoch, state.commits
    found = [commit for commit in commits if commit.seq == seq]
    is_rolled = state.rolled is not None and commits[0].seq < seq <= state.rolled.detail["seq"]
    if not found and not is_rolled:
        raise UnknownEpochError(
            f"Epoch {epoch} of {topology!r} has no slice {seq}; it has {commits[0].seq} to {commits[-1].seq}.",
            epoch=epoch,
            seq=seq,
        )
    if not found or not state.is_readable(seq):
        raise UnknownEpochError(
            f"The files of slice {seq} of epoch {epoch} of {topology!r} were cleaned up. Readable are "
            f"{sorted(state.savepoints)} and all from {state.readable_from} on; KAPPA_KEEP_MINUTES and "
            "KAPPA_SAVEPOINT_HOURS say how long.",
            epoch=epoch,
            seq=seq,
            readable_from=state.readable_from,
            savepoints=sorted(state.savepoints),
        )
    return state.resolved(found[-1])


def snapshot_of(paths: EpochPaths, row: LedgerRow) -> Snapshot:
    """The cut of an epoch that one of its commits names.

    Examples:
        >>> from kappa import serving
        >>> from kappa.config import Config
        >>> from kappa.lake.ledger import Ledger
        >>> from kappa.names import EpochPaths
        >>> paths = EpochPaths(lake=Config.from_env().lake, topology="retail.loyalty", epoch=1)
        >>> serving.snapshot_of(paths, serving.commit_of(paths, Ledger(paths.ledger).state(), 1)).seq
        1
    """
    return Snapshot(
        topology=paths.topology,
        epoch=paths.epoch,
        seq=row.seq,
        position=ranges_end(row.ranges),
        lake=paths.lake,
        versions={
            name: (f"{paths.root}/{name}", version)
            for name, version in row.delta_versions.items()
            if name.startswith(("tables/", "outputs/"))
        },
        tables={
            name: contents_of(paths, row, name)
            for kind, _, name in (place.partition("/") for place in row.delta_versions)
            if kind == "tables"
        },
    )
