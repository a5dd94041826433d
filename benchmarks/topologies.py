"""(j) Each shipped topology: its bulk replay over reading and parsing the same records, and how large its state stays.

A tenth of the run's records in each source, by the scenario's generator. The topology goes live on one session with a
driver's settings and reads all of it, which warms the session up; then it is replayed beside that. The rate is that of
the replay's slices after the first. The floor is the faster of two passes of the same session over the same slices,
with Spark's Kafka reader and ``from_json``, into nothing.

State: rows of tables whose rows go when their time is over, after the last slice over those after the first: a sixth of
the history.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from benchmarks.replay import BULK, SLICES, floor_rate
from benchmarks.result import Figure
from benchmarks.site import ACTOR, TOPOLOGIES, Site, say
from kappa import control, serving
from kappa.topology import Topology, registry
from kappa_local import generator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Least share of the floor's rate; what is below it has a reason in docs/benchmarks.md.
LEAST = 0.25


def measure(site: Site) -> list[Figure]:
    """Run it."""
    records = max(1_000, site.scale.records // 10)
    declared = [registry.load(TOPOLOGIES, item.name) for item in registry.declared(TOPOLOGIES)]
    scenarios = {chosen.topic: name for name, chosen in generator.SCENARIOS.items()}
    topologies = [one for one in declared if set(one.source_topics) <= scenarios.keys()]
    for topic in sorted({topic for one in topologies for topic in one.source_topics}):
        made = generator.produce(site.config, scenarios[topic], records=records)
        say(f"{made.records:,} records of {topic} produced in {made.seconds:.0f} s")
    for file in TOPOLOGIES.glob("*.py"):
        shutil.copy(file, site.config.topologies)
    site = site.without_launcher()
    found = []
    with site.session("benchmark j") as session:
        for topology in topologies:
            count = records * len(topology.sources)
            found += _one(site.with_topology(topology.name).with_slices(-(-count // SLICES)), topology, session)
    return found


def _one(site: Site, topology: Topology, session: SparkSession) -> list[Figure]:
    first = control.start(site.config, topology.name, **ACTOR)
    with site.driver(first, session):
        site.until(lambda: site.record().live == first, f"{topology.name} is live", pause=0.5)
        site.settle(first, topology.source_topics)
    epoch = site.replay()
    with site.driver(epoch, session):
        site.until(lambda: site.record().epoch(epoch).stage not in BULK, f"{topology.name} is replayed", pause=0.5)
        commits = [row for row in site.state(epoch).commits if row.seq > 0]
    rate = sum(row.rows_read for row in commits[1:]) / (commits[-1].at - commits[0].at).total_seconds()
    floors = [floor_rate(session, site.config.bootstrap_servers, topology.sources, commits) for _ in range(2)]
    say(f"{topology.name}: {rate:,.0f} records/s, floor {max(floors):,.0f}")
    figures = [
        Figure(
            part="j",
            name=f"{topology.name}: bulk replay, warm, over read and parse",
            value=rate / max(floors),
            unit="x",
            wanted=f">= {LEAST}",
            detail={"records_per_second": rate, "floor_records_per_second": floors, "slices": len(commits) - 1},
        )
    ]
    for table in (table.name for table in topology.tables if table.expires):
        rows = {row.seq: _rows(site, epoch, row.seq, table) for row in (commits[0], commits[-1])}
        share = rows[commits[-1].seq] / max(1, rows[commits[0].seq])
        name = f"{topology.name}: rows of {table} after {len(commits)} slices over those after one"
        figures.append(Figure(part="j", name=name, value=share, unit="x", detail={"rows": list(rows.values())}))
    control.abort(site.config, topology.name, epoch, **ACTOR)
    return figures


def _rows(site: Site, epoch: int, seq: int, table: str) -> int:
    snapshot = serving.snapshot(site.config, site.topology, epoch=epoch, seq=seq)
    return int(snapshot.rows(table, select="COUNT(*) AS n").to_pylist()[0]["n"])
