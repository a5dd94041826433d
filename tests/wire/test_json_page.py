"""The page about JSON, row by row: the converter alone, and Arrow in bulk where it reads the type."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pyarrow as pa
import pytest
from support.ddl_kinds import kind_of

from kappa.wire.json.json_columns import json_texts
from kappa.wire.json.json_converter import Timestamps
from kappa.wire.json.json_values import decoded

PAGE = (Path(__file__).parents[2] / "docs" / "json.md").read_text()
DEAD = "dead letter: "
#: Values beside the one that is looked at: most are good, so that Arrow reads the block.
BESIDE = [b"{}"] * 100


def table(heading: str) -> list[tuple[str, ...]]:
    """The rows of a section's table, without the back-quotes."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    return [tuple(cell.strip().strip("`") for cell in re.split(r" \| ", line.strip("| "))) for line in lines]


def outcome(value: bytes, kind: str, timestamps: Timestamps = "text") -> str:
    """The outcome of a value alone, and among others."""
    columns = pa.struct([("x", kind_of(kind))])
    alone = _text(decoded(pa.array([value]), columns, timestamps), 0)
    assert _text(decoded(pa.array([*BESIDE, value, *BESIDE]), columns, timestamps), len(BESIDE)) == alone
    return alone


def _text(columns: tuple[pa.StructArray, list[str | None]], place: int) -> str:
    rows, reasons = columns
    reason = reasons[place]
    if reason is not None:
        assert rows[place].as_py() is None
        return f"{DEAD}{reason}"
    return json_texts(rows.field("x").slice(place, 1))[0].as_py() or "null"


@pytest.mark.parametrize(("written", "becomes"), table("Values"))
def test_a_value_is_read_as_the_page_says(written: str, becomes: str) -> None:
    assert outcome(ast.literal_eval(written), "BIGINT") == becomes


@pytest.mark.parametrize(("kind", "written", "becomes"), table("Types"))
def test_a_value_of_a_type_is_read_as_the_page_says(kind: str, written: str, becomes: str) -> None:
    assert outcome(f'{{"x":{written}}}'.encode(), kind) == becomes


@pytest.mark.parametrize(("timestamps", "written", "becomes"), table("Numbers in columns of TIMESTAMP"))
def test_a_number_is_read_as_the_time_on_the_page(timestamps: Timestamps, written: str, becomes: str) -> None:
    assert outcome(f'{{"x":{written}}}'.encode(), "TIMESTAMP", timestamps) == becomes


@pytest.mark.parametrize("levels", [199, 200, 201])
def test_a_value_nests_at_most_as_deep_as_the_page_says(levels: int) -> None:
    assert "**200 levels** at most" in PAGE
    value = b'{"x":1,"other":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"

    assert outcome(value, "BIGINT") == ("1" if levels <= 200 else f"{DEAD}the value nests deeper than 200 levels")


def test_every_type_and_kind_of_value_has_a_row_on_the_page() -> None:
    types = {re.split(r"[<(]", kind)[0] for kind, _, _ in table("Types")}

    assert types == {
        *("BIGINT", "INT", "SMALLINT", "TINYINT", "BOOLEAN", "DOUBLE", "FLOAT", "DECIMAL", "STRING", "BINARY"),
        *("DATE", "TIMESTAMP", "ARRAY", "STRUCT", "MAP"),
    }
