"""(i) What an epoch costs after 50,000 slices and after a year of them, over what it costs after 1,000.

Each length has a site of its own. A driver process brings version 1 of the topology live and is stopped; its epoch then
goes on without Spark, one slice a second of one record each, by a clock that is moved on by hand: plan, effects and
commit are appended to the ledger, the product's own upkeep says which commits stay readable, and the product's own
roll-up takes their rows. The tables do not change. The last ``APPENDED`` slices are appended row by row, as a driver
does; those before ``AT_ONCE`` a time, and of a year most go through the same roll-up in memory. At the end the topic
has a record for each offset, and the broker the marker of the last slice.

Compared are, each by real processes: a driver's start (from its launch to the commit of one record), its Python's
memory, ``kappa status`` and ``kappa certify``, the pause of a cutover to an epoch that was built beside it (from the
yield of the one to the resume of the other), and what one more slice costs an observer.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import median
from typing import Any

import psutil
from confluent_kafka import Producer

from benchmarks.result import Figure
from benchmarks.site import ACTOR, SOURCE, TOPOLOGY, Site, now, say
from benchmarks.site import site as another_site
from kappa import clock, control
from kappa.driver import maintenance
from kappa.kafka import markers
from kappa.kafka import producer as sender
from kappa.kafka.broker import Broker
from kappa.kafka.connection import producer_settings
from kappa.lake import heartbeat, rollup
from kappa.lake.append_log import AppendLog
from kappa.lake.epochs import Epochs
from kappa.lake.ledger import Ledger, _arrow_schema, _to_record
from kappa.lake.ledger_rows import LedgerRow, plan_hash
from kappa.lake.ledger_state import StateBuilder
from kappa.lake.retention import held
from kappa.offsets.vector import OffsetRange, Offsets, ranges_end
from kappa.replay.request import ReplayRequest
from kappa.replay.stages import Stage
from kappa.replay.starts import ToLatest
from kappa.slices.run import Engines, EpochRun
from kappa.slices.sending import marker
from kappa.topology import registry
from kappa_local.invoices import Invoices

#: A smaller run shrinks the year only.
LENGTHS = {"an hour": 1_000, "a day": 50_000, "a year": 365 * 24 * 3600}
#: So many of the last slices are appended row by row, and those before so many at once.
APPENDED, AT_ONCE = 1_000, 50
WRITER = "benchmark:slices"
#: Times that a command is run; the middle one counts.
RUNS = 5


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What an epoch of some length costs: seconds, and bytes."""

    start: float
    memory: float
    status: float
    certify: float
    pause: float
    follow: float
    rows: int


def measure(site: Site) -> list[Figure]:
    """Run it."""
    found: dict[str, Costs] = {}
    with ExitStack() as stack:
        places: dict[str, tuple[Site, int]] = {}
        for name, most in LENGTHS.items():
            slices = max(2 * APPENDED, site.scale.of(most)) if name == "a year" else most
            place = stack.enter_context(another_site(site.config.home / name.replace(" ", "-"), site.scale))
            places[name] = place, _grown(place, name, slices)
        # After all have grown, one right after the other: what is compared is measured within minutes.
        for name, (place, epoch) in places.items():
            found[name] = _costs(place, epoch)
            say(f"{name}: {found[name]}")
    base = found.pop("an hour")
    figures = []
    for name, costs in found.items():
        for what, unit in (
            ("start", "driver's start"),
            ("memory", "driver's memory"),
            ("status", "kappa status"),
            ("certify", "kappa certify"),
            ("pause", "pause of a cutover"),
            ("follow", "one more slice, to an observer"),
        ):
            ratio = getattr(costs, what) / getattr(base, what)
            detail = {
                "of 1,000 slices": getattr(base, what),
                f"of {name}": getattr(costs, what),
                "rows": [base.rows, costs.rows],
            }
            figures.append(
                Figure(
                    part="i",
                    name=f"{unit} after {name}, over 1,000 slices",
                    value=ratio,
                    unit="x",
                    wanted="<= 1.5",
                    detail=detail,
                )
            )
    return figures


def _grown(site: Site, name: str, slices: int) -> int:
    """A live epoch of so many slices, the last of them now; no driver runs."""
    site.deploy(1)
    site.generate(1_000)
    epoch = site.start()
    site.settle(epoch)
    site.stop(epoch)
    begun = time.monotonic()
    _grow(site, epoch, slices, remembered=slices - APPENDED if name == "a year" else 0)
    state = site.state(epoch)
    say(f"{name}: {state.slices:,} slices, {len(site.rows(epoch)):,} rows, in {time.monotonic() - begun:.0f} s")
    return epoch


