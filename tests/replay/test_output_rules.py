"""Findings about existing topics that would drop or refuse records."""

from __future__ import annotations

import pytest

from kappa.replay.facts import OutputFacts, topology_facts
from kappa.replay.rules.output import output_findings
from kappa.topology import Append, Source, Table, Topic, Topology

ANY = str(2**63 - 1)
KEEPS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": ANY,
    "message.timestamp.after.max.ms": "3600000",
    "max.message.bytes": "1048588",
}
TIMED = OutputFacts(topic="out", of="rows", is_append=True, time="at")
KEYLESS = OutputFacts(topic="out", of="rows", is_append=True, nullable_key="id")
STATE = OutputFacts(topic="out", of="state", is_reconciled=True)
PLAIN = OutputFacts(topic="out", of="rows", is_append=True)


@pytest.mark.parametrize(
    ("output", "settings", "codes"),
    [
        (TIMED, {}, []),
        (TIMED, {"retention.ms": "604800000"}, ["output-drops-old-records"]),
        (TIMED, {"message.timestamp.type": "LogAppendTime", "retention.ms": "1"}, ["output-rewrites-timestamps"]),
        (TIMED, {"message.timestamp.before.max.ms": "1"}, ["output-refuses-times"]),
        (TIMED, {"message.timestamp.after.max.ms": "3599999"}, ["output-refuses-times"]),
        (TIMED, {"cleanup.policy": "compact", "retention.ms": "1"}, ["output-is-compacted"]),
        (PLAIN, {"retention.ms": "1", "message.timestamp.before.max.ms": "1"}, []),
        (PLAIN, {"message.timestamp.type": "LogAppendTime"}, []),
        (PLAIN, {"max.message.bytes": "2000"}, []),
        (PLAIN, {"max.message.bytes": "1999"}, ["output-limits-records"]),
        (KEYLESS, {}, []),
        (KEYLESS, {"cleanup.policy": "compact,delete"}, ["output-refuses-null-keys", "output-is-compacted"]),
        (STATE, {"cleanup.policy": "compact", "retention.ms": "1"}, []),
        (STATE, {"retention.ms": "-1"}, []),
        (STATE, {"cleanup.policy": "compact,delete", "retention.ms": "1"}, ["output-forgets-keys"]),
    ],
)
def test_settings_that_drop_or_refuse_records_are_reported(
    output: OutputFacts, settings: dict[str, str], codes: list[str]
) -> None:
    findings = output_findings((output,), {"out": {**KEEPS, **settings}}, {"pos": 2000})
    assert [finding.code for finding in findings] == codes


def test_a_missing_topic_has_no_findings() -> None:
    assert output_findings((TIMED, KEYLESS, STATE), {}, {"pos": 2000}) == []


def test_a_composite_key_is_never_null_and_versioned_topics_are_left_out() -> None:
    topology = Topology(
        name="a.b",
        version="1",
        sources=[Source(topic="pos", schema="id STRING")],
        tables=[Table(name="state", key="id", schema="id STRING NOT NULL, other STRING")],
        outputs=[
            Append(name="rows", schema="id STRING, n INT"),
            Topic(name="one", of="rows", key="id"),
            Topic(name="both", of="rows", key=["id", "n"]),
            Topic(name="other", of="state", key="other"),
            Topic(name="own", of="rows", key="id", on_replay="versioned"),
        ],
        step=lambda _: {},
    )
    facts = topology_facts(topology, "c").outputs
    assert [(one.topic, one.nullable_key) for one in facts] == [("one", "id"), ("both", None), ("other", "other")]
