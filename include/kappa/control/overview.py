"""The topologies and epochs on record, and their progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches

from kappa.config import Config
from kappa.control import approval
from kappa.control.drivers import stuck_reason
from kappa.control.profile import described
from kappa.delta import table_files
from kappa.driver.processes.process import DriverStatus, status_or_problem
from kappa.errors import UNREADABLE, UnknownEpochError, UnknownTopologyError
from kappa.names import EpochPaths
from kappa.offsets.vector import ranges_end
from kappa.record.epoch_record import EpochRecord, TopologyRecord
from kappa.record.epochs import epochs_of
from kappa.record.events import Event
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.record.moves import others_of
from kappa.replay.plan import ReplayPlan
from kappa.replay.proof.certificate import Certificate
from kappa.replay.proof.verdict import DiffReport
from kappa.replay.rules.cutover import can_take_over
from kappa.replay.stages import Stage
from kappa.serving.history import Entry, entries
from kappa.serving.published_tables import ServedTable, of_record
from kappa.topology import registry
from kappa.topology.times import event_time
from kappa.topology.times.event_time import LATE_RECORDS
from kappa.verify.attestation import attested_if_reachable
from kappa.verify.certificate import certificate_of
from kappa.verify.measurements import outcome


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far an epoch is.

    Attributes:
        stage: the stage it reached.
        done: offsets processed of the plan's bulk work.
        total: offsets of the plan's bulk work.
        records_per_second: rate of the last slice.
        seconds_left: of the bulk work, at that rate.
        verdict: of the verification, once there is one.
        is_live: whether readers get this epoch.
        is_caught_up: whether it follows the live epoch and can take over.
        is_wanted: whether its driver should be running.
        driver: its driver.
        outcome: what was estimated of its bulk work and what it was, once that is done.
        rejected: actor and time of its rejection; empty for one that was not.
        is_recalled: whether it was retired and is being brought back.
        is_released: whether somebody ended its way back.
        event_time: how far its event time has come and which partition is behind; empty for sources without one.
        rows_late: rows of ``late_records``.
        last_slice: its number, records, and seconds by line of the protocol; empty where none was timed.
        problem: why its ledger or its plan cannot be read: it is lost, damaged, or of newer code; empty if it can.
    """

    topology: str
    epoch: int
    stage: Stage
    done: int
    total: int
    records_per_second: float | None
    seconds_left: float | None
    verdict: str | None
    is_live: bool
    is_caught_up: bool
    is_wanted: bool
    driver: DriverStatus
    outcome: str = ""
    rejected: str = ""
    is_recalled: bool = False
    is_released: bool = False
    event_time: str = ""
    rows_late: int = 0
    last_slice: str = ""
    problem: str = ""

    @property
    def doing(self) -> str:
        """What is being done, how far it is, and the stage that it comes after; one line."""
        now = self.rejected or self.driver.message or self.driver.state
        share = f", {percent(self.done, self.total)} % of the plan's range" if self.done < self.total else ""
        rate = f", {self.records_per_second:,.0f} records/s" if share and self.records_per_second else ""
        time_left = f", {self.seconds_left:.0f} s left" if self.seconds_left else ""
        return f"epoch {self.epoch}: {now}{share}{rate}{time_left}; reached {self.stage}"

    @property
    def message(self) -> str:
        """One line for people."""
        rate = f", {self.records_per_second:,.0f} records/s" if self.records_per_second else ""
        share = f" {percent(self.done, self.total)} %" if self.total else ""
        time_left = f", {self.seconds_left:.0f} s left" if self.seconds_left else ""
        doing = self.rejected or self.driver.message or self.driver.state
        return f"epoch {self.epoch} {self.stage}{share}{rate}{time_left}: {doing}"


