"""Rules about topics that are there already and that an epoch will send to: what they would drop, refuse or rewrite.

One that is not there is made with settings that keep what is sent; see :mod:`kappa.kafka.topic_settings`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kappa.replay.facts import OutputFacts
from kappa.replay.findings import Finding, refuses, warns

#: As far as an event time may lie past Kafka's by default.
_AHEAD_MS = 3600 * 1000
_ANY = 2**63 - 1
_ALTER = "kafka-configs.sh --alter --entity-type topics --entity-name {topic} --add-config "


OUTPUT_REWRITES_TIMESTAMPS = refuses(
    "output-rewrites-timestamps",
    "Topic {topic!r} has message.timestamp.type=LogAppendTime: the broker puts the time of arrival in the place of "
    "column {column!r}, and windows of what reads it would be other ones.",
    f"Let it keep times: {_ALTER}message.timestamp.type=CreateTime; or --allow output-rewrites-timestamps if no reader "
    "asks for them.",
    may_be_allowed=True,
)
OUTPUT_DROPS_OLD_RECORDS = warns(
    "output-drops-old-records",
    "Topic {topic!r} keeps records for {days:,.1f} days by their timestamps (retention.ms={ms}), which are those of "
    "column {column!r}: what is older is gone minutes after it arrives.",
    f"No action needed if all rows are younger; otherwise: {_ALTER}retention.ms=-1",
)
OUTPUT_REFUSES_TIMES = warns(
    "output-refuses-times",
    "Topic {topic!r} takes no record whose timestamp is more than {ms} ms {side} its broker's clock ({name}), and "
    "column {column!r} is the timestamp: the epoch stops at such a row.",
    f"No action needed if no row has such a time; otherwise: {_ALTER}{{name}}={_ANY}",
)
OUTPUT_REFUSES_NULL_KEYS = refuses(
    "output-refuses-null-keys",
    "Topic {topic!r} has cleanup.policy={policy} and takes no record without a key, and column {column!r} may be null: "
    "the epoch stops at such a row.",
    f"Declare the column NOT NULL, or: {_ALTER}cleanup.policy=delete; --allow output-refuses-null-keys if it never is.",
    may_be_allowed=True,
)
OUTPUT_IS_COMPACTED = warns(
    "output-is-compacted",
    "Topic {topic!r} has cleanup.policy={policy}, and {of!r} is an append output: of the rows of one key all but the "
    "newest are removed.",
    f"No action needed if readers want the newest row of a key; otherwise: {_ALTER}cleanup.policy=delete",
)
OUTPUT_FORGETS_KEYS = warns(
    "output-forgets-keys",
    "Topic {topic!r} is reconciled with table {of!r} and removes records by their age (cleanup.policy={policy}, "
    "retention.ms={ms}): a reader lacks the keys that have not changed for this long.",
    f"Let it keep the newest record of each key: {_ALTER}cleanup.policy=compact",
)
OUTPUT_LIMITS_RECORDS = warns(
    "output-limits-records",
    "Topic {topic!r} takes records of {bytes} bytes at most (max.message.bytes), source {source!r} of {most}: it "
    "stops the epoch at a row that is larger.",
    f"No action needed if rows are smaller than the records that they come from; otherwise: {_ALTER}"
    "max.message.bytes={most}",
)


def output_findings(
    outputs: tuple[OutputFacts, ...], settings: Mapping[str, Mapping[str, str]], limits: Mapping[str, int]
) -> list[Finding]:
    """Objections by the settings of existing output topics to what would be sent to them.

    Args:
        outputs: topic outputs.
        settings: topic -> its settings, of those that are there.
        limits: source topic -> its ``max.message.bytes``.
    """
    findings = []
    for output in outputs:
        if output.topic in settings:
            topic_settings = settings[output.topic]
            findings += [
                *_times(output, topic_settings),
                *_cleanup(output, topic_settings),
                *_size(output, topic_settings, limits),
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


def _size(output: OutputFacts, settings: Mapping[str, str], limits: Mapping[str, int]) -> list[Finding]:
    source = max(limits, key=lambda topic: limits[topic], default="")
    takes = int(settings["max.message.bytes"])
    if not source or takes >= limits[source]:
        return []
    return [OUTPUT_LIMITS_RECORDS(topic=output.topic, bytes=takes, source=source, most=limits[source])]
