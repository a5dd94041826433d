"""A topology as a drawing. Pure.

text(graph_of(topology))
"""

from __future__ import annotations

from kappa.drawing.graph import Box, Graph, Kind, graph_of
from kappa.drawing.text import text

__all__ = ["Box", "Graph", "Kind", "graph_of", "text"]
