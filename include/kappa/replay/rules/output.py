"""Rules about what is there already where an epoch will write: topics that would drop, refuse or rewrite records,
schemas that a registry refuses, and tables of other programs.

A missing topic is created with settings that keep what is sent; see :mod:`kappa.kafka.topic_settings`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kappa.replay.facts import OutputFacts, TopologyFacts
from kappa.replay.findings import Finding, refuses, warns

#: How far an event time may lie after Kafka's timestamp by default.
_AHEAD_MS = 3600 * 1000
_ANY = 2**63 - 1
_ALTER = "kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config "


OUTPUT_REWRITES_TIMESTAMPS = refuses(
    "output-rewrites-timestamps",
    "Topic {topic!r} has message.timestamp.type=LogAppendTime: the broker replaces the time in column {column!r} with "
    "the time of arrival, and windows of its readers would differ.",
    f"Let it keep times: {_ALTER}message.timestamp.type=CreateTime; or --allow output-rewrites-timestamps if no reader "
    "needs them.",
    may_be_allowed=True,
)
OUTPUT_DROPS_OLD_RECORDS = warns(
    "output-drops-old-records",
    "Topic {topic!r} keeps records for {days:,.1f} days by their timestamps (retention.ms={ms}), which come from "
    "column {column!r}: an older record is removed minutes after it arrives.",
    f"No action needed if all rows are younger; otherwise: {_ALTER}retention.ms=-1",
)
OUTPUT_REFUSES_TIMES = warns(
    "output-refuses-times",
    "Topic {topic!r} refuses records whose timestamp is more than {ms} ms {side} its broker's clock ({name}), and "
    "column {column!r} is the timestamp: the epoch stops at such a row.",
    f"No action needed if no row has such a time; otherwise: {_ALTER}{{name}}={_ANY}",
)
OUTPUT_REFUSES_NULL_KEYS = refuses(
    "output-refuses-null-keys",
    "Topic {topic!r} has cleanup.policy={policy} and refuses records without a key, and column {column!r} may be null: "
    "the epoch stops at such a row.",
    f"Declare the column NOT NULL, or: {_ALTER}cleanup.policy=delete; --allow output-refuses-null-keys if it is never "
    "null.",
    may_be_allowed=True,
)
OUTPUT_IS_COMPACTED = warns(
    "output-is-compacted",
    "Topic {topic!r} has cleanup.policy={policy}, and {of!r} is an append output: all but the newest row of each key "
    "are removed.",
    f"No action needed if readers want only the newest row of each key; otherwise: {_ALTER}cleanup.policy=delete",
)
OUTPUT_FORGETS_KEYS = warns(
    "output-forgets-keys",
    "Topic {topic!r} is reconciled with table {of!r} and removes records by their age (cleanup.policy={policy}, "
    "retention.ms={ms}): a reader misses the keys that have not changed for this long.",
    f"Let it keep the newest record of each key: {_ALTER}cleanup.policy=compact",
)
OUTPUT_LIMITS_RECORDS = warns(
    "output-limits-records",
    "Topic {topic!r} accepts records of at most {bytes} bytes (max.message.bytes), source {source!r} of {most}: a "
    "larger row stops the epoch.",
    f"No action needed if rows are smaller than the records that they come from; otherwise: {_ALTER}"
    "max.message.bytes={most}",
)


def output_findings(
    outputs: tuple[OutputFacts, ...], settings: Mapping[str, Mapping[str, str]], limits: Mapping[str, int]
) -> list[Finding]:
    """Objections to what would be sent to existing output topics, by their settings.

    Args:
        outputs: topic outputs.
        settings: topic -> its settings, for those that exist.
        limits: source topic -> its ``max.message.bytes``.
    """
    findings = []
    for output in outputs:
        if output.topic in settings:
            topic_settings = settings[output.topic]
            findings += [
                *_times(output, topic_settings),
                *_cleanup(output, topic_settings),
                *size(output.topic, int(topic_settings["max.message.bytes"]), limits),
            ]
    return findings


def _times(output: OutputFacts, settings: Mapping[str, str]) -> list[Finding]:
    if output.time is None:
        return []
    words = {"topic": output.topic, "column": output.time}
    if settings["message.timestamp.type"] == "LogAppendTime":
        return [OUTPUT_REWRITES_TIMESTAMPS(**words)]
    findings = []
    retention_ms = int(settings["retention.ms"])
    if "delete" in settings["cleanup.policy"] and retention_ms >= 0:
        findings.append(OUTPUT_DROPS_OLD_RECORDS({"days": retention_ms / 86_400_000}, **words, ms=retention_ms))
    for side, allowed in (("before", _ANY), ("after", _AHEAD_MS)):
        name = f"message.timestamp.{side}.max.ms"
        bound = int(settings.get(name, _ANY))
        if bound < allowed:
            findings.append(OUTPUT_REFUSES_TIMES({"side": side, "name": name}, **words, setting=name, ms=bound))
    return findings


def _cleanup(output: OutputFacts, settings: Mapping[str, str]) -> list[Finding]:
    policy, findings = settings["cleanup.policy"], []
    if "compact" in policy and output.nullable_key is not None:
        findings.append(OUTPUT_REFUSES_NULL_KEYS(topic=output.topic, policy=policy, column=output.nullable_key))
    if "compact" in policy and output.is_append:
        findings.append(OUTPUT_IS_COMPACTED(topic=output.topic, policy=policy, of=output.of))
    if output.is_reconciled and "delete" in policy and int(settings["retention.ms"]) >= 0:
        findings.append(
            OUTPUT_FORGETS_KEYS(topic=output.topic, policy=policy, of=output.of, ms=int(settings["retention.ms"]))
        )
    return findings


def size(topic: str, takes: int, limits: Mapping[str, int]) -> list[Finding]:
    """An objection to a topic that takes smaller records than a source.

    Args:
        topic: the topic.
        takes: its ``max.message.bytes``.
        limits: source topic -> the same of it.
    """
    source = max(limits, key=lambda topic: limits[topic], default="")
    if not source or takes >= limits[source]:
        return []
    return [OUTPUT_LIMITS_RECORDS(topic=topic, bytes=takes, source=source, most=limits[source])]


PUBLISHED_PATH_TAKEN = refuses(
    "published-path-taken",
    "Another program has a Delta table at {path}, where readers are to find a table of {topology!r}.",
    "Move that table to another folder, or give the topology or its table another name.",
)


def paths_taken(topology: str, paths: Iterable[str]) -> list[Finding]:
    """Another program has tables where published tables belong: nothing is published over them."""
    return [PUBLISHED_PATH_TAKEN(path=path, topology=topology) for path in paths]


SCHEMA_REGISTRY_MISSING = refuses(
    "schema-registry-missing",
    "Topology {topology!r} has Avro topics {lacking}, the lake has no schema for them, and KAPPA_SCHEMA_REGISTRY is "
    "not set.",
    "Set KAPPA_SCHEMA_REGISTRY to the URL of the schema registry, here and where drivers start.",
)
SCHEMA_REFUSED = refuses(
    "schema-refused",
    "The schema registry would refuse the schema of topic outputs {refused}: it is not compatible with the latest one "
    "of their subjects.",
    "Declare the columns so that readers of the latest schema can continue (a new one may be null, none is renamed), "
    "or give the topic output another name.",
)
SOURCE_IS_AVRO = refuses(
    "source-is-avro",
    "Sources {sources} are read as JSON, and an epoch of this lake sends Avro to topics of these names: each of those "
    "records would be a dead letter.",
    "Declare format='avro' on them. --allow source-is-avro reads them as declared, for example where the topic is JSON "
    "again.",
    may_be_allowed=True,
)
_SOURCE_IS_JSON_SCHEMA = replace(
    SOURCE_IS_AVRO,
    message="Sources {sources} are read as JSON, and an epoch of this lake sends JSON after a schema id to topics "
    "of these names: each of those records would be a dead letter.",
    remedy="Declare format='json_schema' on them. --allow source-is-avro reads them as declared, for example where the "
    "topic is plain JSON again.",
)


def schema_findings(topology: TopologyFacts) -> list[Finding]:
    """Objections to the schemas of a topology's topics."""
    words = {"topology": topology.name}
    schemas = topology.schemas
    findings = [SCHEMA_REGISTRY_MISSING(words, lacking=list(schemas.without_schema))] if schemas.without_schema else []
    findings += [SCHEMA_REFUSED(refused=list(schemas.refused))] if schemas.refused else []
    findings += [SOURCE_IS_AVRO(sources=list(schemas.avro))] if schemas.avro else []
    return findings + ([_SOURCE_IS_JSON_SCHEMA(sources=list(schemas.json))] if schemas.json else [])
