"""The words of the house: phrases that a reader of English reads twice are refused in text for people, and participles
as names of values in code.

Comments, docstrings, messages and pages count. Where a phrase is right, the sentence can be turned.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: What may follow "is no".
IDIOMS = r"longer|more|less|such|reason|other|one\b|matter|better|\w+er than"
#: Phrase -> what an English text has instead.
PHRASES = {
    r"speaks? against": "objection",
    r"held against": "checked against",
    rf"(?<!there )(?<!there still )\b(?:is|are|was|were) no (?!{IDIOMS})[a-z]\w+": "is not a",
    r"\b(?:at most one|one row|rows?|one slice) a (?:key|record(?! of)|partition)\b": "per key",
    r"\b(?:digits|one|the window|has something) behind (?:the point|it|the other|a record)\b": "after",
    r"\bbehind the (?:last (?:record|event|one)|gap|plan's end|archive's end|beginning)\b": "after",
    r"\b(?:at most|about|after|within) so many\b": "this many",
    r"\bfor so long\b(?! that)": "for this long",
    r"\b(?:every|than|about) so many\b(?! more)": "this many",
    r"\bone row a group\b": "per group",
    r"\b(?:\d+ (?:ms|s|bytes|rows|records)) a (?:key|slice|record|partition|topic|table)\b": "per slice",
}
#: Participles that name no value: a value is a row, a commit, a finding.
PARTICIPLES = frozenset(
    ["asked", "chosen", "found", "given", "kept", "known", "lacking", "made", "mine", "said", "told", "wanted"]
)
#: Names that are stored or sent.
STORED = {"benchmarks/result.py": {"wanted"}, "include/kappa/replay/proof/verdict.py": {"found"}}


def pages() -> Iterator[Path]:
    """What people read: the platform's source and the pages."""
    for package in ("kappa", "kappa_airflow", "kappa_local", "kappa_web", "topologies"):
        yield from sorted((ROOT / "include" / package).rglob("*.py"))
    yield from sorted((ROOT / "docs").rglob("*.md"))
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))


def refused(text: str, phrase: str) -> list[str]:
    """Places of a phrase, in whatever case it begins."""
    return [match.group(0) for match in re.finditer(phrase, text, re.IGNORECASE)]


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Path -> what people read there."""
    return {str(file.relative_to(ROOT)): file.read_text() for file in pages()}


@pytest.mark.parametrize("phrase", PHRASES)
def test_no_text_for_people_has_the_phrase(phrase: str, texts: dict[str, str]) -> None:
    places = {path: matches for path, text in texts.items() if (matches := refused(text, phrase))}
    assert places == {}, f"write {PHRASES[phrase]!r}"


@pytest.mark.parametrize(
    "text",
    [
        "what speaks against it",
        "It is held against the hash",
        "a sample is no proof",
        "at most one row a key",
        "digits behind the point",
        "an offset behind the last record",
        "at most so many rows",
        "a driver that ran for so long",
        "after every so many rows",
        "one row a group",
        "10 ms a slice",
    ],
)
def test_each_phrase_is_noticed(text: str) -> None:
    assert sum(len(refused(text, phrase)) for phrase in PHRASES) == 1


@pytest.mark.parametrize(
    "text",
    ["there is no row", "it is no longer live", "no faster than a topic", "behind the end of the log", "a key of two"],
)
def test_plain_english_is_left_alone(text: str) -> None:
    assert sum(len(refused(text, phrase)) for phrase in PHRASES) == 0


def names(source: str) -> Iterator[str]:
    """Locals, parameters, fields, functions and methods that a file names."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def test_no_participle_names_a_value() -> None:
    places = {}
    for folder in ("include", "benchmarks", "dags", "jobs", "plugins", "scripts", "tests"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            path = file.relative_to(ROOT).as_posix()
            if participles := PARTICIPLES.intersection(names(file.read_text())) - STORED.get(path, set()):
                places[path] = sorted(participles)
    assert places == {}, "name what the value is: row, commit, finding"


def test_each_kind_of_name_is_noticed() -> None:
    source = "def told(wanted: int) -> None:\n    found = [made for made in ()]\n\nclass A:\n    kept: int = 0\n"
    assert PARTICIPLES.intersection(names(source)) == {"told", "wanted", "found", "made", "kept"}
