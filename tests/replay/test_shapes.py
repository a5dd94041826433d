"""Seeds of another shape: which fit, and which are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kappa import Append, Source, Table, Topology
from kappa.operators import agg, deduplicate, table_join, tumbling_window, versions_by
from kappa.replay.findings import Severity
from kappa.replay.rules.seed import unlike_seed
from kappa.topology.operator import Operator
from kappa.topology.shapes import (
    Shape,
    Timing,
    shapes_as_dict,
    shapes_from_dict,
    shapes_of,
    tables_only,
    timings_from_dict,
)

TABLE = Shape(columns={"id": "STRING", "total": "BIGINT"}, required=("id",), key=("id",))
SEED = {"tables/balances": TABLE, "outputs/moves": replace(TABLE, key=())}


def differences(shapes: dict[str, Shape]) -> list[tuple[str, Severity, Any]]:
    return [(f.code, f.severity, f.numbers.get("columns")) for f in unlike_seed(shapes, SEED, "The savepoint")]


def test_an_equal_or_smaller_shape_fits() -> None:
    assert differences(SEED) == []
    assert differences({"tables/balances": replace(TABLE, columns={"id": "STRING"})}) == []
    assert differences(tables_only(SEED)) == []


@pytest.mark.parametrize(
    ("shape", "code", "severity", "columns"),
    [
        (replace(TABLE, key=("id", "total")), "seed-key-changed", Severity.REFUSE, None),
        (replace(TABLE, columns={"id": "STRING", "total": "STRING"}), "seed-type-changed", Severity.REFUSE, ["total"]),
        (replace(TABLE, required=("id", "total")), "seed-type-changed", Severity.REFUSE, ["total"]),
        (replace(TABLE, columns={**TABLE.columns, "new": "INT"}), "seed-lacks-column", Severity.WARN, ["new"]),
        (
            replace(TABLE, columns={**TABLE.columns, "new": "INT"}, required=("id", "new")),
            "seed-lacks-required-column",
            Severity.REFUSE,
            ["new"],
        ),
    ],
)
def test_a_changed_shape_is_refused_unless_null_can_fill_it(
    shape: Shape, code: str, severity: Severity, columns: list[str] | None
) -> None:
    assert differences({"tables/balances": shape}) == [(code, severity, columns)]


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("STRUCT<a: NUMERIC(12)>", "STRUCT<a: DECIMAL(12, 0)>"),
        ("ARRAY<DEC>", "ARRAY<DECIMAL(10)>"),
        ("MAP<STRING, TIMESTAMP_LTZ>", "MAP<STRING, TIMESTAMP>"),
        ("STRUCT<a: INT COMMENT 'it\\'s a DEC', b: STRUCT<c: INT>>", "STRUCT<a: INT, b: STRUCT<c: INT COMMENT 'c'>>"),
    ],
)
def test_a_type_in_other_words_within_another_is_the_same(was: str, now: str) -> None:
    def shape(kind: str) -> dict[str, Shape]:
        table = Table(name="balances", key="id", schema=f"id STRING NOT NULL, x {kind}")
        return {"tables/balances": Shape.of(table)}

    recorded = {"tables/balances": {**shapes_as_dict(SEED)["tables/balances"], "columns": {"id": "STRING", "x": was}}}
    for seed in (shape(was), shapes_from_dict(recorded)):
        assert unlike_seed(shape(now), seed, "The savepoint") == []


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("STRUCT<a: DECIMAL(12)>", "STRUCT<a: DECIMAL(12,1)>"),
        ("STRUCT<a: INT>", "STRUCT<a: INT NOT NULL>"),
        ("STRUCT<DEC: INT>", "STRUCT<`DECIMAL(10, 0)`: INT>"),
        ("STRUCT<`NUMERIC`: INT>", "STRUCT<`DECIMAL(10, 0)`: INT>"),
    ],
)
def test_another_type_within_a_type_is_another_one(was: str, now: str) -> None:
    seed, shapes = (
        {"tables/t": Shape.of(Table(name="t", key="id", schema=f"id STRING NOT NULL, x {kind}"))} for kind in (was, now)
    )
    assert [finding.code for finding in unlike_seed(shapes, seed, "The savepoint")] == ["seed-type-changed"]


def test_a_new_table_is_refused_and_a_new_output_is_not() -> None:
    assert differences({"tables/new": TABLE}) == [("seed-lacks-table", Severity.REFUSE, None)]
    assert differences({"outputs/new": TABLE}) == [("seed-lacks-output", Severity.WARN, None)]


def test_shapes_survive_json() -> None:
    assert shapes_from_dict(shapes_as_dict(SEED)) == SEED


SALE = "store STRING NOT NULL, at BIGINT NOT NULL, sent BIGINT NOT NULL"
POS = Source(topic="pos", schema=SALE, time="at", grace="10 seconds")
SALES = tumbling_window(POS, key="store", size="1 minute", aggregates={"n": agg.count()}, table="windows")
SEEN = deduplicate(POS, key="store", within=None, table="seen")


def timed(**source: Any) -> dict[str, Shape]:
    """Shapes of a topology with a window, and a table that event time does not bound.

    Their tables alone: an operator on windows is not declared with a source that has no event time.
    """
    return shapes_of(
        Topology(
            name="ops.sales",
            version="1",
            sources=[replace(POS, **source)],
            tables=[*SALES.tables, *SEEN.tables],
            outputs=[Append(name="sales", schema=SALES.schema)],
            step=lambda _: {},
        )
    )


def test_time_and_grace_are_part_of_the_shape_of_tables_that_close() -> None:
    shapes = timed()
    assert shapes["tables/windows"].times == {"pos": Timing(time="at", grace_ms=10_000)}
    assert shapes["tables/seen"].times == shapes["outputs/sales"].times == {}
    assert shapes_from_dict(shapes_as_dict(shapes)) == shapes


@pytest.mark.parametrize(
    ("source", "code", "words"),
    [
        ({"time": "sent"}, "seed-time-changed", "takes its time from 'sent', not from 'at'"),
        ({"time": None}, "seed-time-changed", "takes its time from Kafka's timestamp, not from 'at'"),
        ({"time": None, "grace": None}, "seed-time-changed", "no longer has event time"),
        ({"grace": "1 hour"}, "seed-grace-changed", "was 10 seconds in the savepoint and is 1 hour"),
        ({"grace": "1 second"}, "seed-grace-changed", "was 10 seconds in the savepoint and is 1 second"),
    ],
)
def test_a_seed_with_another_time_is_refused_and_another_grace_is_reported(
    source: dict[str, Any], code: str, words: str
) -> None:
    (finding,) = unlike_seed(timed(**source), timed(), "The savepoint")
    assert finding.code == code and words in finding.message
    assert (finding.severity is Severity.REFUSE) == (code == "seed-time-changed")


def beside(sources: Sequence[Source], *operators: Operator[Any]) -> dict[str, Shape]:
    """Shapes of a topology with a window over sales, and others."""
    return shapes_of(Topology(name="ops.sales", version="1", sources=[POS, *sources], operators=[SALES, *operators]))


def test_the_times_of_sources_that_a_table_does_not_follow_are_not_its_own() -> None:
    other = replace(POS, topic="other")
    without, timed = beside([replace(other, time=None, grace=None)]), beside([other])
    for shapes, seed in (
        (timed, beside([])),
        (beside([]), timed),
        (timed, without),
        (without, timed),
        (beside([replace(other, time="sent")]), timed),
    ):
        assert unlike_seed(tables_only(shapes), seed, "The savepoint") == []


def test_the_times_of_all_sources_count_where_a_table_does_not_name_those_it_follows() -> None:
    other = replace(POS, topic="other", schema="store STRING NOT NULL, at BIGINT NOT NULL, later BIGINT NOT NULL")

    def joined(prices: Source) -> dict[str, Shape]:
        versions = versions_by(prices, key="store", table="prices", rows="store STRING NOT NULL")
        return beside([prices], versions, table_join(POS, versions, key="store", tables="waiting"))

    findings = unlike_seed(tables_only(joined(replace(other, time="later"))), joined(other), "The savepoint")
    assert [(one.code, one.numbers["name"]) for one in findings] == [
        ("seed-time-changed", "prices"),
        ("seed-time-changed", "waiting"),
    ]
    # Earlier code did not name them.
    stored = shapes_as_dict(beside([]))
    stored["tables/windows"]["made_by"] = stored["tables/windows"]["made_by"].removesuffix(" of (pos)")
    (finding,) = unlike_seed(tables_only(beside([other])), shapes_from_dict(stored), "The savepoint")
    assert finding.code == "seed-time-changed" and "'other' has event time now" in finding.message


def test_a_seed_of_earlier_code_without_times_is_refused_where_rows_close() -> None:
    stored = shapes_as_dict(timed())
    for shape in stored.values():
        del shape["times"]
    (finding,) = unlike_seed(timed(), shapes_from_dict(stored), "The savepoint")
    assert (finding.code, finding.severity) == ("seed-time-unknown", Severity.REFUSE)
    assert "'windows'" in finding.message and "kappa upgrade" in finding.remedy


def test_fields_of_newer_code_about_source_times_are_ignored() -> None:
    values = {
        "moves": {"time": "at", "grace_ms": 5, "moon": "full"},
        "told": {"time": "at", "grace_ms": 0, "follows": "a.b"},
    }
    assert timings_from_dict(values) == {
        "moves": Timing(time="at", grace_ms=5),
        "told": Timing(time="at", grace_ms=0, follows="a.b"),
    }


@pytest.mark.parametrize(
    ("one", "other"), [("DECIMAL", "DECIMAL(10,0)"), ("NUMERIC(12)", "DECIMAL(12, 0)"), ("TIMESTAMP_LTZ", "TIMESTAMP")]
)
def test_a_type_is_one_however_it_is_declared_or_was_recorded(one: str, other: str) -> None:
    was, now = (Shape.of(Table(name="t", key="k", schema=f"k {kind} NOT NULL, v {kind}")) for kind in (one, other))
    recorded = Shape.from_dict({"columns": {"k": one, "v": one}, "required": ["k"], "key": ["k"], "hidden": []})
    assert was == now and was.typed_key == now.typed_key
    assert recorded.columns == now.columns
