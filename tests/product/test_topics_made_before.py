"""Topics that somebody made for an epoch beforehand: it takes them, and its number, as long as they are empty."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.findings import findings_of
from support.needed_findings import VERSIONED
from support.sites import Site, eager_broker, site

from kappa.control.new_topics import objections
from kappa.kafka.broker import Broker
from kappa_local import doctor

__all__ = ["eager_broker"]

pytestmark = pytest.mark.broker

_numbers = itertools.count(500)


@pytest.fixture
def here(tmp_path: Path, eager_broker: str) -> Iterator[Site]:
    """A site whose topic has records, with a versioned topic output."""
    with Broker(eager_broker) as client, site(tmp_path / "site", client, next(_numbers)) as here:
        here.create()
        here.produce()
        here.deploy(outputs=VERSIONED)
        yield here


def planned_epoch(here: Site) -> int:
    code, answer = here.run("plan NAME --json")
    assert code == 0, answer
    number: int = json.loads(answer)["epoch"]
    return number


def commands(here: Site, words: str = "") -> list[dict[str, object]]:
    code, answer = here.run(f"topics commands NAME --json {words}")
    assert code == 0
    topics: list[dict[str, object]] = json.loads(answer)
    return topics


def test_commands_name_the_topics_of_the_next_epochs_with_the_configured_settings(here: Site) -> None:
    overrides = {"segment.ms": "", "kappa.*.changelog": {"partitions": "6"}, "*.moves.e*": {"retention.ms": "1000"}}
    here.config = replace(here.config, topic_settings=overrides)
    names = [
        name
        for epoch in (1, 2)
        for name in (
            here.paths(epoch).markers,
            here.paths(epoch).changelog("balances"),
            f"{here.topic}.moves.e{epoch:04d}",
        )
    ]
    topics = {str(one["name"]): one for one in commands(here, "--epochs 2")}
    assert list(topics) == names
    assert [topics[name]["partitions"] for name in names[:3]] == [1, 6, 2]
    line = str(topics[names[2]]["command"])
    assert line.startswith(f"kafka-topics.sh --bootstrap-server {here.kafka.bootstrap_servers} --create")
    assert "--config retention.ms=1000" in line and "segment.ms" not in line


def test_an_epoch_takes_the_number_of_empty_topics_that_were_made_for_it(here: Site) -> None:
    for one in commands(here):
        settings = one["settings"]
        assert isinstance(settings, dict)
        here.kafka.create_topic(str(one["name"]), int(str(one["partitions"])), settings)
    assert commands(here) == []
    assert planned_epoch(here) == 1
    here.produce(1, topic=here.paths(1).markers)
    assert planned_epoch(here) == 2


@pytest.mark.parametrize("kind", ["versioned", "changelog"])
def test_a_name_that_is_another_topics_to_kafka_is_a_finding_of_plan_and_doctor(here: Site, kind: str) -> None:
    name = f"{here.topic}.moves.e0001" if kind == "versioned" else here.paths(1).changelog("balances")
    here.create(name.replace(".", "_"))
    code, answer = here.run("plan NAME --json")
    refused = {one["code"]: one for one in findings_of(answer) if one["severity"] == "refuse"}
    assert code == 1
    assert set(refused) == {"topic-refused", *(["versioned-topic-taken"] if kind == "versioned" else [])}
    assert refused["topic-refused"]["numbers"]["topic"] == name
    assert "collides with existing topic" in refused["topic-refused"]["message"]
    assert "KAPPA_TOPIC_SETTINGS" not in refused["topic-refused"]["remedy"]
    assert "topic-refused" in {one.code for one in objections(here.config, [here.name])[here.name] or ()}


def test_commands_begin_with_the_topics_that_an_epoch_on_record_lacks(here: Site) -> None:
    here.config = replace(here.config, launcher="elsewhere")
    assert here.run("start NAME --execute --detach")[0] == 0
    here.deploy()  # later epochs have no versioned topic
    here.kafka.create_topic(here.paths(1).markers, 1)
    first = [here.paths(1).changelog("balances"), f"{here.topic}.moves.e0001"]
    second = [here.paths(2).markers, here.paths(2).changelog("balances")]
    assert [one["name"] for one in commands(here)] == [*first, *second]


def test_a_number_without_empty_topics_is_taken_by_its_group(here: Site) -> None:
    here.kafka.set_group_offsets(here.paths(3).name, here.end)
    assert planned_epoch(here) == 4


def test_topics_to_read_get_the_configured_settings_unless_the_command_names_others(here: Site) -> None:
    name = f"{here.topic}.more"
    own = {f"{here.topic}.*": {"partitions": "5", "segment.ms": "86400000"}}
    here.config = replace(here.config, topic_settings={"retention.ms": "", **own})
    code, answer = here.run(f"topics create {name}")
    assert (code, f"Would create {name} with 5 partitions, retention of the brokers." in answer) == (0, True), answer
    code, answer = here.run(f"topics create {name} --partitions 2 --retention P1D --execute")
    assert (code, answer.strip()) == (0, f"Created {name} with 2 partitions, retention P1D.")
    settings = here.kafka.topic_configs([name])[name]
    assert (here.kafka.partitions(name), settings["retention.ms"], settings["segment.ms"]) == (
        2,
        "86400000",
        "86400000",
    )


def test_the_doctor_counts_the_topologies_that_were_asked_and_names_the_others(here: Site) -> None:
    assert doctor._topics(here.config) == (
        "the brokers would make the topics of the next epoch of 1 topologies, or have them"
    )
    here.delete()
    (here.config.topologies / "broken.py").write_text("import no_such_module\n\nTopology(name='a.b')\n")
    assert doctor._topics(here.config) == (
        "the brokers would make the topics of the next epoch of 0 topologies, or have them; not asked for "
        f"{here.name} (a source is missing), broken.py (does not import)"
    )
