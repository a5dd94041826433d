"""Objections to a plan of a topology that reads another's versioned topic, brought about on a real broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kappa.offsets.vector import Offsets
from support.findings import Provoked, provokes
from support.sites import Site

SHARED = 'Topic(name="{topic}.story", of="moves", key="id")'
STORY = 'Topic(name="{topic}.story", of="moves", key="id", on_replay="versioned")'
MOVES = 'Append(name="moves", schema="id STRING NOT NULL, amount BIGINT")'
READS = 'Source(topic="{story}", schema="id STRING NOT NULL, amount BIGINT NOT NULL", of="{of}")'
#: Root records that the upstream's epochs have read, and what each of them has told.
READ, END = 10, 4


def chained(here: Site) -> Site:
    """The site reads what another topology of its lake tells of the root topic; that one is deployed and returned."""
    above = replace(here, name=f"{here.name}.above")
    above.deploy(outputs=f"{MOVES}, {STORY}")
    here.create()
    here.produce(READ)
    reads(here, above)
    return above


def reads(here: Site, above: Site, *more: str, **parts: str) -> None:
    """Deploy the site as a reader of the other one's story."""
    source = READS.format(story=f"{here.topic}.story", of=above.name)
    here.deploy(sources=", ".join([source, *more]), **parts)


def own(above: Site, epoch: int) -> str:
    """The topic of an epoch's own for what it tells."""
    return f"{above.topic}.story.e{epoch:04d}"


def sent_ends(above: Site, epoch: int) -> dict[str, Any]:
    """What the commit of an epoch says of its versioned topic."""
    return {"sent": {own(above, epoch): {"0": END, "1": 0}}}


def tell(above: Site, epoch: int) -> None:
    """Fill the versioned topic of an epoch."""
    above.produce(END, topic=own(above, epoch))


def told_live(here: Site) -> Site:
    """The upstream is live, and what it told is in its versioned topic."""
    above = chained(here)
    above.live(**sent_ends(above, 1))
    tell(above, 1)
    return above


def second_verified(above: Site) -> int:
    """A candidate of the upstream whose only commit stands at all of the root topic."""
    epoch = above.verified(**sent_ends(above, 2))
    tell(above, epoch)
    return epoch


def reading_live(here: Site, above: Site, *, standing: int, **more: Any) -> None:
    """The site is live too: it has read all that epoch 1 told, and stands there in the root topic."""
    here.bound[f"{here.topic}.story"] = own(above, 1)
    here.live(position=Offsets({own(above, 1): {0: END, 1: 0}}), roots={here.topic: {"0": standing, "1": 0}}, **more)


@provokes("upstream-not-live")
def _(here: Site) -> Provoked:
    above = chained(here)
    return Provoked(
        command="plan NAME",
        numbers={"topology": above.name},
        says="which has no live epoch to read",
        remedy=f"kappa start {above.name} --execute",
    )


@provokes("upstream-unknown")
def _(here: Site) -> Provoked:
    above = told_live(here)
    return Provoked(
        command=f"plan NAME --upstream {above.name}=7",
        numbers={"topology": above.name, "epoch": 7, "known": [1]},
        says="should read epoch 7",
        remedy=f"kappa status {above.name}",
    )


@provokes("upstream-not-versioned")
def _(here: Site) -> Provoked:
    above = chained(here)
    above.deploy(outputs=f"{MOVES}, {SHARED}")
    above.live()
    return Provoked(
        command="plan NAME",
        numbers={"topology": above.name, "epoch": 1, "topics": []},
        says="has no versioned topic for it",
        remedy="on_replay='versioned'",
    )


@provokes("upstream-silent")
def _(here: Site) -> Provoked:
    above = chained(here)
    above.live()  # its commit says nothing of what it told
    tell(above, 1)
    return Provoked(
        command="plan NAME",
        numbers={"topology": above.name, "epoch": 1},
        says="records how far its versioned topics are filled",
        remedy=f"kappa upgrade {above.name}",
    )


@provokes("upstream-not-followed")
def _(here: Site) -> Provoked:
    above = told_live(here)  # its rows are not what an operator emits
    source = 'Source(topic="{story}", schema="id STRING NOT NULL, at BIGINT NOT NULL", of="{of}", time="at")'
    here.deploy(sources=source.format(story=f"{here.topic}.story", of=above.name))
    return Provoked(
        command="plan NAME",
        numbers={"topology": above.name, "epoch": 1},
        says="does not report its final rows",
        remedy="grace='10 seconds'",
    )


@provokes("upstream-cycle")
def _(here: Site) -> Provoked:
    above = told_live(here)
    back = f"{here.topic}.back"
    back_topic = 'Topic(name="{topic}.back", of="moves", key="id", on_replay="versioned")'
    reads(here, above, outputs=f"{MOVES}, {back_topic}")
    reading_live(here, above, standing=READ, sent={f"{back}.e0001": {"0": 0, "1": 0}})
    above.deploy(sources=READS.format(story=back, of=here.name), outputs=f"{MOVES}, {STORY}")
    return Provoked(
        command=f"plan {above.name}", numbers={"topology": above.name}, says="it would feed itself", remedy="Remove one"
    )


@provokes("upstream-diamond")
def _(here: Site) -> Provoked:
    above = told_live(here)
    root = 'Source(topic="{topic}", schema="id STRING NOT NULL, amount BIGINT NOT NULL")'
    reads(here, above, root)
    return Provoked(
        command="plan NAME", numbers={"topics": [here.topic]}, says="in more than one way", remedy="one topology only"
    )


@provokes("upstream-not-read")
def _(here: Site) -> Provoked:
    told_live(here)
    return Provoked(
        command="plan NAME --upstream retail.loyalty=1",
        numbers={"topology": "retail.loyalty"},
        says="no source comes from it",
        remedy="correct the name",
    )


@provokes("upstream-start")
def _(here: Site) -> Provoked:
    told_live(here)
    return Provoked(
        command="plan NAME --to-datetime 2026-01-01T00:00:00Z",
        numbers={"topics": [f"{here.topic}.story.e0001"]},
        says="its slices begin where a slice of the other topology ended",
        remedy="--to-earliest",
    )


@provokes("upstream-behind")
def _(here: Site) -> Provoked:
    above = told_live(here)
    reading_live(here, above, standing=READ // 2)
    second = second_verified(above)
    return Provoked(
        command=f"plan NAME --upstream {above.name}={second}",
        numbers={"live": 1},
        says=f"epoch 2 of '{above.name}' has no commit yet at or before",
        remedy="Wait",
    )


@provokes("upstream-mixed-history")
def _(here: Site) -> Provoked:
    above = told_live(here)
    reading_live(here, above, standing=READ)
    second = second_verified(above)
    return Provoked(
        command=f"plan NAME --from-savepoint 1 --upstream {above.name}={second}",
        numbers={"before": [[above.name, 1]], "after": [[above.name, 2]]},
        says="earlier rows stay as they are",
        remedy="--to-earliest",
    )
