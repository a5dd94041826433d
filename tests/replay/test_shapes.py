"""What a seed of another shape can give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kappa.replay.findings import Severity
from kappa.replay.rules.seed import unlike_seed
from kappa.topology.shapes import Shape, shapes_as_dict, shapes_from_dict, tables_only

TABLE = Shape(columns={"id": "STRING", "total": "BIGINT"}, required=("id",), key=("id",))
SEED = {"tables/balances": TABLE, "outputs/moves": replace(TABLE, key=())}


def found(wanted: dict[str, Shape]) -> list[tuple[str, Severity, Any]]:
    return [(f.code, f.severity, f.numbers.get("columns")) for f in unlike_seed(wanted, SEED, "The savepoint")]


def test_the_same_shape_fits_and_so_does_one_with_less() -> None:
    assert found(SEED) == []
    assert found({"tables/balances": replace(TABLE, columns={"id": "STRING"})}) == []
    assert found(tables_only(SEED)) == []


@pytest.mark.parametrize(
    ("shape", "code", "severity", "columns"),
    [
        (replace(TABLE, key=("id", "total")), "seed-key-changed", Severity.REFUSE, None),
        (replace(TABLE, columns={"id": "STRING", "total": "STRING"}), "seed-type-changed", Severity.REFUSE, ["total"]),
        (replace(TABLE, required=("id", "total")), "seed-type-changed", Severity.REFUSE, ["total"]),
        (replace(TABLE, columns={**TABLE.columns, "new": "INT"}), "seed-lacks-column", Severity.WARN, ["new"]),
        (
            replace(TABLE, columns={**TABLE.columns, "new": "INT"}, required=("id", "new")),
            "seed-lacks-required-column",
            Severity.REFUSE,
            ["new"],
        ),
    ],
)
def test_another_shape_is_refused_unless_null_may_stand_for_it(
    shape: Shape, code: str, severity: Severity, columns: list[str] | None
) -> None:
    assert found({"tables/balances": shape}) == [(code, severity, columns)]


def test_a_new_table_is_refused_and_a_new_output_is_not() -> None:
    assert found({"tables/new": TABLE}) == [("seed-lacks-table", Severity.REFUSE, None)]
    assert found({"outputs/new": TABLE}) == [("seed-lacks-output", Severity.WARN, None)]


def test_shapes_come_back_from_json() -> None:
    assert shapes_from_dict(shapes_as_dict(SEED)) == SEED
