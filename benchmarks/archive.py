"""(f) Replay of ``retail.loyalty`` version 2 from the archive, over the same replay from Kafka.

Version 1 goes live and reads the topic; then its driver is stopped. The topic is archived on the session that does the
replays afterwards, by drivers within this process: from the archive and from Kafka in turn, three times each. The first
of each does not count, since half of what the JVM does in it is compiling itself; of the others the faster counts. The
first slice of a replay does not count. Both compute the same: the rows of each pair are compared.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.replay import BULK, SLICES
from benchmarks.result import Figure
from benchmarks.site import ACTOR, SOURCE, TABLE, TOPOLOGY, Site, say
from kappa import control
from kappa.archive.writer import Archiver, run
from kappa.delta import queries
from kappa.record.ledger_rows import LedgerRow
from kappa.slices.input.reading import archived_ranges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def measure(site: Site) -> list[Figure]:
    """Run it."""
    site.generate(site.scale.records)
    site.deploy(1)
    first = site.start()
    site.settle(first)
    site.stop(first)
    site.deploy(2)
    site = site.with_slices(min(site.config.slice_records, -(-site.scale.records // SLICES))).without_launcher()
    rates: dict[bool, list[float]] = {True: [], False: []}
    with site.session("benchmark f") as session:
        archiving = _archive(site, session)
        for _ in range(3):
            balances = {}
            for archive in (True, False):
                rate, balances[archive] = _replayed(site, session, archive=archive)
                rates[archive].append(rate)
                say(f"replay from {'the archive' if archive else 'Kafka'} {rate:,.0f} records/s")
            assert balances[True] == balances[False]
    archived, logged = max(rates[True][1:]), max(rates[False][1:])
    return [
        Figure(
            part="f",
            name="bulk replay from the archive, over the same from Kafka",
            value=archived / logged,
            unit="x",
            wanted=">= 2",
            detail={
                "archive_records_per_second": rates[True],
                "kafka_records_per_second": rates[False],
                "slice_records": site.config.slice_records,
            },
        ),
        Figure(part="f", name="bulk replay from the archive", value=archived, unit="records/s"),
        Figure(part="f", name="bulk replay from Kafka", value=logged, unit="records/s"),
        Figure(part="f", name="archiving, first slices included", value=archiving, unit="records/s"),
    ]


def _archive(site: Site, session: SparkSession) -> float:
    start = time.monotonic()
    with Archiver(site.config, SOURCE, session=session) as archiver:
        run([archiver])
    rate = site.scale.records / (time.monotonic() - start)
    say(f"archived at {rate:,.0f} records/s")
    return rate


def _replayed(site: Site, session: SparkSession, *, archive: bool) -> tuple[float, list[object]]:
    """Rate of a replay by a driver on this session, and the balances that it computed; its epoch is aborted."""
    epoch = site.replay(archive=archive)
    with site.driver(epoch, session):
        site.until(lambda: site.record().epoch(epoch).stage not in BULK, "the replay ends", pause=0.5)
        commits = [row for row in site.state(epoch).commits if row.seq > 0]
    assert all(bool(archived_ranges(row)) == archive for row in commits)
    balances = queries.query(site.paths(epoch).table(TABLE), None, order_by='"CustomerCardNo"').to_pylist()
    control.abort(site.config, TOPOLOGY, epoch, **ACTOR)
    return _rate(commits), balances


def _rate(commits: Sequence[LedgerRow]) -> float:
    return sum(row.rows_read for row in commits[1:]) / (commits[-1].at - commits[0].at).total_seconds()
