"""The changelog topics of an epoch: their records, written and read here and nowhere else, and how many there are.

A record's key is the table's key as JSON, its value the row as JSON, null for a delete. Field by field:
docs/formats.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kappa.kafka.encoding import as_bytes, json_values
from kappa.kafka.json_columns import json_objects
from kappa.kafka.producer import Record
from kappa.names import EpochPaths
from kappa.replay import stored

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Message

    from kappa.kafka.broker import Broker
    from kappa.topology import Table

#: Header with the slice that changed the key, so that a fold knows which records its marker vouches for.
SEQ = "seq"
#: Header with the record's format. Records of format 1 have none: it would cost ten bytes a record to say nothing.
FORMAT_HEADER = "format"
#: What this code writes, and the newest that it reads.
FORMAT = 1


def changelog_records(name: str, table: Table, rows: pa.Table, seq: int) -> Iterator[Record]:
    """Records of a table's changelog: key columns as JSON, the row as JSON, null for a delete.

    Args:
        name: the changelog topic.
        rows: its rows, with ``_deleted`` where some are deleted.
        seq: the slice that changed them.
    """
    columns = [column.name for column in table.columns]
    headers = _headers(seq)
    keys = (key for texts in json_objects(rows, list(table.key)) for key in as_bytes(texts))
    for key, value in zip(keys, json_values(rows, columns), strict=True):
        yield Record(topic=name, key=key, value=value, headers=headers)


def tombstones(name: str, keys: Iterable[bytes], seq: int) -> list[Record]:
    """Records that delete keys of a changelog, in the name of a slice; sorted by key."""
    return [Record(topic=name, key=key, value=None, headers=_headers(seq)) for key in sorted(keys)]


def seq_of(message: Message) -> int:
    """The slice of a record; -1 where it names none.

    Raises:
        NewerFormatError: newer code wrote it in a format that this code does not read.
    """
    headers: Mapping[str, Any] = dict(message.headers() or ())
    check_format(_number(headers.get(FORMAT_HEADER)), str(message.topic()))
    found = _number(headers.get(SEQ))
    return -1 if found is None else found


def header(name: str) -> str:
    """A header's number, or null, as a Spark expression over column ``headers`` of Spark's Kafka source."""
    return f"CAST(CAST(try_element_at(filter(headers, h -> h.key = '{name}'), 1).value AS STRING) AS BIGINT)"


def check_format(newest: int | None, topic: str) -> None:
    """Refuse records of a format that this code does not read.

    Args:
        newest: the largest number in a header of them; None where none has one.
        topic: the changelog.

    Raises:
        NewerFormatError: they are of a newer one.
    """
    stored.check_format(newest, FORMAT, what="changelog record", where=f"topic {topic}")


def changelogs_of(broker: Broker, paths: EpochPaths, tables: Iterable[str]) -> list[str]:
    """Those changelogs of an epoch's tables that are there."""
    present = set(broker.topics(f"{paths.name}."))
    return sorted({paths.changelog(name) for name in tables} & present)


def folded_offsets(broker: Broker, topics: Iterable[str]) -> int:
    """How many offsets a fold of these changelogs reads over."""
    names = list(topics)
    low, end = broker.low_watermarks(names), broker.stable_offsets(names)
    return sum(last - (low.get(*at) or 0) for at, last in end.items())


def _headers(seq: int) -> list[tuple[str, bytes]]:
    number = [] if FORMAT == 1 else [(FORMAT_HEADER, str(FORMAT).encode())]
    return [(SEQ, str(seq).encode()), *number]


def _number(value: Any) -> int | None:
    return None if value is None else int(value)
