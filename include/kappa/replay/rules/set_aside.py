"""Rules about records that the live epoch set aside: those that a replay computes, and those that are not known."""

from __future__ import annotations

from collections.abc import Sequence

from kappa.offsets import set_asides
from kappa.offsets.set_asides import SetAsides
from kappa.offsets.vector import Offsets
from kappa.replay.facts import Facts, LiveFacts, MarkerFacts
from kappa.replay.findings import Finding, refuses, warns


def bring_in_findings(bring_in: Sequence[str], facts: Facts, start: Offsets) -> list[Finding]:
    """Objections to computing the records that a request brings in.

    Args:
        bring_in: what it names.
        facts: the facts, with the live epoch's.
        start: where the replay begins.
    """
    records = facts.live.set_aside if facts.live is not None else ()
    findings = []
    for text in bring_in:
        selection = set_asides.selection(records, text)
        if not selection:
            epoch = (
                "no epoch is live"
                if facts.live is None
                else f"live epoch {facts.live.epoch} set aside {_all(facts.live)}"
            )
            findings.append(BRING_IN_UNKNOWN({"choice": text, "known": epoch}, choice=text))
            continue
        if before := set_asides.before(selection, dict(start.items())):
            findings.append(
                BRING_IN_BEFORE_START(
                    {"records": set_asides.described(before)}, choice=text, count=set_asides.count(before)
                )
            )
    return findings


def brought_in(bring_in: Sequence[str], records: SetAsides) -> SetAsides:
    """The records that a request names."""
    return set_asides.merged(one for text in bring_in for one in set_asides.selection(records, text))


BRING_IN_UNKNOWN = refuses(
    "bring-in-unknown",
    "--bring-in {choice} names no record that was set aside: {known}.",
    "List them: kappa dead-letters <topology> --reason 'set aside'. Name one of them, or omit --bring-in.",
)
BRING_IN_BEFORE_START = refuses(
    "bring-in-before-start",
    "The replay begins after {records}, which it should bring in: they are not read.",
    "Begin at the first of them or earlier, for example --to-earliest.",
)
SET_ASIDES_LOST = warns(
    "set-asides-lost",
    "Epoch {epoch} was rebuilt from a marker that has only the number of the records that were set aside before, as "
    "they were too many to name: {what}.",
    "Set them aside again when the replay stops at them: kappa set-aside {topology} --epoch N.",
)


def set_asides_unnamed(topology: str, marker: MarkerFacts | None) -> list[Finding]:
    """A rebuild begins with a marker, which is sent with each slice and names only a few records."""
    if marker is None or not marker.set_aside_unnamed:
        return []
    words = {"topology": topology, "what": f"{marker.set_aside_unnamed:,} records; a later replay will compute them"}
    return [SET_ASIDES_LOST(words, epoch=marker.epoch)]


def set_asides_lost(topology: str, live: LiveFacts) -> list[Finding]:
    """A replay from the beginning knows no more of the records set aside than the rebuild did."""
    words = {"topology": topology, "what": "this replay computes them"}
    return [SET_ASIDES_LOST(words, epoch=live.epoch)] if live.has_lost_set_asides else []


def _all(live: LiveFacts | None) -> str:
    if live is None:
        return "no epoch is live"
    names = set_asides.described(live.set_aside) if live.set_aside else "none"
    return f"live epoch {live.epoch} set aside {names}"
