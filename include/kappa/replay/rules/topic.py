"""Rules about the topics that an epoch sends to: names that are taken, and history that cannot come back."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from kappa.names import versioned_topic
from kappa.replay.facts import Facts, LiveFacts, TopologyFacts
from kappa.replay.findings import Finding, refuses, warns
from kappa.topology.shapes import SentForm, Shape, is_written_alike


def colliding(own: Iterable[str], present: Iterable[str]) -> list[str]:
    """Topics present on the broker that Kafka takes for one of these: '.' and '_' are the same to it."""
    names = {name.replace(".", "_") for name in own}
    return sorted({name for name in present if name.replace(".", "_") in names})


def topic_findings(topology: TopologyFacts, facts: Facts) -> list[Finding]:
    """Objections to the topics that the new epoch sends to, wherever it starts."""
    return [
        *topics_taken(topology.versioned, facts.next_epoch, facts.colliding_topics),
        *everything_sent(topology, facts.live, facts.log.outputs),
    ]


VERSIONED_TOPIC_TAKEN = refuses(
    "versioned-topic-taken",
    "Epoch {epoch} would send to {own} and remove it when the epoch is removed, but {others} exists already.",
    "Find out what writes to it (a consumer that asked for it too early may have made it); remove it, or give the "
    "topic output another name.",
)


def topics_taken(versioned: Iterable[str], epoch: int, present: Iterable[str]) -> list[Finding]:
    """A topic already has a name that the new epoch would use for its own: it belongs to something else."""
    own = [versioned_topic(name, epoch) for name in versioned]
    others = colliding(own, present)
    words = {"epoch": epoch, "own": ", ".join(own), "others": ", ".join(others)}
    return [VERSIONED_TOPIC_TAKEN(words, wanted=own, taken=others)] if others else []


VERSIONED_HISTORY_PARTIAL = warns(
    "versioned-history-partial",
    "A changelog holds tables only: {own} will begin with what is computed from its marker on, without earlier "
    "records.",
    "No action needed if readers need only those; earlier ones are in {before} as long as that is kept. Replay "
    "--to-earliest computes them again.",
    way_out="No action needed if readers need only what follows; earlier records are in the topics of earlier epochs "
    "as long as those are kept. Replay --to-earliest computes them again.",
)


def versioned_history_lost(appended: Iterable[str], epoch: int, seed_epoch: int | None) -> list[Finding]:
    """A changelog holds tables only: what an append output sent before cannot be sent to a new epoch's topic."""
    names = sorted(appended)
    if not names:
        return []
    own = ", ".join(versioned_topic(name, epoch) for name in names)
    before = ", ".join(versioned_topic(name, seed_epoch) for name in names) if seed_epoch is not None else "no topic"
    return [VERSIONED_HISTORY_PARTIAL({"own": own, "before": before}, topics=names)]


def has_same_key(one: Shape | None, other: Shape | None) -> bool:
    """Whether rows of both tables stand for the same things: key columns of the same names and types."""
    return one is not None and other is not None and one.typed_key == other.typed_key


RECONCILE_SENDS_EVERYTHING = warns(
    "reconcile-sends-everything",
    "Topic {topic!r} will get every row of table {table!r} at the cutover: live epoch {live} {why}, so nothing can be "
    "compared.",
    "No action needed: the topic is new.",
    way_out="No action needed if the topic is new, or its values get another form; otherwise give "
    "it another name, since records of other keys stay in the old one.",
)
_SENDS_ANOTHER_FORM = replace(
    RECONCILE_SENDS_EVERYTHING,
    message="Topic {topic!r} will get every row of table {table!r} at the cutover: live epoch {live} {why}.",
    remedy="No action needed: readers get each row in its new form.",
)
_SENDS_AND_REMOVES = replace(
    RECONCILE_SENDS_EVERYTHING,
    message=f"{RECONCILE_SENDS_EVERYTHING.message} Keys that the table lacks get a null value.",
    remedy="No action needed if only this topology sends to the topic; otherwise give it another name.",
)
_SENDS_BESIDE_OTHERS = replace(
    RECONCILE_SENDS_EVERYTHING,
    message=f"{RECONCILE_SENDS_EVERYTHING.message} Records of other keys that were sent before stay in it.",
    remedy="Give the topic another name, so that readers begin with an empty one.",
)


def other_form(was: SentForm | None, now: SentForm, before: Shape | None, after: Shape) -> str:
    """How the live epoch sends equal rows in another form; empty where it does not.

    Args:
        was: the form that the topic has; None if no plan says it, and then only types count.
        now: the form that it gets.
        before: the shape of the table that it was made from; None if there is none.
        after: the shape of the table now.
    """
    if before is None:
        return ""
    common = before.columns.keys() & after.columns.keys()
    if was is not None and (difference := was.difference(now, common)):
        return difference
    columns = [name for name in now.columns if name in common]
    retyped = [name for name in columns if not is_written_alike(before.columns[name], after.columns[name])]
    return f"sends {', '.join(f'{name} as {before.columns[name]}' for name in retyped)}" if retyped else ""


def everything_sent(topology: TopologyFacts, live: LiveFacts | None, present: Collection[str] = ()) -> list[Finding]:
    """A topic that was not reconciled with the same table, or has values of another form: all rows are sent.

    Args:
        topology: the new epoch's.
        live: the live epoch.
        present: topic outputs that the broker has.
    """
    if live is None:
        return []
    findings = []
    for topic, table in topology.reconciled.items():
        place = f"tables/{table}"
        has, shape = live.shapes.get(place), topology.shapes[place]
        declared = _SENDS_AND_REMOVES if topic in (*present, *live.topics) else RECONCILE_SENDS_EVERYTHING
        if not has_same_key(has, shape):
            declared = _SENDS_BESIDE_OTHERS if topic in live.topics else declared
            why = f"has no table {table!r}" if has is None else f"has another key for it, {has.typed_key}"
        elif live.reconciled.get(topic) != table:
            why = "does not reconcile it with that table"
        else:
            form = topology.sent_forms.get(topic)
            why = other_form(live.sent_forms.get(topic), form, has, shape) if form is not None else ""
            declared = _SENDS_ANOTHER_FORM
            if not why:
                continue
        findings.append(declared({"live": live.epoch, "why": why}, topic=topic, table=table))
    return findings
