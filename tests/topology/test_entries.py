"""The lists of a topology have entries of their own kind, and nothing that would be ignored."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kappa import Append, Check, Source, Table, Topic, Topology
from kappa.errors import CodeError, TopologyError
from kappa.operators import agg, newest_by, tumbling_window
from kappa.topology import registry

TICKS = Source(topic="ticks", schema="id STRING NOT NULL, n BIGINT", grace="1 minute")
HOURS = tumbling_window(TICKS, key="id", size="1 hour", aggregates={"rows": agg.count()}, table="hours")
NEWEST = newest_by(TICKS, key="id", table="newest")
ROWS = Append(name="rows", schema="id STRING NOT NULL")
STATE = Table(name="state", key="id", schema="id STRING NOT NULL")


def topology(**changes: Any) -> Topology:
    parts = {"sources": [TICKS], "outputs": [ROWS], "step": lambda slice: {}}
    return Topology(**{"name": "test.entries", "version": "1", **parts, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"outputs": [HOURS.final]}, r"lists the rows of tumbling_window 'hours' among its outputs\. Give its rows a"),
        ({"outputs": [HOURS]}, r"lists tumbling_window 'hours' among its outputs\. Give its rows a name: outputs="),
        ({"outputs": [NEWEST]}, r"lists newest_by 'newest' among its outputs\. Its table 'newest' needs none\."),
        ({"outputs": ["x"]}, r"lists 'x' among its outputs\. List Append\("),
        ({"outputs": [Append]}, r"lists class Append among its outputs\. List Append\("),
        ({"outputs": [STATE]}, r"lists Table 'state' among its outputs\. List it there: tables=\["),
        ({"outputs": [Check(name="c", sql="SELECT 1")]}, r"lists Check 'c' among its outputs\. List it there: checks"),
        ({"outputs": [{"name": "rows", "schema": "id STRING" * 10}]}, r"lists dict .{50}\.\.\. among its outputs\."),
        ({"tables": [ROWS]}, r"lists Append 'rows' among its tables\. List it there: outputs=\["),
        ({"tables": [Topic(name="t", of="rows", key="id")]}, r"lists Topic 't' among its tables\. List it there: out"),
        ({"tables": [NEWEST]}, r"lists newest_by 'newest' among its tables\. List it there: operators=\["),
        ({"checks": ["n > 0"]}, r"lists 'n > 0' among its checks\. List Check\("),
        ({"checks": [lambda tables: True]}, r"lists function <lambda> among its checks\. List Check\("),
        ({"thresholds": ["hours.rows=0"]}, r"lists 'hours.rows=0' among its thresholds\. List Threshold\("),
        ({"sources": ["ticks"]}, r"lists 'ticks' among its sources\. List Source\("),
        ({"sources": [HOURS]}, r"lists tumbling_window 'hours' among its sources\. List it there: operators=\["),
        ({"operators": [tumbling_window]}, r"lists function tumbling_window among its operators\. List the result"),
        ({"operators": [TICKS]}, r"lists source 'ticks' among its operators\. List it there: sources=\["),
        ({"sources": TICKS}, r"has sources=source 'ticks', which is not a list\. Write sources=\["),
        ({"outputs": ROWS}, r"has outputs=Append 'rows', which is not a list\. Write outputs=\["),
        ({"operators": HOURS}, r"has operators=tumbling_window 'hours', which is not a list\. Write operators=\["),
        ({"tables": None}, r"has tables=None, which is not a list\. Write tables=\["),
        ({"thresholds": {"rows": 0}}, r"has thresholds=\{'rows': 0\}, which is not a list\. Write thresholds=\["),
        ({"checks": "n > 0"}, r"has checks='n > 0', which is not a list\. Write checks=\["),
        ({"outputs": []}, r"has neither a table nor an append output: it would do nothing\. Declare what it keeps"),
        ({"name": None}, "Topology name None must be lower-case words joined by dots"),
        ({"version": 1}, r"has version=1, which is not a text\. Write version='1'\."),
        ({"step": "step"}, r"has step='step', which is not a function\. Define one, .* step=step\."),
        ({"reprocess": "@daily"}, r"has reprocess='@daily', which is not a Schedule.* Write reprocess=Schedule\("),
    ],
)
def test_an_entry_of_another_kind_is_refused_with_what_to_write(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message) as refusal:
        topology(**changes)
    assert str(refusal.value).startswith("Topology ")


def test_entries_may_come_from_any_iterable_and_a_copy_has_them() -> None:
    declared = topology(outputs=(output for output in [ROWS]), checks={Check(name="c", sql="SELECT 1")})
    assert [output.name for output in replace(declared).outputs] == ["rows", "late_records"]


@pytest.mark.parametrize("output", ["hours.final", "'rows'"])
def test_code_that_an_epoch_ran_is_loaded_with_what_a_new_file_may_not_have(tmp_path: Path, output: str) -> None:
    (tmp_path / "entries.py").write_text(
        "from kappa import Source, Topology\n"
        "from kappa.operators import agg, tumbling_window\n"
        "ticks = Source(topic='ticks', schema='id STRING NOT NULL', grace='1 minute')\n"
        "hours = tumbling_window(ticks, key='id', size='1 hour', aggregates={'n': agg.count()}, table='hours')\n"
        "topology = Topology(name='test.entries', version='1', sources=[ticks], operators=[hours], "
        f"outputs=[{output}])\n"
    )
    assert [table.name for table in registry.load_stored(tmp_path, "test.entries").tables] == ["hours"]
    with pytest.raises(CodeError, match="among its outputs"):
        registry.load(tmp_path, "test.entries")
