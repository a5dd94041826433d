"""(o) Live latency beside a backfill, over that of the same stream without one.

``retail.loyalty`` version 1 is live and follows a steady stream; a record is readable as in part (b). First it is
looked at alone, then ``kappa backfill`` computes all notifications of its history again, in a process of its own, time
and again, and has the live driver replace them. Records that are produced while one of these commands runs count. A
backfill takes a share of the two cores from the stream, and the writer's turn for each replacement.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta

import numpy as np

from benchmarks.feed import feed
from benchmarks.latency import WARM_UP_SHARE, is_all_seen, latencies, new_commits, watcher
from benchmarks.result import Figure
from benchmarks.site import TOPOLOGY, Site, say
from kappa.errors import KappaError
from kappa_local.generators.draws import DEFAULT_START
from kappa_local.generators.invoices import Invoices

HISTORY = 600_000

#: When something began and ended, in seconds since 1970.
Span = tuple[float, float]


def measure(site: Site) -> list[Figure]:
    """Run it."""
    history = site.scale.of(HISTORY)
    site.generate(history)
    site.deploy(1)
    epoch = site.start()
    site.settle(epoch)
    with watcher(new_commits(site, epoch)) as sightings:
        with feed(site.config.bootstrap_servers, site.scale.rate, first=history) as stream:
            site.until(lambda: sightings, "a first commit is seen")
            time.sleep(WARM_UP_SHARE * site.scale.seconds)
            start = time.time()
            time.sleep(site.scale.seconds)
            alone = [(start, time.time())]
            beside = list(_backfills(site, history))
        site.until(lambda: is_all_seen(sightings, stream), "all records are seen")
    delays = {
        name: np.array([took for at, took in latencies(sightings, stream) if _is_within(at, spans)])
        for name, spans in (("alone", alone), ("beside a backfill", beside))
    }
    say(", ".join(f"{name}: {len(rows):,} records, median {np.median(rows):.2f} s" for name, rows in delays.items()))
    quiet, busy = delays.values()
    detail = {
        "rate": site.scale.rate,
        "history": history,
        "backfills": len(beside),
        "seconds": round(sum(end - begin for begin, end in beside), 1),
    }
    figures = []
    for share in (50, 95):
        quiet_delay, busy_delay = float(np.percentile(quiet, share)), float(np.percentile(busy, share))
        figures += [
            Figure(
                part="o",
                name=f"live latency p{share} beside a backfill, over that without",
                value=busy_delay / quiet_delay,
                unit="x",
                wanted="<= 3" if share == 95 else "",
                detail=detail,
            ),
            Figure(part="o", name=f"live latency p{share} beside a backfill", value=busy_delay, unit="s"),
            Figure(part="o", name=f"live latency p{share} without one", value=quiet_delay, unit="s"),
        ]
    return figures


def _backfills(site: Site, history: int) -> Iterator[Span]:
    """Backfills of the whole history one after the other, until the stream was looked at for long enough."""
    end = DEFAULT_START + history * Invoices().time_step + timedelta(seconds=1)
    interval = [f"--from={DEFAULT_START.isoformat()}", f"--to={end.isoformat()}"]
    command = [sys.executable, "-m", "kappa", "backfill", TOPOLOGY, *interval, "--execute"]
    deadline = time.time() + site.scale.seconds
    while (begin := time.time()) < deadline:
        run = subprocess.run(
            command, env={**os.environ, **site.config.to_env()}, capture_output=True, text=True, check=False
        )
        if run.returncode:
            raise KappaError(
                f"{' '.join(command)} ended with {run.returncode}: {run.stdout[-2000:]}{run.stderr[-2000:]}"
            )
        yield begin, time.time()


def _is_within(at: float, spans: list[Span]) -> bool:
    return any(begin <= at <= end for begin, end in spans)
