"""Statements that register published tables in engines: no two of one lake meet under one name."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

import polars
import pytest
from support.published_lake import Lake

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


@pytest.mark.parametrize("name", ["plain", "it's", "a+b", "a#b", "a?b", "50%", "a b", "é", 'a"b', "a<b"])
def test_polars_reads_a_path_or_its_statement_says_why_not(tmp_path: Path, name: str) -> None:
    lake = Lake(tmp_path / name)
    lake.create(1)
    lake.append(1, 1, "a")
    lake.publish(1)
    lines = statements(Engine.POLARS, "shop.sales", {"sales": lake.path})
    has_note = any(line.startswith("# sales: polars 2.1 finds no files below") for line in lines)
    try:
        is_read = polars.scan_delta(lake.path).collect().height == 1
    except FileNotFoundError:
        is_read = False
    assert is_read is not has_note


def test_on_s3_the_address_of_the_lake_says_the_same_but_for_a_percent_sign() -> None:
    """As a server of S3 answered: `s3://lake/50%/t` is read, and `s3://lake/a b/t` is not."""
    notes = {
        name: [line for line in statements(Engine.POLARS, "a", {"t": f"s3://lake/{name}/t"}) if "finds no" in line]
        for name in ("plain", "50%", "a b", "é")
    }
    assert [name for name, lines in notes.items() if lines] == ["a b", "é"]
