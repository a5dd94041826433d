"""Statements that register published tables in engines: no two of one lake meet under one name."""

from __future__ import annotations

import keyword
import re

import pytest

from kappa.serving.registrations import DIALECTS, Engine, rivals, statements

#: Topologies, the oldest first, with tables whose names are the same with ``_`` for each dot, or mean something.
LAKE = {
    "retail.loyalty": ("rewards", "class", "pl"),
    "retail_loyalty": ("rewards", "a.b", "a_b", "a__b"),
    "retail_loyalty_2": ("rewards",),
    "retail": ("loyalty.rewards", "loyalty__rewards"),
    "retail.loyalty_": ("rewards",),
    "pl": ("class",),
    "class": ("pl",),
}


def of_lake(engine: Engine) -> list[str]:
    """The statements of all tables, each of which has a path of its own."""
    lines = []
    for topology, tables in LAKE.items():
        paths = {table: f"/lake/{topology}/{table}" for table in tables}
        lines += statements(engine, topology, paths, topologies=list(LAKE))
    return lines


@pytest.mark.parametrize("engine", Engine)
def test_each_table_of_a_lake_has_a_name_of_its_own(engine: Engine) -> None:
    lines = [line for line in of_lake(engine) if not line.startswith(DIALECTS[engine].comment) and "/" in line]
    lines = [re.sub("^/?lake/", "", line) for line in lines]
    names = [re.sub(r"'/?lake/[^']*'", "", line) for line in lines]
    assert len(lines) == sum(map(len, LAKE.values())) and len(set(names)) == len(names)


def test_variables_of_polars_are_no_words_of_python_and_hide_none() -> None:
    names = [line.partition(" = ")[0] for line in of_lake(Engine.POLARS) if " = pl.scan_delta" in line]
    assert [name for name in names if not name.isidentifier() or keyword.iskeyword(name) or name == "pl"] == []


@pytest.mark.parametrize("engine", Engine)
def test_the_oldest_topology_keeps_its_schema_and_the_next_one_says_what_it_has(engine: Engine) -> None:
    comment, paths = DIALECTS[engine].comment, {"rewards": "/lake/t/rewards"}
    of_first, of_second = (
        statements(engine, name, paths, topologies=["retail.loyalty", "retail_loyalty"])
        for name in ("retail.loyalty", "retail_loyalty")
    )
    assert of_first == statements(engine, "retail.loyalty", paths)
    note = "retail_loyalty_2 stands for topology retail_loyalty: topology retail.loyalty has the name retail_loyalty."
    assert f"{comment} {note}" in of_second and "retail_loyalty_2" in of_second[-1]


def test_rivals_are_topologies_that_some_engine_would_name_alike() -> None:
    assert rivals("retail.loyalty", LAKE) == ["retail.loyalty", "retail_loyalty", "retail.loyalty_"]
    assert rivals("pl", LAKE) == ["pl"]
