"""Arguments of a wrong type are refused by the name of the operator, with what to write."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from kappa import Source, Table, operators
from kappa.errors import TopologyError
from kappa.operators import agg, arguments

ROW = "id STRING NOT NULL, n BIGINT, d DECIMAL(10,2), at TIMESTAMP"
LEFT = Source(topic="left", schema=ROW, time="at", grace="1 minute")
RIGHT = Source(topic="right", schema=ROW, time="at", grace="1 minute")
OPEN = operators.tumbling_window(LEFT, key="id", size="1 hour", aggregates={"n": agg.count()}, table="open")
COUNT = {"rows": agg.count()}
#: Operator -> a declaration that is accepted.
DECLARATIONS: dict[str, dict[str, Any]] = {
    "aggregate": {"of": LEFT, "key": "id", "aggregates": COUNT, "table": "t"},
    "tumbling_window": {"of": LEFT, "key": "id", "size": "1 hour", "aggregates": COUNT, "table": "t"},
    "hopping_window": {
        **{"of": LEFT, "key": "id", "size": "1 hour", "every": "10 minutes", "aggregates": COUNT, "table": "t"},
        **{"keep": "1 day", "zone": None},
    },
    "session_window": {"of": LEFT, "key": "id", "gap": "1 hour", "aggregates": COUNT, "table": "t"},
    "sliding_window": {"of": LEFT, "key": "id", "size": "1 hour", "aggregates": COUNT, "table": "t"},
    "at_most_every": {"of": LEFT, "key": "id", "every": "1 hour", "table": "t"},
    "deduplicate": {"of": LEFT, "key": "id", "within": "1 hour", "table": "t"},
    "two_phase": {"of": LEFT, "key": "id", "aggregates": COUNT, "table": "t", "salts": 4},
    "newest_by": {"of": LEFT, "key": ("id",), "table": "t"},
    "running_total": {"of": LEFT, "key": "id", "amount": "n", "total": "s", "table": "t", "thresholds": {7, 9}},
    "cogroup": {"of": {"l": LEFT}, "key": "id", "aggregates": {"l": COUNT}, "table": "t", "rows": {"l": ROW}},
    "interval_join": {"left": LEFT, "right": RIGHT, "key": {"id": "id"}, "within": "1 hour", "tables": ["a", "b"]},
    "table_join": {"left": LEFT, "versions": RIGHT, "key": "id", "tables": ("a", "b")},
    "newest_table_join": {"left": LEFT, "changes": RIGHT, "key": ["id"], "table": "t"},
    "lookup": {"left": LEFT, "changes": RIGHT, "key": "id", "table": "t"},
    "versions_by": {"of": LEFT, "key": "id", "table": "t"},
}


def declared(operator: str, **changes: Any) -> Any:
    return getattr(operators, operator)(**{**DECLARATIONS[operator], **changes})


@pytest.mark.parametrize("operator", DECLARATIONS)
def test_a_declaration_of_right_types_is_accepted(operator: str) -> None:
    assert declared(operator).tables


@pytest.mark.parametrize(
    ("operator", "changes", "message"),
    [
        *(
            (
                operator,
                {"aggregates": wrong},
                rf"has aggregates={shown}, which is not a dict .* Write .*: agg\.count\(\)\}}",
            )
            for operator in ("aggregate", "tumbling_window", "session_window", "sliding_window", "two_phase")
            for wrong, shown in [
                ({"n": agg.count}, r"\{'n': function count\}"),
                ({"n": "count"}, r"\{'n': 'count'\}"),
                ({5: agg.count()}, r"\{5: agg\.count\(\)\}"),
                ([agg.count()], r"\[agg\.count\(\)\]"),
                (agg.count(), r"agg\.count\(\)"),
            ]
        ),
        *(
            (operator, {name: wrong}, rf"has {name}={shown}, which is not a text\. Write {name}='10 minutes'\.")
            for operator, name in [
                ("tumbling_window", "size"),
                ("hopping_window", "every"),
                ("hopping_window", "keep"),
                ("session_window", "gap"),
                ("sliding_window", "size"),
                ("at_most_every", "every"),
                ("deduplicate", "within"),
                ("interval_join", "within"),
            ]
            for wrong, shown in [(60, "60"), (timedelta(hours=1), r"datetime\.timedelta\(seconds=3600\)")]
        ),
        *(
            (operator, {"key": wrong}, rf"has key={shown}, which is not a column.* Write key='id'\.")
            for operator in ("aggregate", "deduplicate", "newest_by", "interval_join", "lookup", "running_total")
            for wrong, shown in [(None, "None"), (5, "5"), (["id", 5], r"\['id', 5\]")]
        ),
        ("aggregate", {"table": None}, r"^aggregate has table=None, which is not a text\. Write table='spending'\."),
        ("newest_by", {"table": Table(name="x", key="n", schema="n INT NOT NULL")}, r"has table=Table 'x', which is"),
        (
            "aggregate",
            {"rows": ["id STRING"]},
            r"has rows=\['id STRING'\], which is not a text\. Write rows='id STRING",
        ),
        (
            "cogroup",
            {"rows": ROW},
            r"has rows=str 'id STRING .* which is not a dict from streams to their rows\. Write rows=",
        ),
        (
            "cogroup",
            {"of": [LEFT]},
            r"has of=\[source 'left'\], which is not a dict .* Write of=\{'orders': orders\}\.",
        ),
        ("cogroup", {"aggregates": COUNT}, r"which is not a dict from streams to dicts of aggregates\. Write aggreg"),
        ("interval_join", {"tables": "ab"}, r"has tables='ab', which is not the names of two tables\. Write tables=\("),
        ("interval_join", {"tables": "waiting"}, r"has tables='waiting', which is not the names of two tables\. Write"),
        ("interval_join", {"tables": ("x",)}, r"has tables=\('x',\), which is not the names of two tables\. Write tab"),
        (
            "table_join",
            {"tables": ("x", 5)},
            r"has tables=\('x', 5\), which is not the name .* Write tables=\('waiting_",
        ),
        (
            "interval_join",
            {"key": {"id": 5}},
            r"has key=\{'id': 5\}, which is not a column, a list .* Write key='id'\.",
        ),
        ("running_total", {"thresholds": 1000}, r"has thresholds=1000, which is not a list .* Write thresholds=\[100"),
        ("running_total", {"thresholds": ["1000", 5]}, r"has thresholds=\['1000', 5\], which is not a list of int or"),
        (
            "running_total",
            {"thresholds": [Decimal("NaN")]},
            r"has thresholds=\[Decimal\('NaN'\)\], which is not a list",
        ),
        (
            "running_total",
            {"thresholds": [True]},
            r"has thresholds=\[True\], which is not a list of int or Decimal\. W",
        ),
        ("running_total", {"every": "5"}, r"has every='5', which is not an int or a Decimal\. Write every=100\."),
        ("running_total", {"total": None}, r"has total=None, which is not a text\. Write total='spent'\."),
        ("running_total", {"amount": 5}, r"has amount=5, which is not a text\. Write amount='amount'\."),
        ("two_phase", {"salts": "3"}, r"has salts='3', which is not an integer\. Write salts=16\."),
        ("tumbling_window", {"zone": 5}, r"has zone=5, which is not a text\. Write zone='Europe/Berlin'\."),
        (
            "tumbling_window",
            {"week_begins": 1},
            r"has week_begins=1, which is not a text\. Write week_begins='monday'\.",
        ),
        *(
            (
                operator,
                {side: wrong},
                rf"is declared with {shown}\. Declare it with a source, or with rows of another op",
            )
            for operator, side in [("aggregate", "of"), ("tumbling_window", "of"), ("lookup", "left")]
            for wrong, shown in [
                (None, "None"),
                ("left", "'left'"),
                ([], r"\[\]"),
                (OPEN, "tumbling_window 'open'"),
                ([LEFT, OPEN], "tumbling_window 'open'"),
            ]
        ),
    ],
)
def test_a_wrong_type_is_refused_with_what_to_write(operator: str, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message) as refusal:
        declared(operator, **changes)
    assert str(refusal.value).startswith(operator)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: agg.sum(5), r"^agg\.sum has 5 for a column\. Write the name of one: agg\.sum\('amount'\)\."),  # type: ignore[arg-type]
        (lambda: agg.top("n", 5, by=None), r"^agg\.top has None for a column\. Write the name"),  # type: ignore[arg-type]
        (lambda: agg.top("n", "5", by="d"), r"^agg\.top\('n'\): n='5' is not an integer\. Write one of at least 1\."),  # type: ignore[arg-type]
        (
            lambda: agg.distinct("n", k=5.5),
            r"^agg\.distinct\('n'\): k=5\.5 is not an integer\. Write one of at least 2",
        ),  # type: ignore[arg-type]
        (lambda: agg.collect("n", most=True), r"^agg\.collect\('n'\): most=True is not an integer\. Write one of at"),
    ],
)
def test_an_aggregate_of_a_wrong_type_is_refused_with_what_to_write(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        make()


def test_each_annotation_of_an_operator_is_checked_somewhere() -> None:
    elsewhere = {"Reads", "Source", "Emit", "How", "DataFrame"}
    for name in operators.__all__:
        function = getattr(operators, name)
        if hasattr(function, "__wrapped__"):
            kinds = {str(one.annotation) for one in inspect.signature(function).parameters.values()}
            rest = {kind for kind in kinds - elsewhere - set(arguments.KINDS) if not kind.startswith("Literal[")}
            assert {kind for kind in rest if "Operator" not in kind} == set(), name
