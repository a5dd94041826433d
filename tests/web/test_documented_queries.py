"""The addresses of the page on queries are those of tables that the shipped topologies keep."""

from __future__ import annotations

import re
from pathlib import Path

from kappa.topology.registry import load

ROOT = Path(__file__).resolve().parents[2]


def test_each_address_on_the_page_names_a_table_or_an_output() -> None:
    addresses = set(re.findall(r"`?/tables/([\w.]+)/([\w-]+)", (ROOT / "docs" / "queries.md").read_text()))
    assert len(addresses) > 3
    for name, table in sorted(addresses):
        topology = load(ROOT / "include" / "topologies", name)
        assert table in {member.name for member in (*topology.tables, *topology.appends)}, f"{name}/{table}"
