"""The Delta tables of an epoch: listed, created, and brought to the disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kappa import clock
from kappa.delta import tables
from kappa.delta.log_entries import content_hash, sync_commits
from kappa.errors import DataLossError, TopologyError
from kappa.names import EpochPaths
from kappa.record.ledger_rows import LedgerRow
from kappa.replay.rules.log import recreated_topics
from kappa.topology import Topology
from kappa.topology.ddl import Column

if TYPE_CHECKING:
    from kappa.kafka.broker import Broker
    from kappa.slices.run import EpochRun

#: Field of a ledger row.
FILES = "files"


def place_of(topology: Topology, name: str) -> str:
    return f"changes/{name}" if name in {table.name for table in topology.tables} else f"outputs/{name}"


def make_durable(
    paths: EpochPaths, before: Mapping[str, int], versions: Mapping[str, int]
) -> dict[str, dict[str, dict[str, str]]]:
    """Bring an epoch's Delta tables to the disk before a ledger row names their versions: all commits since the last
    row.

    Args:
        before: up to which versions rows name them, see :attr:`~kappa.record.ledger_state.LedgerState.recorded`.
        versions: those that the row will name.

    Returns:
        Detail of the row on the data files of those commits: place -> file -> hash of its content, by which a file
        changed in place is noticed. Empty where there are none.
    """
    files = {}
    for place, version in versions.items():
        added = sync_commits(paths.place(place), range(before.get(place, -1) + 1, version + 1))
        if added:
            files[place] = {name: content_hash(str(file)) for name, file in added.items()}
    return {FILES: files} if files else {}


def record_files(run: EpochRun) -> None:
    """Put on record to which versions tables went between two slices, and what their new data files hold; no row where
    there are none. Published tables show what is on record.

    Raises:
        ForeignCommitError: another program wrote into one of them meanwhile; none is on record then.
        StaleWriterError: another driver claimed the epoch.
    """
    state = run.ledger.state()
    run.watch.look(state.recorded)
    versions = {place: run.watch.looked[place] for place in state.recorded}
    if versions == state.recorded:
        return
    run.ledger.append(
        LedgerRow(
            kind="files",
            seq=state.seq,
            writer=run.writer,
            at=clock.now(),
            code=run.code,
            delta_versions=versions,
            detail=make_durable(run.paths, state.recorded, versions),
        )
    )


def effect_places(topology: Topology) -> list[str]:
    """Places of the Delta tables into which the slices of an epoch write their effects."""
    outputs = [f"outputs/{append.name}" for append in topology.appends]
    return ["dead_letters", *outputs, *(f"changes/{table.name}" for table in topology.tables)]


def create_tables(topology: Topology, paths: EpochPaths) -> None:
    """Create every Delta table of an epoch that does not exist yet."""
    tables.create(paths.dead_letters, tables.DEAD_LETTER)
    for append in topology.appends:
        columns = (tables.SEQ, *append.columns, *tables.LINEAGE)
        tables.create(paths.output(append.name), columns, partition_by=append.partition_by)
    for table in topology.tables:
        loose = [
            Column(name=c.name, type=c.type, nullable=c.name not in table.key, delta=c.delta) for c in table.columns
        ]
        tables.create(paths.changes(table.name), (tables.SEQ, tables.DELETED, *loose))
        tables.create(paths.table(table.name), table.columns)


@contextmanager
def recorded(topic_ids: Mapping[str, str]) -> Iterator[None]:
    """Within, a topic that the broker does not have was deleted where its id is on record.

    Raises:
        DataLossError: it was deleted: whoever creates it again makes another topic.
    """
    try:
        yield
    except TopologyError as error:
        topic = error.data.get("topic", "")
        if topic not in topic_ids:
            raise
        raise DataLossError(
            f"Topic {topic!r} with id {topic_ids[topic]} is not on the broker: it was deleted, or "
            "KAPPA_BOOTSTRAP_SERVERS names another broker. Correct the address if that is wrong. Otherwise do not "
            "create the topic again: it would have another id, and no epoch goes on in it. Every row stays readable. "
            "Deploy the topology under a new name for a new topic, and stop this one: kappa stop <topology> --execute",
            topic=topic,
            recorded=topic_ids[topic],
        ) from error


def check_topics(broker: Broker, topic_ids: Mapping[str, str]) -> None:
    """Raise when a source topic is not the one that the epoch began with.

    Raises:
        DataLossError: it was deleted or recreated.
    """
    with recorded(topic_ids):
        ids = broker.topic_ids(sorted(topic_ids))
    for finding in recreated_topics(topic_ids, ids, "the epoch"):
        raise DataLossError(str(finding), **finding.numbers)