@dataclass(frozen=True, kw_only=True)
class TopologyStatus:
    """A topology and its epochs.

    Attributes:
        owner: the team or person whom the code of the live epoch's driver names, or of the newest epoch's where none is
            live; empty where it names none.
        epochs: progress of each epoch, oldest first.
        moving_with: topology -> epoch of those that go live together with its candidate, while that is pending.
        moved_with: topology -> epoch of those that went live together with its live epoch.
        topics: topic output -> the live epoch's versioned topic, for those that are versioned.
        reads: epoch -> the versioned topics of other topologies that it reads, of epochs that have not ended.
        published: how its published tables stand to the live epoch; None where that was not looked at.
    """

    topology: str
    live: int | None
    epochs: tuple[Progress, ...]
    moving_with: Mapping[str, int] = field(default_factory=dict)
    moved_with: Mapping[str, int] = field(default_factory=dict)
    topics: Mapping[str, str] = field(default_factory=dict)
    reads: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    published: tuple[ServedTable, ...] | None = None
    owner: str = field(init=False, default="")

    def __post_init__(self) -> None:
        shown = [one for one in self.epochs if one.epoch == self.live] or list(self.epochs[-1:])
        object.__setattr__(self, "owner", shown[0].driver.owner if shown else "")


def record(config: Config, topology: str, *, age_seconds: float = 0.0) -> TopologyRecord:
    """The record of a topology: the same object as before unless something new of it is on record.

    Args:
        age_seconds: how old the look may be that it is of.
    """
    return epochs_of(config.lake).records(age_seconds=age_seconds).of(topology)


