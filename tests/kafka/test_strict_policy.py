"""Brokers that refuse topics: they are asked before anything is made, and each setting that they refuse is named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support import topic_policy
from support.brokers import watched
from support.findings import findings_of
from support.sites import site

from kappa.config import Config
from kappa.control.new_topics import objections
from kappa.errors import TopologyError
from kappa.kafka import topic_settings
from kappa.kafka.broker import Broker
from kappa.replay.epoch_topics import EpochTopic
from kappa_local import doctor

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A client of a broker with a policy, and with shorter transactions than a topic that reconciles may take."""
    with (
        watched(
            topic_policy.started(tmp_path_factory.mktemp("strict"), transaction_max_timeout_ms="300000")
        ) as process,
        Broker(process.bootstrap_servers) as client,
    ):
        yield client


def changelog(name: str, **changes: str) -> EpochTopic:
    settings = {**topic_settings.CHANGELOG, **{key.replace("_", "."): value for key, value in changes.items()}}
    return EpochTopic(name=name, kind="changelog", partitions=2, settings={k: v for k, v in settings.items() if v})


def test_a_refusal_names_each_setting_that_the_policy_refuses_and_nothing_is_created(strict: Broker) -> None:
    topic = changelog("kappa.asked")
    refusal = strict.refusals([topic, EpochTopic(name="kappa.plain", partitions=1)])["kappa.asked"]
    assert refusal.settings == ("retention.ms", "segment.ms", "max.message.bytes")
    assert (refusal.is_policy, refusal.is_right) == (True, False)
    assert "retention.ms is unlimited" in refusal.reason
    assert strict.topics("kappa.") == ()
    with pytest.raises(TopologyError, match="KAPPA_TOPIC_SETTINGS"):
        strict.create(topic)


def test_the_doctor_says_that_transactions_are_too_short_and_which_setting_allows_longer_ones(
    strict: Broker, tmp_path: Path
) -> None:
    environment = {"KAPPA_HOME": str(tmp_path), "KAPPA_BOOTSTRAP_SERVERS": strict.bootstrap_servers}
    proof = next(one for one in doctor.proofs(Config.from_env(environment)) if one.name == "kafka")
    assert not proof.ok and "600000 ms (INVALID_TRANSACTION_TIMEOUT" in proof.detail
    assert proof.remedy.endswith(
        "Raise transaction.max.timeout.ms in the server.properties of each broker. Then: kappa doctor"
    )
    assert strict.topics("kappa.doctor.") == ()


def test_a_topic_that_the_policy_accepts_is_not_refused(strict: Broker) -> None:
    topic = changelog("kappa.accepted", retention_ms="", segment_ms="", max_message_bytes="1048588")
    assert strict.refusals([topic]) == {}
    assert strict.create(topic)
    assert strict.refusals([topic]) == {}, "an existing topic is taken as it is"


def test_a_policy_on_numbers_or_names_is_no_matter_of_settings(strict: Broker) -> None:
    many = replace(changelog("kappa.many", retention_ms="", max_message_bytes=""), partitions=9)
    assert strict.refusals([many])["kappa.many"].settings == ("partitions", "segment.ms")
    refusal = strict.refusals([changelog("kappa.forbidden", retention_ms="")])["kappa.forbidden"]
    assert (refusal.settings, refusal.is_policy) == ((), True)


def test_a_plan_names_policy_topic_and_settings_and_passes_with_others(strict: Broker, tmp_path: Path) -> None:
    with site(tmp_path / "site", strict, 900) as here:
        here.topic = "site900.source"
        here.deploy()
        here.create()
        here.produce()
        before = here.listing()
        code, answer = here.run("plan NAME --json")
        findings = {one["numbers"]["topic"]: one for one in findings_of(answer) if one["severity"] == "refuse"}
        assert (code, set(findings)) == (1, {here.paths(1).markers, here.paths(1).changelog("balances")})
        for finding in findings.values():
            assert finding["code"] == "topic-refused"
            assert finding["numbers"]["policy"] == topic_policy.POLICY
            assert finding["numbers"]["refused"] == ["retention.ms", "segment.ms", "max.message.bytes"]
        assert {one.numbers["topic"] for one in objections(here.config, [here.name])[here.name] or ()} == set(findings)
        (value,) = {one["remedy"].partition("KAPPA_TOPIC_SETTINGS='")[2].partition("'")[0] for one in findings.values()}
        for settings in (topic_policy.ACCEPTED, json.loads(value)):
            here.config = replace(here.config, topic_settings=settings)
            assert here.run("plan NAME")[0] == 0
        assert objections(here.config, [here.name]) == {here.name: []}
        assert here.listing() == before


@pytest.mark.parametrize(
    ("new_topic", "names"),
    [
        (EpochTopic(name="a", partitions=1, settings={"retention.m": "1"}), ("retention.m",)),
        (EpochTopic(name="a", partitions=1, settings={"retention.ms": "long"}), ("retention.ms",)),
        (EpochTopic(name="a", partitions=1, replication=2), ("replication.factor",)),
    ],
    ids=["no such setting", "no such value", "too few brokers"],
)
def test_what_kafka_itself_refuses_is_named_too(strict: Broker, new_topic: EpochTopic, names: tuple[str, ...]) -> None:
    refusal = strict.refusals([new_topic])["a"]
    assert (refusal.settings, refusal.is_policy) == (names, False)


def test_the_class_of_the_policy_is_known(strict: Broker) -> None:
    assert strict.broker_config()["create.topic.policy.class.name"] == topic_policy.POLICY
