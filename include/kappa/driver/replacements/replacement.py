"""A replacement: between two slices, rows of an interval give way to those that were computed for it by a backfill.

It has a number of its own in the ledger, like a slice, and reads no offset: ``plan``, one Delta commit for each output,
``effects``, marker, ``commit``. Readers get the old rows or the new ones of all outputs, since a commit names the Delta
versions of everything. A crash between any two lines is repaired by starting again; one that fails again and again is
undone, and the stream goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kappa import clock
from kappa.delta import queries, table_files, tables
from kappa.driver.replacements.interval_rows import belongs, closed_windows
from kappa.errors import LedgerError
from kappa.faults import crash_point
from kappa.offsets.vector import ranges_from_json
from kappa.record.epochs import Epochs, Now
from kappa.record.events import Event, EventKind
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow, plan_hash
from kappa.record.ledger_state import BegunState, LedgerState
from kappa.slices.abandoning import begin_sealing, end_sealing
from kappa.slices.places import make_durable
from kappa.slices.protocol import commit_slice
from kappa.slices.run import EpochRun
from kappa.slices.topics.sending import is_sent, send_effects
from kappa.topology.ddl import quoted
from kappa.verify.second_run import discard

if TYPE_CHECKING:
    import pyarrow as pa

    from kappa.topology import Append, Table

#: What ledger rows of a replacement have in their detail: the event that asked for it.
DETAIL = "backfill"


def check(run: EpochRun, request: Event) -> None:
    """Raise where a replacement cannot be made; nothing is changed.

    Args:
        request: the event ``backfill``.

    Raises:
        LedgerError: the epoch runs other code, or what was computed is not there.
    """
    detail = request.detail
    way = f"kappa backfill {request.topology} --from {detail['from']} --to {detail['to']}"
    if detail["code"] != run.code:
        raise LedgerError(
            f"It was computed with code {detail['code'][:12]}, the epoch runs {run.code[:12]}. Compute it again: {way}"
        )
    for name, output in detail["outputs"].items():
        folder = run.paths.recomputed(detail["folder"])
        path = folder.table(name) if output.get("table") else folder.output(name)
        if not tables.exists(path):
            raise LedgerError(f"Its folder {path} is gone. Compute the interval again: {way}", path=path)
        if output.get("table"):
            continue
        rows = table_files.count(path, output["version"])
        computed = output.get("computed", output["rows"])  # earlier code computed nothing but the interval
        if rows != computed:
            raise LedgerError(f"{path} has {rows} rows, {computed} were computed.", path=path, rows=rows)


def plan(run: EpochRun, state: BegunState, request: Event) -> LedgerRow:
    """Put a replacement on record as the next one of the epoch's numbers.

    Raises:
        StaleWriterError: another driver claimed the epoch.
        LedgerError: the epoch may not send: it is not live.
    """
    if state.open_plan is not None or state.is_yielded:
        raise LedgerError("Rows are replaced between two slices of a live epoch.", seq=state.seq)
    row = run.ledger.append(
        LedgerRow(
            kind="plan",
            seq=state.seq + 1,
            writer=run.writer,
            at=clock.now(),
            ranges=state.position.span_to(state.position),
            sends="live",
            logged=state.baseline_seq is not None,
            code=run.code,
            detail={DETAIL: _detail(request)},
        )
    )
    crash_point("backfill.plan", row.seq)
    return row


def finish(run: EpochRun, planned: LedgerRow) -> LedgerRow:
    """Make a planned replacement. Idempotent: finished steps are used as they are.

    Returns:
        The commit row.

    Raises:
        StaleWriterError: another driver claimed the epoch.
        ForeignCommitError: another program wrote into the epoch's Delta tables.
    """
    run.look_at_commits()
    state = run.ledger.begun()
    run.engines.begin(f"replacement {planned.seq}")
    effects = state.open_effects or _replace(run, planned, state)
    if planned.logged:
        send_effects(run, planned, effects)
    row = commit_slice(run, planned, effects)
    crash_point("backfill", row.seq)
    return row


def undo(run: EpochRun, planned: LedgerRow) -> None:
    """Put the rows back that a planned replacement has replaced, and close it. Idempotent. A crash leaves a row that
    gives it up, and old rows in some outputs: it is to be undone again.

    Raises:
        LedgerError: its marker is in Kafka: it can only be finished.
        StaleWriterError: another driver claimed the epoch.
    """
    if planned.logged and is_sent(run, planned):
        raise LedgerError(
            f"Replacement {planned.seq} has its marker in Kafka; it can only be finished.", seq=planned.seq
        )
    run.ledger.check_claim(run.writer)
    committed = run.ledger.begun().committed
    reason = begin_sealing(run, planned, {DETAIL: planned.detail[DETAIL]})
    for name, output in planned.detail[DETAIL]["outputs"].items():
        if output.get("table"):
            tables.seal(run.paths.changes(name), planned.seq, plan_hash(planned))
        else:
            version = committed.delta_versions[f"outputs/{name}"]
            tables.put_back(run.paths.output(name), version, planned.seq, plan_hash(planned))
        crash_point("backfill.undone", planned.seq)
    end_sealing(run, planned, reason)


def conclude(
    epochs: Epochs, run: EpochRun, request: Event, outcome: Mapping[str, Any] | None, reason: str = ""
) -> None:
    """Put a backfill's end on record, once; its folder goes unless another process works in it by now.

    Args:
        epochs: the record.
        request: the event ``backfill``.
        outcome: what the event ``backfilled`` says; None where it is withdrawn.
        reason: why it is withdrawn.
    """

    def decide(now: Now) -> Sequence[Event]:
        pending = now.record.epoch(request.epoch).backfills
        if request.n not in (event.n for event in pending):
            return []
        kind: EventKind = "backfill_withdrawn" if outcome is None else "backfilled"
        detail = {"from": request.detail["from"], "to": request.detail["to"], **(outcome or {}), "backfill": request.n}
        actor = "driver" if outcome is None else request.actor
        return [now.event(kind, request.epoch, actor=actor, reason=reason or request.reason, detail=detail)]

    epochs.change(request.topology, decide)
    ledger = Ledger(run.paths.recomputed(request.detail["folder"]).ledger)
    claim = ledger.state().claim if ledger.exists() else None
    if claim is None or claim.writer == request.detail["writer"]:
        discard(run.paths, request.detail["folder"])


def commit_for(state: LedgerState, request: Event) -> LedgerRow | None:
    """The commit of a backfill, where the epoch's ledger has one that the record of epochs may not know."""
    return next((row for row in reversed(state.commits) if row.detail.get(DETAIL, {}).get("n") == request.n), None)


