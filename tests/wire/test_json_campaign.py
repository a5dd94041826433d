"""JSON values of random schemas against the table of types: each is read as the table says, in bulk and alone."""

from __future__ import annotations

from collections import Counter
from random import Random

import pyarrow as pa
import pytest
from support.drawn_json import Record, drawn_kind, drawn_record, schema
from support.plain_rows import plain_rows

from kappa.wire.json.json_converter import Timestamps
from kappa.wire.json.json_values import decoded

WAYS: list[Timestamps] = ["text", "text", "epoch_seconds", "epoch_ms", "epoch_us"]


def differing(seed: int, count: int) -> tuple[list[str], Counter[str]]:
    """Records of one schema that were not read as the table says, and the count per outcome."""
    random = Random(seed)
    kind, timestamps = drawn_kind(random), random.choice(WAYS)
    records = [drawn_record(random, kind, timestamps) for _ in range(count)]
    values = pa.array([record.value for record in records], pa.binary())
    together = outcomes(values, kind, timestamps)
    order = random.sample(range(count), min(count, 40))
    alone = {place: outcomes(values.slice(place, 1), kind, timestamps)[0] for place in order}
    wrong = [
        f"seed {seed}, {timestamps}, {schema(kind)}\n  {(record.value or b'')[:300]!r}\n  table: "
        f"{str(expected(record))[:300]}\n  Kappa: {str(outcome)[:300]}"
        for place, (record, outcome) in enumerate(zip(records, together, strict=True))
        if outcome != expected(record) or alone.get(place, outcome) != outcome
    ]
    return wrong, Counter(record.outcome for record in records)


def expected(record: Record) -> object:
    return record.row if record.outcome == "row" else record.outcome


def outcomes(values: pa.BinaryArray, kind: pa.StructType, timestamps: Timestamps) -> list[object]:
    """The row of each value, ``null``, or ``dead``."""
    rows, reasons = decoded(values, kind, timestamps)
    return [
        "null" if is_null else row if reason is None else "dead" if row is None else "a row of a dead letter"
        for row, reason, is_null in zip(plain_rows(rows), reasons, values.is_null().to_pylist(), strict=True)
    ]


def campaign(seeds: range, count: int) -> None:
    totals: Counter[str] = Counter()
    for seed in seeds:
        wrong, counts = differing(seed, count)
        assert not wrong, "\n".join(wrong[:5])
        totals += counts
    assert all(totals[outcome] >= totals.total() / 5 for outcome in ("row", "null", "dead")), totals


@pytest.mark.parametrize("start", [0, 100, 200])
def test_random_records_are_read_as_the_table_says_together_and_alone(start: int) -> None:
    campaign(range(start, start + 12), 250)


@pytest.mark.soak
def test_a_million_random_records_are_read_as_the_table_says() -> None:
    campaign(range(1_000_000, 1_000_500), 2000)
