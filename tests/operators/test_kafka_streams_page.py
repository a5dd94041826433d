"""The page for users of Kafka Streams: its snippets run, and it names no operator that is not there."""

from __future__ import annotations

import re
from pathlib import Path

from kappa import Topology, operators

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "kafka-streams.md").read_text()


def test_the_snippets_of_the_page_make_a_topology() -> None:
    found: dict[str, object] = {}
    for text in re.findall(r"^```python[^\n]*\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        exec(compile(text, "docs/kafka-streams.md", "exec"), found)
    stats = found["stats"]
    assert isinstance(stats, Topology)
    assert [output.name for output in stats.outputs] == ["stats", "stats-out", "late_records"]
    assert stats.tables[0].made_by.startswith("hopping_window(")


def test_every_operator_is_on_the_page_and_no_other() -> None:
    table = PAGE[PAGE.index("## Operators") : PAGE.index("## A window")]
    named = set(
        re.findall(r"`([a-z][a-z_]+)`", "\n".join(line.split("|")[2] for line in table.splitlines() if "|" in line))
    )
    is_said_elsewhere = {
        "agg",
        "late_records",
        "masked",
        "deduplicate",
        "running_total",
        "threshold_crossings",
        "two_phase",
    }
    assert set(operators.__all__) - is_said_elsewhere <= named
    assert named - {"final", "where"} <= set(operators.__all__)


def test_the_state_of_what_closes_expires() -> None:
    rows = "id STRING NOT NULL, amount BIGINT"
    total = {"total": operators.agg.sum("amount")}
    joined = operators.interval_join(left=rows, right=rows, key="id", within="1 minute")
    as_of = operators.table_join(left=rows, table="id STRING NOT NULL, name STRING", key="id")
    tables = [
        operators.tumbling_window(rows=rows, key="id", size="1 minute", aggregates=total).table("t"),
        operators.session_window(rows=rows, key="id", gap="1 minute", aggregates=total).table("t"),
        operators.sliding_window(rows=rows, key="id", size="1 minute", aggregates=total).table("t"),
        operators.at_most_every(rows=rows, key="id", every="1 minute").table("t"),
        joined.left_table("t"),
        joined.right_table("t"),
        as_of.waiting_table("t"),
        as_of.versions_table("t"),
    ]
    assert all(table.expires for table in tables)
    assert not operators.aggregate(rows=rows, key="id", aggregates=total).table("t").expires
