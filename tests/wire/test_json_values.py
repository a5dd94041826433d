"""JSON values as rows: what the converter defines, Arrow gives too, and no record changes another's fate."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest
from support.hostile_json import value

from kappa.wire.json.json_converter import converted
from kappa.wire.json.json_values import decoded

KIND = pa.struct(
    [
        ("n", pa.int64()),
        ("i", pa.int32()),
        ("t", pa.int8()),
        ("b", pa.bool_()),
        ("text", pa.string()),
        ("f", pa.float64()),
        ("money", pa.decimal128(5, 2)),
        ("big", pa.decimal128(28, 10)),
        ("place", pa.struct([("x", pa.int32()), ("y", pa.string()), ("z", pa.list_(pa.float64()))])),
        ("list", pa.list_(pa.int64())),
        ("lines", pa.list_(pa.struct([("k", pa.string()), ("v", pa.decimal128(12, 2))]))),
    ]
)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_block_of_values_gives_the_same_rows_as_single_values(seed: int) -> None:
    random = Random(seed)
    values = [value(random) for _ in range(2000)]

    rows, reasons = decoded(pa.array(values, pa.binary()), KIND)

    alone = [None if one is None else converted(one, KIND) for one in values]
    expected = pa.array([None if isinstance(row, str) else row for row in alone], KIND)
    assert [repr(row) for row in rows.to_pylist()] == [repr(row) for row in expected.to_pylist()]
    assert reasons == [row if isinstance(row, str) else None for row in alone]


@pytest.mark.parametrize("number", ["1e-214748364", '"1E-999999999"', "0.1e-00012345"])
def test_a_power_of_ten_beyond_the_table_of_arrow_is_read(number: str) -> None:
    """Arrow reads such powers beyond the end of its table, which ends the process."""
    kind = pa.struct([("m", pa.decimal128(12, 2))])

    rows, reasons = decoded(pa.array([f'{{"m":{number}}}'.encode(), b'{"m":1}'], pa.binary()), kind)

    assert [str(row["m"]) for row in rows.to_pylist()] == ["0.00", "1.00"]
    assert reasons == [None, None]
