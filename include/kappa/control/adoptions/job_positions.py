"""Where another job stood in the log: by its query checkpoint, or by its consumer group."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from kappa.control.plans.existing_tables import batch_of
from kappa.errors import RefusedError, UnknownGroupError
from kappa.kafka.broker import Broker
from kappa.offsets.query_checkpoint import batch_held, batches_of, end_offsets
from kappa.offsets.vector import Offsets
from kappa.replay.adoption import ExistingTable
from kappa.store.address import table_address
from kappa.store.stores import store_of


@dataclass(frozen=True, kw_only=True)
class JobPosition:
    """Where a job stood.

    Attributes:
        offsets: next offset of every partition that it had not read.
        job: who says so, in words.
        file: the file that has the offsets; None where no file has them.
        state: the folder in which it kept state beside its tables; empty where it kept none, or nobody knows.
    """

    offsets: Offsets
    job: str
    file: str | None = None
    state: str = ""

    def only(self, topics: Collection[str]) -> JobPosition:
        """The position in these topics."""
        others = sorted(set(self.offsets.topics) - set(topics))
        if not others:
            return self
        job = f"{self.job} (its offsets in {', '.join(others)} are left out)"
        return replace(self, offsets=self.offsets.only(topics), job=job)


def of_checkpoint(address: str, tables: Sequence[ExistingTable]) -> JobPosition:
    """Where a query of Structured Streaming stood when it wrote these versions of its tables.

    Raises:
        UsageError: there is no query checkpoint.
        RefusedError: it does not say where the query stood, or not of a source that is Kafka.
    """
    path = table_address(address)
    store = store_of(path)
    begun, done = ([file.name for file in store.files(f"{path}/{folder}")] for folder in ("offsets", "commits"))
    batches = batches_of(path, store.get(f"{path}/metadata"), begun, done)
    # One table may be there in two versions, for two of the topology's tables.
    held = {f"{table.address}@{table.version}": batch_of(table, batches.query) for table in tables}
    batch = batch_held(batches, held, is_newest=all(table.is_newest for table in tables))
    file = f"{path}/offsets/{batch}"
    has_state = next(iter(store.files(f"{path}/state")), None) is not None
    return JobPosition(
        offsets=end_offsets(file, store.get(file)),
        job=f"the end of batch {batch} of {path}",
        file=file,
        state=f"{path}/state" if has_state else "",
    )


def check_newest(group: str, tables: Sequence[ExistingTable]) -> None:
    """Refuse an older version of a table: a broker has the offsets of a group as of now, and none of the past.

    Raises:
        RefusedError: a table has a newer version.
    """
    older = [table for table in tables if not table.is_newest]
    if older:
        versions = ", ".join(f"{table.described}, and version {table.newest} is the newest" for table in older)
        raise RefusedError(
            f"Consumer group {group!r} has its offsets of today, which are not those of {versions}: records in between "
            "would be lost. Adopt the newest version, or write the offsets of the older one to a file: --from-file.",
            findings=(),
            group=group,
        )


def of_group(broker: Broker, group: str, topics: Collection[str]) -> JobPosition:
    """Where a consumer group stood in these topics.

    Raises:
        UnknownGroupError: the group has no offsets in them.
        RefusedError: the group has members, or no offset in a partition.
    """
    if members := broker.group_member_names(group):
        raise RefusedError(
            f"Consumer group {group!r} has {len(members)} members ({', '.join(members)}): the old job still runs. Stop "
            "it, then adopt its table.",
            findings=(),
            group=group,
        )
    committed = broker.group_offsets(group)
    position = JobPosition(offsets=committed, job=f"the offsets of consumer group {group}").only(topics)
    if not len(position.offsets):
        raise UnknownGroupError(
            f"Consumer group {group!r} has no offsets in {', '.join(sorted(topics))}: `kappa offsets --group {group}` "
            "shows where it stands. Correct the name, or write the offsets to a file: --from-file.",
            group=group,
        )
    begins = {at: offset for at, offset in broker.low_watermarks(sorted(topics)).items() if at not in position.offsets}
    if begins:
        missing = [f"{topic}[{partition}]" for topic, partition in begins]
        lines = " ".join(f"{topic},{partition},{offset}" for (topic, partition), offset in begins.items())
        raise RefusedError(
            f"Consumer group {group!r} has no offset for {', '.join(missing)}, and none is guessed: it read nothing "
            "there, or the broker forgot it. Write all offsets to a file. If nothing was read there, its lines are "
            f"those with which the log begins, {lines}: --from-file.",
            findings=(),
            group=group,
            partitions=missing,
        )
    return position
