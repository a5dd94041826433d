"""Names that others rely on: none comes, goes or changes without a look at docs/compatibility.md."""

from __future__ import annotations

from typing import Any

import pytest
from support.scripts import script_module

RENEW = "then run `python scripts/exported_names.py`"


@pytest.fixture(scope="module")
def script() -> Any:
    """The script that writes the list."""
    return script_module("exported_names")


def entries(lines: list[str]) -> dict[str, str]:
    """Name, with its section -> what belongs to it."""
    section, named = "", {}
    for line in lines:
        if line.startswith("# "):
            section = line[2:]
        else:
            name, _, rest = line.partition("  ")
            named[f"{section}: {name}"] = rest
    return named


def objections(listed: list[str], exported: list[str]) -> list[str]:
    """A sentence for each name that came, went or changed, which says what to do."""
    before, now = entries(listed), entries(exported)
    sentences = [
        f"{name} is gone. A name of a release is retired in three steps, docs/compatibility.md#how-a-name-is-retired; "
        f"one that no release had may go: {RENEW}."
        for name in before.keys() - now.keys()
    ]
    sentences += [
        f"{name} is new, and others will rely on it. Give it its place in docs and CHANGELOG.md, {RENEW}."
        for name in now.keys() - before.keys()
    ]
    sentences += [
        f"{name} changed from {before[name]!r} to {now[name]!r}. Where what worked before still works, {RENEW}; where "
        "it does not, follow docs/compatibility.md#how-a-name-is-retired."
        for name in before.keys() & now.keys()
        if before[name] != now[name]
    ]
    return sorted(sentences)


def test_the_list_has_exactly_the_names_that_are_exported(script: Any) -> None:
    assert objections(script.FILE.read_text().splitlines(), list(script.lines())) == []


def test_each_kind_of_change_is_named_with_what_to_do() -> None:
    before = ["# Python", "kappa.a  (x: int)", "kappa.b", "# Settings", "KAPPA_A  1"]
    after = ["# Python", "kappa.a  (x: int, y: int)", "kappa.c", "# Settings", "KAPPA_A  1"]
    changed, gone, new = objections(before, after)
    assert changed.startswith("Python: kappa.a changed from '(x: int)' to '(x: int, y: int)'")
    assert gone.startswith("Python: kappa.b is gone") and "docs/compatibility.md" in gone
    assert new.startswith("Python: kappa.c is new") and "CHANGELOG.md" in new
    assert objections(before, before) == []


def test_the_list_has_what_a_topology_a_program_and_a_dashboard_use(script: Any) -> None:
    names = entries(script.FILE.read_text().splitlines())
    assert "owner: str = ''" in names["Python: kappa.Topology"]
    assert names["Commands: kappa cutover"].startswith("TOPOLOGIES... ")
    assert names["Settings: KAPPA_SLICE_RECORDS"] == "500000"
    assert "Metrics, alerts and notices: kappa_lag_records" in names
    assert "Places in the lake and names in Kafka: <lake>/_kappa/epochs" in names
