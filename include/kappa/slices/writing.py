"""Line 2 of the protocol: the step is called, and its rows are written once."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from kappa import clock
from kappa.archive.reader import Archive
from kappa.delta import queries, tables
from kappa.errors import LedgerError, MiscountedError
from kappa.faults import crash_point, is_armed
from kappa.offsets.vector import ranges_end
from kappa.record.ledger_rows import LedgerRow, plan_hash
from kappa.record.ledger_state import BegunState, LedgerState
from kappa.record.merge_on_read import contents_of
from kappa.slices.input.reading import Counts, Reading, archived_ranges, is_small
from kappa.slices.rows.contract import check_rows
from kappa.slices.rows.effects import collect, conformed, held, shared, with_seq
from kappa.slices.rows.final_times import promises
from kappa.spark.session import is_too_large
from kappa.spark.tuning import tune
from kappa.topology import Slice, Topology
from kappa.topology.masking import fingerprint
from kappa.topology.times.event_time import LATE_RECORDS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


from kappa.slices.abandoning import abandon_slice
from kappa.slices.places import check_topics, make_durable, place_of
from kappa.slices.run import MASK, EpochRun
from kappa.slices.step import call_step

#: The place of dead letters among those of the effects.
DEAD_LETTERS = "dead_letters"


def write_effects(run: EpochRun, plan: LedgerRow, state: BegunState, raw: DataFrame | None) -> LedgerRow:
    """Line 2: call the step and write its rows, each table's in one commit; then the ``effects`` row.

    A crash in between leaves some tables written; the step is then called again on the same input and only the others
    are written. Where records are gone from the log meanwhile, by a compaction, it is another input: the slice is
    abandoned, and computed anew as another.

    Raises:
        MiscountedError: the slice was abandoned.
    """
    committed = state.committed
    check_topics(run.engines.broker, run.topic_ids)
    before = {
        table.name: run.state(table).frame(contents_of(run.paths, committed, table.name))
        for table in run.topology.tables
    }
    run.ledger.check_claim(run.writer)
    check_mask(run.topology, state, run.engines.mask_key)
    in_memory = is_small(plan.ranges, run.engines.small_slice)
    large = large_tables(run, plan)
    tune(run.engines.session, is_small=in_memory, is_compiled=bool(large))
    archives = archives_of(run, plan)
    epoch_start = ranges_end(state.commits[0].ranges)
    with Reading(
        run.engines.session,
        run.engines.bootstrap_servers,
        run.topology.sources,
        plan,
        committed,
        raw,
        archives=archives,
        epoch_start=epoch_start,
        bound=run.bound,
        small_slice=run.engines.small_slice,
        mask_key=run.engines.mask_key,
        schemas=run.engines.schemas,
        released=state.effective_releases,
        floored=state.floored,
    ) as reading:
        slice = Slice(
            seq=plan.seq,
            records=reading.records,
            tables=before,
            frontiers=reading.frontiers,
            operators=run.topology.operators,
            large_tables=large,
            secret=run.engines.mask_key,
            hold=held(run.topology, run.engines.session) if in_memory else None,
        )
        effects = call_step(run.topology, slice)
        shared_frames = [] if reading.is_small else shared([*effects.values(), *slice.calls.shared])
        reading.hold(shared_frames)
        frames = conformed(run.topology, effects)
        reading.count_aside()
        rows = rows_in_memory(run, plan, frames, in_one_job=in_memory or not shared_frames)
        check_rows(run.topology, effects, frames, rows, promises(run, committed))
        run.scratch.versions = {}
        letters, counts = reading.dead_letters(), reading.counts()
        _check_counts(run, plan, state, counts)
        try:
            run.scratch.written = write_frames(run, plan, frames, rows, letters, counts)
        except MiscountedError as error:  # an earlier attempt wrote some of the effects, from other records
            abandon_slice(run, plan, {"reread": {name: error.data[name] for name in ("before", "now")}})
            raise
    check_topics(run.engines.broker, run.topic_ids)
    names = [*(f"outputs/{a.name}" for a in run.topology.appends), *(f"changes/{t.name}" for t in run.topology.tables)]
    own = run.scratch.versions
    versions = {
        name: own.get(name) or tables.version_after(run.paths.place(name), committed.delta_versions.get(name, -1))
        for name in [*names, DEAD_LETTERS]
    }
    files = make_durable(run.paths, state.recorded, versions)
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
            rows_set_aside=counts.rows_set_aside,
            rows_late=late_count(run, plan, versions),
            max_timestamps=counts.max_timestamps,
            stream_times=counts.stream_times,
            delta_versions=versions,
            detail={**({} if counts.bytes_read is None else {"bytes_read": counts.bytes_read}), **files},
        )
    )
    crash_point("effects", plan.seq)
    return row


def check_mask(topology: Topology, state: LedgerState, mask_key: str) -> None:
    """Raise where the values of a sensitive source would be masked under another key than before.

    Raises:
        TopologyError: no key is set, or a short one.
        LedgerError: it is another one.
    """
    if not topology.is_sensitive or not state.commits:
        return
    epoch_mask, now = state.commits[0].detail.get(MASK), fingerprint(mask_key)
    if epoch_mask != now:
        raise LedgerError(
            f"Values of {topology.name!r} are masked under the key with fingerprint {epoch_mask}, KAPPA_MASK_KEY has "
            f"{now}: equal values would get two masks. Set the key of the epoch, or compute it again under "
            f"the new one: kappa replay {topology.name} --allow mask-key-changed",
            epoch_mask=epoch_mask,
            now=now,
        )


def late_count(run: EpochRun, plan: LedgerRow, versions: Mapping[str, int]) -> int:
    """How many records of the slice an operator refused: each once, however many operators did."""
    if not run.topology.has_event_time:
        return 0
    place, record = f"outputs/{LATE_RECORDS}", ["_topic", "_partition", "_offset"]
    rows = run.scratch.written.get(place)
    if rows is None:
        path = run.paths.place(place)
        rows = queries.query(path, versions[place], select=", ".join(record), where=f"_seq = {plan.seq}")
    return int(rows.group_by(record).aggregate([]).num_rows)


def _check_counts(run: EpochRun, plan: LedgerRow, state: LedgerState, counts: Counts) -> None:
    """Every record is parsed or a dead letter, or nothing is written: after the effects row the slice has to be
    finished.

    Raises:
        MiscountedError: they do not add up for the first time here. The slice is abandoned, and computed anew as
            another.
        LedgerError: they do not add up again.
    """
    if counts.rows_read == counts.rows_parsed + counts.rows_dead + counts.rows_set_aside:
        return
    names = ("rows_read", "rows_parsed", "rows_dead", "rows_set_aside")
    numbers = {name: getattr(counts, name) for name in names}
    problem = (
        f"Slice {plan.seq} read {counts.rows_read} records; {counts.rows_parsed} parsed, {counts.rows_dead} are dead "
        f"letters and {counts.rows_set_aside} are set aside. Nothing of it is served or sent."
    )
    if state.miscounted is not None:
        raise LedgerError(
            f"{problem} Slice {state.miscounted.seq} at the same offsets did not add up either.",
            seq=plan.seq,
            **numbers,
        )
    abandon_slice(run, plan, {"miscounted": numbers})
    raise MiscountedError(f"{problem} It is abandoned and computed once more.", seq=plan.seq, **numbers)


def large_tables(run: EpochRun, plan: LedgerRow) -> frozenset[str]:
    """Tables in which operators seek the keys of a slice: those with many more keys; none for a large slice."""
    if not is_small(plan.ranges, run.engines.small_slice):
        return frozenset()
    return frozenset(table.name for table in run.topology.tables if run.state(table).is_large)


def archives_of(run: EpochRun, plan: LedgerRow) -> dict[str, Archive]:
    """The archives that a planned slice reads, by topic.

    Raises:
        DataLossError: one does not hold what the plan takes from it, or is of another topic of that name.
    """
    archived = archived_ranges(plan)
    archives = {topic: run.archive(topic) for topic in {item.topic for item in archived}}
    for topic, archive in archives.items():
        archive.check([item for item in archived if item.topic == topic], run.topic_ids[topic])
    return archives


def rows_in_memory(
    run: EpochRun, plan: LedgerRow, frames: Mapping[str, DataFrame], *, in_one_job: bool
) -> Mapping[str, pa.Table] | None:
    """The rows of every effect, computed; None where they are too large for the driver's memory."""
    if sum(r.count for r in plan.ranges) > run.engines.arrow_rows:
        return None
    try:
        return collect(frames, in_one_job=in_one_job)
    except Exception as error:
        if not is_too_large(error):
            raise
        return None


