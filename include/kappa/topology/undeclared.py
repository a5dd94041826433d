"""Reads of a step by a name that its topology does not declare, found in the source of the step."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator

from kappa.topology import Topology


def undeclared_reads(topology: Topology) -> list[str]:
    """Reads of tables and topics in the step itself by literal names that are not declared, as sentences.

    A computed name, or one in a function that the step calls, is not found here; the slice refuses it at run time.
    """
    assert topology.step is not None
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(topology.step)))
    except Exception:  # a lambda within a line, a callable object, code without a file, an expression that is too deep
        return []
    step = tree.body[0] if tree.body else None
    if not isinstance(step, ast.FunctionDef) or not step.args.args:
        return []
    tables = [table.name for table in topology.tables]
    topics = list(topology.source_topics)
    problems = [
        f"reads {kind} {name!r}, which is not declared; declared: {sorted(tables if kind == 'table' else topics)}"
        for kind, name in _reads(step, step.args.args[0].arg)
        if name not in (tables if kind == "table" else topics)
    ]
    return list(dict.fromkeys(problems))


def _reads(step: ast.FunctionDef, argument: str) -> Iterator[tuple[str, str]]:
    waiting: list[ast.AST] = list(step.body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.FunctionDef | ast.Lambda) and argument in {a.arg for a in node.args.args}:
            continue  # the name belongs to another function there
        waiting.extend(ast.iter_child_nodes(node))
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=name), attr="table"), args=[ast.Constant(value=str(of))]
            ):
                if name == argument:
                    yield "table", of
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(of)), ctx=ast.Load()):
                if name == argument:
                    yield "topic", of
            case _:
                pass
