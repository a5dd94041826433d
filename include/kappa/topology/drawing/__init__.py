"""A topology as a drawing. Pure.

text(graph_of(topology))
"""

from __future__ import annotations

from kappa.topology.drawing.graph import Box, Graph, Kind, graph_of
from kappa.topology.drawing.text import text

__all__ = ["Box", "Graph", "Kind", "graph_of", "text"]
