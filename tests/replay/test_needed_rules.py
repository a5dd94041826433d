"""Topics that an epoch needs besides its sources: refused ones, missing ones, and those that a platform team made."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kappa.replay.epoch_topics import EpochTopic, Kind, NeededTopic, TopicRefusal, creation, overridden
from kappa.replay.facts import Facts, OutputFacts
from kappa.replay.findings import Finding, Severity
from kappa.replay.rules.needed import needed_findings
from kappa.topic_overrides import Overrides

COMPACTED = {"cleanup.policy": "compact", "retention.ms": "-1", "max.message.bytes": "1048588", "partitions": "1"}
KEEPING = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "max.message.bytes": "1048588",
}


def topic(kind: Kind = "changelog", name: str = "kappa.retail.loyalty.e0004.rewards.changelog") -> EpochTopic:
    return EpochTopic(name=name, kind=kind, partitions=2, settings={"cleanup.policy": "compact", "segment.ms": "1"})


def findings(facts: Facts, *needed: NeededTopic) -> list[Finding]:
    assert facts.topology is not None
    return needed_findings(facts.topology, replace(facts, needed=needed, tool_options="--bootstrap-server here:9092"))


def premade(facts: Facts, kind: Kind, **settings: str) -> list[Finding]:
    base = COMPACTED if kind in ("changelog", "markers") else KEEPING
    present = {**base, **{name.replace("_", "."): value for name, value in settings.items()}}
    return findings(facts, NeededTopic(topic=topic(kind), present=present))


def test_a_policy_that_refuses_a_topic_is_named_with_topic_setting_and_way_out(facts: Facts) -> None:
    refusal = TopicRefusal(reason="too small.", settings=("segment.ms",), policy="org.Strict", is_policy=True)
    (finding,) = findings(facts, NeededTopic(topic=topic(), refusal=refusal))
    assert (finding.code, finding.severity) == ("topic-refused", Severity.REFUSE)
    assert finding.message == (
        "Policy org.Strict of the brokers refuses new topic 'kappa.retail.loyalty.e0004.rewards.changelog', a "
        "changelog: too small. It would be made with segment.ms=1."
    )
    assert """KAPPA_TOPIC_SETTINGS='{"kappa.retail.loyalty.e*.rewards.changelog": {"segment.ms": ""}}'""" in (
        finding.remedy
    )


def test_the_way_out_keeps_what_is_set_and_has_all_topics_for_later_epochs_too(facts: Facts) -> None:
    markers, own = "kappa.retail.loyalty.e0004.markers", "kappa.retail.loyalty.e*.markers"
    before: Overrides = {
        "retention.ms": "5",
        own: {"segment.bytes": "7", "retention.bytes": "9"},
        "kappa.*": {"segment.ms": "6", "retention.bytes": "8"},
        "kappa.*.changelog": {"cleanup.policy": "delete"},
    }
    refusal = TopicRefusal(reason="too small", settings=("segment.ms", "retention.ms"), is_policy=True)
    changelog = NeededTopic(topic=overridden(topic(), before))
    others = [
        NeededTopic(topic=overridden(topic("markers", markers), before), refusal=refusal),
        NeededTopic(topic=overridden(topic("versioned", "loyalty.e0004"), before), refusal=refusal),
    ]
    refused = findings(replace(facts, topic_settings=before), changelog, *others)
    assert [one.code for one in refused] == ["topic-unfit", "topic-refused", "topic-refused"]
    values = {one.remedy.partition("KAPPA_TOPIC_SETTINGS='")[2].partition("'")[0] for one in refused}
    (value,) = values
    after: Overrides = json.loads(value)
    assert {name: after[name] for name in before if name != own} == {n: before[n] for n in before if n != own}
    for epoch in ("e0004", "e0005"):
        new = overridden(topic(name=f"kappa.retail.loyalty.{epoch}.rewards.changelog"), after)
        assert new.settings == {"cleanup.policy": "compact", "segment.ms": "6", "retention.ms": "5"} | {
            "retention.bytes": "8"
        }
        new = overridden(topic("markers", f"kappa.retail.loyalty.{epoch}.markers"), after)
        assert new.settings == {"cleanup.policy": "compact", "segment.bytes": "7", "retention.bytes": "8"}
        assert overridden(topic("versioned", f"loyalty.{epoch}"), after).settings == {"cleanup.policy": "compact"}


@pytest.mark.parametrize("names", [(), ("cleanup.policy",)], ids=["nothing to blame", "what it needs"])
def test_a_refusal_without_a_setting_to_leave_out_shows_all_and_names_no_value(
    facts: Facts, names: tuple[str, ...]
) -> None:
    refusal = TopicRefusal(reason="at most one partition", settings=names, is_policy=True)
    (finding,) = findings(facts, NeededTopic(topic=topic(), refusal=refusal))
    if not names:
        assert finding.message.endswith("It would be made with partitions=2, cleanup.policy=compact, segment.ms=1.")
    assert "={" not in finding.remedy and "='" not in finding.remedy
    assert "partitions and replication.factor too" in finding.remedy


def test_a_refused_number_of_partitions_has_one_in_the_way_out(facts: Facts) -> None:
    refusal = TopicRefusal(reason="at most one", settings=("partitions", "segment.ms"), is_policy=True)
    (finding,) = findings(facts, NeededTopic(topic=topic(), refusal=refusal))
    assert finding.message.endswith("It would be made with partitions=2, segment.ms=1.")
    assert '{"partitions": "1", "segment.ms": ""}' in finding.remedy


@pytest.mark.parametrize("kind", ["changelog", "versioned"])
def test_a_text_for_a_number_has_the_finding_of_the_brokers_alone(facts: Facts, kind: Kind) -> None:
    new = overridden(
        topic(kind),
        {"cleanup.policy": "delete", "retention.ms": "30d", "retention.bytes": "2GB", "max.message.bytes": "2MB"},
    )
    refusal = TopicRefusal(reason="not a number", settings=("retention.ms", "retention.bytes", "max.message.bytes"))
    assert [one.code for one in findings(facts, NeededTopic(topic=new, refusal=refusal))] == ["topic-refused"]


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_text_for_a_number_does_not_hide_what_a_login_may_not_create(facts: Facts, policy: str) -> None:
    settings = {"cleanup.policy": policy, "retention.ms": "30d", "max.message.bytes": "2MB"}
    refusal = TopicRefusal(reason="no", is_right=True)
    codes = [one.code for one in findings(facts, NeededTopic(topic=overridden(topic(), settings), refusal=refusal))]
    assert codes == ["topics-missing", *(["topic-unfit"] if "delete" in policy else [])]


def test_all_topics_that_a_login_may_not_create_are_in_one_finding_with_their_commands(facts: Facts) -> None:
    barred = TopicRefusal(reason="no", is_right=True)
    others = [NeededTopic(topic=topic(name=name), refusal=barred) for name in ("kappa.a", "kappa.b")]
    (finding,) = findings(facts, *others)
    assert (finding.code, finding.numbers) == ("topics-missing", {"epoch": 4})
    for name in ("kappa.a", "kappa.b"):
        line = (
            f"kafka-topics.sh --bootstrap-server here:9092 --create --if-not-exists --topic {name} --partitions 2 "
            "--config cleanup.policy=compact --config segment.ms=1"
        )
        assert line in finding.remedy


@pytest.mark.parametrize(
    ("kind", "setting", "value"),
    [
        ("changelog", "cleanup_policy", "delete"),
        ("changelog", "cleanup_policy", "compact,delete"),
        ("markers", "cleanup_policy", "delete"),
        ("markers", "partitions", "2"),
    ],
)
def test_a_topic_that_would_lose_what_is_needed_is_refused(facts: Facts, kind: Kind, setting: str, value: str) -> None:
    bounded = {"retention_ms": "604800000"} if value == "compact,delete" else {}
    (finding,) = premade(facts, kind, **{setting: value}, **bounded)
    assert (finding.code, finding.severity) == ("topic-unfit", Severity.REFUSE)
    assert finding.numbers["setting"] == setting.replace("_", ".") and finding.numbers["value"] == value
    assert "--topic" in finding.remedy or "--add-config cleanup.policy=compact" in finding.remedy


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_topic_that_keeps_what_is_needed_is_taken_as_it_is(facts: Facts, policy: str) -> None:
    assert premade(facts, "changelog", cleanup_policy=policy, partitions="6", segment_ms="604800000") == []


def test_settings_that_make_a_topic_unfit_are_refused_before_it_is_made(facts: Facts) -> None:
    new = overridden(topic(), {"kappa.*.changelog": {"cleanup.policy": "delete"}})
    (finding,) = findings(facts, NeededTopic(topic=new))
    assert finding.code == "topic-unfit"
    assert finding.message.startswith("KAPPA_TOPIC_SETTINGS gives new topic")


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({"retention.ms": "604800000"}, "retention.ms=604800000"),
        ({"retention.ms": "-1", "retention.bytes": "1000"}, "retention.bytes=1000"),
        ({}, "the brokers' own retention.ms"),
    ],
)
def test_a_versioned_topic_of_limited_retention_is_a_warning(
    facts: Facts, settings: dict[str, str], limit: str
) -> None:
    (finding,) = findings(facts, NeededTopic(topic=replace(topic("versioned"), settings=settings)))
    assert (finding.code, finding.numbers["limit"]) == ("versioned-topic-forgets", limit)


def test_a_changelog_of_smaller_records_than_its_source_is_a_warning(facts: Facts) -> None:
    facts = replace(facts, log=replace(facts.log, largest={"pos": 8 << 20}))
    (finding,) = premade(facts, "changelog")
    assert (finding.code, finding.numbers["bytes"]) == ("output-limits-records", 1048588)


def test_a_versioned_topic_that_was_made_before_is_judged_as_an_output(facts: Facts) -> None:
    assert facts.topology is not None
    own = OutputFacts(topic="loyalty", of="notifications", time="at")
    facts = replace(facts, topology=replace(facts.topology, own_outputs=(own,)))
    present = KEEPING | {"message.timestamp.type": "LogAppendTime"}
    needed = NeededTopic(topic=topic("versioned", "loyalty.e0004"), present=present)
    adopted, finding = findings(facts, needed)
    assert (adopted.code, adopted.severity) == ("versioned-topic-adopted", Severity.WARN)
    assert adopted.numbers == {"adopted": ["loyalty.e0004"]}
    assert findings(replace(facts, colliding_topics=("loyalty.e0004",)), needed) == [finding], "it is not taken"
    assert (finding.code, finding.numbers["topic"]) == ("output-rewrites-timestamps", "loyalty.e0004")


def test_settings_for_all_topics_come_before_those_of_a_pattern_and_empty_ones_are_left_to_the_broker() -> None:
    overrides = {
        "kappa.*.changelog": {"segment.ms": "7", "partitions": "6"},
        "segment.ms": "5",
        "cleanup.policy": "",
        "replication.factor": "3",
    }
    new = overridden(topic(), overrides)
    assert (new.partitions, new.replication, new.settings) == (6, 3, {"segment.ms": "7"})
    assert overridden(topic(name="loyalty"), overrides).settings == {"segment.ms": "5"}
    assert "--replication-factor 3 --config segment.ms=7" in creation(new)


def test_markers_have_one_partition_whatever_is_set() -> None:
    markers = EpochTopic(name="kappa.a.e0001.markers", kind="markers", partitions=1)
    assert overridden(markers, {"partitions": "6"}).partitions == 1