def write_frames(
    run: EpochRun,
    plan: LedgerRow,
    frames: Mapping[str, DataFrame],
    rows: Mapping[str, pa.Table] | None,
    dead_letters: pa.Table | None = None,
    counts: Counts | None = None,
) -> dict[str, pa.Table]:
    """Write every effect once: from the driver's memory, or by Spark where they are too large for it.

    Args:
        run: the epoch.
        plan: the slice.
        frames: the effects.
        rows: their rows; None where they are too large for the driver's memory.
        dead_letters: those of the slice; None where it has no place for them.
        counts: of the records that the effects are computed from.

    Returns:
        The rows that were taken into memory, by ``outputs/<name>`` or ``changes/<name>``.

    Raises:
        MiscountedError: an earlier attempt wrote effects that are computed from other records.
    """
    basis = "" if counts is None else _as_text(counts)
    letters = {} if dead_letters is None else {DEAD_LETTERS: dead_letters}
    effects = {place_of(run.topology, name): with_seq(one, plan.seq) for name, one in (rows or {}).items()}
    new_rows = _write_rows(run, plan, {**letters, **effects}, basis)
    if rows is None:
        for name, frame in frames.items():
            _write_frame(run, plan, name, frame, basis)
    return {place: new_rows[place] for place in effects if place in new_rows}


