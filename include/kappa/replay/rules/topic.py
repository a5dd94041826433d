"""Rules about the topics that an epoch sends to by itself: names that are taken, history that cannot come back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kappa.names import versioned_topic
from kappa.replay.facts import LiveFacts
from kappa.replay.findings import Finding, refuse, warn
from kappa.topology.shapes import Shape


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


def has_same_key(one: Shape | None, other: Shape | None) -> bool:
    """Whether rows of both tables stand for the same things: key columns of the same names and types."""
    if one is None or other is None or one.key != other.key:
        return False
    return all(one.columns[name] == other.columns[name] for name in one.key)


def everything_sent(
    reconciled: Mapping[str, str], shapes: Mapping[str, Shape], live: LiveFacts | None
) -> list[Finding]:
    """A topic that was not kept to the same table: what it holds cannot be compared, so that all rows are sent."""
    if live is None:
        return []
    found = []
    for topic, table in reconciled.items():
        place = f"tables/{table}"
        if not has_same_key(live.shapes.get(place), shapes[place]):
            has = live.shapes.get(place)
            why = f"has no table {table!r}" if has is None else f"keys it otherwise, by {list(has.key)}"
        elif live.reconciled.get(topic) != table:
            why = "does not keep it to that table"
        else:
            continue
        stale = topic in live.topics
        found.append(
            warn(
                "reconcile-sends-everything",
                f"Topic {topic!r} will get every row of table {table!r} at the cutover: live epoch {live.epoch} {why}."
                + (" Records of other keys that were sent before stay in it." if stale else ""),
                "Name the topic otherwise, so that readers begin with an empty one."
                if stale
                else "Nothing: the topic is new.",
                topic=topic,
                table=table,
            )
        )
    return found
