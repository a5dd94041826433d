"""How readers get the live state: the pointer resolved, and a snapshot that never shows half a slice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kappa.config import Config
from kappa.errors import LedgerError, UsageError
from kappa.names import EpochPaths
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import epochs_of
from kappa.record.ledger import Ledger, commit_of
from kappa.serving.snapshots import Snapshot, snapshot_of
from kappa.serving.sql import run, statement, unknown
from kappa.serving.topic_turns import Turn, topic, turns

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "Answer",
    "Snapshot",
    "Turn",
    "answer",
    "commit_of",
    "resolve",
    "snapshot",
    "snapshot_of",
    "snapshots",
    "sql",
    "topic",
    "turns",
]


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
    return epochs_of(config.lake).record(topology).live_epoch()


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
    return _snapshot(config, epochs_of(config.lake).record(topology), epoch, seq)


def snapshots(config: Config, topologies: Iterable[str]) -> dict[str, Snapshot]:
    """Consistent cuts of the live epochs of several topologies, resolved by one read of the record.

    Topologies that are cut over together are all seen before the move, or all after it. Each snapshot is the last
    commit of its own epoch: between moves the streams run by themselves, and their offsets differ.

    Raises:
        UnknownTopologyError: a topology has no live epoch.

    Examples:
        >>> from kappa import serving
        >>> from kappa.config import Config
        >>> cuts = serving.snapshots(Config.from_env(), ["retail.loyalty"])
        >>> {name: one.epoch for name, one in cuts.items()}
        {'retail.loyalty': 1}
    """
    records = epochs_of(config.lake).records()
    return {name: _snapshot(config, records.of(name), None, None) for name in topologies}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The result of a query.

    Attributes:
        snapshots: topology -> the snapshot that was read.
        batches: the rows, to be read once.

    Examples:
        >>> from kappa import serving
        >>> from kappa.config import Config
        >>> answer = serving.answer(Config.from_env(), "SELECT COUNT(*) AS n FROM retail.loyalty.rewards")
        >>> answer.snapshots["retail.loyalty"].seq, [batch.to_pylist() for batch in answer.batches]
        (2, [[{'n': 2}]])
    """

    snapshots: Mapping[str, Snapshot]
    batches: pa.RecordBatchReader


def sql(
    config: Config, query: str, *, epochs: Mapping[str, int] | None = None, seqs: Mapping[str, int] | None = None
) -> pa.Table:
    """The rows of one SQL query over tables and append outputs, named ``<topology>.<table>``.

    All topologies are resolved by one read of the record, as :func:`snapshots` does it; comparisons of names mind case.

    Args:
        config: where the lake is.
        query: one SELECT, in the SQL of DataFusion.
        epochs: topology -> epoch, where it is not the live one.
        seqs: topology -> slice, where it is not the last committed one.

    Raises:
        UnknownTableError: the query names a table that is not there.
        UnknownTopologyError: a topology has no live epoch.
        UnknownEpochError: as :func:`snapshot`.
        UsageError: it is not a single query, reads something else, or the engine refuses it.

    Examples:
        >>> from kappa import serving
        >>> from kappa.config import Config
        >>> rewards = "SELECT MAX(r.TotalLoyaltyPoints) AS most FROM retail.loyalty.rewards AS r"
        >>> serving.sql(Config.from_env(), rewards).to_pylist()
        [{'most': Decimal('3.0000')}]
        >>> serving.sql(Config.from_env(), rewards, seqs={"retail.loyalty": 1}).to_pylist()
        [{'most': Decimal('2.0000')}]
    """
    return answer(config, query, epochs=epochs, seqs=seqs).batches.read_all()


def answer(
    config: Config, query: str, *, epochs: Mapping[str, int] | None = None, seqs: Mapping[str, int] | None = None
) -> Answer:
    """As :func:`sql`, with the rows as a stream, and with their snapshots.

    Examples:
        >>> from kappa import serving
        >>> from kappa.config import Config
        >>> query = "SELECT CustomerCardNo FROM retail.loyalty.rewards"
        >>> serving.answer(Config.from_env(), query, seqs={"retail.loyalty": 1}).batches.read_all().num_rows
        1
    """
    epochs, seqs, checked = epochs or {}, seqs or {}, statement(query)
    records = epochs_of(config.lake).records()
    topologies, on_record = {name.topology for name in checked.names}, set(records.topologies)
    unread = sorted({*epochs, *seqs} - topologies)
    if unread:
        raise UsageError(f"An epoch or slice is given for {unread}, and the query reads {sorted(topologies)} only.")
    cuts = {
        name: _snapshot(config, records.of(name), epochs.get(name), seqs.get(name))
        for name in sorted(topologies & on_record)
    }
    for name in checked.names:
        if name.topology not in on_record or not cuts[name.topology].has(name.table):
            raise unknown(name, config.lake, records)
    contents = {name: cuts[name.topology].contents(name.table) for name in checked.names}
    try:
        return Answer(snapshots=cuts, batches=run(checked, contents))
    except Exception:
        now = {name: cuts[name.topology].contents_now(name.table) for name in checked.names}
        if now == contents:
            raise
        return Answer(snapshots=cuts, batches=run(checked, now))


def _snapshot(config: Config, record: TopologyRecord, epoch: int | None, seq: int | None) -> Snapshot:
    number = record.readable_epoch(epoch)
    paths = EpochPaths(lake=config.lake, topology=record.topology, epoch=number)
    ledger = Ledger(paths.ledger)
    row = ledger.last_commit()
    if row is None:
        raise LedgerError(f"Epoch {number} of {record.topology!r} has committed nothing yet.", epoch=number)
    return snapshot_of(paths, row if seq in (None, row.seq) else commit_of(paths, ledger.state(), seq))
