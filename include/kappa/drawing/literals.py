"""The graph of a topology from the literals of its file, which is not imported."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kappa.drawing.graph import Box, Graph, Kind
from kappa.topology.declaration import step_of
from kappa.topology.registry import Declared
from kappa.topology.times.event_time import LATE_RECORDS

#: Substitute for a name that is not a literal.
UNREAD = "…"


def graph_of_literals(topology: Declared) -> Graph:
    """Sources, step, tables and outputs, as far as the topology's file names them as literals.

    A source, operator or other part that has a name of its own at the top of the file is read there. A list that is
    computed is one box named ``…``.
    """
    parts = _words(topology.call) if topology.call is not None else {}
    sources, operators, tables, ends = (
        _items(parts.get(word), topology.values) for word in ("sources", "operators", "tables", "outputs")
    )
    outputs = [(_callee(node), _words(node), node) for node in ends]
    topics = [
        (str(_literal(words.get("of")) or ""), _topic(node)) for callee, words, node in outputs if callee == "Topic"
    ]
    members = [table for node in operators for table in _tables_of(node)]
    # An operator's table is listed again to mask columns: replace(kept.tables[0], masked="email").
    members += [_member(Kind.TABLE, node) for node in tables if _callee(node) != "replace"]
    members += [_member(Kind.OUTPUT, node) for callee, _, node in outputs if callee != "Topic"]
    if any("grace" in _words(node) for node in sources):
        members.append(Box(kind=Kind.OUTPUT, name=LATE_RECORDS))
    members = [
        replace(member, leads_to=tuple(topic for of, topic in topics if of == member.name)) for member in members
    ]
    alone = [topic for of, topic in topics if of not in {member.name for member in members}]
    step = parts.get("step")
    name = step_of(()).__name__ if step is None else step.id if isinstance(step, ast.Name) else UNREAD
    center = Box(kind=Kind.STEP, name=name, leads_to=(*members, *alone))
    return Graph(name=topology.name, version=topology.version, sources=tuple(map(_source, sources)), center=center)


def _source(node: ast.expr) -> Box:
    words = _words(node)
    details = [f"format {_literal(words['format'])}"] if _literal(words.get("format")) else []
    if _literal(words.get("of")):
        details.append(f"the versioned topic of {_literal(words['of'])}")
    if _literal(words.get("grace")):
        details.append(f"event time {_literal(words.get('time')) or 'of Kafka'}, grace {_literal(words['grace'])}")
    return Box(kind=Kind.SOURCE, name=_name(node, "topic"), details=tuple(details))


def _tables_of(operator: ast.expr) -> Sequence[Box]:
    words = _words(operator)
    callee, nodes = _callee(operator), [words[w] for w in ("table", "tables", "deletions", "parts") if w in words]
    names = [_literal(node) for node in nodes if not (isinstance(node, ast.Constant) and node.value is None)]
    each = [name for one in names for name in ([one] if isinstance(one, str) else one or [UNREAD])]
    if callee == "cdc_table":
        each = [f"{name}{end}" for name in each for end in ("", "_deleted", "_truncated")]
    if callee == "lookup" and not nodes:
        return ()  # it reads the table of a running total
    details = (f"state of {callee}",) if callee else ()
    return [Box(kind=Kind.TABLE, name=str(name), details=details) for name in each or [UNREAD]]


def _member(kind: Kind, node: ast.expr) -> Box:
    words = _words(node)
    return Box(kind=kind, name=_name(node, "name"), details=_key(words))


def _topic(node: ast.expr) -> Box:
    words = _words(node)
    on_replay = _literal(words.get("on_replay")) or "hold"
    return Box(kind=Kind.TOPIC, name=_name(node, "name"), details=(*_key(words), f"on_replay {on_replay}"))


def _key(words: Mapping[str, ast.expr]) -> tuple[str, ...]:
    key = _literal(words.get("key"))
    columns = [key] if isinstance(key, str) else key or []
    return (f"key {', '.join(map(str, columns))}",) if columns else ()


def _name(node: ast.expr, word: str) -> str:
    name = _literal(_words(node).get(word))
    return name if isinstance(name, str) else UNREAD


def _items(node: ast.expr | None, values: Mapping[str, ast.expr]) -> Sequence[ast.expr]:
    if node is None:
        return ()
    whole = _named(node, values)
    return [_named(one, values) for one in (whole.elts if isinstance(whole, ast.List | ast.Tuple) else (whole,))]


def _named(node: ast.expr, values: Mapping[str, ast.expr]) -> ast.expr:
    """The expression behind a name."""
    return values.get(node.id, node) if isinstance(node, ast.Name) else node


def _callee(node: ast.expr) -> str:
    function = node.func if isinstance(node, ast.Call) else None
    return str(getattr(function, "id", getattr(function, "attr", "")))


def _words(node: ast.expr) -> dict[str, ast.expr]:
    return {word.arg: word.value for word in node.keywords if word.arg} if isinstance(node, ast.Call) else {}


def _literal(node: ast.expr | None) -> str | Sequence[object] | None:
    if node is None:
        return None
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if isinstance(value, str | list | tuple) else None
