"""An epoch as its driver holds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from kappa.archive.reader import Archive, Archives
from kappa.errors import LedgerError
from kappa.kafka.registry import Registry
from kappa.names import EpochPaths
from kappa.offsets.vector import OffsetRange, Offsets
from kappa.record.foreign_writes import Watch
from kappa.record.ledger import Ledger
from kappa.slices.input.reader_schemas import Schemas
from kappa.slices.state import TableState
from kappa.topology import Table, Topology

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from kappa.kafka.broker import Broker
    from kappa.kafka.producer import Sender


#: In the detail of commit 0: fingerprint of the key under which the epoch masks values.
MASK = "mask"
#: In the detail of commit 0: the epoch does not know when partitions were idle before its seed.
LOST_RELEASES = "lost_releases"
#: In the detail of commit 0: the epoch does not know all that was set aside before its seed.
LOST_SET_ASIDES = "lost_set_asides"


@dataclass(frozen=True, kw_only=True)
class Engines:
    """What an epoch is computed with, and how large its work is cut.

    Attributes:
        small_slice: largest span of a slice, in offsets, whose parsed records are taken into the driver's memory.
        arrow_rows: most rows of one effect that are written from memory.
        merge_bytes: size of a table's files, in bytes, from which Spark merges it.
        merge_seconds: most time for which a table's changes are not merged into it.
        savepoint_grain: the first commit in each period of this length becomes a savepoint.
        mask_key: key of masked values; empty for none.
        schemas: of records whose values begin with the id of one.
        archives: of the lake that the sources' topics are archived in.
        scratch: folder of this host for what only the process at hand reads; empty for that of temporary files.
        begin: called with the name of each line of the protocol before it begins.
    """

    session: SparkSession
    broker: Broker
    bootstrap_servers: str
    small_slice: int = 50_000
    arrow_rows: int = 500_000
    merge_bytes: int = 256 << 20
    merge_seconds: float = 120.0
    savepoint_grain: timedelta = timedelta(hours=4)
    mask_key: str = field(default="", repr=False)
    schemas: Schemas = field(default_factory=lambda: Schemas("", Registry("")))
    archives: Archives = field(default_factory=lambda: Archives(""))
    scratch: str = ""
    begin: Callable[[str], None] = field(default=lambda _: None)


@dataclass(kw_only=True)
class Sent:
    """What the broker has of an epoch: its sender, and the last marker as that sender found or wrote it.

    Attributes:
        sender: transactional producer; None while the epoch has nothing to send.
        turn: number of the turn in which the epoch sends or sent last, which every marker carries; 0 when it never did.
        seq: slice of the last marker in Kafka; -1 where there is none.
        plan: hash of the plan of the slice that this marker closes; None where it closes none.
        handover: the handover whose differences were sent with that marker, if any were.
    """

    sender: Sender | None = None
    turn: int = 0
    seq: int = -1
    plan: str | None = None
    handover: int | None = None

    def opened(self) -> Sender:
        """The sender.

        Raises:
            LedgerError: the driver has none.
        """
        if self.sender is None:
            raise LedgerError(
                f"Something is to be sent after slice {self.seq}, and the driver has no sender. It opens one before: "
                "start it again",
                seq=self.seq,
            )
        return self.sender


@dataclass(kw_only=True)
class Scratch:
    """What a driver keeps in memory between two lines of the protocol, or two slices. Losing it costs time only.

    Attributes:
        written: rows of the slice at hand that are in memory, by ``outputs/<name>`` or ``changes/<name>``.
        versions: Delta versions that the slice at hand made, by place.
        states: the tables before the next slice, as far as they are in memory.
    """

    written: dict[str, pa.Table] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    states: dict[str, TableState] = field(default_factory=dict)


@dataclass(kw_only=True)
class EpochRun:
    """An epoch as its driver holds it: what it is, and what the slice protocol needs beside it.

    Attributes:
        topology: the code.
        paths: where the epoch is.
        writer: the driver's claim.
        code: content hash of the code.
        ledger: the epoch's ledger, claimed by ``writer``.
        topic_ids: ids of the source topics that the epoch began with.
        engines: what it is computed with.
        bound: source -> the versioned topic of another topology's epoch that is read as it.
        roots: where the epoch begins in offsets of root topics; empty when it is bound to no other.
        archived: the ranges that are read from archives instead of the log, as the epoch's plan says.
        copied: the ledger whose releases its slices take over; None for those of a driver, which says them slice by
            slice.
        lake_id: id of the lake, which every marker carries.
        sent: what the broker has of it.
        scratch: what is kept in memory.
    """

    topology: Topology
    paths: EpochPaths
    writer: str
    code: str
    ledger: Ledger
    topic_ids: Mapping[str, str]
    engines: Engines
    bound: Mapping[str, str] = field(default_factory=dict)
    roots: Offsets = field(default_factory=Offsets)
    archived: tuple[OffsetRange, ...] = ()
    copied: Ledger | None = None
    lake_id: str = ""
    sent: Sent = field(default_factory=Sent)
    scratch: Scratch = field(default_factory=Scratch)

    @cached_property
    def followed(self) -> frozenset[str]:
        """The versioned topics whose frontier is that of a source."""
        sources = (source.topic for source in self.topology.sources if source.follows_upstream)
        return frozenset(self.bound[source] for source in sources if source in self.bound)

    @cached_property
    def watch(self) -> Watch:
        """Looks at commits that another program made in the epoch's Delta tables."""
        return Watch(paths=self.paths)

    def look_at_commits(self, most: Mapping[str, int] | None = None) -> None:
        """Raise where another program wrote into the epoch's Delta tables since the last look.

        Args:
            most: as for :meth:`~kappa.record.foreign_writes.Watch.look`.

        Raises:
            ForeignCommitError: it did.
        """
        committed = self.ledger.state(look=False).committed
        if committed is not None:
            self.watch.look(committed.delta_versions, most)

    def archive(self, topic: str) -> Archive:
        """The archive of a source's topic."""
        return self.engines.archives.of(topic)

    def state(self, table: Table) -> TableState:
        """The rows of a table before the next slice."""
        states = self.scratch.states
        if table.name not in states:
            states[table.name] = TableState(self.engines.session, table)
        return states[table.name]
