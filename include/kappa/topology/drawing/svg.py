"""A topology as one SVG file that needs nothing else, light or dark as the reader's system is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate

from kappa.errors import visible
from kappa.topology.drawing.graph import Box, Graph, Kind
from kappa.topology.drawing.lines import width, wrapped
from kappa.topology.drawing.text import text

#: Pixels: a column of the font, a line, the room within a box, between boxes, between columns, around everything.
_COLUMN, _LINE, _WITHIN, _BELOW, _BESIDE, _AROUND = 7.9, 18, 12, 16, 72, 24
_TITLE = 40
#: Columns of the longest line in a box.
_WIDE = 42
_ARROW = 7
#: Pixels between the ends of two arrows at one box.
_APART = 14

_STYLE = """
.kd-back { fill: #ffffff; }
.kd-box { fill: #f8f8fa; stroke: #cdced6; }
.kd-line { fill: none; stroke: #80838d; stroke-width: 1.5; }
.kd-head { fill: #80838d; }
.kd-text { font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #60646c; white-space: pre; }
.kd-name { font-weight: 700; fill: #1c2024; }
.kd-title { font-size: 16px; }
.kd-kind { font-size: 11px; letter-spacing: .08em; }
.kd-source { fill: #0d74ce; } .kd-step { fill: #1c2024; } .kd-table { fill: #18794e; }
.kd-output { fill: #ab6400; } .kd-topic { fill: #8145b5; }
@media (prefers-color-scheme: dark) {
  .kd-back { fill: #111113; }
  .kd-box { fill: #1d1e21; stroke: #43484e; }
  .kd-line { stroke: #777b84; }
  .kd-head { fill: #777b84; }
  .kd-text { fill: #b0b4ba; }
  .kd-name { fill: #edeef0; }
  .kd-source { fill: #70b8ff; } .kd-step { fill: #edeef0; } .kd-table { fill: #3dd68c; }
  .kd-output { fill: #ffca16; } .kd-topic { fill: #d19dff; }
}
"""


@dataclass(frozen=True, kw_only=True)
class _Placed:
    """A box with its place; ``x`` and ``y`` are its upper left corner."""

    box: Box
    x: float
    y: float
    width: float
    height: float

    def port(self, at: int, of: int) -> float:
        """The height of one of so many arrows at a side, from top to bottom."""
        middle = self.y + self.height / 2
        return middle + (at - (of - 1) / 2) * min(_APART, (self.height - 2 * _WITHIN) / max(1, of - 1))


def svg(graph: Graph) -> str:
    """The graph from left to right: sources, the step, its tables and append outputs, their topics."""
    sources, step, members, topics = _columns(graph)
    placed = [*sources, step, *members, *topics]
    wide = max([item.x + item.width for item in placed] + [_AROUND + 1.3 * _COLUMN * width(visible(graph.title))])
    high = max(item.y + item.height for item in placed)
    size = f"{wide + _AROUND:.0f}", f"{high + _AROUND:.0f}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}" viewBox="0 0 {size[0]} '
        f'{size[1]}" role="img">',
        f"<title>{_text(graph.title)}</title>",
        f"<desc>{escape(text(graph))}</desc>",
        f"<style>{_STYLE}</style>",
        '<rect class="kd-back" width="100%" height="100%"/>',
        f'<text class="kd-text kd-name kd-title" x="{_AROUND}" y="{_AROUND + 14}">{_text(graph.title)}</text>',
        *_arrows(sources, step, members, topics),
        *(line for item in placed for line in _drawn(item)),
    ]
    return "\n".join([*parts, "</svg>"]) + "\n"


def _columns(graph: Graph) -> tuple[list[_Placed], _Placed, list[_Placed], list[_Placed]]:
    """All boxes with their places: each topic beside what it is made of, sources and step in the middle."""
    members = graph.center.leads_to
    columns = (graph.sources, (graph.center,), members, [topic for member in members for topic in member.leads_to])
    widths = [max((_width(box) for box in column), default=0) for column in columns]
    lefts = list(accumulate([_AROUND, *(wide + _BESIDE for wide in widths)]))
    rows = [max(_height(member), _stacked(member.leads_to)) for member in members]
    arrows = _APART * (max(len(graph.sources), len(members)) - 1) + 2 * _WITHIN
    step = max(_height(graph.center), arrows)
    high = max(_stacked(graph.sources), step, sum(rows) + _BELOW * (len(rows) - 1))
    top = _AROUND + _TITLE

    def stack(column: int, boxes: Sequence[Box], room: float, y: float) -> list[_Placed]:
        """Boxes below each other, in the middle of the room."""
        y += (room - _stacked(boxes)) / 2
        found = []
        for box in boxes:
            found.append(_Placed(box=box, x=lefts[column], y=y, width=widths[column], height=_height(box)))
            y += _height(box) + _BELOW
        return found

    y = top + (high - sum(rows) - _BELOW * (len(rows) - 1)) / 2
    placed_members, topics = [], []
    for member, row in zip(members, rows, strict=True):
        placed_members += stack(2, [member], row, y)
        topics += stack(3, member.leads_to, row, y)
        y += row + _BELOW
    middle = _Placed(box=graph.center, x=lefts[1], y=top + (high - step) / 2, width=widths[1], height=step)
    return stack(0, graph.sources, high, top), middle, placed_members, topics


def _stacked(boxes: Sequence[Box]) -> float:
    return sum(map(_height, boxes)) + _BELOW * max(0, len(boxes) - 1)


def _lines(box: Box) -> tuple[list[str], list[str]]:
    """Lines of the name, and of the details."""
    return wrapped(visible(box.name), _WIDE), [line for one in box.details for line in wrapped(visible(one), _WIDE)]


def _width(box: Box) -> float:
    name, details = _lines(box)
    return 2 * _WITHIN + _COLUMN * max(map(width, [box.kind, *name, *details]))


def _height(box: Box) -> float:
    name, details = _lines(box)
    return 2 * _WITHIN + _LINE * (1 + len(name) + len(details)) - 4


def _drawn(item: _Placed) -> Iterable[str]:
    box = item.box
    name, details = _lines(box)
    yield (
        f'<rect class="kd-box" x="{item.x:.1f}" y="{item.y:.1f}" width="{item.width:.1f}" height="{item.height:.1f}" '
        'rx="6"/>'
    )
    yield (
        f'<rect class="kd-{box.kind}" x="{item.x:.1f}" y="{item.y + 6:.1f}" width="3" height="{item.height - 12:.1f}"/>'
    )
    kinds = [f"kd-kind kd-{box.kind}", *["kd-name"] * len(name), *[""] * len(details)]
    inner = _height(box)
    y = item.y + (item.height - inner) / 2 + _WITHIN + 10
    for kind, line in zip(kinds, [box.kind.upper(), *name, *details], strict=True):
        yield f'<text class="{f"kd-text {kind}".strip()}" x="{item.x + _WITHIN:.1f}" y="{y:.1f}">{_text(line)}</text>'
        y += _LINE


def _arrows(
    sources: Sequence[_Placed], step: _Placed, members: Sequence[_Placed], topics: Sequence[_Placed]
) -> Iterable[str]:
    for at, source in enumerate(sources):
        yield from _arrow(source, source.port(0, 1), step, step.port(at, len(sources)))
    left = list(topics)
    for at, member in enumerate(members):
        y = member.port(0, 1)
        yield from _arrow(step, step.port(at, len(members)), member, y, is_mutual=member.box.kind is Kind.TABLE)
        own, left = left[: len(member.box.leads_to)], left[len(member.box.leads_to) :]
        for number, topic in enumerate(own):
            yield from _arrow(member, member.port(number, len(own)), topic, topic.port(0, 1))


def _arrow(begin: _Placed, begin_y: float, end: _Placed, end_y: float, *, is_mutual: bool = False) -> Iterable[str]:
    """A line from the right side of a box to the left side of another."""
    x, to = begin.x + begin.width + 1, end.x - 1
    half = (x + to) / 2
    yield (
        f'<path class="kd-line" d="M{x + _ARROW * is_mutual:.1f} {begin_y:.1f}C{half:.1f} {begin_y:.1f} {half:.1f} '
        f'{end_y:.1f} {to - _ARROW:.1f} {end_y:.1f}"/>'
    )
    yield f'<path class="kd-head" d="M{to:.1f} {end_y:.1f}l{-_ARROW - 1} -4v8z"/>'
    if is_mutual:
        yield f'<path class="kd-head" d="M{x:.1f} {begin_y:.1f}l{_ARROW + 1} -4v8z"/>'


def _text(value: str) -> str:
    return escape(visible(value), quote=True)
