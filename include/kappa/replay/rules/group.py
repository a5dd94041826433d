"""Rules about a consumer group that is to be set; one function each, as in ``log``.

Where Kafka's own tool clamps, takes the end instead, or fails with exit code 0, these refuse.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from kappa.offsets.vector import Offsets, TopicPartition
from kappa.replay.findings import Finding, refuses, warns
from kappa.replay.rules.log import time_below_low_watermark

GROUP_OF_EPOCH = refuses(
    "group-of-epoch",
    "Group {group!r} belongs to an epoch of {topology!r}: its ledger says where the epoch is, and a group that is "
    "moved from outside only contradicts it.",
    "`kappa replay {topology}` recomputes from any of these starts, beside the live epoch.",
)


def group_of_epoch(group: str) -> list[Finding]:
    """The group belongs to an epoch, whose ledger says where it is."""
    match = re.fullmatch(r"kappa\.(?P<topology>.+)\.e\d{4,}", group)
    return [] if match is None else [GROUP_OF_EPOCH(group=group, topology=match["topology"])]


GROUP_HAS_MEMBERS = refuses(
    "group-has-members",
    "Group {group!r} has {members} active {noun}: their next commit would overwrite the new offsets.",
    "Stop them, wait until the group is empty, and try again.",
)


def group_with_members(group: str, members: int) -> list[Finding]:
    """Consumers read for the group: their next commit would overwrite the reset."""
    words = {"noun": "member" if members == 1 else "members"}
    return [GROUP_HAS_MEMBERS(words, group=group, members=members)] if members else []


GROUP_IS_NEW = warns(
    "group-is-new",
    "No group is called {group!r}: it will be created with these offsets.",
    "No action needed if that is meant; correct the name otherwise.",
)


def group_is_new(group: str, *, exists: bool) -> list[Finding]:
    """No group of that name has ever committed: a typing error makes a new one."""
    return [] if exists else [GROUP_IS_NEW(group=group)]


UNKNOWN_PARTITION = refuses(
    "unknown-partition",
    "There is no {what}",
    "Correct the name, or the broker's address.",
    way_out="Correct the name of the topic or partition, or the broker's address.",
)


def partitions_not_there(selected: Mapping[str, Sequence[int] | None], high: Offsets) -> list[Finding]:
    """A topic or partition that was selected does not exist."""
    findings = []
    for topic, partitions in selected.items():
        has = high.partitions(topic)
        missing = [] if partitions is None else [number for number in partitions if number not in has]
        if not has or missing:
            what = f"topic {topic!r} on this broker."
            if has:
                what = f"partition {missing[0]} of {topic!r}; it has {len(has)}, 0 to {has[-1]}."
            findings.append(UNKNOWN_PARTITION({"what": what}, topic=topic, missing=missing, partitions=list(has)))
    return findings


GROUP_WITHOUT_OFFSET = refuses(
    "group-without-offset",
    "Group {group!r} has no offset for {names}: there is nothing to count from.",
    "Select partitions for which it has one, or say where it begins: --to-earliest, --to-datetime, --to-offset.",
    way_out="Select partitions for which it has one, or say where it begins: --to-earliest, --to-datetime, "
    "--to-offset. A shift and --to-current count from its offsets.",
)


def group_without_offset(group: str, selected: Sequence[TopicPartition], offsets: Offsets) -> list[Finding]:
    """The group has committed nothing where it is to be shifted or kept."""
    missing = [f"{topic}[{partition}]" for topic, partition in selected if (topic, partition) not in offsets]
    return [GROUP_WITHOUT_OFFSET({"names": ", ".join(missing)}, group=group, partitions=missing)] if missing else []


OFFSET_OUTSIDE_LOG = refuses(
    "offset-outside-log",
    "Offset {offset} of {topic}[{partition}] is outside the log, which holds {low} to {high}: {how}.",
    "Choose {low} to {high}, or --to-earliest or --to-latest.",
)


def offset_outside_log(target: Offsets, low: Offsets, high: Offsets) -> list[Finding]:
    """An offset lies before the first remaining record, or after the last one."""
    findings = []
    for (topic, partition), offset in target.items():
        first, last = low.get(topic, partition) or 0, high.get(topic, partition) or 0
        if not first <= offset <= last:
            how = f"{first - offset} before it begins" if offset < first else f"{offset - last} after its end"
            where = {"topic": topic, "partition": partition, "offset": offset}
            findings.append(OFFSET_OUTSIDE_LOG({"how": how}, **where, low=first, high=last))
    return findings


GROUP_TIME_BELOW_LOW_WATERMARK = refuses(
    "group-time-below-low-watermark",
    "{topic}[{partition}] begins at offset {low}, and that record is not before {at}: retention may have removed "
    "others of that time.",
    "Choose a later time, or --to-earliest if what is left is enough.",
)


def time_before_the_log(at: datetime, first_records: Offsets, low: Offsets) -> list[Finding]:
    """The first remaining record is not before the time: records that retention removed may belong to it."""
    return time_below_low_watermark(at, first_records, low, GROUP_TIME_BELOW_LOW_WATERMARK)
