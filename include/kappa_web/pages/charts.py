"""Small charts of numbers as SVG. Pure.

Colours are classes of the style sheet, so that they follow light and dark. They need no style attribute, which the
pages' security policy refuses. A chart repeats the text beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

#: Colours that epochs take in turns; the style sheet has as many.
COLOURS = 6


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A part of a bar.

    Attributes:
        start: where it begins, as a share of the bar.
        end: where it ends.
        kind: its class in the style sheet.
        title: what it is, for people who point at it.
        label: text within it, if there is room.
    """

    start: float
    end: float
    kind: str
    title: str
    label: str = ""


def line(values: Sequence[float | None], *, title: str, width: int = 132, height: int = 32) -> Markup:
    """A line over equal steps of time, with the area below it; steps without a value are gaps."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return Markup()
    top = max(numbers) or 1.0
    step = width / max(1, len(values) - 1)
    runs: list[list[tuple[float, float]]] = [[]]
    for index, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((round(index * step, 1), round(height - 2 - (height - 5) * value / top, 1)))
    parts = []
    for run in filter(None, runs):
        points = " ".join(f"{x},{y}" for x, y in (run if len(run) > 1 else [run[0], (run[0][0] + 1.5, run[0][1])]))
        first, last = run[0][0], run[-1][0] + (1.5 if len(run) == 1 else 0)
        parts.append(f'<polygon class="area" points="{first},{height - 1} {points} {last},{height - 1}"/>')
        parts.append(f'<polyline class="line" points="{points}"/>')
    return _markup(
        f'<svg class="spark" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'preserveAspectRatio="none"><title>{escape(title)}</title>'
        f'<line class="base" x1="0" y1="{height - 0.5}" x2="{width}" y2="{height - 0.5}"/>{"".join(parts)}</svg>'
    )


def bar(pieces: Sequence[Piece], *, title: str, height: int = 22) -> Markup:
    """A bar of pieces as wide as the available space; pieces too narrow to see are widened to a hair."""
    width = 1000
    rects, words = [], []
    for piece in pieces:
        x, wide = piece.start * width, max(2.0, (piece.end - piece.start) * width)
        x = min(x, width - wide)
        rects.append(
            f'<rect class="{escape(piece.kind)}" x="{x:.1f}" y="0" width="{wide:.1f}" height="{height}">'
            f"<title>{escape(piece.title)}</title></rect>"
        )
        if piece.label and piece.end - piece.start > 0.12:
            middle = 100 * (piece.start + piece.end) / 2
            words.append(f'<text class="on" x="{middle:.2f}%" y="{height / 2}">{escape(piece.label)}</text>')
    return _markup(
        f'<svg class="bar" height="{height}" role="img" aria-label="{escape(title)}">'
        f'<rect class="track" width="100%" height="{height}"/>'
        f'<svg viewBox="0 0 {width} {height}" width="100%" height="{height}" preserveAspectRatio="none">'
        f"{''.join(rects)}</svg>{''.join(words)}</svg>"
    )


def timeline(rows: Sequence[tuple[str, Sequence[Piece]]], ticks: Sequence[tuple[float, str]], *, title: str) -> Markup:
    """A row for each epoch over one axis of time.

    Args:
        rows: name of the row, and its pieces.
        ticks: places on the axis, as shares of it, with their text.
        title: what it shows.
    """
    step, wide = 28, 1000
    lines = "".join(
        f'<line class="tick" x1="{share * wide:.1f}" x2="{share * wide:.1f}" y1="0" y2="{step}"/>' for share, _ in ticks
    )
    parts = []
    for name, pieces in rows:
        inner = "".join(
            f'<rect class="{escape(p.kind)}" x="{min(p.start * wide, wide - 3):.1f}" y="6" '
            f'width="{max(3.0, (p.end - p.start) * wide):.1f}" height="{step - 12}">'
            f"<title>{escape(p.title)}</title></rect>"
            for p in pieces
        )
        label = "; ".join(piece.title for piece in pieces)
        parts.append(
            f'<span class="name">{escape(name)}</span><svg viewBox="0 0 {wide} {step}" height="{step}" '
            f'preserveAspectRatio="none" role="img" aria-label="{escape(label)}">{lines}{inner}</svg>'
        )
    words = "".join(_tick(share, label) for share, label in ticks)
    return _markup(
        f'<div class="timeline" role="group" aria-label="{escape(title)}">{"".join(parts)}'
        f'<span></span><svg height="18" aria-hidden="true">{words}</svg></div>'
    )


def _tick(share: float, label: str) -> str:
    """The text of a place on an axis. Texts at the ends stay within the axis; texts between are hidden if there is no
    room.
    """
    anchor, kind = ("start", "axis") if share < 0.06 else ("end", "axis") if share > 0.94 else ("middle", "axis mid")
    return f'<text class="{kind}" x="{100 * share:.2f}%" y="14" text-anchor="{anchor}">{escape(label)}</text>'


def colour(epoch: int) -> str:
    """The class of an epoch's colour."""
    return f"c{epoch % COLOURS}"


def _markup(text: str) -> Markup:
    """Markup of this module: each text from outside is escaped above."""
    return Markup(text)  # noqa: S704
