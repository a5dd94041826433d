"""Writes the tables of details into docs/formats.md, from their declarations in :mod:`kappa.record.detail_schema`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kappa.record import detail_schema
from kappa.record.detail_schema import Field

PAGE = Path(__file__).resolve().parents[1] / "docs" / "formats.md"
#: What stands between two lines in the page is made here.
BEGIN, END = "<!-- made by scripts/formats_page.py -->\n", "<!-- end -->\n"
TITLES: Mapping[str, Mapping[Any, Mapping[str, Field]]] = {
    "Detail of an event": detail_schema.EVENTS,
    "Detail of a ledger row": detail_schema.ROWS,
    "Detail of a row of an archive's ledger": detail_schema.ARCHIVE_ROWS,
}


def tables() -> str:
    """The sections, in Markdown."""
    lines = []
    for title, kinds in TITLES.items():
        lines += [f"### {title}", "", "| kind | field | type | what |", "|---|---|---|---|"]
        for kind, fields in kinds.items():
            lines += [f"| `{kind}` | `{name}` | {field.type} | {field.what} |" for name, field in fields.items()]
        lines.append("")
    return "\n".join(lines)


def page() -> str:
    """The page with its generated sections."""
    before, rest = PAGE.read_text().split(BEGIN)
    return f"{before}{BEGIN}\n{tables()}{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"{PAGE} agrees with the declarations")
