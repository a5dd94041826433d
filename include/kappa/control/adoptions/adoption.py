"""A first epoch that begins with the tables of another job and goes on where that job stood."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from kappa.acts import Act, act
from kappa.config import Config
from kappa.control.adoptions.job_positions import JobPosition, check_newest, of_checkpoint, of_group
from kappa.control.drivers import start
from kappa.control.plans.existing_tables import existing_table
from kappa.control.replays import plan, replay
from kappa.errors import RefusedError
from kappa.kafka.broker import Broker
from kappa.offsets.vector import Offsets
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
    return lambda config, topology, tables: of_checkpoint(address, tables).only(_topics(config, topology))


def by_group(group: str) -> Position:
    """The position of a consumer group."""

    def position(config: Config, topology: str, tables: Sequence[ExistingTable]) -> JobPosition:
        check_newest(group, tables)
        with Broker(config.bootstrap_servers) as broker:
            return of_group(broker, group, _topics(config, topology))

    return position


def _topics(config: Config, topology: str) -> list[str]:
    return [source.topic for source in registry.load(config.topologies, topology).sources]


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

    For an adoption that is on record already, its own plan.

    Args:
        tables: place -> address and version of the table that it begins with; None for the newest version.
        position: where the job stood.

    Raises:
        RefusedError: the topology has an epoch that is not this adoption; or nobody says where the job stood.
        UsageError: there is no table, or no query checkpoint.
    """
    existing = tuple(existing_table(config.lake, place, *table) for place, table in tables.items())
    stood = position(config, topology, existing)
    adoption = Adoption(tables=existing, offsets=stood.offsets, job=stood.job, state=stood.state, others=stood.others)
    epochs = epochs_of(config.lake)
    record = epochs.record(topology)
    if (on_record := _on_record(record, adoption)) is not None:
        return on_record
    turns.check_not_lost(config, record, epochs.lake_id())
    request = ReplayRequest(
        topology=topology,
        start=ToOffset(offsets=stood.offsets, file=stood.file),
        reason=reason,
        actor=actor,
        allow=frozenset(allow),
        slice_records=config.slice_records,
        adoption=adoption,
    )
    return plan(config, request)


def _on_record(record: TopologyRecord, adoption: Adoption) -> ReplayPlan | None:
    """The plan of this adoption, if it is under way or done; None where the topology has no epoch."""
    numbers = [record.live, record.candidate.epoch if record.candidate is not None else None]
    number = next((number for number in numbers if number is not None), None)
    if number is None:
        return None
    on_record = record.epoch(number).plan
    earlier = on_record.request.adoption
    if earlier is not None and _content(earlier) == _content(adoption):
        return on_record
    was = ""
    if earlier is not None:
        was = f", adopted from {', '.join(table.described for table in earlier.tables)}, at {earlier.job}"
    raise RefusedError(
        f"Topology {record.topology!r} has epoch {number}{was}: a stream is adopted as the first one, once. `kappa "
        "start` goes on with that epoch. Deploy the topology under another name to adopt a table beside a live epoch. "
        f"To give up one that is not live: kappa abort {record.topology} {number} --execute",
        findings=(),
        epoch=number,
    )


def _content(adoption: Adoption) -> tuple[set[tuple[str, str, int, str]], Offsets]:
    """What an adoption takes over: rows, and the place where it goes on."""
    tables = {(table.place, table.address, table.version, table.table_id) for table in adoption.tables}
    return tables, adoption.offsets


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
