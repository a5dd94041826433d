"""Rules about vectors of named offsets; one function each, as in ``log``. Kafka's tools clamp here."""

from __future__ import annotations

from collections.abc import Iterable

from kappa.offsets.vector import Offsets
from kappa.replay.findings import Finding, refuses
from kappa.replay.rules.log import vector_above_log
from kappa.replay.starts import ToOffset

START_NAMES_UNKNOWN = refuses(
    "start-names-unknown",
    "The start names {named}, which is unknown: {known}.",
    "Correct the name in --to-offset or the file, or omit it.",
)


def unknown_partitions(start: ToOffset, targets: Offsets) -> list[Finding]:
    """The start names a topic or partition that is not to be set: probably a typing error, so it is not ignored."""
    named = [(at, offset) for at, offset in start.offsets.items() if at not in targets]
    lost = {topic: offset for topic, offset in start.topics.items() if topic not in targets.topics}
    findings = [_unknown(f"{topic}[{partition}]={offset}", topic, targets) for (topic, partition), offset in named]
    return findings + [_unknown(f"{topic}={offset}", topic, targets) for topic, offset in lost.items()]


def _unknown(name: str, topic: str, targets: Offsets) -> Finding:
    has = targets.partitions(topic)
    choice = f"{topic!r} has the partitions {_spans(has)}" if has else f"the topics are {list(targets.topics)}"
    return START_NAMES_UNKNOWN(
        {"known": choice}, topic=topic, named=name, partitions=list(has), topics=list(targets.topics)
    )


START_LACKS_PARTITION = refuses(
    "start-lacks-partition",
    "The start has no offset for {topic!r}, partitions {spans}: none is guessed.",
    "Name each, like {topic}:{first}=<offset>, or all others of the topic with {topic}=<offset>.",
    way_out="Name it, or all others of its topic with `--to-offset topic=offset`.",
)


def start_lacks_partitions(start: Offsets, targets: Offsets) -> list[Finding]:
    """A partition has no offset: none is guessed for it."""
    findings = []
    for topic in targets.topics:
        missing = [partition for partition in targets.partitions(topic) if (topic, partition) not in start]
        if missing:
            words = {"spans": _spans(missing), "first": missing[0]}
            findings.append(START_LACKS_PARTITION(words, topic=topic, partitions=missing))
    return findings


START_ABOVE_HIGH_WATERMARK = refuses(
    "start-above-high-watermark",
    "Source {topic}[{partition}] ends at offset {high}, the start is {start}: {over} too many.",
    "Start at {high} or before; --to-latest starts where the live epoch is.",
)
START_ABOVE_STABLE_OFFSET = refuses(
    "start-above-stable-offset",
    "Source {topic}[{partition}] can be read up to offset {stable}, the start is {start}: a transaction is open in "
    "between.",
    "Start at {stable} or before, or wait until its producer ends it.",
)


def start_above_log(start: Offsets, high: Offsets, stable: Offsets) -> list[Finding]:
    """The start lies after the last record, or after records that an open transaction hides."""
    return vector_above_log(start, high, stable, "start", START_ABOVE_HIGH_WATERMARK, START_ABOVE_STABLE_OFFSET)


SHIFT_WITHOUT_LIVE_EPOCH = refuses(
    "shift-without-live-epoch",
    "A shift by {by:+d} is counted from the live epoch's last commit, but no epoch is live.",
    "Start --to-earliest, --to-datetime or --to-offset.",
)


def shift_without_live_epoch(by: int) -> list[Finding]:
    """There is no position to shift."""
    return [SHIFT_WITHOUT_LIVE_EPOCH(by=by)]


SHIFT_OUTSIDE_LOG = refuses(
    "shift-outside-log",
    "{topic}[{partition}] at {position} shifted by {by:+d} is {shifted}, but its log holds {low} to {end}.",
    "{allowed}; --to-offset sets the start partition by partition.",
    way_out="Choose a shift within the limit in the message; Kafka's tools would move to the log's end instead. "
    "--to-offset sets the start partition by partition.",
)


def shift_outside_log(by: int, position: Offsets, low: Offsets, end: Offsets) -> list[Finding]:
    """The shift leaves the log in some partition."""
    least = max([(low.get(*at) or 0) - offset for at, offset in position.items()], default=0)
    most = min([(end.get(*at) or 0) - offset for at, offset in position.items()], default=0)
    fits = least if by < 0 and least <= 0 else most if by > 0 and most >= 0 else None
    allowed = "No such shift fits all partitions" if fits is None else f"Shift by {fits:+d} at most"
    findings = []
    for (topic, partition), offset in position.items():
        first, last = low.get(topic, partition) or 0, end.get(topic, partition) or 0
        if not first <= offset + by <= last:
            words = {"allowed": allowed, "shifted": offset + by}
            where = {"topic": topic, "partition": partition, "position": offset, "low": first, "end": last}
            findings.append(SHIFT_OUTSIDE_LOG(words, **where, by=by, least=least, most=most))
    return findings


def _spans(partitions: Iterable[int]) -> str:
    """``0 to 2, 5``: numbers with runs joined."""
    runs: list[list[int]] = []
    for number in sorted(partitions):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in runs)
