"""(j) Each shipped topology: its bulk replay over reading and parsing the same records, and how large its state stays.

A quarter of the run's records in each source, by the scenario's generator. All topologies run on one session with a
driver's settings, one after the other. Each goes live with a step that gives nothing, which brings the live epoch to
the end of the topics; one whose topic another one reads goes live as it is. Then it is replayed in five slices. The
rate is that of the slices after the first. The floor is the faster of two passes of the same session over the same
slices, with Spark's Kafka reader and ``from_json``, into nothing. One on the wall clock has no replay and is left out.

State: rows of tables whose rows go when their time is over, after the last slice over those after the first: a fifth of
the history.
"""

from __future__ import annotations

import dataclasses
import shutil
import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.replay import BULK, floor_rate
from benchmarks.result import Figure
from benchmarks.site import ACTOR, TOPOLOGIES, Site, say
from kappa import control, serving
from kappa.record.ledger_rows import Kind, LedgerRow
from kappa.spark.tuning import tune
from kappa.topology import Topology, registry
from kappa_local.generators import generator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Least share of the floor's rate; what is below it has a reason in docs/benchmarks.md.
LEAST = 0.25
SLICES = 5
_MASK_KEY = "the key of a benchmark"
_NOTHING = """
from kappa import Append, Source, Topology
from kappa.operators.timed.late import late_rows


def step(slice):
    nothing = slice[{first!r}].where("FALSE")
    return {{{late}"nothing": nothing.selectExpr("*", "1 AS n")}}


outputs = [Append(name="nothing", schema="n INT")]
live = Topology(name={name!r}, version="0", sources={sources!r}, outputs=outputs, step=step)
"""


def measure(site: Site) -> list[Figure]:
    """Run it."""
    records = max(1_000, site.scale.records // 4)
    declared = [registry.load(TOPOLOGIES, item.name) for item in registry.declared(TOPOLOGIES)]
    declared = [one for one in declared if not any(source.time == "wall clock" for source in one.sources)]
    # What reads the topic of another topology comes after that one.
    declared.sort(key=lambda one: any(source.of for source in one.sources))
    scenarios = {scenario.topic: name for name, scenario in generator.SCENARIOS.items()}
    for topic in sorted({source.topic for one in declared for source in one.sources if source.of is None}):
        delivery = generator.produce(site.config, scenarios[topic], records=records)
        say(f"{delivery.records:,} records of {topic} produced in {delivery.seconds:.0f} s")
    config = dataclasses.replace(site.config, mask_key=_MASK_KEY)
    site = dataclasses.replace(site, config=config).without_launcher()
    read = {source.of for one in declared for source in one.sources}
    figures = []
    with site.session("benchmark j") as session:
        for topology in declared:
            here = site.with_topology(topology.name)
            count = records * len(topology.sources)
            try:
                _go_live(here, topology, session, as_it_is=topology.name in read)
                figures += _one(here.with_slices(-(-count // SLICES)), topology, session)
            except Exception:  # the others are worth having
                traceback.print_exc()
    return figures


def _go_live(site: Site, topology: Topology, session: SparkSession, *, as_it_is: bool) -> None:
    (file,) = [item.file for item in registry.declared(TOPOLOGIES) if item.name == topology.name]
    place = site.config.topologies / file.name
    if as_it_is:
        shutil.copy(file, place)
    else:
        late = '"late_records": late_rows(nothing, operator="", reason=""), ' if topology.has_event_time else ""
        sources = list(topology.sources)
        place.write_text(_NOTHING.format(name=topology.name, sources=sources, first=sources[0].topic, late=late))
    epoch = control.start(site.config, topology.name, **ACTOR)
    with site.driver(epoch, session):
        site.until(lambda: site.record().live == epoch, f"{topology.name} is live", pause=0.2)
        bound = site.record().epoch(epoch).plan.bound
        site.settle(epoch, [bound[topic].topic if topic in bound else topic for topic in topology.source_topics])
    shutil.copy(file, place)


def _one(site: Site, topology: Topology, session: SparkSession) -> list[Figure]:
    epoch = site.replay(allow=["reader-schema-changed"])  # the output of a step that gives nothing goes
    with site.driver(epoch, session):
        site.until(lambda: site.record().epoch(epoch).stage not in BULK, f"{topology.name} is replayed", pause=0.2)
        rows = _bulk(site, epoch)
    bound = {source: binding.topic for source, binding in site.record().epoch(epoch).plan.bound.items()}
    commits = [row for row in rows if row.kind == "commit"]
    rate = sum(row.rows_read for row in commits[1:]) / (commits[-1].at - commits[0].at).total_seconds()
    tune(session, is_small=False)  # as it was for the slices
    floors = [floor_rate(session, site.config.bootstrap_servers, topology.sources, commits, bound) for _ in range(2)]
    say(f"{topology.name}: {rate:,.0f} records/s, floor {max(floors):,.0f}, {rate / max(floors):.2f}")
    figures = [
        Figure(
            part="j",
            name=f"{topology.name}: bulk replay, warm, over read and parse",
            value=rate / max(floors),
            unit="x",
            wanted=f">= {LEAST}",
            detail={
                "records_per_second": rate,
                "floor_records_per_second": floors,
                "records": sum(row.rows_read for row in commits) // len(topology.sources),
                "slices": len(commits) - 1,
                **_seconds(rows),
            },
        )
    ]
    for table in (table.name for table in topology.tables if table.expires):
        counts = {row.seq: _rows(site, epoch, row.seq, table) for row in (commits[0], commits[-1])}
        share = counts[commits[-1].seq] / max(1, counts[commits[0].seq])
        name = f"{topology.name}: rows of {table} after {len(commits)} slices over those after one"
        figures.append(Figure(part="j", name=name, value=share, unit="x", detail={"rows": list(counts.values())}))
    control.abort(site.config, topology.name, epoch, **ACTOR)
    return figures


def _bulk(site: Site, epoch: int) -> list[LedgerRow]:
    """Rows of the slices of an epoch's bulk work."""
    return [row for row in site.rows(epoch) if row.seq > 0 and row.kind in ("plan", "effects", "commit")]


def _seconds(rows: Sequence[LedgerRow]) -> Mapping[str, Any]:
    """Seconds of the slices after the first: until their rows were written, and from then to the commit."""
    at = {(row.kind, row.seq): row.at for row in rows}
    seqs = sorted(row.seq for row in rows if row.kind == "commit")[1:]

    def between(first: Kind, last: Kind) -> float:
        return round(sum((at[last, seq] - at[first, seq]).total_seconds() for seq in seqs), 2)

    return {"effects_seconds": between("plan", "effects"), "rest_seconds": between("effects", "commit")}


def _rows(site: Site, epoch: int, seq: int, table: str) -> int:
    snapshot = serving.snapshot(site.config, site.topology, epoch=epoch, seq=seq)
    return int(snapshot.rows(table, select="COUNT(*) AS n").to_pylist()[0]["n"])
