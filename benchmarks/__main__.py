"""Runs the benchmarks: ``python -m benchmarks`` for all parts, ``python -m benchmarks a d --records 20000`` for some.

Prints a table and writes JSON with the machine's description to ``benchmarks/results/``. Each part has a broker and a
home of its own in a temporary folder; everything that it starts is ended at its end. Drivers start from the archive of
loaded classes that ``scripts/bootstrap`` makes; where there is none for this environment, it is made first.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import structlog

from benchmarks import (
    archive,
    backfill,
    cluster,
    cutover,
    day,
    latency,
    ledger,
    memory,
    pages,
    peer,
    queries,
    rebuild,
    rebuild_growth,
    replay,
    small_slices,
    topologies,
)
from benchmarks.machine import description
from benchmarks.result import Figure, render, write
from benchmarks.site import Scale, site
from kappa.config import Config
from kappa_local.class_data import ensure_class_data

Part = Callable[..., list[Figure]]

PARTS: dict[str, tuple[str, Part]] = {
    "a": ("bulk replay over merely reading and parsing", replay.measure),
    "b": ("live latency over a bare append", latency.measure),
    "c": ("rebuild from the changelog", rebuild.measure),
    "d": ("time without output at a cutover", cutover.measure),
    "e": ("a small slice at two sizes of state", small_slices.measure),
    "f": ("replay from the archive over one from Kafka", archive.measure),
    "g": ("memory of a replay ten times as long", memory.measure),
    "h": ("a day of small slices on disk", day.measure),
    "i": ("an epoch after a year of slices over one after 1,000", ledger.measure),
    "j": ("each shipped topology over merely reading and parsing", topologies.measure),
    "k": ("rebuild against the number of keys and against history", rebuild_growth.measure),
    "l": ("lookups of single keys over HTTP", queries.measure),
    "m": ("the page of 50 topologies with 10,000 slices", pages.measure),
    "n": ("the same work beside Kafka Streams", peer.measure),
    "o": ("live latency beside a backfill over that without", backfill.measure),
    "p": ("processor time of a replay on a cluster outside executors and broker", cluster.measure),
}
FULL = 3_000_000
DAY = 24 * 60


def main() -> int:
    """Run the chosen parts; 1 when one of them broke."""
    epilog = "\n".join(f"  {name}  {title}" for name, (title, _) in PARTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=f"parts:\n{epilog}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "parts",
        nargs="*",
        choices=[[], *PARTS],
        default=[],
        metavar="part",
        help="a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p; all when left out",
    )
    parser.add_argument("--records", type=int, default=FULL, help="size of the topic; the sizes of state follow it")
    parser.add_argument("--rate", type=float, default=1000.0, help="records a second in b and d")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long b and d look at a steady stream")
    parser.add_argument("--slices", type=int, default=DAY, help="slices of the day in h, one a minute")
    parser.add_argument(
        "--results", type=Path, default=Path(__file__).parent / "results", help="folder of the JSON file"
    )
    parser.add_argument("--folder", type=Path, help="where the temporary folders are made")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    # As where Python is not told otherwise: a driver compiles what it imports once, not at each start.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    ensure_class_data(Config.from_env().cache)
    scale = Scale(
        records=arguments.records, rate=arguments.rate, seconds=arguments.seconds, slices=arguments.slices, full=FULL
    )
    machine, figures, broken, start = description(), [], [], time.monotonic()
    for name in arguments.parts or list(PARTS):
        title, measure = PARTS[name]
        print(f"── {name}  {title}", flush=True)
        with tempfile.TemporaryDirectory(
            prefix=f"kappa-bench-{name}-", dir=arguments.folder, ignore_cleanup_errors=True
        ) as folder:
            try:
                with site(Path(folder), scale) as place:
                    part_figures = measure(place)
            except Exception:  # the other parts are worth having
                traceback.print_exc()
                broken.append(name)
                continue
        print("\n".join(render(part_figures)), flush=True)
        figures.extend(part_figures)
    file = write(arguments.results, machine, scale, figures, broken, seconds=time.monotonic() - start)
    print(f"── all\n{machine['summary']}\n" + "\n".join(render(figures)) + f"\nwritten to {file}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
