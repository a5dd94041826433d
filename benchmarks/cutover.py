"""(d) Time without new output at a cutover: the largest gap between records of topic ``loyalty``.

Version 1 is live under a steady stream; version 2 is replayed beside it and takes over. Gaps are between the timestamps
of consecutive records that a reader of committed records gets, which are the times of sending. Compared are equally
long
windows: version 1 alone, version 1 with the caught-up candidate beside it, and around the move.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from benchmarks.feed import feed
from benchmarks.result import Figure
from benchmarks.site import ACTOR, OUTPUT, TOPOLOGY, Site, now, say
from kappa import control
from kappa.kafka.broker import Broker
from kappa.kafka.reader import Reader
from kappa.replay.stages import Stage

HISTORY = 10_000
SETTLE_SECONDS = 10.0


def measure(site: Site) -> list[Figure]:
    """Run it."""
    window = timedelta(seconds=max(10.0, site.scale.seconds / 3))
    site.deploy(1)
    site.generate(min(HISTORY, site.scale.records))
    first = site.start()
    with feed(site.config.bootstrap_servers, site.scale.rate, first=HISTORY):
        time.sleep(SETTLE_SECONDS + window.total_seconds())
        alone = (now() - window, now())
        say("version 1 is live")
        site.deploy(2)
        second = site.replay()
        site.until(
            lambda: site.record().epoch(second).stage is Stage.VERIFIED and site.state(second).baseline_seq is not None,
            "the candidate is verified",
            second,
        )
        time.sleep(SETTLE_SECONDS + window.total_seconds())
        beside = (now() - window, now())
        say("version 2 follows; handing over")
        control.cut_over(site.config, TOPOLOGY, second, **ACTOR)
        site.until(lambda: site.state(second).has_sent, "version 2 sends", second)
        time.sleep(SETTLE_SECONDS + window.total_seconds() / 2)
    request, moved = site.at(second, "handover"), site.at(second, "moved")
    assert request is not None and moved is not None
    times = sent_times(site)
    around = (moved - window / 2, moved + window / 2)
    gaps = {
        name: largest_gap(times, *span) for name, span in (("alone", alone), ("beside", beside), ("around", around))
    }
    say(f"pointer moved {(moved - request).total_seconds():.2f} s after the request; largest gaps {gaps}")
    site.stop(second)
    assert site.record().epoch(first).stage is Stage.RETIRED
    return [
        Figure(
            part="d",
            name="largest gap in the output around a cutover",
            value=gaps["around"],
            unit="s",
            wanted="<= 5",
            detail={
                "gaps_seconds": gaps,
                "asked_to_moved_seconds": (moved - request).total_seconds(),
                "window_seconds": window.total_seconds(),
            },
        ),
        Figure(part="d", name="largest gap without one, candidate beside it", value=gaps["beside"], unit="s"),
        Figure(part="d", name="largest gap without one, alone", value=gaps["alone"], unit="s"),
    ]


def sent_times(site: Site) -> list[float]:
    """Times of all committed records of the output topic, in seconds since 1970, sorted."""
    with Broker(site.config.bootstrap_servers) as broker:
        start, end = broker.low_watermarks([OUTPUT]), broker.stable_offsets([OUTPUT])
    reader = Reader(site.config.bootstrap_servers)
    try:
        return sorted(message.timestamp()[1] / 1000 for batch in reader.read(start, end) for message in batch)
    finally:
        reader.close()


def largest_gap(times: Sequence[float], start: datetime, end: datetime) -> float:
    """The longest time without a record between two times, in seconds, the ends of that span included."""
    span = (start.timestamp(), end.timestamp())
    inside = [span[0], *(at for at in times if span[0] <= at <= span[1]), span[1]]
    return max(later - earlier for earlier, later in pairwise(inside))
