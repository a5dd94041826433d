"""Writes the reference of operators, docs/operators/*.md, from their docstrings and from the drawings beside it."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kappa import operators
from kappa.operators import agg

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "operators"
DRAWINGS = FOLDER / "drawings"


@dataclass(frozen=True, kw_only=True)
class Family:
    """Operators of one kind, on one page.

    Attributes:
        file: of the page.
        title: its heading.
        intro: an introduction to all of them.
        names: the operators, in order.
    """

    file: str
    title: str
    intro: str
    names: tuple[str, ...]

    @property
    def path(self) -> Path:
        """The page."""
        return FOLDER / self.file


FAMILIES = (
    Family(
        file="windows.md",
        title="Windows",
        intro="Aggregates per key over intervals of event time. A row is emitted once, when it is final; the table has "
        "every update before that. [Event time](../event-time.md) describes late records and the closing of windows.",
        names=("tumbling_window", "hopping_window", "sliding_window", "session_window", "at_most_every"),
    ),
    Family(
        file="aggregates.md",
        title="Aggregates",
        intro="Aggregates without windows, and the functions for `aggregates=` of all operators, `agg`.",
        names=("aggregate", "aggregate_table", "cogroup", "two_phase"),
    ),
    Family(
        file="joins-of-streams.md",
        title="Joins of streams, and repeated records",
        intro="Rows of streams that are near each other in event time.",
        names=("interval_join", "deduplicate"),
    ),
    Family(
        file="joins-with-tables.md",
        title="Joins with tables",
        intro="Joins of a stream with a table, as of the row's time or as of now, and joins of tables.",
        names=("table_join", "versions_by", "newest_table_join", "lookup", "foreign_key_join", "table_table_join"),
    ),
    Family(
        file="tables-of-keys.md",
        title="Tables of keys",
        intro="One row per key, and operators that follow the order of its rows.",
        names=("newest_by", "cdc_table", "running_total", "newest"),
    ),
    Family(
        file="rows.md", title="Rows", intro="Functions that change rows and keep no state.", names=("masked", "rekey")
    ),
)
_PAGE_OF = {name: family.file for family in FAMILIES for name in family.names}
_SECTION = re.compile(r"^(Args|Returns|Raises|Examples|Source):[ \t]*", re.MULTILINE)
_MADE = "`scripts/operators_page.py` writes this page from the docstrings in `include/kappa/operators`.\n"


def pages() -> dict[Path, str]:
    """The text of each page."""
    return {family.path: page(family) for family in FAMILIES}


def page(family: Family) -> str:
    """The page of a family."""
    parts = [f"# {family.title}\n\n{family.intro}\n\n{_MADE}"]
    parts += [section(name, getattr(operators, name), family.file) for name in family.names]
    if family.file == "aggregates.md":
        parts.append(functions())
    return "\n".join(parts)


def section(name: str, operator: Callable[..., Any], file: str) -> str:
    """The section of an operator: signature, description, drawing, arguments, example."""
    text, parts = docstring_of(operator)
    drawing = (DRAWINGS / f"{name}.txt").read_text()
    rows = [f"| `{argument}` | {cell(meaning, file)} |\n" for argument, meaning in arguments(parts["Args"])]
    lines = [
        f"## {name}\n",
        f"```python unrun: a signature\n{signature(name, operator)}\n```\n",
        paragraphs(text, file),
        f"```text\n{drawing}```\n",
        f"| argument | |\n|---|---|\n{''.join(rows)}",
        *([f"It returns {lowered(cell(parts['Returns'], file))}\n"] if "Returns" in parts else []),
        f"```python unrun: tests/test_doctests.py runs it\n{parts['Examples']}\n```\n",
    ]
    return "\n".join(lines)


def functions() -> str:
    """The table of the functions in ``agg``."""
    public = [
        (name, function)
        for name, function in vars(agg).items()
        if inspect.isfunction(function) and function.__module__ == agg.__name__ and is_aggregate(name, function)
    ]
    rows = []
    for name, function in public:
        text, _ = docstring_of(function)
        named = ", ".join(str(one).replace("'", "") for one in inspect.signature(function).parameters.values())
        rows.append(f"| `agg.{name}({cell(named, '')})` | {cell(text, 'aggregates.md')} |\n")
    return f"## agg\n\n| function | result |\n|---|---|\n{''.join(rows)}"


def is_aggregate(name: str, function: Callable[..., Any]) -> bool:
    """Whether a function of the module makes an aggregate for ``aggregates=``."""
    return not name.startswith("_") and inspect.signature(function).return_annotation == "Aggregate"


def docstring_of(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """The text of a docstring, and its sections."""
    doc = inspect.getdoc(function) or ""
    begin, *rest = _SECTION.split(doc)
    return begin.strip(), {
        name: textwrap.dedent(body).strip() for name, body in zip(rest[::2], rest[1::2], strict=True)
    }


def arguments(text: str) -> list[tuple[str, str]]:
    """Name and meaning of each argument."""
    pairs: list[tuple[str, str]] = []
    for line in text.splitlines():
        begins = re.match(r"(\w+): (.*)", line)
        if begins:
            pairs.append((begins[1], begins[2]))
        else:
            name, meaning = pairs.pop()
            pairs.append((name, f"{meaning} {line.strip()}"))
    return pairs


def signature(name: str, operator: Callable[..., Any]) -> str:
    """Name, arguments and result, with one argument per line."""
    signature = inspect.signature(operator)
    lines, is_keyword = [], False
    for one in signature.parameters.values():
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not is_keyword:
            lines.append("    *,")
            is_keyword = True
        default = "" if one.default is inspect.Parameter.empty else f" = {shown(one.default)}"
        lines.append(f"    {one.name}: {one.annotation}{default},")
    return "\n".join([f"{name}(", *lines, f") -> {signature.return_annotation}"])


def shown(value: object) -> str:
    """A default value as source text."""
    return "..." if value is Ellipsis else f'"{value}"' if isinstance(value, str) else repr(value)


def paragraphs(text: str, file: str) -> str:
    """Paragraphs in Markdown; indented code becomes a snippet."""
    parts = []
    for part in re.split(r"\n\n(?=\S)|\n\n(?=    )", text):
        if part.startswith("    "):
            parts.append(f"```python unrun: a part of a topology\n{textwrap.dedent(part).rstrip()}\n```")
        else:
            text = linked(" ".join(part.split()), file)
            parts.append(textwrap.fill(text, 140, break_long_words=False, break_on_hyphens=False))
    return "\n\n".join(parts) + "\n"


def cell(text: str, file: str) -> str:
    """One line of Markdown."""
    return linked(" ".join(text.split()), file).replace("|", "\\|")


def linked(text: str, file: str) -> str:
    """The text with its references as links."""

    def link(match: re.Match[str]) -> str:
        name = match[1].rpartition(".")[2]
        if name not in _PAGE_OF:
            return f"`{match[1].lstrip('~')}`"
        page = "" if _PAGE_OF[name] == file else _PAGE_OF[name]
        return f"[`{name}`]({page}#{name})"

    return re.sub(r":(?:func|mod|class|attr|data):`([^`]+)`", link, text).replace("``", "`")


def lowered(text: str) -> str:
    """The text with a small first letter, for use within a sentence."""
    return text[:1].lower() + text[1:]


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
