"""Where another job stood in the log: by its query checkpoint, or by its consumer group."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from kappa.control.plans.existing_tables import batch_of
from kappa.delta.commits import commits_down_from
from kappa.errors import RefusedError, UnknownGroupError
from kappa.kafka.broker import Broker
from kappa.offsets.query_checkpoint import Batches, batch_held, batches_of, end_offsets
from kappa.offsets.vector import Offsets
from kappa.replay.adoption import ExistingTable
from kappa.store.address import table_address
from kappa.store.stores import store_of

#: How much later than the job's own files its commits may seem: two clocks write these times, one in whole seconds.
_CLOCKS = timedelta(minutes=1)
_TIME = "%Y-%m-%d %H:%M:%S UTC"


@dataclass(frozen=True, kw_only=True)
class JobPosition:
    """Where a job stood.

    Attributes:
        offsets: next offset of every partition that it had not read.
        job: who says so, in words.
        file: the file that has the offsets; None where no file has them.
        state: the folder in which it kept state beside its tables; empty where it kept none, or nobody knows.
        others: which commits of the tables it did not make, in words; empty where there are none, or nobody knows.
    """

    offsets: Offsets
    job: str
    file: str | None = None
    state: str = ""
    others: str = ""

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
    begun, done = (
        {file.name: file.modified for file in store.files(f"{path}/{folder}")} for folder in ("offsets", "commits")
    )
    batches = batches_of(path, store.get(f"{path}/metadata"), begun, done)
    # One table may be there in two versions, for two of the topology's tables.
    held = {f"{table.address}@{table.version}": batch_of(table, batches.query) for table in tables}
    batch = batch_held(batches, held, is_newest=all(table.is_newest for table in tables))
    file = f"{path}/offsets/{batch}"
    ended = done.get(str(batches.last))
    others = [_others(table, held[f"{table.address}@{table.version}"], batches, ended) for table in tables]
    has_state = next(iter(store.files(f"{path}/state")), None) is not None
    return JobPosition(
        offsets=end_offsets(file, store.get(file)),
        job=f"the end of batch {batch} of {path}",
        file=file,
        state=f"{path}/state" if has_state else "",
        others="; ".join(filter(None, dict.fromkeys(others))),
    )


def _others(table: ExistingTable, batch: int | None, batches: Batches, ended: datetime | None) -> str:
    """The newest commit of a table that its query did not make, in words; empty where there is none, or nobody knows.

    Args:
        table: a version of it.
        batch: the last batch of the query that its log names; None where it names none.
        batches: those of the query checkpoint.
        ended: when its last batch was committed, by the clock of the store.
    """
    is_later = True
    for commit in commits_down_from(table.address, table.version):
        own = commit.transactions.get(batches.query)
        named = "".join(f" of query {query}, batch {number}" for query, number in commit.transactions.items())
        words = f"version {commit.version} of {table.address} is a {commit.operation}{named}"
        if own is not None:
            is_later = False
            if own <= batches.first:
                break
        elif not commit.changes_rows:
            continue
        elif batch is None:  # no commit names its batch: only its time tells that it is of no batch
            is_after = ended is not None and commit.at is not None and commit.at > ended + _CLOCKS
            return f"{words} of {commit.at:{_TIME}}, and batch {batches.last} ended {ended:{_TIME}}" if is_after else ""
        elif is_later or commit.transactions:
            return words
    if is_later and batch is not None:
        return f"the log of {table.address} no longer has the commit of batch {batch}, or what came after it"
    return ""


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
        RefusedError: the group has members, or may have, or no offset in a partition.
    """
    members = broker.group_member_names(group)
    if members:
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
    if members is None:
        raise RefusedError(
            f"Kafka's client does not describe group {group!r}, as one of Kafka Streams with group.protocol=streams: "
            "whether the old job still runs is not known. Stop it, look by kafka-streams-groups.sh, and write the "
            "offsets to a file: --from-file.",
            findings=(),
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
