"""The lake that owns an epoch's names on the broker.

Two lakes on one broker may plan the same number at the same moment. The first claim in the epoch's markers topic
decides: Kafka orders the records of a partition, so that every reader sees the same first one. No claim is ever
replaced.
"""

from __future__ import annotations

import json
import re
import socket
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from kappa.errors import RefusedError
from kappa.faults import crash_point
from kappa.kafka import markers
from kappa.kafka.broker import Broker
from kappa.kafka.producer import append
from kappa.names import EpochPaths, topology_prefix
from kappa.replay import stored
from kappa.slices.topics.changelog import create_markers
from kappa.wire.encoding import Record, to_json

#: Keys of claims begin so. Each has a key of its own: of records with one key, compaction would keep the last.
_KEY = b"lake:"
#: What this code writes, and the newest that it reads.
FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The lake that an epoch's names on the broker belong to.

    Attributes:
        lake: its id.
        path: where it was when it took them; empty where only a marker tells.
        host: the host of the driver that took them.
    """

    lake: str
    path: str = ""
    host: str = ""

    def __str__(self) -> str:
        place = f" ({self.path} on {self.host})" if self.path else ""
        return f"lake {self.lake[:8]}{place}"


def owner(broker: Broker, paths: EpochPaths) -> Owner | None:
    """The lake that took an epoch's names; None when none did, or before lakes had ids.

    Raises:
        ConfigError: this user may not see the topic of its claims.
    """
    if not broker.has_topic(paths.markers):
        return None
    ends = broker.stable_offsets([paths.markers])
    for batch in broker.read(broker.low_watermarks([paths.markers]), ends):
        for message in batch:
            if (message.key() or b"").startswith(_KEY):
                value = json.loads(message.value() or b"{}")
                stored.check_format(value.get("format"), FORMAT, what="claim of names", where=f"topic {paths.markers}")
                return Owner(lake=value["lake"], path=value.get("path", ""), host=value.get("host", ""))
    marker = markers.read(broker, paths)
    return Owner(lake=marker.lake) if marker is not None and marker.lake else None


def claim(broker: Broker, paths: EpochPaths, lake: str) -> None:
    """Take an epoch's names on the broker for a lake, before anything is made under them.

    Idempotent. A crash leaves a markers topic, with or without a claim of this lake; the next call goes on from there.

    Raises:
        RefusedError: they belong to another lake; nothing under them was touched.
    """
    create_markers(broker, paths)
    if owner(broker, paths) is None:
        value = to_json({"format": FORMAT, "lake": lake, "path": paths.lake, "host": socket.gethostname()})
        key = _KEY + uuid.uuid4().hex.encode()
        append(broker.bootstrap_servers, Record(paths.markers, key, value, partition=markers.PARTITION))
    check(broker, paths, lake)
    crash_point("rewind.claim")


def check(broker: Broker, paths: EpochPaths, lake: str) -> None:
    """Refuse to touch what belongs to another lake.

    Raises:
        RefusedError: the epoch's names on the broker belong to another lake.
    """
    holder = owner(broker, paths)
    if holder is not None and holder.lake != lake:
        raise RefusedError(
            f"{paths.name} on {broker.bootstrap_servers} belongs to {holder}, this is lake {lake[:8]} ({paths.lake}): "
            f"both planned epoch {paths.epoch} of {paths.topology!r}, and the other took its topics, group and "
            "transactional id first. Nothing of it was touched. If KAPPA_LAKE should name that lake, set it. To give "
            f"the epoch up here: kappa abort {paths.topology} {paths.epoch} --execute",
            findings=(),
            owner=holder.lake,
            path=holder.path,
        )


def is_ours(broker: Broker, paths: EpochPaths, lake: str) -> bool:
    """Whether an epoch's names on the broker may be removed by this lake: no other one took them."""
    holder = owner(broker, paths)
    return holder is None or holder.lake == lake


def owners(broker: Broker, lake: str, topology: str) -> dict[int, Owner]:
    """Epoch -> the lake that took its names, for all epochs of a topology where that is known."""
    pairs = ((epoch, owner(broker, paths)) for epoch, paths in marked(broker, lake, topology))
    return {epoch: one for epoch, one in pairs if one is not None}


def marked(broker: Broker, lake: str, topology: str) -> Iterator[tuple[int, EpochPaths]]:
    """The epochs of a topology that have a markers topic, oldest first."""
    prefix = topology_prefix(topology)
    for epoch in sorted(set(numbers(prefix, broker.topics(prefix)))):
        paths = EpochPaths(lake=lake, topology=topology, epoch=epoch)
        yield epoch, paths


def numbers(prefix: str, names: list[str] | tuple[str, ...]) -> list[int]:
    """The epochs to which names on the broker belong."""
    matches = [re.match(r"e(\d{4,})(\.|$)", name.removeprefix(prefix)) for name in names]
    return [int(match[1]) for match in matches if match]