def check_name(config: Config, *topologies: str) -> None:
    """Refuse names that no topology has, deployed or on record.

    Raises:
        UnknownTopologyError: there is none of that name; the message has the nearest.
    """
    names = {item.name for item in registry.declarations(config.topologies)}
    names |= set(epochs_of(config.lake).topologies())
    for name in topologies:
        if name not in names and not registry.is_in_broken_file(config.topologies, name):
            near = get_close_matches(name.lower(), names, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else "See those that are there: kappa topologies"
            raise UnknownTopologyError(
                f"No topology {name!r} is deployed in {config.topologies} or on record. {hint}", name=name
            )


def progress(config: Config, topology: str, epoch: int) -> Progress:
    """How far an epoch is; costs about 10 ms.

    Raises:
        UnknownEpochError: there is no such epoch.
    """
    topology_record = record(config, topology)
    return _progress(config, topology_record, topology_record.epoch(epoch))


def status(config: Config, topology: str, *, has_tables: bool = False) -> TopologyStatus:
    """A topology's epochs and their drivers; those that ended long ago are in its :func:`history`.

    Args:
        has_tables: whether published tables are looked at too, which is two requests for each.
    """
    record = epochs_of(config.lake).record(topology)
    epochs = {number: _progress_or_problem(config, record, one) for number, one in sorted(record.recent.items())}
    return TopologyStatus(
        topology=topology,
        live=record.live,
        moving_with=others_of(topology, record.handover),
        moved_with=others_of(topology, record.last_move),
        epochs=tuple(epochs.values()),
        topics=record.epoch(record.live).topics if record.live is not None else {},
        reads={
            number: tuple(sorted(binding.topic for binding in epoch.bound.values()))
            for number, epoch in sorted(record.recent.items())
            if not epochs[number].problem and not epoch.stage.is_ended and epoch.bound
        },
        published=_published(config, record) if has_tables else None,
    )


def percent(done: float, total: float) -> int:
    """A share, full only when nothing is left.

    Examples:
        >>> percent(999, 1000), percent(1000, 1000), percent(0, 0)
        (99, 100, 100)
    """
    return 100 if done >= total else int(100 * done / total)


def diff(config: Config, topology: str, epoch: int | None = None) -> DiffReport:
    """The report of an epoch's last verification, by default the candidate's or the live one's.

    Raises:
        UnknownEpochError: the epoch has not been verified.
    """
    epochs = epochs_of(config.lake)
    record = epochs.record(topology)
    number = epoch if epoch is not None else record.default_epoch
    target = record.epoch(number) if number is not None else None
    if target is not None and target.rolled_up:
        target = epochs.whole_record(topology).epoch(target.epoch)
    if target is None or target.verified is None:
        raise UnknownEpochError(
            f"Epoch {number} of {topology!r} has not been verified: there is no difference to show.", epoch=number
        )
    return DiffReport.from_json(target.verified.detail["report"])


def certify(config: Config, topology: str) -> Certificate:
    """Certify which offsets the served tables are a view of, and that exactly one epoch sent each; Kafka is asked too.

    What is stuck is not complete.

    Raises:
        UnknownTopologyError: the topology has no live epoch.
    """
    record = epochs_of(config.lake).record(topology)
    live = record.live_epoch()
    certificate = attested_if_reachable(certificate_of(config.lake, record), config, topology)
    reason = stuck_reason(record, live)
    if not reason:
        return certificate
    problem = f"Epoch {live} is stuck, and reads no further: {reason}"
    return replace(certificate, complete=False, problems=(*certificate.problems, problem))


def history(config: Config, topology: str | None = None) -> list[Event]:
    """Every event on record, oldest first."""
    return epochs_of(config.lake).history(topology)


def chronicle(
    config: Config, topology: str | None = None, *, epoch: int | None = None, since: datetime | None = None
) -> tuple[Entry, ...]:
    """Every move and decision on record, oldest first, with plans, offsets, verdicts, reports and certificates.

    Args:
        topology: of this topology; None for all.
        epoch: of epochs of this number.
        since: from this time on.
    """
    return entries(epochs_of(config.lake).history(topology), topology=topology, epoch=epoch, since=since)


def _published(config: Config, record: TopologyRecord) -> tuple[ServedTable, ...]:
    """Published tables; none while ledger or plan of the live epoch cannot be read, which its progress says."""
    try:
        return of_record(config, record)
    except UNREADABLE:
        return ()


def _progress_or_problem(config: Config, record: TopologyRecord, epoch: EpochRecord) -> Progress:
    """The same where the ledger or the plan cannot be read, with the reason and without their facts."""
    try:
        return _progress(config, record, epoch)
    except UNREADABLE as error:
        return replace(_without_files(config, record, epoch), problem=str(error))


def _progress(config: Config, record: TopologyRecord, epoch: EpochRecord) -> Progress:
    progress = _without_files(config, record, epoch)
    paths = EpochPaths(lake=config.lake, topology=record.topology, epoch=epoch.epoch)
    row = Ledger(paths.ledger).last_commit()
    late = row.delta_versions.get(f"outputs/{LATE_RECORDS}") if row else None
    done, total = (0, 0) if epoch.rolled_up else _offsets_done(epoch.plan, row)
    rate = progress.records_per_second
    return replace(
        progress,
        done=done,
        total=total,
        outcome=outcome(epoch),
        seconds_left=(total - done) / rate if rate and done < total else None,
        event_time=reached_event_time(row) if row else "",
        last_slice=_last_slice(row) if row else "",
        rows_late=0 if late is None else table_files.count(paths.output(LATE_RECORDS), late),
    )


def _without_files(config: Config, record: TopologyRecord, epoch: EpochRecord) -> Progress:
    """What the record and the driver say of an epoch."""
    driver = status_or_problem(config, record.topology, epoch.epoch)
    return Progress(
        topology=record.topology,
        epoch=epoch.epoch,
        stage=epoch.stage,
        done=0,
        total=0,
        records_per_second=driver.records_per_second if driver.is_running else None,
        seconds_left=None,
        verdict=epoch.verified.detail["verdict"] if epoch.verified else None,
        is_live=record.live == epoch.epoch,
        is_caught_up=can_take_over(epoch.stage, is_recalled=epoch.is_recalled),
        is_wanted=epoch.is_wanted,
        driver=driver,
        rejected=approval.described(epoch.rejected) if epoch.rejected is not None and not epoch.stage.is_ended else "",
        is_recalled=epoch.is_recalled,
        is_released=_is_released(record, epoch.epoch),
    )


def _is_released(record: TopologyRecord, epoch: int) -> bool:
    ways = [e.event for e in record.recent_events if e.epoch == epoch and e.event in ("recalled", "released", "moved")]
    return ways[-1:] == ["released"]


def _offsets_done(plan: ReplayPlan, row: LedgerRow | None) -> tuple[int, int]:
    return plan.start.processed(ranges_end(row.ranges) if row else plan.start, plan.end)


def reached_event_time(row: LedgerRow) -> str:
    """How far the event times of an epoch's sources have come after a commit, in one line."""
    return event_time.described(row.stream_times, {one.at: one.count for one in row.ranges}, row.releases)


def _last_slice(row: LedgerRow) -> str:
    if "seconds" not in row.detail:
        return ""
    return f"slice {row.seq} of {row.rows_read:,} records: {described(row.detail['seconds'])}"
