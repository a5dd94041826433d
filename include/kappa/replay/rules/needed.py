"""Rules about the topics that an epoch needs on the broker: those that it would make, and those made for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from kappa.names import epoch_word, versioned_topic
from kappa.replay.epoch_topics import WORDS, EpochTopic, Kind, NeededTopic, TopicRefusal, creation, creations
from kappa.replay.facts import Facts, TopologyFacts
from kappa.replay.findings import Finding, refuses, warns
from kappa.replay.rules import output as output_rules
from kappa.topic_overrides import PARTITIONS, REPLICATION

#: Name of a setting of Kappa, in messages.
_SETTING = "KAPPA_TOPIC_SETTINGS"
#: Kinds of topics that keep the last record of each key.
_COMPACTED: tuple[Kind, ...] = ("changelog", "markers")
_ALTER = "kafka-configs.sh {options} --alter --entity-type topics --entity-name {topic} --add-config "

TOPIC_UNFIT = refuses(
    "topic-unfit",
    "Topic {topic!r} is there with {setting}={value}, and the epoch uses it as {kind}, which needs {setting}={needs}: "
    "{why}.",
    "Ask the owner of the topic for: {command}",
)
_MADE_UNFIT = replace(
    TOPIC_UNFIT,
    message=f"{_SETTING} gives new topic {{topic!r}} {{setting}}={{value}}, and the epoch uses it as {{kind}}, which "
    "needs {setting}={needs}: {why}.",
    remedy=f"Set another value, here beside all that is set: {_SETTING}='{{example}}'",
)
TOPIC_REFUSED = refuses(
    "topic-refused",
    "{by} refuses new topic {topic!r}, {kind}: {reason}. It would be made with {settings}.",
    f"Set other values, or leave them to the brokers with empty ones, here beside all that is set: "
    f"{_SETTING}='{{example}}'. Or let the owner of the brokers make it: {{command}}",
)
_REFUSED_WHOLE = replace(
    TOPIC_REFUSED,
    remedy=f"No single setting that it can do without is to blame. Set others in {_SETTING}, {PARTITIONS} and "
    f"{REPLICATION} too, or let the owner of the brokers make it: {{command}}",
)
_REFUSED_NAME = replace(
    TOPIC_REFUSED,
    remedy="Find out what the other topic is for. Then remove it, or give the topology or its topic output another "
    "name, and plan again.",
)
TOPICS_MISSING = refuses(
    "topics-missing",
    "Epoch {epoch} needs {count} topics that are not there, or that this login may not see, and it may not create "
    "them: {topics}.",
    "Ask whoever may create topics to run: {commands}. `kappa topics commands` prints the lines, for later epochs too. "
    "Or grant Create: docs/security.md; or --allow topics-missing if drivers have another login.",
    may_be_allowed=True,
)
VERSIONED_TOPIC_FORGETS = warns(
    "versioned-topic-forgets",
    "Versioned topic {topic!r} keeps records for a limited time ({limit}): readers that begin later, and replays of "
    "topologies that read it, miss the older ones.",
    "No action needed if no reader needs them; otherwise set retention.ms=-1 and retention.bytes=-1 for it.",
)

VERSIONED_TOPIC_ADOPTED = warns(
    "versioned-topic-adopted",
    "Epoch {epoch} would take {topics}, which exist already and are empty, for its own: `kappa abort` and `kappa "
    "retire` delete them with it.",
    "No action needed if they were made for the epoch; otherwise give the topic output another name.",
)


def needed_findings(topology: TopologyFacts, facts: Facts) -> list[Finding]:
    """Objections to the topics that the new epoch needs besides its sources."""
    options = facts.tool_options
    barred = [one.topic for one in facts.needed if one.is_barred]
    findings = [_missing(barred, facts.next_epoch, options)] if barred else []
    example = _example(facts)
    for one in facts.needed:
        if one.objection is not None:
            findings.append(_refused(one, one.objection, example, options))
        else:
            findings += [*_unfit(one, example, options), *_forgets(one), *_limits(one, facts.log.largest)]
    return [*findings, *_adopted(facts), *_made_before(topology, facts)]


def _example(facts: Facts) -> str:
    """One value of the setting for all topics of the plan that need others, and for those of later epochs.

    It has what is set already.
    """
    settings = dict(facts.topic_settings)
    for one in facts.needed:
        others = _others(one)
        if others:
            pattern = re.sub(rf"\.{epoch_word(facts.next_epoch)}(?=\.|$)", ".e*", one.topic.name)
            before, values = settings.pop(pattern, {}), one.topic.all_settings  # the last pattern that fits counts
            names = [] if isinstance(before, str) else list(before)
            settings[pattern] = {name: values.get(name, "") for name in names} | others
    return json.dumps(settings)


def _others(one: NeededTopic) -> dict[str, str]:
    """Other values for settings of a new topic that are refused, or unfit, as far as it can do its job with them."""
    if one.present is not None:
        return {}
    needs = {"cleanup.policy": "compact"} if _loss(one.topic.kind, one.topic.settings) else {}
    if one.objection is None:
        return needs
    others = {name: "1" if name == PARTITIONS else "" for name in one.objection.settings}
    if one.topic.kind in _COMPACTED:
        others.pop("cleanup.policy", None)
    return others | needs


def _missing(topics: Iterable[EpochTopic], epoch: int, options: str) -> Finding:
    names = [topic.name for topic in topics]
    return TOPICS_MISSING(
        {"count": len(names), "commands": creations(topics, options)} | {"topics": ", ".join(names)}, epoch=epoch
    )


def _refused(one: NeededTopic, refusal: TopicRefusal, example: str, options: str) -> Finding:
    topic, settings = one.topic, one.topic.all_settings
    names = refusal.settings or tuple(settings)
    by = f"Policy {refusal.policy} of the brokers" if refusal.policy else "A policy of the brokers"
    has_others = not _others(one).keys().isdisjoint(refusal.settings)
    declared = TOPIC_REFUSED if has_others else _REFUSED_NAME if refusal.is_name else _REFUSED_WHOLE
    return declared(
        {
            "by": by if refusal.is_policy else "Kafka",
            "kind": WORDS[topic.kind],
            "settings": ", ".join(f"{name}={settings[name]}" for name in names if name in settings),
            "command": creation(topic, options),
            "example": example,
        },
        topic=topic.name,
        reason=refusal.reason.rstrip("."),
        refused=list(refusal.settings),
        policy=refusal.policy,
    )


def _unfit(one: NeededTopic, example: str, options: str) -> Iterator[Finding]:
    """What keeps a topic from its purpose: a changelog or a marker that is removed cannot come back."""
    topic, settings = one.topic, one.settings
    words = {"kind": WORDS[topic.kind], "example": example}
    declared = _MADE_UNFIT if one.present is None else TOPIC_UNFIT
    if why := _loss(topic.kind, settings):
        words |= {"why": why, "command": f"{_ALTER.format(options=options, topic=topic.name)}cleanup.policy=compact"}
        policy = settings.get("cleanup.policy", "")
        yield declared(words, topic=topic.name, setting="cleanup.policy", value=policy, needs="compact")
    if topic.kind == "markers" and settings.get(PARTITIONS, "1") != "1":
        again = creation(replace(topic, partitions=1), options)
        words |= {"why": "readers look for the last marker in partition 0"}
        words |= {"command": f"kafka-topics.sh {options} --delete --topic {topic.name}; {again}"}
        yield declared(words, topic=topic.name, setting=PARTITIONS, value=settings[PARTITIONS], needs="1")


def _loss(kind: Kind, settings: Mapping[str, str]) -> str:
    """Why a topic of these settings loses what is needed; empty where it does not."""
    policy = settings.get("cleanup.policy", "")
    if kind not in _COMPACTED:
        return ""
    if "compact" not in policy:
        return "without compaction it loses rows by their age, or grows with every change"
    limit = _limit(settings) if "delete" in policy else ""
    return f"{limit} removes rows that have not changed for that long" if limit else ""


def _forgets(one: NeededTopic) -> list[Finding]:
    if one.topic.kind != "versioned" or "delete" not in one.settings.get("cleanup.policy", "delete"):
        return []
    limit = _limit(one.settings)
    return [VERSIONED_TOPIC_FORGETS(topic=one.topic.name, limit=limit)] if limit else []


def _limit(settings: Mapping[str, str]) -> str:
    """The setting by which a topic removes records; empty where none does."""
    for name in ("retention.ms", "retention.bytes"):
        value = settings.get(name)
        if value is None and name == "retention.ms":
            return "the brokers' own retention.ms"
        if value is not None and _number(value) != -1:
            return f"{name}={value}"
    return ""


def _limits(one: NeededTopic, largest: Mapping[str, int]) -> list[Finding]:
    """A row may be as large as the record that it comes from; outputs that are there have a rule of their own."""
    limit = _number(one.settings.get("max.message.bytes", ""))
    return [] if limit is None or one.topic.kind != "changelog" else output_rules.size(one.topic.name, limit, largest)


def _number(text: str) -> int | None:
    """A setting's number; None where somebody wrote something else, which the brokers refuse."""
    return int(text) if re.fullmatch(r"-?\d+", text.strip()) else None


def _adopted(facts: Facts) -> list[Finding]:
    """A warning of empty topics that the epoch takes, and removes: they may be those of another application."""
    names = [one.topic.name for one in facts.needed if one.topic.kind == "versioned" and one.present is not None]
    names = [name for name in names if name not in facts.colliding_topics]
    words = {"epoch": facts.next_epoch, "topics": ", ".join(names)}
    return [VERSIONED_TOPIC_ADOPTED(words, adopted=names)] if names else []


def _made_before(topology: TopologyFacts, facts: Facts) -> list[Finding]:
    """Objections to versioned topics that were made for the epoch, as to any topic output that is there."""
    present = {one.topic.name: one.present for one in facts.needed if one.present is not None}
    own = tuple(
        replace(output, topic=versioned_topic(output.topic, facts.next_epoch)) for output in topology.own_outputs
    )
    return output_rules.output_findings(own, present, facts.log.largest)
