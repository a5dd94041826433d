"""Backfill: rows of an interval of time computed again and replaced in the live epoch, beside the live stream.

For outputs whose rows are made record by record the interval is one of record times, as the total order has them
(``_order_timestamp``): a range of offsets per partition. For windows and joins it is one of event time, by a column of
the rows; everything that such rows are made from is read, from a commit before it to one at which they are final
(:mod:`kappa.control.backfills.backfill_span`). It is computed in a folder within the epoch's, by a process of its own.
The live epoch's driver then replaces the rows in its own turn (:mod:`kappa.driver.replacements`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kappa.acts import Act, act
from kappa.config import Config
from kappa.control.backfills.backfill_plan import Computed
from kappa.control.backfills.backfill_span import windowed_tables
from kappa.control.backfills.proposal import Backfill
from kappa.control.drivers import check_wanted
from kappa.delta import table_files
from kappa.driver.processes import process
from kappa.driver.replacements.interval_rows import belongs, closed_windows, rows_from
from kappa.errors import DriverNotRunningError, MoveRefusedError
from kappa.faults import crash_point
from kappa.kafka.broker import Broker
from kappa.names import EpochPaths
from kappa.offsets.vector import ranges_as_dict, ranges_end, ranges_start
from kappa.presence import heartbeat
from kappa.record import code as code_store
from kappa.record.epochs import Now, epochs_of
from kappa.record.events import DECISIONS, Event
from kappa.record.ledger_rows import LedgerRow
from kappa.record.merge_on_read import frame_at
from kappa.replay.findings import check
from kappa.replay.proof.determinism import Twice
from kappa.slices.input.cuts import time_index
from kappa.slices.run import EpochRun
from kappa.slices.seeding import SeedSource
from kappa.topology import registry
from kappa.topology.ddl import quote
from kappa.verify.content_hash import twice
from kappa.verify.diff import Mask
from kappa.verify.second_run import advance, beside, opened, rows_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kappa.spark.session import LazySession
    from kappa.topology import Append, Table


def compute(
    config: Config, spark: LazySession, backfill: Backfill, progress: Callable[[str], None] = lambda _: None
) -> Computed:
    """Compute the rows of an interval in a folder within the epoch's, and compare them with those of the live epoch.

    The live epoch is not touched and nothing is sent. A heartbeat in the folder says that it is worked on. Killed, it
    goes on from its last slice when it is called again.

    Args:
        spark: Spark, started when it is needed.
        backfill: what :func:`propose` gave.
        progress: called with each step.

    Raises:
        RefusedError: a finding refuses it.
        StaleWriterError: another process computes the same interval.
        DataLossError: records of the interval are gone.
        MoveRefusedError: the column by which rows belong to the interval is null, or of another time.
    """
    check(backfill.findings, f"The backfill of {backfill.topology!r}")
    paths = EpochPaths(lake=config.lake, topology=backfill.topology, epoch=backfill.epoch)
    writer = f"{backfill.folder}-{time.time_ns()}"
    # It may wait for hours for cores, or compare, and write nothing meanwhile: housekeeping spares what beats.
    with heartbeat.at_work(paths.recomputed(backfill.folder).root, writer, backfill.code, config.beat_seconds):
        return _computed(config, spark, backfill, writer, progress)


def _computed(
    config: Config, spark: LazySession, backfill: Backfill, writer: str, progress: Callable[[str], None]
) -> Computed:
    paths = EpochPaths(lake=config.lake, topology=backfill.topology, epoch=backfill.epoch)
    topology = registry.load_stored(
        code_store.extract(config.lake, backfill.code, config.home) / "topologies", backfill.topology
    )
    start, end = ranges_start(backfill.reads), ranges_end(backfill.reads)
    with Broker(config.bootstrap_servers) as broker:
        run = beside(
            config,
            spark.session,
            broker,
            paths,
            topology,
            writer=writer,
            code=backfill.code,
            archived=backfill.archived,
        )
        epoch = None if backfill.since is None else backfill.epoch
        source = SeedSource(kind=backfill.seed, epoch=epoch, seq=backfill.since, times=epoch is not None)
        second_run = opened(run, backfill.folder, source, start)
        archives = [run.archive(topic) for topic in sorted({item.topic for item in backfill.archived})]
        index = time_index(broker, start.topics, archives)
        while advance(second_run, end, index, config.slice_records):
            offsets = start.count_to(second_run.ledger.begun().position)
            progress(f"computed {offsets:,} of {backfill.offsets:,} offsets")
    progress("comparing with the live epoch")
    committed = second_run.ledger.begun().committed
    appends = [append for append in topology.appends if append.name in backfill.outputs]
    for append in appends:
        _check_times(run, append, rows_of(second_run, committed, append), backfill)
    compared = [_twice(run, second_run, committed, append, backfill) for append in appends]
    compared += [
        _windows(run, table, backfill) for table in windowed_tables(topology) if table.name in backfill.outputs
    ]
    for table in second_run.scratch.states.values():
        table.forget()
    return Computed(
        writer=second_run.writer,
        rows={append.name: committed.delta_versions[f"outputs/{append.name}"] for append in appends},
        compared=tuple(compared),
    )


@act
def request(config: Config, backfill: Backfill, computed: Computed, *, actor: str, reason: str) -> Act[Event]:
    """Ask the live epoch's driver to replace the rows. Returns at once; see :func:`await_replaced`.

    One event in the record of epochs, by compare-and-set. An interval that is asked for already is not asked for again.

    Args:
        backfill: what :func:`propose` gave.
        computed: what :func:`compute` gave.

    Raises:
        MoveRefusedError: the live epoch or its code is another by now.
    """
    epochs = epochs_of(config.lake)
    paths = EpochPaths(lake=config.lake, topology=backfill.topology, epoch=backfill.epoch)
    folder = paths.recomputed(backfill.folder)
    detail = {
        "from": backfill.begin.isoformat(),
        "to": backfill.end.isoformat(),
        "code": backfill.code,
        "folder": backfill.folder,
        "writer": computed.writer,
        "ranges": ranges_as_dict(backfill.ranges),
        "offsets": backfill.offsets,
        "outputs": {
            comparison.name: {
                **({"time": backfill.times[comparison.name]} if comparison.name in backfill.times else {}),
                **(_written(folder, comparison.name, computed) if comparison.kind == "output" else {"table": True}),
                "rows": comparison.rows_again,
                "before": comparison.rows,
                "same": comparison.is_same,
            }
            for comparison in computed.compared
        },
    }
    requests: list[Event] = []

    def decide(now: Now) -> Sequence[Event]:
        record = now.record
        if record.live != backfill.epoch or record.epoch(backfill.epoch).code != backfill.code:
            running = record.epoch(record.live).code if record.live is not None else ""
            raise MoveRefusedError(
                f"Live epoch {record.live} of {backfill.topology!r} runs code {running[:12]} by now; the interval was "
                f"computed with code {backfill.code[:12]} for epoch {backfill.epoch}. Compute it again: kappa backfill "
                f"{backfill.topology} --from {backfill.begin.isoformat()} --to {backfill.end.isoformat()}",
                live=record.live,
                code=running,
            )
        requests[:] = [e for e in record.epoch(backfill.epoch).backfills if e.detail["folder"] == backfill.folder]
        if requests:
            return []
        return [now.event("backfill", backfill.epoch, actor=actor, reason=reason, detail=detail)]

    def requested(appended: list[Event]) -> None:
        requests.extend(appended)
        crash_point("backfill.asked")

    effects, now = epochs.effects(epochs.now(backfill.topology), decide, after=requested)
    if now.record.epoch(backfill.epoch).is_wanted:
        effects = process.with_driver(effects, config, backfill.topology, backfill.epoch)
    return Act(effects=effects, outcome=lambda: requests[0])


def await_replaced(
    config: Config, request: Event, *, timeout_seconds: float = 600.0, progress: Callable[[str], None] = lambda _: None
) -> Event:
    """Wait until the live epoch's driver replaced the rows; one that died is started again.

    Returns:
        The event ``backfilled``.

    Raises:
        MoveRefusedError: the driver withdrew it, and the message says why; or somebody stopped the epoch, and it stays
            asked for.
        DriverNotRunningError: it is not done yet, or the epoch is stuck; it stays asked for.
    """
    deadline = time.monotonic() + timeout_seconds
    revival = process.Revival(config, {request.topology: request.epoch})
    progress(f"waiting for the turn of epoch {request.epoch}")
    while time.monotonic() < deadline:
        record = epochs_of(config.lake).record(request.topology)
        ended = [e for e in record.events if e.detail.get("backfill") == request.n and e.epoch == request.epoch]
        for event in ended:
            if event.event == "backfill_withdrawn":
                raise MoveRefusedError(
                    f"The backfill of {request.topology!r} was withdrawn: {event.reason}", epoch=request.epoch
                )
            return event
        if record.live != request.epoch:
            raise MoveRefusedError(
                f"Epoch {record.live} of {request.topology!r} is live by now: epoch {request.epoch} replaces nothing. "
                f"Compute the interval again: kappa backfill {request.topology} --from {request.detail['from']} --to "
                f"{request.detail['to']}",
                live=record.live,
            )
        decided = [e for e in record.events if e.epoch == request.epoch and e.event in ("stuck", *DECISIONS)]
        if decided and decided[-1].event == "stuck":
            raise DriverNotRunningError(
                f"Epoch {request.epoch} of {request.topology!r} is stuck at slice {decided[-1].detail.get('seq')}: "
                f"{decided[-1].reason.rstrip('.')}. The interval stays asked for. End the cause, and let it try again: "
                f"kappa start {request.topology} --execute",
                epoch=request.epoch,
            )
        check_wanted(record, request.epoch, request="The interval")
        revival.look()
        time.sleep(process.ANSWER_SECONDS)
    raise DriverNotRunningError(
        f"Epoch {request.epoch} of {request.topology!r} has not replaced the interval after {timeout_seconds:.0f} s; "
        f"it stays asked for. See its log: kappa status {request.topology}",
        epoch=request.epoch,
    )


def summary(event: Event) -> list[str]:
    """The effect of a backfill, one line per output.

    Args:
        event: the event ``backfilled``.
    """
    detail = event.detail
    return [
        f"{name}: {counts['rows']:,} rows in the place of {counts['before']:,}"
        f"{', the same' if counts['same'] else ', which were others'} (slice {detail['seq']})"
        for name, counts in sorted(detail["outputs"].items())
    ]


def _twice(run: EpochRun, second_run: EpochRun, row: LedgerRow, append: Append, backfill: Backfill) -> Twice:
    """Rows of an output as the live epoch has them, and as they were computed."""
    where = belongs(append, backfill.times.get(append.name), backfill.begin, backfill.end, backfill.ranges)
    return twice(append, _live(run, append).where(where), rows_of(second_run, row, append).where(where), Mask())


def _written(folder: EpochPaths, name: str, computed: Computed) -> dict[str, int]:
    """The version and rows of an output in the folder, for the driver that replaces them."""
    version = computed.rows[name]
    return {"version": version, "computed": table_files.count(folder.output(name), version)}


def _windows(run: EpochRun, table: Table, backfill: Backfill) -> Twice:
    """Rows of closed windows as the live epoch has them, and as they were computed."""
    committed = run.ledger.begun().committed
    return twice(table, *closed_windows(run, committed, table, backfill.folder, backfill.begin, backfill.end), Mask())


def _live(run: EpochRun, append: Append) -> DataFrame:
    """All rows of an output as the live epoch has them."""
    committed = run.ledger.begun().committed
    return frame_at(run.engines.session, run.paths, committed, f"outputs/{append.name}")


def _check_times(run: EpochRun, append: Append, again: DataFrame, backfill: Backfill) -> None:
    """Rows that belong to the interval by a column have a time there, and it is that of records that were read.

    Args:
        append: the output.
        again: its rows as they were computed.

    Raises:
        MoveRefusedError: some have none, or that of other records.
    """
    time = backfill.times.get(append.name)
    if time is None:
        return
    nulls = again.where(f"{quote(time)} IS NULL").count()
    if nulls:
        raise MoveRefusedError(
            f"{nulls:,} rows of {append.name!r} have no {time!r}, so that they belong to no interval: rows of an outer "
            f"join's right side, for example. `kappa replay {backfill.topology}` computes all of them.",
            output=append.name,
            rows=nulls,
        )
    live_rows = _live(run, append).where(belongs(append, time, backfill.begin, backfill.end, ()))
    strange = live_rows.where(f"_offset IS NOT NULL AND NOT ({rows_from(backfill.reads)})").count()
    if strange:
        raise MoveRefusedError(
            f"{strange:,} rows of {append.name!r} with {time!r} in the interval come from records outside of what was "
            f"read for it: {time!r} is not the event time of the record that a row comes from, or not the beginning of "
            f"its window. `kappa replay {backfill.topology}` computes all of them.",
            output=append.name,
            rows=strange,
        )
