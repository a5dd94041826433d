"""The page of scenarios: every row names existing tests, or says that it is not built."""

from __future__ import annotations

from pathlib import Path

from support.scripts import script_module

ROOT = Path(__file__).resolve().parents[1]
NOT_BUILT: set[str] = set()


def rows() -> dict[str, tuple[str, ...]]:
    page = (ROOT / "docs" / "scenarios.md").read_text()
    tests: dict[str, tuple[str, ...]] = script_module("scenario").tests_of(page)
    return tests


def test_every_scenario_has_a_row() -> None:
    numbers = {"P": 11, "Q": 4, "L": 8, "I": 6, "K": 5}
    assert set(rows()) == {f"{letter}{number}" for letter, last in numbers.items() for number in range(1, last + 1)}


def test_a_row_names_existing_tests_or_is_not_built() -> None:
    assert {row for row, tests in rows().items() if not tests} == NOT_BUILT
    for row, tests in rows().items():
        for test in tests:
            path, _, name = test.partition("::")
            text = (ROOT / path).read_text()
            assert name.partition("[")[0].split("::")[0] in text, f"{row}: {test}"


def test_every_shipped_topology_is_on_the_page() -> None:
    from kappa.topology import registry

    page = (ROOT / "docs" / "scenarios.md").read_text()
    names = {topology.name for topology in registry.declared(ROOT / "include" / "topologies")}
    assert {name for name in names if f"`{name}`" not in page} <= {"logs.browser_windows_now", "logs.captcha_global"}
