"""Rules about the topics that an epoch sends to by itself: names that are taken, history that cannot come back."""

from __future__ import annotations

from collections.abc import Iterable

from kappa.lake import versioned_topic
from kappa.replay.findings import Finding, refuse, warn


def colliding(wanted: Iterable[str], present: Iterable[str]) -> list[str]:
    """Those that are there and that Kafka takes for one of the wanted ones: '.' and '_' are the same to it."""
    names = {name.replace(".", "_") for name in wanted}
    return sorted({name for name in present if name.replace(".", "_") in names})


def topics_taken(versioned: Iterable[str], epoch: int, present: Iterable[str]) -> list[Finding]:
    """A topic of a name that the new epoch would make for itself exists: it is somebody else's."""
    wanted = [versioned_topic(name, epoch) for name in versioned]
    taken = colliding(wanted, present)
    if not taken:
        return []
    return [
        refuse(
            "versioned-topic-taken",
            f"Epoch {epoch} would send to {', '.join(wanted)} and remove that with itself, and {', '.join(taken)} exists already.",
            "Look who writes to it (a consumer that asked for it too early may have made it); remove it, or name the topic output otherwise.",
            wanted=wanted,
            taken=taken,
        )
    ]


def versioned_history_lost(appended: Iterable[str], epoch: int, seed_epoch: int | None) -> list[Finding]:
    """A changelog holds tables only: what an append output sent before cannot be sent to a new epoch's topic."""
    names = sorted(appended)
    if not names:
        return []
    own = ", ".join(versioned_topic(name, epoch) for name in names)
    before = ", ".join(versioned_topic(name, seed_epoch) for name in names) if seed_epoch is not None else "no topic"
    return [
        warn(
            "versioned-history-partial",
            f"A changelog holds tables only: {own} will begin with what is computed from its marker on, without earlier records.",
            f"Nothing, if readers need only those; earlier ones are in {before} as long as that is kept. Replay --to-earliest computes them anew.",
            topics=names,
        )
    ]
