"""A topology as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from kappa.drawing.graph import Box, Graph, Kind
from kappa.drawing.lines import width, wrapped
from kappa.errors import visible

#: Largest number of columns of a line, and the last column at which details begin.
_WIDE, _LATEST = 118, 48


def text(graph: Graph) -> str:
    """The graph as a tree: sources, the step that reads them, and the boxes that it leads to.

    Rows of a table go to the step and back, shown as ``<->``.
    """
    rows = list(_rows(graph))
    begins = min(_LATEST, 2 + max(width(label) for label, _, _ in rows))
    lines = [visible(graph.title), ""]
    for label, rest, details in rows:
        right = wrapped("; ".join(details), _WIDE - begins)
        beside = right.pop(0) if width(label) < begins else ""
        lines.append(f"{label}{' ' * (begins - width(label))}{beside}")
        lines += [f"{rest}{' ' * (begins - width(rest))}{line}" for line in right]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _rows(graph: Graph) -> Iterator[tuple[str, str, list[str]]]:
    """The beginning of a box's first line, the beginning of its further lines, and its details."""
    for source in graph.sources:
        yield _label(source), "│", _details(source)
        yield "│", "│", []
    yield _label(graph.center), "│" if graph.center.leads_to else "", _details(graph.center)
    yield from _branches(graph.center, "")


def _branches(box: Box, before: str) -> Iterator[tuple[str, str, list[str]]]:
    for item in box.leads_to:
        is_last = item is box.leads_to[-1]
        arrow = "<->" if item.kind is Kind.TABLE else "─->"
        below = f"{before}{' ' if is_last else '│'}    "
        yield (
            f"{before}{'└' if is_last else '├'}{arrow} {_label(item)}",
            below + "│" * bool(item.leads_to),
            _details(item),
        )
        yield from _branches(item, below)


def _label(box: Box) -> str:
    return f"{box.kind:<6} {visible(box.name)}"


def _details(box: Box) -> list[str]:
    return [visible(detail) for detail in box.details]
