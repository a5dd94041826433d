"""The examples of the front door: each public name has one in its docstring, and it gives what it says."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.live_lake import live_lake

import kappa
from kappa import operators, serving

#: What a user imports.
MODULES: tuple[ModuleType, ...] = (kappa, operators, serving)
_LINE = r"^\s*(>>>|\.\.\.).*"
_NEEDS_SPARK = re.compile(rf"{_LINE}\bspark\b", re.MULTILINE)
_NEEDS_LAKE = re.compile(rf"{_LINE}\bConfig\.from_env", re.MULTILINE)


def public(module: ModuleType) -> dict[str, Any]:
    """Names of classes and functions that a module offers: those of ``__all__``, or those that it defines."""
    names = getattr(module, "__all__", None) or [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    values = {name: getattr(module, name) for name in names}
    return {name: value for name, value in values.items() if inspect.isclass(value) or inspect.isfunction(value)}


def examples(value: Any, name: str) -> list[doctest.DocTest]:
    """The examples of a class, with its methods, or of a function. Each docstring stands for itself: it imports."""
    tests = doctest.DocTestFinder(recurse=True).find(value, name, module=False, globs={})
    return [test for test in tests if test.examples]


def cases() -> Iterator[Any]:
    for module in MODULES:
        for name, value in public(module).items():
            marks = [pytest.mark.spark] if _needs(_NEEDS_SPARK, examples(value, name)) else []
            yield pytest.param(value, id=f"{module.__name__}.{name}", marks=marks)


def _needs(what: re.Pattern[str], tests: list[doctest.DocTest]) -> bool:
    return any(what.search(test.docstring or "") for test in tests)


@pytest.mark.parametrize("value", list(cases()))
def test_a_public_name_has_an_example_that_holds(
    value: Any, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = examples(value, value.__name__)
    assert tests, f"{value.__name__} has no example: its docstring needs a section Examples with '>>>' lines"
    globs = dict(vars(inspect.getmodule(value)))  # as help() shows it: names beside it are known
    if _needs(_NEEDS_LAKE, tests):
        live_lake(tmp_path, monkeypatch)
    if _needs(_NEEDS_SPARK, tests):
        globs["spark"] = request.getfixturevalue("spark")
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    output: list[str] = []
    for test in tests:
        test.globs = dict(globs)
        runner.run(test, out=output.append)
    assert not runner.failures, "".join(output)
