"""(c) Rebuild of a table from its changelog, after the lake was deleted.

A third as many keys as the run has records. The state is synthetic (see :mod:`benchmarks.synthetic`); the live driver
writes it to the changelog, commits one slice, and is stopped. Then the lake is deleted and the product's rebuild runs.
Keys a second: of the fold alone, by a driver on a session that has started. Whole process: a second rebuild of the same
by a driver process, from the request to live again.
"""

from __future__ import annotations

import shutil

from benchmarks.result import Figure
from benchmarks.site import ACTOR, TABLE, TOPOLOGY, Site, now, say
from benchmarks.synthetic import seeded
from kappa import control, serving


def measure(site: Site) -> list[Figure]:
    """Run it."""
    keys = max(100, site.scale.records // 3)
    site.deploy(2)
    site.generate(1)  # the topic
    epoch = seeded(site, keys)
    site.start()
    say(f"the baseline of {keys:,} keys is in the changelog")
    site.generate(1_000)
    site.settle(epoch)
    expected = _rows(site)
    site.stop(epoch)

    whole, seconds = whole_process(site)
    _check(site, expected)
    site.generate(1_000)
    site.settle(whole)
    expected = _rows(site)
    site.stop(whole)

    shutil.rmtree(site.config.lake)
    fold = _fold_seconds(site.without_launcher())
    _check(site, expected)
    say(f"{expected:,} keys folded in {fold:.1f} s; whole process {seconds:.1f} s")
    return [
        Figure(
            part="c",
            name="rebuild from changelog, fold on a started session",
            value=expected / fold,
            unit="keys/s",
            detail={"keys": expected},
        ),
        Figure(
            part="c",
            name="rebuild, request to live again, whole process",
            value=seconds,
            unit="s",
            detail={"keys": expected},
        ),
    ]


def whole_process(site: Site) -> tuple[int, float]:
    """Delete the lake and rebuild by a driver process: the epoch, and seconds from the request to live again."""
    shutil.rmtree(site.config.lake)
    start = now()
    epoch = _rebuild(site)
    site.until(lambda: site.record().live == epoch and site.state(epoch).has_sent, "the rebuilt epoch is live", epoch)
    return epoch, (now() - start).total_seconds()


def _rebuild(site: Site) -> int:
    request = control.rebuild_request(site.config, TOPOLOGY, **ACTOR)
    control.supersede(site.config, control.plan(site.config, request))
    return control.replay(site.config, control.plan(site.config, request), **ACTOR)


def _fold_seconds(site: Site) -> float:
    epoch = _rebuild(site)
    with site.session("benchmark c") as session:
        session.range(1).count()  # starts what a session starts late
        with site.driver(epoch, session):
            site.until(lambda: site.record().live == epoch, "the rebuilt epoch is live")
        end, begin = site.at(epoch, "seeded"), site.at(epoch, "rewound")
        assert end is not None and begin is not None
        return (end - begin).total_seconds()


def _rows(site: Site) -> int:
    return int(serving.snapshot(site.config, TOPOLOGY).rows(TABLE, select="COUNT(*) AS n").to_pylist()[0]["n"])


def _check(site: Site, expected: int) -> None:
    count = _rows(site)
    if count != expected:
        raise AssertionError(f"{count:,} keys came back of {expected:,}")
