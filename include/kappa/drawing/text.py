"""A topology as lines for a terminal: their width, and wrapped texts."""

from __future__ import annotations

from collections.abc import Iterator
from unicodedata import combining, east_asian_width

from kappa.drawing.graph import Box, Graph, Kind
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


def width(text: str) -> int:
    """Number of columns of a text in a monospaced font."""
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def wrapped(text: str, most: int) -> list[str]:
    """Lines of at most this many columns, broken at spaces, or within a word that is longer than a line.

    Args:
        text: visible text.
        most: largest number of columns, at least 2.
    """
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if width(joined) <= most:
            lines[-1] = joined
            continue
        pieces = _pieces(word, most)
        lines += pieces if lines[-1] else pieces[1:]
        if lines[0] == "":
            lines[0] = pieces[0]
    return lines


def _pieces(word: str, most: int) -> list[str]:
    pieces = [""]
    for c in word:
        if width(pieces[-1] + c) > most:
            pieces.append("")
        pieces[-1] += c
    return pieces
