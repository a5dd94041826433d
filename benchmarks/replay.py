"""(a) Bulk replay of ``retail.loyalty`` version 2, over the rate at which the same session merely reads and parses.

Version 1 goes live and reads the topic; then its driver is stopped, so that a replay has the machine for itself.
Whole process: the replay by a driver process, from its launch to stage ``REPLAYED``, Python and JVM started in between.
Warm: two more replays by drivers within this process, on one session, of which the second counts: half of what the JVM
does in the first is compiling itself. After it the same session reads the same slices twice, with Spark's Kafka reader
and ``from_json``, into nothing; the faster pass is the floor. The first slice of the replay and of each pass does not
count.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchmarks.result import Figure
from benchmarks.site import ACTOR, LOOK_SECONDS, TOPOLOGY, Site, now, say
from kappa import control
from kappa.offsets.vector import OffsetRange
from kappa.record.ledger_rows import LedgerRow
from kappa.replay.stages import Stage
from kappa.spark.kafka_source import read_log
from kappa.topology import Source, registry
from kappa.topology.ddl import ddl_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: At least so many slices, also of a small topic, so that some are warm.
SLICES = 6


def measure(site: Site) -> list[Figure]:
    """Run it."""
    site.generate(site.scale.records)
    size = min(site.config.slice_records, -(-site.scale.records // SLICES))
    site.deploy(1)
    first = site.start()
    start = time.monotonic()
    site.settle(first)
    say(f"version 1 is live and has read all of it, {time.monotonic() - start:.0f} s after it went live")
    site.stop(first)
    site.deploy(2)
    site = site.with_slices(size)
    whole = whole_process(site)
    warm, floors, rows = _warm(site)
    floor = max(floors)
    return [
        Figure(
            part="a",
            name="bulk replay, warm, over read and from_json",
            value=warm / floor,
            unit="x",
            wanted=">= 0.6",
            detail={
                "replay_records_per_second": warm,
                "floor_records_per_second": floors,
                "slices": rows,
                "slice_records": size,
            },
        ),
        Figure(part="a", name="bulk replay, warm", value=warm, unit="records/s"),
        Figure(part="a", name="read and from_json only, same session", value=floor, unit="records/s"),
        Figure(
            part="a",
            name="whole process, start to last slice",
            value=whole,
            unit="s",
            detail={"records": site.scale.records},
        ),
    ]


def whole_process(site: Site, *, archive: bool = True) -> float:
    """Seconds of a replay by a driver process, from its launch to stage ``REPLAYED``; its epoch is aborted."""
    start = now()
    epoch = site.replay(archive=archive)
    site.until(lambda: site.at(epoch, "replayed"), "the replay ends", epoch, pause=LOOK_SECONDS)
    end = site.at(epoch, "replayed")
    assert end is not None
    control.abort(site.config, TOPOLOGY, epoch, **ACTOR)
    seconds = (end - start).total_seconds()
    say(f"whole process {seconds:.1f} s")
    return seconds


def _warm(site: Site) -> tuple[float, list[float], int]:
    """Rates of the second replay and of both passes of the floor, and how many slices count."""
    site = site.without_launcher()
    sources = registry.load(site.config.topologies, TOPOLOGY).sources
    with site.session("benchmark a") as session:
        for what in ("first replay of the session", "warm"):
            commits = _replayed(site, session)
            rate = sum(row.rows_read for row in commits[1:]) / (commits[-1].at - commits[0].at).total_seconds()
            say(f"{what} {rate:,.0f} records/s")
        floors = [floor_rate(session, site.config.bootstrap_servers, sources, commits) for _ in range(2)]
    say(f"floor {', '.join(f'{floor:,.0f}' for floor in floors)} records/s")
    return rate, floors, len(commits) - 1


def _replayed(site: Site, session: SparkSession) -> list[LedgerRow]:
    """The commits of a replay by a driver on this session; its epoch is aborted."""
    epoch = site.replay()
    with site.driver(epoch, session):
        site.until(lambda: site.record().epoch(epoch).stage not in BULK, "the replay ends", pause=LOOK_SECONDS)
        commits = [row for row in site.state(epoch).commits if row.seq > 0]
    control.abort(site.config, TOPOLOGY, epoch, **ACTOR)
    return commits


#: Stages of an epoch until its bulk work is done.
BULK = (Stage.PLANNED, Stage.REWOUND, Stage.SEEDED)


def floor_rate(
    session: SparkSession,
    bootstrap_servers: str,
    sources: Sequence[Source],
    commits: Sequence[LedgerRow],
    bound: Mapping[str, str] | None = None,
) -> float:
    """Records a second of reading and parsing the slices after the first, one after the other, into nothing.

    Args:
        bound: source -> the versioned topic that is read as it.
    """
    topics = {source.topic: (bound or {}).get(source.topic, source.topic) for source in sources}
    read_and_parse(session, bootstrap_servers, sources, commits[0].ranges, topics)
    start = time.monotonic()
    for row in commits[1:]:
        read_and_parse(session, bootstrap_servers, sources, row.ranges, topics)
    return sum(row.rows_read for row in commits[1:]) / (time.monotonic() - start)


def read_and_parse(
    session: SparkSession,
    bootstrap_servers: str,
    sources: Sequence[Source],
    ranges: Sequence[OffsetRange],
    topics: Mapping[str, str],
) -> None:
    """The least that any work on these records does."""
    from pyspark.sql import functions as F

    for source in sources:
        raw = read_log(session, bootstrap_servers, topics[source.topic], ranges)
        text = F.col("value").cast("string")
        value = F.from_json(text, ddl_of(source.columns)) if source.format == "json" else F.struct(text)
        parsed = raw.select(value.alias("row")).select("row.*")
        parsed.write.format("noop").mode("overwrite").save()
