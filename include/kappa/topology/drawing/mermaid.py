"""A topology as a Mermaid flowchart, for pages that are written in Markdown."""

from __future__ import annotations

import re

from kappa.errors import visible
from kappa.topology.drawing.graph import Box, Graph, Kind, all_boxes

#: Shapes, so that the kinds differ in every theme: Kafka's topics are round, tables are drums.
_SHAPES = {
    Kind.SOURCE: ("([", "])"),
    Kind.STEP: ("[[", "]]"),
    Kind.TABLE: ("[(", ")]"),
    Kind.OUTPUT: ("[", "]"),
    Kind.TOPIC: ("([", "])"),
}
#: Stands as it is. All else is written as an entity: labels are read as Markdown and as HTML, ``style:`` as a style.
_PLAIN = re.compile(r"[^\W_]|[ ,]|(?<=[^\W_])[()=]|(?<=[()])\)|(?<!www)(?<=[^\W_])[._-](?=[^\W_])|(?<=[^\W_])\.$")
#: What would begin a list.
_NUMBER = re.compile(r"\d+(?=[.)])")


def mermaid(graph: Graph) -> str:
    """The graph as the text of a flowchart, in the colours of the page that it is on."""
    boxes = all_boxes((*graph.sources, graph.center))
    ids = {id(box): f"n{number}" for number, box in enumerate(boxes)}
    lines = ["flowchart LR"]
    for box in boxes:
        begins, ends = _SHAPES[box.kind]
        head = [graph.title] if box is graph.center else []
        said = "<br/>".join(_escaped(visible(part)) for part in (*head, *_phrases(box)))
        lines.append(f'  {ids[id(box)]}{begins}"{said}"{ends}')
    lines += [f"  {ids[id(source)]} --> {ids[id(graph.center)]}" for source in graph.sources]
    for box in boxes:
        arrows = [("<-->" if to.kind is Kind.TABLE else "-->", ids[id(to)]) for to in box.leads_to]
        lines += [f"  {ids[id(box)]} {arrow} {to}" for arrow, to in arrows]
    return "\n".join(lines) + "\n"


def markdown(graph: Graph) -> str:
    """The flowchart as a block of a Markdown page."""
    return f"```mermaid\n{mermaid(graph)}```\n"


def _phrases(box: Box) -> tuple[str, ...]:
    return (f"{box.kind} {box.name}", *box.details)


def _escaped(line: str) -> str:
    number = _NUMBER.match(line)
    begins = number.end() if number else 0
    plain = {match.start() for match in _PLAIN.finditer(line)} - set(range(begins))
    return "".join(c if at in plain else f"#{ord(c)};" for at, c in enumerate(line))
