"""(g) Peak memory of a replay's driver over history, over that of one over a tenth of it, in slices of one size.

Version 1 goes live and reads the topic; then its driver is stopped. Two replays to version 2 follow, each in a driver
process of its own, one up to a tenth of each partition and one over all of it. Memory is what the driver's Python, its
JVM and its Python workers hold together (proportional set size, so that shared pages count once), looked at every half
second until stage ``REPLAYED``. The slices are a tenth of the shorter replay, so that both have had many. Both have the
same customers: what grows with the state is another matter than what grows with history.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

from benchmarks.result import Figure
from benchmarks.site import ACTOR, SOURCE, TOPOLOGY, Site, say
from kappa import control
from kappa.kafka.broker import Broker
from kappa.offsets.vector import Offsets
from kappa.presence import heartbeat

#: The longer replay has so many times the records of the shorter one.
TIMES = 10
#: Slices of the shorter replay.
SLICES = 10
#: Customers, at full size: nearly all of them have bought something within the shorter replay.
CUSTOMERS = 50_000


def measure(site: Site) -> list[Figure]:
    """Run it."""
    records = site.scale.records * 5 // 3
    customers = site.scale.of(CUSTOMERS)
    site.generate(records, customers)
    site.deploy(1)
    first = site.start()
    site.settle(first)
    site.stop(first)
    site.deploy(2)
    site = site.with_slices(-(-records // (TIMES * SLICES)))
    with Broker(site.config.bootstrap_servers) as broker:
        whole = broker.stable_offsets([SOURCE])
    part = Offsets.of((at, offset // TIMES) for at, offset in whole.items())
    peaks = [_peak(site, end) for end in (part, whole)]
    short, long = (peak.total() for peak in peaks)
    detail = {
        "records": [records // TIMES, records],
        "slice_records": site.config.slice_records,
        "customers": customers,
        "bytes": [dict(peak) for peak in peaks],
    }
    return [
        Figure(
            part="g",
            name=f"peak memory of a replay, over one of a {TIMES}th of the records",
            value=long / short,
            unit="x",
            wanted="<= 1.2",
            detail=detail,
        ),
        Figure(part="g", name="peak memory of the longer replay", value=long / 1e6, unit="MB"),
    ]


def _peak(site: Site, end: Offsets) -> Counter[str]:
    """What a replay's driver held when it held most, in bytes by program; its epoch is aborted."""
    epoch = site.replay(end=end)
    with _watched(site, epoch) as samples:
        site.until(lambda: site.at(epoch, "replayed"), "the replay ends", epoch, pause=0.5)
    control.abort(site.config, TOPOLOGY, epoch, **ACTOR)
    peak = max(samples, key=Counter.total)
    parts = ", ".join(f"{name} {held / 1e6:,.0f}" for name, held in peak.most_common())
    offsets = sum(offset for _, offset in end.items())
    say(f"peak of a replay of {offsets:,} offsets: {peak.total() / 1e6:,.0f} MB ({parts})")
    return peak


@contextmanager
def _watched(site: Site, epoch: int) -> Iterator[list[Counter[str]]]:
    """Bytes held by an epoch's driver and its children, by program, looked at again and again."""
    samples: list[Counter[str]] = []
    stopping = threading.Event()

    def watch() -> None:
        while not stopping.wait(0.5):
            beat = heartbeat.read(site.paths(epoch).heartbeat)
            if beat is not None:
                samples.append(_held(beat.pid))

    thread = threading.Thread(target=watch, name="memory", daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        stopping.set()
        thread.join()


def _held(pid: int) -> Counter[str]:
    held: Counter[str] = Counter()
    with suppress(psutil.NoSuchProcess):  # a worker that ended while it was looked at
        driver = psutil.Process(pid)
        processes = [("driver", driver), *((child.name(), child) for child in driver.children(recursive=True))]
        for name, process in processes:
            held[name] += process.memory_full_info().pss
    return held
