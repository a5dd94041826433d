"""A profile as one SVG file that needs nothing else, light or dark as the reader's system is."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from math import ceil, floor, log10

from kappa.control.profile import LINES, Profile, SliceTimes, described

#: Pixels: the bars' room, and what is left, above and below of it.
_WIDE, _HIGH, _LEFT, _ABOVE, _BELOW, _RIGHT = 760, 280, 64, 76, 56, 24
#: Part of a bar's room that the bar takes.
_FILLED = 0.78
_STEPS = (1, 2, 5, 10)

_STYLE = """
.kp-back { fill: #ffffff; }
.kp-grid { stroke: #e0e1e6; }
.kp-text { font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #60646c; }
.kp-title { font-size: 16px; font-weight: 700; fill: #1c2024; }
.kp-effects { fill: #0d74ce; } .kp-send { fill: #ab6400; } .kp-apply { fill: #18794e; } .kp-commit { fill: #8145b5; }
@media (prefers-color-scheme: dark) {
  .kp-back { fill: #111113; }
  .kp-grid { stroke: #363a3f; }
  .kp-text { fill: #b0b4ba; }
  .kp-title { fill: #edeef0; }
  .kp-effects { fill: #70b8ff; } .kp-send { fill: #ffca16; } .kp-apply { fill: #3dd68c; } .kp-commit { fill: #d19dff; }
}
"""


def svg(profile: Profile) -> str:
    """A bar for each slice, oldest first, of its lines one on the other; the protocol's first line is at the bottom."""
    wide, high = _LEFT + _WIDE + _RIGHT, _ABOVE + _HIGH + _BELOW
    title = escape(f"{profile.topology} epoch {profile.epoch}: seconds of a slice, by line")
    longest = max((one.seconds for one in profile.slices), default=1.0)
    step = _step(longest)
    top = step * max(1, ceil(longest / step))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" viewBox="0 0 {wide} {high}" '
            'role="img">',
            f"<title>{title}</title>",
            f"<style>{_STYLE}</style>",
            '<rect class="kp-back" width="100%" height="100%"/>',
            f'<text class="kp-text kp-title" x="{_LEFT}" y="30">{title}</text>',
            *_legend(),
            *_grid(step, top),
            *(part for at, one in enumerate(profile.slices) for part in _bar(one, at, len(profile.slices), top)),
            *_axis(profile),
            "</svg>\n",
        ]
    )


def _step(most: float) -> float:
    """Seconds between two lines of the grid: about five of them."""
    exact = max(most, 0.001) / 5
    tens = 10.0 ** floor(log10(exact))
    return next(tens * step for step in _STEPS if tens * step >= exact)


def _legend() -> Iterator[str]:
    for at, line in enumerate(LINES):
        x = _LEFT + at * 110
        yield f'<rect class="kp-{line}" x="{x}" y="46" width="12" height="12"/>'
        yield f'<text class="kp-text" x="{x + 18}" y="57">{line}</text>'


def _grid(step: float, top: float) -> Iterator[str]:
    for at in range(round(top / step) + 1):
        y = _ABOVE + _HIGH * (1 - at * step / top)
        yield f'<line class="kp-grid" x1="{_LEFT}" x2="{_LEFT + _WIDE}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="kp-text" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{at * step:g} s</text>'


def _bar(one: SliceTimes, at: int, of: int, top: float) -> Iterator[str]:
    room = _WIDE / of
    x, y = _LEFT + room * (at + (1 - _FILLED) / 2), float(_ABOVE + _HIGH)
    yield f"<g><title>slice {one.seq}, {one.records:,} records: {escape(described(one.lines))}</title>"
    for line in LINES:
        height = _HIGH * one.lines.get(line, 0.0) / top
        if height:
            y -= height
            size = f'width="{room * _FILLED:.2f}" height="{height:.2f}"'
            yield f'<rect class="kp-{line}" x="{x:.2f}" y="{y:.2f}" {size}/>'
    yield "</g>"


def _axis(profile: Profile) -> Iterator[str]:
    y = _ABOVE + _HIGH + 22
    if profile.slices:
        first, last = profile.slices[0], profile.slices[-1]
        yield f'<text class="kp-text" x="{_LEFT}" y="{y}">slice {first.seq}, {first.records:,} records</text>'
        yield (
            f'<text class="kp-text" x="{_LEFT + _WIDE}" y="{y}" text-anchor="end">slice {last.seq}, '
            f"{last.records:,} records</text>"
        )
    else:
        yield f'<text class="kp-text" x="{_LEFT}" y="{y}">no slice on record was timed</text>'
