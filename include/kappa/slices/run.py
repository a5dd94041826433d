"""An epoch as its driver holds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from kappa.archive.reader import Archive
from kappa.lake.foreign_commits import Watch
from kappa.lake.ledger import Ledger
from kappa.names import EpochPaths
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.slices.state import TableState
from kappa.topology import Table, Topology

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker
    from kappa.kafka.producer import Sender


@dataclass(kw_only=True)
class EpochRun:
    """An epoch as its driver holds it: everything that the protocol needs.

    Attributes:
        topology: the code.
        paths: where the epoch is.
        writer: the driver's claim.
        code: content hash of the code.
        ledger: the epoch's ledger, claimed by ``writer``.
        session: Spark.
        broker: Kafka's administration.
        sender: transactional producer, None while the epoch has nothing to send.
        bootstrap_servers: Kafka brokers.
        topic_ids: ids of the source topics that the epoch began with.
        bound: source -> the versioned topic of another topology's epoch that is read as it.
        roots: where the epoch begins in offsets of root topics; empty when it is bound to no other.
        archived: the ranges that are read from archives instead of the log, as the epoch's plan says.
        small_slice: largest span of a slice whose parsed records are taken into the driver's memory.
        arrow_rows: most rows of one effect that are written from memory.
        savepoint_grain: the first commit in each period of this length becomes a savepoint.
        fold_seconds: most time for which a table's changes are not merged into it.
        lake_id: id of the lake, which every marker carries.
        turn: number of the turn in which the epoch sends or sent last, which every marker carries.
        marker_seq: slice of the last marker in Kafka.
        marker_plan: hash of the plan of the slice that this marker closes; None where it closes none.
        marker_handover: the handover whose differences were sent with that marker, if any were.
        written: rows of the slice at hand that are in memory, by ``outputs/<name>`` or ``changes/<name>``.
        states: the tables before the next slice, as far as they are in memory.
        archives: archives that were read, by topic.
        begin: told of each line of the protocol before it begins.
    """

    topology: Topology
    paths: EpochPaths
    writer: str
    code: str
    ledger: Ledger
    session: SparkSession
    broker: Broker
    bootstrap_servers: str
    topic_ids: Mapping[str, str]
    bound: Mapping[str, str] = field(default_factory=dict)
    roots: Offsets = field(default_factory=Offsets)
    archived: tuple[OffsetRange, ...] = ()
    small_slice: int = 50_000
    arrow_rows: int = 500_000
    fold_seconds: float = 120.0
    savepoint_grain: timedelta = timedelta(hours=4)
    sender: Sender | None = None
    lake_id: str = ""
    turn: int = 0
    marker_seq: int = -1
    marker_plan: str | None = None
    marker_handover: int | None = None
    written: dict[str, pa.Table] = field(default_factory=dict)
    states: dict[str, TableState] = field(default_factory=dict)
    archives: dict[str, Archive] = field(default_factory=dict)
    begin: Callable[[str], None] = field(default=lambda _: None)

    @cached_property
    def watch(self) -> Watch:
        """Looks at commits that another program made in the epoch's Delta tables."""
        return Watch(paths=self.paths)

    def look_at_commits(self) -> None:
        """Raise where another program wrote into the epoch's Delta tables since the last look.

        Raises:
            ForeignCommitError: it did.
        """
        committed = self.ledger.state().committed
        if committed is not None:
            self.watch.look(committed.delta_versions)

    def archive(self, topic: str) -> Archive:
        """The archive of a source's topic."""
        if topic not in self.archives:
            self.archives[topic] = Archive(self.paths.lake, topic)
        return self.archives[topic]

    def state(self, table: Table) -> TableState:
        """The rows of a table before the next slice."""
        if table.name not in self.states:
            self.states[table.name] = TableState(self.session, table)
        return self.states[table.name]
