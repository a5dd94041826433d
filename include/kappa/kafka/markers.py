"""Markers: a slice's own record on the broker, in the transaction of its output. Only this module writes and reads
them.

The changelog and a marker are enough to continue after the loss of the lake. Field by field: docs/formats.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

from kappa.names import EpochPaths
from kappa.offsets import set_asides
from kappa.offsets.set_asides import SetAsides
from kappa.offsets.vector import Offsets
from kappa.replay import stored
from kappa.replay.proof.certificate import Sends
from kappa.wire.encoding import Record, to_json

if TYPE_CHECKING:
    from kappa.kafka.broker import Broker

#: Key of every marker: compaction keeps the newest.
KEY = b"marker"
#: Where markers are, and claims of names, also where somebody gave their topic more partitions.
PARTITION = 0
#: The format that this code writes, and the newest one that it reads.
FORMAT = 1
#: A marker is sent with each slice: with more records set aside than this, it has only their number.
MOST_SET_ASIDE = 100


@dataclass(frozen=True, kw_only=True)
class Marker:
    """The last marker of an epoch.

    Attributes:
        seq: the slice up to which the changelog is complete.
        end: offsets from which the next slice is read.
        max_timestamps: topic -> partition -> running maximum of timestamps, epoch milliseconds.
        topic_ids: ids of the source topics.
        shapes: keys and columns of the tables, including those hidden from readers, by place, as JSON values.
        code: content hash of the code that ran the slice.
        topology_version: its author's name for that code.
        sends: which topic outputs the slice sent.
        reconciled: the handover whose differences were sent with it; None for the marker of a slice.
        roots: the end in offsets of root topics, of an epoch that reads versioned topics of others.
        lake: id of the lake whose driver sent it; empty if that is not known.
        plan: hash of the plan of the slice that it closes; None if it closes none.
        kind: ``slice`` (a baseline's too), ``live`` (the epoch began to send) or ``superseded`` (it was rebuilt in
            another lake).
        turn: number of the turn in which the epoch sends or sent last; 0 when it never did.
        superseded_by: the epoch that was built from it in another lake.
        superseded_lake: id of that lake.
        stream_times: topic -> partition -> stream time, epoch milliseconds; for sources with event time.
        set_aside_count: how many records were set aside so far.
        set_aside: those records; empty if they are more than :data:`MOST_SET_ASIDE`.
        floors: topic -> partition -> least frontier, epoch milliseconds; for sources whose grace became longer.
    """

    seq: int
    end: Offsets
    max_timestamps: Mapping[str, Mapping[int, int]]
    topic_ids: Mapping[str, str]
    shapes: Mapping[str, Any]
    code: str
    topology_version: str
    sends: Sends
    reconciled: int | None = None
    roots: Mapping[str, Mapping[str, int]] | None = None
    lake: str = ""
    plan: str | None = None
    kind: Literal["slice", "live", "superseded"] = "slice"
    turn: int = 0
    superseded_by: int | None = None
    superseded_lake: str = ""
    stream_times: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    set_aside_count: int = 0
    set_aside: SetAsides = ()
    floors: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    @property
    def standing(self) -> Offsets:
        """The end in offsets of root topics, in which markers of different epochs can be compared."""
        return self.end if self.roots is None else Offsets.from_json(self.roots)


def record(paths: EpochPaths, marker: Marker) -> Record:
    """A marker as a record for the markers topic of its epoch, without fields that are None and without empty times and
    records set aside.
    """
    values = {item.name: getattr(marker, item.name) for item in fields(marker)}
    values |= {"stream_times": marker.stream_times or None, "floors": marker.floors or None}
    values["set_aside_count"] = marker.set_aside_count or None
    values["set_aside"] = set_asides.as_list(marker.set_aside) or None
    content = {name: value for name, value in {**values, "end": marker.end.as_dict()}.items() if value is not None}
    return _record(paths, {"format": FORMAT, **content})


def read(broker: Broker, paths: EpochPaths) -> Marker | None:
    """The last marker of an epoch; None if it has none. Fence its writer first, otherwise another may follow.

    Raises:
        ConfigError: this user may not see their topic.
        NewerFormatError: newer code wrote it in a format that this code does not read.
    """
    if not broker.has_topic(paths.markers):
        return None
    content = _last(broker, paths)
    return None if content is None else _marker(content)


def superseded(broker: Broker, paths: EpochPaths, *, by: int, lake: str) -> Record | None:
    """The last marker of an epoch, closed by one that names its successor; None if it has none.

    Fields that this code does not know stay as they are.

    Args:
        broker: Kafka; the epoch's writer is fenced.
        by: the epoch that is built from it.
        lake: id of the successor's lake.

    Raises:
        NewerFormatError: newer code wrote it in a format that this code does not read.
    """
    content = _last(broker, paths)
    if content is None:
        return None
    closed = {**content, "kind": "superseded", "superseded_by": by, "superseded_lake": lake}
    return _record(paths, closed)


def _record(paths: EpochPaths, content: Mapping[str, Any]) -> Record:
    return Record(topic=paths.markers, key=KEY, value=to_json(content), partition=PARTITION)


def _last(broker: Broker, paths: EpochPaths) -> dict[str, Any] | None:
    last = broker.last_record(paths.markers, PARTITION, key=KEY)
    if last is None or last[1] is None:
        return None
    content: dict[str, Any] = json.loads(last[1])
    stored.check_format(content.get("format"), FORMAT, what="marker", where=f"topic {paths.markers}")
    return content


def _marker(content: Mapping[str, Any]) -> Marker:
    times = {name: _times(content[name]) for name in ("max_timestamps", "stream_times", "floors") if content.get(name)}
    aside = set_asides.from_list(content.get("set_aside") or ())
    return stored.read(Marker, {**content, "end": Offsets.from_json(content["end"]), **times, "set_aside": aside})


def carried(several: SetAsides) -> SetAsides:
    """The records set aside that a marker names: all if they are few, none if they are many."""
    return several if set_asides.count(several) <= MOST_SET_ASIDE else ()


def _times(values: Mapping[str, Mapping[str, int]]) -> dict[str, dict[int, int]]:
    return {topic: {int(p): ms for p, ms in parts.items()} for topic, parts in values.items()}
