"""A first epoch that begins with the tables of another job and goes on where that job stood."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from kappa.acts import Act, act
from kappa.config import Config
from kappa.control.adoptions.job_positions import JobPosition, of_checkpoint, of_group
from kappa.control.drivers import start
from kappa.control.plans.existing_tables import existing_table
from kappa.control.replays import plan, replay
from kappa.errors import RefusedError
from kappa.kafka.broker import Broker
from kappa.record.epoch_record import TopologyRecord
from kappa.record.epochs import epochs_of
from kappa.replay.adoption import Adoption, ExistingTable
from kappa.replay.plan import ReplayPlan
from kappa.replay.request import ReplayRequest
from kappa.replay.starts import ToOffset
from kappa.slices.topics import turns
from kappa.topology import registry

#: Gives where the job stood that wrote these tables.
Position = Callable[[Config, str, Sequence[ExistingTable]], JobPosition]


def by_checkpoint(address: str) -> Position:
    """The position of a query of Structured Streaming, by its query checkpoint."""
    return lambda config, topology, tables: of_checkpoint(address, tables)


def by_group(group: str) -> Position:
    """The position of a consumer group."""

    def position(config: Config, topology: str, tables: Sequence[ExistingTable]) -> JobPosition:
        topics = [source.topic for source in registry.load(config.topologies, topology).sources]
        with Broker(config.bootstrap_servers) as broker:
            return of_group(broker, group, topics)

    return position


def by_file(start: ToOffset) -> Position:
    """A position that a file has."""
    stood = JobPosition(offsets=start.offsets, job=f"the offsets of {start.file}", file=start.file)
    return lambda config, topology, tables: stood


def adoption_plan(
    config: Config,
    topology: str,
    tables: Mapping[str, tuple[str, int | None]],
    position: Position,
    *,
    actor: str,
    reason: str,
    allow: Collection[str] = (),
) -> ReplayPlan:
    """What an adoption would do, and objections to it. Changes nothing.

    An adoption that is on record is the answer where it is of the same tables: the job's table may have moved on.

    Args:
        tables: place -> address and version of the table that it begins with; None for the newest version.
        position: where the job stood.

    Raises:
        RefusedError: the topology has an epoch that is not this adoption; or nobody says where the job stood.
        UsageError: there is no table, or no query checkpoint.
    """
    existing = tuple(existing_table(config.lake, place, *table) for place, table in tables.items())
    epochs = epochs_of(config.lake)
    record = epochs.record(topology)
    on_record = _on_record(record, existing, tables)
    if on_record is not None:
        return on_record
    turns.check_not_lost(config, record, epochs.lake_id())
    stood = position(config, topology, existing)
    request = ReplayRequest(
        topology=topology,
        start=ToOffset(offsets=stood.offsets, file=stood.file),
        reason=reason,
        actor=actor,
        allow=frozenset(allow),
        slice_records=config.slice_records,
        adoption=Adoption(tables=existing, offsets=stood.offsets, job=stood.job),
    )
    return plan(config, request)


def _on_record(
    record: TopologyRecord, existing: Sequence[ExistingTable], tables: Mapping[str, tuple[str, int | None]]
) -> ReplayPlan | None:
    """The plan of the adoption that is under way or done; None where the topology has no epoch."""
    numbers = [record.live, record.candidate.epoch if record.candidate is not None else None]
    number = next((number for number in numbers if number is not None), None)
    if number is None:
        return None
    on_record = record.epoch(number).plan
    adoption = on_record.request.adoption
    if adoption is not None and _wishes(adoption.tables, adoption.tables, tables) == _wishes(
        existing, adoption.tables, tables
    ):
        return on_record
    raise RefusedError(
        f"Topology {record.topology!r} has epoch {number}: a stream is adopted as the first one. Deploy the topology "
        "under another name to adopt it beside a live epoch. To give up one that is not live: "
        f"kappa abort {record.topology} {number} --execute",
        findings=(),
        epoch=number,
    )


def _wishes(
    versions: Sequence[ExistingTable], frozen: Sequence[ExistingTable], tables: Mapping[str, tuple[str, int | None]]
) -> list[tuple[str, str, int]]:
    """Tables by place and address; of those without a version that is named, the frozen one counts."""
    at = {table.place: table.version for table in frozen}
    named = {place for place, (_, version) in tables.items() if version is not None}
    return sorted((v.place, v.address, v.version if v.place in named else at.get(v.place, -1)) for v in versions)


@act
def adopt(config: Config, adoption: ReplayPlan, *, actor: str, reason: str) -> Act[int]:
    """Put an adoption on record and start its driver; returns the epoch, which goes live as soon as it is seeded.

    Idempotent: called again after a crash it goes on with what is on record. The tables and the job's files are read
    only.

    Raises:
        RefusedError: the plan is refused, or what it was made from changed since.
    """
    record = epochs_of(config.lake).record(adoption.topology)
    epoch = record.epochs.get(adoption.epoch)
    if epoch is not None and epoch.planned.detail["plan_id"] == adoption.id:
        return start.planned(config, adoption.topology, epoch=adoption.epoch, actor=actor, reason=reason)
    return replay.planned(config, adoption, actor=actor, reason=reason)
