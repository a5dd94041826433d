"""A finding is declared once, as data beside its rule; its message and page follow from that."""

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


def test_values_fill_the_templates_and_words_are_not_kept() -> None:
    finding = FULL({"noun": "records"}, topic="pos", count=1200)
    assert finding == Finding(
        code="log-full",
        severity=Severity.REFUSE,
        message="Topic 'pos' has 1,200 records.",
        remedy="Empty pos.",
        numbers={"topic": "pos", "count": 1200},
    )


def test_a_value_needed_by_a_template_cannot_be_left_out() -> None:
    with pytest.raises(KeyError, match="noun"):
        FULL(topic="pos", count=1)


def test_values_with_braces_are_inserted_unchanged() -> None:
    assert FULL({"noun": "{0}"}, topic="{count}", count=1).message == "Topic '{count}' has 1 {0}."


def test_the_line_of_a_finding_begins_with_its_severity() -> None:
    finding = FULL({"noun": "record"}, topic="pos", count=1)
    assert finding.line == "REFUSED    Topic 'pos' has 1 record. Empty pos.  [log-full]"
    (allowed,) = relaxed([Finding.from_dict({**finding.as_dict(), "code": "compacted-source"})], frozenset(ALLOWABLE))
    assert allowed.line == "warning    Topic 'pos' has 1 record. Empty pos.  [compacted-source]"
    assert relaxed([finding], frozenset({"log-full"})) == (finding,), "it may not be allowed"


def test_each_code_is_declared_once_and_listed_in_the_catalogue() -> None:
    codes = [
        ast.literal_eval(call.args[0])
        for file in RULES.glob("*.py")
        for call in called(ast.parse(file.read_text()), "refuses", "warns")
    ]
    assert Counter(codes) == Counter(DECLARED.keys())


def test_findings_are_made_only_by_their_declarations() -> None:
    makers = {
        file.relative_to(INCLUDE).as_posix()
        for file in INCLUDE.rglob("*.py")
        if called(ast.parse(file.read_text()), "Finding", "Declaration")
    }
    assert makers == {"kappa/replay/findings.py"}


def test_every_declaration_is_used_by_a_rule() -> None:
    idle = []
    for module in (module for modules in SECTIONS.values() for module in modules):
        tree = ast.parse(Path(str(module.__file__)).read_text())
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        declared = {name for name, declaration in vars(module).items() if declaration in DECLARED.values()}
        idle += sorted(declared - used)
    assert not idle
