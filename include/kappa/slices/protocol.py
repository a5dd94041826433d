"""The slice protocol: how one slice goes from planned to committed.

Five lines in this order; a crash between any two is repaired by starting again:

1. ``plan``: the ranges and whether the slice sends, on record. If it is there, it is obeyed.
2. ``effects``: the step's rows written once, then an ``effects`` row with their Delta versions.
3. ``send``: one Kafka transaction with topic outputs, changelog, marker and the group's offsets, if the plan says so.
4. ``apply``: the changes of several slices folded into the tables, when it is time (:mod:`kappa.slices.merging`).
5. ``commit``: counts and the Delta version of everything, on record.

This module is the only caller of a topology's step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kappa import clock
from kappa.archive.reader import Archive
from kappa.errors import DisagreementError, LedgerError, MiscountedError, TopologyError
from kappa.faults import crash_point
from kappa.kafka.encoding import changelog_records, marker_record, topic_records
from kappa.kafka.producer import Record
from kappa.lake import tables
from kappa.lake.foreign_commits import Watch
from kappa.lake.fsync import sync_commits
from kappa.lake.ledger import Ledger, LedgerRow, LedgerState, Sends, plan_hash
from kappa.lake.merge_on_read import FOLDED, contents_of
from kappa.names import EpochPaths
from kappa.offsets.coverage import common
from kappa.offsets.vector import OffsetRange, Offsets, ranges_as_dict, ranges_end
from kappa.slices.effects import collect, conformed, shared, with_seq
from kappa.slices.merging import fold, is_due, unfolded
from kappa.slices.reading import Counts, Reading, archived_ranges, is_small
from kappa.slices.state import TableState
from kappa.spark.pickling import send_by_value
from kappa.spark.session import is_too_large, tune
from kappa.topology import ORDER, Slice, Table, Topic, Topology
from kappa.topology.ddl import Column
from kappa.topology.shapes import shapes_as_dict, shapes_of, tables_only

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

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
        bound: source -> the own topic of another topology's epoch that is read as it.
        roots: where the epoch begins in offsets of root topics; empty when it is bound to no other.
        archived: the ranges that are read from archives instead of the log, as the epoch's plan says.
        small_slice: largest span of a slice whose parsed records are taken into the driver's memory.
        arrow_rows: most rows of one effect that are written from memory.
        savepoint_grain: the first commit in each period of this length becomes a savepoint.
        fold_seconds: most time for which a table's changes are not folded into it.
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


def run_slice(
    run: EpochRun, ranges: Sequence[OffsetRange], *, sends: Sends, logged: bool, raw: DataFrame | None = None,
    roots: Offsets | None = None,
) -> LedgerRow:  # fmt: skip
    """Take one slice from planned to committed.

    Idempotent: whatever part of the slice is there already is used as it is. When the ledger holds a plan that was not
    committed, that one is finished with its own ranges and ``ranges`` must be the same.

    Args:
        run: the epoch.
        ranges: offset ranges, one for each partition of each source.
        sends: which topic outputs are to be sent.
        logged: whether changelog and marker are written.
        raw: the records, when Spark has read them already; otherwise they are read here, from archives where the run says so.
        roots: where the slice ends in offsets of root topics, for an epoch that reads own topics of others.

    Returns:
        The commit row.

    Raises:
        StaleWriterError: another driver claimed the epoch.
        LedgerError: the ranges do not join the last commit.
        DataLossError: records of the ranges are no longer in the log.
    """
    run.look_at_commits()
    state = run.ledger.state()
    plan = state.open_plan or plan_slice(run, state, ranges, sends=sends, logged=logged, roots=roots)
    if tuple(plan.ranges) != tuple(ranges):
        raise LedgerError(f"Slice {plan.seq} is planned with other ranges; finish it first.", seq=plan.seq)
    return finish_slice(run, plan, raw=raw)


def plan_slice(
    run: EpochRun, state: LedgerState, ranges: Sequence[OffsetRange], *, sends: Sends, logged: bool, roots: Offsets | None = None
) -> LedgerRow:  # fmt: skip
    """Line 1: put the ranges of the next slice on record.

    Raises:
        LedgerError: the ranges do not begin where the last commit ended.
    """
    begins = {(r.topic, r.partition): r.start for r in ranges}
    for (topic, partition), start in begins.items():
        expected = state.position.get(topic, partition) or 0
        if start != expected:
            raise LedgerError(
                f"Slice would read {topic}[{partition}] from {start}, the last commit ended at {expected}.",
                topic=topic,
                partition=partition,
            )
    if sends == "live" and state.is_yielded:
        raise LedgerError("The epoch has yielded: it may not plan a slice that sends.")
    row = run.ledger.append(
        LedgerRow(
            kind="plan",
            seq=state.seq + 1,
            writer=run.writer,
            at=clock.now(),
            ranges=tuple(ranges),
            sends=sends,
            logged=logged,
            code=run.code,
            detail={**archived_detail(common(ranges, run.archived)), **roots_detail(roots)},
        )
    )
    crash_point("plan", row.seq)
    return row


def finish_slice(run: EpochRun, plan: LedgerRow, *, raw: DataFrame | None = None) -> LedgerRow:
    """Lines 2 to 5 for a planned slice; see :func:`run_slice`."""
    run.look_at_commits()
    state = run.ledger.state()
    run.begin(f"effects of slice {plan.seq}")
    effects = state.open_effects or write_effects(run, plan, state, raw)
    if plan.logged or plan.sends != "held":
        run.begin(f"send of slice {plan.seq}")
        send_effects(run, plan, effects)
    run.begin(f"apply of slice {plan.seq}")
    apply_changes(run, plan, effects)
    run.begin(f"commit of slice {plan.seq}")
    return commit_slice(run, plan, effects)


def write_effects(run: EpochRun, plan: LedgerRow, state: LedgerState, raw: DataFrame | None) -> LedgerRow:
    """Line 2: call the step and write its rows, each table's in one commit; then the ``effects`` row.

    A crash in between leaves some tables written; the step is then called again on the same input and only the others
    are written.
    """
    committed = state.committed
    assert committed is not None
    check_topics(run.broker, run.topic_ids)
    before = {
        table.name: run.state(table).frame(contents_of(run.paths, committed, table.name))
        for table in run.topology.tables
    }
    run.ledger.check_claim(run.writer)
    in_memory = is_small(plan.ranges, run.small_slice)
    tune(run.session, is_small=in_memory)
    archives = archives_of(run, plan)
    begun = ranges_end(state.commits[0].ranges)
    with Reading(
        run.session, run.bootstrap_servers, run.topology.sources, plan, committed, raw, archives=archives, begun=begun,
        bound=run.bound, small_slice=run.small_slice,
    ) as reading:  # fmt: skip
        effects = call_step(run.topology, plan.seq, reading.records, before)
        kept = [] if reading.is_small else shared(list(effects.values()))
        reading.hold(kept)
        frames = conformed(run.topology, effects)
        reading.count_aside()
        rows = rows_in_memory(run, plan, frames, in_one_job=in_memory or not kept)
        tables.append(run.paths.dead_letters, reading.dead_letters(), plan.seq, plan_hash(plan))
        crash_point("effects.dead_letters", plan.seq)
        run.written = write_frames(run, plan, frames, rows)
        counts = reading.counts()
    check_topics(run.broker, run.topic_ids)
    _check_counts(run, plan, state, counts)
    names = [*(f"outputs/{a.name}" for a in run.topology.appends), *(f"changes/{t.name}" for t in run.topology.tables)]
    versions = {name: tables.version(f"{run.paths.root}/{name}") for name in [*names, "dead_letters"]}
    make_durable(run.paths, committed.delta_versions, versions)
    row = run.ledger.append(
        LedgerRow(
            kind="effects",
            seq=plan.seq,
            writer=run.writer,
            at=clock.now(),
            code=run.code,
            rows_read=counts.rows_read,
            rows_parsed=counts.rows_parsed,
            rows_dead=counts.rows_dead,
            max_timestamps=counts.max_timestamps,
            delta_versions=versions,
            detail={} if counts.bytes_read is None else {"bytes_read": counts.bytes_read},
        )
    )
    crash_point("effects", plan.seq)
    return row


def _check_counts(run: EpochRun, plan: LedgerRow, state: LedgerState, counts: Counts) -> None:
    """Every record is parsed or a dead letter, or nothing goes on record: after the effects row the slice has to be finished.

    Raises:
        MiscountedError: they do not add up for the first time here. The slice is abandoned, and computed anew as another.
        LedgerError: they do not add up again.
    """
    if counts.rows_read == counts.rows_parsed + counts.rows_dead:
        return
    found = {"rows_read": counts.rows_read, "rows_parsed": counts.rows_parsed, "rows_dead": counts.rows_dead}
    said = (
        f"Slice {plan.seq} read {counts.rows_read} records; {counts.rows_parsed} parsed and {counts.rows_dead} are dead letters. "
        "Nothing of it is served or sent."
    )
    if state.miscounted is not None:
        raise LedgerError(
            f"{said} Slice {state.miscounted.seq} at the same offsets did not add up either.", seq=plan.seq, **found
        )
    abandon_slice(run, plan, {"miscounted": found})
    raise MiscountedError(f"{said} It is abandoned and computed once more.", seq=plan.seq, **found)


def archives_of(run: EpochRun, plan: LedgerRow) -> dict[str, Archive]:
    """The archives that a planned slice reads, by topic.

    Raises:
        DataLossError: one does not hold what it shall give, or is of another topic of that name.
    """
    archived = archived_ranges(plan)
    found = {topic: run.archive(topic) for topic in {item.topic for item in archived}}
    for topic, archive in found.items():
        archive.check([item for item in archived if item.topic == topic], run.topic_ids[topic])
    return found


def archived_detail(archived: Sequence[OffsetRange]) -> dict[str, Any]:
    """What a ledger row says of the ranges that are read from archives; nothing where there are none."""
    return {"archived": ranges_as_dict(archived)} if archived else {}


def roots_detail(roots: Offsets | None) -> dict[str, Any]:
    """What a ledger row says of where a slice ends in offsets of root topics; nothing where those are what it reads."""
    return {"roots": roots.as_dict()} if roots else {}


def step_effects(
    topology: Topology, seq: int, records: Mapping[str, DataFrame], before: Mapping[str, DataFrame]
) -> dict[str, DataFrame]:
    """Call the step and hold its effects against what the topology declares; see :func:`conformed`."""
    return conformed(topology, call_step(topology, seq, records, before))


def call_step(
    topology: Topology, seq: int, records: Mapping[str, DataFrame], before: Mapping[str, DataFrame]
) -> dict[str, DataFrame]:
    """The effects of a slice as the step returns them, one for each table and append output.

    Raises:
        TopologyError: an effect is missing or undeclared, or the step would end the process.
    """
    send_by_value(topology.step)
    try:
        effects = topology.step(Slice(seq=seq, records=records, tables=before))
    except SystemExit as error:  # else the driver would end, and be started again for ever
        raise TopologyError(
            f"The step of {topology.name!r} called for the end of the process (exit code {error.code!r}); it may only return or raise an error.",
            code=str(error.code),
        ) from error
    declared = {member.name for member in (*topology.appends, *topology.tables)}
    if set(effects) != declared:
        raise TopologyError(
            f"The step of {topology.name!r} returned {sorted(effects)}, the topology declares {sorted(declared)}.",
            returned=sorted(effects), declared=sorted(declared),
        )  # fmt: skip
    return dict(effects)


def rows_in_memory(
    run: EpochRun, plan: LedgerRow, frames: Mapping[str, DataFrame], *, in_one_job: bool
) -> Mapping[str, pa.Table] | None:
    """The rows of every effect, computed; None where they are too large for the driver's memory."""
    if sum(r.count for r in plan.ranges) > run.arrow_rows:
        return None
    try:
        return collect(frames, in_one_job=in_one_job)
    except Exception as error:
        if not is_too_large(error):
            raise
        return None


