"""The input that two compared epochs have both read, in words for the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kappa.offsets.vector import Offsets


def has_common_topic(live: Offsets, candidate: Offsets) -> bool:
    """Whether two vectors name a topic in which they can be compared."""
    return bool(set(live.topics) & set(candidate.topics))


def later(one: Offsets, other: Offsets) -> Offsets:
    """The later of the two offsets for each partition that both name."""
    common = [(at, max(offset, other.get(*at) or 0)) for at, offset in one.items() if other.get(*at) is not None]
    return Offsets.of(common)


def topic_notes(live: Offsets, candidate: Offsets) -> list[str]:
    """Topics that only one of the two epochs reads; what it means for the report if they share none."""
    if not has_common_topic(live, candidate):
        return [
            f"The live epoch reads {_names(live.topics)}, this epoch reads {_names(candidate.topics)}: no topic in "
            "common, so no commit of one is at the offsets of the other. The last commits of both are compared; "
            "nothing shows that they cover the same records."
        ]
    notes = []
    for who, own, other in (("the live epoch", live, candidate), ("this epoch", candidate, live)):
        alone = [topic for topic in own.topics if topic not in other.topics]
        if alone:
            at = own.only(alone).to_json()
            notes.append(f"Only {who} reads {_names(alone)} (up to {at}): its records have no counterpart.")
    return notes


def dead_letter_notes(live: Mapping[str, int], candidate: Mapping[str, int]) -> list[str]:
    """How dead letters differ.

    Args:
        live: reason -> records that are dead letters of the live epoch alone.
        candidate: the same for this epoch.
    """
    notes = []
    for who, reasons in (("the live epoch", live), ("this epoch", candidate)):
        if reasons:
            counted = ", ".join(f"{count:,} ({reason})" for reason, count in sorted(reasons.items()))
            notes.append(f"{sum(reasons.values()):,} records are dead letters of {who} alone: {counted}.")
    return notes


def _names(topics: Iterable[str]) -> str:
    return ", ".join(map(repr, topics))
