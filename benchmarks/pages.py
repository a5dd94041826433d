"""(m) The page of all topologies, of a lake with 50 of them and 10,000 slices.

Ledgers, heartbeats and candidates are made by hand. ``kappa ui`` serves the lake, in a process of its own, and asks a
broker for the ends of topics, as it does beside live streams. Before each request each live ledger gets a slice.
One client asks for the page, over a new connection each time, first without counting.
"""

from __future__ import annotations

import http.client
import time
from dataclasses import replace
from datetime import timedelta
from statistics import quantiles

import psutil
from tests.support.page_lake import CANDIDATE, TopologyStory, report, steady

from benchmarks.queries import server
from benchmarks.result import Figure
from benchmarks.site import Site, say
from kappa import clock
from kappa.kafka.broker import Broker

TOPOLOGIES, SLICES, PARTITIONS = 50, 10_000, 4
WARM_UP, COUNTED = 5, 40


def measure(site: Site) -> list[Figure]:
    """Run it."""
    place = replace(site, config=replace(site.config, stale_seconds=1e6))
    with Broker(site.config.bootstrap_servers) as broker:
        for number in range(TOPOLOGIES):
            broker.create_topic(f"topic-{number}", PARTITIONS, {})
    topologies = [_topology(place, number) for number in range(TOPOLOGIES)]
    pages, cpu = [], 0.0
    with server(place) as (port, process):

        def ask() -> str:
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            client.request("GET", "/", headers={"accept": "text/html"})
            shown = client.getresponse().read().decode()
            client.close()
            return shown

        while "Reading the lake" in ask():
            time.sleep(0.1)
        for turn in range(WARM_UP + COUNTED):
            for topology in topologies:
                topology.grow(1)
            before, start = _cpu(process.pid), time.perf_counter()
            shown = ask()
            pages.append(time.perf_counter() - start)
            cpu += _cpu(process.pid) - before if turn >= WARM_UP else 0.0
            assert shown.count('role="rowheader"') == TOPOLOGIES
    at = quantiles(pages[WARM_UP:], n=100)
    detail = {"topologies": TOPOLOGIES, "slices": SLICES, "pages": COUNTED}
    say(f"{COUNTED} pages: p50 {1000 * at[49]:.0f} ms, p95 {1000 * at[94]:.0f} ms, CPU {1000 * cpu / COUNTED:.0f} ms")
    return [
        Figure(part="m", name="p95 of the page", value=1000 * at[94], unit="ms", wanted="<= 300", detail=detail),
        Figure(part="m", name="p50 of the page", value=1000 * at[49], unit="ms", detail=detail),
        Figure(part="m", name="CPU of the server for a page", value=1000 * cpu / COUNTED, unit="ms", detail=detail),
    ]


def _topology(site: Site, number: int) -> TopologyStory:
    """A live epoch with its share of the slices, the last ones of now; each second topology has a candidate too."""
    name, topic = f"shop.topology{number}", f"topic-{number}"
    topology = TopologyStory(config=site.config, name=name, topic=topic, partitions=PARTITIONS)
    now, day = clock.now(), timedelta(days=1)
    topology.begin(1, now - day)
    topology.move(1, None, 0, now - day)
    topology.ledger(1, steady(now, SLICES // TOPOLOGIES, seconds=8.0))
    topology.beat(1, seq=SLICES // TOPOLOGIES, records_per_second=80.0)
    if number % 2:
        topology.begin(2, now - day / 2, live=1, upto=9_000, stages=CANDIDATE, report=report(topology.name))
        topology.ledger(2, steady(now, 10, sends="held"))
        topology.beat(2, seq=10)
    return topology


def _cpu(pid: int) -> float:
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)
