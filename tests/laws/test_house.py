"""The law of the house: few doors on one floor, and each thing under one name.

Which room may import which is the contract of `pyproject.toml`; this is what it cannot say.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest

INCLUDE = Path(__file__).resolve().parents[2] / "include"
PACKAGES = ("kappa", "kappa_airflow", "kappa_local", "kappa_web")
MOST_MODULES = 18


@cache
def modules() -> list[tuple[Path, ast.Module]]:
    """Files of the platform, by their place below `include`."""
    files = [file for package in PACKAGES for file in sorted((INCLUDE / package).rglob("*.py"))]
    return [(file.relative_to(INCLUDE), ast.parse(file.read_text())) for file in files]


def crowded(files: list[Path], most: int) -> dict[str, int]:
    """Folders with too many modules of their own."""
    counted = Counter(str(file.parent) for file in files if file.name != "__init__.py")
    return {folder: count for folder, count in counted.items() if count > most}


def shared_names(trees: list[tuple[Path, ast.Module]]) -> dict[str, list[str]]:
    """Classes that two modules define under one name."""
    places: dict[str, list[str]] = defaultdict(list)
    for file, tree in trees:
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(file))
    return {name: files for name, files in places.items() if len(files) > 1}


def private_imports(trees: list[tuple[Path, ast.Module]]) -> list[str]:
    """Names with a leading underscore that a module takes from another one."""
    return [
        f"{file}: {node.module}.{name.name}"
        for file, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PACKAGES
        for name in node.names
        if name.name.startswith("_")
    ]


def open_processes(trees: list[tuple[Path, ast.Module]]) -> list[str]:
    """Commands of this Python that begin to import in the working folder: without option ``-P``."""
    return [
        f"{file}:{node.lineno}"
        for file, tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.List | ast.Tuple) and [ast.unparse(one) for one in node.elts[:1]] == ["sys.executable"]
        if any(isinstance(one, ast.Constant) and one.value != "-P" for one in node.elts[1:2])
    ]


def in_circles(imports: dict[str, set[str]]) -> set[str]:
    """Modules that import one another, by whatever way round, and those between two such; imports for types count."""
    rest = dict(imports)
    while ends := {n for n in rest if not rest[n] & rest.keys() or not any(n in ways for ways in rest.values())}:
        rest = {name: ways for name, ways in rest.items() if name not in ends}
    return set(rest)


def imports_of(trees: list[tuple[Path, ast.Module]]) -> dict[str, set[str]]:
    """Module -> the modules of the platform that it imports."""
    named = {".".join(file.with_suffix("").parts).removesuffix(".__init__"): tree for file, tree in trees}
    ways: dict[str, set[str]] = {name: set() for name in named}
    for name, tree in named.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                ways[name] |= {one.name for one in node.names if one.name in named}
            elif isinstance(node, ast.ImportFrom) and node.module:
                for one in node.names:
                    inner = f"{node.module}.{one.name}"
                    ways[name] |= {target for target in (inner if inner in named else node.module,) if target in named}
        ways[name].discard(name)
    return ways


def test_no_modules_import_one_another() -> None:
    assert in_circles(imports_of(modules())) == set()


def test_a_circle_of_imports_is_noticed() -> None:
    files = {
        "a/b.py": "from a.c import x",
        "a/c.py": "if TYPE_CHECKING:\n    from a import d",
        "a/d.py": "import a.b",
        "a/e.py": "from a.b import y",
    }
    trees = [(Path(file), ast.parse(text)) for file, text in files.items()]
    assert in_circles(imports_of(trees)) == {"a.b", "a.c", "a.d"}


def test_no_room_has_too_many_modules() -> None:
    assert crowded([file for file, _ in modules()], MOST_MODULES) == {}


def test_no_two_classes_share_a_name() -> None:
    assert shared_names(modules()) == {}


def test_no_two_modules_of_tests_share_a_name() -> None:
    """Pytest imports them by their names alone, and leaves out the second one with an error at the end of a run."""
    names = Counter(file.name for file in (INCLUDE.parent / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_module_imports_a_private_name() -> None:
    assert private_imports(modules()) == []


@pytest.mark.parametrize("text", ["from kappa.names import _EPOCH", "from kappa_web.lake import known, _other"])
def test_a_private_import_is_noticed(text: str) -> None:
    assert len(private_imports([(Path("a.py"), ast.parse(text))])) == 1


def test_no_process_imports_what_lies_in_the_working_folder() -> None:
    assert open_processes(modules()) == []


def test_a_process_that_imports_from_there_is_noticed() -> None:
    tree = ast.parse("a = [sys.executable, '-c', b]\nc = (sys.executable, '-P', '-m', 'd')\nf(*[sys.executable])")
    assert open_processes([(Path("a.py"), tree)]) == ["a.py:1"]


def test_a_second_class_and_a_full_room_are_noticed() -> None:
    tree = ast.parse("class Span: ...")
    assert shared_names([(Path("a.py"), tree), (Path("b.py"), tree)]) == {"Span": ["a.py", "b.py"]}
    files = [Path("room", f"m{number}.py") for number in range(MOST_MODULES + 1)]
    assert crowded(files, MOST_MODULES) == {"room": MOST_MODULES + 1}
    assert crowded(files[1:], MOST_MODULES) == {}
