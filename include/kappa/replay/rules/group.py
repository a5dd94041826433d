"""Rules about a consumer group that shall be set; one function each, as in log_rules.

Where Kafka's own tool clamps, takes the end instead, or fails with exit code 0, these refuse.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from kappa.offsets.vector import Offsets, TopicPartition
from kappa.replay.findings import Finding, refuse, warn


def group_of_epoch(group: str) -> list[Finding]:
    """The group belongs to an epoch, whose ledger says where it is."""
    found = re.fullmatch(r"kappa\.(?P<topology>.+)\.e\d{4,}", group)
    if found is None:
        return []
    return [
        refuse(
            "group-of-epoch",
            f"Group {group!r} belongs to an epoch of {found['topology']!r}: its ledger says where it is, and a group "
            "that was moved from outside only contradicts it.",
            f"`kappa replay {found['topology']}` recomputes from any of these starts, beside the live epoch.",
            group=group,
            topology=found["topology"],
        )
    ]


def group_with_members(group: str, members: int) -> list[Finding]:
    """Somebody reads for the group: what is set would be overwritten by the next commit."""
    if not members:
        return []
    return [
        refuse(
            "group-has-members",
            f"Group {group!r} has {members} active {'member' if members == 1 else 'members'}: the next commit of one would overwrite what is set.",
            "Stop them, wait until the group is empty, and try again.",
            group=group,
            members=members,
        )
    ]


def group_is_new(group: str, *, exists: bool) -> list[Finding]:
    """No group of that name has ever committed: a typing error makes a new one."""
    if exists:
        return []
    return [
        warn(
            "group-is-new",
            f"No group is called {group!r}: it comes into being with these offsets.",
            "Nothing, if that is meant; correct the name otherwise.",
            group=group,
        )
    ]


def partitions_not_there(selected: Mapping[str, Sequence[int] | None], high: Offsets) -> list[Finding]:
    """A topic or partition that was selected does not exist."""
    found = []
    for topic, partitions in selected.items():
        has = high.partitions(topic)
        missing = [] if partitions is None else [number for number in partitions if number not in has]
        if not has or missing:
            what = f"partition {missing[0]} of {topic!r}" if has else f"topic {topic!r}"
            found.append(
                refuse(
                    "unknown-partition",
                    f"There is no {what}" + (f"; it has {len(has)}, 0 to {has[-1]}." if has else " on this broker."),
                    "Correct the name, or the broker's address.",
                    topic=topic,
                    missing=missing,
                    partitions=list(has),
                )
            )
    return found


def group_without_offset(group: str, selected: Sequence[TopicPartition], offsets: Offsets) -> list[Finding]:
    """The group has committed nothing where it shall be shifted or kept."""
    missing = [at for at in selected if at not in offsets]
    if not missing:
        return []
    names = ", ".join(f"{topic}[{partition}]" for topic, partition in missing)
    return [
        refuse(
            "group-without-offset",
            f"Group {group!r} has no offset of {names}: there is nothing to count from.",
            "Select the partitions that it has, or say where it shall begin: --to-earliest, --to-datetime, --to-offset.",
            group=group,
            partitions=[f"{topic}[{partition}]" for topic, partition in missing],
        )
    ]


def offset_outside_log(target: Offsets, low: Offsets, high: Offsets) -> list[Finding]:
    """An offset lies before the first record that is left, or behind the last one."""
    found = []
    for (topic, partition), offset in target.items():
        first, last = low.get(topic, partition) or 0, high.get(topic, partition) or 0
        if not first <= offset <= last:
            how = f"{first - offset} before it begins" if offset < first else f"{offset - last} behind its end"
            found.append(
                refuse(
                    "offset-outside-log",
                    f"Offset {offset} of {topic}[{partition}] is outside the log, which holds {first} to {last}: {how}.",
                    f"Choose {first} to {last}, or --to-earliest or --to-latest.",
                    topic=topic,
                    partition=partition,
                    offset=offset,
                    low=first,
                    high=last,
                )
            )
    return found


def time_before_the_log(at: datetime, first_records: Offsets, low: Offsets) -> list[Finding]:
    """The first record that is left is not before the time: what retention removed may belong to it."""
    return [
        refuse(
            "group-time-below-low-watermark",
            f"{topic}[{partition}] begins at offset {low.get(topic, partition)}, and that record is not before "
            f"{at.isoformat()}: retention may have removed others of that time.",
            "Choose a later time, or --to-earliest if what is left is enough.",
            topic=topic,
            partition=partition,
            low=offset,
            at=at.isoformat(),
        )
        for (topic, partition), offset in first_records.items()
        if offset > 0 and low.get(topic, partition) == offset
    ]
