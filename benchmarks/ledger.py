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
from dataclasses import dataclass
from statistics import median

import psutil
from confluent_kafka import Producer

from benchmarks.grown_ledger import APPENDED, grow
from benchmarks.result import Figure
from benchmarks.site import ACTOR, SOURCE, TOPOLOGY, Site, say
from benchmarks.site import site as another_site
from kappa import control
from kappa.kafka.connection import producer_settings
from kappa.presence import heartbeat
from kappa.record.ledger import Ledger
from kappa.replay.stages import Stage
from kappa.replay.starts import ToLatest
from kappa_local.generators.invoices import Invoices

#: A smaller run shrinks the year only.
LENGTHS = {"an hour": 1_000, "a day": 50_000, "a year": 365 * 24 * 3600}
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
    costs_by_length: dict[str, Costs] = {}
    with ExitStack() as stack:
        places: dict[str, tuple[Site, int]] = {}
        for name, most in LENGTHS.items():
            slices = max(2 * APPENDED, site.scale.of(most)) if name == "a year" else most
            place = stack.enter_context(another_site(site.config.home / name.replace(" ", "-"), site.scale))
            places[name] = place, _grown(place, name, slices)
        # After all have grown, one right after the other: what is compared is measured within minutes.
        for name, (place, epoch) in places.items():
            costs_by_length[name] = _costs(place, epoch)
            say(f"{name}: {costs_by_length[name]}")
    base = costs_by_length.pop("an hour")
    figures = []
    for name, costs in costs_by_length.items():
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
    start = time.monotonic()
    grow(site, epoch, slices, remembered=slices - APPENDED if name == "a year" else 0)
    state = site.state(epoch)
    say(f"{name}: {state.slices:,} slices, {len(site.rows(epoch)):,} rows, in {time.monotonic() - start:.0f} s")
    return epoch


def _costs(site: Site, epoch: int) -> Costs:
    commands = {what: _command(site, what) for what in ("status", "certify")}
    start, memory = _start(site, epoch)
    follow = _follow(site, epoch)
    pause = _pause(site, epoch)
    return Costs(start=start, memory=memory, pause=pause, follow=follow, rows=len(site.rows(epoch)), **commands)


def _start(site: Site, epoch: int) -> tuple[float, float]:
    """Seconds from a driver's launch to the commit of a record, and what its Python holds then."""
    _invoice(site)
    start = time.monotonic()
    control.start(site.config, TOPOLOGY, **ACTOR)
    site.settle(epoch)
    seconds = time.monotonic() - start
    time.sleep(10)  # idle again: what the first slice took is let go
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
        run = subprocess.run(
            [sys.executable, "-m", "kappa", what, TOPOLOGY], env=env, capture_output=True, text=True, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if run.returncode:
            raise AssertionError(f"kappa {what} ended with {run.returncode}:\n{run.stdout}{run.stderr}")
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
    """Seconds between the yield of one epoch and the resume of the other: the middle of moves there, back and there."""
    other = site.replay(start=ToLatest())
    site.until(
        lambda: site.record().epoch(other).stage is Stage.VERIFIED and site.state(other).baseline_seq is not None,
        "the candidate is verified",
        other,
    )
    pauses = [_moved(site, epoch, other)]
    for before, after in ((other, epoch), (epoch, other)):
        control.rollback(site.config, TOPOLOGY, to=after, **ACTOR)
        site.until(lambda back=after: control.progress(site.config, TOPOLOGY, back).is_caught_up, "it is back", after)  # type: ignore[misc]
        pauses.append(_moved(site, before, after))
    site.stop(other)
    say(f"pauses of {', '.join(f'{pause:.2f}' for pause in pauses)} s")
    return median(pauses)


def _moved(site: Site, before: int, after: int) -> float:
    """Seconds of a cutover without a sender."""
    control.cut_over(site.config, TOPOLOGY, after, **ACTOR)
    site.until(lambda: site.record().live == after and not site.state(after).is_yielded, "the other epoch sends", after)
    yielded = next(row.at for row in reversed(site.rows(before)) if row.kind == "yield")
    resumed = next(row.at for row in reversed(site.rows(after)) if row.kind == "resume")
    return (resumed - yielded).total_seconds()
