"""(l) Lookups of single keys over HTTP in a table of a million keys.

A synthetic epoch (see :mod:`benchmarks.synthetic`) is taken live by a driver process, and slices of 4,000 invoices are
committed, so that some changes are merged and some are not. ``kappa ui`` serves the lake, in a process of its own. One
client asks for keys drawn at random, over one connection, first without counting. The same lookups are then made
through ``kappa.serving``, a new snapshot each, which is what a reader without the server does.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import quantiles

from benchmarks.result import Figure
from benchmarks.site import TABLE, TOPOLOGY, Site, say
from benchmarks.small_slices import live, produce
from benchmarks.synthetic import FIRST_CARD
from kappa import serving

KEYS = 1_000_000
WARM_UP, COUNTED, BY_SNAPSHOT = 50, 500, 50
_SEED = 17


def measure(site: Site) -> list[Figure]:
    """Run it."""
    site.deploy(2)
    site.generate(1)  # the topic
    keys = site.scale.of(KEYS)
    epoch = live(site, keys)
    produce(site, epoch, keys)
    draw = random.Random(_SEED)
    cards = [str(FIRST_CARD + draw.randrange(keys)) for _ in range(WARM_UP + COUNTED)]
    with server(site) as (port, _):
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

        def ask(card: str) -> None:
            client.request("GET", f"/tables/{TOPOLOGY}/{TABLE}/{card}")
            answer = client.getresponse()
            row = json.loads(answer.read())["row"]
            assert row["CustomerCardNo"] == card, (answer.status, row)

        over_http = _seconds(ask, cards)[WARM_UP:]
        client.close()

    def read(card: str) -> None:
        rows = serving.snapshot(site.config, TOPOLOGY).rows(TABLE, f"CustomerCardNo = '{card}'")
        assert rows.num_rows == 1, card

    by_snapshot = _seconds(read, cards[:BY_SNAPSHOT])
    site.stop(epoch)
    at = quantiles(over_http, n=100)
    say(f"{COUNTED} lookups: p50 {1000 * at[49]:.1f} ms, p95 {1000 * at[94]:.1f} ms, p99 {1000 * at[98]:.1f} ms")
    detail = {"keys": keys, "lookups": COUNTED}
    figures = [
        Figure(part="l", name=f"{name} of a lookup over HTTP", value=1000 * at[place], unit="ms", detail=detail)
        for name, place in (("p50", 49), ("p99", 98))
    ]
    p95 = Figure(
        part="l", name="p95 of a lookup over HTTP", value=1000 * at[94], unit="ms", wanted="<= 50", detail=detail
    )
    ratio = at[49] / quantiles(by_snapshot, n=2)[0]
    return [
        p95,
        *figures,
        Figure(part="l", name="p50 over HTTP, over a new snapshot each", value=ratio, unit="x", detail=detail),
    ]


def _seconds(ask: Callable[[str], None], cards: list[str]) -> list[float]:
    seconds = []
    for card in cards:
        start = time.perf_counter()
        ask(card)
        seconds.append(time.perf_counter() - start)
    return seconds


@contextmanager
def server(site: Site) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """``kappa ui``: its port and its process."""
    environ = {**os.environ, **site.config.to_env()}
    call = [sys.executable, "-m", "kappa", "ui", "--port", "0"]
    with subprocess.Popen(call, stdout=subprocess.PIPE, text=True, env=environ) as running:
        try:
            assert running.stdout is not None
            match = re.search(r"http://[^:]+:(\d+)", running.stdout.readline())
            assert match is not None, "the server did not start"
            yield int(match[1]), running
        finally:
            running.kill()
