"""The changelog topics of an epoch: their records, which only this module writes and reads, and their number.

A record's key is the table's key as JSON, and its value is the row as JSON, or null for a deletion. Field by field:
docs/formats.md.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

from kappa.errors import DataLossError
from kappa.names import EpochPaths
from kappa.offsets.vector import Offsets
from kappa.replay import stored
from kappa.wire.encoding import Record, as_bytes, json_values
from kappa.wire.json.json_columns import json_objects

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Message

    from kappa.kafka.broker import Broker
    from kappa.topology import Table

#: Header with the slice that changed the key, so that a fold knows which records its marker covers.
SEQ = "seq"
#: Header with the record's format. Records of format 1 have none: it would cost ten bytes per record without any use.
FORMAT_HEADER = "format"
#: The format that this code writes, and the newest one that it reads.
FORMAT = 1


def changelog_records(name: str, table: Table, rows: pa.Table, seq: int) -> Iterator[Record]:
    """Records of a table's changelog: key columns as JSON, the row as JSON, null for a deletion.

    Args:
        name: the changelog topic.
        rows: its rows, with ``_deleted`` for deleted ones.
        seq: the slice that changed them.
    """
    columns = [column.name for column in table.columns]
    headers = _headers(seq)
    keys = chain.from_iterable(map(as_bytes, json_objects(rows, list(table.key))))
    for key, value in zip(keys, json_values(rows, columns), strict=True):
        yield Record(name, key, value, headers)


def tombstones(name: str, keys: Iterable[bytes], seq: int) -> list[Record]:
    """Records that delete keys of a changelog, as part of a slice; sorted by key."""
    return [Record(topic=name, key=key, value=None, headers=_headers(seq)) for key in sorted(keys)]


def seq_of(message: Message) -> int:
    """The slice of a record; -1 if it names none.

    Raises:
        NewerFormatError: newer code wrote it in a format that this code does not read.
    """
    headers: Mapping[str, Any] = dict(message.headers() or ())
    check_format(_number(headers.get(FORMAT_HEADER)), str(message.topic()))
    seq = _number(headers.get(SEQ))
    return -1 if seq is None else seq


def header(name: str) -> str:
    """A header's number, or null, as a Spark expression over column ``headers`` of Spark's Kafka source."""
    return f"CAST(CAST(try_element_at(filter(headers, h -> h.key = '{name}'), 1).value AS STRING) AS BIGINT)"


def check_format(newest: int | None, topic: str) -> None:
    """Refuse records of a format that this code does not read.

    Args:
        newest: the largest number in their headers; None if none has one.
        topic: the changelog.

    Raises:
        NewerFormatError: the format is newer.
    """
    stored.check_format(newest, FORMAT, what="changelog record", where=f"topic {topic}")


def check_late(late: int, topic: str, upto_seq: int) -> None:
    """Refuse a changelog with records that its last marker does not cover.

    Args:
        late: records of later slices than the marker's.
        topic: the changelog.
        upto_seq: slice of the marker.

    Raises:
        DataLossError: there are such records.
    """
    if late:
        raise DataLossError(
            f"Changelog {topic!r} has {late} records after slice {upto_seq} of the last marker: its driver is still "
            "writing. Try again.",
            topic=topic,
        )


def newest_values(
    broker: Broker, topic: str, end: Offsets, *, upto_seq: int, most_keys: int, most_bytes: int
) -> list[bytes] | None:
    """The newest value of each key of a changelog, without deleted keys, in no particular order.

    Memory grows with the keys, not with the records. A key is in one partition, unless partitions were added, and one
    partition is in memory at a time.

    Args:
        broker: Kafka.
        topic: the changelog.
        end: its ends.
        upto_seq: slice of the marker that covers the records.
        most_keys: largest number of keys in a partition.
        most_bytes: most bytes of the values.

    Returns:
        None where there is more, or a key is in several partitions.

    Raises:
        DataLossError: the changelog has records after the marker, or lost some while it was read.
        NewerFormatError: newer code wrote records in a format that this code does not read.
    """
    import numpy as np

    values: list[bytes] = []
    hashes: list[Any] = []  # of the keys, with those that are deleted
    headers: Counter[Any] = Counter()
    low = broker.low_watermarks([topic])
    with _no_collection():
        for partition in end.partitions(topic):
            newest: dict[bytes | None, bytes | None] = {}
            size, room = 0, most_bytes - sum(map(len, values))
            for batch in broker.read(low, Offsets({topic: {partition: end[topic, partition]}})):
                pairs = [(message.key(), message.value()) for message in batch]
                newest.update(pairs)
                headers.update([header for message in batch for header in message.headers() or ()])
                size += sum(len(value or b"") for _, value in pairs)
                if size > room:  # some of them have been replaced since
                    size = sum(len(value or b"") for value in newest.values())
                if size > room or len(newest) > most_keys:
                    return None
            values += [value for value in newest.values() if value is not None]
            hashes.append(np.fromiter(map(hash, newest), np.int64, len(newest)))
    check_format(max((number for number, _ in _numbers(headers, FORMAT_HEADER)), default=None), topic)
    check_late(sum(count for number, count in _numbers(headers, SEQ) if number > upto_seq), topic, upto_seq)
    keys = np.concatenate(hashes) if hashes else np.empty(0)
    return values if len(np.unique(keys)) == len(keys) else None


@contextmanager
def _no_collection() -> Iterator[None]:
    """Turn off the search for reference cycles, which would take a fifth of the time among millions of pairs without
    any.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def changelogs_of(broker: Broker, paths: EpochPaths, tables: Iterable[str]) -> list[str]:
    """The changelogs of an epoch's tables that exist."""
    present = set(broker.topics(f"{paths.name}."))
    return sorted({paths.changelog(name) for name in tables} & present)


def folded_offsets(broker: Broker, topics: Iterable[str]) -> int:
    """Number of offsets that a fold of these changelogs spans."""
    names = list(topics)
    low, end = broker.low_watermarks(names), broker.stable_offsets(names)
    return sum(last - (low.get(*at) or 0) for at, last in end.items())


def _headers(seq: int) -> list[tuple[str, bytes]]:
    number = [] if FORMAT == 1 else [(FORMAT_HEADER, str(FORMAT).encode())]
    return [(SEQ, str(seq).encode()), *number]


def _numbers(headers: Mapping[tuple[str, Any], int], name: str) -> list[tuple[int, int]]:
    """The numbers in a header, each with its count of records."""
    return [(int(number), count) for (key, number), count in headers.items() if key == name]


def _number(value: Any) -> int | None:
    return None if value is None else int(value)
