"""The settings of topics that Kappa creates: all those whose defaults on a broker could drop or rewrite records.

Retention uses a record's timestamp. A record with a time of its own is already as old as its event when it arrives: a
topic of such records keeps them for ever, accepts any time, and does not change it.
"""

from __future__ import annotations

from kappa.topology import Topic

#: The greatest number of milliseconds that Kafka accepts.
_ANY = str(2**63 - 1)
#: A record keeps the time with which it is sent.
OWN_TIME = {"message.timestamp.type": "CreateTime"}
_ANY_TIME = {"message.timestamp.before.max.ms": _ANY, "message.timestamp.after.max.ms": _ANY}
_FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1"}

#: Settings of changelogs and markers.
CHANGELOG = {
    **OWN_TIME,
    "cleanup.policy": "compact",
    "retention.ms": "-1",
    # A fold that takes a day must still see every tombstone.
    "delete.retention.ms": str(7 * 24 * 3600 * 1000),
    "segment.ms": str(3600 * 1000),
    "max.message.bytes": str(8 << 20),
}


def of_versioned(topic: Topic) -> dict[str, str]:
    """The settings of an epoch's own topic: it holds history and is removed with its epoch, whatever the broker's
    defaults.
    """
    return {**OWN_TIME, **_FOR_EVER, "cleanup.policy": "delete", **(_ANY_TIME if topic.time else {})}


def of_output(topic: Topic) -> dict[str, str]:
    """The settings of a topic output that all epochs share, if it does not exist yet.

    For records with the time of sending, retention is the broker's default.
    """
    policy = "compact" if topic.on_replay == "reconcile" else "delete"
    retention = _FOR_EVER if topic.time and policy == "delete" else {}
    return {**OWN_TIME, "cleanup.policy": policy, **retention, **(_ANY_TIME if topic.time else {})}
