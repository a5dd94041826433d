"""Writes docs/benchmarks.md from the stored figures: ``python -m benchmarks.page``.

The figures are in ``benchmarks/measured.json``, taken over from a run's file in ``benchmarks/results/``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.__main__ import PARTS
from benchmarks.result import Figure

MEASURED = Path(__file__).parent / "measured.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"

_HEAD = """\
# Benchmarks

This page is made by `python -m benchmarks.page` from `benchmarks/measured.json`.

`make bench` measures on {invoices:,} generated invoices and writes a table, and JSON with a description of the machine,
to `benchmarks/results/`. `python -m benchmarks a d --records 200000` runs some parts, smaller. A ratio compares two
measurements of one run on one machine. Seconds and records/s hold for the machine of the run only.

Machine: {machine}. Size: {invoices:,} invoices unless the row says otherwise.

## Figures

| part | what is measured | value | target | result |
|---|---|---|---|---|
"""


def page(measured: Mapping[str, Any]) -> str:
    """The page of the stored figures."""
    rows = measured["figures"]
    lines = [_row(row) for row in rows]
    text = _HEAD.format(machine=measured["machine"], invoices=measured["invoices"]) + "\n".join(lines) + "\n"
    missed = [row for row in rows if _figure(row).is_met is False]
    text += "\n## Missed targets\n\n"
    text += "\n".join(_missed(row) for row in missed) + "\n" if missed else "None.\n"
    without = {name: title for name, (title, _) in PARTS.items() if name not in {row["part"] for row in rows}}
    if without:
        text += "\n## Parts without a stored result\n\n"
        text += "\n".join(f"- ({name}) {title}" for name, title in without.items()) + "\n"
    text += "\n## How each figure was measured\n\n"
    return text + "\n".join(_conditions(row) for row in rows) + "\n"


def _figure(row: Mapping[str, Any]) -> Figure:
    return Figure(
        part=row["part"], name=row["name"], value=row["value"], unit=row["unit"], wanted=row.get("wanted", "")
    )


def _row(row: Mapping[str, Any]) -> str:
    figure = _figure(row)
    result = {None: "", True: "met", False: "**missed**"}[figure.is_met]
    cells = (f"({figure.part})", figure.name, _value(figure), _target(figure), result)
    return "".join(f"| {cell} ".replace("  ", " ") for cell in cells) + "|"


def _missed(row: Mapping[str, Any]) -> str:
    figure = _figure(row)
    why = f"\n  Where the time goes, and what was tried: {_link(row)}." if "decision" in row else ""
    return f"- ({figure.part}) {figure.name}: {_value(figure)}, target {_target(figure)}.{why}"


def _conditions(row: Mapping[str, Any]) -> str:
    parts = [f"- ({row['part']}) {row['name']}: {row['date']}, {row['conditions']}."]
    if "detail" in row:
        parts.append(f"  {row['detail'][0].upper()}{row['detail'][1:]}.")
    if "decision" in row:
        parts.append(f"  Decision: {_link(row)}.")
    return "\n".join(parts)


def _value(figure: Figure) -> str:
    return f"{figure.value:,} {figure.unit}"


def _target(figure: Figure) -> str:
    sign, _, limit = figure.wanted.partition(" ")
    return f"{'at least' if sign == '>=' else 'at most'} {limit}" if figure.wanted else ""


def _link(row: Mapping[str, Any]) -> str:
    heading = (PAGE.parent / "decisions" / row["decision"]).read_text().partition("\n")[0]
    return f"[{heading.removeprefix('# ')}](decisions/{row['decision']})"


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(MEASURED.read_text())))
