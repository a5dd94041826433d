"""Readers get the results of tables that operators keep, by the epoch's own ledger, on every way to a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partialmethod
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from support.internal_columns import HIDING, KEY, place_of, results_of, row_of, topology_of, topology_of_all
from support.web_site import Site
from typer.testing import CliRunner

import kappa_web.lake
from kappa import serving
from kappa.cli import app
from kappa.delta.queries import quoted_name
from kappa.errors import UsageError
from kappa.record.ledger import Ledger
from kappa.record.ledger_rows import LedgerRow
from kappa.topology import Topology

NAME = "tests.results"
#: Operators whose tables have something to hide, and one whose table is state alone.
LOOKED_AT = [*HIDING, "interval_join"]
T = f"{NAME}.aggregate"


def put(site: Site, number: int) -> None:
    """A slice that gives each table of an operator a row."""
    tables = {table.name: [row_of(table, number)] for table in site.topology.tables}
    site.epoch.put_into(tables)


def site_of(base: Path, topology: Topology | None = None) -> Site:
    """A site whose tables have a row that is merged, and one that is not."""
    site = Site(base, topology or topology_of_all(LOOKED_AT))
    put(site, 1)
    site.epoch.merge_after(1e9)
    put(site, 2)
    return site


@pytest.fixture(scope="module", autouse=True)
def no_broker() -> Iterator[None]:
    """Answers over HTTP do not wait for a broker that is not there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kappa_web.lake, "BROKER_SECONDS", 0.01)
        yield


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A site with a table of each operator, which tests only read."""
    return site_of(tmp_path_factory.mktemp("results"))


def answers(site: Site, name: str) -> dict[str, list[str]]:
    """Way to the rows of a table -> their columns."""
    snapshot = serving.snapshot(site.config, NAME)
    with duckdb.connect() as connection:
        by_duckdb = snapshot.duckdb(name, connection).columns
    return {
        "rows": snapshot.rows(name).column_names,
        "arrow": snapshot.arrow(name).column_names,
        "polars": snapshot.polars(name).collect().columns,
        "duckdb": by_duckdb,
        "sql": serving.sql(site.config, f"SELECT * FROM {NAME}.{name}").column_names,
        "sql of a join": serving.sql(site.config, f"SELECT a.* FROM {NAME}.{name} AS a, {NAME}.{name}").column_names,
        "kappa query": columns(site, "query", NAME, name),
        "kappa sql": columns(site, "sql", f"SELECT {name}.* FROM {NAME}.{name}"),
        "scan": list(site.get(f"/tables/{NAME}/{name}").json()["rows"][0]),
        "metadata": list(site.get(f"/metadata/{NAME}").json()["tables"][name]["columns"]),
    }


def columns(site: Site, *words: str) -> list[str]:
    run = CliRunner().invoke(app, [*words, "--json"], env=site.config.to_env())
    assert run.exception is None, run.output
    return list(json.loads(run.output)["rows"][0])


@pytest.mark.parametrize("name", LOOKED_AT)
def test_every_way_to_read_rows_shows_only_results(site: Site, name: str) -> None:
    columns_by_way = answers(site, place_of(name))
    assert columns_by_way == dict.fromkeys(columns_by_way, results_of(name))


def test_the_row_of_a_key_has_the_results_before_and_after_it_is_merged(site: Site) -> None:
    for key in ("1", "2"):
        assert list(site.get(f"/tables/{NAME}/aggregate/{key}").json()["row"]) == results_of("aggregate")
        row = serving.snapshot(site.config, NAME).row("aggregate", f"{OWN} = '{key}'")
        assert row.column_names == results_of("aggregate") and row.num_rows == 1


def test_rows_are_selected_and_ordered_by_results(site: Site) -> None:
    snapshot = serving.snapshot(site.config, NAME)
    assert snapshot.rows("aggregate", f"{OWN} > '0'", order_by=f"{OWN} DESC", select=OWN)[KEY].to_pylist() == ["2", "1"]
    assert snapshot.rows("aggregate", '"A count" > 1').num_rows == 1
    assert serving.sql(site.config, f"SELECT COUNT(*) AS n FROM {T} JOIN {T} AS b USING ({OWN})").to_pylist() == [
        {"n": 2}
    ]


OWN = quoted_name(KEY)
HIDDEN = '"A avg__sum"'
QUESTIONS: list[Callable[[Site], Any]] = [
    lambda site: serving.sql(site.config, f"SELECT {HIDDEN} FROM {T}"),
    lambda site: serving.sql(site.config, f"SELECT a.{HIDDEN} FROM {T} AS a"),
    lambda site: serving.sql(site.config, f"SELECT 1 FROM {T} WHERE {T}.{HIDDEN} > 1"),
    lambda site: serving.snapshot(site.config, NAME).rows("aggregate", f"{HIDDEN} > 1"),
    lambda site: serving.snapshot(site.config, NAME).rows("aggregate", select=HIDDEN),
    lambda site: serving.snapshot(site.config, NAME).rows("aggregate", order_by=HIDDEN),
    lambda site: columns(site, "query", NAME, "aggregate", "--where", f"{HIDDEN} > 1"),
]


@pytest.mark.parametrize("ask", QUESTIONS)
def test_a_query_of_an_internal_column_is_refused_with_its_operator(
    site: Site, ask: Callable[[Site], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CliRunner, "invoke", partialmethod(CliRunner.invoke, catch_exceptions=False))
    with pytest.raises(UsageError, match=r"Column 'A avg__sum' of tests\.results\.aggregate is one that its operator"):
        ask(site)


def test_unknown_columns_are_refused_as_before(site: Site) -> None:
    with pytest.raises(UsageError, match="No field named"):
        serving.sql(site.config, f"SELECT nothing FROM {T}")


def test_a_field_of_a_column_is_not_taken_for_a_column(site: Site) -> None:
    for expression in (
        'origin["_offset"]',
        "newest_by.origin",
        "a.origin._offset FROM tests.results.newest_by AS a, (SELECT 1)",
    ):
        query = f"SELECT {expression}" if " FROM " in expression else f"SELECT {expression} FROM {NAME}.newest_by"
        with pytest.raises(UsageError, match="Column 'origin' of"):
            serving.sql(site.config, query)
    named = serving.sql(site.config, f"SELECT n AS origin FROM {NAME}.newest_by ORDER BY origin")
    assert named["origin"].to_pylist() == [1, 2]


def test_an_epoch_of_earlier_code_shows_all_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append = Ledger.append

    def earlier(ledger: Ledger, row: LedgerRow) -> LedgerRow:
        for shape in row.detail.get("shapes", {}).values():
            del shape["hidden"]
        return append(ledger, row)

    monkeypatch.setattr(Ledger, "append", earlier)
    site = site_of(tmp_path, topology_of("aggregate"))
    everything = [column.name for column in site.topology.table("t").columns]
    columns_by_way = answers(site, "t")
    assert columns_by_way == dict.fromkeys(columns_by_way, everything)
    assert len(everything) > len(results_of("aggregate"))


def test_a_masked_column_is_withheld_and_its_internal_columns_are_absent(tmp_path: Path) -> None:
    declared = topology_of("aggregate")
    masked = replace(declared.operators[0].tables[0], masked=["A last", "A last__last"])
    site = site_of(tmp_path, replace(declared, tables=[masked]))
    answer = site.get(f"/tables/{NAME}/t").json()
    assert answer["withheld"] == ["A last"] and list(answer["rows"][0]) == results_of("aggregate")


def test_the_delta_table_has_every_column_at_its_path(site: Site) -> None:
    path, version = serving.snapshot(site.config, NAME).place("aggregate")
    there = pa.schema(DeltaTable(path, version=version).schema().to_arrow()).names
    assert there == [column.name for column in site.topology.table("aggregate").columns]
