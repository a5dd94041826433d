"""Line 3 of the protocol: one Kafka transaction with everything that a slice sends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from kappa.errors import DisagreementError, RecordRefusedError
from kappa.faults import crash_point
from kappa.kafka import markers
from kappa.kafka.changelogs import changelog_records
from kappa.kafka.markers import Marker
from kappa.offsets import set_asides
from kappa.offsets.floors import that_hold
from kappa.offsets.releases import merged
from kappa.offsets.set_asides import SetAsides
from kappa.offsets.vector import Offsets, ranges_end
from kappa.record.ledger_rows import LedgerRow, plan_hash
from kappa.replay.chains import final_detail
from kappa.replay.proof.certificate import Sends
from kappa.topology import ORDER, Topic, Topology
from kappa.topology.shapes import shapes_as_dict, shapes_of, tables_only, timings_of
from kappa.wire.encoding import Record, topic_records

if TYPE_CHECKING:
    import pyarrow as pa


from kappa.delta import queries
from kappa.slices.places import place_of
from kappa.slices.rows.final_times import final_after
from kappa.slices.run import EpochRun
from kappa.slices.topics.registered_topics import encoder_of

#: Topic, partition and offset.
Place = tuple[str, int, int]


def send_effects(run: EpochRun, plan: LedgerRow, effects: LedgerRow) -> None:
    """Line 3: everything that the slice sends, in one Kafka transaction; skipped when its marker is there.

    Raises:
        DisagreementError: the marker that is there is of another plan.
        RecordRefusedError: the broker will never take a record; the error says which one of the sources it is made of.
    """
    if is_sent(run, plan):
        return
    sender = run.sent.opened()
    run.ledger.check_claim(run.writer, look=False)  # a later driver has fenced the sender before it sends
    try:
        sender.begin()
        sender.extend(_records(run, plan, effects))
        crash_point("send.open", plan.seq)
        sender.commit(ranges_end(plan.ranges))
    except RecordRefusedError as error:
        raise _with_origin(error, run, plan, _origin(run, plan, effects, sender.refused)) from error
    run.sent.seq, run.sent.plan = plan.seq, plan_hash(plan)
    crash_point("send", plan.seq)


def is_sent(run: EpochRun, plan: LedgerRow) -> bool:
    """Whether the last marker in Kafka closes this plan: its number alone says nothing where a ledger lost rows.

    Raises:
        DisagreementError: the marker is of this number or a later one, and of another plan.
    """
    if run.sent.seq < plan.seq:
        return False
    if run.sent.seq == plan.seq and run.sent.plan == plan_hash(plan):
        return True
    raise DisagreementError(
        f"The lake is older than the broker: the marker of slice {run.sent.seq} of epoch {run.paths.epoch} closes plan "
        f"{run.sent.plan}, the ledger's slice {plan.seq} is plan {plan_hash(plan)}. See what is sent: kappa certify "
        f"{run.paths.topology}",
        marker=run.sent.seq,
        seq=plan.seq,
    )


def sent_topics(topology: Topology, sends: Sends) -> tuple[Topic, ...]:
    """The topic outputs that a slice sends. An epoch's versioned topics get every slice that is not held, live or
    not.
    """
    if sends == "held":
        return ()
    return topology.topics if sends == "live" else topology.versioned_topics


def marker(
    run: EpochRun,
    seq: int,
    end: Offsets,
    of: LedgerRow,
    sends: Sends,
    reconciled: int | None = None,
    roots: Mapping[str, Any] | None = None,
    plan: str | None = None,
    kind: Literal["slice", "live"] = "slice",
) -> Record:
    """The marker of a slice of this epoch, by its plan's hash, of the handover whose differences are sent with it, or
    of its going live.

    Args:
        of: the row that says how far the times of the records have come.
    """
    aside = run.ledger.state(look=False).set_aside
    if of.kind == "effects" and (planned := _planned(run)):  # of a slice that is not committed yet
        aside = set_asides.merged((*aside, *planned))
    return markers.record(
        run.paths,
        Marker(
            seq=seq,
            end=end,
            max_timestamps=of.max_timestamps,
            stream_times=of.stream_times,
            floors=_floors(run, of),
            topic_ids=dict(run.topic_ids),
            shapes=shapes_as_dict(tables_only(shapes_of(run.topology))),
            code=run.code,
            topology_version=run.topology.version,
            sends=sends,
            lake=run.lake_id,
            turn=run.sent.turn,
            kind=kind,
            reconciled=reconciled,
            plan=plan,
            roots=roots,
            set_aside_count=set_asides.count(aside),
            set_aside=markers.carried(aside),
        ),
    )


def _planned(run: EpochRun) -> SetAsides:
    plan = run.ledger.state(look=False).open_plan
    return () if plan is None else plan.set_aside


def _floors(run: EpochRun, of: LedgerRow) -> dict[str, dict[int, int]]:
    """The floors that hold at a marker, by partition."""
    if not run.topology.has_event_time:
        return {}
    state = run.ledger.state(look=False)
    floors = merged([state.floored, *([state.open_plan.floors] if state.open_plan is not None else [])])
    graces = {run.bound.get(topic, topic): one.grace_ms for topic, one in timings_of(run.topology.sources).items()}
    return that_hold(floors, of.stream_times, graces)


def sent_ends(run: EpochRun, sends: Sends, of: LedgerRow, before: LedgerRow | None) -> dict[str, Any]:
    """Detail of a row on the epoch's versioned topics, for their readers: their ends, and up to when their rows are
    final. Empty where the epoch has none.

    Called after the row's transaction. No other epoch writes to these topics. Their ends are what was sent up to here,
    also where another driver sent it and died. Slices that send nothing there carry on what the row before says.

    Args:
        of: says what the row's slice read, and how far event time has come.
        before: the commit before it; None where there is none.
    """
    names = sorted(run.paths.versioned(topic.name) for topic in run.topology.versioned_topics)
    if not names:
        return {}
    if sends == "held":
        return {name: before.detail[name] for name in ("sent", "final") if before is not None and name in before.detail}
    final = final_after(run, of, before.final if before is not None else {})
    return {"sent": run.engines.broker.settled_ends(names).as_dict(), **final_detail(final)}


def _records(run: EpochRun, plan: LedgerRow, effects: LedgerRow) -> Iterator[Record]:
    yield from output_records(run, plan, effects)
    yield from change_records(run, plan, effects)
    yield marker(
        run,
        plan.seq,
        ranges_end(plan.ranges),
        effects,
        plan.sends,
        roots=plan.detail.get("roots"),
        plan=plan_hash(plan),
    )


def output_records(run: EpochRun, plan: LedgerRow, effects: LedgerRow) -> Iterator[Record]:
    """What the slice sends to topic outputs, in the order in which it is sent."""
    for topic, part in _parts(run, plan, effects):
        yield from _records_of(run, topic, part)


def change_records(run: EpochRun, plan: LedgerRow, effects: LedgerRow) -> Iterator[Record]:
    """What the slice sends to the changelogs of tables."""
    for table in run.topology.tables:
        for part in _rows(run, plan, effects, f"changes/{table.name}"):
            yield from changelog_records(run.paths.changelog(table.name), table, part, plan.seq)


def _parts(run: EpochRun, plan: LedgerRow, effects: LedgerRow) -> Iterator[tuple[Topic, pa.Table]]:
    """Rows that the slice sends to each topic output, in the order in which they are sent."""
    for topic in () if plan.is_replacement else sent_topics(run.topology, plan.sends):
        for part in _rows(run, plan, effects, place_of(run.topology, topic.of), ORDER):
            yield topic, part


def _records_of(run: EpochRun, topic: Topic, rows: pa.Table) -> Iterator[Record]:
    columns = [column.name for column in run.topology.sent_columns(topic)]
    name = run.paths.versioned(topic.name) if topic.is_versioned else topic.name
    return topic_records(topic, columns, rows, name=name, encode=encoder_of(run, topic))


def _rows(
    run: EpochRun, plan: LedgerRow, effects: LedgerRow, place: str, order: Sequence[str] = ()
) -> Iterator[pa.Table]:
    """In portions where they are not in memory: what Spark wrote because it was large is not held at once."""
    if place in run.scratch.written:
        return iter([run.scratch.written[place]])
    path, version = run.paths.place(place), effects.delta_versions[place]
    return queries.rows_in_order(path, version, plan.seq, order)


def _origin(run: EpochRun, plan: LedgerRow, effects: LedgerRow, refused: Record | None) -> Place | None:
    """The source record that a refused one is made of; None for a row of a table, which does not keep it."""
    if refused is None:
        return None

    def has(topic: Topic, rows: pa.Table) -> bool:
        return any(record == refused for record in _records_of(run, topic, rows))

    for topic, rows in _parts(run, plan, effects):
        if not set(ORDER) <= set(rows.column_names) or not has(topic, rows):
            continue
        part = rows
        while (half := part.num_rows // 2) > 0:
            part = part.slice(0, half) if has(topic, part.slice(0, half)) else part.slice(half)
        (row,) = part.select(["_topic", "_partition", "_offset"]).to_pylist()
        return row["_topic"], row["_partition"], row["_offset"]
    return None


def _with_origin(error: RecordRefusedError, run: EpochRun, plan: LedgerRow, place: Place | None) -> RecordRefusedError:
    """The same error, about the record that the refused one is made of; for a table, about the slice's records."""
    if place is None:
        of = ", ".join(f"{r.topic}[{r.partition}] {r.start} to {r.end - 1}" for r in plan.ranges if r.count)
    else:
        of = f"{place[0]}[{place[1]}] {place[2]}"
    again = f"kappa start {run.paths.topology} --epoch {run.paths.epoch} --execute"
    origin = None if place is None else dict(zip(("topic", "partition", "offset"), place, strict=True))
    return RecordRefusedError(f"Made of {of}: {error}. Then: {again}", **error.data | {"origin": origin})
