"""An epoch of so many slices of one record each, a second apart, by a clock that is moved on by hand, without Spark.

Plan, effects and commit are appended to the ledger. The product's own upkeep says which commits stay readable, and its
own roll-up takes their rows. The tables do not change.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from confluent_kafka import Producer

from benchmarks.site import SOURCE, TOPOLOGY, Site, now, say
from kappa import clock
from kappa.delta.append_log import AppendLog
from kappa.delta.retention import held
from kappa.driver import maintenance
from kappa.kafka import markers
from kappa.kafka import producer as sender
from kappa.kafka.broker import Broker
from kappa.kafka.connection import producer_settings
from kappa.offsets.vector import OffsetRange, Offsets, ranges_end
from kappa.record import rollup
from kappa.record.epochs import epochs_of
from kappa.record.ledger import Ledger, _arrow_schema, _to_record
from kappa.record.ledger_rows import LedgerRow, plan_hash
from kappa.record.ledger_state import StateBuilder, begun, stays
from kappa.slices.run import Engines, EpochRun
from kappa.slices.topics.sending import marker
from kappa.topology import registry

#: So many of the last slices are appended row by row, and those before so many at once.
APPENDED, AT_ONCE = 1_000, 50
WRITER = "benchmark:slices"
SLICE = timedelta(seconds=0.3)


def grow(site: Site, epoch: int, slices: int, *, remembered: int) -> None:
    """Let an epoch commit so many slices, the last of them now, the first so many in memory; no driver runs."""
    paths, real = site.paths(epoch), clock.now
    record = site.record()
    ledger = Ledger(paths.ledger)
    state = ledger.begun()
    last = state.committed
    at = now() - timedelta(seconds=slices + 5)
    clock.now = lambda: at
    try:
        ledger.claim(WRITER, last.code, state)
        with Broker(site.config.bootstrap_servers) as broker:
            run = EpochRun(
                topology=registry.load(site.config.topologies, TOPOLOGY),
                paths=paths,
                writer=WRITER,
                code=last.code,
                ledger=ledger,
                engines=Engines(session=None, broker=broker, bootstrap_servers=site.config.bootstrap_servers),  # type: ignore[arg-type]
                topic_ids=dict(record.epoch(epoch).plan.topic_ids),
                lake_id=epochs_of(site.config.lake).lake_id(),
            )
            if remembered:
                _remembered(run, site, at, remembered)
                at += timedelta(seconds=remembered)
            number = remembered
            while number < slices:
                count = 1 if slices - number <= APPENDED else AT_ONCE
                at += timedelta(seconds=count)
                _append_slices(ledger, at, count)
                number += count
                state = ledger.begun()
                if maintenance.is_due(state, site.config, at):
                    maintenance.maintain(run, site.config, at)
                    state = ledger.begun()
                if rollup.is_due(state, site.config.rollup_slices):
                    row = rollup.rolled_up(state, writer=WRITER, code=last.code, at=at)
                    if row is not None:
                        ledger.roll_up(row)
                if number % 10_000 == 0:
                    say(f"{number:,} slices")
            _fill(site, state.position)
            commit = ledger.begun().committed
            last_marker = markers.read(broker, paths)
            assert last_marker is not None
            run.sent.turn = last_marker.turn
            end = ranges_end(commit.ranges)
            sender.append(
                site.config.bootstrap_servers,
                marker(run, commit.seq, end, commit, commit.sends, plan=plan_hash(commit)),
            )
            broker.set_group_offsets(paths.name, end)
    finally:
        clock.now = real


def _committed(commit: LedgerRow, at: datetime, n: int = 0) -> LedgerRow:
    """The commit of the slice after a commit: one record of the first partition."""
    carry_over = {name: commit.detail[name] for name in ("folded", "sent") if name in commit.detail}
    return LedgerRow(
        n=n,
        kind="commit",
        seq=commit.seq + 1,
        writer=WRITER,
        at=at,
        ranges=tuple(map(_following, commit.ranges)),
        sends="live",
        logged=True,
        code=commit.code,
        rows_read=1,
        rows_parsed=1,
        max_timestamps=commit.max_timestamps,
        delta_versions=commit.delta_versions,
        detail={**carry_over, "started_at": (at - SLICE).isoformat(), "bytes_read": 500},
    )


def _following(read: OffsetRange) -> OffsetRange:
    if read.partition and read.is_empty:
        return read
    return OffsetRange(topic=read.topic, partition=read.partition, start=read.end, end=read.end + (read.partition == 0))


def _append_slices(ledger: Ledger, at: datetime, count: int) -> None:
    commit = ledger.begun().committed
    rows: list[LedgerRow] = []
    for number in range(count):
        commit = _committed(commit, at - timedelta(seconds=count - 1 - number))
        rows += [*(replace(row, n=0) for row in _before(commit)), commit]
    if count == 1:
        for row in rows:
            ledger.append(row)
    else:
        ledger._log.append([_to_record(row) for row in rows])


def _remembered(run: EpochRun, site: Site, at: datetime, slices: int) -> None:
    """Put what so many slices leave into the ledger: rows that stay, and the product's own roll-up of the others."""
    builder = StateBuilder()
    records = {row.n: row for row in run.ledger.rows()}
    for row in records.values():
        builder.add(row)
    state = begun(builder.state())
    n, keeps = state.last, maintenance.retention(site.config)
    looked = at
    commit = state.committed
    since: list[LedgerRow] = []
    start = time.monotonic()
    for number in range(slices):
        at += timedelta(seconds=1)
        n += 3
        commit = _committed(commit, at, n)
        builder.add(commit)
        since.append(commit)
        if at - looked >= timedelta(minutes=site.config.maintain_minutes):
            n += 1
            looked = at
            row = _look(builder, n, at, keeps)
            builder.add(row)
            since.append(row)
        if number % site.config.rollup_slices == 0 and rollup.is_due(
            state := begun(builder.state()), site.config.rollup_slices
        ):
            rollup_row = rollup.rolled_up(state, writer=WRITER, code=commit.code, at=at)
            if rollup_row is not None:
                n += 1
                is_kept = stays(state, rollup_row.detail["upto"])
                rolled = replace(rollup_row, n=n, detail={**rollup_row.detail, "file": "none"})
                builder.add(rolled)
                records = {row.n: row for row in [*records.values(), *since] if is_kept(row.n, row.kind, row.seq)}
                records[n] = rolled
                since = []
        if number % 1_000_000 == 999_999:
            say(f"{number + 1:,} slices in memory, {time.monotonic() - start:.0f} s")
    records.update({row.n: row for row in since})
    state = begun(builder.state())
    assert state.rolled is not None
    # The rows that are not rolled up yet are all there: a ledger has no gaps behind its roll-up.
    upto = state.rolled.detail["upto"]
    for row in [row for row in records.values() if row.kind == "commit" and row.n - 2 > upto]:
        plan, effects = _before(row)
        records |= {plan.n: plan, effects.n: effects}
    log = AppendLog(run.paths.ledger, _arrow_schema())
    log.refresh()
    last = records.pop(max(records))
    log._last = last.n - 1
    log_rows = [{**_to_record(row), "n": row.n} for row in sorted(records.values(), key=lambda row: row.n)]
    log.replace(log_rows, [_to_record(last)], upto)


