"""Draws docs/images/rebuild.svg: the time of a rebuild against the keys of a table, and against its history."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "rebuild.svg"

_BLUE, _GREY = "#1f5fa8", "#8a8a8a"
#: Text stays text, and the same figures give the same bytes.
_STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "kappa", "font.family": "sans-serif", "font.size": 10}

Points = Sequence[Mapping[str, Any]]


def picture(points: Mapping[str, Points]) -> str:
    """The picture of part (k)'s points, as SVG."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(9, 3.8), facecolor="white", layout="constrained")
        keys, history = figure.subplots(1, 2)
        _keys(keys, points["keys"])
        _history(history, points["written"], points["compacted"])
        for axes in (keys, history):
            axes.set_ylabel("seconds")
            axes.set_xlim(left=0)
            axes.set_ylim(0, 1.1 * axes.dataLim.ymax)
            axes.grid(color="#e4e4e4", linewidth=0.8)
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_axisbelow(True)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def _keys(axes: Axes, points: Points) -> None:
    axes.plot([p["keys"] / 1000 for p in points], [p["seconds"] for p in points], "o-", color=_BLUE)
    axes.set_title("Rebuild, by size of the table", fontsize=11, loc="left")
    axes.set_xlabel("thousand keys")


def _history(axes: Axes, written: Points, compacted: Points) -> None:
    for points, label, color, line in (
        (written, "changelog as written", _GREY, "s--"),
        (compacted, "compacted by the broker", _BLUE, "o-"),
    ):
        axes.plot([p["rounds"] for p in points], [p["seconds"] for p in points], line, color=color, label=label)
    axes.set_title(f"Rebuild of {compacted[0]['keys']:,} keys, by length of history", fontsize=11, loc="left")
    axes.set_xlabel("changes of each key")
    axes.set_xticks([p["rounds"] for p in compacted])
    axes.legend(frameon=False, loc="upper left")
