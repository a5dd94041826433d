"""Writes docs/findings.md from the declarations in `include/kappa/replay/rules`."""

from __future__ import annotations

from pathlib import Path
from string import Formatter

from kappa.replay.catalogue import SECTIONS, declared
from kappa.replay.findings import Declaration

PAGE = Path(__file__).resolve().parents[1] / "docs" / "findings.md"

_HEAD = """\
# Findings

The findings of `kappa plan`, `kappa offsets`, `kappa upgrade` and `kappa backfill`, by the code in brackets at the end
of their line. A finding refuses or warns. A finding that may be allowed warns instead of refusing if the request names
it: `--allow <code>`, which the plan records. Words in italics stand for values; those that are numbers or names are in
`--json`.

`scripts/findings_page.py` writes this page from the declarations in `include/kappa/replay/rules`.
"""
_TABLE = """\
| code | effect | may be allowed | what it says | what to do |
|---|---|---|---|---|
"""


def page() -> str:
    """The text of the page."""
    sections = (
        f"## {title}\n\n{_TABLE}{''.join(row(declaration) for declaration in declared(modules))}"
        for title, modules in SECTIONS.items()
    )
    return "\n".join([_HEAD, *sections])


def row(declaration: Declaration) -> str:
    """The line of a table for one finding."""
    allowed = "yes" if declaration.may_be_allowed else ""
    cells = (
        f"`{declaration.code}`",
        f"{declaration.severity}s",
        allowed,
        without_values(declaration.message),
        declaration.way_out or without_values(declaration.remedy),
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def without_values(template: str) -> str:
    """A template with the names of its values in their places; inside back-quotes they look as on the command line."""
    text = ""
    for literal, name, _, _ in Formatter().parse(template):
        text += literal
        if name is not None:
            space = " " if text[-1:].isalnum() or text.endswith("*") else ""
            text += f"<{name}>" if text.count("`") % 2 else f"{space}*{name}*"
    return text


if __name__ == "__main__":
    PAGE.write_text(page())
