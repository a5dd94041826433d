"""A finding is declared once, as data, beside its rule; its message and its page are made of that."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from kappa.replay.catalogue import ALLOWABLE, DECLARED, SECTIONS, relaxed
from kappa.replay.findings import Finding, Severity, refuses

INCLUDE = Path(__file__).resolve().parents[2] / "include"
RULES = INCLUDE / "kappa" / "replay" / "rules"
FULL = refuses("log-full", "Topic {topic!r} has {count:,} {noun}.", "Empty {topic}.")


def called(tree: ast.AST, *names: str) -> list[ast.Call]:
    """Calls of one of these names."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    ]


def test_values_fill_its_templates_and_words_are_not_kept() -> None:
    found = FULL({"noun": "records"}, topic="pos", count=1200)
    assert found == Finding(
        code="log-full",
        severity=Severity.REFUSE,
        message="Topic 'pos' has 1,200 records.",
        remedy="Empty pos.",
        numbers={"topic": "pos", "count": 1200},
    )


def test_a_value_that_its_template_needs_cannot_be_left_out() -> None:
    with pytest.raises(KeyError, match="noun"):
        FULL(topic="pos", count=1)


def test_values_with_braces_are_taken_as_they_are() -> None:
    assert FULL({"noun": "{0}"}, topic="{count}", count=1).message == "Topic '{count}' has 1 {0}."


def test_its_line_says_first_whether_it_refuses() -> None:
    found = FULL({"noun": "record"}, topic="pos", count=1)
    assert found.line == "REFUSED    Topic 'pos' has 1 record. Empty pos.  [log-full]"
    (allowed,) = relaxed([Finding.from_dict({**found.as_dict(), "code": "compacted-source"})], frozenset(ALLOWABLE))
    assert allowed.line == "warning    Topic 'pos' has 1 record. Empty pos.  [compacted-source]"
    assert relaxed([found], frozenset({"log-full"})) == (found,), "it may not be allowed"


def test_each_code_is_declared_once_and_all_are_in_the_catalogue() -> None:
    codes = [
        ast.literal_eval(call.args[0])
        for file in RULES.glob("*.py")
        for call in called(ast.parse(file.read_text()), "refuses", "warns")
    ]
    assert Counter(codes) == Counter(DECLARED.keys())


def test_a_finding_is_made_by_its_declaration_and_nowhere_else() -> None:
    makers = {
        file.relative_to(INCLUDE).as_posix()
        for file in INCLUDE.rglob("*.py")
        if called(ast.parse(file.read_text()), "Finding", "Declaration")
    }
    assert makers == {"kappa/replay/findings.py"}


def test_what_is_declared_is_used_by_a_rule() -> None:
    idle = []
    for module in (module for modules in SECTIONS.values() for module in modules):
        tree = ast.parse(Path(str(module.__file__)).read_text())
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        declared = {name for name, found in vars(module).items() if found in DECLARED.values()}
        idle += sorted(declared - used)
    assert not idle
