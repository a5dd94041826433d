"""The law of tests: what a test takes the place of is public.

A private name may go or change its meaning at any time, and a test that replaced it then goes on without testing
anything. What has a seam is an argument, a public function of a module or a constant that states a limit of it.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
#: Methods of pytest's ``monkeypatch``, and the function, that take a name.
PATCHES = ("setattr", "delattr")


def is_private(name: str) -> bool:
    """Whether a name, or a part of a dotted one, is private; those of Python's own protocols are not."""
    return any(part.startswith("_") and not part.endswith("__") for part in name.split("."))


def named(call: ast.Call) -> str:
    """The constant parts of the name that a call patches: of the first argument where that is a text."""
    texts = [argument for argument in call.args[:2] if isinstance(argument, (ast.Constant, ast.JoinedStr))][:1]
    return "".join(str(part.value) for text in texts for part in ast.walk(text) if isinstance(part, ast.Constant))


def private_patches(text: str) -> list[int]:
    """Lines in which something is put in the place of a private name."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    return [
        call.lineno
        for call in calls
        if (call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")) in PATCHES
        and is_private(named(call))
    ]


def test_no_test_replaces_a_private_name() -> None:
    files = {file.relative_to(TESTS): file.read_text() for file in sorted(TESTS.rglob("*.py"))}
    lines_by_file = {
        str(file): private_patches(text) for file, text in files.items() if any(f"{p}(" in text for p in PATCHES)
    }
    assert {file: lines for file, lines in lines_by_file.items() if lines} == {}


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ('monkeypatch.setattr(tables, "_is_written", lambda *_: True)', True),
        ('monkeypatch.setattr("kappa.delta.append_log._KEEP_HOURS", 0)', True),
        ('patch.setattr(f"kappa.delta._{name}", 0)', True),
        ('setattr(tables, "_is_written", None)', True),
        ('monkeypatch.delattr(driver, "_live")', True),
        ('monkeypatch.setattr(append_log, "KEEP_HOURS", 0)', False),
        ('monkeypatch.setattr(sys, "argv", ["_"])', False),
        ('monkeypatch.setattr(module, "__file__", "_")', False),
        ('monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "x")', False),
    ],
)
def test_a_patch_of_a_private_name_is_noticed(text: str, is_refused: bool) -> None:
    assert private_patches(text) == ([1] if is_refused else [])