def _as_text(counts: Counts) -> str:
    """What commits of a slice say of the records that it is computed from."""
    numbers = {"read": counts.rows_read, "dead": counts.rows_dead, "aside": counts.rows_set_aside}
    return " ".join(f"{name}={number}" for name, number in numbers.items())


def _write_rows(
    run: EpochRun, plan: LedgerRow, rows_by_place: Mapping[str, pa.Table], basis: str
) -> dict[str, pa.Table]:
    """Write what goes to several places at once: each is encoded by one thread, and is a commit of a table of its own.

    Returns:
        The rows that are there by this call.
    """
    seq, digest = plan.seq, plan_hash(plan)

    def write(place: str) -> int | None:
        version = tables.append(run.paths.place(place), rows_by_place[place], seq, digest, basis)
        crash_point(f"effects.{place.partition('/')[0]}", seq)
        return version

    new_rows = {}
    # One after the other where a death is to find some of them written, and others not.
    count = 1 if is_armed("effects.") else max(1, len(rows_by_place))
    with ThreadPoolExecutor(count, "writing") as threads:
        writes = {place: threads.submit(write, place) for place in rows_by_place}
        try:
            for place, outcome in writes.items():
                # Rows that an earlier attempt wrote are read back instead: they count, not these.
                if _note(run, place, outcome.result()):
                    new_rows[place] = rows_by_place[place]
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise
    return new_rows


def _note(run: EpochRun, place: str, version: int | None) -> bool:
    """Keep in mind which version the rows of a place made; whether they made one."""
    if version is None:
        return False
    run.scratch.versions[place] = version
    run.watch.pass_over(place, version)
    return True


def _write_frame(run: EpochRun, plan: LedgerRow, name: str, frame: DataFrame, basis: str) -> None:
    from pyspark.sql import functions as F

    seq = plan.seq
    place = place_of(run.topology, name)
    rows = frame.withColumn("_seq", F.lit(seq).cast("bigint"))
    tables.append_frame(run.paths.place(place), rows, seq, plan_hash(plan), basis)
    crash_point(f"effects.{place.partition('/')[0]}", seq)
