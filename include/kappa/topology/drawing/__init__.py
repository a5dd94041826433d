"""A topology as a drawing: text, SVG or Mermaid. Pure.

drawn(graph_of(topology), Format.SVG)
"""

from __future__ import annotations

from enum import StrEnum

from kappa.topology.drawing.graph import Box, Graph, Kind, graph_of
from kappa.topology.drawing.mermaid import markdown, mermaid
from kappa.topology.drawing.svg import svg
from kappa.topology.drawing.text import text

__all__ = ["Box", "Format", "Graph", "Kind", "drawn", "graph_of", "markdown", "mermaid", "svg", "text"]


class Format(StrEnum):
    """What a topology can be drawn as."""

    TEXT = "text"
    SVG = "svg"
    MERMAID = "mermaid"


def drawn(graph: Graph, format: Format) -> str:
    """A graph as text that ends with a line break."""
    match format:
        case Format.TEXT:
            return text(graph)
        case Format.SVG:
            return svg(graph)
        case Format.MERMAID:
            return mermaid(graph)
