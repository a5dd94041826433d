"""What a driver needs is stored with its code: the same ranges as in the wheel, for all that a driver imports."""

from __future__ import annotations

import ast
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

import kappa
from kappa.environments import requirements

PLATFORM = Path(kappa.__file__).parent


def test_the_ranges_are_those_of_the_wheel() -> None:
    project = tomllib.loads((PLATFORM.parents[1] / "pyproject.toml").read_text())["project"]
    wheel = [*project["dependencies"], *project["optional-dependencies"]["driver"]]
    assert list(requirements.REQUIREMENTS) == wheel
    assert project["requires-python"] == requirements.PYTHON


def test_each_library_that_the_platform_imports_is_one_of_them() -> None:
    imports = {
        name.partition(".")[0]: str(file.relative_to(PLATFORM))
        for file in PLATFORM.rglob("*.py")
        if file.relative_to(PLATFORM).parts[0] not in ("cli", "serving", "testing")
        for node in ast.walk(ast.parse(file.read_text()))
        for name in (
            [one.name for one in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    others = imports.keys() - sys.stdlib_module_names - {"kappa", "py4j"}  # the latter comes with pyspark
    others -= {module.partition(".")[0] for module in requirements.REQUIREMENTS.values()}
    assert {name: imports[name] for name in others} == {}


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        ("1.6.5", False),
        ("1.6.6", True),
        ("1.6.6.post1", True),
        ("1.6.10", True),
        ("1.7", False),
        ("1.7.0", False),
        ("1.7.0rc1", False),
        ("2", False),
    ],
)
def test_a_range_has_its_first_version_and_not_its_last(number: str, expected: bool) -> None:
    assert requirements.is_in(number, ">=1.6.6,<1.7") is expected


def test_zeros_at_the_end_of_a_version_do_not_count() -> None:
    assert requirements.is_in("2", ">=2.0") and requirements.is_in("2.0.0", ">=2")
    assert not requirements.is_in("3", "<3.0")


@pytest.mark.parametrize("requirement", ["pyarrow~=20", "pyarrow>=20; python_version<'3.12'", "pyarrow", "a>=1,!=2"])
def test_a_requirement_of_another_form_is_not_passed_over(requirement: str) -> None:
    with pytest.raises(ValueError, match="is not a name with ranges"):
        requirements.parts(requirement)


def test_what_is_installed_elsewhere_than_in_a_range_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert requirements.unmet() == []
    more = {"pyarrow>=999": "pyarrow", "not-installed>=1": "not_installed"}
    monkeypatch.setattr(requirements, "REQUIREMENTS", more)
    monkeypatch.setattr(requirements, "PYTHON", "<3")
    python, pyarrow = requirements.unmet()
    assert python.endswith(", not <3")
    assert pyarrow == f"pyarrow is {version('pyarrow')}, not >=999"
    with pytest.raises(PackageNotFoundError):
        version("not-installed")
