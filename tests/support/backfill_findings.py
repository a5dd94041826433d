"""Objections to a backfill, brought about on a real broker, as far as it needs no Spark."""

from __future__ import annotations

from kappa.offsets.vector import Offsets
from support.chain_findings import MOVES, STORY, told_live
from support.findings import Provoked, provokes
from support.sites import Site

JANUARY = "backfill NAME --from 2026-01-01T00:00:00Z --to 2026-02-01T00:00:00Z"


def live(here: Site, **parts: str) -> str:
    """A live epoch, and the command that looks at a backfill of all that it has read."""
    here.create()
    here.produce()
    here.deploy(**parts)
    here.live()
    return JANUARY


@provokes("backfill-without-outputs")
def _(here: Site) -> Provoked:
    return Provoked(command=live(here, outputs=""), says="has no append output", remedy="`kappa replay")


@provokes("backfill-unknown-output")
def _(here: Site) -> Provoked:
    return Provoked(
        command=f"{live(here)} --output movse",
        numbers={"output": "movse"},
        says="no append output 'movse'",
        remedy="moves",
    )


@provokes("backfill-versioned-topic")
def _(here: Site) -> Provoked:
    return Provoked(
        command=live(here, outputs=f"{MOVES}, {STORY}"),
        numbers={"output": "moves"},
        says="holds every row of 'moves'",
        remedy=f"`kappa replay {here.name}`",
    )


@provokes("backfill-of-chain")
def _(here: Site) -> Provoked:
    above = told_live(here)
    here.bound = {f"{here.topic}.story": f"{here.topic}.story.e0001"}
    here.live(position=Offsets({f"{here.topic}.story.e0001": {0: 4, 1: 0}}), roots={here.topic: {"0": 10, "1": 0}})
    return Provoked(
        command=JANUARY, numbers={"upstreams": [above.name]}, says="the time at which they were sent", remedy="upstream"
    )


@provokes("backfill-records-gone")
def _(here: Site) -> Provoked:
    command = live(here)
    here.expire(10)
    return Provoked(
        command=command, numbers={"first": 10}, says="from offset 10 on", remedy=f"kappa archive start {here.topic}"
    )