def write_frames(
    run: EpochRun, plan: LedgerRow, frames: Mapping[str, DataFrame], rows: Mapping[str, pa.Table] | None
) -> dict[str, pa.Table]:
    """Write every effect once: from the driver's memory, or by Spark where they are too large for it.

    Returns:
        The rows that were taken into memory, by ``outputs/<name>`` or ``changes/<name>``.
    """
    if rows is not None:
        return _write_rows(run, plan, rows)
    for name, frame in frames.items():
        _write_frame(run, plan, name, frame)
    return {}


def _write_rows(run: EpochRun, plan: LedgerRow, effects: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Write all effects at once: each is encoded by one thread, and is a commit of a table of its own."""
    seq, said = plan.seq, plan_hash(plan)
    places = {name: _place(run.topology, name) for name in effects}
    for name, rows in effects.items():
        if places[name].startswith("changes/"):
            keys = rows.group_by(list(run.topology.table(name).key)).aggregate([]).num_rows
            _check_one_row_a_key(name, rows.num_rows, keys)
    mine = {places[name]: with_seq(rows, seq) for name, rows in effects.items()}
    kept = {}
    with ThreadPoolExecutor(max(1, len(mine)), "writing") as threads:
        writes = {
            place: threads.submit(tables.append, f"{run.paths.root}/{place}", mine[place], seq, said) for place in mine
        }
        for place, write in writes.items():
            # Rows that an earlier attempt wrote are read back instead: they count, not these.
            if write.result():
                kept[place] = mine[place]
            crash_point(f"effects.{place.partition('/')[0]}", seq)
    return kept


def _write_frame(run: EpochRun, plan: LedgerRow, name: str, frame: DataFrame) -> None:
    from pyspark.sql import functions as F

    seq = plan.seq
    place = _place(run.topology, name)
    if place.startswith("changes/"):
        _check_one_row_a_key(name, frame.count(), frame.select(*run.topology.table(name).key).distinct().count())
    rows = frame.withColumn("_seq", F.lit(seq).cast("bigint"))
    tables.append_frame(f"{run.paths.root}/{place}", rows, seq, plan_hash(plan))
    crash_point(f"effects.{place.partition('/')[0]}", seq)


def _place(topology: Topology, name: str) -> str:
    return f"changes/{name}" if name in {table.name for table in topology.tables} else f"outputs/{name}"


def send_effects(run: EpochRun, plan: LedgerRow, effects: LedgerRow) -> None:
    """Line 3: everything that the slice sends, in one Kafka transaction; skipped when its marker is there.

    Raises:
        DisagreementError: the marker that is there is of another plan.
    """
    if is_sent(run, plan):
        return
    if run.sender is None:
        raise LedgerError(f"Slice {plan.seq} sends and the driver has no sender.", seq=plan.seq)
    run.ledger.check_claim(run.writer)
    run.sender.begin()
    run.sender.extend(_records(run, plan, effects))
    crash_point("send.open", plan.seq)
    run.sender.commit(ranges_end(plan.ranges))
    run.marker_seq, run.marker_plan = plan.seq, plan_hash(plan)
    crash_point("send", plan.seq)


def is_sent(run: EpochRun, plan: LedgerRow) -> bool:
    """Whether the last marker in Kafka closes this plan: its number alone says nothing where a ledger lost rows.

    Raises:
        DisagreementError: the marker is of this number or a later one, and of another plan.
    """
    if run.marker_seq < plan.seq:
        return False
    if run.marker_seq == plan.seq and run.marker_plan == plan_hash(plan):
        return True
    raise DisagreementError(
        f"The lake is older than the broker: the marker of slice {run.marker_seq} of epoch {run.paths.epoch} closes plan {run.marker_plan}, "
        f"the ledger's slice {plan.seq} is plan {plan_hash(plan)}. See what is sent: kappa certify {run.paths.topology}",
        marker=run.marker_seq, seq=plan.seq,
    )  # fmt: skip


def sent_topics(topology: Topology, sends: Sends) -> tuple[Topic, ...]:
    """The topic outputs that a slice sends. An epoch's own topics get every slice that is not held, whoever is live."""
    if sends == "held":
        return ()
    return topology.topics if sends == "live" else topology.versioned_topics


def marker(
    run: EpochRun,
    seq: int,
    end: Offsets,
    max_timestamps: Mapping[str, Mapping[int, int]],
    sends: Sends,
    reconciled: int | None = None,
    roots: Mapping[str, Any] | None = None,
    plan: str | None = None,
    kind: str = "slice",
) -> Record:
    """The marker of a slice of this epoch, by its plan's hash, of the handover whose differences are sent with it, or of its going live."""
    content: dict[str, Any] = {} if reconciled is None else {"reconciled": reconciled}
    if plan is not None:
        content["plan"] = plan
    if roots is not None:
        content["roots"] = roots
    return marker_record(
        run.paths.markers, seq=seq, end=end, max_timestamps=max_timestamps, topic_ids=dict(run.topic_ids),
        shapes=shapes_as_dict(tables_only(shapes_of(run.topology))), code=run.code,
        topology_version=run.topology.version, sends=sends, lake=run.lake_id, turn=run.turn, kind=kind, **content,
    )  # fmt: skip


def apply_changes(run: EpochRun, plan: LedgerRow, effects: LedgerRow) -> None:
    """Line 4: bring the changes of this slice and of those before it into the tables for which that is due."""
    committed = run.ledger.state().committed
    assert committed is not None
    for table in run.topology.tables:
        pending = unfolded(run, table, committed, effects)
        if is_due(run, pending, clock.now(), committed.at):
            fold(run, table, pending)
            crash_point("fold", plan.seq)
    crash_point("apply", plan.seq)


def commit_slice(run: EpochRun, plan: LedgerRow, effects: LedgerRow) -> LedgerRow:
    """Line 5: the slice is done; counts and the Delta version of everything on record."""
    committed = run.ledger.state().committed
    assert committed is not None
    run.look_at_commits()  # the row vouches for every commit up to the versions that it names
    # Looked up, not remembered: an attempt that died, or a writer that was replaced, may have folded meanwhile.
    pending = {table.name: unfolded(run, table, committed, effects) for table in run.topology.tables}
    folded = {name: found.entry for name, found in pending.items() if found.rows}
    versions = {f"tables/{name}": found.contents.version for name, found in pending.items()}
    make_durable(run.paths, committed.delta_versions, versions)
    carried = {"roots": plan.detail["roots"]} if "roots" in plan.detail else {}
    row = run.ledger.append(
        LedgerRow(
            kind="commit",
            seq=plan.seq,
            writer=run.writer,
            at=clock.now(),
            ranges=plan.ranges,
            sends=plan.sends,
            logged=plan.logged,
            code=run.code,
            rows_read=effects.rows_read,
            rows_parsed=effects.rows_parsed,
            rows_dead=effects.rows_dead,
            max_timestamps=effects.max_timestamps,
            delta_versions={**effects.delta_versions, **versions},
            detail={
                **effects.detail,
                "started_at": plan.at.isoformat(),
                **archived_detail(archived_ranges(plan)),
                **carried,
                **sent_ends(run, plan.sends, committed),
                **({FOLDED: folded} if folded else {}),
            },
        )
    )
    for table in run.topology.tables:
        before, after = (contents_of(run.paths, commit, table.name) for commit in (committed, row))
        run.state(table).advance(run.written.get(f"changes/{table.name}"), before, after)
    run.written = {}
    crash_point("commit", plan.seq)
    return row


def sent_ends(run: EpochRun, sends: Sends, before: LedgerRow | None) -> dict[str, Any]:
    """What a row says of the ends of the epoch's own topics, for those that read them; nothing where it has none.

    To be asked after the row's transaction: nobody else writes to these topics, so that their ends are what was sent up to
    here, also where another driver sent it and died. Slices that send nothing there carry on what the row before says.
    """
    names = sorted(run.paths.versioned(topic.name) for topic in run.topology.versioned_topics)
    if not names:
        return {}
    if sends == "held":
        return {"sent": before.detail["sent"]} if before is not None and "sent" in before.detail else {}
    return {"sent": run.broker.settled_ends(names).as_dict()}


def abandon_slice(run: EpochRun, plan: LedgerRow, detail: Mapping[str, Any] | None = None) -> None:
    """Close a plan that cannot be done: remove what it wrote, let nobody write it any more, and put it on record.

    Only for a slice whose marker is not in Kafka: nothing of it was sent. Idempotent.

    Args:
        run: the epoch.
        plan: the planned slice.
        detail: why, for the ledger: ``most`` bounds the next slices, ``miscounted`` says what did not add up.
    """
    if is_sent(run, plan):
        raise LedgerError(f"Slice {plan.seq} was sent; it can only be finished.", seq=plan.seq)
    run.ledger.check_claim(run.writer)
    for path in effect_paths(run.topology, run.paths):
        tables.seal(path, plan.seq, plan_hash(plan))
    run.ledger.append(
        LedgerRow(
            kind="abandon", seq=plan.seq, writer=run.writer, at=clock.now(), ranges=plan.ranges, code=run.code, detail=detail or {},
        )
    )  # fmt: skip
    run.written = {}
    crash_point("abandon", plan.seq)


def make_durable(paths: EpochPaths, before: Mapping[str, int], versions: Mapping[str, int]) -> None:
    """Bring an epoch's Delta tables to the disk before a ledger row names their versions: all commits since the last row."""
    for place, version in versions.items():
        sync_commits(f"{paths.root}/{place}", range(before.get(place, -1) + 1, version + 1))


def effect_paths(topology: Topology, paths: EpochPaths) -> list[str]:
    """Delta tables into which the slices of an epoch write their effects."""
    outputs = [paths.output(append.name) for append in topology.appends]
    return [paths.dead_letters, *outputs, *(paths.changes(table.name) for table in topology.tables)]


def create_tables(topology: Topology, paths: EpochPaths) -> None:
    """Create every Delta table of an epoch; does nothing for those that are there."""
    tables.create(paths.dead_letters, tables.DEAD_LETTER)
    for append in topology.appends:
        tables.create(paths.output(append.name), (tables.SEQ, *append.columns, *tables.LINEAGE))
    for table in topology.tables:
        loose = [
            Column(name=c.name, type=c.type, nullable=c.name not in table.key, delta=c.delta) for c in table.columns
        ]
        tables.create(paths.changes(table.name), (tables.SEQ, tables.DELETED, *loose))
        tables.create(paths.table(table.name), table.columns)


def check_topics(broker: Broker, topic_ids: Mapping[str, str]) -> None:
    """Raise when a source topic is not the one that the epoch began with.

    Raises:
        DataLossError: it was deleted or recreated.
    """
    from kappa.errors import DataLossError

    found = broker.topic_ids(sorted(topic_ids))
    for topic, expected in topic_ids.items():
        if found.get(topic) != expected:
            raise DataLossError(
                f"Topic {topic!r} was recreated: its id is {found.get(topic)}, the epoch began with {expected}. "
                "Offsets of the old topic mean nothing in the new one; plan a replay from the new topic's beginning.",
                topic=topic, found=found.get(topic), expected=expected,
            )  # fmt: skip


def _check_one_row_a_key(name: str, rows: int, keys: int) -> None:
    if rows != keys:
        raise TopologyError(
            f"The step returned {rows} rows for {keys} keys of table {name!r}. Reduce them to one row a key, for example with operators.newest."
        )


def _records(run: EpochRun, plan: LedgerRow, effects: LedgerRow) -> Iterator[Record]:
    def rows(place: str, order: Sequence[str] = ()) -> Iterator[pa.Table]:
        """In portions where they are not in memory: what Spark wrote because it was large is not held at once."""
        if place in run.written:
            return iter([run.written[place]])
        path, version = f"{run.paths.root}/{place}", effects.delta_versions[place]
        return tables.rows_in_order(path, version, plan.seq, order)

    for topic in () if plan.is_replacement else sent_topics(run.topology, plan.sends):
        columns = [column.name for column in run.topology.rows_of(topic).columns]
        name = run.paths.versioned(topic.name) if topic.is_versioned else topic.name
        for part in rows(_place(run.topology, topic.of), ORDER):
            yield from topic_records(topic, columns, part, name=name)
    for table in run.topology.tables:
        for part in rows(f"changes/{table.name}"):
            yield from changelog_records(run.paths.changelog(table.name), table, part, plan.seq)
    yield marker(
        run, plan.seq, ranges_end(plan.ranges), effects.max_timestamps, plan.sends, roots=plan.detail.get("roots"),
        plan=plan_hash(plan),
    )  # fmt: skip
