"""The page for users of Kafka Streams: its snippets run, and it names no operator that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.kafka_streams.cases import CASES, WITHOUT, Case
from support.kafka_streams.differences import DIFFERENCES
from support.kafka_streams.histories import drawn, hold_awkward, partition_of

from kappa import Source, Topology, operators

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "kafka-streams.md").read_text()


def test_the_snippets_of_the_page_make_a_topology() -> None:
    namespace: dict[str, object] = {}
    for text in re.findall(r"^```python[^\n]*\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL):
        exec(compile(text, "docs/kafka-streams.md", "exec"), namespace)
    stats = namespace["stats"]
    assert isinstance(stats, Topology)
    assert [output.name for output in stats.outputs] == ["stats", "stats-out", "late_records"]
    assert stats.tables[0].made_by.startswith("hopping_window(")


def test_every_operator_is_on_the_page_and_no_other() -> None:
    table = PAGE[PAGE.index("## Operators") : PAGE.index("## A window")]
    named = set(
        re.findall(r"`([a-z][a-z_]+)`", "\n".join(line.split("|")[2] for line in table.splitlines() if "|" in line))
    )
    is_said_elsewhere = {"agg", "masked", "deduplicate", "running_total", "two_phase"}
    assert set(operators.__all__) - is_said_elsewhere <= named
    assert named - {"final", "where"} <= set(operators.__all__)


def test_every_operator_has_a_comparison_or_no_counterpart() -> None:
    compared = {name for case in CASES.values() for name in case.of}
    assert compared.isdisjoint(WITHOUT)
    assert compared | set(WITHOUT) == set(operators.__all__) - {"agg"}
    assert all(name in case.text for case in CASES.values() for name in case.of)
    passage = PAGE[PAGE.index("Operators without a counterpart") : PAGE.index("## A window")]
    assert all(f"`{name}`" in passage for name in WITHOUT)


def test_the_page_lists_exactly_the_observed_differences() -> None:
    begin = PAGE.index("## Where the same records give other rows")
    table = PAGE[begin : PAGE.index("Where the rows are equal", begin)]
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("|")]
    assert rows[2:] == list(DIFFERENCES)


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_compared_records_are_awkward(case: Case) -> None:
    for seed in range(2):
        hold_awkward(drawn(case.history, seed), case.history, sides=2 if case.right else 1)
    assert drawn(case.history, 0) == drawn(case.history, 0) != drawn(case.history, 1)


def test_a_key_is_in_the_partition_of_the_java_client() -> None:
    # Source: org.apache.kafka.common.utils.UtilsTest.testMurmur2.
    for key, number in {"21": -973932308, "foobar": -790332482, "abc": 479470107}.items():
        assert partition_of(key) == (number & 0x7FFFFFFF) % 3


def test_state_of_closing_operators_expires() -> None:
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