def _costs(site: Site, epoch: int) -> Costs:
    commands = {what: _command(site, what) for what in ("status", "certify")}
    start, memory = _start(site, epoch)
    follow = _follow(site, epoch)
    pause = _pause(site, epoch)
    return Costs(start=start, memory=memory, pause=pause, follow=follow, rows=len(site.rows(epoch)), **commands)


# Growing


def _grow(site: Site, epoch: int, slices: int, *, remembered: int) -> None:
    """Let an epoch commit so many slices, the last of them now, the first so many in memory; no driver runs."""
    paths, real = site.paths(epoch), clock.now
    record = site.record()
    ledger = Ledger(paths.ledger)
    state = ledger.state()
    last = state.committed
    assert last is not None
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
                lake_id=Epochs(site.config.lake).lake_id(),
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
                state = ledger.state()
                if maintenance.is_due(state, site.config, at):
                    maintenance.maintain(run, site.config, at)
                    state = ledger.state()
                if rollup.is_due(state, site.config.rollup_slices):
                    row = rollup.rolled_up(state, writer=WRITER, code=last.code, at=at)
                    if row is not None:
                        ledger.roll_up(row)
                if number % 10_000 == 0:
                    say(f"{number:,} slices")
            _fill(site, state.position)
            done = ledger.state().committed
            assert done is not None
            found = markers.read(broker, paths)
            assert found is not None
            run.sent.turn = found.turn
            end = ranges_end(done.ranges)
            sender.append(
                site.config.bootstrap_servers, marker(run, done.seq, end, done, done.sends, plan=plan_hash(done))
            )
            broker.set_group_offsets(paths.name, end)
    finally:
        clock.now = real


def _next(commit: LedgerRow, at: datetime) -> dict[str, Any]:
    """What the rows of the slice after a commit have in common: one record of the first partition."""
    ranges = tuple(
        OffsetRange(topic=r.topic, partition=r.partition, start=r.end, end=r.end + (r.partition == 0))
        for r in commit.ranges
    )
    return {
        "seq": commit.seq + 1,
        "writer": WRITER,
        "at": at,
        "ranges": ranges,
        "sends": "live",
        "logged": True,
        "code": commit.code,
    }


def _detail(commit: LedgerRow, at: datetime) -> dict[str, Any]:
    kept = {name: commit.detail[name] for name in ("folded", "sent") if name in commit.detail}
    return {**kept, "started_at": at.isoformat(), "bytes_read": 500}


def _committed(commit: LedgerRow, at: datetime) -> LedgerRow:
    return LedgerRow(
        kind="commit",
        **_next(commit, at),
        rows_read=1,
        rows_parsed=1,
        max_timestamps=commit.max_timestamps,
        delta_versions=commit.delta_versions,
        detail=_detail(commit, at - timedelta(seconds=0.3)),
    )


def _append_slices(ledger: Ledger, at: datetime, count: int) -> None:
    commit = ledger.state().committed
    assert commit is not None
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
    state = builder.state()
    n, keeps = state.last, maintenance.retention(site.config)
    looked = at
    commit = state.committed
    assert commit is not None
    since: list[LedgerRow] = []
    begun = time.monotonic()
    for number in range(slices):
        at += timedelta(seconds=1)
        n += 3
        commit = replace(_committed(commit, at), n=n)
        builder.add(commit)
        since.append(commit)
        if at - looked >= timedelta(minutes=site.config.maintain_minutes):
            n += 1
            looked = at
            row = _look(builder, n, at, keeps)
            builder.add(row)
            since.append(row)
        if number % site.config.rollup_slices == 0 and rollup.is_due(
            state := builder.state(), site.config.rollup_slices
        ):
            found = rollup.rolled_up(state, writer=WRITER, code=commit.code, at=at)
            if found is not None:
                n += 1
                stays = rollup.stays(state, found.detail["upto"])
                rolled = replace(found, n=n, detail={**found.detail, "file": "none"})
                builder.add(rolled)
                records = {row.n: row for row in [*records.values(), *since] if stays(row.n, row.kind, row.seq)}
                records[n] = rolled
                since = []
        if number % 1_000_000 == 999_999:
            say(f"{number + 1:,} slices in memory, {time.monotonic() - begun:.0f} s")
    records.update({row.n: row for row in since})
    state = builder.state()
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
    kept = [{**_to_record(row), "n": row.n} for row in sorted(records.values(), key=lambda row: row.n)]
    log.replace(kept, [_to_record(last)], upto)


