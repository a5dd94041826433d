"""Rules about vectors that somebody chose by number; one function each, as in log_rules. Kafka's tools clamp here."""

from __future__ import annotations

from collections.abc import Iterable

from kappa.offsets.vector import Offsets
from kappa.replay.findings import Finding, refuse
from kappa.replay.starts import ToOffset


def unknown_partitions(start: ToOffset, wanted: Offsets) -> list[Finding]:
    """A topic or partition is named that is none of those to be set: left out in silence it would be a typing error."""
    named = [(at, offset) for at, offset in start.offsets.items() if at not in wanted]
    lost = {topic: offset for topic, offset in start.topics.items() if topic not in wanted.topics}
    found = [_unknown(f"{topic}[{partition}]={offset}", topic, wanted) for (topic, partition), offset in named]
    return found + [_unknown(f"{topic}={offset}", topic, wanted) for topic, offset in lost.items()]


def _unknown(name: str, topic: str, wanted: Offsets) -> Finding:
    has = wanted.partitions(topic)
    known = f"{topic!r} has the partitions {_spans(has)}" if has else f"the topics are {list(wanted.topics)}"
    return refuse(
        "start-names-unknown",
        f"The start names {name}, and {known}.",
        "Correct the name, or leave it away.",
        topic=topic,
        named=name,
        partitions=list(has),
        topics=list(wanted.topics),
    )


def start_lacks_partitions(start: Offsets, wanted: Offsets) -> list[Finding]:
    """A partition has no offset: none is guessed for it."""
    found = []
    for topic in wanted.topics:
        missing = [partition for partition in wanted.partitions(topic) if (topic, partition) not in start]
        if missing:
            found.append(
                refuse(
                    "start-lacks-partition",
                    f"The start says nothing of {topic!r}, partitions {_spans(missing)}: none is guessed.",
                    f"Name each, like {topic}:{missing[0]}=<offset>, or all others of the topic with {topic}=<offset>.",
                    topic=topic,
                    partitions=missing,
                )
            )
    return found


def start_above_log(start: Offsets, high: Offsets, stable: Offsets) -> list[Finding]:
    """The start lies behind the last record, or behind records that an open transaction hides."""
    found = []
    for (topic, partition), offset in start.items():
        last, readable = high.get(topic, partition) or 0, stable.get(topic, partition) or 0
        if offset > last:
            found.append(
                refuse(
                    "start-above-high-watermark",
                    f"Source {topic}[{partition}] ends at offset {last}, the start is {offset}: {offset - last} too many.",
                    f"Start at {last} or before; --to-latest starts where the live epoch is.",
                    topic=topic,
                    partition=partition,
                    high=last,
                    start=offset,
                )
            )
        elif offset > readable:
            found.append(
                refuse(
                    "start-above-stable-offset",
                    f"Source {topic}[{partition}] can be read up to offset {readable}, the start is {offset}: "
                    "a transaction is open in between.",
                    f"Start at {readable} or before, or wait until its producer ends it.",
                    topic=topic,
                    partition=partition,
                    stable=readable,
                    start=offset,
                )
            )
    return found


def shift_without_live_epoch(by: int) -> list[Finding]:
    """There is no position that could be shifted."""
    return [
        refuse(
            "shift-without-live-epoch",
            f"A shift by {by:+d} is counted from the live epoch's last commit, and no epoch is live.",
            "Start --to-earliest, --to-datetime or --to-offset.",
            by=by,
        )
    ]


def shift_outside_log(by: int, position: Offsets, low: Offsets, end: Offsets) -> list[Finding]:
    """The shift leaves the log in some partition."""
    least = max([(low.get(*at) or 0) - offset for at, offset in position.items()], default=0)
    most = min([(end.get(*at) or 0) - offset for at, offset in position.items()], default=0)
    fits = (
        f"{least:+d} at most" if by < 0 and least <= 0 else f"{most:+d} at most" if by > 0 and most >= 0 else "nothing"
    )
    allowed = f"Shift by {fits}" if fits != "nothing" else "No such shift fits all partitions"
    return [
        refuse(
            "shift-outside-log",
            f"{topic}[{partition}] at {offset} shifted by {by:+d} is {offset + by}, and its log holds "
            f"{low.get(topic, partition) or 0} to {end.get(topic, partition) or 0}.",
            f"{allowed}; --to-offset says where to start partition by partition.",
            topic=topic,
            partition=partition,
            position=offset,
            by=by,
            low=low.get(topic, partition) or 0,
            end=end.get(topic, partition) or 0,
            least=least,
            most=most,
        )
        for (topic, partition), offset in position.items()
        if not (low.get(topic, partition) or 0) <= offset + by <= (end.get(topic, partition) or 0)
    ]


def _spans(partitions: Iterable[int]) -> str:
    """``0 to 2, 5``: numbers with runs drawn together."""
    runs: list[list[int]] = []
    for number in sorted(partitions):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in runs)