def outcome(row: LedgerRow) -> dict[str, Any]:
    """What the event ``backfilled`` says, by the commit."""
    return {"seq": row.seq, "outputs": row.detail[DETAIL]["outputs"], "offsets": row.detail[DETAIL]["offsets"]}


def _detail(request: Event) -> dict[str, Any]:
    names = ("from", "to", "folder", "ranges", "offsets", "outputs")
    return {"n": request.n, **{name: request.detail[name] for name in names}}


def _replace(run: EpochRun, planned: LedgerRow, state: BegunState) -> LedgerRow:
    """Replace the rows in each output, one Delta commit each; then the ``effects`` row."""
    detail, committed = planned.detail[DETAIL], state.committed
    run.ledger.check_claim(run.writer)
    ranges, versions = ranges_from_json(detail["ranges"]), dict(committed.delta_versions)
    begin, end = (datetime.fromisoformat(detail[name]) for name in ("from", "to"))
    for name, output in detail["outputs"].items():
        if output.get("table"):
            path = run.paths.changes(name)
            _change_windows(run, planned, committed, run.topology.table(name), begin, end)
            crash_point("backfill.replaced", planned.seq)
            versions[f"changes/{name}"] = tables.version(path)
            continue
        path = run.paths.output(name)
        append = next(append for append in run.topology.appends if append.name == name)
        where = belongs(append, output.get("time"), begin, end, ranges, engine="deltalake")
        rows = _computed(run, detail["folder"], append, output["version"], where, planned.seq)
        tables.replace_where(path, rows, where, planned.seq, plan_hash(planned))
        crash_point("backfill.replaced", planned.seq)
        versions[f"outputs/{name}"] = tables.version(path)
    files = make_durable(run.paths, state.recorded, versions)
    return run.ledger.append(
        LedgerRow(
            kind="effects",
            seq=planned.seq,
            writer=run.writer,
            at=clock.now(),
            code=run.code,
            delta_versions=versions,
            max_timestamps=committed.max_timestamps,
            stream_times=committed.stream_times,
            detail={DETAIL: detail, **files},
        )
    )


def _change_windows(
    run: EpochRun, planned: LedgerRow, committed: LedgerRow, table: Table, begin: datetime, end: datetime
) -> None:
    """Write the rows of an interval as changes of a table, in one commit: those that differ, and removals of others."""
    from pyspark.sql import functions as F

    folder = planned.detail[DETAIL]["folder"]
    live, again = closed_windows(run, committed, table, folder, begin, end)
    key = list(table.key)
    odd = live.join(again.select(*quoted(key)), on=key, how="left_anti").select(*quoted(live.columns))
    rows = again.exceptAll(live).withColumn("_deleted", F.lit(False))
    rows = rows.unionByName(odd.withColumn("_deleted", F.lit(True)))
    rows = rows.withColumn("_seq", F.lit(planned.seq).cast("bigint"))
    tables.append_frame(run.paths.changes(table.name), rows, planned.seq, plan_hash(planned))


def _computed(run: EpochRun, folder: str, append: Append, version: int, where: str, seq: int) -> pa.RecordBatchReader:
    """Rows that were computed for an interval, in the columns of the output, as rows of a slice."""
    import pyarrow as pa

    names = [column.name for column in (tables.SEQ, *append.columns, *tables.LINEAGE)]
    path = run.paths.recomputed(folder).output(append.name)
    batches = queries.batches(path, version, names, where=f"{tables.SEQ.name} > 0 AND ({where})")

    def numbered() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            seqs = pa.repeat(pa.scalar(seq, pa.int64()), batch.num_rows)
            yield pa.RecordBatch.from_arrays([seqs, *batch.columns[1:]], schema=batches.schema)

    return pa.RecordBatchReader.from_batches(batches.schema, numbered())
