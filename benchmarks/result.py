"""Measured figures, as a table for people and JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One measured figure.

    Attributes:
        part: the letter of its benchmark.
        name: what was measured.
        value: the figure.
        unit: its unit.
        wanted: the yardstick, as a comparison: ``>= 0.6``; empty where there is none.
        detail: what it was made from.
    """

    part: str
    name: str
    value: float
    unit: str
    wanted: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_met(self) -> bool | None:
        """Whether the yardstick is met; None without one."""
        if not self.wanted:
            return None
        sign, _, limit = self.wanted.partition(" ")
        return self.value >= float(limit) if sign == ">=" else self.value <= float(limit)


def render(figures: Sequence[Figure]) -> list[str]:
    """A table."""
    rows = [("part", "what", "measured", "wanted", "")]
    rows += [
        (f.part, f.name, f"{_number(f.value)} {f.unit}", f.wanted, {None: "", True: "met", False: "MISSED"}[f.is_met])
        for f in figures
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def write(
    folder: Path,
    machine: Mapping[str, Any],
    scale: Any,
    figures: Sequence[Figure],
    broken: Sequence[str],
    *,
    seconds: float,
) -> Path:
    """Write a run to a file named by its time; the file."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}.json"
    content = {
        "machine": dict(machine),
        "scale": asdict(scale),
        "seconds": round(seconds, 1),
        "broken": list(broken),
        "figures": [{**asdict(figure), "is_met": figure.is_met} for figure in figures],
    }
    file.write_text(json.dumps(content, indent=2, default=str) + "\n")
    return file


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.2f}" if abs(value) >= 1 else f"{value:.3f}"
