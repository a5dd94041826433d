"""(b) Live latency, produced to readable in Delta, over a bare Structured Streaming append from Kafka to Delta.

Both follow the same topic at the same rate with the same trigger, one after the other: first the bare query in a
session of this process, then ``retail.loyalty`` version 2 by a driver process. A record is readable when the commit
that holds it is seen from outside, by a look every 20 ms: for the bare query a new Delta version, for Kappa a commit in
the ledger, which is what its readers resolve. Each is given a quarter of the time beforehand, from its first commit on,
to warm up.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.feed import Feed, feed
from benchmarks.result import Figure
from benchmarks.site import SOURCE, Site, say
from kappa.record.ledger import Ledger

LOOK_SECONDS = 0.02
HISTORY = 10_000
WARM_UP_SHARE = 0.25

#: Partition, first offset, end offset, and when they were seen.
Sighting = tuple[int, int, int, float]


def measure(site: Site) -> list[Figure]:
    """Run it."""
    site.generate(min(HISTORY, site.scale.records))
    bare = np.array(_bare(site))
    ours = np.array(_kappa(site))
    detail = {
        "rate": site.scale.rate,
        "trigger_seconds": site.config.trigger_seconds,
        "records": {"bare": len(bare), "kappa": len(ours)},
    }
    figures = []
    for share in (50, 95):
        latency, least = float(np.percentile(ours, share)), float(np.percentile(bare, share))
        target = "<= 1.5" if share == 50 else ""
        figures.append(
            Figure(
                part="b",
                name=f"live latency p{share} over the bare append",
                value=latency / least,
                unit="x",
                wanted=target,
                detail=detail,
            )
        )
        figures.append(Figure(part="b", name=f"live latency p{share}", value=latency, unit="s"))
        figures.append(Figure(part="b", name=f"bare append p{share}", value=least, unit="s"))
    return figures


def _bare(site: Site) -> list[float]:
    table = Path(site.config.home) / "bare"
    with site.session("benchmark b") as session:
        query = (
            session.readStream.format("kafka")
            .option("kafka.bootstrap.servers", site.config.bootstrap_servers)
            .option("subscribe", SOURCE)
            .option("startingOffsets", "latest")
            .load()
            .select("key", "value", "partition", "offset", "timestamp")
            .writeStream.format("delta")
            .option("checkpointLocation", f"{table}.checkpoint")
            .trigger(processingTime=f"{site.config.trigger_seconds} seconds")
            .start(str(table))
        )
        try:
            site.until(lambda: query.lastProgress is not None, "the bare query runs")
            delays = _watched(site, lambda: _new_versions(table))
        finally:
            query.stop()
    return delays


def _new_versions(table: Path) -> Iterator[list[tuple[int, int, int]]]:
    """What each look finds: partition, first and end offset of the files of versions that are new."""
    import pyarrow.parquet as pq

    version = -1
    while True:
        spans: list[tuple[int, int, int]] = []
        files = []
        while (entry := table / "_delta_log" / f"{version + 1:020}.json").exists():
            version += 1
            files += [
                table / action["add"]["path"]
                for action in map(json.loads, entry.read_text().splitlines())
                if "add" in action
            ]
        for file in files:
            rows = pq.read_table(file, columns=["partition", "offset"])
            ends = rows.group_by("partition").aggregate([("offset", "min"), ("offset", "max")]).to_pylist()
            spans += [(row["partition"], row["offset_min"], row["offset_max"] + 1) for row in ends]
        yield spans


def _kappa(site: Site) -> list[float]:
    site.deploy(2)
    epoch = site.start()
    site.settle(epoch)
    return _watched(site, lambda: new_commits(site, epoch))


def new_commits(site: Site, epoch: int) -> Iterator[list[tuple[int, int, int]]]:
    """What each look finds: partition, first and end offset of the slices that are new."""
    ledger = Ledger(site.paths(epoch).ledger)
    seq = ledger.state().seq
    while True:
        commits = [row for row in ledger.state().commits if row.seq > seq]
        seq = commits[-1].seq if commits else seq
        yield [(range_.partition, range_.start, range_.end) for row in commits for range_ in row.ranges]


def _watched(site: Site, looks: Callable[[], Iterator[list[tuple[int, int, int]]]]) -> list[float]:
    """Latencies of the records of a steady stream, in seconds."""
    with watcher(looks()) as sightings:
        with feed(site.config.bootstrap_servers, site.scale.rate, first=HISTORY) as stream:
            site.until(lambda: sightings, "a first commit is seen")
            time.sleep(WARM_UP_SHARE * site.scale.seconds)
            start = time.time()
            time.sleep(site.scale.seconds)
            end = time.time()
        site.until(lambda: is_all_seen(sightings, stream), "all records are seen")
    delays = [latency for at, latency in latencies(sightings, stream) if start <= at <= end]
    expected = sum(start <= at <= end for times in stream.produced.values() for at in times.values())
    if len(delays) != expected:
        raise AssertionError(f"{len(delays):,} of {expected:,} records were seen")
    say(f"{len(delays):,} records seen, median {np.median(delays):.2f} s")
    return delays


@contextmanager
def watcher(looks: Iterator[list[tuple[int, int, int]]]) -> Iterator[list[Sighting]]:
    """Looks from a thread, every 20 ms; what it saw, with the time before each look's own work."""
    sightings: list[Sighting] = []
    stopping = threading.Event()

    def run() -> None:
        while not stopping.wait(LOOK_SECONDS):
            at = time.time()
            sightings.extend((*span, at) for span in next(looks))

    thread = threading.Thread(target=run, name="watcher", daemon=True)
    thread.start()
    try:
        yield sightings
    finally:
        stopping.set()
        thread.join()


def is_all_seen(sightings: Iterable[Sighting], stream: Feed) -> bool:
    """Whether everything that was produced has been seen."""
    return sum(1 for _ in latencies(list(sightings), stream)) >= sum(map(len, stream.produced.values()))


def latencies(sightings: Iterable[Sighting], stream: Feed) -> Iterator[tuple[float, float]]:
    """When each record was produced, and how long it took to be seen."""
    for partition, start, end, at in sightings:
        produced = stream.produced.get(partition, {})
        for offset in range(start, end):
            if offset in produced:
                yield produced[offset], at - produced[offset]
