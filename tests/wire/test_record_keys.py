"""Keys that Kappa's topics have are read by a source of their columns."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kappa.errors import TopologyError
from kappa.topology import Source, Topic
from kappa.wire.decoders import key_decoder
from kappa.wire.encoding import topic_records

KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "STRING": (pa.string(), ["", "a", '"a"', "7", "é", "[1]", '{"k": 1}']),
    "BIGINT": (pa.int64(), [0, -7, 2**63 - 1]),
    "INT": (pa.int32(), [-(2**31)]),
    "DOUBLE": (pa.float64(), [0.1, -0.0, 1e300, math.inf, -math.inf, math.nan]),
    "FLOAT": (pa.float32(), [0.5, -0.0, math.inf, -math.inf, math.nan]),
    "DECIMAL(12,2)": (pa.decimal128(12, 2), [Decimal("-0.05"), Decimal("1234567890.10")]),
    "BOOLEAN": (pa.bool_(), [True, False]),
    "BINARY": (pa.binary(), [b"", b"\1\2", b"\xff\0\xfe", b'"AQI="', b"{}"]),
    "DATE": (pa.date32(), [date(2026, 3, 1), date(1, 1, 1)]),
    "TIMESTAMP": (pa.timestamp("us", "UTC"), [datetime(2026, 3, 1, 12, 0, 0, 123_000, tzinfo=UTC)]),
}


def read_keys(source: Source, kinds: dict[str, pa.DataType], keys: list[bytes | None]) -> tuple[list[Any], list[Any]]:
    """The rows of keys, and why they are dead letters."""
    decode = key_decoder(source, pa.struct(list(kinds.items())), {})
    assert decode is not None
    rows, reasons = decode(pa.array(keys, pa.binary()))
    return rows.to_pylist(), reasons.to_pylist()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_composite", [False, True])
def test_a_key_that_a_topic_sends_is_read(kind: str, is_composite: bool) -> None:
    own, values = KINDS[kind]
    names = ["k", "n"] if is_composite else ["k"]
    table = pa.table({"k": pa.array(values, own), "n": pa.array(range(len(values)), pa.int64())})
    sent = topic_records(Topic(name="out", of="state", key=names), ["k", "n"], table)
    source = Source(
        topic="out",
        schema="n BIGINT",
        key_schema=f"k {kind}, n BIGINT" if is_composite else f"k {kind}",
        key_format="json" if is_composite else "text",
        tombstones=True,
    )
    kinds = {"k": own, "n": pa.int64()} if is_composite else {"k": own}
    rows, reasons = read_keys(source, kinds, [record.key for record in sent])

    assert reasons == [None] * len(values)
    assert repr(rows) == repr(table.select(names).to_pylist()), "as text, which tells -0.0 from 0.0, and NaN is NaN"


def test_the_row_of_a_key_does_not_depend_on_the_keys_beside_it() -> None:
    source = Source(topic="in", schema="n INT", key_schema="id STRING, b INT", key_format="json")
    kinds = {"id": pa.string(), "b": pa.int32()}
    keys = [b'["a",1]', None, b'{"id":"b"}', b"[1]", b"\xff", b"[null,2]", b'{"b":"x"}', b" [ ] "]
    alone = [read_keys(source, kinds, [key]) for key in keys]

    rows, reasons = read_keys(source, kinds, keys)
    assert rows == [row for (row,), _ in alone]
    assert reasons == [reason for _, (reason,) in alone]
    assert [row for row, reason in zip(rows, reasons, strict=True) if row and reason is None] == [
        {"id": "a", "b": 1},
        {"id": "b", "b": None},
        {"id": None, "b": 2},
    ]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("STRING", "BINARY")])
def test_a_long_text_key_is_a_dead_letter_at_once(kind: str) -> None:
    source = Source(topic="in", schema="n INT", key_schema=f"k {kind}")
    parts = [b"0", b"1", b"-", b" ", b"0.", b"1e", b'"']
    keys: list[bytes | None] = [part * (900_000 // len(part)) + b"x" for part in parts]
    assert all(read_keys(source, {"k": KINDS[kind][0]}, keys)[1]), "hours, if each digit were looked at again and again"


@pytest.mark.parametrize("kind", ["STRUCT<a: INT>", "ARRAY<INT>"])
def test_a_text_key_of_a_nested_column_is_refused(kind: str) -> None:
    with pytest.raises(TopologyError, match="has one column of a plain type"):
        Source(topic="in", schema="n INT", key_schema=f"k {kind}")
