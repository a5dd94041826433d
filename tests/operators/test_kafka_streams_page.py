"""The page for users of Kafka Streams: its snippets run, and it names no operator that is not there."""

from __future__ import annotations

import re
from pathlib import Path

from kappa import Source, Topology, operators

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
    is_said_elsewhere = {"agg", "masked", "deduplicate", "running_total", "threshold_crossings", "two_phase"}
    assert set(operators.__all__) - is_said_elsewhere <= named
    assert named - {"final", "where"} <= set(operators.__all__)


def test_the_state_of_what_closes_expires() -> None:
    orders, payments, products = (
        Source(topic=topic, schema=f"id STRING NOT NULL, {column}", grace="1 minute")
        for topic, column in {"orders": "amount BIGINT", "payments": "amount BIGINT", "products": "name STRING"}.items()
    )
    total = {"total": operators.agg.sum("amount")}
    closing = [
        operators.tumbling_window(orders, key="id", size="1 minute", aggregates=total, table="t"),
        operators.session_window(orders, key="id", gap="1 minute", aggregates=total, table="t"),
        operators.sliding_window(orders, key="id", size="1 minute", aggregates=total, table="t"),
        operators.at_most_every(orders, key="id", every="1 minute", table="t"),
        operators.interval_join(orders, payments, key="id", within="1 minute", tables=("left", "right")),
        operators.table_join(orders, products, key="id", tables=("waiting", "versions")),
    ]
    tables = [table for operator in closing for table in operator.tables]
    assert len(tables) == 8
    assert all(table.expires for table in tables)
    assert not operators.aggregate(orders, key="id", aggregates=total, table="t").tables[0].expires
