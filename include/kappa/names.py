"""Where everything in the lake is."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

#: Kinds of places of which readers get a published table.
SERVED = ("tables", "outputs")


@dataclass(frozen=True, kw_only=True)
class EpochPaths:
    """Paths and Kafka names of one epoch.

    Attributes:
        topology: the topology's name.
        epoch: the epoch's number.
    """

    lake: str
    topology: str
    epoch: int

    @property
    def name(self) -> str:
        """Consumer group, transactional id and prefix of the epoch's topics."""
        return f"{topology_prefix(self.topology)}{epoch_word(self.epoch)}"

    @property
    def root(self) -> str:
        """Folder of the epoch."""
        return f"{self.lake}/{self.topology}/{epoch_word(self.epoch)}"

    @property
    def ledger(self) -> str:
        """The epoch's ledger."""
        return f"{self.root}/ledger"

    @property
    def heartbeat(self) -> str:
        """The driver's heartbeat."""
        return f"{self.root}/heartbeat.json"

    @property
    def notices(self) -> str:
        """Up to which event the receiver of notices has been told."""
        return f"{self.root}/notices.json"

    def environment(self, id: str) -> str:
        """What was installed where a driver of the epoch ran, by its content hash."""
        return f"{self.root}/environments/{id}.json"

    @property
    def dead_letters(self) -> str:
        """Records that did not parse."""
        return f"{self.root}/dead_letters"

    def place(self, place: str) -> str:
        """The Delta table at a place: ``tables/rewards``, ``changes/rewards``, ``outputs/invoices``, ``dead_letters``.

        Tables and outputs lie in the folder of the published table of their name, which names their files.
        """
        kind, _, name = place.partition("/")
        return f"{self.published(name)}/{self.folder}" if kind in SERVED else f"{self.root}/{place}"

    def table(self, name: str) -> str:
        """A table: the newest row of each key."""
        return self.place(f"tables/{name}")

    def changes(self, name: str) -> str:
        """A table's changes, slice by slice."""
        return self.place(f"changes/{name}")

    def output(self, name: str) -> str:
        """An append output."""
        return self.place(f"outputs/{name}")

    @property
    def folder(self) -> str:
        """Folder of one of the epoch's tables or outputs in that of the published table of its name."""
        return f"_{epoch_word(self.epoch)}"

    def published(self, name: str) -> str:
        """The published table of a table or output: at the same path whichever epoch is live."""
        return f"{self.lake}/{self.topology}/{name}"

    def reconciled(self, topic: str) -> str:
        """Rows for a topic when the epoch goes live: those that differ from those of the epoch before."""
        return f"{self.root}/reconciled/{topic}"

    def key_comparisons(self, table: str) -> str:
        """Comparisons of a table with that of the live epoch: the keys whose rows differed."""
        return f"{self.root}/key_comparisons/{table}"

    def recomputed(self, name: str) -> EpochPaths:
        """Where a range is computed again: the same epoch in a small lake within its folder."""
        return EpochPaths(lake=f"{self.root}/recomputed/{name}", topology=self.topology, epoch=self.epoch)

    def changelog(self, table: str) -> str:
        """Changelog topic of a table."""
        return f"{self.name}.{table}.changelog"

    @property
    def markers(self) -> str:
        """Topic of the epoch's markers."""
        return f"{self.name}.markers"

    def versioned(self, topic: str) -> str:
        """The topic of this epoch alone, of a versioned topic output."""
        return versioned_topic(topic, self.epoch)


def query_checkpoints(home: Path, paths: EpochPaths) -> str:
    """Where the starts of an epoch's stream have their scratch: a folder of the driver's host, one per lake."""
    lake = hashlib.sha256(paths.lake.encode()).hexdigest()[:12]
    return f"{home}/query_checkpoints/{lake}/{paths.name}"


def epoch_word(epoch: int) -> str:
    """``e0007`` for 7."""
    return f"e{epoch:04d}"


def versioned_topic(topic: str, epoch: int) -> str:
    """The topic to which one epoch sends what it computes for a versioned topic output."""
    return f"{topic}.{epoch_word(epoch)}"


def topology_prefix(topology: str) -> str:
    """The prefix of the Kafka names of all epochs of a topology."""
    return f"kappa.{topology}."


def epochs_log(lake: str) -> str:
    """The record of all epochs."""
    return f"{lake}/_kappa/epochs"


def epochs_history(lake: str) -> str:
    """The files of events that the record of epochs has no more."""
    return f"{epochs_log(lake)}_history"


def plan_file(lake: str, plan: str) -> str:
    """A plan by its content hash."""
    return f"{lake}/_kappa/plans/{plan}.json"


def code_file(lake: str, code: str) -> str:
    """Code by its content hash."""
    return f"{lake}/_kappa/code/{code}.zip"


def launcher_file(lake: str, host: str) -> str:
    """What a host that starts drivers has."""
    return f"{lake}/_kappa/launchers/{host}.json"


def schemas_of(lake: str, topic: str) -> str:
    """The schemas with which records of a topic were written, by their ids."""
    return f"{lake}/_kappa/schemas/{topic}"


@dataclass(frozen=True, kw_only=True)
class ArchivePaths:
    """Paths of the archive of one topic.

    Attributes:
        topic: the Kafka topic.
    """

    lake: str
    topic: str

    @property
    def root(self) -> str:
        """Folder of the archive."""
        return f"{self.lake}/_archive/{self.topic}"

    @property
    def records(self) -> str:
        """The records, a Delta table partitioned by the topic's partition."""
        return f"{self.root}/records"

    @property
    def ledger(self) -> str:
        """Which ranges of which topic the records are, slice by slice."""
        return f"{self.root}/ledger"

    @property
    def heartbeat(self) -> str:
        """The archiver's heartbeat."""
        return f"{self.root}/heartbeat.json"
