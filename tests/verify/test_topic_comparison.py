"""A topic compared with the records of rows, key by key and as a multiset: records in memory, no broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pytest

from kappa.kafka.broker import Broker
from kappa.offsets.vector import Offsets
from kappa.topology.ddl import columns_of
from kappa.topology.schemas.value_schemas import value_schema
from kappa.verify import topic_comparison
from kappa.verify.topic_comparison import (
    KeyDifferences,
    RecordDifferences,
    key_differences,
    record_differences,
    span_of,
)
from kappa.wire.encoding import Record
from kappa.wire.wire_values import decoder, encoder


@dataclass(frozen=True)
class Sent:
    """A record of the topic, as the client of Kafka gives it."""

    the_key: bytes | None
    the_value: bytes | None
    seq: int | None = None

    def key(self) -> bytes | None:
        return self.the_key

    def value(self) -> bytes | None:
        return self.the_value

    def topic(self) -> str:
        return "t"

    def headers(self) -> list[tuple[str, bytes]] | None:
        return None if self.seq is None else [("seq", str(self.seq).encode())]


class OneTopic:
    """A broker with one topic of one partition."""

    def __init__(self, *records: Sent, low: int = 0) -> None:
        self.records, self.low = records, low

    def low_watermarks(self, topics: list[str]) -> Offsets:
        return Offsets({topic: {0: self.low} for topic in topics})

    def decided_ends(self, topics: list[str]) -> Offsets:
        return Offsets({topic: {0: self.low + len(self.records)} for topic in topics})

    def read(self, start: Offsets, end: Offsets) -> Iterator[list[Any]]:
        yield list(self.records[:2])
        yield list(self.records[2:])


#: As a Delta schema has it.
STRUCT = {"type": "struct", "fields": [{"name": "x", "type": "integer"}, {"name": "y", "type": "integer"}]}


def rows(*pairs: tuple[bytes | None, bytes]) -> topic_comparison.RowRecords:
    return lambda: (Record("t", key, value) for key, value in pairs)


def span(
    *records: Sent, low: int = 0, upto_seq: int | None = None, columns: dict[str, Any] | None = None
) -> topic_comparison.TopicSpan:
    return span_of(cast(Broker, OneTopic(*records, low=low)), "t", upto_seq=upto_seq, columns=columns)


@pytest.fixture(params=[topic_comparison.RECORDS, 1], ids=["one share", "several"], autouse=True)
def shares(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_comparison, "RECORDS", request.param)


def test_the_newest_record_per_key_counts_and_a_null_value_is_missing() -> None:
    topic = span(Sent(b"a", b'{"n":1}'), Sent(b"a", b'{"n":2}'), Sent(b"b", b'{"n":1}'), Sent(b"b", None))
    assert key_differences(topic, rows((b"a", b'{"n":2}'))) == KeyDifferences(
        keys=1, missing=0, different=0, extra=0, example=b""
    )
    assert key_differences(topic, rows((b"a", b'{"n":2}'), (b"b", b'{"n":1}'))) == KeyDifferences(
        keys=2, missing=1, different=0, extra=0, example=b"b"
    )


def test_changed_and_extra_keys_are_counted_with_an_example() -> None:
    differences = key_differences(span(Sent(b"a", b'{"n":1}'), Sent(b"x", b'{"n":9}')), rows((b"a", b'{"n":2}')))
    assert (differences.keys, differences.missing, differences.different, differences.extra) == (1, 0, 1, 1)
    assert differences.example in (b"a", b"x")


def test_keys_that_changed_after_the_rows_are_not_compared() -> None:
    topic = span(Sent(b"a", b'{"n":1}', 3), Sent(b"b", b'{"n":1}', 4), Sent(b"c", b'{"n":1}', 4), upto_seq=3)
    compared = key_differences(topic, rows((b"a", b'{"n":1}'), (b"b", b'{"n":0}'), (b"d", b'{"n":0}')), lambda: {b"d"})
    assert compared == KeyDifferences(keys=3, missing=0, different=0, extra=0, example=b"")


def test_a_key_that_changes_while_the_topic_is_read_is_not_compared() -> None:
    changed: set[bytes] = set()

    class Compacting(OneTopic):
        """Key ``a`` changes meanwhile, and its record of the span is compacted away."""

        def read(self, start: Offsets, end: Offsets) -> Iterator[list[Any]]:
            changed.add(b"a")
            yield list(self.records[1:])

    topic = span_of(cast(Broker, Compacting(Sent(b"a", b'{"n":1}'), Sent(b"b", b'{"n":1}'))), "t", upto_seq=None)
    compared = key_differences(topic, rows((b"a", b'{"n":1}'), (b"b", b'{"n":1}')), lambda: changed)
    assert compared == KeyDifferences(keys=2, missing=0, different=0, extra=0, example=b"")


def test_added_columns_and_the_order_of_columns_make_no_difference() -> None:
    differences = key_differences(span(Sent(b"a", b'{"n":1,"m":2}')), rows((b"a", b'{"m":2,"n":1,"new":null}')))
    assert differences.different == 0


@pytest.mark.parametrize(
    ("earlier", "now", "kind"),
    [
        (b'{"n":1,"gone":2}', b'{"n":1}', "integer"),
        (b'{"n":1}', b'{"n":1.0}', "double"),
        (b'{"n":1.50}', b'{"n":1.5000}', "decimal(12,4)"),
        (b'{"n":-0.0}', b'{"n":0}', "integer"),
        (b'{"n":{"x":1}}', b'{"n":{"x":1,"y":null}}', STRUCT),
        (b'{"n":[{"x":1}]}', b'{"n":[{"x":1,"y":null}]}', {"type": "array", "elementType": STRUCT}),
    ],
)
def test_an_earlier_record_of_an_equal_row_stays_in_a_topic_that_reconciles(
    earlier: bytes, now: bytes, kind: Any
) -> None:
    assert key_differences(span(Sent(b"a", earlier), columns={"n": kind}), rows((b"a", now))).different == 0


@pytest.mark.parametrize(
    ("earlier", "now", "kind"),
    [
        (b'{"n":1}', b'{"n":1.5}', "double"),
        (b"{}", b'{"n":0}', "integer"),
        (b'{"n":true}', b'{"n":1}', "integer"),
        (b'{"n":7}', b'{"n":"7"}', "string"),
        (b'{"n":{"x":1,"y":2}}', b'{"n":{"x":1}}', STRUCT),
        (b'{"n":{"x":1}}', b'{"n":{"x":1,"y":null}}', {"type": "map", "valueType": "integer"}),
        (b'{"n":[1]}', b'{"n":[1,null]}', {"type": "array", "elementType": "integer"}),
    ],
)
def test_another_value_differs_in_a_topic_that_reconciles(earlier: bytes, now: bytes, kind: Any) -> None:
    assert key_differences(span(Sent(b"a", earlier), columns={"n": kind}), rows((b"a", now))).different == 1


def test_each_row_has_a_record_of_its_own() -> None:
    topic = span(Sent(b"a", b"1"), Sent(b"a", b"1"), Sent(b"a", b"1"), Sent(None, b"7"), Sent(b"a", None))
    expected = rows((b"a", b"1"), (b"a", b"1"), (b"b", b"1"), (None, b"7"))
    assert record_differences(topic, expected) == RecordDifferences(rows=4, missing=1, repeated=1, foreign=1)


@pytest.mark.parametrize(
    "value",
    [b"", b"text", b"\0\0\0\0\1\2", b"\xff", b"[" * 100_000, b'{"v":' * 300 + b"1" + b"}" * 300, b'{"v":1e9999999}'],
    ids=["empty", "text", "Avro", "no text", "deep list", "deep object", "exponent"],
)
def test_whatever_another_program_sends_is_a_record_of_no_row(value: bytes) -> None:
    topic = span(Sent(b"a", b'{"v":1}'), Sent(b"b", value), columns={"v": "long"})
    expected = rows((b"a", b'{"v":1}'))
    assert record_differences(topic, expected) == RecordDifferences(rows=1, missing=0, repeated=0, foreign=1)
    assert key_differences(topic, expected) == KeyDifferences(keys=1, missing=0, different=0, extra=1, example=b"b")


def test_a_span_counts_offsets_and_knows_whether_its_beginning_may_be_gone() -> None:
    assert (span(Sent(b"a", b"1")).offsets, span(Sent(b"a", b"1")).is_cut) == (1, False)
    assert (span(Sent(b"a", b"1"), low=5).offsets, span(Sent(b"a", b"1"), low=5).is_cut) == (1, True)


@pytest.mark.parametrize(
    ("one", "other"),
    [("12345678901234567890123", "12345678901234567890999"), ("1234567890123456.11", "1234567890123456.12")],
)
def test_numbers_of_more_digits_than_a_double_has_are_told_apart(one: str, other: str) -> None:
    sent = span(Sent(b"a", f'{{"v":{one}}}'.encode()))
    assert key_differences(sent, rows((b"a", f'{{"v":{other}}}'.encode()))).different == 1


@pytest.mark.parametrize(
    ("one", "other"), [("nan", "inf"), ("inf", "-inf"), ("nan", None)], ids=["infinity", "sign", "null"]
)
def test_values_of_avro_that_are_not_numbers_are_told_apart(one: str, other: str | None) -> None:
    columns = columns_of("v ARRAY<DOUBLE>", "t")
    schema = value_schema("avro", "t", columns)
    encode = encoder(1, schema, ["v"])
    sent, row = (next(encode(pa.table({"v": [[None if v is None else float(v)]]}))) for v in (one, other))
    for value, different in ((sent, 0), (row, 1)):
        topic = span_of(cast(Broker, OneTopic(Sent(b"a", sent))), "t", decode=decoder({1: schema}))
        assert key_differences(topic, rows((b"a", value))).different == different


def test_an_empty_key_is_not_a_missing_one() -> None:
    differences = record_differences(span(Sent(b"", b"1"), Sent(None, b"2")), rows((None, b"1"), (None, b"2")))
    assert (differences.missing, differences.foreign) == (1, 1)


def test_a_number_is_the_same_in_other_digits() -> None:
    sent = span(Sent(b"a", b'{"v":1.50,"w":[100,-0.5]}'))
    assert key_differences(sent, rows((b"a", b'{"v":1.5000,"w":[1e2,-5E-1]}'))).different == 0