def _before(commit: LedgerRow) -> tuple[LedgerRow, LedgerRow]:
    """The plan and the effects row of a slice, by its commit row."""
    common = {name: getattr(commit, name) for name in ("seq", "writer", "at", "ranges", "sends", "logged", "code")}
    changed = {place: v for place, v in commit.delta_versions.items() if not place.startswith("tables/")}
    counts = {"rows_read": 1, "rows_parsed": 1, "max_timestamps": commit.max_timestamps}
    return (
        LedgerRow(n=commit.n - 2, kind="plan", **common),
        LedgerRow(n=commit.n - 1, kind="effects", **common, **counts, delta_versions=changed),
    )


def _look(builder: StateBuilder, n: int, at: datetime, keeps: Any) -> LedgerRow:
    state = builder.state()
    readable = state.readable
    kept = set(held([(commit.seq, commit.at) for commit in readable], at, keeps, ()))
    gone = [commit.seq for commit in readable if commit.seq not in kept]
    before = max([state.readable_from, *(seq + 1 for seq in gone)])
    detail = {
        "readable_from": before,
        "savepoints": sorted(seq for seq in kept if seq < before),
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


# Measuring


def _start(site: Site, epoch: int) -> tuple[float, float]:
    """Seconds from a driver's launch to the commit of a record, and what its Python holds then."""
    _invoice(site)
    begun = time.monotonic()
    control.start(site.config, TOPOLOGY, **ACTOR)
    site.settle(epoch)
    seconds = time.monotonic() - begun
    time.sleep(10)
    beat = heartbeat.read(site.paths(epoch).heartbeat)
    assert beat is not None
    return seconds, float(psutil.Process(beat.pid).memory_full_info().uss)


def _invoice(site: Site) -> None:
    (record,) = Invoices().records(0, 1)
    key, value, _ = record
    producer = Producer(producer_settings(site.config.bootstrap_servers))
    producer.produce(SOURCE, value, key, partition=0)
    producer.flush()


def _command(site: Site, what: str) -> float:
    """CPU seconds of a whole command: the middle of some runs."""
    env = {**os.environ, **_env(site)}
    spent = []
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "kappa", what, TOPOLOGY], env=env, capture_output=True, text=True, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise AssertionError(f"kappa {what} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return median(spent)


def _env(site: Site) -> dict[str, str]:
    return {
        "KAPPA_HOME": str(site.config.home),
        "KAPPA_LAKE": site.config.lake,
        "KAPPA_TOPOLOGIES": str(site.config.topologies),
        "KAPPA_BOOTSTRAP_SERVERS": site.config.bootstrap_servers,
    }


def _follow(site: Site, epoch: int) -> float:
    """CPU seconds for an observer to see one more slice; its driver commits one of a record each time."""
    ledger = Ledger(site.paths(epoch).ledger)
    ledger.state()
    spent = []
    for _ in range(20):
        _invoice(site)
        site.settle(epoch)
        before = time.process_time()
        ledger.state()
        spent.append(time.process_time() - before)
    return median(spent)


def _pause(site: Site, epoch: int) -> float:
    """Seconds between the yield of the live epoch and the resume of another one."""
    request = ReplayRequest(
        topology=TOPOLOGY,
        start=ToLatest(),
        slice_records=site.config.slice_records,
        actor=ACTOR["actor"],
        reason=ACTOR["reason"],
    )
    other = control.replay(site.config, control.plan(site.config, request), **ACTOR)
    site.until(
        lambda: site.record().epoch(other).stage is Stage.VERIFIED and site.state(other).baseline_seq is not None,
        "the candidate is verified",
        other,
    )
    control.cut_over(site.config, TOPOLOGY, other, **ACTOR)
    site.until(lambda: site.state(other).has_sent, "the candidate sends", other)
    yielded = next(row.at for row in reversed(site.rows(epoch)) if row.kind == "yield")
    resumed = next(row.at for row in reversed(site.rows(other)) if row.kind == "resume")
    site.stop(other)
    return (resumed - yielded).total_seconds()