def _before(commit: LedgerRow) -> tuple[LedgerRow, LedgerRow]:
    """The plan and the effects row of a slice, by its commit row."""
    common: dict[str, Any] = {
        name: getattr(commit, name) for name in ("seq", "writer", "at", "ranges", "sends", "logged", "code")
    }
    changed = {place: v for place, v in commit.delta_versions.items() if not place.startswith("tables/")}
    counts: dict[str, Any] = {"rows_read": 1, "rows_parsed": 1, "max_timestamps": commit.max_timestamps}
    return (
        LedgerRow(n=commit.n - 2, kind="plan", **common),
        LedgerRow(n=commit.n - 1, kind="effects", **common, **counts, delta_versions=changed),
    )


def _look(builder: StateBuilder, n: int, at: datetime, keeps: Any) -> LedgerRow:
    state = builder.state()
    readable = state.readable
    held_seqs = set(held([(commit.seq, commit.at) for commit in readable], at, keeps, ()))
    dropped_seqs = [commit.seq for commit in readable if commit.seq not in held_seqs]
    before = max([state.readable_from, *(seq + 1 for seq in dropped_seqs)])
    detail = {
        "readable_from": before,
        "savepoints": sorted(seq for seq in held_seqs if seq < before),
        "folds": {},
        "recent_from": before,
        "forgotten": {},
    }
    return LedgerRow(n=n, kind="maintain", seq=state.seq, writer=WRITER, at=at, detail=detail)


def _fill(site: Site, end: Offsets) -> None:
    """Produce until the first partition ends there."""
    with Broker(site.config.bootstrap_servers) as broker:
        have = dict(broker.stable_offsets([SOURCE]).items())
    partition = next(at for at, _ in end.items() if at[0] == SOURCE and at[1] == 0)
    missing = dict(end.items())[partition] - have[partition]
    producer = Producer(
        {**producer_settings(site.config.bootstrap_servers), "linger.ms": 50, "queue.buffering.max.messages": 2_000_000}
    )
    for _ in range(missing):
        while True:
            try:
                producer.produce(SOURCE, b"{}", partition=0)
                break
            except BufferError:
                producer.poll(0.1)
    producer.flush()
